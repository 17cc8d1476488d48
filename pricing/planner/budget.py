"""The budget's arithmetic: whether a price fits what the device has, and whether cache must be released first.

Two figures: bytes physically free, and bytes that our own allocator holds idle. Memory that libraries allocate outside
the framework comes from the first alone, so the reserve is held there, physically. A price is held against both
together, before a release and after it: what of the idle bytes stays in pieces is in the footprint that is priced.
A process may be allowed less than what is free (`reservable_bytes`). What is available is the same before and after a
release that gives back what was counted (INV-17). Sampling is the adapter's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pricing.kernel.quantities import (
    RESERVE_DENOMINATOR,
    RESERVE_NUMERATOR,
    ceil_div,
    require_count,
    require_integer,
)
from pricing.text import gib_text


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
    and fit for reuse (idle bytes are not contiguous bytes: the sampler leaves out what is not). reservable_bytes: what
    the process may still take from the driver under limits of its own (None: no limit; negative: it holds more than it
    may). held_back_bytes: for gradients that the next backward has to make.
    """

    free_bytes: int
    reserve_bytes: int
    reusable_cache_bytes: int = 0
    reservable_bytes: int | None = None
    held_back_bytes: int = 0

    def __post_init__(self) -> None:
        require_integer("free_bytes", self.free_bytes)
        require_count("reserve_bytes", self.reserve_bytes)
        require_count("reusable_cache_bytes", self.reusable_cache_bytes)
        if self.reservable_bytes is not None:
            require_integer("reservable_bytes", self.reservable_bytes)
        require_count("held_back_bytes", self.held_back_bytes)

    @property
    def physical_bytes(self) -> int:
        """What can be allocated anew without touching the reserve; negative where the reserve is already cut into."""
        outside_reserve_bytes = self.free_bytes - self.reserve_bytes
        if self.reservable_bytes is not None and self.reservable_bytes < outside_reserve_bytes:
            outside_reserve_bytes = self.reservable_bytes
        return outside_reserve_bytes - self.held_back_bytes

    @property
    def available_bytes(self) -> int:
        """What a price is held against; may be negative, which nothing fits."""
        return self.physical_bytes + self.reusable_cache_bytes

    def after_release(self, released_bytes: int) -> Budget:
        """The same device once `released_bytes` of the cache (at most all) went back to the driver."""
        assert 0 <= released_bytes <= self.reusable_cache_bytes
        return replace(
            self,
            free_bytes=self.free_bytes + released_bytes,
            reusable_cache_bytes=self.reusable_cache_bytes - released_bytes,
            reservable_bytes=None if self.reservable_bytes is None else self.reservable_bytes + released_bytes,
        )

    def __str__(self) -> str:
        """Every part by name."""
        parts = [f"{gib_text(self.free_bytes)} free", f"{gib_text(self.reserve_bytes)} kept in reserve"]
        if self.reservable_bytes is not None:
            parts.append(f"{gib_text(self.reservable_bytes)} that this process may still take under its limit")
        parts.append(f"{gib_text(self.reusable_cache_bytes)} cached and reusable")
        if self.held_back_bytes:
            parts.append(f"{gib_text(self.held_back_bytes)} held back for gradients that backward has yet to make")
        return f"{gib_text(self.available_bytes)} available: {', '.join(parts)}"


def reserve_of(total_bytes: int) -> int:
    """Bytes of a device of `total_bytes` that are kept physically free: 3 %, rounded up."""
    require_count("total_bytes", total_bytes)
    return ceil_div(RESERVE_NUMERATOR * total_bytes, RESERVE_DENOMINATOR)


def fits(required_bytes: int, available_bytes: int) -> bool:
    """Whether a price fits a budget: equality fits, and a negative budget fits nothing, not even a price of 0."""
    return available_bytes >= 0 and required_bytes <= available_bytes


def judge_after_release(required_bytes: int, budget: Budget) -> BudgetVerdict:
    """Hold a price against a sample that was taken right after a release: what is still idle counts as it did before
    (INV-17)."""
    require_count("required_bytes", required_bytes)
    return BudgetVerdict.RUN if fits(required_bytes, budget.available_bytes) else BudgetVerdict.REFUSE


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
