"""The invariants of the frontier law's parts: one bound, one cover, the minimum of all bounds, the evidence."""

from __future__ import annotations

from dataclasses import replace

from pricing.kernel.bands import (
    MOST_BANDS,
    Anchor,
    Bands,
    Cover,
    FrontierEvidence,
    broken_evidence,
    is_covered,
    joined_cover,
    observe_bands,
)
from pricing.kernel.frontier import Bound, bound_bytes, frontier_of, lifted_bytes, needed_bytes, scaled_bytes
from pricing.kernel.quantities import maximum, minimum
from pricing.kernel.reading import Reading


def is_bound(bound: Bound) -> bool:
    """What every bound that is made from evidence satisfies: its compute is at least the credit that its own logical
    rows and segments give, by either pair of charges; and no rest is above the charge in full."""
    charges = minimum(
        minimum(bound.row_bytes, bound.segment_rest_bytes), minimum(bound.row_rest_bytes, bound.segment_bytes)
    )
    return (
        bound.packed_rows >= 1
        and bound.row_rest_bytes <= bound.row_bytes
        and bound.segment_rest_bytes <= bound.segment_bytes
        and minimum(charges, minimum(bound.logical_rows, bound.grad_segments)) >= 0
        and bound.compute_bytes
        >= maximum(
            bound.row_bytes * bound.logical_rows + bound.segment_rest_bytes * bound.grad_segments,
            bound.row_rest_bytes * bound.logical_rows + bound.segment_bytes * bound.grad_segments,
        )
    )


def is_cover(cover: Cover) -> bool:
    """What every cover that is made from readings satisfies: it covers some bytes, in one row at least."""
    return 1 <= cover.bytes_per_row <= cover.compute_bytes and minimum(cover.logical_rows, cover.grad_segments) >= 0


def bound_never_falls(bound: Bound, smaller: Anchor, larger: Anchor) -> bool:
    """INV-1, INV-2, one bound: more packed rows, logical rows or segments never lower it. (Of the two only P, L, S
    count.) Premise: `larger` has at least as many of each, and the smaller one row at least."""
    if not (
        is_bound(bound)
        and 1 <= smaller.packed_rows <= larger.packed_rows
        and 0 <= smaller.logical_rows <= larger.logical_rows
        and 0 <= smaller.grad_segments <= larger.grad_segments
    ):
        return True
    return bound_bytes(bound, smaller.packed_rows, smaller.logical_rows, smaller.grad_segments) <= bound_bytes(
        bound, larger.packed_rows, larger.logical_rows, larger.grad_segments
    )


def bound_per_row_never_rises(
    bound: Bound, packed_rows: int, more_rows: int, logical_rows: int, grad_segments: int
) -> bool:
    """U / P never rises with P, before rounding: what the knee of a cover rests on. Premise: 1 <= P <= P'."""
    if not (is_bound(bound) and 1 <= packed_rows <= more_rows and minimum(logical_rows, grad_segments) >= 0):
        return True
    fewer = scaled_bytes(bound, packed_rows, logical_rows, grad_segments)
    more = scaled_bytes(bound, more_rows, logical_rows, grad_segments)
    return more * packed_rows <= fewer * more_rows


def lifted_bound_covers(bound: Bound, cover: Cover, reading: Anchor) -> bool:
    """INV-8, one bound: lifted over a cover, it is at least any reading that is within it. Premise: such a reading."""
    if not (is_bound(bound) and is_cover(cover) and reading.packed_rows >= 1 and is_covered(reading, cover)):
        return True
    raised = replace(bound, compute_bytes=lifted_bytes(bound, cover))
    return (
        bound_bytes(raised, reading.packed_rows, reading.logical_rows, reading.grad_segments) >= reading.compute_bytes
    )


def lift_is_least(bound: Bound, packed_rows: int, cover: Cover, compute_bytes: int) -> bool:
    """A lift is no byte more than the knee needs: with the C it names U * Pi reaches the target, with one less not."""
    if not (is_bound(bound) and packed_rows >= 1):
        return True
    needed = needed_bytes(bound, packed_rows, cover, compute_bytes)
    target = compute_bytes * bound.packed_rows
    at, below = replace(bound, compute_bytes=needed), replace(bound, compute_bytes=needed - 1)
    return (
        scaled_bytes(at, packed_rows, cover.logical_rows, cover.grad_segments) >= target
        and scaled_bytes(below, packed_rows, cover.logical_rows, cover.grad_segments) < target
    )


def joined_cover_covers_both(one: Cover, other: Cover, reading: Anchor) -> bool:
    """INV-8, INV-9: what either cover covers, the joined one does."""
    within = is_covered(reading, one) or is_covered(reading, other)
    return not within or is_covered(reading, joined_cover(one, other))


def wider_cover_never_lowers_a_lift(bound: Bound, one: Cover, other: Cover) -> bool:
    """INV-9 among bands: one more reading, joined into a cover, never lowers what a bound is lifted to.

    Premise: covers of something.
    """
    if not (is_bound(bound) and is_cover(one) and is_cover(other)):
        return True
    return lifted_bytes(bound, one) <= lifted_bytes(bound, joined_cover(one, other))


def frontier_is_the_minimum(
    bands: Bands, charge_bytes: int | None, state_bytes: int, packed_rows: int, logical_rows: int, grad_segments: int
) -> bool:
    """What a price looks at gives the minimum over all bounds. Premise: there is one, and P >= 1."""
    frontier = frontier_of(bands, charge_bytes, state_bytes)
    if not frontier.bounds or packed_rows < 1:
        return True
    everywhere = min(bound_bytes(bound, packed_rows, logical_rows, grad_segments) for bound in frontier.bounds)
    return frontier.least(packed_rows, logical_rows, grad_segments)[0] == everywhere


def evidence_stays_reachable(evidence: FrontierEvidence, reading: Reading, seed_seen: bool) -> bool:
    """The inductive invariant of the frontier law's evidence, and the bound on how much of it there is."""
    after = replace(observe_bands(evidence, reading, seed_seen))  # a copy is not yet known to be sound
    return broken_evidence(after) is None and max(len(after.peak), len(after.retained)) <= MOST_BANDS


def incomplete_reading_never_moves_a_bound(evidence: FrontierEvidence, reading: Reading) -> bool:
    """INV-9 among bands: an incomplete reading leaves every anchor of a peak as it was. Premise: it is incomplete."""
    if reading.is_complete:
        return True
    return _anchors(observe_bands(evidence, reading, True).peak) == _anchors(evidence.peak)


def _anchors(bands: Bands) -> list[Anchor]:
    return [band.anchor for band in bands if band.anchor is not None]


def evidence_does_not_depend_on_order(evidence: FrontierEvidence, first: Reading, second: Reading) -> bool:
    """INV-10: two readings leave the same evidence in either order."""
    one_way = observe_bands(observe_bands(evidence, first, True), second, True)
    return one_way == observe_bands(observe_bands(evidence, second, True), first, True)
