"""A device for `adapters.art.footprints` without PyTorch's: a `SimulatedAllocator` behind a counter and a budget."""

from __future__ import annotations

import torch

from adapters.art.footprints import RankDevice
from adapters.torch_memory import BudgetSampler, MemorySample, Unlearnable
from adapters.torch_memory.simulated_allocator import SimulatedAllocator
from pricing.planner.budget import reserve_of


class SimulatedCounter:
    """The peak counter of a `SimulatedAllocator`, as ART and this project's reader see one. Nobody owns it."""

    def __init__(self, allocator: SimulatedAllocator) -> None:
        self.allocator = allocator
        self.refused: Unlearnable | None = None

    @property
    def device(self) -> torch.device:
        return torch.device("meta")

    def claim(self, owner: object) -> None:
        raise AssertionError("ART resets its counter itself: nobody may own it")

    release = claim

    def reset(self, owner: object) -> None:
        raise AssertionError("only ART resets its counter")

    def synchronize(self) -> None: ...

    def allocated(self) -> int:
        return self.allocator.allocated_bytes

    def peaks(self) -> tuple[int, ...]:
        return (self.allocator.peak_allocated_bytes,)

    def reserved_peak(self) -> int:
        return self.allocator.peak_reserved_bytes

    def reserved(self) -> int:
        return self.allocator.reserved_bytes

    def releasable(self) -> int:
        return self.allocator.releasable_bytes

    def release_cache(self) -> None:
        self.allocator.empty_cache()

    def refusal(self) -> Unlearnable | None:
        return self.refused


class SimulatedSource:
    """The memory of a device of which the reserve is beyond what the allocator may take: nothing soft at its edge."""

    def __init__(self, allocator: SimulatedAllocator) -> None:
        self._allocator = allocator
        self.releases = 0

    def sample(self) -> MemorySample:
        allocator = self._allocator
        total_bytes = allocator.limit_bytes * 2
        return MemorySample(
            free_bytes=allocator.limit_bytes - allocator.reserved_bytes + reserve_of(total_bytes),
            total_bytes=total_bytes,
            in_use_bytes=allocator.allocated_bytes,
            reserved_bytes=allocator.reserved_bytes,
            inactive_split_bytes=allocator.inactive_split_bytes,
        )

    def release_cache(self) -> None:
        self._allocator.empty_cache()
        self.releases += 1


def simulated_device(allocator: SimulatedAllocator) -> RankDevice:
    return RankDevice(
        counter=SimulatedCounter(allocator),
        sampler=BudgetSampler(SimulatedSource(allocator)),
        failures=lambda: allocator.ooms,
    )
