"""INV-3 on all integers. That a layout's rows lie between full-sharing and no-sharing rows is the planner's to show."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.price import evidence_bytes
from proofs.lemmas import MONOTONE
from proofs.solver.proof import Given, theorem


@theorem("INV-3", lemmas=MONOTONE, merging=(evidence_bytes,))
def the_cheap_bounds_enclose_the_price_of_every_layout(t: Given) -> None:
    profile, wave = t.profile(retained=False), t.wave()
    full, unshared, requests = t.integer("full_sharing_rows", 0), t.integer("no_sharing_rows", 0), t.integer("n", 0)
    t.holds(contracts.bounds_enclose_the_price, wave, full, unshared, requests, profile, t.law(), t.safety())
