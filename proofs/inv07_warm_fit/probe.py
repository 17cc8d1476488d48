"""The warm fit does lower prices, and it does not always."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import PACKED, WARM
from proofs.solver.proof import Given, refuted


@refuted("INV-7")
def the_warm_fit_changes_no_price(t: Given) -> None:
    profile, wave = t.profile(retained=False, warm="fit"), t.wave()
    t.prove(t.merged(evidence_bytes, wave, profile, WARM) == t.merged(evidence_bytes, wave, profile, PACKED))


@refuted("INV-7")
def a_lower_warm_rate_always_lowers_the_price(t: Given) -> None:
    """False: for waves below the warm floor the all-readings term may be the lower one."""
    profile, wave = t.profile(retained=False, warm="fit"), t.wave(logical_rows=0)
    warm = profile.warm_bytes_per_row
    assert warm is not None, "a warm fit has a rate"
    t.assume(warm < profile.peak_bytes_per_row)
    t.assume(wave.packed_rows >= 1)
    t.prove(t.merged(evidence_bytes, wave, profile, WARM) < t.merged(evidence_bytes, wave, profile, PACKED))
