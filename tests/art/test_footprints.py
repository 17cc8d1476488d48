"""ART's planner bound with footprints, on devices that fragment; and wrong bindings, each noticed by a run here."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from adapters.art import LearnedReading, bind, unbind
from adapters.art.bound_rank import Binding
from adapters.art.footprints import Footprints
from adapters.torch_memory.simulated_allocator import MIB, SimulatedAllocator
from pricing.kernel.quantities import GIB
from pricing.kernel.reading import Reading, ReadingKind
from pricing.records.record import Event
from pricing.records.recorder import Recorder
from pricing.records.replay import replay
from tests.adapters.art.simulated import simulated_device
from tests.art.fragmenting_rank import FragmentingRank, Tally, batch, run_forward, two_batches, understated
from tests.art.original import Geometry, load_trainer_rank, planning_rank
from tests.art.planning_runs import make_batch
from tests.art.test_binding import required, taught_rank

SEEDS = (8, 13, 21, 24, 26, 30)
"""Machines whose reserved peak lies 5 to 80 % above their allocated one, at some size."""

MonkeyPatch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _simulated_execution(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(load_trainer_rank()._impl.TrainerRank, "_run_flat_plan_with_memory_tracking", run_forward)


def understate(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(Footprints, "look", understated(Footprints.look))


@pytest.mark.parametrize("seed", SEEDS)
def test_with_footprints_no_wave_runs_out_of_memory(seed: int) -> None:
    rank = FragmentingRank(seed, 1_024, safety="51/50")
    tally = two_batches(rank)
    assert (tally.failures, tally.refused, tally.beside_the_cache) == (0, 0, 0)
    assert tally.rows > 50_000 and rank.allocator.alloc_retries == 0
    (profile,) = rank.binding.profiles.values()
    assert profile.footprint.complete_readings >= 2


def test_without_footprints_the_same_machines_run_out_of_memory_again_and_again() -> None:
    """The same budgets, held against the price of what is allocated alone: this is what footprints are for."""
    ranks = [FragmentingRank(seed, 1_024, footprints=False, safety="51/50") for seed in SEEDS]
    failures = [two_batches(rank, tries=5) for rank in ranks]
    assert sum(tally.failures > 0 for tally in failures) >= 3
    assert sum(tally.readmitted for tally in failures) >= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_where_footprints_are_understated_failures_teach_and_end(seed: int, monkeypatch: MonkeyPatch) -> None:
    understate(monkeypatch)
    tally = two_batches(FragmentingRank(seed, 512, safety="51/50"))
    assert tally.readmitted == 0
    assert tally.failures <= 3 and (tally.refused or tally.rows > 50_000)


def beside_the_cache(tally: Tally) -> bool:
    return tally.beside_the_cache > 0


def admitted_again(tally: Tally) -> bool:
    return tally.readmitted > 0


WRONG: dict[str, tuple[Callable[[MonkeyPatch], None], Callable[[Tally], bool]]] = {
    "the cache is never given back": (
        lambda patch: patch.setattr(Footprints, "_release", lambda self: self.device.sampler.budget()),
        beside_the_cache,
    ),
    "what ran out of memory is not learned": (
        lambda patch: patch.setattr(Binding, "_learn_out_of_memory", lambda self, opened, error: None),
        admitted_again,
    ),
    "what ran out of memory is learned as an interrupted wave": (
        lambda patch: patch.setattr(
            Footprints,
            "out_of_memory",
            lambda self, opened, error: Reading.of(
                opened.wave, peak_delta_bytes=opened.peak_bytes, kind=ReadingKind.INTERRUPTED
            ),
        ),
        admitted_again,
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_binding_is_noticed(wrong: str, monkeypatch: MonkeyPatch) -> None:
    change, notices = WRONG[wrong]
    if notices is admitted_again:
        understate(monkeypatch)
    assert not notices(two_batches(FragmentingRank(21, 512, safety="51/50")))
    change(monkeypatch)
    assert notices(two_batches(FragmentingRank(21, 512, safety="51/50"), tries=5))


def test_a_caller_that_runs_out_of_memory_teaches_at_the_next_question() -> None:
    """ART hears nothing of it: the caller's backward raises, and the generator is closed."""
    rank = FragmentingRank(26, 1_024, safety="51/50")
    rank.run(batch(1, prompts=8), Tally())
    items = batch(2)
    candidate = rank.rank._select_next_micro_batch(items, 0)
    plan, check = candidate.plan, candidate.check
    rank.rank._run_flat_plan_with_memory_tracking(plan, check=check, context="forward_micro_batches")
    with pytest.raises(Exception, match="out of memory"):
        rank.allocator.allocate(rank.allocator.limit_bytes)
    again = rank.rank._select_next_micro_batch(items, 0)
    (failed,) = [
        event
        for event in rank.events
        if isinstance(event, LearnedReading) and event.reading.kind is ReadingKind.OUT_OF_MEMORY
    ]
    assert failed.reading.packed_rows == plan.packed_tokens
    assert failed.reading.footprint_bytes is not None
    assert 16 * failed.reading.footprint_bytes >= 17 * check.available_bytes
    assert 17 * again.plan.packed_tokens <= 17 * plan.packed_tokens and again.plan is not plan
    assert again.plan.packed_tokens < plan.packed_tokens


def test_children_of_a_split_are_read_one_by_one() -> None:
    rank = FragmentingRank(26, 512, safety="51/50")
    rank.kept_percent = 1
    rank.run(batch(1, prompts=8), Tally())
    group = make_batch(random.Random(6), prompts=1, rollouts=30, prompt=(100, 100), completion=(200, 300))
    candidate = rank.rank._select_next_micro_batch([group], 0)
    assert candidate.plan.subforward_count > 1
    rank.rank._planner_observing_split = True
    before = len(rank.events)
    for child in candidate.plan.subforwards:
        rank.rank._run_flat_plan_with_memory_tracking(child, check=candidate.check, context="forward_micro_batches")
    readings = [event.reading for event in rank.events[before:] if isinstance(event, LearnedReading)]
    assert [reading.kind for reading in readings] == [ReadingKind.SPLIT_CHILD] * candidate.plan.subforward_count
    assert all(reading.footprint_bytes is not None for reading in readings)
    assert rank.binding.footprints is not None and rank.binding.footprints.failed() == []
    del rank.rank._planner_observing_split
    with pytest.raises(torch.OutOfMemoryError):
        rank.allocator.allocate(rank.allocator.limit_bytes)
    assert rank.binding.footprints.failed() == []  # no child is under way any more


def test_a_reset_by_somebody_else_leaves_no_whole_reading() -> None:
    rank = FragmentingRank(26, 1_024, safety="51/50")
    candidate = rank.rank._select_next_micro_batch(batch(1), 0)
    rank.rank._run_flat_plan_with_memory_tracking(
        candidate.plan, check=candidate.check, context="forward_micro_batches"
    )
    rank.allocator.reset_peaks()
    rank.rank._update_memory_profile(candidate.plan, 5 * MIB, retained_bytes=None, caller_phase=True)
    assert rank.events[-1].reading.kind is ReadingKind.INTERRUPTED
    assert rank.events[-1].reading.footprint_bytes > 5 * MIB


def test_explanations_and_records_name_the_quantity_that_decided() -> None:
    rank = FragmentingRank(26, 1_024, safety="51/50")
    recorder = Recorder(name="art")
    unbind(rank.rank)
    rank.binding = bind(rank.rank, safety="51/50", records=recorder, footprints=rank.device)
    two_batches(rank)
    admission = rank.binding.admissions[-1]
    assert admission.price.quantity == "footprint" and admission.price.footprint.learned
    assert admission.price.required_bytes == admission.admitted_bytes
    assert admission.released_cache and admission.started_clean and admission.budget is not None
    record = recorder.last_record
    assert recorder.failures == 0 and record is not None
    assert record.price.quantity == "footprint" and record.budget is not None
    assert record.required_bytes == admission.admitted_bytes and replay(record).is_equal


def test_a_wave_that_ran_out_of_memory_is_recorded_as_one(monkeypatch: MonkeyPatch) -> None:
    understate(monkeypatch)
    rank = FragmentingRank(21, 512, safety="51/50")
    recorder = Recorder(name="art")
    unbind(rank.rank)
    rank.binding = bind(rank.rank, law="frontier", safety="51/50", records=recorder, footprints=rank.device)
    rank.run(batch(1), Tally(), tries=1)
    record = recorder.last_record
    assert record is not None and record.event is Event.OUT_OF_MEMORY
    assert record.failure is not None and (record.failure.requested_bytes or 0) > 0


# --- what stays as it was ---------------------------------------------------------------------------------------------


def test_without_a_device_a_binding_is_what_it_was_before_to_the_byte() -> None:
    plain, asked = taught_rank(), taught_rank()
    before = set(vars(plain))
    assert bind(plain, footprints=False).footprints is bind(asked).footprints is None
    assert [required(plain, rows) for rows in (500, 8_000, 90_000)] == [
        required(asked, rows) for rows in (500, 8_000, 90_000)
    ]
    assert set(vars(plain)) - before == set(vars(asked)) - before
    assert "_available_memory_bytes" not in set(vars(plain)) - before


def test_the_available_bytes_are_given_back_with_the_rest_and_a_budget_of_the_ranks_own_stays() -> None:
    device = simulated_device(SimulatedAllocator(GIB))
    rank = planning_rank(Geometry())
    own = rank._available_memory_bytes
    bind(rank, footprints=device)
    assert rank._available_memory_bytes is own
    unbind(rank)
    del rank._available_memory_bytes
    before = set(vars(rank))
    bind(rank, footprints=device)
    assert rank._available_memory_bytes() == GIB
    unbind(rank)
    assert set(vars(rank)) == before


def test_arts_test_hook_still_caps_what_is_available(monkeypatch: MonkeyPatch) -> None:
    implementation = load_trainer_rank()._impl

    def native(self: Any, sample: dict[str, Any] | None = None) -> int:
        if sample is not None:
            sample.update(test_cap_bytes=300, allocated_bytes=100)
        return 200

    monkeypatch.setattr(implementation.TrainerRank, "_available_memory_bytes", native)
    monkeypatch.setenv(implementation._TEST_HOOKS_ENV, "1")
    rank = planning_rank(Geometry())
    del rank._available_memory_bytes
    bind(rank, footprints=simulated_device(SimulatedAllocator(GIB)))
    assert rank._available_memory_bytes() == rank._available_memory_bytes({}) == 200
