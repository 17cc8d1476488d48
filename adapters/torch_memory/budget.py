"""The budget sampler: what the device has left, as two figures, read right before a wave runs.

Bytes that are physically free (the driver's figure, shared with every other process and library on the
device) and bytes our own allocator holds idle and could hand out again. They are kept apart: libraries that allocate
for themselves (NCCL, cuBLAS handles) can only use the first. What fits is decided by `pricing.planner.budget`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch

from adapters.torch_memory.counter import allocator_figures, figure, indexed
from adapters.torch_memory.cpu_counter import StorageCounter
from adapters.torch_memory.errors import BudgetSampleError
from pricing.planner.budget import Budget, BudgetVerdict, judge, judge_after_release, reserve_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """One moment of one device, in bytes. Raises `BudgetSampleError` for figures that no device can have.

    free_bytes, total_bytes: the driver's, over all processes. in_use_bytes: blocks our allocator cannot hand
    out now (allocated, or freed but still awaited by another stream). reserved_bytes: what our allocator
    holds from the driver. inactive_split_bytes: its free blocks that are pieces of a split segment, which a
    release does not give back. reservable_bytes: what this process may still take from the driver under
    limits of its own, None without one. pinned_bytes: idle bytes that the last release did not give back.
    """

    free_bytes: int
    total_bytes: int
    in_use_bytes: int
    reserved_bytes: int
    inactive_split_bytes: int
    reservable_bytes: int | None = None
    pinned_bytes: int = 0

    def __post_init__(self) -> None:
        figures = (self.free_bytes, self.in_use_bytes, self.reserved_bytes, self.inactive_split_bytes)
        if self.total_bytes <= 0 or self.free_bytes > self.total_bytes or min(figures) < 0:
            raise BudgetSampleError(f"no device has these figures: {self!r}")

    @property
    def reusable_cache_bytes(self) -> int:
        """Idle bytes that a price may be held against. Pieces of split segments are in: a footprint is read above what
        is in use, so it holds the pieces that lie idle when a wave starts, and leaving them out of the budget too would
        count them twice. What a release did not give back beyond such pieces is out: pages of expandable segments and
        private pools, which may be of no use to a wave at all."""
        return max(0, self.idle_bytes - max(0, self.pinned_bytes - self.inactive_split_bytes))

    @property
    def idle_bytes(self) -> int:
        """What our allocator holds and nothing uses."""
        return max(0, self.reserved_bytes - self.in_use_bytes)

    @property
    def budget(self) -> Budget:
        """The figures the planner judges by, with 3 % of the device kept back physically."""
        return Budget(
            free_bytes=self.free_bytes,
            reserve_bytes=reserve_of(self.total_bytes),
            reusable_cache_bytes=self.reusable_cache_bytes,
            reservable_bytes=self.reservable_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The verdict right before execution, with the samples it was made from; never recomputed after a
    failure.

    verdict is RUN or REFUSE. samples: one, or two where the cache was released in between and the driver
    asked again.
    """

    required_bytes: int
    verdict: BudgetVerdict
    samples: tuple[MemorySample, ...]

    @property
    def runs(self) -> bool:
        """Whether the wave may run."""
        return self.verdict is BudgetVerdict.RUN

    @property
    def released_cache(self) -> bool:
        """Whether our cache was given back to the driver first."""
        return len(self.samples) > 1

    @property
    def budget(self) -> Budget:
        """The budget of the last sample."""
        return self.samples[-1].budget

    @property
    def held_against_bytes(self) -> int:
        """What the demand was held against in the end."""
        return self.budget.available_bytes

    @property
    def came_back_short_bytes(self) -> int:
        """What was counted before a release and was not there after it; 0 without a release. Positive with a refusal
        says: plan anew, the next sample knows what does not come back."""
        return max(0, self.samples[0].budget.available_bytes - self.budget.available_bytes)


class MemorySource(Protocol):
    """Where samples come from."""

    def sample(self) -> MemorySample:
        """The device now. Raises `BudgetSampleError` if it cannot be read."""

    def release_cache(self) -> None:
        """Give whole cached segments back to the driver."""


class BudgetSampler:
    """Samples a source and judges demands against it. Every answer is from a fresh sample.

    Its only state is what the last release did not give back. Pages of expandable segments that hold something else
    too, and private pools (CUDA graphs), look like cache that can be reused; after a release what is still idle is
    known to be neither. It is counted out, in planning and at admission alike, for as long as so much is idle.
    """

    def __init__(self, source: MemorySource) -> None:
        self.source = source
        self._pinned_bytes = 0

    def sample(self) -> MemorySample:
        """A fresh sample. Raises `BudgetSampleError`: a device that cannot be read has no budget, not an
        unlimited one."""
        sample = self.source.sample()
        self._pinned_bytes = min(self._pinned_bytes, sample.idle_bytes)
        if self._pinned_bytes <= sample.pinned_bytes:
            return sample
        return replace(sample, pinned_bytes=self._pinned_bytes)

    def release(self) -> MemorySample:
        """Give the cache back, learn what does not come back, and sample."""
        self.source.release_cache()
        sample = self.source.sample()
        self._pinned_bytes = sample.idle_bytes
        return replace(sample, pinned_bytes=sample.idle_bytes)

    def budget(self) -> Budget:
        """The budget of a fresh sample, for planning. What was planned is judged again by `admit`."""
        return self.sample().budget

    def admit(self, required_bytes: int, *, cache_serves: bool = False) -> Admission:
        """Judge `required_bytes` right before the wave runs.

        Where only the cache makes it fit, the cache is released and the demand judged again by what the driver then
        shows, because idle bytes do not all come back: `Admission.came_back_short_bytes` says how many did not, and the
        next budget knows. `cache_serves`: the caller knows the cache can serve this demand in place.
        """
        first = self.sample()
        verdict = judge(required_bytes, first.budget, cache_serves=cache_serves)
        if verdict is not BudgetVerdict.RELEASE:
            return Admission(required_bytes=required_bytes, verdict=verdict, samples=(first,))
        second = self.release()
        verdict = judge_after_release(required_bytes, second.budget)
        return Admission(required_bytes=required_bytes, verdict=verdict, samples=(first, second))


class AcceleratorMemory:
    """The driver's and the caching allocator's figures of one accelerator. Raises `BudgetSampleError` without one."""

    def __init__(self, device: torch.device | str) -> None:
        try:
            self._device = indexed(device)
        except RuntimeError as error:
            raise BudgetSampleError(f"the memory of {device} could not be read: {error}") from error

    def sample(self) -> MemorySample:
        """See `MemorySource.sample`. Waits for the device first, so that pending frees are counted as
        free."""
        try:
            torch.accelerator.synchronize(self._device)
            module = torch.get_device_module(self._device)
            free_bytes, total_bytes = module.mem_get_info(self._device)
            figures = allocator_figures(self._device)
            fraction_of = getattr(module, "get_per_process_memory_fraction", None)
            fraction = 1.0 if fraction_of is None else float(fraction_of(self._device))
        except (RuntimeError, AttributeError) as error:
            raise BudgetSampleError(f"the memory of {self._device} could not be read: {error}") from error
        allocated = figure(figures, "allocated_bytes.all.current")
        reserved = figure(figures, "reserved_bytes.all.current")
        limit = int(fraction * int(total_bytes))  # as the allocator rounds it
        return MemorySample(
            free_bytes=int(free_bytes),
            total_bytes=int(total_bytes),
            reservable_bytes=None if fraction >= 1.0 else limit - reserved,
            in_use_bytes=max(allocated, figure(figures, "active_bytes.all.current")),
            reserved_bytes=reserved,
            inactive_split_bytes=figure(figures, "inactive_split_bytes.all.current"),
        )

    def release_cache(self) -> None:
        """Return whole cached segments to the driver."""
        torch.accelerator.memory.empty_cache()


class SimulatedMemory:
    """A CPU as a device of a given capacity, on the storage counter's true live bytes. It has no cache."""

    def __init__(self, counter: StorageCounter, capacity_bytes: int) -> None:
        self._counter = counter
        self.capacity_bytes = capacity_bytes

    def sample(self) -> MemorySample:
        """See `MemorySource.sample`. A capacity below what is live has no free bytes, as on a device shared
        with others."""
        live_bytes = self._counter.allocated()
        return MemorySample(
            free_bytes=max(0, self.capacity_bytes - live_bytes),
            total_bytes=self.capacity_bytes,
            in_use_bytes=live_bytes,
            reserved_bytes=live_bytes,
            inactive_split_bytes=0,
        )

    def release_cache(self) -> None:
        """Nothing is cached."""


def sampler_for(device: torch.device | str) -> BudgetSampler:
    """A sampler of an accelerator. For a CPU build one on `SimulatedMemory`."""
    device = torch.device(device)
    if device.type == "cpu":
        raise BudgetSampleError("a CPU has no device memory to sample; give a SimulatedMemory its capacity")
    return BudgetSampler(AcceleratorMemory(device))
