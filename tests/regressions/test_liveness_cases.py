"""One-time costs late in a run, and small calls before and after a long one: no reading stops a signature for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pricing import LAWS, Law, Profile, Reading, ReadingKind, Signature
from pricing.formats.profile_file import load_profile, save_profile
from pricing.kernel.merge import merge
from pricing.kernel.profile import observe, observe_all
from pricing.kernel.quantities import GIB
from pricing.planner.plan import Setting, Verdict, WavePlan, plan_wave
from pricing.records.record_file import parse_record, record_text
from pricing.records.replay import replay
from pricing.records.write_down import record_of_plan
from tests.planner.naive import grpo, only_signature

every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


def whole(rows: int, compute_bytes: int) -> Reading:
    return Reading(
        packed_rows=rows,
        logical_rows=rows,
        grad_segments=1,
        output_bytes=0,
        peak_delta_bytes=compute_bytes,
        footprint_bytes=compute_bytes,
    )


def clean(rows: int) -> Reading:
    """460 KB a row and a fixed 66 MiB."""
    return whole(rows, 66 * 1024**2 + 459_782 * rows)


def tiny(rows: int) -> Reading:
    """A call of few rows that pays a fixed cost: 12.8 MB a row."""
    return whole(rows, 12_800_000 * rows)


DEAR = whole(500, 30 * GIB)
LONG = whole(90_000, 21 * GIB)
HISTORIES = {
    "once at the same size": ([clean(500), clean(500), DEAR, *[clean(500)] * 50], 4_000, 8),
    "once among others": ([clean(900), clean(700), DEAR, *[clean(400 + 20 * at) for at in range(50)]], 4_000, 8),
    "once, then half": ([clean(800), DEAR, *[clean(800)] * 3], 6_400, 12),
    "in the seed, and again": ([DEAR, clean(500), DEAR, *[clean(512)] * 9], 4_000, 8),
    "tiny before": ([tiny(20), tiny(20), LONG], 15_000, 40),
    "tiny after": ([LONG, LONG, tiny(20)], 15_000, 40),
    "tiny after the seed": ([LONG, tiny(20)], 15_000, 40),
    "tiny between": ([tiny(20), LONG, tiny(30), tiny(10)], 60_000, 40),
}


SIGNATURE = only_signature(grpo(prompts=1, rollouts=1, prompt=64, completion=64), Setting())
"""Of waves of one kind, whatever their rows."""


def planned(
    rows: int, profile: Profile, available_bytes: int, law: Law, lost: frozenset[Signature] = frozenset()
) -> WavePlan:
    batch, setting = grpo(prompts=1, rollouts=1, prompt=rows // 2, completion=rows - rows // 2), Setting()
    profiles = {SIGNATURE: profile}
    return plan_wave(batch, profiles=profiles, available_bytes=available_bytes, setting=setting, law=law, lost=lost)


@pytest.mark.invariant("INV-20")
@every_law
@pytest.mark.parametrize("name", HISTORIES)
def test_a_wave_that_a_complete_reading_bounds_runs(name: str, law: Law, tmp_path: Path) -> None:
    told, rows, gib = HISTORIES[name]
    profile = observe_all(Profile(), told)
    plan = planned(rows, profile, gib * GIB, law)
    assert plan.verdict in (Verdict.RUN, Verdict.PROBE)
    again = observe(profile, clean(rows))  # the probe does not change the price: the next wave has one of its own
    assert planned(rows, again, gib * GIB, law).verdict in (Verdict.RUN, Verdict.PROBE)
    save_profile(tmp_path / "kept.json", again)
    restarted = load_profile(tmp_path / "kept.json")
    assert restarted == again
    for known in (restarted, merge(again, profile), merge(profile, again)):
        assert planned(rows, known, gib * GIB, law).verdict in (Verdict.RUN, Verdict.PROBE)


@every_law
@pytest.mark.parametrize("name", HISTORIES)
def test_a_probe_that_ran_out_of_memory_is_the_last(name: str, law: Law) -> None:
    told, rows, gib = HISTORIES[name]
    plan = planned(rows, observe_all(Profile(), told), gib * GIB, law)
    if plan.verdict is Verdict.PROBE:
        after = planned(rows, plan.profile, gib * GIB, law, frozenset({plan.signature}))
        assert after.verdict is Verdict.REFUSE and after.probe is not None and after.probe.lost


@every_law
def test_at_the_edge_of_a_device_nothing_is_probed(law: Law) -> None:
    """Clean readings price a wave just over the device: what they say is the price, so nothing stands against it."""
    profile = observe_all(Profile(), [clean(500), *[clean(500 + 10 * at) for at in range(20)]])
    plan = planned(4_000, profile, 1_700_000_000, law)
    assert plan.verdict is Verdict.REFUSE and plan.probe is not None
    assert plan.probe.witnessed_bytes is not None and plan.required_bytes < 2 * plan.probe.witnessed_bytes


@every_law
def test_only_complete_readings_are_witnesses(law: Law) -> None:
    broken_off = [replace(clean(500), kind=ReadingKind.INTERRUPTED)] * 50
    profile = observe_all(Profile(), [DEAR, DEAR, *broken_off])
    assert planned(4_000, profile, 8 * GIB, law).verdict is Verdict.REFUSE


@every_law
def test_a_witness_of_an_eighth_of_the_rows_is_needed(law: Law) -> None:
    profile = observe_all(Profile(), [clean(499), DEAR, *[clean(499)] * 9])
    assert planned(4_000, profile, 8 * GIB, law).verdict is Verdict.REFUSE


@every_law
def test_an_earned_probe_replays_from_its_record(law: Law) -> None:
    told, rows, gib = HISTORIES["once at the same size"]
    plan = planned(rows, observe_all(Profile(), told), gib * GIB, law)
    assert plan.verdict in (Verdict.RUN, Verdict.PROBE)
    record = parse_record(record_text(record_of_plan(plan))).record
    again = replay(record)
    assert again.is_equal, again.differences
    assert record.probe is None or record.probe.witnessed_bytes == (plan.probe and plan.probe.witnessed_bytes)
