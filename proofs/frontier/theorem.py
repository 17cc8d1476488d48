"""The frontier law on all integers, for any number of bands, readings and covers.

One bound (`Bound`, the shipped `scaled_bytes` and `bound_bytes`), one cover and one lift are proven for all integers.
What the law makes of many is a minimum over bounds, a maximum over covers and a join over readings; for each the
induction step is proven, so the number does not matter.
"""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.bands import Anchor, Band, Cover, higher_anchor, is_covered, joined, joined_cover
from pricing.kernel.frontier import (
    Bound,
    affordable_bytes,
    bound_bytes,
    bound_of,
    knee_rows,
    lifted_bytes,
    needed_bytes,
    nowhere_above_as_larger,
    nowhere_above_as_smaller,
    scaled_bytes,
)
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, ceil_div, maximum, minimum
from proofs.frontier.lemmas import (
    a_charge_by_row_never_rises,
    a_credit_is_at_most_its_share_of_the_rows,
    a_knee_that_is_reached_covers_fewer_rows,
    a_lift_reaches_its_target,
    a_lower_quotient_rounds_up_no_higher,
    a_pair_of_charges_by_row,
    a_product_never_falls_as_both_factors_grow,
    a_target_within_reach_needs_no_lift,
    compute_by_row,
    credits_are_paid_for_by_compute,
    sums_compare_by_row,
    the_dearer_of_two_by_row,
    the_dearer_pair_without_scaling,
    what_holds_by_the_rows_scaled_to_holds_by_rows,
    what_is_lacking_by_row_is_less_of_what_holds_more,
    what_is_lacking_never_grows_with_rows,
    what_is_lacking_without_scaling,
    what_is_under_a_compute_or_rate_is_within_reach,
)
from proofs.lemmas import (
    a_product_never_falls_as_a_factor_grows,
    rounding_up_is_the_least_integer_above,
    rounding_up_never_falls_as_the_numerator_grows,
)
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both

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
    t.assume(made.row_rest_bytes <= made.row_bytes)
    t.assume(made.segment_rest_bytes <= made.segment_bytes)
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


def charged(row_bytes: int, segment_bytes: int, missing: tuple[int, int]) -> int:
    """One pair of charges for what is lacking."""
    return row_bytes * missing[0] + segment_bytes * missing[1]


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
    holds = bound.logical_rows, bound.grad_segments
    for row, segment in charge_pairs(bound):
        t.use(credits_are_paid_for_by_compute, bound.compute_bytes, row, segment, *holds, *few, *many, more - rows)
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
    step(t, fewer[0] <= wanted[0], "no fewer logical rows are lacking")
    step(t, fewer[1] <= wanted[1], "no fewer segments are lacking")
    for row, segment in charge_pairs(bound):
        t.use(a_product_never_falls_as_both_factors_grow, row, fewer[0], row, wanted[0])
        t.use(a_product_never_falls_as_both_factors_grow, segment, fewer[1], segment, wanted[1])
        step(t, charged(row, segment, fewer) <= charged(row, segment, wanted), "each pair of charges")
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
    charges, more_charges = (
        [charged(row, segment, lacking(bound, of, logical, segments)) for row, segment in charge_pairs(bound)]
        for of in (at, at_more)
    )
    for charge, more_charge in zip(charges, more_charges, strict=True):
        step(t, more_charge * at <= charge * at_more, "each pair of charges")
    t.use(the_dearer_of_two_by_row, *more_charges, *charges, at_more, at)
    compute = bound.compute_bytes
    t.use(sums_compare_by_row, compute * at_more, maximum(*more_charges), compute * at, maximum(*charges), at_more, at)
    step(t, many * at <= few * at_more, "by the rows that are scaled to")
    step(t, minimum(few, many) >= 0, "no bound is negative")
    if more <= bound.packed_rows:
        step(t, many <= few, "below the anchor's rows nothing is scaled")
    t.use(what_holds_by_the_rows_scaled_to_holds_by_rows, few, many, rows, more, bound.packed_rows)
    t.prove(many * rows <= few * more)


@theorem("INV-8", lemmas=ROUNDING)
def a_bound_is_at_least_its_compute_and_its_compute_by_row(t: Given) -> None:
    """What lets a search stop, and a lift skip a cover."""
    bound, (rows, logical, segments) = a_bound(t), a_wave(t)
    value = bound_bytes(bound, rows, logical, segments)
    for row, segment in charge_pairs(bound):
        for charge, missing in zip(
            (row, segment), lacking(bound, maximum(rows, bound.packed_rows), logical, segments), strict=True
        ):
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
    """Lifted to what the cover asks for, or further."""
    bound, cover, further = a_bound(t), a_cover(t), t.integer("further", 0)
    knee, lifted = knee_rows(cover), raised(bound, lifted_bytes(bound, cover) + further)
    logical, segments, unit = cover.logical_rows, cover.grad_segments, bound.packed_rows
    tell_lift(t, bound, lifted.compute_bytes, knee, cover, cover.bytes_per_row * knee)
    tell_lift(t, bound, lifted.compute_bytes, knee + 1, cover, cover.compute_bytes)
    t.prove(knee >= 1, "there is a knee")
    t.prove(lifted.compute_bytes >= bound.compute_bytes, "a lift never lowers")
    t.prove(scaled_bytes(lifted, knee, logical, segments) >= cover.bytes_per_row * knee * unit, "at the knee")
    t.prove(scaled_bytes(lifted, knee + 1, logical, segments) >= cover.compute_bytes * unit, "beyond it")


@theorem("INV-8", lemmas=ROUNDING)
def a_bound_that_reaches_the_knee_covers_every_reading(t: Given) -> None:
    """Monotone beyond the knee, no faster than rows below it: so the knee decides for all.

    Of the bound only its values times Pi at the reading's rows, at the knee and beyond it take part.
    """
    cover, unit, rows, reading = a_cover(t), t.integer("Pi", 1), t.integer("rows", 1), t.integer("reading", 1)
    at, at_knee, beyond = (t.integer(f"scaled_{where}", 0) for where in ("at_the_rows", "at_the_knee", "beyond_it"))
    knee = knee_rows(cover)
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
    step(t, at >= reading * unit, "exactly")
    t.prove(ceil_div(at, unit) >= reading, "rounded")


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


@theorem("INV-8", lemmas=ROUNDING)
def a_cover_under_a_bounds_compute_or_rate_needs_no_lift(t: Given) -> None:
    """What `lifted` skips, it may skip."""
    bound, cover = a_bound(t), a_cover(t)
    knee, unit, compute = knee_rows(cover), bound.packed_rows, bound.compute_bytes
    t.assume(minimum(cover.compute_bytes, cover.bytes_per_row * unit) <= compute)
    for rows, target in ((knee, cover.bytes_per_row * knee), (knee + 1, cover.compute_bytes)):
        at = maximum(rows, unit)
        missing = lacking(bound, at, cover.logical_rows, cover.grad_segments)
        for charge, count in zip((*charge_pairs(bound)[0], *charge_pairs(bound)[1]), missing + missing, strict=True):
            t.use(a_product_never_falls_as_both_factors_grow, 0, 0, charge, count)
        charges = maximum(*(charged(row, segment, missing) for row, segment in charge_pairs(bound)))
        step(t, charges >= 0, "no charge is negative")
        step(t, target <= cover.bytes_per_row * rows, "a target is within the rate")
        step(t, target <= cover.compute_bytes, "and within the most")
        t.use(what_is_under_a_compute_or_rate_is_within_reach, target, cover.bytes_per_row, rows, unit, at, compute)
        step(t, target * unit <= compute * at, "it is within reach")
        t.use(a_target_within_reach_needs_no_lift, target * unit, charges, at, compute)
        step(t, needed_bytes(bound, rows, cover, target) <= compute, "so it needs no lift")
    t.prove(lifted_bytes(bound, cover) == bound.compute_bytes)


# --- from anchors to bounds, and what SCALE makes of a reading -------------------------------------------------------


@theorem("INV-1", lemmas=ROUNDING, merging=(affordable_bytes,))
def every_anchor_makes_a_bound(t: Given) -> None:
    """Packed-priced or not, for any G: its compute is at least the credit of its own rows and segments."""
    anchor = an_anchor(t)
    charge, state = (LOGICAL_ROW_BYTES, t.integer("G", 0)) if t.choose(True, False) else (None, 0)
    bound = bound_of(anchor, charge, state)
    t.prove(bound.compute_bytes >= anchor.compute_bytes, "at least what was read")
    t.prove(contracts.is_bound(bound), "a bound")


@theorem("INV-9")
def a_lifted_bound_is_a_bound(t: Given) -> None:
    bound, extra = a_bound(t), t.integer("extra", 0)
    t.prove(contracts.is_bound(raised(bound, bound.compute_bytes + extra)))


@theorem("frontier", lemmas=ROUNDING, merging=(affordable_bytes,))
def a_peak_within_every_scaling_of_a_reading_is_within_its_bound(t: Given) -> None:
    """Duality. SCALE, HEAD and SEGMENT say of a peak at (P, L, S), for every t >= max(1, P / Pi), that it is at most

        t*c + 6144 * max(0, L - t*Li) + G * max(0, S - t*Si)

    and the bound is no lower than the least of these. Of the two kinds that are charged, the `first` is the one that
    the wave has more of for each that the reading holds (w1 / h1 >= w2 / h2): one pair of charges for either case. The
    least is at t = x / u = max(1, P / Pi), w1 / h1 or w2 / h2: told where those are not below x / u.
    """
    compute, unit, rows, peak = (t.integer(name, least) for name, least in (("c", 1), ("u", 1), ("x", 1), ("peak", 0)))
    charge, held, wanted = t.integer("first.charge", 0), t.integer("first.held", 0), t.integer("first.wanted", 0)
    other, has, wants = t.integer("second.charge", 0), t.integer("second.held", 0), t.integer("second.wanted", 0)
    t.assume(wanted * has >= held * wants)
    first = affordable_bytes(charge, compute, held)
    rest = affordable_bytes(other, compute - first * held, has)
    trusted = maximum(compute, first * held + rest * has)
    lacking_first, lacking_second = maximum(0, wanted * unit - held * rows), maximum(0, wants * unit - has * rows)
    t.assume(peak * unit <= compute * rows + charge * lacking_first + other * lacking_second)
    if held >= 1 and wanted * unit >= held * rows:
        t.assume(peak * held <= compute * wanted)
    if has >= 1 and wants * unit >= has * rows:
        t.assume(peak * has <= compute * wants + charge * (wanted * has - held * wants))
    t.use(a_product_never_falls_as_both_factors_grow, compute, rows, trusted, rows)
    t.prove(peak * unit <= trusted * rows + first * lacking_first + rest * lacking_second)


# --- many bounds: what a search leaves out, and the minimum over any number -------------------------------------------


@theorem("INV-2", lemmas=ROUNDING)
def a_bound_for_no_more_rows_than_its_anchor_is_unscaled(t: Given) -> None:
    """There t = 1: the unit cancels, and nothing is rounded."""
    bound, (packed, logical, segments) = a_bound(t), a_wave(t)
    t.assume(packed <= bound.packed_rows)
    unit, at = bound.packed_rows, maximum(packed, bound.packed_rows)
    t.use(what_is_lacking_without_scaling, logical, bound.logical_rows, unit)
    t.use(what_is_lacking_without_scaling, segments, bound.grad_segments, unit)
    missing = maximum(0, logical - bound.logical_rows), maximum(0, segments - bound.grad_segments)
    lacks = lacking(bound, at, logical, segments)
    step(t, lacks[0] == missing[0] * unit, "logical rows")
    step(t, lacks[1] == missing[1] * unit, "segments")
    first, second = charge_pairs(bound)
    t.use(the_dearer_pair_without_scaling, *first, *second, *missing, unit)
    value = unscaled_bytes(bound, logical, segments)
    step(t, scaled_bytes(bound, packed, logical, segments) == value * unit, "times Pi")
    t.prove(bound_bytes(bound, packed, logical, segments) == value)


@theorem("INV-2", merging=(nowhere_above_as_larger,))
def a_bound_dropped_for_smaller_waves_is_nowhere_below_the_one_that_stays(t: Given) -> None:
    """Waves of no more rows than either anchor, whose bounds are unscaled: C and the dearer pair of charges."""
    one, other, (_, logical, segments) = a_bound(t, "one"), a_bound(t, "other"), a_wave(t)
    t.assume(nowhere_above_as_larger(one, other))
    for (row, segment), (other_row, other_segment) in zip(charge_pairs(one), charge_pairs(other), strict=True):
        for charge, other_charge, count, held, has in (
            (row, other_row, logical, one.logical_rows, other.logical_rows),
            (segment, other_segment, segments, one.grad_segments, other.grad_segments),
        ):
            few, many = maximum(0, count - held), maximum(0, count - has)
            t.use(a_product_never_falls_as_both_factors_grow, charge, few, other_charge, many)
    t.prove(unscaled_bytes(one, logical, segments) <= unscaled_bytes(other, logical, segments))


def unscaled_bytes(bound: Bound, logical_rows: int, grad_segments: int) -> int:
    """U where t = 1."""
    rows, segments = maximum(0, logical_rows - bound.logical_rows), maximum(0, grad_segments - bound.grad_segments)
    return bound.compute_bytes + maximum(
        bound.row_bytes * rows + bound.segment_rest_bytes * segments,
        bound.row_rest_bytes * rows + bound.segment_bytes * segments,
    )


@theorem("INV-2", merging=(nowhere_above_as_smaller,))
def a_bound_dropped_for_larger_waves_is_nowhere_below_the_one_that_stays(t: Given) -> None:
    """Waves of at least the rows of either anchor: everything is compared by packed row."""
    one, other, (packed, logical, segments) = a_bound(t, "one"), a_bound(t, "other"), a_wave(t)
    unit, other_unit = one.packed_rows, other.packed_rows
    t.assume(packed >= maximum(unit, other_unit))
    t.assume(nowhere_above_as_smaller(one, other))
    at, other_at = maximum(packed, unit), maximum(packed, other_unit)
    step(t, at == other_at, "both are scaled to the wave's own rows")
    mine, theirs = lacking(one, at, logical, segments), lacking(other, other_at, logical, segments)
    for wanted, held, has in (
        (logical, one.logical_rows, other.logical_rows),
        (segments, one.grad_segments, other.grad_segments),
    ):
        t.use(what_is_lacking_by_row_is_less_of_what_holds_more, wanted, held, unit, at, has, other_unit, other_at)
    for pair, other_pair in zip(charge_pairs(one), charge_pairs(other), strict=True):
        t.use(a_pair_of_charges_by_row, *pair, *other_pair, *mine, *theirs, unit, other_unit)
    charges = [charged(row, segment, mine) for row, segment in charge_pairs(one)]
    its_charges = [charged(row, segment, theirs) for row, segment in charge_pairs(other)]
    for charge, its_charge in zip(charges, its_charges, strict=True):
        step(t, charge * other_unit <= its_charge * unit, "each pair of charges by packed row")
    t.use(the_dearer_of_two_by_row, *charges, *its_charges, unit, other_unit)
    t.use(compute_by_row, one.compute_bytes, unit, at, other.compute_bytes, other_unit, other_at)
    computes = one.compute_bytes * at, other.compute_bytes * other_at
    step(t, computes[0] * other_unit <= computes[1] * unit, "compute by packed row")
    t.use(sums_compare_by_row, computes[0], maximum(*charges), computes[1], maximum(*its_charges), unit, other_unit)
    few, many = scaled_bytes(one, packed, logical, segments), scaled_bytes(other, packed, logical, segments)
    step(t, few * other_unit <= many * unit, "by packed row")
    t.use(a_lower_quotient_rounds_up_no_higher, few, unit, many, other_unit)
    t.prove(bound_bytes(one, packed, logical, segments) <= bound_bytes(other, packed, logical, segments))


@theorem("INV-1")
def the_minimum_over_one_more_bound_keeps_what_every_bound_keeps(t: Given) -> None:
    """The induction step over bounds: monotone, covering and bounding survive a minimum."""
    least, least_of_larger, value, value_of_larger = (
        t.integer(name) for name in ("least", "least_of_larger", "value", "value_of_larger")
    )
    covered, peak = t.integer("covered"), t.integer("peak")
    t.assume(least <= least_of_larger)
    t.assume(value <= value_of_larger)
    t.prove(minimum(least, value) <= minimum(least_of_larger, value_of_larger), "never falls as a wave grows")
    t.prove(
        minimum(minimum(least, covered), minimum(value, covered)) == minimum(minimum(least, value), covered), "covers"
    )
    t.assume(peak <= least)
    t.assume(peak <= value)
    t.prove(peak <= minimum(least, value), "bounds whatever each bounds")


@theorem("INV-9")
def one_more_cover_only_raises_a_lift(t: Given) -> None:
    """The induction step over covers: `lifted` takes the maximum of what each asks for, from the bound's own on."""
    bound, cover, so_far = a_bound(t), a_cover(t), t.integer("so_far")
    t.assume(so_far >= bound.compute_bytes)
    after = maximum(so_far, lifted_bytes(bound, cover))
    t.prove(after >= so_far, "no earlier cover is uncovered")
    t.prove(after >= lifted_bytes(bound, cover), "and this one is covered")


# --- evidence: joins -------------------------------------------------------------------------------------------------


def a_band(t: Given, name: str) -> Band:
    """Any evidence of one band, with an anchor or without."""
    anchor = an_anchor(t, f"{name}.anchor") if t.choose(True, False) else None
    return Band(size=1, sharing=1, cover=a_cover(t, f"{name}.cover"), anchor=anchor)


@theorem("INV-10", merging=(higher_anchor, joined_cover))
def readings_of_a_band_join_alike_in_either_order(t: Given) -> None:
    one, other = a_band(t, "one"), a_band(t, "other")
    t.prove(same_band(t, joined(one, other), joined(other, one)))


@theorem("INV-10", merging=(higher_anchor, joined_cover))
def readings_of_a_band_join_alike_however_they_are_grouped(t: Given) -> None:
    one, other, third = a_band(t, "one"), a_band(t, "other"), a_band(t, "third")
    t.prove(same_band(t, joined(joined(one, other), third), joined(one, joined(other, third))))


@theorem("INV-9", merging=(higher_anchor, joined_cover))
def an_incomplete_reading_leaves_the_anchor_and_widens_the_cover(t: Given) -> None:
    band, told = a_band(t, "band"), a_cover(t, "told")
    after = joined(band, Band(size=1, sharing=1, cover=told, anchor=None))
    if band.anchor is None:
        t.prove(after.anchor is None, "no anchor appears")
    else:
        assert after.anchor is not None, "an anchor stays"
        t.prove(same_anchor(after.anchor, band.anchor), "the anchor stays")
    t.prove(after.cover.compute_bytes >= band.cover.compute_bytes, "most compute never falls")
    t.prove(after.cover.bytes_per_row >= band.cover.bytes_per_row, "nor most bytes a row")
    t.prove(after.cover.logical_rows <= band.cover.logical_rows, "nor do least logical rows rise")
    t.prove(after.cover.grad_segments <= band.cover.grad_segments, "or least segments")


@theorem("reachable", lemmas=PRODUCTS, merging=(higher_anchor, joined_cover))
def a_bands_own_anchor_is_always_within_its_cover(t: Given) -> None:
    one, other = a_band(t, "one"), a_band(t, "other")
    for band in (one, other):
        if band.anchor is not None:
            t.assume(is_covered(band.anchor, band.cover))
    after = joined(one, other)
    if after.anchor is not None:
        t.prove(t.merged(is_covered, after.anchor, after.cover))


def same_band(t: Given, one: Band, other: Band) -> bool:
    """Equal covers, and equal anchors or none."""
    covers = both(*(getattr(one.cover, name) == getattr(other.cover, name) for name in Cover.__slots__))
    if one.anchor is None or other.anchor is None:
        return both(covers, (one.anchor is None) == (other.anchor is None))
    return both(covers, same_anchor(one.anchor, other.anchor))


def same_anchor(one: Anchor, other: Anchor) -> bool:
    return both(*(getattr(one, name) == getattr(other, name) for name in Anchor.__slots__))
