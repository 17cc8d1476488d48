"""The budget's arithmetic: whether a price fits what the device has, and whether cache must be released first.

Two figures, never one: bytes physically free, and bytes cached by our own allocator that it can hand out again. Memory
that libraries allocate outside the framework comes from the first alone, so the reserve is held there, physically.
Sampling is the adapter's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pricing.kernel.quantities import (
    RESERVE_DENOMINATOR,
    RESERVE_NUMERATOR,
    ceil_div,
    require_count,
    require_integer,
)


class BudgetVerdict(StrEnum):
    """What to do with a wave of a given price."""

    RUN = "run"
    RELEASE = "release"
    """Fits only by what is cached: release the cache, sample again and judge what the driver then shows."""
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One sample of a device, in bytes.

    free_bytes: free as the driver says. reserve_bytes: to be kept free. reusable_cache_bytes: cached by our allocator
    and fit for reuse (idle bytes are not contiguous bytes: the sampler leaves out what is not).
    """

    free_bytes: int
    reserve_bytes: int
    reusable_cache_bytes: int = 0

    def __post_init__(self) -> None:
        require_integer("free_bytes", self.free_bytes)
        require_count("reserve_bytes", self.reserve_bytes)
        require_count("reusable_cache_bytes", self.reusable_cache_bytes)

    @property
    def physical_bytes(self) -> int:
        """What can be allocated anew without touching the reserve; negative where the reserve is already cut into."""
        return self.free_bytes - self.reserve_bytes

    @property
    def available_bytes(self) -> int:
        """What a price is held against; may be negative, which nothing fits."""
        return self.physical_bytes + self.reusable_cache_bytes


def reserve_of(total_bytes: int) -> int:
    """Bytes of a device of `total_bytes` that are kept physically free: 3 %, rounded up."""
    require_count("total_bytes", total_bytes)
    return ceil_div(RESERVE_NUMERATOR * total_bytes, RESERVE_DENOMINATOR)


def fits(required_bytes: int, available_bytes: int) -> bool:
    """Whether a price fits a budget: equality fits, and a negative budget fits nothing, not even a price of 0."""
    return available_bytes >= 0 and required_bytes <= available_bytes


def judge(required_bytes: int, budget: Budget, *, cache_serves: bool = False) -> BudgetVerdict:
    """Hold a price against a sample.

    cache_serves: whether the cache is known to serve the wave (the same wave ran from it before). Otherwise a wave that
    does not fit what is physically free is run only after a release: cached is not free.
    """
    require_count("required_bytes", required_bytes)
    if not fits(required_bytes, budget.available_bytes):
        return BudgetVerdict.REFUSE
    if cache_serves or fits(required_bytes, budget.physical_bytes):
        return BudgetVerdict.RUN
    return BudgetVerdict.RELEASE
