"""What merging does not promise: prices follow the evidence of both, which may be a warm fit that one side lacked."""

from __future__ import annotations

from pricing.kernel.merge import merge
from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import WARM
from proofs.solver.proof import Given, refuted


@refuted("INV-19")
def a_merged_profile_never_prices_below_either(t: Given) -> None:
    """False, as for a further reading: the other process has seen its warm waves, and a lower rate is sound."""
    one, other = t.profile("one", retained=False, warm="none"), t.profile("other", retained=False, warm="fit")
    wave = t.wave(logical_rows=0, grad_segments=0)
    t.assume(one.complete_readings == 1)
    t.prove(t.merged(evidence_bytes, wave, one, WARM) <= t.merged(evidence_bytes, wave, merge(one, other), WARM))
