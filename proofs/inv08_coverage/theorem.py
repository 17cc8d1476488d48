"""INV-8 on all integers, for any number of further readings.

The number is unbounded by induction: what a reading leaves behind (`is_remembered`) is established by observing it,
kept by observing any other, and implies the coverage that the invariant promises.
"""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.price import evidence_bytes
from pricing.kernel.profile import Evidence, observe
from pricing.kernel.quantities import TRUST_GROWTH
from pricing.kernel.rate_laws import WARM, all_readings_bytes
from pricing.kernel.reading import Reading
from pricing.kernel.wave import Wave
from proofs.lemmas import (
    MONOTONE,
    rounding_up_is_the_least_integer_above,
    tell_sharing,
    the_safety_factor_never_shrinks,
)
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both

COVERING = (*MONOTONE, rounding_up_is_the_least_integer_above, the_safety_factor_never_shrinks)


def is_remembered(profile: Evidence, reading: Reading) -> bool:
    """The profile's rates are at least the reading's: the all-readings rate, and the warm one, which is there."""
    warm, rate = profile.warm_bytes_per_row, reading.peak_bytes_per_row
    return warm is not None and both(profile.peak_bytes_per_row >= rate, warm >= rate)


def wave_of(t: Given, reading: Reading) -> Wave:
    """The wave that a reading came from, priced by any workload's rule, with any floors."""
    return t.wave(
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        grad_segments=reading.grad_segments,
        output_bytes=reading.output_bytes,
    )


@theorem("INV-8", lemmas=COVERING)
def the_all_readings_term_covers_a_reading_at_once(t: Given) -> None:
    before, reading = t.profile(retained=False), t.reading(retained=False)
    tell_sharing(t, before, reading)
    t.holds(contracts.all_readings_term_covers, before, reading, (), wave_of(t, reading))


@theorem("INV-8", lemmas=COVERING)
def the_all_readings_term_still_covers_after_any_further_reading(t: Given) -> None:
    """The inductive step: whatever the all-readings term covered, it covers after one more reading."""
    profile, other, wave = t.profile(retained=False), t.reading("other", retained=False), t.wave()
    growth, covered = t.integer("growth", 1), t.integer("covered", 0)
    t.assume(wave.packed_rows >= 1)
    tell_sharing(t, profile, other)
    t.assume(covered <= profile.peak_bytes_per_row * wave.packed_rows)
    t.prove(covered <= all_readings_bytes(wave, observe(profile, other), growth))


@theorem("INV-8", lemmas=COVERING)
def a_reading_after_the_seed_is_remembered_by_the_profile_it_makes(t: Given) -> None:
    profile, reading = t.profile(retained=False), t.reading(retained=False)
    t.assume(profile.complete_readings >= 1)
    t.assume(reading.packed_rows >= 1)
    tell_sharing(t, profile, reading)
    t.prove(is_remembered(observe(profile, reading), reading))


@theorem("INV-8", lemmas=COVERING)
def a_remembered_reading_is_still_remembered_after_any_other(t: Given) -> None:
    profile, reading, other = t.profile(retained=False), t.reading(retained=False), t.reading("other", retained=False)
    t.assume(reading.packed_rows >= 1)
    t.assume(is_remembered(profile, reading))
    t.assume(profile.complete_readings >= 1)
    tell_sharing(t, profile, other)
    after = observe(profile, other)
    t.prove(is_remembered(after, reading))
    t.prove(after.complete_readings >= 1, "and the seed stays seen")


@theorem("INV-8", lemmas=COVERING)
def a_remembered_reading_is_covered_by_every_law_s_price(t: Given) -> None:
    """required >= O + compute of the reading, with or without safety factor to spare, packed-priced or not."""
    profile, reading = t.profile(retained=False), t.reading(retained=False)
    t.assume(reading.packed_rows >= 1)
    t.assume(is_remembered(profile, reading))
    price = t.merged(evidence_bytes, wave_of(t, reading), profile, t.law(), t.safety())
    t.prove(price >= reading.output_bytes + reading.compute_bytes)


@theorem("INV-8", lemmas=COVERING, slow=True)
def the_warm_price_covers_a_reading_after_the_seed_at_once(t: Given) -> None:
    before, reading = t.profile(retained=False), t.reading(retained=False)
    workload = t.workload(t.choose(True, False))
    state = t.integer("segment_state", 0)
    tell_sharing(t, before, reading)
    t.holds(contracts.later_reading_stays_covered, before, reading, (), workload, WARM, t.safety(), state)


@theorem("INV-8", lemmas=COVERING)
def the_first_reading_teaches_less_than_a_byte_a_row_too_much(t: Given) -> None:
    t.holds(contracts.coverage_is_tight, t.reading())


@theorem("INV-8", lemmas=COVERING)
def the_seed_is_covered_until_a_warm_fit_is_there(t: Given) -> None:
    """What holds for the seed itself: the all-readings term covers it, so the price does while it decides."""
    profile, reading = t.profile(retained=False), t.reading(complete=True, retained=False)
    t.assume(profile.complete_readings == 0)
    t.assume(reading.packed_rows >= 1)
    tell_sharing(t, profile, reading)
    after, wave = observe(profile, reading), wave_of(t, reading)
    t.prove(all_readings_bytes(wave, after, TRUST_GROWTH) >= reading.compute_bytes, "the all-readings term")
    price = t.merged(evidence_bytes, wave, after, WARM, t.safety())
    t.prove(price >= reading.output_bytes + reading.compute_bytes, "the price")


@theorem("INV-8", lemmas=COVERING, slow=True)
def the_price_after_any_further_reading_covers_a_remembered_one(t: Given) -> None:
    """INV-8 on what the shipped functions make together, `required_bytes` of `observe`: for each rate law."""
    profile, reading, other = t.profile(retained=False), t.reading(retained=False), t.reading("other", retained=False)
    t.assume(both(reading.packed_rows >= 1, profile.complete_readings >= 1))
    t.assume(is_remembered(profile, reading))
    tell_sharing(t, profile, other)
    price = t.merged(evidence_bytes, wave_of(t, reading), observe(profile, other), t.law(), t.safety())
    t.prove(price >= reading.output_bytes + reading.compute_bytes)


@theorem("INV-8", lemmas=COVERING, slow=True)
def the_price_right_after_a_reading_covers_it(t: Given) -> None:
    """Likewise at once, complete or not: for each rate law, packed-priced or not, any reading after the seed."""
    profile, reading = t.profile(retained=False), t.reading(retained=False)
    t.assume(both(reading.packed_rows >= 1, profile.complete_readings >= 1))
    tell_sharing(t, profile, reading)
    price = t.merged(evidence_bytes, wave_of(t, reading), observe(profile, reading), t.law(), t.safety())
    t.prove(price >= reading.output_bytes + reading.compute_bytes)
