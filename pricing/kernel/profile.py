"""Profiles: what readings have taught about one memory signature. Immutable; `observe` returns the next one.

Every field is a maximum, a minimum or a count, so after the first complete reading (the seed, which also pays one-time
costs such as compilation) the profile does not depend on the order of readings (INV-10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

from pricing.kernel.bands import (
    NO_EVIDENCE,
    FrontierEvidence,
    Witnesses,
    broken_evidence,
    broken_witnesses,
    observe_bands,
    observe_witnesses,
    require_evidence,
    require_witnesses,
    size_class,
)
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
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.wave import Wave


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a law reads: what readings of one quantity have taught (laws, section 2). `Evidence()` is no reading.

    peak_bytes_per_row (B): highest compute bytes per packed row of any reading, each rounded up to a whole byte.
    largest_packed_rows: most packed rows of any reading; 0 before the first.
    sharing (r): highest logical / packed rows of any reading, never below 1.
    retained_bytes_per_row (R): highest retained compute bytes per packed row, None until a reading carries them.
    complete_readings: how many complete readings were seen; the first of them is the seed.
    warm_bytes_per_row (W): highest rate after the seed; pending (prices nothing) until the two below are known.
    warm_packed_rows (Pw): fewest packed rows of a complete reading after the seed.
    warm_sharing (rw): highest sharing of a complete reading after the seed.
    frontier: what readings after the seed teach the frontier law; the other laws never look at it.
    witnesses: complete readings that a price is held against before it refuses for ever; no law looks at them.
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
    witnesses: Witnesses = ()

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


def require_footprint_of_readings(profile: Profile) -> None:
    """Check that footprints come from readings that taught the allocated evidence too, and that only footprints are
    held against the warm fit before the seed. Raises `ProfileError`."""
    footprint = profile.footprint
    if profile.warm_bytes_per_row is not None and profile.complete_readings == 0:
        raise ProfileError(f"{_UNREACHABLE}: a warm rate before the seed; got {profile!r}")
    if (
        footprint.largest_packed_rows > profile.largest_packed_rows
        or footprint.complete_readings > profile.complete_readings
        or is_more_sharing(footprint.sharing.logical_rows, footprint.sharing.packed_rows, profile.sharing)
    ):
        raise ProfileError(f"{_UNREACHABLE}: footprints beyond it; got {profile!r}")


_UNREACHABLE: Final = "no history of readings leads to this profile"


def require_reachable(profile: Evidence) -> None:
    """Check what all evidence built by `observe` satisfies. Raises `QuantityError` or `ProfileError`.

    This is the inductive invariant of `proofs/`: it holds for `Evidence()` and `observe` preserves it.
    """
    require_count("peak_bytes_per_row", profile.peak_bytes_per_row)
    require_count("largest_packed_rows", profile.largest_packed_rows)
    require_count("complete_readings", profile.complete_readings)
    if profile.retained_bytes_per_row is not None:
        require_count("retained_bytes_per_row", profile.retained_bytes_per_row)
    if profile.warm_bytes_per_row is not None:
        require_count("warm_bytes_per_row", profile.warm_bytes_per_row)
    if profile.warm_packed_rows is not None:
        require_count("warm_packed_rows", profile.warm_packed_rows)
    require_evidence(profile.frontier)
    require_witnesses(profile.frontier, profile.witnesses)
    broken = broken_invariant(profile)
    if broken is not None:
        raise ProfileError(f"{_UNREACHABLE}: {broken}; got {profile!r}")


def broken_invariant(profile: Evidence) -> str | None:
    """The first clause of the reachability invariant that `profile` breaks, in words; None for a reachable profile."""
    rate, rows = profile.peak_bytes_per_row, profile.largest_packed_rows
    retained, warm = profile.retained_bytes_per_row, profile.warm_bytes_per_row
    floor_rows, warm_sharing = profile.warm_packed_rows, profile.warm_sharing
    if rows == 0 and (rate > 0 or profile.complete_readings > 0 or retained is not None or profile.sharing != UNSHARED):
        return "something was learned although no reading had rows"
    if is_more_sharing(1, 1, profile.sharing) or (warm_sharing is not None and is_more_sharing(1, 1, warm_sharing)):
        return "a sharing ratio of 1 is kept as 1/1, the pair with fewest packed rows"
    if retained is not None and retained > rate:
        return "more is retained per row than the peak per row"
    if warm is not None and warm > rate:
        return "a warm rate above the all-readings rate"
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
    return _broken_witnesses(profile) or _broken_frontier(profile)


def _broken_witnesses(profile: Evidence) -> str | None:
    if not profile.witnesses:
        return None
    if profile.complete_readings == 0:
        return "witnesses without a complete reading"
    rate, rows = profile.peak_bytes_per_row, profile.largest_packed_rows
    for anchor in profile.witnesses:
        if anchor.packed_rows > rows or anchor.compute_bytes > rate * anchor.packed_rows:
            return "a witness beyond all readings"
    return broken_witnesses(profile.frontier, profile.witnesses)


def _broken_frontier(profile: Evidence) -> str | None:
    """Bounds begin after the seed, covers may begin before it (a wave that ran out of memory is covered at once).

    Evidence by band may be empty at any time: profiles older than it have none.
    """
    peak, retained = profile.frontier.peak, profile.frontier.retained
    if (peak or retained) and profile.complete_readings == 0 and profile.warm_bytes_per_row is None:
        return "frontier evidence before the seed"
    if profile.complete_readings < 2 and any(band.anchor is not None for band in peak):
        return "a frontier bound before the second complete reading"
    return broken_evidence(profile.frontier)


NO_FOOTPRINT: Final = Evidence()


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Evidence):
    """What is known of one memory signature. `Profile()` knows nothing: the next wave starts cold.

    A profile *is* its evidence of allocated peaks, and carries beside it the evidence of footprints: the same readings,
    where they have one, with the footprint in the place of the peak. A law reads either, and cannot tell which.
    """

    footprint: Evidence = NO_FOOTPRINT

    def __post_init__(self) -> None:
        require_reachable(self)
        require_footprint_of_readings(self)


def observe(profile: Profile, reading: Reading) -> Profile:
    """The profile after one more reading (laws, section 2). A reading of 0 packed rows teaches nothing.

    A reading with a footprint teaches both bodies of evidence, by the same rules.
    """
    if reading.packed_rows == 0:
        return profile
    footprint, of_footprint = profile.footprint, reading.of_footprint
    if of_footprint is not None:
        footprint = observe_footprint(footprint, of_footprint)
    return Profile(**_observed(profile, reading, profile.complete_readings >= 1), footprint=footprint)


def observe_footprint(footprint: Evidence, reading: Reading) -> Evidence:
    """The evidence of footprints after a reading of 1 packed row or more whose peak is the footprint."""
    return Evidence(**_observed(footprint, reading, is_after_seed(footprint, reading)))


def is_after_seed(footprint: Evidence, reading: Reading) -> bool:
    """Whether a footprint is held against the warm fit and the bands. Before the seed only that of a wave that ran out
    of memory is: what is admitted afterwards must never again be as large, whatever the seed then says (INV-16)."""
    return footprint.complete_readings >= 1 or reading.kind is ReadingKind.OUT_OF_MEMORY


class EvidenceFields(TypedDict):
    """The fields of `Evidence`."""

    peak_bytes_per_row: int
    largest_packed_rows: int
    sharing: Sharing
    retained_bytes_per_row: int | None
    complete_readings: int
    warm_bytes_per_row: int | None
    warm_packed_rows: int | None
    warm_sharing: Sharing | None
    frontier: FrontierEvidence
    witnesses: Witnesses


def _observed(known: Evidence, reading: Reading, after_seed: bool) -> EvidenceFields:
    """The fields of `known` after one more reading of 1 packed row or more."""
    is_complete = reading.is_complete
    completes_warm = is_complete and known.complete_readings >= 1
    rate = reading.peak_bytes_per_row
    return EvidenceFields(
        peak_bytes_per_row=maximum(known.peak_bytes_per_row, rate),
        largest_packed_rows=maximum(known.largest_packed_rows, reading.packed_rows),
        sharing=more_sharing(known.sharing, reading.logical_rows, reading.packed_rows),
        retained_bytes_per_row=_retained_rate(known.retained_bytes_per_row, reading),
        complete_readings=known.complete_readings + (1 if is_complete else 0),
        warm_bytes_per_row=_highest(known.warm_bytes_per_row, rate) if after_seed else known.warm_bytes_per_row,
        warm_packed_rows=(
            _least(known.warm_packed_rows, reading.packed_rows) if completes_warm else known.warm_packed_rows
        ),
        warm_sharing=(
            more_sharing(known.warm_sharing or UNSHARED, reading.logical_rows, reading.packed_rows)
            if completes_warm
            else known.warm_sharing
        ),
        frontier=observe_bands(known.frontier, reading, after_seed),
        witnesses=observe_witnesses(known.witnesses, reading),
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


def needs_footprint(profile: Profile, wave: Wave) -> bool:
    """Whether starting the wave with a released cache would teach: no footprint is known in its size band.

    A band that only incomplete readings landed in needs no further one, unless complete ones come: then it does.
    """
    rows, footprint = wave.packed_rows, profile.footprint
    if rows == 0:
        return False
    if profile.complete_readings == 0:
        return footprint.largest_packed_rows < rows
    size = size_class(rows)
    known = [band.anchor is not None for band in footprint.frontier.peak if band.size == size]
    if not known:
        return True
    return not any(known) and any(band.anchor is not None for band in profile.frontier.peak if band.size == size)
