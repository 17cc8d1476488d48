"""Where the trainer's budget comes from: the device, part of the device, or a CPU that stands for one."""

from __future__ import annotations

from dataclasses import replace

import torch

from adapters.torch_memory import (
    AcceleratorMemory,
    BudgetSampler,
    MemorySample,
    MemorySource,
    PeakMeter,
    SimulatedMemory,
    StorageCounter,
)
from adapters.torch_memory.errors import BudgetSampleError


class CappedMemory:
    """At most `cap_bytes` of a device for this process. The reserve stays a share of the whole device: it is there for
    others, and is held where the driver's free bytes are."""

    def __init__(self, source: MemorySource, cap_bytes: int) -> None:
        self._source = source
        self._cap_bytes = cap_bytes

    def sample(self) -> MemorySample:
        """See `MemorySource.sample`."""
        sample = self._source.sample()
        left_bytes = self._cap_bytes - sample.reserved_bytes
        if sample.reservable_bytes is not None:
            left_bytes = min(left_bytes, sample.reservable_bytes)
        return replace(sample, reservable_bytes=left_bytes)

    def release_cache(self) -> None:
        """See `MemorySource.release_cache`."""
        self._source.release_cache()


def budget_sampler(device: torch.device, meter: PeakMeter, memory_bytes: int | None) -> BudgetSampler:
    """The sampler of `device`; `memory_bytes` caps it, and is what a CPU stands for. Raises `BudgetSampleError`."""
    if device.type == "cpu":
        if memory_bytes is None or not isinstance(meter.counter, StorageCounter):
            raise BudgetSampleError("a CPU has no device memory to plan for: give memory_bytes, the size it stands for")
        return BudgetSampler(SimulatedMemory(meter.counter, memory_bytes))
    source: MemorySource = AcceleratorMemory(device)
    return BudgetSampler(source if memory_bytes is None else CappedMemory(source, memory_bytes))
