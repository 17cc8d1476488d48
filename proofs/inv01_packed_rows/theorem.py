"""INV-1 on all integers: any reachable profile, any wave, each rate law, packed-priced or not, any safety factor."""

from __future__ import annotations

from pricing import contracts
from proofs.lemmas import MONOTONE
from proofs.solver.proof import Given, theorem


@theorem("INV-1", lemmas=MONOTONE)
def required_bytes_never_fall_as_packed_rows_grow(t: Given) -> None:
    profile, wave, extra_rows = t.profile(), t.wave(), t.integer("extra_rows", 0)
    t.holds(contracts.price_never_falls_with_packed_rows, wave, extra_rows, profile, t.law(), t.safety())


@theorem("INV-1", lemmas=MONOTONE, slow=True)
def required_bytes_never_fall_as_a_wave_grows_in_every_quantity_at_once(t: Given) -> None:
    profile, smaller = t.profile(retained=False), t.wave("smaller")
    larger = t.wave("larger", workload=smaller.workload)
    t.holds(contracts.price_never_falls, smaller, larger, profile, t.law(), t.safety())
