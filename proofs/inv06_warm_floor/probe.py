"""The warm floor is really there, and it does not make small waves free of the all-readings term."""

from __future__ import annotations

from pricing.kernel.quantities import TRUST_GROWTH
from pricing.kernel.rate_laws import warm_bytes
from proofs.solver.proof import Given, refuted


@refuted("INV-6")
def the_warm_term_goes_through_the_origin(t: Given) -> None:
    """False: that would be the size gate's other half, W*P below the floor."""
    profile, wave = t.profile(retained=False, warm="fit"), t.wave(logical_rows=0)
    t.assume(wave.packed_rows >= 1)
    term, warm = warm_bytes(wave, profile, TRUST_GROWTH), profile.warm_bytes_per_row
    assert term is not None and warm is not None, "a warm fit prices"
    t.prove(term == warm * wave.packed_rows)
