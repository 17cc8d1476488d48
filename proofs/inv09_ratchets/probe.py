"""Ratchets are of the profile, not of prices: a complete reading may lower a price, as the warm fit is meant to."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.profile import observe
from pricing.kernel.rate_laws import PACKED, WARM
from proofs.solver.proof import Given, refuted


@refuted("INV-9")
def no_reading_ever_lowers_a_price(t: Given) -> None:
    profile, reading = t.profile(retained=False, warm="none"), t.reading(complete=True, retained=False)
    wave = t.wave(logical_rows=0, grad_segments=0)
    t.assume(profile.complete_readings == 1)
    t.prove(
        t.merged(evidence_bytes, wave, profile, WARM) <= t.merged(evidence_bytes, wave, observe(profile, reading), WARM)
    )


@refuted("INV-9")
def an_incomplete_reading_never_lowers_any_price(t: Given) -> None:
    """False beyond 8 times the sharing already seen: more sharing was learned there."""
    profile, reading = t.profile(retained=False, warm="none"), t.reading(complete=False, retained=False)
    wave = t.wave(workload=t.workload(packed_priced=True), grad_segments=0)
    t.assume(profile.largest_packed_rows >= 1)
    after = observe(profile, reading)
    t.prove(t.merged(evidence_bytes, wave, profile, PACKED) <= t.merged(evidence_bytes, wave, after, PACKED))


@refuted("INV-9")
def every_reading_changes_the_profile(t: Given) -> None:
    profile, reading = t.profile(retained=False, warm="none"), t.reading(complete=False, retained=False)
    t.assume(reading.packed_rows >= 1)
    after = observe(profile, reading)
    t.prove(after.peak_bytes_per_row > profile.peak_bytes_per_row)
