"""The recorder: what a trigger writes, what each wave's summary says, and that nothing it does reaches training."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from pricing import GIB, Profile, RequestSpec, find_law
from pricing.planner.budget import Budget, BudgetVerdict
from pricing.planner.plan import Batch, PlanRequest, Verdict, WavePlan, plan_wave
from pricing.records.metrics import Metrics, PrometheusExporter, WaveSummary, wandb_logger
from pricing.records.record import DecisionRecord, Event
from pricing.records.record_file import read_record
from pricing.records.recorder import Handoff, Recorder, Triggers, record_of_plan, record_of_price
from pricing.records.replay import replay
from pricing.records.spool import record_paths
from tests.making import a_reading, a_wave, learned

PROFILE = learned(a_reading(1_000 * size, 300_000_000 * size, retained_bytes=10_000) for size in (1, 2, 3))
BUDGET = Budget(free_bytes=9 * GIB, reserve_bytes=GIB, reusable_cache_bytes=2 * GIB)


def a_plan(available_bytes: int) -> tuple[WavePlan, Batch]:
    spec = RequestSpec(input_shape=(400,), target_shape=(400,))
    items = [[PlanRequest(tokens=[item] * 400, spec=spec) for item in range(first, first + 2)] for first in (0, 2, 4)]
    batch = Batch(items)
    signature = plan_wave(batch, profiles={}, available_bytes=0).signature
    return plan_wave(batch, profiles={signature: PROFILE}, available_bytes=available_bytes), batch


def kinds(folder: Path) -> list[str]:
    return [read_record(path).record.event for path in record_paths(folder)]


def test_nothing_is_written_unless_a_spool_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorder = Recorder(name="rank0")
    ticket = recorder.priced(a_wave(5_000), PROFILE, available_bytes=GIB)
    recorder.observed(ticket, a_reading(5_000, GIB))
    assert recorder.last_summary is not None and recorder.failures == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("peak_share", "triggers", "written"),
    [
        (1.0, Triggers(), False),
        (0.51, Triggers(), False),
        (0.49, Triggers(), True),
        (1.001, Triggers(), True),
        (1.001, Triggers(under_percent=1), False),
        (1.02, Triggers(under_percent=1), True),
        (0.9, Triggers(over_percent=10), True),
        (1.0, Triggers(everything=True), True),
    ],
)
def test_a_record_is_written_when_price_and_peak_are_far_apart(
    tmp_path: Path, peak_share: float, triggers: Triggers, written: bool
) -> None:
    recorder = Recorder(spool=tmp_path, triggers=triggers)
    ticket = recorder.priced(a_wave(5_000), PROFILE, available_bytes=8 * GIB)
    assert ticket is not None
    recorder.observed(ticket, a_reading(5_000, int(ticket.required_bytes * peak_share)))
    assert kinds(tmp_path) == (["observed"] if written else [])
    assert recorder.spool is not None and recorder.spool.dropped == 0


def test_a_peak_of_nothing_is_no_division_by_zero(tmp_path: Path) -> None:
    recorder = Recorder(spool=tmp_path)
    recorder.observed(recorder.priced(a_wave(5_000), PROFILE, available_bytes=GIB), a_reading(5_000, 0))
    assert recorder.failures == 0 and kinds(tmp_path) == ["observed"]
    assert recorder.last_record is not None and recorder.last_record.observed is not None
    assert recorder.last_record.observed.over_per_million is None


def test_the_error_is_against_the_footprint_where_one_was_read(tmp_path: Path) -> None:
    """A price covers both; the peak alone would call a wave fine that took more of the device than its price."""
    for footprint_share, far_off in ((0.9, False), (1.1, True)):
        recorder = Recorder(spool=tmp_path / str(far_off))
        ticket = recorder.priced(a_wave(5_000), PROFILE, available_bytes=8 * GIB)
        assert ticket is not None
        priced = ticket.required_bytes
        told = replace(a_reading(5_000, priced * 3 // 4), footprint_bytes=int(priced * footprint_share))
        recorder.observed(ticket, told)
        assert recorder.last_record is not None and recorder.last_record.observed is not None
        observed = recorder.last_record.observed
        assert observed.error_bytes == priced - int(priced * footprint_share)
        assert kinds(tmp_path / str(far_off)) == ["observed"] * far_off
        summary = WaveSummary.of(recorder.last_record)
        assert summary.is_under == far_off
        assert summary.metrics()["memory/error_bytes"] == observed.error_bytes
        assert summary.metrics()["memory/footprint_bytes"] == observed.used_bytes


def test_a_planned_wave_from_admission_to_its_reading(tmp_path: Path) -> None:
    plan, batch = a_plan(GIB)
    assert plan.verdict is Verdict.RUN
    recorder = Recorder(name="rank3", spool=tmp_path, triggers=Triggers(everything=True))
    ticket = recorder.admitted(plan, batch=batch, budget=BUDGET, handoff=Handoff(budget=BUDGET))
    recorder.observed(ticket, a_reading(plan.wave.packed_rows, 400_000_000))
    (path,) = record_paths(tmp_path)
    record = read_record(path).record
    assert (record.name, record.index, record.event) == ("rank3", 0, Event.OBSERVED)
    assert [step.width for step in record.tried] == [step.width for step in plan.tried]
    assert [step.required_bytes for step in record.tried] == [step.required_bytes for step in plan.tried]
    assert record.structure is not None and record.structure.request_rows == (400,) * (2 * plan.width)
    assert sum(record.structure.segment_rows) == plan.shape.packed_rows
    assert record.handoff is not None and record.handoff.verdict == BudgetVerdict.RUN
    assert record.observed is not None and record.observed.error_bytes == plan.required_bytes - 400_000_000
    assert replay(record).is_equal


def test_a_refusal_is_written_with_its_reason_and_its_rungs(tmp_path: Path) -> None:
    plan, _ = a_plan(1_000_000)
    assert plan.verdict is Verdict.REFUSE
    recorder = Recorder(spool=tmp_path)
    recorder.refused(plan, budget=BUDGET, index=7)
    (path,) = record_paths(tmp_path)
    record = read_record(path).record
    assert (record.event, record.index, record.verdict) == (Event.REFUSED, 7, "refuse")
    assert record.refusal is not None and "no feasible split found" in record.refusal.text
    assert record.rungs and record.refusal.shortfall_bytes == plan.required_bytes - 1_000_000
    assert recorder.last_summary is not None and recorder.last_summary.metrics()["memory/refused"] == 1


def test_the_recorder_counts_waves_where_the_caller_does_not() -> None:
    recorder = Recorder()
    indices = []
    for given in (None, None, 10, None):
        ticket = recorder.priced(a_wave(5_000), PROFILE, available_bytes=GIB, index=given)
        assert ticket is not None
        indices.append(ticket.index)
    assert indices == [0, 1, 10, 11]


def test_nothing_raises_into_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken_sink(_: WaveSummary) -> None:
        raise RuntimeError("sink is broken")

    seen: list[Metrics] = []
    recorder = Recorder(spool=tmp_path / "file", metrics=[broken_sink, wandb_logger(seen.append)])
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert recorder.admitted("no plan") is None  # type: ignore[arg-type]
        recorder.observed(None, None)
        assert recorder.out_of_memory(None) is None
        recorder.abandoned(None)
        for _ in range(3):
            ticket = recorder.priced(a_wave(5_000), PROFILE, available_bytes=GIB)
            recorder.observed(ticket, a_reading(5_000, GIB))
        recorder.observed(ticket, "no reading")  # type: ignore[arg-type]
    assert recorder.failures == 5 and recorder.last_failure is not None
    assert len(seen) == 3, "a broken sink does not take the others with it"
    assert recorder.spool is not None and recorder.spool.dropped >= 3
    said = [entry.getMessage() for entry in caplog.records if entry.name == "pricing.records.recorder"]
    assert len(said) == 2 and "sink is broken" in said[1]


def test_metrics_have_slash_names_and_leave_out_what_is_not_known() -> None:
    seen: list[Metrics] = []
    recorder = Recorder(name="rank0", metrics=[wandb_logger(seen.append)])
    ticket = recorder.priced(a_wave(5_000, 20_000, 7), PROFILE, available_bytes=8 * GIB, budget=BUDGET)
    assert ticket is not None
    recorder.observed(ticket, a_reading(5_000, GIB))
    recorder.abandoned(recorder.priced(a_wave(5_000), PROFILE, available_bytes=8 * GIB), note="broke off")
    ran, abandoned = seen
    assert ran["memory/estimate_bytes"] == ticket.required_bytes
    assert ran["memory/observed_bytes"] == GIB
    assert ran["memory/over_fraction"] == pytest.approx(ticket.required_bytes / GIB - 1)
    assert ran["memory/headroom_bytes"] == 8 * GIB - ticket.required_bytes
    assert ran["memory/free_bytes"] == 9 * GIB and ran["memory/reusable_cache_bytes"] == 2 * GIB
    assert ran["memory/sharing"] == 4 and ran["memory/wave"] == 0 and abandoned["memory/wave"] == 1
    unknown = {"memory/observed_bytes", "memory/over_fraction", "memory/error_bytes", "memory/under"}
    assert unknown <= ran.keys() and not unknown & abandoned.keys()
    assert all(name.startswith("memory/") and isinstance(value, (int, float)) for name, value in ran.items())


def test_a_cold_price_is_never_called_broken() -> None:
    cold = WaveSummary.of(record_of_price(a_wave(500), Profile(), available_bytes=GIB))
    assert cold.is_cold and not cold.is_under


def test_prometheus_exposes_the_latest_wave_and_counts_all() -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    recorder = Recorder(name="rank0", metrics=[PrometheusExporter(registry)])
    ticket = recorder.priced(a_wave(5_000), PROFILE, available_bytes=8 * GIB)
    assert ticket is not None
    recorder.observed(ticket, a_reading(5_000, ticket.required_bytes + 1))
    recorder.priced(a_wave(5_000), PROFILE, available_bytes=8 * GIB)
    recorder.abandoned(ticket)
    assert recorder.failures == 0, recorder.last_failure

    def sample(name: str, **labels: str) -> float | None:
        value: float | None = registry.get_sample_value(name, {"name": "rank0", **labels})
        return value

    assert sample("memory_estimate_bytes") == ticket.required_bytes
    observed = sample("memory_observed_bytes")
    assert observed is not None and observed != observed, "the latest wave was not read: NaN, never a stale figure"
    assert sample("memory_under_total") == 1
    assert sample("memory_waves_total", law="frontier", event="observed", binding_term="frontier") == 1
    assert sample("memory_waves_total", law="frontier", event="abandoned", binding_term="frontier") == 1
    text = prometheus.generate_latest(registry).decode()
    assert "# HELP memory_headroom_bytes" in text


def test_a_price_under_another_law_keeps_its_law_in_the_record() -> None:
    recorder = Recorder()
    ticket = recorder.priced(a_wave(5_000), PROFILE, available_bytes=GIB, law=find_law("frontier"))
    assert ticket is not None and ticket.law == "frontier" and replay(ticket).is_equal


def test_where_nobody_listens_a_wave_writes_nothing_down_and_can_still_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def counted(plan: WavePlan, *, name: str, index: int, batch: Batch, budget: Budget) -> DecisionRecord:
        made.append(index)
        return record_of_plan(plan, name=name, index=index, batch=batch, budget=budget)

    monkeypatch.setattr("pricing.records.recorder.record_of_plan", counted)
    plan, batch = a_plan(GIB)
    listened, alone = Recorder(metrics=[lambda summary: None]), Recorder()
    for recorder in (alone, listened):
        ticket = recorder.admitted(plan, batch=batch, budget=BUDGET, handoff=Handoff(budget=BUDGET))
        recorder.observed(ticket, a_reading(plan.wave.packed_rows, 400_000_000))
        assert len(made) == (0 if recorder is alone else 1)

    assert alone.last_record == listened.last_record and alone.last_summary == listened.last_summary
    assert alone.last_record is not None and alone.last_record.event is Event.OBSERVED and len(made) == 2
