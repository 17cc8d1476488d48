"""Joins into any number of bands, lifts over any number of covers, the least of any number of bounds, INV-8 of it all.

Each theorem runs a shipped function whole. What stands for any number is said with each: a `Rest` for the bands on one
side of a place, what a loop has come to for the passes before, one band for whichever band a claim is about. Functions
that are opaque here answer anything; what is assumed of them are instances of the theorems named beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pricing.kernel.bands import (
    SOUND,
    Band,
    Cover,
    FrontierEvidence,
    band_of,
    higher_anchor,
    is_retained_whole,
    join,
    joined,
    joined_cover,
    observe_bands,
    sharing_class,
    size_class,
)
from pricing.kernel.frontier import (
    FRONTIER,
    Bound,
    Frontier,
    _fronts,
    anchored_bound,
    bound_bytes,
    frontier_of,
    knee_rows,
    lifted,
    lifted_bytes,
    nowhere_above_as_larger,
    nowhere_above_as_smaller,
    peak_frontier,
    scaled_bytes,
    trusted_rows,
)
from pricing.kernel.price import required_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, maximum, minimum
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.wave import Wave
from proofs.any_number.rest import Order, Rest
from proofs.assembly.theorem import a_reading, covers, is_wider
from proofs.frontier.lemmas import a_knee_that_is_reached_covers_fewer_rows, a_product_never_falls_as_both_factors_grow
from proofs.frontier.theorem import ROUNDING, a_bound, a_cover, an_anchor, raised, same_band, step
from proofs.lemmas import (
    a_positive_factor_keeps_a_strict_order,
    a_product_never_falls_as_a_factor_grows,
    rounding_up_is_the_least_integer_above,
    tell_sharing,
    the_safety_factor_never_shrinks,
)
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both, either, implies, negation

JOINS = (higher_anchor, joined_cover)


def witness(t: Given, *conditions: bool) -> None:
    """Besides the theorem, its case under these conditions: one that a solver finds inputs for. What an opaque function
    answers there is what the shipped one does, which the solver cannot know."""
    if t.choose(False, True):
        t.assume(both(*conditions))


def is_plain(bound: Bound) -> bool:
    """One row of one byte, without charges."""
    return both(
        bound.compute_bytes == 1,
        bound.packed_rows == 1,
        bound.logical_rows == 1,
        bound.row_bytes + bound.segment_bytes + bound.grad_segments == 0,
    )


# --- joins into any number of bands ----------------------------------------------------------------------------------


def bands_around(t: Given, name: str, reading: Reading) -> tuple[Any, ...]:
    """Sorted bands of any number: those before the reading's, its own or none, those behind it."""
    key = size_class(reading.packed_rows), sharing_class(reading.logical_rows, reading.packed_rows)
    before, behind = (Rest(Order((key,))),), (Rest(Order(())),)
    own: tuple[Band, ...] = ()
    if t.choose(False, True):
        anchor = an_anchor(t, f"{name}.anchor") if t.choose(True, False) else None
        own = (Band(size=key[0], sharing=key[1], cover=a_cover(t, f"{name}.cover"), anchor=anchor),)
    return (*(before if t.choose(True, False) else ()), *own, *(behind if t.choose(True, False) else ()))


def prove_joined(
    t: Given, bands: Sequence[Any], after: Sequence[Any], reading: Reading, compute: int, bounds: bool
) -> None:
    """`after` is `bands` with the reading joined at its place: what lies before and behind is what lay there, and the
    one band between is the reading's own, joined with what was known of it, which stays covered."""
    if len(after) == len(bands) and all(one is other for one, other in zip(after, bands, strict=True)):
        t.prove(compute == 0, "a reading that used something is joined")
        return
    fresh = band_of(reading, compute, bounds=bounds)
    known = [band for band in bands if isinstance(band, Band)]
    place = sum(1 for band in bands if isinstance(band, Rest) and band.key.later)
    stays = [*bands[:place], *bands[place + len(known) :]]
    t.prove(len(after) == len(stays) + 1, "one band at one place")
    changed = after[place]
    t.prove(isinstance(changed, Band), "of the reading's key")
    left = [*after[:place], *after[place + 1 :]]
    t.prove(all(one is other for one, other in zip(left, stays, strict=True)), "all others where and as they were")
    t.prove(both(changed.size == fresh.size, changed.sharing == fresh.sharing), "its key")
    expected = joined(known[0], fresh) if known else fresh
    t.prove(same_band(t, changed, expected), "the reading and what was known of its band, and nothing else")
    for part in (*known, fresh):
        t.prove(is_wider(changed.cover, part.cover), "what was covered, and the reading, are covered")
    if known and known[0].anchor is not None:
        t.prove(
            changed.anchor is not None and changed.anchor.compute_bytes >= known[0].anchor.compute_bytes,
            "no anchor is lost or lowered",
        )


@theorem("INV-9", lemmas=ROUNDING, merging=JOINS)
def a_join_into_any_number_of_bands_changes_the_band_of_its_reading_alone(t: Given) -> None:
    reading, compute, bounds = (
        a_reading(t, ReadingKind.WHOLE_WAVE, retained=False),
        t.integer("compute", 0),
        t.choose(True, False),
    )
    bands = bands_around(t, "own", reading)
    after = join(bands, reading, compute, bounds=bounds)
    prove_joined(t, bands, after, reading, compute, bounds)


@theorem("INV-9", lemmas=ROUNDING, merging=JOINS, slow=True)
def observing_joins_a_reading_into_both_bodies_of_any_number_of_bands(t: Given) -> None:
    """The shipped `observe_bands`, whole: peaks bound where the reading is complete, retained bytes where it is whole;
    without retained bytes, or before the seed, nothing is touched."""
    kind, keeps = t.choose(*ReadingKind), t.choose(True, False)
    reading = a_reading(t, kind, retained=keeps)
    of_peaks = t.choose(True, False)
    around = bands_around(t, "own", reading)
    evidence = FrontierEvidence(peak=around if of_peaks else (), retained=() if of_peaks else around)
    after = observe_bands(evidence, reading, seed_seen=True)
    t.prove(observe_bands(evidence, reading, seed_seen=False) is evidence, "the seed stays out")
    if of_peaks:
        prove_joined(t, around, after.peak, reading, reading.compute_bytes, reading.is_complete)
    elif reading.retained_compute_bytes is None:
        t.prove(after.retained is evidence.retained, "nothing was retained that is known")
    else:
        prove_joined(t, around, after.retained, reading, reading.retained_compute_bytes, is_retained_whole(reading))


@theorem("INV-10", lemmas=ROUNDING, merging=JOINS)
def two_readings_join_any_number_of_bands_alike_in_either_order(t: Given) -> None:
    """Of two bands, by any order of their keys, each with bands of its own there or not; what lies before, between and
    behind them is any number. Readings of one band are `readings_of_a_band_join_alike_in_either_order`."""
    one, other = (
        t.reading(name, kind=(ReadingKind.WHOLE_WAVE, True, False), retained=False) for name in ("one", "other")
    )
    keys = [(size_class(told.packed_rows), sharing_class(told.logical_rows, told.packed_rows)) for told in (one, other)]
    for told in (one, other):
        t.assume(told.packed_rows >= 1)
    first, last = keys
    t.assume(either(first[0] < last[0], both(first[0] == last[0], first[1] < last[1])))
    witness(t, one.packed_rows == 1, one.logical_rows == 1, other.packed_rows >= 64)
    own = [
        (Band(size=key[0], sharing=key[1], cover=a_cover(t, f"own{place}"), anchor=an_anchor(t, f"own{place}.anchor")),)
        if t.choose(True, False)
        else ()
        for place, key in enumerate(keys)
    ]
    rests = Rest(Order((first, last))), Rest(Order((last,))), Rest(Order(()))
    bands: tuple[Any, ...] = (rests[0], *own[0], rests[1], *own[1], rests[2])
    computes = t.integer("compute", 0), t.integer("other.compute", 0)
    way = join(join(bands, one, computes[0], bounds=True), other, computes[1], bounds=True)
    back = join(join(bands, other, computes[1], bounds=True), one, computes[0], bounds=True)
    t.prove(len(way) == len(back), "as many")
    for left, right in zip(way, back, strict=True):
        if isinstance(left, Rest) or isinstance(right, Rest):
            t.prove(left is right, "what neither reading is about")
        else:
            t.prove(
                both(left.size == right.size, left.sharing == right.sharing, same_band(t, left, right)), "each band"
            )


# --- lifts over any number of covers ---------------------------------------------------------------------------------


@theorem("INV-8", lemmas=ROUNDING, merging=(lifted_bytes,))
def a_lift_loop_can_have_come_to_any_compute_by_one_cover(t: Given) -> None:
    """All that `lifted` carries from cover to cover is the compute. One cover leads to any that there can be, so what
    is proven of a second (`a_bound_is_lifted_to_the_most_that_any_cover_asks_for`) is the step from any number."""
    bound, extra = a_bound(t), t.integer("extra", 0)
    compute = bound.compute_bytes + extra
    t.assume(compute >= 1)
    cover = Cover(compute_bytes=compute, bytes_per_row=compute, logical_rows=0, grad_segments=0)
    t.prove(lifted_bytes(bound, cover) == compute)


@theorem("INV-8", opaque=(scaled_bytes, lifted_bytes))
def a_bound_lifted_over_a_cover_covers_whatever_the_cover_does(t: Given) -> None:
    """The three steps together, for a lift to what the cover asks for or further: opaque but for what is proven."""
    bound, cover, compute, reading = a_bound(t), a_cover(t), t.integer("compute"), an_anchor(t, "reading")
    t.assume(both(compute >= bound.compute_bytes, compute >= lifted_bytes(bound, cover)))
    t.assume(both(reading.compute_bytes <= cover.compute_bytes, reading.logical_rows >= cover.logical_rows))
    t.assume(reading.compute_bytes <= cover.bytes_per_row * reading.packed_rows)
    t.assume(reading.grad_segments >= cover.grad_segments)
    witness(t, is_plain(bound), bound.compute_bytes == compute, cover.compute_bytes == 1, reading.packed_rows == 1)
    raised_bound, knee, unit, rows = raised(bound, compute), knee_rows(cover), bound.packed_rows, reading.packed_rows
    at_knee, beyond, at = (
        scaled_bytes(raised_bound, of, cover.logical_rows, cover.grad_segments) for of in (knee, knee + 1, rows)
    )
    t.assume(both(at_knee >= cover.bytes_per_row * knee * unit, beyond >= cover.compute_bytes * unit))
    #   a_lifted_bound_reaches_the_knee_of_its_cover
    t.assume(implies(rows <= knee, at * knee >= at_knee * rows))  # a_bound_divided_by_packed_rows_never_rises
    t.assume(implies(rows > knee, at >= beyond))  # a_bound_never_falls_as_packed_rows_grow
    own = scaled_bytes(raised_bound, rows, reading.logical_rows, reading.grad_segments)
    t.assume(own >= at)  # a_bound_never_falls_as_logical_rows_or_segments_grow
    if rows <= knee:
        t.use(a_knee_that_is_reached_covers_fewer_rows, at, at_knee, rows, knee, unit, cover.bytes_per_row)
        t.use(a_product_never_falls_as_both_factors_grow, reading.compute_bytes, unit, cover.bytes_per_row * rows, unit)
    else:
        t.use(a_product_never_falls_as_both_factors_grow, reading.compute_bytes, unit, cover.compute_bytes, unit)
    step(t, own >= reading.compute_bytes * unit, "exactly")
    value = bound_bytes(raised_bound, rows, reading.logical_rows, reading.grad_segments)
    t.use(rounding_up_is_the_least_integer_above, own, unit)
    t.use(a_positive_factor_keeps_a_strict_order, unit, value, reading.compute_bytes)
    t.prove(value >= reading.compute_bytes, "rounded")


# --- the least of any number of bounds -------------------------------------------------------------------------------


@theorem("INV-2", opaque=(bound_bytes,))
def the_search_goes_on_from_any_least_and_stops_rightly(t: Given) -> None:
    """On one side of a wave: `seen` stands for the bounds that were looked at, by the least of them; then comes one
    bound; `rest` stands for those behind, by whichever is meant: each has no less C (or C by row) than the one before,
    and U >= C, U * Pi >= C * P (`a_bound_is_at_least_its_compute_and_its_compute_by_row`)."""
    seen, now, rest = (a_bound(t, name) for name in ("seen", "now", "rest"))
    rows, logical, segments = t.integer("P", 1), t.integer("L", 0), t.integer("S", 0)
    side = t.choose("above", "below", "seen above, now and rest below")
    above: tuple[Bound, ...]
    below: tuple[Bound, ...]
    values = [bound_bytes(bound, rows, logical, segments) for bound in (seen, now, rest)]
    for bound, value in zip((seen, now, rest), values, strict=True):
        t.assume(both(value >= bound.compute_bytes, value * bound.packed_rows >= bound.compute_bytes * rows))
    if side == "above":
        t.assume(both(seen.compute_bytes <= now.compute_bytes, now.compute_bytes <= rest.compute_bytes))
        above, below = (seen, now, rest), ()
    else:
        t.assume(now.compute_bytes * rest.packed_rows <= rest.compute_bytes * now.packed_rows)
        if side == "below":
            t.assume(seen.compute_bytes * now.packed_rows <= now.compute_bytes * seen.packed_rows)
            above, below = (), (seen, now, rest)
        else:
            above, below = (seen,), (now, rest)
    # Were the rest below a least that ends the search at `now`, least * Pn <= Cn * P, it would be below U >= C by row:
    # times Pn and Pr, least * Pn * Pr <= Cn * P * Pr <= Cr * P * Pn <= U * Pr * Pn.
    least_so_far = minimum(values[0], values[1])
    for least in (values[0], least_so_far):
        stops = least * rest.packed_rows, rest.compute_bytes * rows
        t.use(
            a_product_never_falls_as_a_factor_grows, rest.packed_rows, least * now.packed_rows, now.compute_bytes * rows
        )
        t.use(a_positive_factor_keeps_a_strict_order, now.packed_rows, stops[1], stops[0])
        t.use(a_positive_factor_keeps_a_strict_order, rest.packed_rows, values[2], least)
    t.use(
        a_product_never_falls_as_a_factor_grows,
        rows,
        now.compute_bytes * rest.packed_rows,
        rest.compute_bytes * now.packed_rows,
    )
    frontier = Frontier(bounds=(seen, now, rest), anchor_rows=(), above=(above,), below=(below,))
    least, binding = frontier.least(rows, logical, segments)
    t.prove(least == minimum(least_so_far, values[2]), "the least of all")
    t.prove(least == next(value for bound, value in zip((seen, now, rest), values, strict=True) if bound is binding))


@theorem("INV-2")
def one_more_bound_leaves_a_front_in_which_each_dropped_one_has_another_below_it(t: Given) -> None:
    """The step of `_fronts` from a front of any number: `others` stand for what is in it besides the `witness` that was
    nowhere above a bound `dropped` earlier; whatever is meant by nowhere above, if it is transitive."""
    names = ("others", "witness", "dropped", "new")
    below = {
        (one, other): t.integer(f"{one}_nowhere_above_{other}") == 1 for one in names for other in names if one != other
    }
    for one, other in below:
        for third in names:
            if third not in (one, other):
                t.assume(implies(both(below[one, other], below[other, third]), below[one, third]))
    t.assume(negation(either(below["others", "witness"], below["witness", "others"])))
    t.assume(below["witness", "dropped"])
    bounds: Any = ("others", "witness", "new")
    nowhere_above: Any = lambda one, other: below[one, other]  # noqa: E731
    front: Any = _fronts(bounds, nowhere_above)[-1]
    t.prove(either(*(below[kept, "dropped"] for kept in front)), "what was dropped before")
    for name in ("others", "witness", "new"):
        if name not in front:
            t.prove(either(*(below[kept, name] for kept in front)), "what is dropped now")


def told_of_bounds(t: Given, bounds: Sequence[Bound], packed_rows: int, logical_rows: int, grad_segments: int) -> None:
    """What is proven of each bound, and of one that another is nowhere above, for a wave of these rows."""
    values = [bound_bytes(bound, packed_rows, logical_rows, grad_segments) for bound in bounds]
    for bound, value in zip(bounds, values, strict=True):
        # a_bound_is_at_least_its_compute_and_its_compute_by_row
        t.assume(both(value >= bound.compute_bytes, value * bound.packed_rows >= bound.compute_bytes * packed_rows))
    for one, value in zip(bounds, values, strict=True):
        for other, other_value in zip(bounds, values, strict=True):
            if one is not other:
                smaller = both(packed_rows <= one.packed_rows, packed_rows <= other.packed_rows)
                larger = both(packed_rows >= one.packed_rows, packed_rows >= other.packed_rows)
                within = value <= other_value
                # a_bound_dropped_for_smaller_waves_is_nowhere_below_the_one_that_stays, and for larger ones
                t.assume(implies(both(smaller, nowhere_above_as_larger(one, other)), within))
                t.assume(implies(both(larger, nowhere_above_as_smaller(one, other)), within))


OPAQUE = (anchored_bound, lifted_bytes, bound_bytes, nowhere_above_as_larger, nowhere_above_as_smaller)


def bands_of(t: Given, count: int) -> tuple[Band, ...]:
    """Any `count` bands, with an anchor or without."""
    return tuple(
        Band(
            size=place + 1,
            sharing=1,
            cover=a_cover(t, f"band{place}.cover"),
            anchor=an_anchor(t, f"band{place}.anchor") if t.choose(True, False) else None,
        )
        for place in range(count)
    )


@theorem("INV-2", merging=(lifted,), opaque=OPAQUE, slow=True)
def the_shipped_frontier_of_two_bands_prices_at_the_least_of_their_lifted_bounds(t: Given) -> None:
    """`frontier_of` and `least`, whole: sorted, lifted over every cover, arranged, searched. For more bands: the steps
    above, of the loop over covers, of a front and of the search."""
    bands, charge, state = bands_of(t, 2), t.integer("charge", 0), t.integer("G", 0)
    rows, logical, segments = t.integer("P", 1), t.integer("L", 0), t.integer("S", 0)
    anchors = [band.anchor for band in bands if band.anchor is not None]
    if not anchors:
        t.prove(frontier_of(bands, charge, state).bounds == (), "no anchor, no bound")
        return
    expected = []
    for anchor in anchors:
        bound = anchored_bound(anchor, charge, state)
        t.assume(both(bound.packed_rows >= 1, bound.compute_bytes >= 0))
        for band in bands:
            told_of_skip(t, bound, band.cover)
        expected.append(raised(bound, most(bound, [band.cover for band in bands])))
    frontier = frontier_of(bands, charge, state)
    told_of_bounds(t, frontier.bounds, rows, logical, segments)
    values = [bound_bytes(bound, rows, logical, segments) for bound in expected]
    for bound in frontier.bounds:
        # A bound is what its fields are: the shipped one and the expected one have the same.
        for other, value in zip(expected, values, strict=True):
            t.assume(implies(are_same(bound, other), bound_bytes(bound, rows, logical, segments) == value))
    least, _ = frontier.least(rows, logical, segments)
    t.prove(least == (values[0] if len(values) == 1 else minimum(*values)))


def most(bound: Bound, covers: Sequence[Cover]) -> int:
    """The most that any cover asks of a bound, and at least its own."""
    compute = bound.compute_bytes
    for cover in covers:
        compute = maximum(compute, lifted_bytes(bound, cover))
    return compute


def told_of_skip(t: Given, bound: Bound, cover: Cover) -> None:
    """a_cover_under_what_a_bound_was_lifted_to_needs_no_further_lift, for every compute: a cover asks for no more than
    the lower of its most and its rate at the bound's rows, and for no less than the bound's own."""
    asked = lifted_bytes(bound, cover)
    reach = minimum(cover.compute_bytes, cover.bytes_per_row * bound.packed_rows)
    t.assume(both(asked >= bound.compute_bytes, asked <= maximum(bound.compute_bytes, reach)))


def are_same(one: Bound, other: Bound) -> bool:
    return both(*(getattr(one, name) == getattr(other, name) for name in Bound.__slots__))


# --- INV-8 of it all -------------------------------------------------------------------------------------------------


@theorem(
    "INV-8", lemmas=(*ROUNDING, the_safety_factor_never_shrinks), merging=(lifted, *JOINS), opaque=OPAQUE, slow=True
)
def required_bytes_after_a_reading_cover_it_whatever_bands_there_were(t: Given) -> None:
    """`required_bytes(observe(...))` under the frontier law, shipped from end to end, for evidence of any number of
    bands. The least bound is the reading's own or that of another band, before or behind, which stands for whichever it
    is; other bounds are nowhere below the least and lift none, so they are left out. The reading's band was there or
    not. Complete or not; packed-priced or not. (Before the first bound the warm law prices: it has its own theorem.)"""
    complete, own_band, has_own_anchor = t.choose(
        (True, False, False), (True, True, False), (True, True, True), (False, True, False), (False, False, False)
    )
    kind = ReadingKind.WHOLE_WAVE if complete else ReadingKind.SPLIT_CHILD
    reading = t.reading(kind=(kind, True, False), retained=False)
    learned = t.profile(retained=False, warm="fit")
    t.assume(both(reading.packed_rows >= 1, reading.logical_rows >= 1, learned.complete_readings >= 2))
    key = size_class(reading.packed_rows), sharing_class(reading.logical_rows, reading.packed_rows)
    order = t.choose(Order((key,)), Order(()))
    other = Rest(order, a_cover(t, "other.cover"), None if complete else an_anchor(t, "other.anchor"))
    own = tuple(
        Band(size=key[0], sharing=key[1], cover=a_cover(t, "own.cover"), anchor=anchor)
        for anchor in ((an_anchor(t, "own.anchor") if has_own_anchor else None),) * own_band
    )
    bands: Any = (other, *own) if order.later else (*own, other)
    evidence = FrontierEvidence(peak=bands)
    evidence.derived[SOUND] = True  # joins keep what the check asks for: the theorems above
    before = t.valid(lambda: replace(learned, frontier=evidence))
    tell_sharing(t, before, reading)
    after = observe(before, reading)
    packed_priced = t.choose(True, False)
    wave = t.wave(
        workload=t.workload(packed_priced),
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        grad_segments=reading.grad_segments,
        output_bytes=reading.output_bytes,
    )
    told_of_covering(t, after, wave, reading, packed_priced)
    price = required_bytes(wave, after, FRONTIER, t.safety())
    t.prove(price >= reading.output_bytes + reading.compute_bytes)


def told_of_covering(t: Given, profile: Profile, wave: Wave, reading: Reading, packed_priced: bool) -> None:
    """What is proven of each bound of a profile, for the wave's rows and for the reading."""
    charge, state = (LOGICAL_ROW_BYTES, wave.segment_state_bytes) if packed_priced else (None, 0)
    bands = profile.frontier.peak
    told = reading.packed_rows, reading.logical_rows, reading.grad_segments
    made = [anchored_bound(band.anchor, charge, state) for band in bands if band.anchor is not None]
    for bound in made:
        t.assume(both(bound.packed_rows >= 1, bound.compute_bytes >= 0))
        for band in bands:
            told_of_skip(t, bound, band.cover)
    frontier = peak_frontier(profile.frontier, packed_priced, wave.segment_state_bytes)
    rows = trusted_rows(wave, profile, packed_priced)
    told_of_bounds(t, frontier.bounds, rows, wave.logical_rows, wave.grad_segments)
    for bound in frontier.bounds:
        # a_bound_never_falls_as_packed_rows_grow
        at_rows = bound_bytes(bound, rows, wave.logical_rows, wave.grad_segments)
        t.assume(implies(rows >= wave.packed_rows, bound_bytes(bound, *told) <= at_rows))
        # a_bound_lifted_over_a_cover_covers_whatever_the_cover_does
        for origin in made:
            for band in bands:
                lifted_enough = both(
                    are_same(bound, raised(origin, bound.compute_bytes)),
                    bound.compute_bytes >= maximum(origin.compute_bytes, lifted_bytes(origin, band.cover)),
                )
                within = both(covers(band.cover, reading), reading.compute_bytes >= 1)
                covered = bound_bytes(bound, *told) >= reading.compute_bytes
                t.assume(implies(both(lifted_enough, within), covered))
