"""The budget sampler: what the device has left, as two figures, read right before a wave runs.

Bytes that are physically free (the driver's figure, shared with every other process and library on the
device) and bytes our own allocator keeps cached and could hand out again. They are never added up into one
"available": libraries that allocate for themselves (NCCL, cuBLAS handles) can only use the first. What fits
is decided by `pricing.planner.budget`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from adapters.torch_memory.counter import allocator_figures, figure
from adapters.torch_memory.cpu_counter import StorageCounter
from adapters.torch_memory.errors import BudgetSampleError
from pricing.planner.budget import Budget, BudgetVerdict, judge, reserve_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """One moment of one device, in bytes. Raises `BudgetSampleError` for figures that no device can have.

    free_bytes, total_bytes: the driver's, over all processes. in_use_bytes: blocks our allocator cannot hand
    out now (allocated, or freed but still awaited by another stream). reserved_bytes: what our allocator
    holds from the driver. inactive_split_bytes: its free blocks that are pieces of a split segment: neither
    releasable nor contiguous with others.
    """

    free_bytes: int
    total_bytes: int
    in_use_bytes: int
    reserved_bytes: int
    inactive_split_bytes: int

    def __post_init__(self) -> None:
        figures = (self.free_bytes, self.in_use_bytes, self.reserved_bytes, self.inactive_split_bytes)
        if self.total_bytes <= 0 or self.free_bytes > self.total_bytes or min(figures) < 0:
            raise BudgetSampleError(f"no device has these figures: {self!r}")

    @property
    def reusable_cache_bytes(self) -> int:
        """Cached blocks that are whole segments: what the allocator can reuse or give back. Idle is not the
        same: pieces of split segments are left out, because no large block can be cut from them."""
        return max(0, self.reserved_bytes - self.in_use_bytes - self.inactive_split_bytes)

    @property
    def budget(self) -> Budget:
        """The figures the planner judges by, with 3 % of the device kept back physically."""
        return Budget(
            free_bytes=self.free_bytes,
            reserve_bytes=reserve_of(self.total_bytes),
            reusable_cache_bytes=self.reusable_cache_bytes,
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


class MemorySource(Protocol):
    """Where samples come from."""

    def sample(self) -> MemorySample:
        """The device now. Raises `BudgetSampleError` if it cannot be read."""

    def release_cache(self) -> None:
        """Give whole cached segments back to the driver."""


class BudgetSampler:
    """Samples a source and judges demands against it. No state: every answer is from a fresh sample."""

    def __init__(self, source: MemorySource) -> None:
        self.source = source

    def sample(self) -> MemorySample:
        """A fresh sample. Raises `BudgetSampleError`: a device that cannot be read has no budget, not an
        unlimited one."""
        return self.source.sample()

    def budget(self) -> Budget:
        """The budget of a fresh sample, for planning. What was planned is judged again by `admit`."""
        return self.sample().budget

    def admit(self, required_bytes: int, *, cache_serves: bool = False) -> Admission:
        """Judge `required_bytes` right before the wave runs.

        Where only the cache makes it fit, the cache is released and the demand judged again by physical bytes
        alone, because idle bytes do not all come back. `cache_serves`: the caller knows the cache can serve
        this demand in place.
        """
        first = self.sample()
        verdict = judge(required_bytes, first.budget, cache_serves=cache_serves)
        if verdict is not BudgetVerdict.RELEASE:
            return Admission(required_bytes=required_bytes, verdict=verdict, samples=(first,))
        self.source.release_cache()
        second = self.sample()
        physical = Budget(free_bytes=second.free_bytes, reserve_bytes=second.budget.reserve_bytes)
        verdict = judge(required_bytes, physical)
        return Admission(required_bytes=required_bytes, verdict=verdict, samples=(first, second))


class AcceleratorMemory:
    """The driver's and the caching allocator's figures of one accelerator."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.device(device)

    def sample(self) -> MemorySample:
        """See `MemorySource.sample`. Waits for the device first, so that pending frees are counted as
        free."""
        try:
            torch.accelerator.synchronize(self._device)
            free_bytes, total_bytes = torch.get_device_module(self._device).mem_get_info(self._device)
            figures = allocator_figures(self._device)
        except (RuntimeError, AttributeError) as error:
            raise BudgetSampleError(f"the memory of {self._device} could not be read: {error}") from error
        allocated = figure(figures, "allocated_bytes.all.current")
        return MemorySample(
            free_bytes=int(free_bytes),
            total_bytes=int(total_bytes),
            in_use_bytes=max(allocated, figure(figures, "active_bytes.all.current")),
            reserved_bytes=figure(figures, "reserved_bytes.all.current"),
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
