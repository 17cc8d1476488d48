"""Whole runs on devices that fragment, that cap the process (E07), and whose cache does not all come back (E08).

None of these devices changes while a run plans and admits, so none may end in `AdmissionError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from adapters.torch_memory import BudgetSampler, MemorySample, PeakMeter
from adapters.torch_memory.simulated_allocator import AllocatorCounter, AllocatorMemory, SimulatedAllocator
from adapters.trainer_rank import TrainerRank, WaveRefusedError
from pricing import GIB
from tests.adapters.trainer_rank.waves import MIB, groups, loss_of, rank_on

ITEMS = 6
SIZES = {"prompt": 96, "rollouts": 2, "completion": 48}


class Capped(AllocatorMemory):
    """A device of 79.15 GiB with 38.09 GiB free, of which the process may still take `reservable_bytes` less what it
    has taken since: what a per-process fraction of 0.5 left."""

    def __init__(self, counter: AllocatorCounter) -> None:
        super().__init__(counter)
        self.held_bytes = counter.allocator.reserved_bytes
        self.limit_bytes = counter.allocator.limit_bytes

    def sample(self) -> MemorySample:
        seen = super().sample()
        return replace(
            seen,
            free_bytes=38 * GIB + 96 * MIB,
            total_bytes=79 * GIB + 160 * MIB,
            reservable_bytes=self.limit_bytes - seen.reserved_bytes,
        )


@contextmanager
def simulated(limit_bytes: int, *, expandable: bool = False) -> Iterator[tuple[PeakMeter, AllocatorCounter]]:
    counter = AllocatorCounter(SimulatedAllocator(limit_bytes, expandable=expandable))
    with PeakMeter(counter) as meter:
        yield meter, counter


def run(rank: TrainerRank, items: int = ITEMS) -> int:
    """How many waves a batch ran as. Every item runs once."""
    waves = requests = 0
    for wave in rank.forward_micro_batches(groups(items, **SIZES)):
        loss_of(wave.outputs).backward()
        waves, requests = waves + 1, requests + len(wave.outputs)
    assert requests == SIZES["rollouts"] * items
    return waves


@pytest.mark.parametrize("expandable", [False, True], ids=["native", "expandable"])
@pytest.mark.parametrize(("law", "limit_mib"), [("frontier", 26), ("warm", 40)])
def test_a_run_on_a_device_that_fragments_learns_footprints_and_ends(
    law: str, limit_mib: int, expandable: bool
) -> None:
    """Under a limit that several waves are needed for, classic segments and expandable ones."""
    with simulated(limit_mib * MIB, expandable=expandable) as (meter, counter):
        rank = rank_on(meter, law=law, sampler=BudgetSampler(AllocatorMemory(counter)))
        waves = [run(rank) for _ in range(2)]
        assert sum(waves) >= 3  # neither batch fits at once
        (profile,) = rank.profiles.values()
        assert profile.footprint.complete_readings >= 2
        assert profile.footprint.peak_bytes_per_row >= profile.peak_bytes_per_row
        assert counter.allocator.peak_reserved_bytes <= limit_mib * MIB


def test_e07_a_capped_process_is_planned_by_what_it_may_still_take() -> None:
    """36 GiB seemed free and 0.47 GiB could be had."""
    with simulated(480 * MIB) as (meter, counter):
        rank = rank_on(meter, law="frontier", sampler=BudgetSampler(Capped(counter)))
        for _ in range(2):
            for wave in rank.forward_micro_batches(groups(ITEMS, **SIZES)):
                assert wave.stats.budget.available_bytes <= 480 * MIB
                assert wave.stats.admission.required_bytes <= wave.stats.budget.available_bytes
                loss_of(wave.outputs).backward()
        assert counter.allocator.ooms == 0


def test_e07_a_wave_beyond_the_cap_is_refused_before_it_runs() -> None:
    with simulated(480 * MIB) as (meter, counter):
        rank = rank_on(meter, sampler=BudgetSampler(Capped(counter)), cold_transient_bytes=GIB)
        with pytest.raises(WaveRefusedError, match="that this process may still take"):
            run(rank, 1)


class Keeping(AllocatorMemory):
    """Reports `kept_bytes` more as reserved and idle than a release ever gives back, and not as pieces of segments."""

    def __init__(self, counter: AllocatorCounter, kept_bytes: int) -> None:
        super().__init__(counter)
        self.kept_bytes = kept_bytes

    def sample(self) -> MemorySample:
        seen = super().sample()
        return replace(
            seen,
            total_bytes=seen.total_bytes + self.kept_bytes,
            reserved_bytes=seen.reserved_bytes + self.kept_bytes,
        )


@pytest.mark.parametrize("kept_of_sixty", [40, 2])
def test_e08_idle_pages_that_stay_are_planned_around_not_planned_again(kept_of_sixty: int) -> None:
    """Of the idle bytes 40 (and 2) of 60 MiB stay: the same wave was planned three times, and memory "had shrunk"."""
    kept = kept_of_sixty * MIB
    with simulated(26 * MIB) as (meter, counter):
        rank = rank_on(meter, law="frontier", sampler=BudgetSampler(Keeping(counter, kept)))
        assert rank.sampler.sample().reusable_cache_bytes >= kept
        learned, requests = 0, 0
        for _ in range(2):
            for wave in rank.forward_micro_batches(groups(ITEMS, **SIZES)):
                admission, budget = wave.stats.admission, wave.stats.budget
                if learned:  # from then on what does not come back is in no plan
                    assert budget.available_bytes <= 26 * MIB
                learned = max(learned, *(sample.pinned_bytes for sample in admission.samples))
                assert admission.runs and admission.required_bytes <= budget.available_bytes
                loss_of(wave.outputs).backward()
                requests += len(wave.outputs)
        assert learned >= kept and requests == 2 * ITEMS * SIZES["rollouts"]
