"""A price does depend on each of its inputs: what is identical is not so because nothing is looked at."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import WARM
from proofs.solver.proof import Given, refuted


@refuted("INV-14")
def a_price_does_not_depend_on_the_profile(t: Given) -> None:
    one, other, wave = t.profile("one", retained=False), t.profile("other", retained=False, warm="none"), t.wave()
    t.prove(t.merged(evidence_bytes, wave, one, WARM) == t.merged(evidence_bytes, wave, other, WARM))


@refuted("INV-14")
def a_price_does_not_depend_on_the_safety_factor(t: Given) -> None:
    profile, wave = t.profile(retained=False, warm="none"), t.wave()
    one, other = t.safety("one"), t.safety("other")
    t.prove(t.merged(evidence_bytes, wave, profile, WARM, one) == t.merged(evidence_bytes, wave, profile, WARM, other))
