"""What INV-16 does not say: of smaller waves, and of what was available to another wave."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import WARM
from proofs.inv08_coverage.theorem import is_remembered
from proofs.inv16_out_of_memory.theorem import failed_reading
from proofs.solver.proof import Given, refuted
from proofs.solver.symbolic import both


@refuted("INV-16")
def a_wave_of_fewer_rows_than_a_failed_one_costs_as_much(t: Given) -> None:
    """False, and it must be: the next plan is narrower."""
    footprints, failed = t.footprints(retained=False, warm="pending"), failed_reading(t)
    wave = t.wave(logical_rows=0, grad_segments=0, output_bytes=failed.output_bytes)
    t.assume(both(is_remembered(footprints, failed), wave.packed_rows < failed.packed_rows))
    price = t.merged(evidence_bytes, wave, footprints, WARM)
    t.prove(price >= failed.output_bytes + failed.compute_bytes)


@refuted("INV-16")
def a_wave_of_fewer_outputs_than_a_failed_one_costs_as_much(t: Given) -> None:
    """False: outputs are priced as they are, beside what was learned."""
    footprints, failed = t.footprints(retained=False, warm="pending"), failed_reading(t)
    wave = t.wave(packed_rows=failed.packed_rows, logical_rows=0, grad_segments=0)
    t.assume(is_remembered(footprints, failed))
    price = t.merged(evidence_bytes, wave, footprints, WARM)
    t.prove(price >= failed.output_bytes + failed.compute_bytes)
