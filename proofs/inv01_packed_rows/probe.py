"""What INV-1 must not be mistaken for: the price is no strictly growing function, and it may fall where L may."""

from __future__ import annotations

from dataclasses import replace

from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import WARM
from proofs.solver.proof import Given, refuted


@refuted("INV-1")
def every_further_packed_row_costs_something(t: Given) -> None:
    """False: below the warm floor, or where the sharing clamp decides, rows are free."""
    profile, wave = t.profile(retained=False, warm="fit"), t.wave()
    t.assume(profile.peak_bytes_per_row >= 1)
    larger = t.valid(lambda: replace(wave, packed_rows=wave.packed_rows + 1))
    t.prove(t.merged(evidence_bytes, wave, profile, WARM) < t.merged(evidence_bytes, larger, profile, WARM))


@refuted("INV-1")
def packed_rows_alone_decide_which_of_two_waves_costs_more(t: Given) -> None:
    """False: a wave of more rows and fewer logical rows may cost less."""
    profile, smaller = t.profile(retained=False, warm="none"), t.wave("smaller")
    larger = t.wave("larger", workload=smaller.workload)
    t.assume(smaller.packed_rows < larger.packed_rows)
    t.prove(t.merged(evidence_bytes, smaller, profile, WARM) <= t.merged(evidence_bytes, larger, profile, WARM))
