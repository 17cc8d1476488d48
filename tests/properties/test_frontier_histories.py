"""Adversarial histories under the frontier law: noise, outliers, shrinking waves, jumps in sharing, a tiny first wave.

A machine says what a wave really needs; a history of its waves is priced and observed as a trainer would. Coverage must
hold whatever the machine does. Safety must hold where the machine obeys the law's assumptions up to noise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import Profile, Reading, ReadingKind, Safety, Wave, Workload, allocated_bytes, contracts, observe
from pricing.kernel.bands import MOST_BANDS
from pricing.kernel.frontier import FRONTIER, peak_frontier

WORKLOADS = [Workload.training(shortest_rows=64), Workload.training(shortest_rows=63)]
NO_MARGIN = Safety(numerator=1, denominator=1)
STATE_BYTES = 4_292_608


@dataclass(frozen=True)
class Machine:
    """Memory as stages share it: a head with a fixed workspace, layers that grow by row, costs by logical row and
    segment within what HEAD and SEGMENT allow. Obeys SCALE exactly, before noise."""

    fixed_bytes: int
    row_bytes: int
    layer_row_bytes: int
    logical_row_bytes: int
    segment_bytes: int
    seed: int

    def compute_bytes(self, packed_rows: int, logical_rows: int, segments: int) -> int:
        head = min(self.fixed_bytes, packed_rows * 4_000_000) + self.row_bytes * packed_rows
        layers = self.layer_row_bytes * packed_rows
        return max(head, layers) + self.logical_row_bytes * logical_rows + self.segment_bytes * segments


machines = st.builds(
    Machine,
    fixed_bytes=st.integers(0, 4 << 30),
    row_bytes=st.integers(1_000, 400_000),
    layer_row_bytes=st.integers(1_000, 400_000),
    logical_row_bytes=st.integers(0, 6_144),
    segment_bytes=st.integers(0, STATE_BYTES),
    seed=st.integers(0, 1 << 32),
)

Noise = Callable[[random.Random], int]
"""Per mille of what the machine needs that a wave is seen to need."""

NOISES: dict[str, Noise] = {
    "none": lambda _: 1_000,
    "3_percent": lambda chance: chance.randint(970, 1_030),
    "outliers": lambda chance: chance.choice([1_000] * 9 + [1_300, 5_000]),
    "absurd": lambda chance: chance.randint(1, 20_000),
}

Sizes = Callable[[random.Random, int], tuple[int, int]]
"""(packed rows, sharing in hundredths) of wave number `at`."""

SHAPES: dict[str, Sizes] = {
    "mixed": lambda chance, _: (int(2 ** chance.uniform(6, 16)), chance.randint(100, 800)),
    "tiny_first": lambda chance, at: (27 if at < 2 else chance.randint(2_000, 60_000), chance.randint(100, 300)),
    "decreasing": lambda _, at: (max(1, 60_000 >> at // 2) + 7, 250),
    "sharing_jumps": lambda chance, at: (chance.randint(4_000, 9_000), 100 if at % 7 else 7_000),
    "one_size": lambda chance, _: (chance.randint(16_000, 16_400), chance.randint(200, 220)),
}


def waves_of(machine: Machine, shape: Sizes, noise: Noise, count: int) -> Iterator[tuple[Wave, int]]:
    """Waves and what each is seen to need, outputs included."""
    chance = random.Random(machine.seed)
    for at in range(count):
        rows, hundredths = shape(chance, at)
        logical = rows * hundredths // 100
        wave = Wave(
            packed_rows=rows,
            logical_rows=logical,
            grad_segments=chance.randint(1, 2 + rows // 200),
            output_bytes=4 * logical,
            segment_state_bytes=STATE_BYTES,
            workload=WORKLOADS[0],
        )
        need = machine.compute_bytes(rows, logical, wave.grad_segments) * noise(chance) // 1_000
        yield wave, need + wave.output_bytes


def readings_of(wave: Wave, peak_bytes: int) -> tuple[Reading, Reading]:
    """The forward's return, at two thirds of the peak, then the whole wave."""
    whole = Reading(
        packed_rows=wave.packed_rows,
        logical_rows=wave.logical_rows,
        grad_segments=wave.grad_segments,
        output_bytes=wave.output_bytes,
        peak_delta_bytes=peak_bytes,
    )
    forward = replace(
        whole,
        kind=ReadingKind.FORWARD_ONLY,
        peak_delta_bytes=max(wave.output_bytes, peak_bytes * 2 // 3),
        retained_bytes=peak_bytes // 3,
    )
    return forward, whole


@pytest.mark.invariant("INV-8")
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
@given(machine=machines)
def test_whatever_was_seen_is_covered_and_contracts_hold(shape: str, noise: str, machine: Machine) -> None:
    profile, seen = Profile(), []
    for at, (wave, peak) in enumerate(waves_of(machine, SHAPES[shape], NOISES[noise], 12)):
        for reading in readings_of(wave, peak):
            profile = observe(profile, reading)
        if at > 0:
            seen.append((wave, peak))
    assert len(profile.frontier.peak) <= MOST_BANDS
    for workload in WORKLOADS:
        for wave, peak in seen:
            asked = replace(wave, workload=workload)
            assert allocated_bytes(asked, profile, FRONTIER, NO_MARGIN) >= peak
            assert contracts.retained_is_never_above_required(asked, profile, FRONTIER)
        for (smaller, _), (larger, _) in pairwise(seen):
            grown = replace(
                larger,
                packed_rows=max(smaller.packed_rows, larger.packed_rows),
                logical_rows=max(smaller.logical_rows, larger.logical_rows),
                grad_segments=max(smaller.grad_segments, larger.grad_segments),
                output_bytes=max(smaller.output_bytes, larger.output_bytes),
                workload=workload,
            )
            assert contracts.price_never_falls(replace(smaller, workload=workload), grown, profile, FRONTIER)


@pytest.mark.parametrize("shape", SHAPES)
@given(machine=machines)
def test_a_machine_that_obeys_the_assumptions_within_3_percent_is_never_priced_under(
    shape: str, machine: Machine
) -> None:
    """1.03 / 0.97 < 11 / 10: from the first band on no wave is under, whatever its size, in whatever order."""
    profile = Profile()
    for wave, peak in waves_of(machine, SHAPES[shape], NOISES["3_percent"], 12):
        if peak_frontier(profile.frontier, True, STATE_BYTES).bounds:
            assert allocated_bytes(wave, profile, FRONTIER) >= peak
        for reading in readings_of(wave, peak):
            profile = observe(profile, reading)


@pytest.mark.parametrize("shape", SHAPES)
@given(machine=machines)
def test_where_the_assumptions_hold_exactly_no_margin_is_needed(shape: str, machine: Machine) -> None:
    """From the first band on, every wave is within its price at sigma = 1: before it was seen, and for good after."""
    profile = Profile()
    for wave, peak in waves_of(machine, SHAPES[shape], NOISES["none"], 12):
        if peak_frontier(profile.frontier, True, STATE_BYTES).bounds:
            assert allocated_bytes(wave, profile, FRONTIER, NO_MARGIN) >= peak
        for reading in readings_of(wave, peak):
            profile = observe(profile, reading)


@given(machine=machines, rows=st.integers(64, 60_000), sharing=st.integers(1, 100), segments=st.integers(0, 2_000))
def test_a_wave_like_one_that_ran_costs_what_that_one_cost(
    machine: Machine, rows: int, sharing: int, segments: int
) -> None:
    """However many logical rows and segments it had: they are in its peak. Rounding charges adds a byte for each."""
    need = machine.compute_bytes(rows, rows * sharing, segments)
    again = Reading(
        packed_rows=rows,
        logical_rows=rows * sharing,
        grad_segments=segments,
        output_bytes=0,
        peak_delta_bytes=need,
    )
    profile = observe(observe(Profile(), again), again)
    wave = Wave(
        packed_rows=rows,
        logical_rows=rows * sharing,
        grad_segments=segments,
        output_bytes=0,
        segment_state_bytes=STATE_BYTES,
        workload=WORKLOADS[0],
    )
    for workload in WORKLOADS:
        required = allocated_bytes(replace(wave, workload=workload), profile, FRONTIER, NO_MARGIN)
        assert need <= required <= need + rows * sharing + segments
