"""Lemmas about scaling one reading: what credits, rows and products do. Proven for all integers, told by instance."""

from __future__ import annotations

from pricing.kernel.quantities import ceil_div, maximum
from proofs.solver.proof import Given, lemma


@lemma()
def a_credit_is_at_most_its_share_of_the_rows(t: Given, wanted: int, held: int, rows: int, more: int) -> None:
    """What is lacking at fewer rows is at most what is lacking at more, plus what the rows between hold."""
    t.assume(held >= 0)
    t.assume(rows <= more)
    t.prove(maximum(0, wanted - held * rows) <= maximum(0, wanted - held * more) + held * more - held * rows)


@lemma()
def what_is_lacking_never_grows_with_rows(t: Given, wanted: int, held: int, rows: int, more: int) -> None:
    t.assume(held >= 0)
    t.assume(rows <= more)
    t.prove(maximum(0, wanted - held * more) <= maximum(0, wanted - held * rows))


@lemma()
def a_product_never_falls_as_both_factors_grow(t: Given, few: int, less: int, many: int, more: int) -> None:
    t.assume(few >= 0)
    t.assume(less >= 0)
    t.assume(few <= many)
    t.assume(less <= more)
    t.prove(few * less <= many * more)


@lemma()
def credits_are_paid_for_by_compute(
    t: Given,
    compute: int,
    row: int,
    segment: int,
    held_rows: int,
    held_segments: int,
    lacking_rows: int,
    lacking_segments: int,
    still_lacking_rows: int,
    still_lacking_segments: int,
    between: int,
) -> None:
    """A pair of charges at fewer rows is at most that at more rows and the compute of the rows between."""
    t.assume(row >= 0)
    t.assume(segment >= 0)
    t.assume(between >= 0)
    t.assume(compute >= row * held_rows + segment * held_segments)
    t.assume(lacking_rows <= still_lacking_rows + held_rows * between)
    t.assume(lacking_segments <= still_lacking_segments + held_segments * between)
    t.prove(
        row * lacking_rows + segment * lacking_segments
        <= row * still_lacking_rows + segment * still_lacking_segments + compute * between
    )


@lemma()
def a_charge_by_row_never_rises(
    t: Given,
    row: int,
    segment: int,
    fewer_rows: int,
    fewer_segments: int,
    rows: int,
    segments: int,
    few: int,
    many: int,
) -> None:
    """Less is lacking at more rows, so a pair of charges divided by rows never rises."""
    t.assume(row >= 0)
    t.assume(segment >= 0)
    t.assume(fewer_rows >= 0)
    t.assume(fewer_rows <= rows)
    t.assume(fewer_segments >= 0)
    t.assume(fewer_segments <= segments)
    t.assume(few >= 0)
    t.assume(few <= many)
    t.prove((row * fewer_rows + segment * fewer_segments) * few <= (row * rows + segment * segments) * many)


@lemma()
def a_knee_that_is_reached_covers_fewer_rows(
    t: Given, value: int, at_knee: int, rows: int, knee: int, unit: int, rate: int
) -> None:
    """A bound that is rate * knee at the knee, and falls no faster than rows below it, is rate * rows there."""
    t.assume(rows >= 1)
    t.assume(knee >= 1)
    t.assume(unit >= 1)
    t.assume(at_knee >= rate * knee * unit)
    t.assume(value * knee >= at_knee * rows)
    t.prove(value >= rate * rows * unit)


@lemma()
def a_lift_reaches_its_target(t: Given, compute: int, needed: int, rows: int, charges: int, target: int) -> None:
    t.assume(rows >= 1)
    t.assume(compute >= needed)
    t.assume(needed * rows >= target - charges)
    t.prove(compute * rows + charges >= target)


@lemma()
def a_lower_quotient_rounds_up_no_higher(t: Given, one: int, unit: int, other: int, other_unit: int) -> None:
    t.assume(unit >= 1)
    t.assume(other_unit >= 1)
    t.assume(one * other_unit <= other * unit)
    t.prove(ceil_div(one, unit) <= ceil_div(other, other_unit))


@lemma()
def what_is_lacking_by_row_is_less_of_what_holds_more(
    t: Given, wanted: int, held: int, unit: int, rows: int, other_held: int, other_unit: int, other_rows: int
) -> None:
    """max(0, w*u - h*x) / u never rises with h / u, at equal x."""
    t.assume(unit >= 1)
    t.assume(other_unit >= 1)
    t.assume(rows >= 0)
    t.assume(rows == other_rows)
    t.assume(held * other_unit >= other_held * unit)
    t.prove(
        maximum(0, wanted * unit - held * rows) * other_unit
        <= maximum(0, wanted * other_unit - other_held * other_rows) * unit
    )


@lemma()
def compute_by_row(
    t: Given, compute: int, unit: int, rows: int, other_compute: int, other_unit: int, other_rows: int
) -> None:
    t.assume(rows >= 0)
    t.assume(rows == other_rows)
    t.assume(compute * other_unit <= other_compute * unit)
    t.prove(compute * rows * other_unit <= other_compute * other_rows * unit)


@lemma()
def a_target_within_reach_needs_no_lift(t: Given, target: int, charges: int, rows: int, compute: int) -> None:
    t.assume(rows >= 1)
    t.assume(charges >= 0)
    t.assume(target <= compute * rows)
    t.prove(ceil_div(target - charges, rows) <= compute)


@lemma()
def what_is_under_a_compute_or_rate_is_within_reach(
    t: Given, target: int, rate: int, wave_rows: int, unit: int, rows: int, compute: int
) -> None:
    """A target under the compute, or under the compute by row, is reached at any rows that are scaled to."""
    t.assume(unit >= 1)
    t.assume(wave_rows >= 1)
    t.assume(compute >= 0)
    t.assume(rows >= unit)
    t.assume(rows >= wave_rows)
    t.assume(target <= rate * wave_rows)
    t.assume(target <= compute or rate * unit <= compute)
    t.prove(target * unit <= compute * rows)


@lemma()
def a_pair_of_charges_by_row(
    t: Given,
    row: int,
    segment: int,
    other_row: int,
    other_segment: int,
    rows: int,
    segments: int,
    other_rows: int,
    other_segments: int,
    unit: int,
    other_unit: int,
) -> None:
    """Lower charges on less that is lacking, each by its own unit."""
    t.assume(row >= 0)
    t.assume(row <= other_row)
    t.assume(segment >= 0)
    t.assume(segment <= other_segment)
    t.assume(rows >= 0)
    t.assume(segments >= 0)
    t.assume(unit >= 1)
    t.assume(other_unit >= 1)
    t.assume(other_rows >= 0)
    t.assume(other_segments >= 0)
    t.assume(rows * other_unit <= other_rows * unit)
    t.assume(segment == 0 or segments * other_unit <= other_segments * unit)
    t.prove(
        (row * rows + segment * segments) * other_unit
        <= (other_row * other_rows + other_segment * other_segments) * unit
    )


@lemma()
def the_dearer_of_two_by_row(
    t: Given, one: int, other: int, its_one: int, its_other: int, unit: int, other_unit: int
) -> None:
    """If each of two is lower by row than its counterpart, so is the higher of them."""
    t.assume(unit >= 1)
    t.assume(other_unit >= 1)
    t.assume(one * other_unit <= its_one * unit)
    t.assume(other * other_unit <= its_other * unit)
    t.prove(maximum(one, other) * other_unit <= maximum(its_one, its_other) * unit)


@lemma()
def sums_compare_by_row(
    t: Given, one: int, other: int, its_one: int, its_other: int, unit: int, other_unit: int
) -> None:
    t.assume(one * other_unit <= its_one * unit)
    t.assume(other * other_unit <= its_other * unit)
    t.prove((one + other) * other_unit <= (its_one + its_other) * unit)


@lemma()
def what_is_lacking_without_scaling(t: Given, wanted: int, held: int, unit: int) -> None:
    t.assume(unit >= 1)
    t.prove(maximum(0, wanted * unit - held * unit) == maximum(0, wanted - held) * unit)


@lemma()
def the_dearer_pair_without_scaling(
    t: Given, row: int, segment: int, other_row: int, other_segment: int, rows: int, segments: int, unit: int
) -> None:
    t.assume(unit >= 1)
    t.prove(
        maximum(
            row * (rows * unit) + segment * (segments * unit),
            other_row * (rows * unit) + other_segment * (segments * unit),
        )
        == maximum(row * rows + segment * segments, other_row * rows + other_segment * segments) * unit
    )


@lemma()
def what_holds_by_the_rows_scaled_to_holds_by_rows(
    t: Given, few: int, many: int, rows: int, more: int, unit: int
) -> None:
    """From at least `unit` rows on to any rows: below it nothing is scaled, so the two values are one."""
    t.assume(unit >= 1)
    t.assume(rows >= 1)
    t.assume(rows <= more)
    t.assume(few >= 0)
    t.assume(many >= 0)
    t.assume(many * maximum(rows, unit) <= few * maximum(more, unit))
    t.assume(more > unit or many <= few)
    t.prove(many * rows <= few * more)
