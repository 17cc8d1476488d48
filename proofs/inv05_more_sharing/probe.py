"""Beyond the older reach, learning more sharing is meant to cheapen: that is what it is for."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import PACKED
from proofs.inv05_more_sharing.theorem import profile_with_more_sharing
from proofs.solver.proof import Given, refuted


@refuted("INV-5")
def learning_more_sharing_cheapens_no_plan_at_all(t: Given) -> None:
    profile, wave = t.profile(retained=False, warm="none"), t.wave(workload=t.workload(packed_priced=True))
    more_shared = profile_with_more_sharing(t, profile)
    t.prove(t.merged(evidence_bytes, wave, profile, PACKED) <= t.merged(evidence_bytes, wave, more_shared, PACKED))
