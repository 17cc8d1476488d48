"""Merging profiles: what two processes learned of one memory signature, as one profile.

Ranks, or two runs, may share one file of profiles; then each saves what it knows joined with what is there. `merge` is
the least profile that knows everything either knows: every field is the maximum or the minimum of the two, as
`observe` would take it. So it is commutative, associative and idempotent, and a profile merged with one that it grew
from stays as it is (INV-19): saving twice, in any order, by any number of processes, loses and invents nothing.

`complete_readings` is the larger count, not the sum. Two profiles that grew from one file share its readings, and a sum
would count them again at every save; all that a price asks of the count is none, one (the seed) or more. A process's
own first complete reading is its seed, which also paid one-time costs: it stays out of the warm fit after a merge, as
it was before. Two processes that have each seen only their seed know a seed together, and no warm fit.
"""

from __future__ import annotations

from pricing.kernel.bands import NO_EVIDENCE, Band, Bands, FrontierEvidence, joined, merge_witnesses
from pricing.kernel.profile import Evidence, EvidenceFields, Profile
from pricing.kernel.quantities import Sharing, maximum, minimum, more_sharing


def merge(one: Profile, other: Profile) -> Profile:
    """The profile that knows what either knows: each field the larger, the warm floor the smaller; footprints too."""
    return Profile(**_merged(one, other), footprint=Evidence(**_merged(one.footprint, other.footprint)))


def _merged(one: Evidence, other: Evidence) -> EvidenceFields:
    return EvidenceFields(
        peak_bytes_per_row=maximum(one.peak_bytes_per_row, other.peak_bytes_per_row),
        largest_packed_rows=maximum(one.largest_packed_rows, other.largest_packed_rows),
        sharing=merge_sharing(one.sharing, other.sharing),
        retained_bytes_per_row=_larger(one.retained_bytes_per_row, other.retained_bytes_per_row),
        complete_readings=maximum(one.complete_readings, other.complete_readings),
        warm_bytes_per_row=_larger(one.warm_bytes_per_row, other.warm_bytes_per_row),
        warm_packed_rows=_smaller(one.warm_packed_rows, other.warm_packed_rows),
        warm_sharing=_more_sharing(one.warm_sharing, other.warm_sharing),
        frontier=merge_evidence(one.frontier, other.frontier),
        witnesses=merge_witnesses(one.witnesses, other.witnesses),
    )


def merge_sharing(one: Sharing, other: Sharing) -> Sharing:
    """The higher ratio; of equal ones the pair with fewer packed rows."""
    return more_sharing(one, other.logical_rows, other.packed_rows)


def merge_evidence(one: FrontierEvidence, other: FrontierEvidence) -> FrontierEvidence:
    """The evidence of both, band by band."""
    if one == other:
        return one
    if one == NO_EVIDENCE or other == NO_EVIDENCE:
        return other if one == NO_EVIDENCE else one
    return FrontierEvidence(peak=merge_bands(one.peak, other.peak), retained=merge_bands(one.retained, other.retained))


def merge_bands(one: Bands, other: Bands) -> Bands:
    """The bands of both in order of key; of a key that both have, the higher anchor and the joined covers."""
    bands: dict[tuple[int, int], Band] = {band.key: band for band in one}
    for band in other:
        known = bands.get(band.key)
        bands[band.key] = band if known is None else joined(known, band)
    return tuple(bands[key] for key in sorted(bands))


def _larger(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return maximum(one, other)


def _smaller(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return minimum(one, other)


def _more_sharing(one: Sharing | None, other: Sharing | None) -> Sharing | None:
    if one is None or other is None:
        return other if one is None else one
    return merge_sharing(one, other)
