"""The premises of INV-3 are needed: with one segment a request, the upper bound is none."""

from __future__ import annotations

from dataclasses import replace

from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import WARM
from proofs.solver.proof import Given, refuted


@refuted("INV-3")
def one_segment_a_request_would_do_for_the_upper_bound(t: Given) -> None:
    profile, wave, requests = t.profile(retained=False, warm="none"), t.wave(), t.integer("n", 1)
    unshared = t.integer("no_sharing_rows", 1)
    t.assume(wave.packed_rows >= 1)
    t.assume(wave.packed_rows <= unshared)
    t.assume(wave.grad_segments <= 2 * requests)
    upper = t.valid(lambda: replace(wave, packed_rows=unshared, grad_segments=requests))
    t.prove(t.merged(evidence_bytes, wave, profile, WARM) <= t.merged(evidence_bytes, upper, profile, WARM))


@refuted("INV-3")
def the_bounds_coincide(t: Given) -> None:
    profile, wave = t.profile(retained=False, warm="fit"), t.wave()
    full = t.integer("full_sharing_rows", 1)
    t.assume(full <= wave.packed_rows)
    lower = t.valid(lambda: replace(wave, packed_rows=full, grad_segments=0))
    t.prove(t.merged(evidence_bytes, lower, profile, WARM) >= t.merged(evidence_bytes, wave, profile, WARM))
