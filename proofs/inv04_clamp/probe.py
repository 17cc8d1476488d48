"""The clamp is neither everywhere nor nowhere."""

from __future__ import annotations

from pricing.kernel.quantities import TRUST_GROWTH
from pricing.kernel.rate_laws import all_readings_bytes
from proofs.solver.proof import Given, refuted


@refuted("INV-4")
def the_clamp_never_binds(t: Given) -> None:
    profile, wave = t.profile(retained=False, warm="none"), t.wave()
    t.assume(wave.packed_rows >= 1)
    term = all_readings_bytes(wave, profile, TRUST_GROWTH)
    t.prove(term == profile.peak_bytes_per_row * wave.packed_rows)


@refuted("INV-4")
def the_clamp_binds_already_at_the_observed_sharing(t: Given) -> None:
    """False: up to 8 times the observed sharing, packed rows alone decide."""
    profile, wave = t.profile(retained=False, warm="none"), t.wave()
    t.assume(wave.packed_rows >= 1)
    t.assume(wave.logical_rows * profile.sharing.packed_rows > profile.sharing.logical_rows * wave.packed_rows)
    t.assume(profile.peak_bytes_per_row >= 1)
    term = all_readings_bytes(wave, profile, TRUST_GROWTH)
    t.prove(term > profile.peak_bytes_per_row * wave.packed_rows)
