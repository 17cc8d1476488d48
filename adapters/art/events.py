"""What a bound rank reports: the plans it ran, with their prices, and the readings it learned from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pricing.kernel.price import Price
from pricing.kernel.profile import Profile
from pricing.kernel.reading import Reading
from pricing.kernel.requests import Signature
from pricing.kernel.wave import Wave
from pricing.planner.budget import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedPlan:
    """One plan that was run, with the price that admitted it.

    `wave` is the wave that was priced, by `profile` as it was then; ART may admit on an upper bound (the plan
    without sharing), so its packed rows may exceed `packed_rows`, those of the plan. `admitted_bytes` is this
    rank's demand as compared with `available_bytes`. It is `price.required_bytes` unless `split_child` (then it
    is the whole split's) or ART added its own communication buffers on top. `price.quantity` says what decided.

    With footprints: `budget` is what the device had right before the run (None without); `released_cache` whether the
    cache was given back for it; `started_clean` whether its footprint could be read.
    """

    context: str
    signature: Signature
    wave: Wave
    profile: Profile
    price: Price
    packed_rows: int
    logical_rows: int
    admitted_bytes: int
    available_bytes: int
    split_child: bool
    budget: Budget | None = None
    released_cache: bool = False
    started_clean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedReading:
    """One reading that was learned from, and the profile of its signature after it. `requested_bytes`: of a wave that
    ran out of memory what it had asked for, where its error says so.
    """

    signature: Signature
    reading: Reading
    profile: Profile
    requested_bytes: int | None = None


Records = Callable[[AdmittedPlan | LearnedReading], object]
"""Where a bound rank's admissions and observations go, in order, as they happen."""
