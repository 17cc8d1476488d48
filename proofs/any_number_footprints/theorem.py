"""INV-15, INV-16 and INV-18 for any number of bands: the shipped price of both quantities, whole, under every law.

What stands for any number: of the bands of one body of evidence the one whose bound is the least of the larger wave (of
the wave that is priced) stands for whichever it is. Bounds beside it only lower what the smaller wave costs, and lift
none; covers beside the ones named only lift. Functions that are opaque here answer anything; what is assumed of them
are instances of the theorems named beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pricing import contracts
from pricing.kernel.bands import SOUND, Band, FrontierEvidence, sharing_class, size_class
from pricing.kernel.frontier import (
    FRONTIER,
    Bound,
    anchored_bound,
    bound_bytes,
    lifted,
    lifted_bytes,
    peak_frontier,
    scaled_bytes,
    trusted_rows,
)
from pricing.kernel.price import evidence_bytes, required_bytes
from pricing.kernel.profile import Evidence, observe_footprint
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, maximum
from pricing.kernel.rate_laws import LOGICAL, PACKED
from pricing.kernel.reading import Reading
from pricing.kernel.wave import Wave
from proofs.any_number.rest import Order, Rest
from proofs.any_number.theorem import JOINS, OPAQUE, are_same, told_of_bounds, told_of_skip
from proofs.assembly.theorem import covers
from proofs.frontier.lemmas import a_credit_is_at_most_its_share_of_the_rows, credits_are_paid_for_by_compute
from proofs.frontier.theorem import (
    ROUNDING,
    a_bound,
    a_cover,
    a_wave,
    an_anchor,
    charge_pairs,
    charged,
    lacking,
    raised,
    step,
)
from proofs.inv08_coverage.theorem import COVERING, is_remembered
from proofs.inv15_two_quantities.theorem import KINDS, tell_sharing_of
from proofs.inv16_out_of_memory.theorem import failed_reading
from proofs.lemmas import (
    MONOTONE,
    a_positive_factor_keeps_a_strict_order,
    a_product_never_falls_as_a_factor_grows,
)
from proofs.solver.proof import Given, lemma, theorem
from proofs.solver.symbolic import both, either, implies

never_falls = a_product_never_falls_as_a_factor_grows

# --- INV-15: required never falls -------------------------------------------------------------------------------------


def evidence_of(t: Given, name: str, bounds: bool) -> FrontierEvidence:
    """Evidence in which no band bounds yet, or in which the least bound is that of a band, which stands for any."""
    band = Band(size=1, sharing=1, cover=a_cover(t, f"{name}.cover"), anchor=an_anchor(t, f"{name}.anchor"))
    evidence = FrontierEvidence(peak=(band,) if bounds else ())
    evidence.derived[SOUND] = True  # joins keep what the check asks for: `any_number`
    return evidence


def tell_growth(t: Given, evidence: Evidence, smaller: Wave, larger: Wave, packed_priced: bool) -> None:
    """a_bound_never_falls_as_packed_rows_grow, ..._as_logical_rows_or_segments_grow, of each bound of the evidence;
    and every_anchor_makes_a_bound."""
    for bound in peak_frontier(evidence.frontier, packed_priced, smaller.segment_state_bytes).bounds:
        t.assume(both(bound.packed_rows >= 1, bound.compute_bytes >= 0))
        rows, more = (trusted_rows(wave, evidence, packed_priced) for wave in (smaller, larger))
        grows = both(
            rows <= more,
            smaller.logical_rows <= larger.logical_rows,
            smaller.grad_segments <= larger.grad_segments,
        )
        least, most = (
            bound_bytes(bound, at, wave.logical_rows, wave.grad_segments)
            for at, wave in ((rows, smaller), (more, larger))
        )
        t.assume(both(implies(grows, least <= most), both(least >= 0, most >= 0)))


@theorem("INV-15", lemmas=MONOTONE, merging=(evidence_bytes, lifted), opaque=OPAQUE, slow=True)
def required_never_falls_as_a_wave_grows_under_any_law_whatever_bands_there_are(t: Given) -> None:
    """The shipped `required_bytes`, whole: of both quantities, or of a footprint that was never read; where no band
    bounds, the frontier law is the warm one."""
    law, of_peaks, of_footprints = t.choose(
        (FRONTIER, True, True),
        (FRONTIER, True, False),
        (FRONTIER, False, True),
        (FRONTIER, True, None),
        *((law, False, kind) for law in (FRONTIER, LOGICAL, PACKED) for kind in (False, None)),
    )
    packed_priced = t.choose(True, False)
    workload = t.workload(packed_priced)
    smaller = t.wave("smaller", workload=workload)
    larger = t.wave("larger", workload=workload, segment_state_bytes=smaller.segment_state_bytes)
    learned, frontier = t.profile(retained=False, warm="fit" if of_peaks else None), evidence_of(t, "peaks", of_peaks)
    profile = t.valid(lambda: replace(learned, frontier=frontier))
    if of_footprints is not None:
        read = t.footprints(retained=False, warm="fit" if of_footprints else None)
        of_read = evidence_of(t, "footprints", of_footprints)
        seen = t.valid(lambda: replace(read, frontier=of_read))
        profile = t.valid(lambda: replace(learned, frontier=frontier, footprint=seen))
    safety = t.safety()
    for evidence in (profile, profile.footprint):
        tell_growth(t, evidence, smaller, larger, packed_priced)
    t.assume(t.merged(contracts.is_grown, smaller, larger))
    for name, evidence in (("peaks", profile), ("footprints", profile.footprint)):
        least, most = (evidence_bytes(wave, evidence, law, safety) for wave in (smaller, larger))
        step(t, least <= most, name)
    t.prove(required_bytes(smaller, profile, law, safety) <= required_bytes(larger, profile, law, safety), "required")


# --- INV-16 and INV-18: what ran out of memory, under the frontier law ------------------------------------------------


@lemma()
def a_share_of_what_is_lacking(t: Given, wanted: int, held: int, share: int) -> None:
    t.assume(share >= 0)
    t.prove(maximum(0, wanted - held) * share == maximum(0, wanted * share - held * share))


@lemma()
def shares_of_sums(
    t: Given, compute: int, at: int, at_fewer: int, rows: int, fewer: int, most: int, least: int
) -> None:
    """Charges that shrink faster than rows are made up for by the compute of rows that shrink slower."""
    t.assume(most * fewer <= least * rows + compute * (at_fewer * rows - at * fewer))
    t.prove((compute * at_fewer + least) * rows >= (compute * at + most) * fewer)


@lemma()
def the_dearer_of_two_shares(
    t: Given, one: int, other: int, one_left: int, other_left: int, rows: int, fewer: int, beside: int
) -> None:
    t.assume(rows >= 0)
    t.assume(one * fewer <= one_left * rows + beside)
    t.assume(other * fewer <= other_left * rows + beside)
    t.use(a_product_never_falls_as_a_factor_grows, rows, one_left, maximum(one_left, other_left))
    t.use(a_product_never_falls_as_a_factor_grows, rows, other_left, maximum(one_left, other_left))
    t.prove(maximum(one, other) * fewer <= maximum(one_left, other_left) * rows + beside)


@theorem("INV-18", lemmas=ROUNDING, slow=True)
def a_bound_falls_no_faster_than_a_wave_that_shrinks_in_proportion(t: Given) -> None:
    """SCALE, of a bound: at a share of the rows, with at least that share of the logical rows and segments, it says at
    least that share of the bytes."""
    bound, (rows, logical, segments), (fewer, less, few) = a_bound(t), a_wave(t), a_wave(t, "narrower")
    t.assume(both(fewer <= rows, both(less * rows >= logical * fewer, few * rows >= segments * fewer)))
    unit, at, at_fewer = bound.packed_rows, maximum(rows, bound.packed_rows), maximum(fewer, bound.packed_rows)
    between = at_fewer * rows - at * fewer
    step(t, between >= 0, "scaled rows shrink no faster than rows")
    wanted = logical * unit * fewer, segments * unit * fewer
    t.use(never_falls, unit, logical * fewer, less * rows)
    t.use(never_falls, unit, segments * fewer, few * rows)
    held = bound.logical_rows, bound.grad_segments
    many, left = lacking(bound, at, logical, segments), lacking(bound, at_fewer, less, few)
    for place in range(2):
        t.use(a_credit_is_at_most_its_share_of_the_rows, wanted[place], held[place], at * fewer, at_fewer * rows)
        t.use(a_share_of_what_is_lacking, (logical, segments)[place] * unit, held[place] * at, fewer)
        t.use(a_share_of_what_is_lacking, (less, few)[place] * unit, held[place] * at_fewer, rows)
        step(t, many[place] * fewer <= left[place] * rows + held[place] * between, "what is lacking")
    for row, segment in charge_pairs(bound):
        credits = bound.compute_bytes, row, segment, *held
        shares = many[0] * fewer, many[1] * fewer, left[0] * rows, left[1] * rows
        t.use(credits_are_paid_for_by_compute, *credits, *shares, between)
        step(
            t,
            charged(row, segment, many) * fewer <= charged(row, segment, left) * rows + bound.compute_bytes * between,
            "charges",
        )
    most, least = (maximum(*(charged(*pair, lacks) for pair in charge_pairs(bound))) for lacks in (many, left))
    pairs = [charged(*pair, lacks) for lacks in (many, left) for pair in charge_pairs(bound)]
    t.use(the_dearer_of_two_shares, *pairs, rows, fewer, bound.compute_bytes * between)
    step(t, most * fewer <= least * rows + bound.compute_bytes * between, "the dearer charges")
    t.use(shares_of_sums, bound.compute_bytes, at, at_fewer, rows, fewer, most, least)
    whole, part = scaled_bytes(bound, rows, logical, segments), scaled_bytes(bound, fewer, less, few)
    step(t, part * rows >= whole * fewer, "exactly")
    covered, value = t.integer("covered", 0), bound_bytes(bound, fewer, less, few)
    t.assume(whole >= covered * unit)
    t.use(never_falls, fewer, covered * unit, whole)
    t.use(never_falls, rows, part, value * unit)
    t.use(a_positive_factor_keeps_a_strict_order, unit, value * rows, covered * fewer)
    t.prove(value * rows >= covered * fewer, "rounded, of what it covers exactly")


FAILING: Any = {
    "lemmas": (*COVERING, *ROUNDING),
    "merging": (evidence_bytes, lifted, *JOINS),
    "opaque": OPAQUE,
    "slow": True,
}


def observed_failure(t: Given) -> tuple[Reading, Evidence]:
    """A wave that ran out of memory, and evidence of footprints after one reading more: of that wave, whatever was
    known, or of another after it, in the same band as what is known of it (in another it changes nothing of this one:
    `a_join_into_any_number_of_bands_changes_the_band_of_its_reading_alone`).

    Bands of any number: that of the reading, there or not, and one before or behind it; the one of the two that has an
    anchor is whichever has the least bound, or none has one.
    """
    failed = failed_reading(t)
    t.assume(failed.compute_bytes >= 1)  # else its outputs alone are the price
    is_later = t.choose(False, True)
    told = t.reading("later", retained=False, kind=t.choose(*KINDS)).of_footprint if is_later else failed
    told = failed if told is None else told
    t.assume(told.packed_rows >= 1)
    key = size_class(told.packed_rows), sharing_class(told.logical_rows, told.packed_rows)
    own_is_there, own_bounds, other_bounds = t.choose(
        (True, False, True), (True, True, False), (True, False, False), *(() if is_later else ((False, False, True),))
    )
    own_cover, own_anchor = a_cover(t, "own.cover"), an_anchor(t, "own.anchor") if own_bounds else None
    order = t.choose(Order((key,)), Order(()))
    other = Rest(order, a_cover(t, "other.cover"), an_anchor(t, "other.anchor") if other_bounds else None)
    own = (Band(size=key[0], sharing=key[1], cover=own_cover, anchor=own_anchor),) if own_is_there else ()
    bands: Any = (other, *own) if order.later else (*own, other)
    evidence = FrontierEvidence(peak=bands)
    evidence.derived[SOUND] = True  # joins keep what the check asks for: `any_number`
    learned = t.footprints(retained=False, warm="fit" if own_bounds or other_bounds else None)
    before = t.valid(lambda: replace(learned, frontier=evidence))
    if is_later:
        t.assume(both(is_remembered(before, failed), covers(own_cover, failed)))
    tell_sharing_of(t, before, told)
    after = observe_footprint(before, told)
    t.prove(is_remembered(after, failed), "in the rates")
    t.assume(is_remembered(after, failed))
    return failed, after


def covering_bounds(
    t: Given, evidence: Evidence, failed: Reading, wave: Wave, packed_priced: bool
) -> Iterator[tuple[Bound, bool]]:
    """Each bound, and whether it was lifted over a cover that what failed is within.

    Told of each: every_anchor_makes_a_bound, and what a search and a lift rest on.
    """
    charge, state = (LOGICAL_ROW_BYTES, wave.segment_state_bytes) if packed_priced else (None, 0)
    bands = evidence.frontier.peak
    made = [anchored_bound(band.anchor, charge, state) for band in bands if band.anchor is not None]
    for bound in made:
        t.assume(both(bound.packed_rows >= 1, bound.compute_bytes >= 0))
        for band in bands:
            told_of_skip(t, bound, band.cover)
    frontier = peak_frontier(evidence.frontier, packed_priced, wave.segment_state_bytes)
    rows = trusted_rows(wave, evidence, packed_priced)
    told_of_bounds(t, frontier.bounds, rows, wave.logical_rows, wave.grad_segments)
    for bound in frontier.bounds:
        lifts = [
            both(
                are_same(bound, raised(origin, bound.compute_bytes)),
                bound.compute_bytes >= maximum(origin.compute_bytes, lifted_bytes(origin, band.cover)),
                covers(band.cover, failed),
            )
            for origin in made
            for band in bands
        ]
        yield bound, either(*lifts)


def size_of(told: Reading) -> tuple[int, int, int]:
    return told.packed_rows, told.logical_rows, told.grad_segments


@theorem("INV-16", **FAILING)
def a_failed_wave_is_never_admitted_again_under_the_frontier_law_whatever_bands_there_are(t: Given) -> None:
    """`evidence_bytes(observe_footprint(...))`, shipped from end to end: every wave as large costs what the failed one
    was taken to need, at once and after any other reading. With `required_is_the_higher_of_the_two_prices` and
    `outputs_and_compute_of_a_failed_wave_are_its_whole_footprint` required is above what was available to it."""
    failed, after = observed_failure(t)
    packed_priced = t.choose(True, False)
    wave = t.wave(workload=t.workload(packed_priced))
    t.assume(t.merged(contracts.is_as_large, wave, failed))
    rows = trusted_rows(wave, after, packed_priced)
    for bound, is_covering in covering_bounds(t, after, failed, wave, packed_priced):
        # a_bound_lifted_over_a_cover_covers_whatever_the_cover_does
        t.assume(implies(is_covering, bound_bytes(bound, *size_of(failed)) >= failed.compute_bytes))
        # a_bound_never_falls_as_packed_rows_grow, and as logical rows or segments grow
        grown = bound_bytes(bound, rows, wave.logical_rows, wave.grad_segments)
        t.assume(implies(rows >= wave.packed_rows, bound_bytes(bound, *size_of(failed)) <= grown))
    t.prove(evidence_bytes(wave, after, FRONTIER, t.safety()) >= failed.output_bytes + failed.compute_bytes)


@theorem("INV-18", **FAILING)
def what_the_frontier_law_admits_after_a_failure_has_at_most_sixteen_seventeenths_of_its_rows(t: Given) -> None:
    """A narrower wave with no less than its rows' share of the logical rows, segments and outputs, whatever bands there
    are. Before the first bound the warm law prices: it has its own theorem."""
    failed, after = observed_failure(t)
    packed_priced, available = t.choose(True, False), t.integer("available", 1)
    narrower = t.wave("narrower", workload=t.workload(packed_priced))
    rows, fewer = failed.packed_rows, narrower.packed_rows
    t.assume(16 * failed.peak_delta_bytes >= 17 * available)
    t.assume(both(fewer >= 1, fewer <= rows))
    t.assume(narrower.logical_rows * rows >= failed.logical_rows * fewer)
    t.assume(narrower.grad_segments * rows >= failed.grad_segments * fewer)
    t.assume(narrower.output_bytes * rows >= failed.output_bytes * fewer)
    at, bounds = trusted_rows(narrower, after, packed_priced), 0
    for bound, is_covering in covering_bounds(t, after, failed, narrower, packed_priced):
        # a_bound_falls_no_faster_than_a_wave_that_shrinks_in_proportion, of what a_bound_lifted_over_a_cover_covers_...
        # says that it covers, "exactly"
        said = bound_bytes(bound, *size_of_wave(narrower))
        t.assume(implies(is_covering, said * rows >= failed.compute_bytes * fewer))
        # a_bound_never_falls_as_packed_rows_grow
        t.assume(implies(at >= fewer, said <= bound_bytes(bound, at, narrower.logical_rows, narrower.grad_segments)))
        bounds += 1
    t.assume(bounds > 0)
    price = evidence_bytes(narrower, after, FRONTIER, t.safety())
    needed = price - narrower.output_bytes
    step(t, needed * rows >= failed.compute_bytes * fewer, "its share of what failed")
    # price * rows = (O' + needed) * rows >= O*fewer + compute*fewer >= footprint * fewer
    t.use(never_falls, fewer, failed.peak_delta_bytes, failed.output_bytes + failed.compute_bytes)
    step(t, price * rows >= failed.peak_delta_bytes * fewer, "in proportion")
    t.use(never_falls, rows, price, available)
    t.use(never_falls, fewer, 17 * available, 16 * failed.peak_delta_bytes)
    t.use(never_falls, available, 16 * rows + 1, 17 * fewer)
    t.prove(implies(price <= available, 17 * fewer <= 16 * rows))


def size_of_wave(wave: Wave) -> tuple[int, int, int]:
    return wave.packed_rows, wave.logical_rows, wave.grad_segments
