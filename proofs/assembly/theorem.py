"""The assembly, on the shipped code: what the other folders prove of pieces, as the kernel puts the pieces together.

Tuples of bands, covers and bounds are of any numbers and of small lengths. Each statement about a length is also the
induction step from it: a join looks at one place of a sorted tuple (absent, present, before, after: all four with three
bands); a lift goes on from any compute that the covers before it led to; a front of any bounds takes one more.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from pricing.kernel.bands import (
    Anchor,
    Band,
    Cover,
    FrontierEvidence,
    band_of,
    higher_anchor,
    is_retained_whole,
    join,
    joined_cover,
    observe_bands,
)
from pricing.kernel.frontier import (
    FRONTIER,
    Bound,
    Frontier,
    _fronts,
    affordable_bytes,
    anchored_bound,
    bound_bytes,
    lifted,
    lifted_bytes,
    needed_bytes,
)
from pricing.kernel.price import evidence_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import (
    LOGICAL_ROW_BYTES,
    Sharing,
    ceil_div,
    is_more_sharing,
    maximum,
    minimum,
    more_sharing,
    require_count,
)
from pricing.kernel.rate_laws import warm_bytes, warm_rows
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.wave import RecurrentGeometry, Wave, segment_state_bytes
from proofs.frontier.lemmas import (
    a_product_never_falls_as_both_factors_grow,
    a_target_within_reach_needs_no_lift,
    what_is_under_a_compute_or_rate_is_within_reach,
)
from proofs.frontier.theorem import (
    a_bound,
    a_cover,
    an_anchor,
    charge_pairs,
    charged,
    lacking,
    same_anchor,
    step,
)
from proofs.lemmas import (
    rounding_up_is_the_least_integer_above,
    rounding_up_never_falls_as_the_numerator_grows,
    tell_sharing,
    the_safety_factor_never_shrinks,
)
from proofs.solver.kernel import shipped
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both, either, implies

ROUNDING = (rounding_up_never_falls_as_the_numerator_grows, rounding_up_is_the_least_integer_above)


# --- quantities, waves, profiles -------------------------------------------------------------------------------------


@theorem("reachable")
def no_count_below_zero_is_accepted(t: Given) -> None:
    """The shipped guard itself, which the other theorems replace by what is stated here."""
    value = t.integer("value")
    t.valid(lambda: shipped(require_count)("value", value))
    t.prove(value >= 0)


@theorem("reachable")
def every_count_from_zero_on_is_accepted(t: Given) -> None:
    value = t.integer("value", 0)
    shipped(require_count)("value", value)
    t.prove(value >= 0, "no path of the guard raises")


@theorem("INV-13")
def a_wave_of_no_packed_rows_has_nothing_else_to_run(t: Given) -> None:
    wave: Wave = t.wave()
    t.assume(wave.packed_rows == 0)
    t.prove(both(wave.logical_rows == 0, wave.grad_segments == 0))


@theorem("reachable")
def every_clause_of_a_reachable_profile(t: Given) -> None:
    """The clauses, said again without the code that checks them: dropping one from the guard refutes this."""
    profile: Profile = t.profile()
    rate, rows, sharing = profile.peak_bytes_per_row, profile.largest_packed_rows, profile.sharing
    retained, warm = profile.retained_bytes_per_row, profile.warm_bytes_per_row
    floor_rows, warm_sharing = profile.warm_packed_rows, profile.warm_sharing
    t.prove(both(rate >= 0, rows >= 0, profile.complete_readings >= 0), "counts")
    t.prove(implies(rows == 0, both(rate == 0, profile.complete_readings == 0)), "nothing comes of nothing")
    t.prove(implies(sharing.logical_rows == sharing.packed_rows, sharing.packed_rows == 1), "a sharing of 1 is 1/1")
    if retained is not None:
        t.prove(both(retained >= 0, retained <= rate, rows >= 1), "retained is within the peak")
    if warm is not None:
        t.prove(both(warm >= 0, warm <= rate), "the warm rate is within the rate")
        t.prove(profile.complete_readings >= 1, "and comes after the seed")
    if floor_rows is None or warm_sharing is None:
        t.prove(profile.complete_readings <= 1, "no fit before the second complete reading")
    else:
        t.prove(profile.complete_readings >= 2, "a fit from the second complete reading on")
        t.prove(both(floor_rows >= 1, floor_rows <= rows), "its rows were seen")
        t.prove(
            implies(warm_sharing.logical_rows == warm_sharing.packed_rows, warm_sharing.packed_rows == 1),
            "its sharing of 1 is 1/1",
        )
        t.prove(
            warm_sharing.logical_rows * sharing.packed_rows <= sharing.logical_rows * warm_sharing.packed_rows,
            "its sharing was seen",
        )


@theorem("INV-10", merging=(is_more_sharing,))
def of_two_equal_sharings_the_pair_of_fewer_rows_is_kept(t: Given) -> None:
    known: Sharing = t.sharing("known")
    logical, packed = t.integer("logical", 1), t.integer("packed", 1)
    t.assume(packed <= logical)
    t.assume(logical * known.packed_rows == known.logical_rows * packed)
    t.prove(more_sharing(known, logical, packed).packed_rows == minimum(known.packed_rows, packed))


@theorem("INV-4", lemmas=(rounding_up_is_the_least_integer_above,))
def the_warm_term_has_the_fewest_rows_that_hold_its_floor_and_the_wave(t: Given) -> None:
    """W * x, with x the least integer of at least Pw and P for which k * rw * x >= L: said without a quotient."""
    profile, wave, growth = t.profile(retained=False, warm="fit"), t.wave(), t.integer("growth", 1)
    floor_rows, sharing, rate = profile.warm_packed_rows, profile.warm_sharing, profile.warm_bytes_per_row
    assert floor_rows is not None and sharing is not None and rate is not None, "a warm fit has all three"
    rows = warm_rows(wave, floor_rows, sharing, growth)
    reach, need = growth * sharing.logical_rows, wave.logical_rows * sharing.packed_rows
    t.prove(both(rows >= wave.packed_rows, rows >= floor_rows, rows * reach >= need), "they hold all three")
    t.prove(either(rows == wave.packed_rows, rows == floor_rows, (rows - 1) * reach < need), "one fewer does not")
    t.prove(warm_bytes(wave, profile, growth) == rate * rows, "times the warm rate")


def a_geometry(t: Given, conv_kernel: int, tensor_parallel: int) -> RecurrentGeometry:
    names = ("value_heads", "key_heads", "key_dim", "value_dim", "dtype_bytes")
    fields = {name: t.integer(name) for name in names}
    return t.valid(lambda: RecurrentGeometry(conv_kernel=conv_kernel, tensor_parallel=tensor_parallel, **fields))


@theorem("frontier")
def a_convolution_of_one_step_keeps_no_history(t: Given) -> None:
    """Two fp32 states, dealt to the ranks; the history of a kernel of n steps is n - 1 steps long."""
    geometry = a_geometry(t, 1, t.integer("ranks", 1))
    states = 8 * geometry.value_heads * geometry.key_dim * geometry.value_dim
    t.prove(segment_state_bytes(geometry) == ceil_div(states, geometry.tensor_parallel))


# --- which readings teach the frontier law what ----------------------------------------------------------------------


def bands_of(t: Given, name: str, count: int, anchors: bool = True) -> tuple[Band, ...]:
    """Any `count` bands in order of their keys, each with an anchor or without where `anchors`."""
    made = []
    for place in range(count):
        of = f"{name}{place}"
        anchor = an_anchor(t, f"{of}.anchor") if anchors and t.choose(True, False) else None
        size, sharing = t.integer(f"{of}.size", 1), t.integer(f"{of}.sharing", 1)
        made.append(Band(size=size, sharing=sharing, cover=a_cover(t, f"{of}.cover"), anchor=anchor))
    for left, right in pairwise(made):
        t.assume(is_before(left, right))
    return tuple(made)


def is_before(left: Band, right: Band) -> bool:
    return either(left.size < right.size, both(left.size == right.size, left.sharing < right.sharing))


def has_key_of(one: Band, other: Band) -> bool:
    return both(one.size == other.size, one.sharing == other.sharing)


def a_reading(t: Given, kind: ReadingKind, *, retained: bool) -> Reading:
    """Any reading of this kind with rows."""
    made = t.reading(kind=(kind, True, False), retained=retained)
    t.assume(made.packed_rows >= 1)
    return made


@theorem("INV-8", lemmas=ROUNDING)
def a_reading_s_own_band_says_what_the_reading_said(t: Given) -> None:
    """Its cover is above it and less than a byte a row above; it bounds exactly if it may and ran logical rows."""
    reading, compute = a_reading(t, ReadingKind.WHOLE_WAVE, retained=False), t.integer("compute", 1)
    bounds = t.choose(True, False)
    band = band_of(reading, compute, bounds=bounds)
    cover, rows = band.cover, reading.packed_rows
    t.prove(cover.compute_bytes == compute, "its most is what was read")
    t.prove(both(cover.bytes_per_row * rows >= compute, (cover.bytes_per_row - 1) * rows < compute), "by row, up")
    t.prove(cover.logical_rows == reading.logical_rows, "from its logical rows on")
    t.prove(cover.grad_segments == reading.grad_segments, "and from its segments on")
    if band.anchor is None:
        t.prove(either(not bounds, reading.logical_rows == 0), "no anchor only where it may not bound")
    else:
        anchor = Anchor(
            compute_bytes=compute,
            packed_rows=rows,
            logical_rows=reading.logical_rows,
            grad_segments=reading.grad_segments,
        )
        t.prove(both(bounds, reading.logical_rows >= 1), "an anchor only where it may bound")
        t.prove(same_anchor(band.anchor, anchor), "which is the reading as it was")


@theorem("INV-9")
def the_seed_and_what_comes_before_it_teach_no_band(t: Given) -> None:
    evidence = FrontierEvidence(peak=bands_of(t, "peak", 1), retained=bands_of(t, "retained", 1, anchors=False))
    reading = t.reading()
    t.prove(observe_bands(evidence, reading, seed_seen=False) is evidence)


@theorem("INV-9")
def what_the_retained_bytes_of_a_reading_may_bound(t: Given) -> None:
    kind = t.choose(*ReadingKind)
    reading = a_reading(t, kind, retained=True)
    broke_off = kind in ("interrupted", "out_of_memory")
    t.prove(is_retained_whole(reading) == (not broke_off), "all but those of waves that broke off")
    after = observe_bands(FrontierEvidence(), reading, seed_seen=True)
    if broke_off:
        t.prove(all(band.anchor is None for band in after.retained), "those of waves that broke off make no anchor")
    elif after.retained and after.retained[0].anchor is None:
        t.prove(reading.logical_rows == 0, "another's do, where logical rows ran")


@theorem("INV-9", merging=(higher_anchor, joined_cover))
def an_incomplete_reading_makes_no_anchor_of_peaks_and_is_covered(t: Given) -> None:
    evidence = FrontierEvidence(peak=bands_of(t, "peak", t.choose(0, 1)))
    reading = a_reading(
        t, t.choose(ReadingKind.SPLIT_CHILD, ReadingKind.INTERRUPTED, ReadingKind.OUT_OF_MEMORY), retained=False
    )
    after = observe_bands(evidence, reading, seed_seen=True).peak
    was = [band.anchor for band in evidence.peak if band.anchor is not None]
    now = [band.anchor for band in after if band.anchor is not None]
    t.prove(len(was) == len(now) and all(same_anchor(one, other) for one, other in zip(was, now, strict=True)))
    t.prove(either(reading.compute_bytes == 0, *(covers(band.cover, reading) for band in after)), "it is covered")


def covers(cover: Cover, reading: Reading) -> bool:
    """Whether what the reading used is within the cover."""
    return both(
        reading.compute_bytes <= cover.compute_bytes,
        reading.compute_bytes <= cover.bytes_per_row * reading.packed_rows,
        reading.logical_rows >= cover.logical_rows,
        reading.grad_segments >= cover.grad_segments,
    )


@theorem("INV-9", lemmas=ROUNDING, merging=(higher_anchor, joined_cover))
def a_join_changes_one_place_of_sorted_bands_and_keeps_what_was_there(t: Given) -> None:
    """Before, between, after or in a band: the others stay as they were, in order; what was known stays covered."""
    bands = bands_of(t, "band", t.choose(0, 1, 2, 3), anchors=False)
    reading, compute, bounds = a_reading(t, ReadingKind.WHOLE_WAVE, retained=False), t.integer("compute", 0), False
    after = join(bands, reading, compute, bounds=bounds)
    if len(after) == len(bands) and all(one is other for one, other in zip(after, bands, strict=True)):
        t.prove(compute == 0, "a reading that used something is joined")
        return
    fresh = band_of(reading, compute, bounds=bounds)
    for left, right in pairwise(after):
        t.prove(is_before(left, right), "in order, each key once")
    changed = [band for band in after if not any(band is other for other in bands)]
    t.prove(len(changed) == 1, "one place")
    known = [band for band in bands if not any(band is other for other in after)]
    t.prove(len(after) + len(known) == len(bands) + 1, "all others are there as they were")
    t.prove(has_key_of(changed[0], fresh), "the reading's own")
    for part in (*known, fresh):
        t.prove(has_key_of(part, fresh), "no other band makes room for it")
        t.prove(is_wider(changed[0].cover, part.cover), "what was covered, and the reading, are covered")


def is_wider(one: Cover, other: Cover) -> bool:
    return both(
        one.compute_bytes >= other.compute_bytes,
        one.bytes_per_row >= other.bytes_per_row,
        one.logical_rows <= other.logical_rows,
        one.grad_segments <= other.grad_segments,
    )


@theorem("INV-9", lemmas=ROUNDING, merging=(joined_cover,))
def a_join_keeps_the_higher_of_two_anchors(t: Given) -> None:
    bands = bands_of(t, "band", 1)
    reading, compute = a_reading(t, ReadingKind.WHOLE_WAVE, retained=False), t.integer("compute", 1)
    after = join(bands, reading, compute, bounds=True)
    known = bands[0].anchor
    if known is not None:
        kept = [band.anchor for band in after if band.anchor is not None]
        t.prove(either(*(anchor.compute_bytes >= known.compute_bytes for anchor in kept)), "none is lost")
    if len(after) == 2:
        t.prove(any(band is bands[0] for band in after), "another band's stays")


# --- lifts -----------------------------------------------------------------------------------------------------------


@theorem("INV-8", lemmas=ROUNDING)
def a_cover_under_what_a_bound_was_lifted_to_needs_no_further_lift(t: Given) -> None:
    """As for the bound's own compute, for any compute from there on: what `lifted` skips on its way, it may skip."""
    bound, cover, compute = a_bound(t), a_cover(t), t.integer("compute")
    knee, unit = cover.compute_bytes // cover.bytes_per_row, bound.packed_rows
    t.assume(compute >= bound.compute_bytes)
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
    t.prove(lifted_bytes(bound, cover) <= compute)


def skips_rightly(bound: Bound, cover: Cover, compute: int) -> bool:
    """An instance of the theorem above."""
    within = minimum(cover.compute_bytes, cover.bytes_per_row * bound.packed_rows) <= compute
    return implies(both(compute >= bound.compute_bytes, within), lifted_bytes(bound, cover) <= compute)


@theorem("INV-8", merging=(lifted_bytes,), slow=True)
def a_bound_is_lifted_to_the_most_that_any_cover_asks_for(t: Given) -> None:
    """The shipped loop: no less (it covers all), no more (no price without need). The first cover leads to any compute
    that a loop can have reached, so the second is the induction step."""
    bound, one, other = a_bound(t), a_cover(t, "one"), a_cover(t, "other")
    covers = (one, other)[: t.choose(0, 1, 2)]
    most = bound.compute_bytes
    for cover in covers:
        t.assume(skips_rightly(bound, cover, most))
        t.assume(lifted_bytes(bound, cover) >= bound.compute_bytes)  # a_lifted_bound_reaches_the_knee_of_its_cover
        most = maximum(most, lifted_bytes(bound, cover))
    after = lifted(bound, covers)
    t.prove(after.compute_bytes == most)
    t.prove(after.packed_rows == bound.packed_rows, "and nothing else changes")


@theorem("frontier", lemmas=ROUNDING, merging=(affordable_bytes,))
def padding_counts_as_logical_rows_where_there_are_no_charges(t: Given) -> None:
    anchor = an_anchor(t)
    plain = anchored_bound(anchor, None, 0)
    t.prove(plain.logical_rows == maximum(anchor.logical_rows, anchor.packed_rows), "without charges")
    charged_bound = anchored_bound(anchor, LOGICAL_ROW_BYTES, t.integer("G", 0))
    t.prove(charged_bound.logical_rows == anchor.logical_rows, "with charges an anchor is as it was read")


# --- the search for the least bound ----------------------------------------------------------------------------------


@theorem("INV-2", merging=(bound_bytes,))
def the_search_finds_the_least_of_all_bounds(t: Given) -> None:
    """Two bounds on either side or one on each, sides in their order. U >= C and U * Pi >= C * P are proven of every
    bound, U is any number else. A third bound meets the same two: the least so far, and itself."""
    one, other = a_bound(t, "one"), a_bound(t, "other")
    rows, logical, segments = t.integer("P", 1), t.integer("L", 0), t.integer("S", 0)
    side = t.choose("above", "below", "both")
    above: tuple[Bound, ...] = ()
    below: tuple[Bound, ...] = ()
    values = [bound_bytes(bound, rows, logical, segments) for bound in (one, other)]
    for bound, value in zip((one, other), values, strict=True):
        t.assume(both(value >= bound.compute_bytes, value * bound.packed_rows >= bound.compute_bytes * rows))
        t.assume(bound.compute_bytes >= 0)
    t.assume(one.packed_rows <= other.packed_rows)
    if side == "above":
        t.assume(both(rows <= one.packed_rows, one.compute_bytes <= other.compute_bytes))
        above = (one, other)
    elif side == "below":
        t.assume(rows > other.packed_rows)
        t.assume(one.compute_bytes * other.packed_rows <= other.compute_bytes * one.packed_rows)
        below = (one, other)
    else:
        t.assume(both(one.packed_rows < rows, rows <= other.packed_rows))
        above, below = (other,), (one,)
    frontier = Frontier(
        bounds=(one, other),
        anchor_rows=(one.packed_rows, other.packed_rows),
        above=(above, above, above),
        below=(below, below, below),
    )
    least, binding = frontier.least(rows, logical, segments)
    t.prove(least == minimum(*values), "the least of all")
    t.prove(least == values[0 if binding is one else 1], "and it is that bound's own")


@theorem("INV-2")
def a_front_keeps_one_that_is_nowhere_above_each_it_drops(t: Given) -> None:
    """For whatever is meant by nowhere above, if it is transitive: here any relation of four bounds. With the theorems
    of what is dropped, the minimum over a front is the minimum over all bounds before it."""
    count = 4
    below = {(i, j): t.integer(f"{i}_nowhere_above_{j}") == 1 for i in range(count) for j in range(count) if i != j}
    for i, j in below:
        for k in range(count):
            if k not in (i, j):
                t.assume(implies(both(below[i, j], below[j, k]), below[i, k]))
    bounds = [
        Bound(
            compute_bytes=i,
            packed_rows=1,
            logical_rows=1,
            grad_segments=0,
            row_bytes=0,
            segment_rest_bytes=0,
            row_rest_bytes=0,
            segment_bytes=0,
        )
        for i in range(count)
    ]
    fronts = _fronts(bounds, lambda one, other: below[one.compute_bytes, other.compute_bytes])
    t.prove(len(fronts) == count + 1, "one front for each number of bounds")
    for size, front in enumerate(fronts):
        kept = [bound.compute_bytes for bound in front]
        t.prove(all(place < size for place in kept), "of the first bounds alone")
        for place in range(size):
            if place not in kept:
                t.prove(either(*(below[other, place] for other in kept)), "a dropped bound has one below it")


# --- INV-8 on the whole -----------------------------------------------------------------------------------------------


@theorem("INV-8", lemmas=(*ROUNDING, the_safety_factor_never_shrinks), slow=True)
def the_frontier_price_after_its_first_bound_covers_the_reading_that_made_it(t: Given) -> None:
    """`required_bytes` of `observe`, shipped from end to end: band, anchor, bound, lift, search, price. For evidence
    that was empty and waves without recurrent states; for more of it the parts above are put together on paper."""
    profile, reading = t.profile(retained=False, warm="fit"), t.reading(retained=False, complete=True)
    t.assume(both(reading.packed_rows >= 1, profile.complete_readings >= 1))
    before = t.valid(lambda: replace(profile, frontier=FrontierEvidence()))
    tell_sharing(t, before, reading)
    after = observe(before, reading)
    wave = t.wave(
        workload=t.workload(t.choose(True, False)),
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        grad_segments=reading.grad_segments,
        output_bytes=reading.output_bytes,
        segment_state_bytes=0,
    )
    price = evidence_bytes(wave, after, FRONTIER, t.safety())
    t.prove(price >= reading.output_bytes + reading.compute_bytes)
