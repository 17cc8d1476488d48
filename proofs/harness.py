"""Small builders for the CrossHair harnesses: waves and reachable profiles from a few integers.

CrossHair runs the shipped functions on its own symbolic ints, so these only keep the harnesses' signatures short.
"""

from __future__ import annotations

from pricing.kernel.profile import Profile
from pricing.kernel.quantities import UNSHARED, Safety, Sharing
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import NO_RECOMPUTE, Workload
from pricing.kernel.wave import Wave

PACKED_WORKLOAD = Workload.training()
OTHER_WORKLOAD = Workload.training(recompute=NO_RECOMPUTE)
EXACT = Safety(numerator=1, denominator=1)


def wave_of(
    packed: int,
    logical: int,
    *,
    packs: bool = True,
    segments: int = 0,
    outputs: int = 0,
    floor: int = 0,
    state: int = 0,
) -> Wave:
    """A wave of the packed law's workload, or of one that is not packed-priced."""
    return Wave(
        packed_rows=packed,
        logical_rows=logical,
        grad_segments=segments,
        output_bytes=outputs,
        floor_bytes=floor,
        segment_state_bytes=state,
        workload=PACKED_WORKLOAD if packs else OTHER_WORKLOAD,
    )


def profile_with(rate: int, *, largest: int = 1, sharing: Sharing = UNSHARED, retained: int | None = None) -> Profile:
    """A profile after its seed, without a warm fit."""
    return Profile(
        peak_bytes_per_row=rate,
        largest_packed_rows=largest,
        sharing=sharing,
        retained_bytes_per_row=retained,
        complete_readings=1,
    )


def warm_profile(rate: int, warm: int, floor_rows: int) -> Profile:
    """A profile with a warm fit whose smallest wave is its largest."""
    return Profile(
        peak_bytes_per_row=rate,
        largest_packed_rows=floor_rows,
        complete_readings=2,
        warm_bytes_per_row=warm,
        warm_packed_rows=floor_rows,
        warm_sharing=UNSHARED,
    )


def reading_of(packed: int, delta: int, *, logical: int = 0, outputs: int = 0, whole: bool = True) -> Reading:
    """A whole wave's reading, or a forward's."""
    return Reading(
        packed_rows=packed,
        logical_rows=logical,
        grad_segments=0,
        output_bytes=outputs,
        peak_delta_bytes=delta,
        kind=ReadingKind.WHOLE_WAVE if whole else ReadingKind.FORWARD_ONLY,
    )
