"""Public cases about records: D24 (replaying old reports), D23 (refusals and failures that can be trusted), and kin."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pricing import GIB, NO_RECOMPUTE, Profile, RequestSpec, Safety, find_law, observe
from pricing.kernel.laws import LAWS
from pricing.planner.budget import Budget, BudgetVerdict
from pricing.planner.plan import Batch, PlanRequest, Verdict, WavePlan, plan_wave
from pricing.records.record import DecisionRecord, Event, IncompleteRecordError
from pricing.records.record_file import parse_record, read_record, record_text
from pricing.records.recorder import Handoff, Recorder, record_of_plan, record_of_price
from pricing.records.replay import replay
from pricing.records.spool import record_paths
from tests.making import a_reading, a_wave, learned, rate_profile, without_cache

WARM = learned(a_reading(1_000 * size, 400_000_000 - 1_000_000 * size) for size in (1, 2, 3))
"""A profile whose warm fit prices below its all-readings term."""


def as_data(record: DecisionRecord) -> Any:
    return json.loads(record_text(record))


# --- D24: replaying an old planner report ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strip", "field"),
    [
        (lambda data: data["regimes"][0].pop("recompute"), "regimes[0].recompute"),
        (lambda data: data["regimes"][0]["recompute"].pop("granularity"), "regimes[0].recompute.granularity"),
        (lambda data: data["regimes"][0]["recompute"].pop("method"), "regimes[0].recompute.method"),
        (lambda data: data["regimes"][0]["recompute"].pop("num_layers"), "regimes[0].recompute.num_layers"),
        (lambda data: data["regimes"][0]["recompute"].pop("training"), "regimes[0].recompute.training"),
    ],
)
def test_d24_a_report_without_the_recompute_mode_is_incomplete_and_names_it(
    strip: Callable[[Any], object], field: str
) -> None:
    data = as_data(record_of_price(a_wave(5_000), WARM, available_bytes=GIB, law=LAWS["warm"]))
    strip(data)
    with pytest.raises(IncompleteRecordError, match="was not recorded") as caught:
        parse_record(json.dumps(data))
    assert caught.value.where == field


def old_record(law: str) -> DecisionRecord:
    """A record from before there was a warm fit: one complete reading, and prices by the all-readings term alone."""
    profile = learned([a_reading(1_000, 300_000_000, retained_bytes=5_000)])
    return record_of_price(a_wave(5_000, 20_000, 3), profile, available_bytes=GIB, law=find_law(law))


@pytest.mark.invariant("INV-14")
@pytest.mark.parametrize("law", ["logical", "packed", "warm"])
def test_d24_a_report_without_warm_fields_replays_the_old_price_to_the_byte(law: str) -> None:
    record = old_record(law)
    data = as_data(record)
    for name in ("warm_bytes_per_row", "warm_packed_rows", "warm_sharing", "frontier"):
        del data["profiles"][0]["content"][name]
    read = parse_record(json.dumps(data))
    assert any("no warm fields" in remark for remark in read.remarks)
    replayed = replay(read.record)
    assert replayed.is_equal
    assert replayed.replayed.required_bytes == record.required_bytes


def test_d24_without_warm_fields_a_warm_price_is_found_to_differ_not_silently_kept() -> None:
    data = as_data(record_of_price(a_wave(5_000), WARM, available_bytes=GIB, law=LAWS["warm"]))
    assert data["price"]["binding_term"] == "warm"
    for name in ("warm_bytes_per_row", "warm_packed_rows", "warm_sharing"):
        del data["profiles"][0]["content"][name]
    replayed = replay(parse_record(json.dumps(data)).record)
    assert replayed.replayed.price.binding_term == "all_readings", "priced as before there was a warm fit"
    assert not replayed.is_equal


def test_d24_a_report_with_an_unknown_extra_field_is_accepted_and_says_so() -> None:
    record = record_of_price(a_wave(5_000), WARM, available_bytes=GIB)
    data = as_data(record)
    data["gpu_mood"] = "good"
    data["profiles"][0]["content"]["colder"] = 7
    data["profiles"][0]["content"]["sharing"]["exact"] = True
    read = parse_record(json.dumps(data))
    assert set(read.unknown_fields) == {
        "gpu_mood",
        "profiles[0].content.colder",
        "profiles[0].content.sharing.exact",
    }
    assert read.record == record and replay(read.record).is_equal


@pytest.mark.invariant("INV-14")
@pytest.mark.parametrize("law", sorted(LAWS))
def test_d24_a_replay_uses_nothing_from_the_live_process(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the environment, not a file, not another profile: the record's text is all there is."""
    text = record_text(record_of_price(a_wave(5_000, 20_000), WARM, available_bytes=GIB, law=find_law(law)))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a replay opened a file")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("os.environ", {})
    assert replay(parse_record(text).record).is_equal


# --- D16: the recompute mode is part of the record -------------------------------------------------------------------


def test_d16_changing_only_the_recompute_mode_in_a_report_changes_its_price_not_silently() -> None:
    data = as_data(record_of_price(a_wave(32_710, 38_443), rate_profile(180_000, 32_710), available_bytes=8 * GIB))
    for mode in ({"training": False}, {"granularity": "selective"}, {"num_layers": 2}, {"method": "block"}):
        changed = json.loads(json.dumps(data))
        changed["regimes"][0]["recompute"].update(mode)
        replayed = replay(parse_record(json.dumps(changed)).record)
        assert not replayed.is_equal
        assert "RECOMPUTE" in replayed.replayed.price.ineligible
    wave = a_wave(32_710, 38_443)
    other = replace(wave, workload=replace(wave.workload, recompute=NO_RECOMPUTE))
    assert record_of_price(other, WARM, available_bytes=GIB).regimes[0].recompute.mode == NO_RECOMPUTE


# --- D23: refusal and out-of-memory reports that can be trusted ------------------------------------------------------


def test_d23_a_failure_keeps_the_admission_s_own_figures(tmp_path: Path) -> None:
    """Admit 100 of 120, then run out of memory after free fell to 3."""
    profile, wave = without_cache(rate_profile(1, 10)), a_wave(80, floor_bytes=100)
    budget = Budget(free_bytes=120, reserve_bytes=0)
    recorder = Recorder(spool=tmp_path)
    ticket = recorder.priced(
        wave, profile, available_bytes=120, budget=budget, law=find_law("logical"), safety=Safety.parse(1)
    )
    assert ticket is not None and ticket.required_bytes == 100
    recorder.out_of_memory(ticket, requested_bytes=24, budget_after=Budget(free_bytes=3, reserve_bytes=0))
    (path,) = record_paths(tmp_path)
    record = read_record(path).record
    assert (record.required_bytes, record.available_bytes, record.verdict) == (100, 120, "run")
    assert record.budget is not None and record.budget.free_bytes == 120
    assert record.event is Event.OUT_OF_MEMORY
    assert record.failure is not None and record.failure.cause == "out_of_memory"
    assert record.failure.budget_after is not None and record.failure.budget_after.free_bytes == 3
    assert replay(record).is_equal, "the replay judges by the admission's figures, not by the failed state's"


def refused_split() -> WavePlan:
    """An item of several requests that fits neither whole nor in any split."""
    spec = RequestSpec(input_shape=(3_000,), target_shape=(3_000,))
    batch = Batch([[PlanRequest(tokens=[request] * 3_000, spec=spec) for request in range(4)]])
    signature = plan_wave(batch, profiles={}, available_bytes=0).signature
    profile = learned(a_reading(9_000, 4 * GIB, retained_bytes=3 * GIB) for _ in range(3))
    law, profiles = LAWS["warm"], {signature: profile}
    whole = plan_wave(batch, profiles=profiles, available_bytes=1, law=law)
    return plan_wave(batch, profiles=profiles, available_bytes=whole.required_bytes * 4 // 5, law=law)


def test_d23_a_refusal_lists_every_rung_with_its_own_rows_price_and_budget() -> None:
    plan = refused_split()
    assert plan.verdict is Verdict.REFUSE and len(plan.rungs) >= 2
    record = record_of_plan(plan)
    assert [rung.subforwards for rung in record.rungs] == [rung.subforwards for rung in plan.rungs]
    cut = [rung for rung in record.rungs if rung.children]
    assert cut, "at least one rung was planned"
    for rung in record.rungs:
        assert rung.available_bytes == plan.available_bytes and not rung.fits
    for rung in cut:
        assert rung.cost_bytes is not None and rung.cost_bytes > rung.available_bytes
        assert sum(child.wave.packed_rows for child in rung.children) >= plan.wave.packed_rows
        assert max(child.wave.packed_rows for child in rung.children) < record.wave.packed_rows
    assert record.wave.packed_rows == plan.wave.packed_rows, "the record's own rows are the unsplit wave's"
    assert record.refusal is not None
    assert "no feasible split found" in record.refusal.text and "exists" not in record.refusal.text
    assert replay(record).is_equal


def test_d23_rows_or_budget_of_another_rung_are_found_by_the_replay() -> None:
    data = as_data(record_of_plan(refused_split()))
    at = next(at for at, rung in enumerate(data["rungs"]) if rung["children"])
    data["rungs"][at]["children"][0]["wave"]["packed_rows"] = data["wave"]["packed_rows"]
    replayed = replay(parse_record(json.dumps(data)).record)
    assert replayed.differences[0].field.startswith(f"rungs[{at}]")


# --- D22 and D19 -----------------------------------------------------------------------------------------------------


def test_d22_a_record_whose_plan_is_not_the_one_that_was_priced_does_not_replay() -> None:
    spec = RequestSpec(input_shape=(100,), target_shape=(100,))
    batch = Batch([[PlanRequest(tokens=[item] * 100, spec=spec)] for item in range(4)])
    signature = plan_wave(batch, profiles={}, available_bytes=0).signature
    plan = plan_wave(batch, profiles={signature: rate_profile(42, 400)}, available_bytes=GIB)
    record = record_of_plan(plan)
    assert replay(record).is_equal
    ran = replace(record.wave, packed_rows=2 * record.wave.packed_rows)
    replayed = replay(replace(record, wave=ran))
    assert replayed.differences and any(difference.field == "wave.packed_rows" for difference in replayed.differences)


def test_d19_the_record_keeps_both_figures_and_the_verdict_to_release_first() -> None:
    budget = Budget(free_bytes=14_352_384, reserve_bytes=0, reusable_cache_bytes=68_228_445_901)
    profile = rate_profile(40_000, 98_647)
    recorder = Recorder()
    ticket = recorder.priced(a_wave(98_647, 345_213), profile, available_bytes=budget.available_bytes, budget=budget)
    assert ticket is not None
    record = replace(ticket, handoff=None)
    plan_less = recorder.last_record
    assert plan_less == record and record.budget is not None
    assert (record.budget.free_bytes, record.budget.reusable_cache_bytes) == (14_352_384, 68_228_445_901)
    recorder.admitted(refused_split(), handoff=Handoff(budget=budget))
    refused = recorder.last_record
    assert refused is not None and refused.handoff is not None
    assert refused.handoff.verdict == BudgetVerdict.RELEASE, "it fits only by what is cached"
    assert replay(refused).is_equal


def test_an_observation_that_did_not_exceed_its_price_changes_nothing_in_the_record() -> None:
    """D19 (b): the forward stayed below its price; the record says so and the profile in it is the admission's."""
    profile = observe(Profile(), a_reading(1_000, 10**9))
    recorder = Recorder()
    ticket = recorder.priced(a_wave(1_000), profile, available_bytes=GIB)
    recorder.observed(ticket, a_reading(1_000, 10**8))
    assert recorder.last_record is not None and ticket is not None
    assert recorder.last_record.profiles == ticket.profiles
    assert recorder.last_record.observed is not None and recorder.last_record.observed.error_bytes > 0
