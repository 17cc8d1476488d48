"""Lemmas: facts about the shipped small functions, each proven for all arguments, then told to the solvers by instance.

They carry no weight of their own. Every theorem is about the shipped functions; a lemma only saves a solver from
finding again, inside a larger formula, what was shown once by itself.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

from pricing.kernel.profile import Profile
from pricing.kernel.quantities import UNSHARED, Sharing, ceil_div, is_more_sharing, more_sharing, with_safety
from pricing.kernel.rate_laws import sharing_rows
from pricing.kernel.reading import Reading
from proofs.solver.kernel import shipped
from proofs.solver.proof import Call, Given, lemma
from proofs.solver.run import forge, same
from proofs.solver.symbolic import implies, negation


def _products(left: Call, right: Call) -> tuple[Any, ...] | None:
    """Two products with a factor in common: (factor, one, other)."""
    if left.function is not None or right.function is not None:
        return None
    for factor, one in (left.arguments, left.arguments[::-1]):
        for common, other in (right.arguments, right.arguments[::-1]):
            if same(factor, common):
                return factor, one, other
    return None


@lemma(_products)
def a_product_never_falls_as_a_factor_grows(t: Given, factor: int, smaller: int, larger: int) -> None:
    t.assume(factor >= 0)
    t.assume(smaller <= larger)
    t.prove(factor * smaller <= factor * larger)


def _ceilings(left: Call, right: Call) -> tuple[Any, ...] | None:
    if left.function is not shipped(ceil_div) or right.function is not shipped(ceil_div):
        return None
    if not same(left.arguments[1], right.arguments[1]):
        return None
    return left.arguments[0], right.arguments[0], left.arguments[1]


@lemma(_ceilings)
def rounding_up_never_falls_as_the_numerator_grows(t: Given, smaller: int, larger: int, divisor: int) -> None:
    t.assume(divisor >= 1)
    t.assume(smaller <= larger)
    t.prove(ceil_div(smaller, divisor) <= ceil_div(larger, divisor))


def _one_ceiling(left: Call, right: Call) -> tuple[Any, ...] | None:
    return left.arguments if left.function is shipped(ceil_div) else None


@lemma(_one_ceiling)
def rounding_up_is_the_least_integer_above(t: Given, numerator: int, divisor: int) -> None:
    t.assume(divisor >= 1)
    t.prove(ceil_div(numerator, divisor) * divisor >= numerator)
    t.prove((ceil_div(numerator, divisor) - 1) * divisor < numerator)


def _safeties(left: Call, right: Call) -> tuple[Any, ...] | None:
    if left.function is not shipped(with_safety) or right.function is not shipped(with_safety):
        return None
    numerator, denominator, fewer = left.arguments
    if not (same(numerator, right.arguments[0]) and same(denominator, right.arguments[1])):
        return None
    return numerator, denominator, fewer, right.arguments[2]


@lemma(_safeties)
def the_safety_factor_never_falls_as_bytes_grow(
    t: Given, numerator: int, denominator: int, fewer: int, more: int
) -> None:
    t.assume(denominator >= 1)
    t.assume(numerator >= 0)
    t.assume(fewer <= more)
    t.prove(with_safety(numerator, denominator, fewer) <= with_safety(numerator, denominator, more))


def _one_safety(left: Call, right: Call) -> tuple[Any, ...] | None:
    return left.arguments if left.function is shipped(with_safety) else None


@lemma(_one_safety)
def the_safety_factor_never_shrinks(t: Given, numerator: int, denominator: int, byte_count: int) -> None:
    t.assume(denominator >= 1)
    t.assume(denominator <= numerator)
    t.assume(byte_count >= 0)
    t.prove(with_safety(numerator, denominator, byte_count) >= byte_count)


def _rows(left: Call, right: Call) -> tuple[Any, ...] | None:
    if left.function is not shipped(sharing_rows) or right.function is not shipped(sharing_rows):
        return None
    packed, logical, sharing, growth = left.arguments
    if not (same(sharing, right.arguments[2]) and same(growth, right.arguments[3])):
        return None
    return packed, right.arguments[0], logical, right.arguments[1], sharing, growth


@lemma(_rows)
def shared_rows_never_fall_as_a_wave_grows(
    t: Given, packed: int, more_packed: int, logical: int, more_logical: int, sharing: Sharing, growth: int
) -> None:
    t.assume(sharing.packed_rows >= 1)
    t.assume(sharing.packed_rows <= sharing.logical_rows)
    t.assume(growth >= 1)
    t.assume(packed <= more_packed)
    t.assume(logical <= more_logical)
    t.prove(sharing_rows(packed, logical, sharing, growth) <= sharing_rows(more_packed, more_logical, sharing, growth))


@lemma()
def a_positive_factor_keeps_a_strict_order(t: Given, factor: int, smaller: int, larger: int) -> None:
    t.assume(factor >= 1)
    t.assume(smaller < larger)
    t.prove(factor * smaller < factor * larger)


@lemma()
def a_lower_ratio_rounds_up_no_higher(
    t: Given, numerator: int, denominator: int, higher_numerator: int, higher_denominator: int, count: int
) -> None:
    t.assume(denominator >= 1)
    t.assume(higher_denominator >= 1)
    t.assume(count >= 0)
    t.assume(numerator * higher_denominator <= higher_numerator * denominator)
    fewer, more = with_safety(numerator, denominator, count), with_safety(higher_numerator, higher_denominator, count)
    # Were `more` smaller, more * d < n * count; times hd that lies below hn * d * count <= more * hd * d.
    t.use(
        a_product_never_falls_as_a_factor_grows,
        count,
        numerator * higher_denominator,
        higher_numerator * denominator,
    )
    t.use(a_positive_factor_keeps_a_strict_order, higher_denominator, more * denominator, numerator * count)
    t.use(a_product_never_falls_as_a_factor_grows, denominator, higher_numerator * count, more * higher_denominator)
    t.use(a_product_never_falls_as_a_factor_grows, denominator, more + 1, fewer)
    t.prove(fewer <= more)


@lemma()
def a_rate_that_covers_at_the_floor_covers_above(
    t: Given, rate: int, fixed: int, slope: int, floor_rows: int, rows: int
) -> None:
    """rate*f >= fixed + slope*f and rows >= f >= 1 give rate*rows >= fixed + slope*rows."""
    t.assume(fixed >= 0)
    t.assume(floor_rows >= 1)
    t.assume(rows >= floor_rows)
    t.assume(rate * floor_rows >= fixed + slope * floor_rows)
    t.prove(rate * rows >= fixed + slope * rows)


@lemma()
def one_scale_keeps_proportions(t: Given, rows: int, other: int, taught: int, priced: int, up: int, down: int) -> None:
    """taught <= c*rows and priced >= c*other, with c = up/down, give priced*rows >= taught*other."""
    t.assume(rows >= 0)
    t.assume(other >= 0)
    t.assume(up >= 1)
    t.assume(down >= 1)
    t.assume(taught * down <= rows * up)
    t.assume(priced * down >= other * up)
    t.prove(priced * rows >= taught * other)


@lemma()
def a_rate_through_fewer_rows_covers(t: Given, rate: int, compute: int, taught: int, left: int, other: int) -> None:
    """rate*taught >= compute and left >= taught*other give rate*left >= compute*other."""
    t.assume(rate >= 0)
    t.assume(other >= 0)
    t.assume(rate * taught >= compute)
    t.assume(left >= taught * other)
    t.prove(rate * left >= compute * other)


def _sharings(left: Call, right: Call) -> tuple[Any, ...] | None:
    """Two comparisons in a row: a above b, b above c."""
    if left.function is not shipped(is_more_sharing) or right.function is not shipped(is_more_sharing):
        return None
    logical, packed, than = left.arguments
    middle_logical, middle_packed, least = right.arguments
    if not (same(than.logical_rows, middle_logical) and same(than.packed_rows, middle_packed)):
        return None
    return logical, packed, than, least


@lemma(_sharings)
def the_greater_of_sharings_is_transitive(t: Given, logical: int, packed: int, than: Sharing, least: Sharing) -> None:
    t.assume(packed >= 1)
    t.assume(than.packed_rows >= 1)
    t.assume(least.packed_rows >= 1)
    t.assume(is_more_sharing(logical, packed, than))
    t.assume(is_more_sharing(than.logical_rows, than.packed_rows, least))
    # a/b over c/d over e/f: a*d over c*b, times f; c*f over e*d, times b; so d * (a*f) over d * (e*b).
    cross, next_cross = than.logical_rows * packed, least.logical_rows * than.packed_rows
    upper, lower = logical * least.packed_rows, least.logical_rows * packed
    for use in (a_product_never_falls_as_a_factor_grows, a_positive_factor_keeps_a_strict_order):
        t.use(use, least.packed_rows, cross, logical * than.packed_rows)
        t.use(use, packed, next_cross, than.logical_rows * least.packed_rows)
        t.use(use, than.packed_rows, upper, lower)
    t.prove(is_more_sharing(logical, packed, least))


def _one_row_count(left: Call, right: Call) -> tuple[Any, ...] | None:
    return left.arguments if left.function is shipped(sharing_rows) else None


@lemma(_one_row_count)
def shared_rows_are_packed_rows_within_reach_and_clamped_beyond(
    t: Given, packed: int, logical: int, sharing: Sharing, growth: int
) -> None:
    t.assume(sharing.packed_rows >= 1)
    t.assume(sharing.packed_rows <= sharing.logical_rows)
    t.assume(growth >= 1)
    rows = sharing_rows(packed, logical, sharing, growth)
    need, reach = logical * sharing.packed_rows, growth * sharing.logical_rows
    fewest = ceil_div(need, reach)
    t.use(a_product_never_falls_as_a_factor_grows, reach, packed, fewest - 1)
    t.use(a_product_never_falls_as_a_factor_grows, reach, fewest, packed)
    t.prove(implies(need <= reach * packed, rows == packed))
    t.prove(implies(need > reach * packed, rows == fewest))


@lemma()
def what_less_sharing_reaches_more_sharing_reaches(
    t: Given, packed: int, logical: int, known: Sharing, more: Sharing, growth: int
) -> None:
    t.assume(known.packed_rows >= 1)
    t.assume(more.packed_rows >= 1)
    t.assume(growth >= 1)
    t.assume(packed >= 0)
    t.assume(known.logical_rows * more.packed_rows <= more.logical_rows * known.packed_rows)
    t.assume(logical * known.packed_rows <= growth * known.logical_rows * packed)
    # L*rp <= k*rl*P, times rp'; rl*rp' <= rl'*rp, times k*P; so rp * (L*rp') <= rp * (k*rl'*P).
    never_falls = a_product_never_falls_as_a_factor_grows
    known_reach, more_reach = growth * known.logical_rows * packed, growth * more.logical_rows * packed
    t.use(never_falls, more.packed_rows, logical * known.packed_rows, known_reach)
    t.use(never_falls, packed, known.logical_rows * more.packed_rows, more.logical_rows * known.packed_rows)
    scaled = packed * known.logical_rows * more.packed_rows, packed * more.logical_rows * known.packed_rows
    t.use(never_falls, growth, *scaled)
    t.use(a_positive_factor_keeps_a_strict_order, known.packed_rows, more_reach, logical * more.packed_rows)
    t.prove(logical * more.packed_rows <= more_reach)


@lemma()
def keeping_the_greater_sharing_keeps_the_order_of_two(
    t: Given, lesser: Sharing, greater: Sharing, logical: int, packed: int
) -> None:
    """Where `lesser` is not above `greater`, it is not so after a reading raised both, or the greater alone."""
    for sharing in (lesser, greater):
        t.assume(sharing.packed_rows >= 1)
        t.assume(sharing.packed_rows <= sharing.logical_rows)
    t.assume(packed >= 1)
    t.assume(negation(is_more_sharing(lesser.logical_rows, lesser.packed_rows, greater)))
    raised, both_raised = more_sharing(greater, logical, packed), more_sharing(lesser, logical, packed)
    reading = forge(Sharing, logical_rows=logical, packed_rows=packed)
    t.use(the_greater_of_sharings_is_transitive, lesser.logical_rows, lesser.packed_rows, reading, greater)
    t.prove(negation(is_more_sharing(lesser.logical_rows, lesser.packed_rows, raised)))
    t.prove(negation(is_more_sharing(both_raised.logical_rows, both_raised.packed_rows, raised)))


@lemma()
def the_kept_sharing_does_not_depend_on_the_order_of_two_readings(
    t: Given, known: Sharing, logical: int, packed: int, other_logical: int, other_packed: int
) -> None:
    t.assume(known.packed_rows >= 1)
    t.assume(known.packed_rows <= known.logical_rows)
    t.assume(packed >= 1)
    t.assume(other_packed >= 1)
    first = forge(Sharing, logical_rows=logical, packed_rows=packed)
    second = forge(Sharing, logical_rows=other_logical, packed_rows=other_packed)
    for one, two, three in permutations((known, first, second)):
        t.use(the_greater_of_sharings_is_transitive, one.logical_rows, one.packed_rows, two, three)
    one = more_sharing(more_sharing(known, logical, packed), other_logical, other_packed)
    other = more_sharing(more_sharing(known, other_logical, other_packed), logical, packed)
    t.prove(one.logical_rows == other.logical_rows)
    t.prove(one.packed_rows == other.packed_rows)


MONOTONE = (
    a_product_never_falls_as_a_factor_grows,
    shared_rows_never_fall_as_a_wave_grows,
    the_safety_factor_never_falls_as_bytes_grow,
)
"""What the monotone theorems are told."""


def tell_sharing(t: Given, profile: Profile, *readings: Reading) -> None:
    """Hints, before `profile` observes these readings: the sharings it keeps stay in order."""
    warm = profile.warm_sharing or UNSHARED
    for reading in readings:
        rows = reading.logical_rows, reading.packed_rows
        for lesser in (warm, UNSHARED):
            for greater in (profile.sharing, warm):
                t.use(keeping_the_greater_sharing_keeps_the_order_of_two, lesser, greater, *rows)
