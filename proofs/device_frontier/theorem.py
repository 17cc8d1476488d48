"""End to end for the frontier law: SCALE, HEAD and SEGMENT, the counter and the outputs are all that is trusted.

SCALE says of a device, for one complete reading (c, Pi, Li, Si) that it made and one wave (P, L, S), and for every
scaling t >= max(1, P / Pi): the wave takes at most t*c, and for the logical rows and segments that the scaled reading
lacks at most what HEAD and SEGMENT allow. A `Scaling` is that relation; three scalings decide (those at which something
stops to be lacking), so the theorem asks for these and no other.

The price is the least of all bounds. So the promise is proven of whichever bound that is: its reading is one that the
device made. A wave beyond 8 times the sharing seen is priced at more rows and the promise holds there too; nor is there
an exception for waves smaller than the evidence. Histories are of any length: evidence of whatever readings is what the
theorem starts from, and a bound is never lower than its reading makes it (`any_number`, `frontier`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pricing.kernel.bands import SOUND, Anchor, FrontierEvidence
from pricing.kernel.frontier import (
    FRONTIER,
    affordable_bytes,
    anchored_bound,
    bound_bytes,
    lifted,
    lifted_bytes,
    peak_frontier,
    scaled_bytes,
    trusted_rows,
)
from pricing.kernel.price import evidence_bytes
from pricing.kernel.profile import Evidence
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, maximum
from pricing.planner.budget import fits
from proofs.any_number.rest import Order, Rest
from proofs.any_number.theorem import are_same, told_of_bounds
from proofs.frontier.lemmas import a_product_never_falls_as_both_factors_grow
from proofs.frontier.theorem import ROUNDING, a_cover, a_wave, an_anchor, raised, step
from proofs.lemmas import (
    a_positive_factor_keeps_a_strict_order,
    rounding_up_is_the_least_integer_above,
    the_safety_factor_never_shrinks,
)
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both, implies

SCALE, HEAD, SEGMENT, COUNTER, OUTPUTS = "SCALE", "HEAD", "SEGMENT", "COUNTER", "OUTPUTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What a device does with a reading's wave and with another one. `compute_then`: what the first truly took above
    its outputs; `compute_now`: what the other takes. `assumed`: name -> what it says, for the scalings that decide."""

    compute_then: int
    compute_now: int
    assumed: Mapping[str, bool]


def a_device(t: Given, anchor: Anchor, wave: tuple[int, int, int], state_bytes: int, without: str) -> Scaling:
    """Any device. HEAD and SEGMENT say what SCALE's charges are: without one of them its charge is anything."""
    then, now = t.integer("compute.then", 0), t.integer("compute.now", 0)
    row = t.integer("head.row", 0) if without == HEAD else LOGICAL_ROW_BYTES
    segment = t.integer("states.segment", 0) if without == SEGMENT else state_bytes
    (rows, logical, segments), unit = wave, anchor.packed_rows
    at = maximum(rows, unit)

    def within(numerator: int, denominator: int) -> bool:
        lacking = maximum(0, logical * denominator - anchor.logical_rows * numerator)
        lacks = maximum(0, segments * denominator - anchor.grad_segments * numerator)
        return now * denominator <= then * numerator + row * lacking + segment * lacks

    beyond_rows = logical * unit >= anchor.logical_rows * at
    beyond_segments = both(anchor.grad_segments >= 1, segments * unit >= anchor.grad_segments * at)
    return Scaling(
        compute_then=then,
        compute_now=now,
        assumed={
            SCALE: both(
                within(at, unit),
                implies(beyond_rows, within(logical, anchor.logical_rows)),
                implies(beyond_segments, within(segments, anchor.grad_segments)),
            ),
            COUNTER: then <= anchor.compute_bytes,
        },
    )


def the_bound_promise(t: Given, *, without: str = "") -> None:
    """The bound that one reading makes, lifted or not, is no lower than what the wave takes."""
    anchor, wave, state = an_anchor(t), a_wave(t), t.integer("G", 0)
    rows, logical, segments = wave
    device = a_device(t, anchor, wave, state, without)
    for name, says in device.assumed.items():
        if name != without:
            t.assume(says)
    bound = anchored_bound(anchor, LOGICAL_ROW_BYTES, state)
    at, unit, compute, now = (
        maximum(rows, bound.packed_rows),
        bound.packed_rows,
        anchor.compute_bytes,
        device.compute_now,
    )
    if not without:
        tell_counter(t, device, anchor, wave, at)
        # Which of the two the wave has more of, for each that the reading holds: one pair of charges for either case.
        of_rows, of_segments = (
            (LOGICAL_ROW_BYTES, anchor.logical_rows, logical),
            (state, anchor.grad_segments, segments),
        )
        first, second = t.choose((of_rows, of_segments), (of_segments, of_rows))
        t.assume(first[2] * second[1] >= first[1] * second[2])
        trusted = tell_duality(t, compute, unit, at, now, first, second)
        t.use(a_product_never_falls_as_both_factors_grow, trusted, at, bound.compute_bytes, at)
    value = scaled_bytes(bound, rows, logical, segments)
    if without:
        t.prove(now * unit <= value)
    else:
        step(t, now * unit <= value, "exactly")
        priced = bound_bytes(bound, rows, logical, segments)
        t.use(rounding_up_is_the_least_integer_above, value, unit)
        t.use(a_positive_factor_keeps_a_strict_order, unit, priced, now)
        t.prove(now <= priced, "rounded")


Charged = tuple[int, int, int]
"""Of rows or segments: the charge for each, how many the reading holds, how many the wave wants."""


def tell_duality(t: Given, compute: int, unit: int, rows: int, now: int, first: Charged, second: Charged) -> int:
    """a_peak_within_every_scaling_of_a_reading_is_within_its_bound, of these. Returns the compute that it trusts."""
    (charge, held, wanted), (other, has, wants) = first, second
    full = affordable_bytes(charge, compute, held)
    rest = affordable_bytes(other, compute - full * held, has)
    trusted = maximum(compute, full * held + rest * has)
    lacks, lacks_other = maximum(0, wanted * unit - held * rows), maximum(0, wants * unit - has * rows)
    premises = both(
        wanted * has >= held * wants,
        now * unit <= compute * rows + charge * lacks + other * lacks_other,
        implies(both(held >= 1, wanted * unit >= held * rows), now * held <= compute * wanted),
        implies(
            both(has >= 1, wants * unit >= has * rows),
            now * has <= compute * wants + charge * (wanted * has - held * wants),
        ),
    )
    t.assume(implies(premises, now * unit <= trusted * rows + full * lacks + rest * lacks_other))
    return trusted


def tell_counter(t: Given, device: Scaling, anchor: Anchor, wave: tuple[int, int, int], at: int) -> None:
    """What was read is at least what was taken, at each scaling."""
    for factor in (at, wave[1], wave[2]):
        t.use(a_product_never_falls_as_both_factors_grow, device.compute_then, factor, anchor.compute_bytes, factor)


@theorem("device", lemmas=ROUNDING, merging=(affordable_bytes,))
def what_a_wave_takes_is_within_the_bound_of_each_reading_of_its_device(t: Given) -> None:
    the_bound_promise(t)


OPAQUE = (anchored_bound, lifted_bytes, bound_bytes)
PRICING = (*ROUNDING, the_safety_factor_never_shrinks)


def the_price_promise(t: Given, *, without: str = "", of: str = "allocated") -> None:
    """The shipped price and `fits`, for evidence of any number of bands: whichever bound is the least is of a reading
    that the device made, so what the wave takes is within it (`the_bound_promise`), lifted or not.

    of: "allocated", or "footprint": then SCALE and the others are said of footprints, and the evidence is theirs.
    """
    made = t.profile if of == "allocated" else t.footprints
    profile: Evidence = made(retained=False, warm="fit")
    bands: Any = (Rest(Order(()), a_cover(t), an_anchor(t)), Rest(Order(()), a_cover(t, "other"), None))
    evidence = FrontierEvidence(peak=bands)
    evidence.derived[SOUND] = True
    known = t.valid(lambda: replace(profile, frontier=evidence))
    t.assume(known.complete_readings >= 2)
    wave = t.wave(workload=t.workload(True))
    t.assume(wave.packed_rows >= 1)
    taken, outputs, room = t.integer("compute.now", 0), t.integer("outputs.now", 0), t.integer("room", 0)
    if without != OUTPUTS:
        t.assume(outputs <= wave.output_bytes)
    charge, state = LOGICAL_ROW_BYTES, wave.segment_state_bytes
    plain = anchored_bound(bands[0].anchor, charge, state)
    t.assume(both(plain.packed_rows >= 1, plain.compute_bytes >= 0))  # every_anchor_makes_a_bound
    rows, others = trusted_rows(wave, known, True), (wave.logical_rows, wave.grad_segments)
    t.assume(bound_bytes(plain, wave.packed_rows, *others) >= taken)
    #   what_a_wave_takes_is_within_the_bound_of_each_reading_of_its_device
    told_of_bounds(t, peak_frontier(evidence, True, state).bounds, rows, *others)
    for bound in peak_frontier(evidence, True, state).bounds:
        # a_bound_never_falls_as_packed_rows_grow, a_bound_never_falls_as_it_is_lifted
        is_it_lifted = both(
            are_same(bound, raised(plain, bound.compute_bytes)), bound.compute_bytes >= plain.compute_bytes
        )
        higher = bound_bytes(bound, rows, *others) >= bound_bytes(plain, wave.packed_rows, *others)
        t.assume(implies(both(is_it_lifted, rows >= wave.packed_rows), higher))
    price = evidence_bytes(wave, known, FRONTIER, t.safety())
    budget = price + room  # any that admits it
    t.assume(fits(price, budget))
    t.prove(outputs + taken <= price, "within its price")
    t.prove(outputs + taken <= budget, "and so within the budget that admitted it")


@theorem("device", lemmas=PRICING, merging=(lifted,), opaque=OPAQUE)
def an_admitted_wave_stays_within_its_frontier_price(t: Given) -> None:
    the_price_promise(t)


@theorem("device", lemmas=PRICING, merging=(lifted,), opaque=OPAQUE)
def the_footprint_of_an_admitted_wave_stays_within_its_frontier_price(t: Given) -> None:
    """From FOOTPRINT-SCALE in the place of SCALE: the bound of a reading is made of a footprint as of a peak."""
    the_price_promise(t, of="footprint")


@theorem("device", lemmas=ROUNDING, merging=(scaled_bytes,))
def a_bound_never_falls_as_it_is_lifted(t: Given) -> None:
    anchor, (rows, logical, segments), extra = an_anchor(t), a_wave(t), t.integer("extra", 0)
    bound = anchored_bound(anchor, LOGICAL_ROW_BYTES, t.integer("G", 0))
    higher = raised(bound, bound.compute_bytes + extra)
    at = maximum(rows, bound.packed_rows)
    t.use(a_product_never_falls_as_both_factors_grow, bound.compute_bytes, at, higher.compute_bytes, at)
    step(t, scaled_bytes(bound, rows, logical, segments) <= scaled_bytes(higher, rows, logical, segments), "exactly")
    t.prove(bound_bytes(bound, rows, logical, segments) <= bound_bytes(higher, rows, logical, segments), "rounded")
