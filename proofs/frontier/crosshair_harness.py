"""The frontier law's contracts under CrossHair: one bound, one cover, one join; small functions of integers."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.bands import Anchor, Cover, higher_anchor, joined_cover
from pricing.kernel.frontier import Bound, bound_of


def _bound(compute: int, rows: int, logical: int, segments: int) -> Bound:
    """A bound of one reading, packed-priced, in a model without recurrent layers."""
    anchor = Anchor(compute_bytes=compute, packed_rows=rows, logical_rows=logical, grad_segments=segments)
    return bound_of(anchor, 6_144, 0)


def a_bound_never_falls_as_packed_rows_grow(compute: int, rows: int, logical: int, wave_rows: int, extra: int) -> bool:
    """
    pre: compute >= 1 and rows >= 1 and logical >= 1 and wave_rows >= 1 and extra >= 0
    post: __return__
    """
    smaller = Anchor(compute_bytes=1, packed_rows=wave_rows, logical_rows=1_000, grad_segments=0)
    larger = Anchor(compute_bytes=1, packed_rows=wave_rows + extra, logical_rows=1_000, grad_segments=0)
    return contracts.bound_never_falls(_bound(compute, rows, logical, 0), smaller, larger)


def a_bound_never_falls_as_logical_rows_grow(
    compute: int, rows: int, logical: int, wave_logical: int, extra: int
) -> bool:
    """
    pre: compute >= 1 and rows >= 1 and logical >= 1 and wave_logical >= 0 and extra >= 0
    post: __return__
    """
    smaller = Anchor(compute_bytes=1, packed_rows=500, logical_rows=wave_logical, grad_segments=0)
    larger = Anchor(compute_bytes=1, packed_rows=500, logical_rows=wave_logical + extra, grad_segments=0)
    return contracts.bound_never_falls(_bound(compute, rows, logical, 0), smaller, larger)


def a_lift_is_no_byte_more_than_needed(compute: int, rows: int, knee: int, target: int) -> bool:
    """
    pre: compute >= 1 and rows >= 1 and knee >= 1 and target >= 0
    post: __return__
    """
    cover = Cover(compute_bytes=1, bytes_per_row=1, logical_rows=0, grad_segments=0)
    return contracts.lift_is_least(_bound(compute, rows, 1, 0), knee, cover, target)


def a_joined_cover_covers_whatever_either_does(
    compute: int, rate: int, logical: int, other_compute: int, other_rate: int, other_logical: int, reading: int
) -> bool:
    """
    pre: compute >= 1 and rate >= 1 and logical >= 0 and other_compute >= 1 and other_rate >= 1 and other_logical >= 0
    pre: reading >= 1
    post: __return__
    """
    one = Cover(compute_bytes=compute, bytes_per_row=rate, logical_rows=logical, grad_segments=0)
    other = Cover(compute_bytes=other_compute, bytes_per_row=other_rate, logical_rows=other_logical, grad_segments=0)
    told = Anchor(compute_bytes=reading, packed_rows=7, logical_rows=logical, grad_segments=0)
    return contracts.joined_cover_covers_both(one, other, told)


def readings_join_alike_in_either_order(
    compute: int, rows: int, logical: int, other_compute: int, other_rows: int, other_logical: int
) -> bool:
    """
    pre: compute >= 1 and rows >= 1 and logical >= 1 and other_compute >= 1 and other_rows >= 1 and other_logical >= 1
    post: __return__
    """
    one = Anchor(compute_bytes=compute, packed_rows=rows, logical_rows=logical, grad_segments=0)
    other = Anchor(compute_bytes=other_compute, packed_rows=other_rows, logical_rows=other_logical, grad_segments=0)
    cover = Cover(compute_bytes=compute, bytes_per_row=1, logical_rows=logical, grad_segments=0)
    beside = Cover(compute_bytes=other_compute, bytes_per_row=1, logical_rows=other_logical, grad_segments=0)
    return higher_anchor(one, other) == higher_anchor(other, one) and joined_cover(cover, beside) == joined_cover(
        beside, cover
    )
