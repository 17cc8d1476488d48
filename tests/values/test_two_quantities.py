"""Footprints by figures: what was measured on an H200, and the cases that the allocated price alone got wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pricing import LAWS, Profile, Reading, ReadingKind, Wave, Workload, required_bytes
from pricing.evidence.trace import read_trace
from pricing.kernel.price import Quantity, allocated_bytes, price
from pricing.kernel.profile import observe, observe_all
from pricing.kernel.quantities import GIB
from pricing.kernel.reading import out_of_memory_footprint_bytes
from pricing.planner.budget import Budget, BudgetVerdict, judge, judge_after_release

PHYSICAL = Path(__file__).resolve().parents[2] / "spec" / "evidence" / "h200-physical"
FRONTIER = LAWS["frontier"]


def learned(trace: str) -> Profile:
    return observe_all(Profile(), [told for wave in read_trace(PHYSICAL / trace) for told in wave.readings])


@pytest.mark.invariant("INV-15")
def test_an_allocated_price_that_held_is_below_what_the_device_ran_out_of() -> None:
    """A wave of the MoE soak, 24 GiB: priced above its allocated peak, and out of memory."""
    waves = read_trace(PHYSICAL / "moe-21.jsonl")
    profile = learned("moe-21.jsonl")
    largest = max(waves, key=lambda wave: wave.peak_bytes)
    explained = price(largest.wave, profile, FRONTIER)
    assert largest.footprint_bytes is not None
    assert explained.quantity is Quantity.FOOTPRINT
    assert explained.allocated.required_bytes >= largest.peak_bytes
    assert explained.required_bytes == explained.footprint.required_bytes >= largest.footprint_bytes
    assert allocated_bytes(largest.wave, profile, FRONTIER) == explained.allocated.required_bytes


@pytest.mark.invariant("INV-15")
def test_without_a_footprint_a_wave_costs_four_thirds_of_what_it_allocates() -> None:
    wave = Wave(packed_rows=10, logical_rows=10, grad_segments=0, output_bytes=0, workload=Workload.training())
    reading = Reading.of(wave, peak_delta_bytes=3_000_000)
    once = observe(Profile(), reading)
    assert allocated_bytes(wave, once) == (3_000_000 + 61_440) * 11 // 10 == 3_367_584
    assert required_bytes(wave, once) == 4_490_112 == 3_367_584 * 4 // 3
    told = observe(once, Reading.of(wave, peak_delta_bytes=3_000_000, footprint_bytes=3_100_000))
    assert required_bytes(wave, told) == (3_100_000 + 61_440) * 11 // 10 == 3_477_584


@pytest.mark.invariant("INV-16")
def test_what_ran_out_of_memory_does_not_fit_again_whatever_is_read_later() -> None:
    wave = Wave(packed_rows=1_000, logical_rows=1_000, grad_segments=0, output_bytes=0, workload=Workload.training())
    failed = Reading.of(
        wave,
        peak_delta_bytes=GIB,
        footprint_bytes=out_of_memory_footprint_bytes(
            available_bytes=8 * GIB, reserved_bytes=7 * GIB, requested_bytes=GIB
        ),
        kind=ReadingKind.OUT_OF_MEMORY,
    )
    ran = Reading.of(wave, peak_delta_bytes=GIB, footprint_bytes=2 * GIB)
    for law in LAWS.values():
        for before, after in ((0, 0), (0, 1), (0, 9), (1, 9), (5, 5)):
            profile = observe_all(Profile(), [ran] * before + [failed] + [ran] * after)
            assert required_bytes(wave, profile, law) >= 8 * GIB + GIB // 2, (law.name, before, after)


@pytest.mark.invariant("INV-17")
def test_idle_pages_that_stay_count_the_same_for_plan_and_admission() -> None:
    """Expandable segments kept what a release was to give back: the same wave was planned three times, then refused."""
    planned = Budget(free_bytes=2 * GIB, reserve_bytes=GIB, reusable_cache_bytes=3 * GIB)
    assert judge(4 * GIB, planned) is BudgetVerdict.RELEASE
    for released_bytes in (0, GIB, 3 * GIB):
        assert judge_after_release(4 * GIB, planned.after_release(released_bytes)) is BudgetVerdict.RUN
        assert judge_after_release(4 * GIB + 1, planned.after_release(released_bytes)) is BudgetVerdict.REFUSE


@pytest.mark.invariant("INV-18")
@pytest.mark.parametrize(
    ("available", "reserved", "requested", "needed"),
    [(0, 0, 0, 1), (1, 0, 0, 2), (16, 0, 0, 17), (17, 0, 0, 19), (16, 10, 7, 17), (16, 10, 8, 18), (-5, 3, 4, 7)],
)
def test_what_a_failed_wave_is_taken_to_need(available: int, reserved: int, requested: int, needed: int) -> None:
    assert needed == out_of_memory_footprint_bytes(
        available_bytes=available, reserved_bytes=reserved, requested_bytes=requested
    )


def test_the_cold_factor_covers_every_measured_wave_of_some_size() -> None:
    """4/3: above footprint / allocated peak of every wave of 15,000 rows and more but a recurrent one's (1.35)."""
    ratios = {
        (trace.stem, wave.wave.packed_rows): (wave.footprint_bytes or 0) / wave.peak_bytes
        for trace in sorted(PHYSICAL.glob("*-[0-9][0-9].jsonl"))
        for wave in read_trace(trace)
        if wave.wave.packed_rows >= 15_000
    }
    over = {key for key, ratio in ratios.items() if ratio > 4 / 3}
    assert len(ratios) > 50
    assert {stem for stem, _ in over} <= {"gdn-31"}
    lines = [json.loads(line) for line in (PHYSICAL / "moe-21.jsonl").read_text().splitlines()]
    assert all(line["cache_released"] and line["allocator_retries"] == 0 for line in lines)
