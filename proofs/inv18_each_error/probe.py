"""INV-18 is about waves in proportion, and about a sixteenth."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import out_of_memory_footprint_bytes
from proofs.inv08_coverage.theorem import is_remembered
from proofs.inv16_out_of_memory.theorem import failed_reading
from proofs.solver.proof import Given, refuted
from proofs.solver.symbolic import both


@refuted("INV-18")
def a_failure_is_an_eighth_above_what_was_available(t: Given) -> None:
    """False: only where the allocator itself says more."""
    available = t.integer("available", 16)
    footprint = out_of_memory_footprint_bytes(available_bytes=available, reserved_bytes=0, requested_bytes=0)
    t.prove(8 * footprint >= 9 * available)


@refuted("INV-18")
def what_is_admitted_after_a_failure_has_fewer_rows_whatever_its_outputs(t: Given) -> None:
    """False: a wave of the same rows that asks for less may fit, and may fail anew."""
    footprints, failed = t.footprints(retained=False, warm="pending"), failed_reading(t)
    wave, available = t.wave(logical_rows=0, grad_segments=0), t.integer("available", 1)
    t.assume(is_remembered(footprints, failed))
    t.assume(both(16 * failed.peak_delta_bytes >= 17 * available, wave.packed_rows >= failed.packed_rows))
    t.prove(t.merged(evidence_bytes, wave, footprints, WARM) > available)
