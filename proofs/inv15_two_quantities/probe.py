"""What INV-15 must not be mistaken for: neither of the two prices is the price by itself."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes, footprint_price_bytes, required_bytes
from pricing.kernel.rate_laws import WARM
from proofs.inv15_two_quantities.theorem import with_footprints
from proofs.solver.proof import Given, refuted


@refuted("INV-15", merging=(evidence_bytes,))
def the_footprint_always_decides(t: Given) -> None:
    """False: its evidence may be older or smaller than that of what is allocated."""
    wave, profile = t.wave(logical_rows=0, grad_segments=0), with_footprints(t, warm="none")
    t.assume(not profile.footprint.is_empty)
    t.prove(required_bytes(wave, profile, WARM) == footprint_price_bytes(wave, profile, WARM))


@refuted("INV-15", merging=(evidence_bytes,))
def allocated_bytes_are_all_that_a_device_runs_out_of(t: Given) -> None:
    """False: the price by which 64 of 77 waves ran out of memory."""
    wave, profile = t.wave(logical_rows=0, grad_segments=0), with_footprints(t, warm="none")
    t.prove(required_bytes(wave, profile, WARM) == evidence_bytes(wave, profile, WARM))
