"""Retained is no mere copy of required, and its windows end where they are said to."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes, retained_evidence_bytes
from pricing.kernel.quantities import TRUST_GROWTH
from pricing.kernel.rate_laws import PACKED
from proofs.solver.proof import Given, refuted


@refuted("INV-11")
def retained_evidence_bytes_always_equal_required_bytes(t: Given) -> None:
    profile, wave = t.profile(retained=True, warm="none"), t.wave()
    t.prove(t.merged(retained_evidence_bytes, wave, profile, PACKED) == t.merged(evidence_bytes, wave, profile, PACKED))


@refuted("INV-11")
def the_window_of_packed_rows_excludes_its_own_edge(t: Given) -> None:
    """False: a wave of exactly 8 times the largest packed rows is still trusted."""
    profile = t.profile(retained=True, warm="none")
    wave = t.wave(packed_rows=TRUST_GROWTH * profile.largest_packed_rows, logical_rows=0, grad_segments=0)
    t.assume(profile.largest_packed_rows >= 1)
    t.prove(t.merged(retained_evidence_bytes, wave, profile, PACKED) == t.merged(evidence_bytes, wave, profile, PACKED))
