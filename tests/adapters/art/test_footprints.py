"""What a bound rank reads of its device, without ART: clean starts, releases, resets and waves out of memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adapters.art.footprints import Footprints, OpenWave, RankDevice
from adapters.torch_memory import Unlearnable
from adapters.torch_memory.simulated_allocator import MIB, Block, SimulatedAllocator
from pricing import Profile, Reading, Wave, Workload, observe
from pricing.kernel.reading import ReadingKind
from tests.adapters.art.simulated import SimulatedCounter, simulated_device

ROOM = 400 * MIB
WAVE = Wave(packed_rows=1_000, logical_rows=1_500, grad_segments=3, output_bytes=0, workload=Workload.training())
KNOWN = observe(Profile(), Reading.of(WAVE, peak_delta_bytes=90 * MIB, footprint_bytes=100 * MIB))
"""A profile whose next wave of that size has no footprint to teach but the seed's."""


class Plan:
    """Whatever ART runs; only who it is counts."""


class Rank:
    """The waves of one rank on a simulated device, as a binding drives them."""

    def __init__(self, room_bytes: int = ROOM) -> None:
        self.allocator = SimulatedAllocator(room_bytes)
        self.footprints = Footprints(simulated_device(self.allocator))

    def begin(self, plan: Plan, profile: Profile = KNOWN, *, required: int = 0, **changes: Any) -> OpenWave:
        facts = {"available_bytes": ROOM, "is_split_child": False, "ends_with_forward": False, **changes}
        opened = self.footprints.begin(plan, WAVE, profile, filed_under="here", required_bytes=required, **facts)
        self.allocator.reset_peaks()  # as ART does
        return opened

    def idle(self, size_bytes: int) -> None:
        """Leave so much in the cache."""
        self.allocator.free(self.allocator.allocate(size_bytes))


def test_a_wave_whose_size_has_no_footprint_yet_begins_with_a_released_cache() -> None:
    rank, plan = Rank(), Plan()
    rank.idle(100 * MIB)
    opened = rank.begin(plan, Profile())
    assert opened.released_cache and opened.is_clean and rank.allocator.reserved_bytes == 0
    block = rank.allocator.allocate(60 * MIB)
    assert rank.footprints.look(plan, ends=False).footprint_bytes == 60 * MIB
    rank.allocator.free(rank.allocator.allocate(30 * MIB))
    rank.allocator.free(block)
    assert rank.footprints.look(plan, ends=True).footprint_bytes == 90 * MIB
    assert rank.footprints.releases == 1


def test_a_wave_that_fits_beside_the_cache_keeps_it_and_has_no_footprint() -> None:
    rank, plan = Rank(), Plan()
    known = observe(KNOWN, Reading.of(WAVE, peak_delta_bytes=90 * MIB, footprint_bytes=100 * MIB))
    rank.idle(100 * MIB)
    opened = rank.begin(plan, known, required=ROOM - 100 * MIB)
    assert not opened.released_cache and not opened.is_clean and rank.allocator.reserved_bytes == 100 * MIB
    rank.allocator.allocate(60 * MIB)
    assert rank.footprints.look(plan, ends=True).footprint_bytes is None


@pytest.mark.invariant("INV-17")
def test_a_price_above_what_lies_beside_the_cache_has_it_given_back_first() -> None:
    """To the byte; and what is counted as available is the same before and after."""
    known = observe(KNOWN, Reading.of(WAVE, peak_delta_bytes=90 * MIB, footprint_bytes=100 * MIB))
    for above, released in ((0, False), (1, True)):
        rank = Rank()
        rank.idle(100 * MIB)
        before = rank.footprints.available_bytes()
        opened = rank.begin(Plan(), known, required=ROOM - 100 * MIB + above)
        assert opened.released_cache is released
        assert before == opened.budget.available_bytes == rank.footprints.available_bytes() == ROOM


def test_what_was_there_before_and_let_go_inside_is_added() -> None:
    rank, plan = Rank(), Plan()
    earlier = rank.allocator.allocate(50 * MIB)
    rank.begin(plan, Profile())
    rank.allocator.free(earlier)
    rank.allocator.free(rank.allocator.allocate(50 * MIB))
    rank.allocator.free(rank.allocator.allocate(80 * MIB))
    look = rank.footprints.look(plan, ends=True)
    assert (
        look.footprint_bytes == 80 * MIB + 50 * MIB
    )  # reserved 130 at the peak, 50 of it in use at the start; 50 freed


def test_a_foreign_reset_is_noticed_and_what_was_seen_before_is_kept() -> None:
    rank, plan = Rank(), Plan()
    rank.begin(plan, Profile())
    rank.allocator.free(rank.allocator.allocate(70 * MIB))
    assert not rank.footprints.look(plan, ends=False).was_reset
    rank.allocator.empty_cache()
    rank.allocator.reset_peaks()
    look = rank.footprints.look(plan, ends=True)
    assert look.was_reset and look.footprint_bytes == 70 * MIB


def test_a_wave_inside_another_never_releases_to_learn_and_spoils_no_peak() -> None:
    rank, outer, inner = Rank(), Plan(), Plan()
    rank.begin(outer, Profile())
    rank.allocator.free(rank.allocator.allocate(70 * MIB))
    assert not rank.begin(inner, Profile(), ends_with_forward=True).released_cache
    rank.allocator.free(rank.allocator.allocate(10 * MIB))
    assert rank.footprints.look(inner, ends=False).footprint_bytes is None
    look = rank.footprints.look(outer, ends=True)
    assert look.footprint_bytes == 70 * MIB and not look.was_reset  # that it is broken is ART's to say


def test_a_wave_that_nobody_began_gives_no_footprint_and_no_whole_reading() -> None:
    look = Rank().footprints.look(Plan(), ends=True)
    assert look.footprint_bytes is None and look.was_reset


def allocate_until_failure(allocator: SimulatedAllocator, size_bytes: int) -> tuple[list[Block], BaseException]:
    held = []
    while True:
        try:
            held.append(allocator.allocate(size_bytes))
        except torch.OutOfMemoryError as error:
            return held, error


@pytest.mark.invariant("INV-16", "INV-18")
@pytest.mark.parametrize("available_bytes", [ROOM, ROOM // 2, 0, -5])
def test_a_forward_that_ran_out_needed_what_it_held_and_asked_for_or_17_16_of_what_it_had(available_bytes: int) -> None:
    rank, plan = Rank(), Plan()
    opened = rank.begin(plan, Profile(), available_bytes=available_bytes)
    _, error = allocate_until_failure(rank.allocator, 30 * MIB)
    reading = rank.footprints.out_of_memory(opened, error)
    assert reading.kind is ReadingKind.OUT_OF_MEMORY and reading.packed_rows == WAVE.packed_rows
    assert reading.peak_delta_bytes == 390 * MIB
    assert reading.footprint_bytes == max(420 * MIB, -(-17 * max(0, available_bytes) // 16))
    assert rank.footprints.failed() == []


def test_a_caller_that_ran_out_is_found_at_the_next_question_and_once() -> None:
    rank, plan = Rank(), Plan()
    opened = rank.begin(plan, Profile())
    rank.footprints.look(plan, ends=False)
    assert rank.footprints.failed() == []
    held, _ = allocate_until_failure(rank.allocator, 30 * MIB)
    for block in held:
        rank.allocator.free(block)
    assert rank.footprints.failed() == [opened] and rank.footprints.failed() == []
    reading = rank.footprints.out_of_memory(opened, None)
    assert reading.footprint_bytes == 17 * ROOM // 16 and reading.peak_delta_bytes == 390 * MIB


def test_a_caller_that_caught_it_and_went_on_gives_a_failure_not_a_whole_reading() -> None:
    rank, plan = Rank(), Plan()
    opened = rank.begin(plan, Profile())
    held, _ = allocate_until_failure(rank.allocator, 30 * MIB)
    for block in held:
        rank.allocator.free(block)
    assert rank.footprints.look(plan, ends=True).failed is opened


def test_a_child_of_a_split_had_what_there_was_when_it_began() -> None:
    rank = Rank()
    rank.allocator.allocate(100 * MIB)  # its sister's graph
    opened = rank.begin(Plan(), Profile(), available_bytes=ROOM, is_split_child=True)
    assert opened.available_bytes == ROOM - 100 * MIB and opened.ends_with_forward


def test_a_wave_whose_plan_is_gone_is_forgotten() -> None:
    rank = Rank()
    rank.begin(Plan(), Profile())
    rank.idle(50 * MIB)
    assert rank.begin(Plan(), Profile()).released_cache  # nothing is under way any more


def test_while_a_graph_is_captured_nothing_is_read() -> None:
    rank, plan = Rank(), Plan()
    opened = rank.begin(plan, Profile())
    counter = rank.footprints.device.counter
    assert isinstance(counter, SimulatedCounter)
    rank.allocator.allocate(30 * MIB)
    counter.refused = Unlearnable.STREAM_CAPTURE
    assert rank.footprints.look(plan, ends=False).was_reset
    assert rank.footprints.out_of_memory(opened, None).peak_delta_bytes == 0


def test_a_rank_without_a_cuda_device_has_none_to_read() -> None:
    assert RankDevice.of(SimpleNamespace(device=torch.device("cpu"))) is None
