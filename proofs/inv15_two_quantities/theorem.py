"""INV-15 on all integers: any evidence of both quantities, none of footprints included, each rate law, any factor.

What INV-1 to INV-12 say of a price they say of either: their theorems are about `evidence_bytes` and any reachable
evidence. Here is what holds of the two together.
"""

from __future__ import annotations

from dataclasses import replace

from pricing import contracts
from pricing.kernel.price import (
    COLD_FOOTPRINT,
    cold_footprint_bytes,
    evidence_bytes,
    footprint_price_bytes,
    required_bytes,
    retained_bytes,
    retained_evidence_bytes,
)
from pricing.kernel.profile import Evidence, Profile, observe, observe_footprint
from pricing.kernel.quantities import UNSHARED, maximum, with_safety
from pricing.kernel.reading import Reading, ReadingKind
from proofs.inv10_order.theorem import is_equal
from proofs.lemmas import (
    MONOTONE,
    keeping_the_greater_sharing_keeps_the_order_of_two,
    rounding_up_is_the_least_integer_above,
    tell_sharing,
    the_safety_factor_never_falls_as_bytes_grow,
    the_safety_factor_never_shrinks,
)
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both

PRICES = (evidence_bytes, footprint_price_bytes, required_bytes)

COLD = (COLD_FOOTPRINT.numerator, COLD_FOOTPRINT.denominator)

KINDS = (
    (ReadingKind.WHOLE_WAVE, True, False),
    (ReadingKind.FORWARD_ONLY, True, False),
    (ReadingKind.OUT_OF_MEMORY, True, False),
)
"""A complete reading, an incomplete one, and one of a wave that ran out of memory."""


def with_footprints(t: Given, *, warm: str | None = None) -> Profile:
    """Any profile with any footprints that readings of it could have had; of footprints it may also know none."""
    profile, footprints = t.profile(retained=False, warm=warm), t.footprints(retained=False, warm=warm)
    return t.valid(lambda: replace(profile, footprint=footprints))


def tell_sharing_of(t: Given, footprints: Evidence, *readings: Reading) -> None:
    """As `tell_sharing`, of evidence of footprints."""
    warm = footprints.warm_sharing or UNSHARED
    for reading in readings:
        for lesser in (warm, UNSHARED):
            for greater in (footprints.sharing, warm):
                t.use(
                    keeping_the_greater_sharing_keeps_the_order_of_two,
                    lesser,
                    greater,
                    reading.logical_rows,
                    reading.packed_rows,
                )


@theorem("INV-15", merging=PRICES)
def required_is_the_higher_of_the_two_prices(t: Given) -> None:
    """Of equal ones either; without a footprint the allocated one, raised, which is never the lower."""
    wave, profile, law, safety = t.wave(), with_footprints(t), t.law(), t.safety()
    allocated = evidence_bytes(wave, profile, law, safety)
    footprint = footprint_price_bytes(wave, profile, law, safety)
    t.use(the_safety_factor_never_shrinks, COLD_FOOTPRINT.numerator, COLD_FOOTPRINT.denominator, allocated)
    t.prove(required_bytes(wave, profile, law, safety) == maximum(allocated, footprint))


@theorem("INV-15", merging=(evidence_bytes, retained_evidence_bytes, cold_footprint_bytes))
def retained_is_between_what_allocated_evidence_says_and_required(t: Given) -> None:
    wave, profile, law, safety = t.wave(), with_footprints(t, warm="fit"), t.law(), t.safety()
    retained = retained_bytes(wave, profile, law, safety)
    allocated = retained_evidence_bytes(wave, profile, law, safety)
    for fewer, more in ((allocated, evidence_bytes(wave, profile, law, safety)), (0, allocated)):
        t.use(the_safety_factor_never_falls_as_bytes_grow, *COLD, fewer, more)
    t.use(the_safety_factor_never_shrinks, *COLD, allocated)
    t.prove(retained >= allocated)
    t.prove(retained <= required_bytes(wave, profile, law, safety))


@theorem("INV-15", lemmas=(rounding_up_is_the_least_integer_above,), merging=PRICES)
def footprints_are_priced_as_what_is_allocated_or_as_four_thirds_of_it(t: Given) -> None:
    wave, profile, law, safety = t.wave(), with_footprints(t), t.law(), t.safety()
    t.holds(contracts.footprint_is_priced_as_what_is_allocated, wave, profile, law, safety)


@theorem("INV-15", lemmas=MONOTONE)
def the_price_of_a_footprint_never_falls_as_a_wave_grows(t: Given) -> None:
    """INV-1 and INV-2 where only footprints can be, with a warm rate known before the seed; else as of any evidence."""
    footprints, smaller = t.footprints(retained=False, warm="pending"), t.wave("smaller")
    larger = t.wave("larger", workload=smaller.workload)
    t.holds(contracts.price_never_falls, smaller, larger, footprints, t.law(), t.safety())


@theorem("INV-15")
def the_higher_of_two_prices_that_never_fall_never_falls(t: Given) -> None:
    """With INV-1 and INV-2 of either: `required_never_falls`, also where the one is made from the other."""
    allocated, more_allocated = t.integer("allocated", 0), t.integer("more_allocated")
    footprint, more_footprint = t.integer("footprint", 0), t.integer("more_footprint")
    t.assume(both(allocated <= more_allocated, footprint <= more_footprint))
    t.prove(maximum(allocated, footprint) <= maximum(more_allocated, more_footprint))
    t.use(the_safety_factor_never_falls_as_bytes_grow, *COLD, allocated, more_allocated)
    t.prove(with_safety(*COLD, allocated) <= with_safety(*COLD, more_allocated), "without a footprint")


@theorem("INV-15")
def a_footprint_teaches_both_bodies_of_evidence(t: Given) -> None:
    """Field by field: the allocated evidence what it would learn without, the footprints by the same rules."""
    shape = t.choose("none", "pending", "fit")
    profile = with_footprints(t, warm=shape)
    reading = t.reading(retained=False, kind=t.choose(*KINDS), footprint=True)
    told = reading.of_footprint
    assert told is not None, "it has one"
    t.assume(reading.packed_rows >= 1)
    tell_sharing(t, profile, reading)
    tell_sharing_of(t, profile.footprint, told)
    known = profile.footprint.sharing, profile.sharing
    t.use(keeping_the_greater_sharing_keeps_the_order_of_two, *known, reading.logical_rows, reading.packed_rows)
    after = observe(profile, reading)
    footprints = observe_footprint(profile.footprint, told)
    for field in Evidence.__slots__:
        if field != "frontier":
            t.prove(is_equal(getattr(after.footprint, field), getattr(footprints, field)), field)
    t.prove(after.peak_bytes_per_row >= reading.peak_bytes_per_row, "the allocated peak is learned")
    t.prove(after.footprint.peak_bytes_per_row >= told.peak_bytes_per_row, "the footprint is learned")
    t.prove(told.compute_bytes >= reading.compute_bytes, "and is never below the peak")


@theorem("INV-15")
def a_reading_without_a_footprint_teaches_footprints_nothing(t: Given) -> None:
    profile, reading = with_footprints(t, warm="fit"), t.reading(retained=False)
    tell_sharing(t, profile, reading)
    known = profile.footprint.sharing, profile.sharing
    t.use(keeping_the_greater_sharing_keeps_the_order_of_two, *known, reading.logical_rows, reading.packed_rows)
    t.prove(observe(profile, reading).footprint is profile.footprint)
