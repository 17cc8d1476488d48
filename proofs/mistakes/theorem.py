"""The four historical mistakes: for each, what it breaks, refuted with a counterexample that replays on ints."""

from __future__ import annotations

from dataclasses import replace

from pricing.kernel.price import evidence_bytes
from pricing.kernel.profile import observe
from pricing.kernel.quantities import Safety
from pricing.kernel.rate_laws import LOGICAL, PACKED
from pricing.kernel.wave import Wave
from proofs.mistakes.rules import ratio_price, repaired_gate_price, size_gate_price, unclamped_price
from proofs.solver.proof import Given, refuted, theorem

NO_MARGIN = Safety(numerator=1, denominator=1)


def one_row_more(t: Given, wave: Wave) -> Wave:
    return t.valid(lambda: replace(wave, packed_rows=wave.packed_rows + 1))


@refuted("mistake-1")
def a_size_gate_never_drops_the_price_as_rows_grow(t: Given) -> None:
    """The price falls by nearly (B - W) * Pw in one row, at the gate (B 275 KB, W 247 KB, Pw 15,000: by 0.42 GB)."""
    profile, wave = t.profile(retained=False, warm="fit"), t.wave(logical_rows=0, grad_segments=0)
    larger = one_row_more(t, wave)
    t.prove(t.merged(size_gate_price, wave, profile) <= t.merged(size_gate_price, larger, profile))


@theorem("mistake-1")
def a_warm_floor_instead_of_the_gate_drops_nothing(t: Given) -> None:
    profile, wave = t.profile(retained=False, warm="fit"), t.wave(logical_rows=0, grad_segments=0)
    larger = one_row_more(t, wave)
    t.prove(t.merged(repaired_gate_price, wave, profile) <= t.merged(repaired_gate_price, larger, profile))


@refuted("mistake-2")
def ratio_pricing_covers_the_reading_it_learned_from(t: Given) -> None:
    """The rate of an unshared wave times the rows of a well-shared one lies far below the unshared wave's own peak."""
    profile, reading = t.profile(retained=False, warm="none"), t.reading(complete=False, retained=False)
    t.assume(reading.packed_rows >= 1)
    t.assume(reading.packed_rows <= reading.logical_rows)
    wave = t.wave(
        packed_rows=reading.packed_rows, logical_rows=reading.logical_rows, grad_segments=reading.grad_segments
    )
    t.prove(t.merged(ratio_price, wave, observe(profile, reading)) >= reading.compute_bytes)


@refuted("mistake-2")
def ratio_pricing_charges_a_shared_wave_for_the_rows_it_runs(t: Given) -> None:
    """From a profile learned unshared, the shipped `logical` law prices a shared wave by its logical rows (public case
    D02: 56.3 GiB predicted, 6.9 observed): up to 8 times the sharing seen, it should cost what its packed rows cost."""
    profile = t.profile(retained=False, warm="none")
    wave = t.wave(workload=t.workload(packed_priced=True), grad_segments=0)
    t.assume(wave.logical_rows * profile.sharing.packed_rows <= 8 * profile.sharing.logical_rows * wave.packed_rows)
    t.assume(profile.peak_bytes_per_row >= 100_000)
    price = t.merged(evidence_bytes, wave, profile, LOGICAL, NO_MARGIN)
    t.prove(price <= t.merged(evidence_bytes, wave, profile, PACKED, NO_MARGIN))


@refuted("mistake-2")
def the_highest_rate_times_the_largest_wave_was_seen_by_some_reading(t: Given) -> None:
    """Two maxima kept apart (public case D01): a wave no larger than one that ran is priced above everything seen."""
    profile, tiny = t.profile(retained=False, warm="none"), t.reading("tiny", complete=True, retained=False)
    large = t.reading("large", complete=False, retained=False)
    t.assume(profile.complete_readings == 0)
    t.assume(profile.peak_bytes_per_row == 0)
    t.assume(tiny.packed_rows >= 1)
    t.assume(large.packed_rows >= tiny.packed_rows)
    t.assume(large.compute_bytes >= tiny.compute_bytes)
    after = observe(observe(profile, tiny), large)
    wave = t.wave(logical_rows=0, grad_segments=0, floor_bytes=0, output_bytes=0)
    t.assume(wave.packed_rows <= large.packed_rows)
    price = t.merged(evidence_bytes, wave, after, LOGICAL, NO_MARGIN)
    t.prove(price <= large.compute_bytes + large.packed_rows)


@refuted("mistake-4")
def packed_pricing_without_the_clamp_never_drops_the_price_as_rows_grow(t: Given) -> None:
    """Beyond 8 times the observed sharing the old rule prices by logical rows; one packed row more brings the wave back
    inside, and the price falls to an eighth."""
    profile, wave = t.profile(retained=False, warm="none"), t.wave(grad_segments=0)
    t.assume(wave.packed_rows >= 1)
    larger = one_row_more(t, wave)
    t.prove(t.merged(unclamped_price, wave, profile) <= t.merged(unclamped_price, larger, profile))
