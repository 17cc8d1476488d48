"""Sampling: two figures, a late fresh sample, a release only where it is needed, and failure as an error."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from adapters.torch_memory import (
    AcceleratorMemory,
    BudgetSampleError,
    BudgetSampler,
    MemorySample,
    PeakMeter,
    SimulatedMemory,
    StorageCounter,
    budget,
    sampler_for,
)
from pricing.planner.budget import BudgetVerdict

SAMPLE = MemorySample(free_bytes=100, total_bytes=1_000, in_use_bytes=300, reserved_bytes=800, inactive_split_bytes=150)


class ScriptedMemory:
    """Samples from a list, in order; a release is noted."""

    def __init__(self, *samples: MemorySample | Exception) -> None:
        self.samples = list(samples)
        self.releases = 0

    def sample(self) -> MemorySample:
        sample = self.samples.pop(0)
        if isinstance(sample, Exception):
            raise sample
        return sample

    def release_cache(self) -> None:
        self.releases += 1


def test_two_figures_and_the_reserve() -> None:
    assert SAMPLE.reusable_cache_bytes == 800 - 300
    budget = SAMPLE.budget
    assert (budget.free_bytes, budget.reserve_bytes, budget.reusable_cache_bytes) == (100, 30, 500)
    assert replace(SAMPLE, reserved_bytes=200).reusable_cache_bytes == 0


def test_pieces_of_segments_count_and_other_pinned_bytes_do_not() -> None:
    """A footprint holds the pieces that lie idle when its wave starts: left out of the budget they counted twice."""
    assert replace(SAMPLE, pinned_bytes=150).reusable_cache_bytes == 500
    assert replace(SAMPLE, pinned_bytes=250).reusable_cache_bytes == 400
    assert replace(SAMPLE, inactive_split_bytes=0, pinned_bytes=500).reusable_cache_bytes == 0


@pytest.mark.parametrize(
    "figures", [{"free_bytes": -1}, {"free_bytes": 1_001}, {"total_bytes": 0}, {"reserved_bytes": -5}]
)
def test_impossible_figures_are_a_failed_sample(figures: dict[str, int]) -> None:
    with pytest.raises(BudgetSampleError):
        replace(SAMPLE, **figures)


def test_what_fits_physically_runs_without_a_release() -> None:
    memory = ScriptedMemory(SAMPLE)
    admission = BudgetSampler(memory).admit(70)
    assert (admission.runs, admission.released_cache, memory.releases) == (True, False, 0)


def test_what_fits_by_the_cache_alone_runs_after_a_release() -> None:
    memory = ScriptedMemory(SAMPLE, replace(SAMPLE, free_bytes=450, reserved_bytes=450))
    admission = BudgetSampler(memory).admit(570)
    assert (admission.runs, admission.released_cache, memory.releases) == (True, True, 1)
    assert admission.budget.free_bytes == 450


def test_cache_that_does_not_come_back_refuses() -> None:
    """Idle bytes are not releasable bytes: what the driver shows afterwards decides, not what was
    promised."""
    memory = ScriptedMemory(SAMPLE, replace(SAMPLE, free_bytes=449, reserved_bytes=449))
    admission = BudgetSampler(memory).admit(570)
    assert admission.verdict is BudgetVerdict.REFUSE
    assert admission.samples[0] is SAMPLE


def test_a_cache_known_to_serve_is_not_released() -> None:
    memory = ScriptedMemory(SAMPLE)
    assert BudgetSampler(memory).admit(570, cache_serves=True).runs
    assert memory.releases == 0


def test_what_fits_nowhere_is_refused_without_a_release() -> None:
    memory = ScriptedMemory(SAMPLE)
    assert not BudgetSampler(memory).admit(571).runs
    assert memory.releases == 0


def test_admission_samples_anew() -> None:
    """Planned against much, admitted against little: a neighbour took the memory in between."""
    memory = ScriptedMemory(replace(SAMPLE, free_bytes=900), replace(SAMPLE, free_bytes=0, reserved_bytes=300))
    sampler = BudgetSampler(memory)
    assert sampler.budget().available_bytes >= 800
    assert not sampler.admit(800).runs


def test_a_failed_sample_is_an_error_before_and_after_a_release() -> None:
    with pytest.raises(BudgetSampleError):
        BudgetSampler(ScriptedMemory(BudgetSampleError("no driver"))).admit(1)
    with pytest.raises(BudgetSampleError):
        BudgetSampler(ScriptedMemory(SAMPLE, BudgetSampleError("no driver"))).admit(570)


def test_a_device_that_cannot_be_read_has_no_budget() -> None:
    with pytest.raises(BudgetSampleError, match="meta"):
        AcceleratorMemory("meta").sample()
    with pytest.raises(BudgetSampleError, match="SimulatedMemory"):
        sampler_for("cpu")


def test_a_simulated_device_follows_live_bytes(meter: PeakMeter) -> None:
    assert isinstance(meter.counter, StorageCounter)
    sampler = BudgetSampler(SimulatedMemory(meter.counter, 100_000))
    assert sampler.budget().physical_bytes == 97_000
    held = torch.empty(10_000)
    assert sampler.sample().free_bytes == 60_000
    assert not sampler.admit(57_001).runs
    del held
    assert sampler.admit(97_000).runs


def test_a_process_may_take_less_than_is_free() -> None:
    """A per-process fraction of a half: 38 GiB are free, 0.47 can be had."""
    gib = 1 << 30
    total, in_use = 7_915 * gib // 100, 3_910 * gib // 100
    sample = MemorySample(
        free_bytes=3_809 * gib // 100,
        total_bytes=total,
        in_use_bytes=in_use,
        reserved_bytes=in_use,
        inactive_split_bytes=0,
        reservable_bytes=total // 2 - in_use,
    )
    assert 0.46 * gib < sample.budget.available_bytes < 0.48 * gib


class PinnedMemory:
    """A device whose idle pages do not all come back, and whose allocator does not call them inactive splits."""

    def __init__(self, idle_bytes: int, pinned_bytes: int) -> None:
        self.idle_bytes, self.pinned_bytes, self.free_bytes = idle_bytes, pinned_bytes, 100

    def sample(self) -> MemorySample:
        return MemorySample(
            free_bytes=self.free_bytes,
            total_bytes=1_000,
            in_use_bytes=200,
            reserved_bytes=200 + self.idle_bytes,
            inactive_split_bytes=0,
        )

    def release_cache(self) -> None:
        self.free_bytes += self.idle_bytes - self.pinned_bytes
        self.idle_bytes = self.pinned_bytes


@pytest.mark.parametrize("pinned_bytes", [0, 2, 40, 60])
def test_what_a_release_did_not_give_back_is_planned_with_once_at_most(pinned_bytes: int) -> None:
    sampler = BudgetSampler(PinnedMemory(60, pinned_bytes))
    planned = sampler.budget().available_bytes
    assert planned == 100 - 30 + 60
    admission = sampler.admit(planned)
    assert admission.runs == (pinned_bytes == 0)
    assert admission.came_back_short_bytes == pinned_bytes
    again = sampler.budget().available_bytes
    assert again == planned - pinned_bytes
    assert sampler.admit(again).runs


def test_a_device_without_an_index_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`get_per_process_memory_fraction` refuses "cuda", so a sampler of it could not tell its budget."""
    asked = []

    class Module:
        def mem_get_info(self, device: torch.device) -> tuple[int, int]:
            asked.append(device)
            return 3 << 30, 4 << 30

        def get_per_process_memory_fraction(self, device: torch.device) -> float:
            asked.append(device)
            return 0.5

    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 1)
    monkeypatch.setattr(torch.accelerator, "synchronize", asked.append)
    monkeypatch.setattr(torch, "get_device_module", lambda device: Module())
    monkeypatch.setattr(budget, "allocator_figures", lambda device: {})
    for given, told in (("cuda", 1), ("cuda:3", 3)):
        asked.clear()
        assert AcceleratorMemory(given).sample().reservable_bytes == 2 << 30
        assert asked == [torch.device("cuda", told)] * 3
