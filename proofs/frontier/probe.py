"""Looser forms of the frontier law that were tried and are wrong, and premises that are needed: each is refuted."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.bands import Anchor, Cover
from pricing.kernel.frontier import Bound, bound_bytes, bound_of, knee_rows, lifted_bytes, needed_bytes, scaled_bytes
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, ceil_div, maximum, minimum
from proofs.frontier.theorem import a_bound, a_cover, a_wave, an_anchor, raised
from proofs.solver.proof import Given, refuted


def without_segments(anchor: Anchor) -> Bound:
    """Its bound where no segment is charged."""
    return bound_of(anchor, LOGICAL_ROW_BYTES, 0)


@refuted("INV-1")
def a_charge_that_scales_with_the_evidence_never_falls(t: Given) -> None:
    """c * P / Pi + 6144 * max(0, L - Li * P / Pi) falls with P where the reading costs less than its charges."""
    anchor, (rows, logical, _) = an_anchor(t), a_wave(t)
    unit = anchor.packed_rows
    t.assume(rows >= unit)
    at, beside = (
        anchor.compute_bytes * of + LOGICAL_ROW_BYTES * maximum(0, logical * unit - anchor.logical_rows * of)
        for of in (rows, rows + 1)
    )
    t.prove(at <= beside)


@refuted("frontier")
def scaling_alone_needs_no_charge(t: Given) -> None:
    """Logical rows beyond the reading's sharing may cost their charge: a machine at that charge is above c * P / Pi."""
    anchor, (rows, logical, _) = an_anchor(t), a_wave(t)
    peak, unit = t.integer("peak", 0), anchor.packed_rows
    t.assume(rows == unit)
    t.assume(peak <= anchor.compute_bytes + LOGICAL_ROW_BYTES * maximum(0, logical - anchor.logical_rows))
    t.prove(peak <= anchor.compute_bytes)


@refuted("INV-8")
def a_bound_covers_without_a_lift(t: Given) -> None:
    """rho (here: the lift) missing: readings may contradict one another."""
    bound, cover = a_bound(t), a_cover(t)
    knee = knee_rows(cover)
    at = scaled_bytes(bound, knee, cover.logical_rows, cover.grad_segments)
    t.prove(at >= cover.bytes_per_row * knee * bound.packed_rows)


@refuted("INV-8")
def covering_the_knee_from_below_is_enough(t: Given) -> None:
    """W * p at p rows alone leaves the rows beyond it: c may be almost W more."""
    bound, cover = a_bound(t), a_cover(t)
    knee = knee_rows(cover)
    lifted = raised(bound, maximum(bound.compute_bytes, needed_bytes(bound, knee, cover, cover.bytes_per_row * knee)))
    beyond = scaled_bytes(lifted, knee + 1, cover.logical_rows, cover.grad_segments)
    t.prove(beyond >= cover.compute_bytes * bound.packed_rows)


@refuted("INV-8")
def covering_readings_as_whole_points_covers_their_join(t: Given) -> None:
    """Of two readings kept as (most bytes, its rows) alone, one of fewer bytes and far fewer rows slips under."""
    high, other, price = an_anchor(t, "high"), an_anchor(t, "other"), t.integer("price", 0)
    t.assume(other.compute_bytes <= high.compute_bytes)
    t.assume(other.packed_rows <= high.packed_rows)
    t.assume(price * high.packed_rows >= high.compute_bytes * other.packed_rows)  # covers `high`, no faster than rows
    t.prove(price >= other.compute_bytes)


@refuted("frontier")
def the_least_rows_of_another_band_would_do(t: Given) -> None:
    """A bound with fewer rows and the compute of a larger reading is sound; one with more rows is not."""
    anchor, (rows, logical, segments), more = an_anchor(t), a_wave(t), t.integer("more", 1)
    bound = without_segments(anchor)
    moved = Bound(
        compute_bytes=bound.compute_bytes,
        packed_rows=bound.packed_rows + more,
        logical_rows=bound.logical_rows,
        grad_segments=bound.grad_segments,
        row_bytes=bound.row_bytes,
        segment_rest_bytes=0,
        row_rest_bytes=bound.row_rest_bytes,
        segment_bytes=0,
    )
    t.prove(bound_bytes(bound, rows, logical, segments) <= bound_bytes(moved, rows, logical, segments))


@refuted("INV-9")
def a_complete_reading_never_lowers_the_least_bound(t: Given) -> None:
    """It may, and should: that is what the law learns."""
    one, other, wave = a_bound(t, "one"), a_bound(t, "other"), a_wave(t)
    before = bound_bytes(one, *wave)
    t.prove(minimum(before, bound_bytes(other, *wave)) >= before)


@refuted("INV-9")
def a_lift_is_never_needed(t: Given) -> None:
    bound, cover = a_bound(t), a_cover(t)
    t.prove(lifted_bytes(bound, cover) == bound.compute_bytes)


@refuted("INV-8")
def no_reading_is_within_a_cover(t: Given) -> None:
    """The premises of coverage can be met."""
    bound, cover, reading = a_bound(t), a_cover(t), an_anchor(t, "reading")
    t.assume(contracts.is_bound(bound))
    t.assume(reading.compute_bytes <= cover.compute_bytes)
    t.assume(ceil_div(reading.compute_bytes, reading.packed_rows) <= cover.bytes_per_row)
    t.prove(False)


def wide(cover: Cover) -> Cover:
    """The cover, asked for at no logical rows and no segments: what the join of many readings may come to."""
    return Cover(compute_bytes=cover.compute_bytes, bytes_per_row=cover.bytes_per_row, logical_rows=0, grad_segments=0)


@refuted("INV-8")
def a_cover_at_a_readings_own_logical_rows_covers_readings_of_fewer(t: Given) -> None:
    """Charges count for a cover only from the least L and S on: with those of one reading, another is left out."""
    bound, cover = a_bound(t), a_cover(t)
    lifted = raised(bound, lifted_bytes(bound, cover))
    knee = knee_rows(cover)
    t.prove(scaled_bytes(lifted, knee, 0, 0) >= wide(cover).bytes_per_row * knee * bound.packed_rows)
