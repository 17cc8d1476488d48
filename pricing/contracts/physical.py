"""The invariants of the two quantities: what a wave allocates, and what its allocator takes of the device.

The same laws price both, each by its own evidence, so INV-1 to INV-12 hold of either as they stand in `rates`. Here is
what holds of the two together, and of waves that ran out of memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from pricing.contracts.rates import is_grown
from pricing.kernel.law import Law
from pricing.kernel.price import (
    evidence_bytes,
    footprint_price_bytes,
    price,
    required_bytes,
    retained_bytes,
    retained_evidence_bytes,
)
from pricing.kernel.profile import Evidence, Profile, broken_invariant, observe, observe_footprint
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading, ReadingKind, out_of_memory_footprint_bytes
from pricing.kernel.wave import Wave

# --- INV-15: the higher of two prices --------------------------------------------------------------------------------


def required_is_the_higher_price(
    wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-15: required is the allocated price or the footprint price, whichever is higher; the same of retained bytes;
    and the price names which (of equal ones the allocated)."""
    allocated, footprint = evidence_bytes(wave, profile, law, safety), footprint_price_bytes(wave, profile, law, safety)
    required, explained = required_bytes(wave, profile, law, safety), price(wave, profile, law, safety)
    return (
        required == max(allocated, footprint) == explained.required_bytes
        and (explained.allocated.required_bytes, explained.footprint.required_bytes) == (allocated, footprint)
        and explained.quantity == ("footprint" if footprint > allocated else "allocated")
        and retained_evidence_bytes(wave, profile, law, safety)
        <= retained_bytes(wave, profile, law, safety)
        <= required
    )


def footprint_is_priced_as_what_is_allocated(
    wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-15: the footprint's price is the same function of its own evidence; without evidence 4/3 of the allocated
    price, rounded up; and the outputs alone where nothing runs."""
    priced = footprint_price_bytes(wave, profile, law, safety)
    if wave.packed_rows == 0:
        return priced == wave.output_bytes
    if not profile.footprint.is_empty:
        return priced == evidence_bytes(wave, profile.footprint, law, safety)
    exact = 4 * evidence_bytes(wave, profile, law, safety)
    return exact <= 3 * priced < exact + 3


def required_never_falls(
    smaller: Wave, larger: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-15 with INV-1 and INV-2: the higher of the two never falls as a wave grows. Premise: as `is_grown`."""
    if not is_grown(smaller, larger):
        return True
    return required_bytes(smaller, profile, law, safety) <= required_bytes(larger, profile, law, safety)


def a_footprint_teaches_both(profile: Profile, reading: Reading) -> bool:
    """INV-15: the allocated evidence learns from a reading what it would learn without its footprint; the footprints
    learn by the same rules, with the footprint in the place of the peak, and nothing where there is none."""
    after, footprint = observe(profile, reading), reading.of_footprint
    if reading.packed_rows == 0 or footprint is None:
        return after.footprint == profile.footprint
    return (
        after.footprint == observe_footprint(profile.footprint, footprint)
        and broken_invariant(after.footprint) is None
        and after.peak_bytes_per_row >= reading.peak_bytes_per_row
        and after.footprint.peak_bytes_per_row >= footprint.peak_bytes_per_row
        and footprint.compute_bytes >= reading.compute_bytes
    )


# --- INV-16: what ran out of memory is never admitted again ----------------------------------------------------------


def failed_wave_is_never_admitted_again(
    before: Profile,
    failed: Reading,
    later: Sequence[Reading],
    wave: Wave,
    law: Law = WARM,
    safety: Safety = DEFAULT_SAFETY,
) -> bool:
    """INV-16: after a wave ran out of memory with A bytes available, no wave at least as large in every quantity fits
    A bytes or fewer, whatever is read later: it costs the footprint that was read, which is more than A.

    Premise: `failed` is such a reading and has rows, `wave` has at least its rows, logical rows, segments and outputs.
    """
    if not (is_failure(failed) and is_as_large(wave, failed)):
        return True
    profile = observe(before, failed)
    for reading in later:
        profile = observe(profile, reading)
    footprint = 0 if failed.footprint_bytes is None else failed.footprint_bytes
    return required_bytes(wave, profile, law, safety) >= footprint


def failed_footprint_stays_covered(
    before: Evidence, failed: Reading, later: Sequence[Reading], wave: Wave, law: Law, safety: Safety
) -> bool:
    """INV-16, of the footprints alone: what a failed wave was taken to need is covered by the price of every wave as
    large, also before the seed and after any further reading. Premise: as above; readings have it as their peak."""
    if not (is_failure(failed) and is_as_large(wave, failed)):
        return True
    footprint = observe_footprint(before, failed)
    for reading in later:
        if reading.packed_rows > 0:
            footprint = observe_footprint(footprint, reading)
    return evidence_bytes(wave, footprint, law, safety) >= failed.output_bytes + failed.compute_bytes


def is_failure(reading: Reading) -> bool:
    """Whether a reading is of a wave that ran out of memory, with rows."""
    return reading.kind is ReadingKind.OUT_OF_MEMORY and reading.packed_rows > 0


def is_as_large(wave: Wave, reading: Reading) -> bool:
    """Whether a wave is at least as large in every quantity as the one that was read."""
    return (
        wave.packed_rows >= reading.packed_rows
        and wave.logical_rows >= reading.logical_rows
        and wave.grad_segments >= reading.grad_segments
        and wave.output_bytes >= reading.output_bytes
    )


# --- INV-18: every error moves the price -----------------------------------------------------------------------------


def failure_is_above_what_was_available(available_bytes: int, reserved_bytes: int, requested_bytes: int) -> bool:
    """INV-16, INV-18: the footprint of a failed wave is above what was available to it, by 1/16 at least, and never
    below what the allocator had and asked for. Premise: counts."""
    if available_bytes < 0 or reserved_bytes < 0 or requested_bytes < 0:
        return True
    footprint = out_of_memory_footprint_bytes(
        available_bytes=available_bytes, reserved_bytes=reserved_bytes, requested_bytes=requested_bytes
    )
    return (
        footprint > available_bytes
        and 16 * footprint >= 17 * available_bytes
        and footprint >= reserved_bytes + requested_bytes
    )


def each_failure_raises_the_price(
    before: Profile, wave: Wave, available_bytes: int, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-18: a wave that was admitted and ran out of memory costs 17/16 of its old price at least from then on, and
    17/16 of what was available. Premise: it has rows and its price fitted."""
    priced = required_bytes(wave, before, law, safety)
    if wave.packed_rows == 0 or not 0 <= priced <= available_bytes:
        return True
    after = required_bytes(wave, observe(before, failure_of(wave, available_bytes)), law, safety)
    return 16 * after >= 17 * available_bytes >= 17 * priced


def failure_of(wave: Wave, available_bytes: int, reserved_bytes: int = 0, requested_bytes: int = 0) -> Reading:
    """The reading of a wave that ran out of memory with so much available."""
    return Reading.of(
        wave,
        peak_delta_bytes=0,
        footprint_bytes=out_of_memory_footprint_bytes(
            available_bytes=available_bytes, reserved_bytes=reserved_bytes, requested_bytes=requested_bytes
        ),
        kind=ReadingKind.OUT_OF_MEMORY,
    )


def narrower_waves_stay_dear(
    before: Profile,
    failed: Wave,
    narrower: Wave,
    available_bytes: int,
    law: Law = WARM,
    safety: Safety = DEFAULT_SAFETY,
) -> bool:
    """INV-18: after a failure, what is admitted into the same bytes has at most 16/17 of its packed rows.

    Premise: `narrower` has at least its packed rows' share of everything else (L / P, S / P and O / P are no less), and
    the two are of one kind. So n failures leave at most (16/17)**n of the rows that were first tried.
    """
    rows, fewer = failed.packed_rows, narrower.packed_rows
    in_proportion = (
        1 <= fewer <= rows
        and narrower.logical_rows * rows >= failed.logical_rows * fewer
        and narrower.grad_segments * rows >= failed.grad_segments * fewer
        and narrower.output_bytes * rows >= failed.output_bytes * fewer
        and narrower.segment_state_bytes == failed.segment_state_bytes
        and narrower.workload == failed.workload
    )
    if not in_proportion or available_bytes < 1:
        return True
    after = observe(before, failure_of(failed, available_bytes))
    admitted = required_bytes(narrower, after, law, safety) <= available_bytes
    return not admitted or 17 * fewer <= 16 * rows


def most_failures(first_rows: int, running_rows: int) -> int:
    """INV-18: the most out-of-memory errors of a signature under one budget, from waves of `first_rows` packed rows
    down to the `running_rows` that the device runs, at fixed sharing: the least n with first * (16/17)**n <= running.
    """
    failures, numerator, denominator = 0, first_rows, 1
    while numerator > running_rows * denominator:
        failures, numerator, denominator = failures + 1, numerator * 16, denominator * 17
    return failures
