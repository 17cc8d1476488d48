"""Profiles: what readings have taught about one memory signature. Immutable; `observe` returns the next one.

Every field is a maximum, a minimum or a count, so after the first complete reading (the seed, which also pays one-time
costs such as compilation) the profile does not depend on the order of readings (INV-10).
"""

from __future__ import annotations

from dataclasses import dataclass

from pricing.kernel.bands import NO_EVIDENCE, FrontierEvidence, broken_evidence, observe_bands, require_evidence
from pricing.kernel.errors import ProfileError
from pricing.kernel.quantities import (
    UNSHARED,
    Sharing,
    ceil_div,
    is_more_sharing,
    maximum,
    minimum,
    more_sharing,
    require_count,
)
from pricing.kernel.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is known of one memory signature (laws, section 2). `Profile()` knows nothing: the next wave starts cold.

    peak_bytes_per_row (B): highest compute bytes per packed row of any reading, each rounded up to a whole byte.
    largest_packed_rows: most packed rows of any reading; 0 before the first.
    sharing (r): highest logical / packed rows of any reading, never below 1.
    retained_bytes_per_row (R): highest retained compute bytes per packed row, None until a reading carries them.
    complete_readings: how many complete readings were seen; the first of them is the seed.
    warm_bytes_per_row (W): highest rate after the seed; pending (prices nothing) until the two below are known.
    warm_packed_rows (Pw): fewest packed rows of a complete reading after the seed.
    warm_sharing (rw): highest sharing of a complete reading after the seed.
    frontier: what readings after the seed teach the frontier law; the other laws never look at it.
    """

    peak_bytes_per_row: int = 0
    largest_packed_rows: int = 0
    sharing: Sharing = UNSHARED
    retained_bytes_per_row: int | None = None
    complete_readings: int = 0
    warm_bytes_per_row: int | None = None
    warm_packed_rows: int | None = None
    warm_sharing: Sharing | None = None
    frontier: FrontierEvidence = NO_EVIDENCE

    def __post_init__(self) -> None:
        require_reachable(self)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was learned yet."""
        return self.largest_packed_rows == 0

    @property
    def has_warm_fit(self) -> bool:
        """Whether the warm fit prices: a complete reading after the seed was seen."""
        return self.warm_packed_rows is not None


def require_reachable(profile: Profile) -> None:
    """Check what every profile built by `observe` satisfies. Raises `QuantityError` or `ProfileError`.

    This is the inductive invariant of `proofs/`: it holds for `Profile()` and `observe` preserves it.
    """
    require_count("peak_bytes_per_row", profile.peak_bytes_per_row)
    require_count("largest_packed_rows", profile.largest_packed_rows)
    require_count("complete_readings", profile.complete_readings)
    for field in ("retained_bytes_per_row", "warm_bytes_per_row", "warm_packed_rows"):
        value = getattr(profile, field)
        if value is not None:
            require_count(field, value)
    require_evidence(profile.frontier)
    broken = broken_invariant(profile)
    if broken is not None:
        raise ProfileError(f"no history of readings leads to this profile: {broken}; got {profile!r}")


def broken_invariant(profile: Profile) -> str | None:
    """The first clause of the reachability invariant that `profile` breaks, in words; None for a reachable profile."""
    rate, rows = profile.peak_bytes_per_row, profile.largest_packed_rows
    retained, warm = profile.retained_bytes_per_row, profile.warm_bytes_per_row
    floor_rows, warm_sharing = profile.warm_packed_rows, profile.warm_sharing
    if rows == 0 and (rate > 0 or profile.complete_readings > 0 or retained is not None or profile.sharing != UNSHARED):
        return "something was learned although no reading had rows"
    if any(is_more_sharing(1, 1, sharing) for sharing in (profile.sharing, warm_sharing or UNSHARED)):
        return "a sharing ratio of 1 is kept as 1/1, the pair with fewest packed rows"
    if retained is not None and retained > rate:
        return "more is retained per row than the peak per row"
    if warm is not None and (warm > rate or profile.complete_readings == 0):
        return "a warm rate above the all-readings rate, or before the seed"
    if (floor_rows is None) != (warm_sharing is None) or (floor_rows is not None and warm is None):
        return "the warm fit is neither complete nor pending"
    if (floor_rows is not None) != (profile.complete_readings >= 2):
        return "a warm fit is there exactly from the second complete reading on"
    if floor_rows is not None and not 1 <= floor_rows <= rows:
        return "the warm floor lies outside the packed rows seen"
    if warm_sharing is not None and is_more_sharing(
        warm_sharing.logical_rows, warm_sharing.packed_rows, profile.sharing
    ):
        return "the warm fit has seen more sharing than all readings"
    return _broken_frontier(profile)


def _broken_frontier(profile: Profile) -> str | None:
    """Evidence by band begins with the seed. It may be empty at any time: profiles older than it have none."""
    peak, retained = profile.frontier.peak, profile.frontier.retained
    if (peak or retained) and profile.complete_readings == 0:
        return "frontier evidence before the seed"
    if profile.complete_readings < 2 and any(band.anchor is not None for band in peak):
        return "a frontier bound before the second complete reading"
    return broken_evidence(profile.frontier)


def observe(profile: Profile, reading: Reading) -> Profile:
    """The profile after one more reading (laws, section 2). A reading of 0 packed rows teaches nothing."""
    if reading.packed_rows == 0:
        return profile
    after_seed = profile.complete_readings >= 1
    completes_warm = after_seed and reading.is_complete
    rate = reading.peak_bytes_per_row
    return Profile(
        peak_bytes_per_row=maximum(profile.peak_bytes_per_row, rate),
        largest_packed_rows=maximum(profile.largest_packed_rows, reading.packed_rows),
        sharing=more_sharing(profile.sharing, reading.logical_rows, reading.packed_rows),
        retained_bytes_per_row=_retained_rate(profile.retained_bytes_per_row, reading),
        complete_readings=profile.complete_readings + (1 if reading.is_complete else 0),
        warm_bytes_per_row=_highest(profile.warm_bytes_per_row, rate) if after_seed else None,
        warm_packed_rows=(
            _least(profile.warm_packed_rows, reading.packed_rows) if completes_warm else profile.warm_packed_rows
        ),
        warm_sharing=(
            more_sharing(profile.warm_sharing or UNSHARED, reading.logical_rows, reading.packed_rows)
            if completes_warm
            else profile.warm_sharing
        ),
        frontier=observe_bands(profile.frontier, reading, after_seed),
    )


def observe_all(profile: Profile, readings: list[Reading]) -> Profile:
    """The profile after several readings, in order."""
    for reading in readings:
        profile = observe(profile, reading)
    return profile


def _retained_rate(known: int | None, reading: Reading) -> int | None:
    retained = reading.retained_compute_bytes
    if retained is None:
        return known
    return _highest(known, ceil_div(retained, reading.packed_rows))


def _highest(known: int | None, value: int) -> int:
    return value if known is None else maximum(known, value)


def _least(known: int | None, value: int) -> int:
    return value if known is None else minimum(known, value)
