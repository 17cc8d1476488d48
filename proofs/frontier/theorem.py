"""The frontier law on all integers, for any number of bands, readings and covers.

One bound (`Bound`, the shipped `scaled_bytes` and `bound_bytes`), one cover and one lift are proven for all integers.
What the law makes of many is a minimum over bounds, a maximum over covers and a join over readings; for each the
induction step is proven, so the number does not matter.
"""

from __future__ import annotations

from pricing import contracts
from pricing.bands import Anchor, Band, Cover, higher_anchor, is_covered, joined, joined_cover
from pricing.frontier import (
    Bound,
    affordable_bytes,
    bound_bytes,
    bound_of,
    charges_no_more,
    knee_rows,
    lifted_bytes,
    needed_bytes,
    nowhere_above_as_larger,
    nowhere_above_as_smaller,
    scaled_bytes,
)
from pricing.quantities import LOGICAL_ROW_BYTES, maximum, minimum
from proofs.frontier.lemmas import (
    a_charge_by_row_never_rises,
    a_credit_is_at_most_its_share_of_the_rows,
    a_knee_that_is_reached_covers_fewer_rows,
    a_lift_reaches_its_target,
    a_product_never_falls_as_both_factors_grow,
    credits_are_paid_for_by_compute,
    what_is_lacking_never_grows_with_rows,
)
from proofs.lemmas import (
    a_product_never_falls_as_a_factor_grows,
    rounding_up_is_the_least_integer_above,
    rounding_up_never_falls_as_the_numerator_grows,
)
from proofs.solver.proof import Given, theorem

ROUNDING = (rounding_up_never_falls_as_the_numerator_grows, rounding_up_is_the_least_integer_above)
PRODUCTS = (a_product_never_falls_as_a_factor_grows,)


# --- inputs ----------------------------------------------------------------------------------------------------------


def a_bound(t: Given, name: str = "bound") -> Bound:
    """Any bound that evidence can make (`contracts.is_bound`), lifted or not."""
    made = Bound(
        compute_bytes=t.integer(f"{name}.C"),
        packed_rows=t.integer(f"{name}.P", 1),
        logical_rows=t.integer(f"{name}.L", 1),
        grad_segments=t.integer(f"{name}.S", 0),
        row_bytes=t.integer(f"{name}.a", 0),
        segment_rest_bytes=t.integer(f"{name}.g_rest", 0),
        row_rest_bytes=t.integer(f"{name}.a_rest", 0),
        segment_bytes=t.integer(f"{name}.g", 0),
    )
    t.assume(made.compute_bytes >= made.row_bytes * made.logical_rows + made.segment_rest_bytes * made.grad_segments)
    t.assume(made.compute_bytes >= made.row_rest_bytes * made.logical_rows + made.segment_bytes * made.grad_segments)
    return made


def an_anchor(t: Given, name: str = "anchor") -> Anchor:
    """Any complete reading that may bound."""
    return Anchor(
        compute_bytes=t.integer(f"{name}.c", 1),
        packed_rows=t.integer(f"{name}.P", 1),
        logical_rows=t.integer(f"{name}.L", 1),
        grad_segments=t.integer(f"{name}.S", 0),
    )


def a_cover(t: Given, name: str = "cover") -> Cover:
    """Any cover of at least one reading."""
    made = Cover(
        compute_bytes=t.integer(f"{name}.c", 1),
        bytes_per_row=t.integer(f"{name}.W", 1),
        logical_rows=t.integer(f"{name}.L", 0),
        grad_segments=t.integer(f"{name}.S", 0),
    )
    t.assume(made.bytes_per_row <= made.compute_bytes)
    return made


def charge_pairs(bound: Bound) -> tuple[tuple[int, int], tuple[int, int]]:
    """The two pairs of charges (a row, a segment) of which the dearer counts."""
    return (bound.row_bytes, bound.segment_rest_bytes), (bound.row_rest_bytes, bound.segment_bytes)


def lacking(bound: Bound, rows: int, logical_rows: int, grad_segments: int) -> tuple[int, int]:
    """What the anchor scaled to `rows` lacks of L and S, times Pi: as in `scaled_charge_bytes`."""
    return (
        maximum(0, logical_rows * bound.packed_rows - bound.logical_rows * rows),
        maximum(0, grad_segments * bound.packed_rows - bound.grad_segments * rows),
    )


def tell_scaling(t: Given, bound: Bound, rows: int, more: int, logical_rows: int, grad_segments: int) -> None:
    """What the lemmas say of one bound scaled to `rows` and to `more` rows, at one L and S."""
    wanted_rows, wanted_segments = logical_rows * bound.packed_rows, grad_segments * bound.packed_rows
    few, many = (lacking(bound, at, logical_rows, grad_segments) for at in (rows, more))
    for wanted, held in ((wanted_rows, bound.logical_rows), (wanted_segments, bound.grad_segments)):
        t.use(a_credit_is_at_most_its_share_of_the_rows, wanted, held, rows, more)
        t.use(what_is_lacking_never_grows_with_rows, wanted, held, rows, more)
    for row, segment in charge_pairs(bound):
        held = (bound.logical_rows, bound.grad_segments)
        t.use(credits_are_paid_for_by_compute, bound.compute_bytes, row, segment, *held, *few, *many, more - rows)
        t.use(a_charge_by_row_never_rises, row, segment, *many, *few, rows, more)


def a_wave(t: Given, name: str = "wave") -> tuple[int, int, int]:
    """Any P >= 1, L and S."""
    return t.integer(f"{name}.P", 1), t.integer(f"{name}.L", 0), t.integer(f"{name}.S", 0)


def step(t: Given, claim: bool, label: str) -> None:
    """A claim that is proven here and used from here on."""
    t.prove(claim, label)
    t.assume(claim)


# --- one bound: monotone, and no faster than rows --------------------------------------------------------------------


@theorem("INV-1", lemmas=ROUNDING)
def a_bound_never_falls_as_packed_rows_grow(t: Given) -> None:
    bound, (rows, logical, segments), extra = a_bound(t), a_wave(t), t.integer("extra", 0)
    tell_scaling(
        t, bound, maximum(rows, bound.packed_rows), maximum(rows + extra, bound.packed_rows), logical, segments
    )
    few, many = scaled_bytes(bound, rows, logical, segments), scaled_bytes(bound, rows + extra, logical, segments)
    t.prove(few <= many, "exactly")
    t.prove(
        bound_bytes(bound, rows, logical, segments) <= bound_bytes(bound, rows + extra, logical, segments), "rounded"
    )


@theorem("INV-2", lemmas=(*ROUNDING, *PRODUCTS))
def a_bound_never_falls_as_logical_rows_or_segments_grow(t: Given) -> None:
    bound, (rows, logical, segments), (_, more_logical, more_segments) = a_bound(t), a_wave(t), a_wave(t, "larger")
    t.assume(logical <= more_logical)
    t.assume(segments <= more_segments)
    at = maximum(rows, bound.packed_rows)
    fewer, wanted = lacking(bound, at, logical, segments), lacking(bound, at, more_logical, more_segments)
    for count, more in ((logical, more_logical), (segments, more_segments)):
        t.use(a_product_never_falls_as_both_factors_grow, count, bound.packed_rows, more, bound.packed_rows)
    for row, segment in charge_pairs(bound):
        t.use(a_product_never_falls_as_both_factors_grow, row, fewer[0], row, wanted[0])
        t.use(a_product_never_falls_as_both_factors_grow, segment, fewer[1], segment, wanted[1])
    few, many = (
        scaled_bytes(bound, rows, logical, segments),
        scaled_bytes(bound, rows, more_logical, more_segments),
    )
    step(t, few <= many, "exactly")
    t.prove(
        bound_bytes(bound, rows, logical, segments) <= bound_bytes(bound, rows, more_logical, more_segments), "rounded"
    )


@theorem("INV-8")
def a_bound_divided_by_packed_rows_never_rises(t: Given) -> None:
    bound, (rows, logical, segments), more = a_bound(t), a_wave(t), t.integer("more")
    t.assume(rows <= more)
    at, at_more = maximum(rows, bound.packed_rows), maximum(more, bound.packed_rows)
    tell_scaling(t, bound, at, at_more, logical, segments)
    few, many = scaled_bytes(bound, rows, logical, segments), scaled_bytes(bound, more, logical, segments)
    step(t, many * at <= few * at_more, "by the rows that are scaled to")
    step(t, minimum(few, many) >= 0, "no bound is negative")
    t.use(a_product_never_falls_as_both_factors_grow, many, rows, many, at)
    t.use(a_product_never_falls_as_both_factors_grow, few, rows, few, more)
    t.prove(many * rows <= few * more)


@theorem("INV-8", lemmas=ROUNDING)
def a_bound_is_at_least_its_compute_and_its_compute_by_row(t: Given) -> None:
    """What lets a search stop, and a lift skip a cover."""
    bound, (rows, logical, segments), least = a_bound(t), a_wave(t), t.integer("least", 0)
    value = bound_bytes(bound, rows, logical, segments)
    for row, segment in charge_pairs(bound):
        for charge, missing in zip((row, segment), lacking(bound, maximum(rows, bound.packed_rows), logical, segments), strict=True):
            t.use(a_product_never_falls_as_both_factors_grow, 0, 0, charge, missing)
    t.use(a_product_never_falls_as_both_factors_grow, bound.compute_bytes, rows, bound.compute_bytes, rows)
    t.prove(value >= bound.compute_bytes, "compute")
    t.prove(value * bound.packed_rows >= bound.compute_bytes * rows, "compute by row")


# --- one lift: it covers, it is least, and learning never lowers it --------------------------------------------------


def raised(bound: Bound, compute_bytes: int) -> Bound:
    """The bound with another compute, as `lifted` makes it."""
    return Bound(
        compute_bytes=compute_bytes,
        packed_rows=bound.packed_rows,
        logical_rows=bound.logical_rows,
        grad_segments=bound.grad_segments,
        row_bytes=bound.row_bytes,
        segment_rest_bytes=bound.segment_rest_bytes,
        row_rest_bytes=bound.row_rest_bytes,
        segment_bytes=bound.segment_bytes,
    )


def tell_lift(t: Given, bound: Bound, compute_bytes: int, packed_rows: int, cover: Cover, target_bytes: int) -> None:
    """What a compute of at least `needed_bytes` does at these rows."""
    rows = maximum(packed_rows, bound.packed_rows)
    charges = scaled_bytes(raised(bound, 0), packed_rows, cover.logical_rows, cover.grad_segments)
    needed = needed_bytes(bound, packed_rows, cover, target_bytes)
    t.use(a_lift_reaches_its_target, compute_bytes, needed, rows, charges, target_bytes * bound.packed_rows)


@theorem("INV-8", lemmas=ROUNDING, merging=(needed_bytes, scaled_bytes))
def a_lifted_bound_reaches_the_knee_of_its_cover(t: Given) -> None:
    bound, cover = a_bound(t), a_cover(t)
    knee, lifted = knee_rows(cover), raised(bound, lifted_bytes(bound, cover))
    logical, segments, unit = cover.logical_rows, cover.grad_segments, bound.packed_rows
    tell_lift(t, bound, lifted.compute_bytes, knee, cover, cover.bytes_per_row * knee)
    tell_lift(t, bound, lifted.compute_bytes, knee + 1, cover, cover.compute_bytes)
    t.prove(knee >= 1, "there is a knee")
    t.prove(lifted.compute_bytes >= bound.compute_bytes, "a lift never lowers")
    t.prove(scaled_bytes(lifted, knee, logical, segments) >= cover.bytes_per_row * knee * unit, "at the knee")
    t.prove(scaled_bytes(lifted, knee + 1, logical, segments) >= cover.compute_bytes * unit, "beyond it")


@theorem("INV-8")
def a_bound_that_reaches_the_knee_covers_every_reading(t: Given) -> None:
    """Monotone beyond the knee, no faster than rows below it: so the knee decides for all."""
    bound, cover = a_bound(t), a_cover(t)
    rows, reading, knee = t.integer("rows", 1), t.integer("reading", 1), t.integer("knee", 1)
    logical, segments, unit = cover.logical_rows, cover.grad_segments, bound.packed_rows
    at, at_knee, beyond = (scaled_bytes(bound, of, logical, segments) for of in (rows, knee, knee + 1))
    t.assume(reading <= cover.compute_bytes)
    t.assume(reading <= cover.bytes_per_row * rows)
    t.assume(at_knee >= cover.bytes_per_row * knee * unit)
    t.assume(beyond >= cover.compute_bytes * unit)
    if rows <= knee:
        t.assume(at * knee >= at_knee * rows)  # a_bound_divided_by_packed_rows_never_rises
        t.use(a_knee_that_is_reached_covers_fewer_rows, at, at_knee, rows, knee, unit, cover.bytes_per_row)
        t.use(a_product_never_falls_as_both_factors_grow, reading, unit, cover.bytes_per_row * rows, unit)
    else:
        t.assume(at >= beyond)  # a_bound_never_falls_as_packed_rows_grow
        t.use(a_product_never_falls_as_both_factors_grow, reading, unit, cover.compute_bytes, unit)
    t.prove(at >= reading * unit)


@theorem("INV-9", lemmas=ROUNDING, merging=(needed_bytes, scaled_bytes))
def a_lift_is_no_byte_more_than_needed(t: Given) -> None:
    bound, cover, rows, target = a_bound(t), a_cover(t), t.integer("rows", 1), t.integer("target", 0)
    t.holds(contracts.lift_is_least, bound, rows, cover, target)


@theorem("INV-9", lemmas=ROUNDING)
def a_compute_that_reaches_the_knee_is_at_least_the_lift(t: Given) -> None:
    """So of two covers of which one covers all that the other does, it has the higher lift: learning never lowers."""
    bound, cover, compute = a_bound(t), a_cover(t), t.integer("compute")
    knee, other = knee_rows(cover), raised(bound, compute)
    logical, segments, unit = cover.logical_rows, cover.grad_segments, bound.packed_rows
    t.assume(compute >= bound.compute_bytes)
    t.assume(scaled_bytes(other, knee, logical, segments) >= cover.bytes_per_row * knee * unit)
    t.assume(scaled_bytes(other, knee + 1, logical, segments) >= cover.compute_bytes * unit)
    t.prove(lifted_bytes(bound, cover) <= compute)


@theorem("INV-9", lemmas=PRODUCTS)
def a_joined_cover_covers_whatever_either_does(t: Given) -> None:
    one, other, reading = a_cover(t, "one"), a_cover(t, "other"), an_anchor(t, "reading")
    t.holds(contracts.joined_cover_covers_both, one, other, reading)


@theorem("INV-9", lemmas=ROUNDING)
def the_knee_of_a_cover_is_within_a_wider_one(t: Given) -> None:
    """What a cover asks at its knee, and beyond it, a wider one allows: so reaching the wider one's knee (and with it
    all that it allows) reaches the narrower one's."""
    one, other = a_cover(t, "one"), a_cover(t, "other")
    wider, knee = joined_cover(one, other), knee_rows(one)
    t.use(a_product_never_falls_as_both_factors_grow, one.bytes_per_row, knee, wider.bytes_per_row, knee)
    t.use(a_product_never_falls_as_both_factors_grow, one.bytes_per_row, knee + 1, wider.bytes_per_row, knee + 1)
    t.prove(one.bytes_per_row * knee <= minimum(wider.compute_bytes, wider.bytes_per_row * knee), "at the knee")
    beyond = minimum(wider.compute_bytes, wider.bytes_per_row * (knee + 1))
    t.prove(one.compute_bytes <= beyond, "beyond it")


@theorem("INV-8", lemmas=ROUNDING, merging=(needed_bytes, scaled_bytes))
def a_cover_under_a_bounds_compute_or_rate_needs_no_lift(t: Given) -> None:
    """What `lifted` skips, it may skip."""
    bound, cover = a_bound(t), a_cover(t)
    knee, unit = knee_rows(cover), bound.packed_rows
    t.assume(minimum(cover.compute_bytes, cover.bytes_per_row * unit) <= bound.compute_bytes)
    for rows in (knee, knee + 1):
        at = maximum(rows, unit)
        for row, segment in charge_pairs(bound):
            for charge, missing in zip(
                (row, segment), lacking(bound, at, cover.logical_rows, cover.grad_segments), strict=True
            ):
                t.use(a_product_never_falls_as_both_factors_grow, 0, 0, charge, missing)
        t.use(a_product_never_falls_as_both_factors_grow, cover.compute_bytes, unit, bound.compute_bytes, at)
        t.use(a_product_never_falls_as_both_factors_grow, cover.bytes_per_row * unit, rows, bound.compute_bytes, at)
    t.prove(lifted_bytes(bound, cover) == bound.compute_bytes)
