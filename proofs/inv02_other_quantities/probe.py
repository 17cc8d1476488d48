"""What INV-2 must not be mistaken for."""

from __future__ import annotations

from dataclasses import replace

from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import WARM
from proofs.solver.proof import Given, refuted


@refuted("INV-2")
def a_further_logical_row_always_costs_its_charge(t: Given) -> None:
    """False: a wave that is not packed-priced pays no charge."""
    profile = t.profile(retained=False, warm="none")
    wave = t.wave(workload=t.workload(packed_priced=False))
    t.assume(wave.packed_rows >= 1)
    larger = t.valid(lambda: replace(wave, logical_rows=wave.logical_rows + 1))
    t.prove(t.merged(evidence_bytes, wave, profile, WARM) + 6144 <= t.merged(evidence_bytes, larger, profile, WARM))


@refuted("INV-2")
def outputs_are_charged_byte_for_byte(t: Given) -> None:
    """False: they are under the safety factor too."""
    profile, wave = t.profile(retained=False, warm="none"), t.wave()
    t.assume(wave.packed_rows >= 1)
    larger = t.valid(lambda: replace(wave, output_bytes=wave.output_bytes + 10))
    t.prove(t.merged(evidence_bytes, wave, profile, WARM) + 10 == t.merged(evidence_bytes, larger, profile, WARM))
