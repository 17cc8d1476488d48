"""Liveness: no single reading may price a signature out of running for the rest of a run.

Rates only rise (INV-9). So one reading that is no rate of rows (a kernel tuned late in the run, 30 GB once; a call of a
few rows that pays a fixed cost) may price waves at many times their need, and nothing that is refused can show that.
Complete readings can: by assumption SCALE each of them bounds every wave, also those of which the price says far more.
They are kept as **witnesses**, of each class of size and sharing that of least compute a row, and the least of what
they say of a wave is its **witnessed price**, at the law's own safety factor.

A refused wave earns a probe where its price stands **against** its witnessed price: at `AGAINST` times it or more. The
probe runs once, alone, with the witnessed price held against the device. It proves nothing about the price, which
stays: the next such wave needs a probe of its own, and gets it, until a wave of the
signature runs out of memory.

Assumption AGAINST: where the price is twice what a complete reading says of the wave, it is the price that is wrong. A
signature that no complete reading was seen of has no witness, and starts cold as ever (assumption UNSEEN: of keys not
seen before nothing is known but floor and forecast, whatever one-time cost is still to come).
"""

from __future__ import annotations

from typing import Final

from pricing.kernel.frontier import anchored_bound, bound_bytes, trusted_rows
from pricing.kernel.law import Law
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import cold_footprint_bytes
from pricing.kernel.profile import Evidence, Profile
from pricing.kernel.quantities import (
    DEFAULT_SAFETY,
    LOGICAL_ROW_BYTES,
    TRUST_GROWTH,
    Safety,
    maximum,
    minimum,
    with_safety,
)
from pricing.kernel.wave import Wave

AGAINST: Final = 2
"""How many times its witnessed price a price must be before it is doubted. Waves of one signature differ by far less:
on the H200 traces no wave lies more than 0.1 % above what any complete reading says of it (SCALE, `pricing scale`)."""


def witnessed_compute_bytes(wave: Wave, evidence: Evidence, packed_priced: bool) -> int | None:
    """The least that a witness says of the wave's compute; None where none has seen an eighth of its rows (trust
    growth)."""
    rows = trusted_rows(wave, evidence, packed_priced)
    charge, state_bytes = (LOGICAL_ROW_BYTES, wave.segment_state_bytes) if packed_priced else (None, 0)
    least = None
    for anchor in evidence.witnesses:
        if rows <= TRUST_GROWTH * anchor.packed_rows:
            bound = anchored_bound(anchor, charge, state_bytes)
            said = bound_bytes(bound, rows, wave.logical_rows, wave.grad_segments)
            least = said if least is None else minimum(least, said)
    return least


def witnessed_evidence_bytes(wave: Wave, evidence: Evidence, law: Law, safety: Safety) -> int | None:
    """What the witnesses of one quantity make of a wave, as `evidence_bytes`; None where there are none."""
    compute = witnessed_compute_bytes(wave, evidence, not law.ineligibility(evidence, wave.workload))
    if compute is None:
        return None
    return with_safety(safety.numerator, safety.denominator, wave.output_bytes + maximum(wave.floor_bytes, compute))


def witnessed_bytes(
    wave: Wave, profile: Profile, law: Law = DEFAULT_LAW, safety: Safety = DEFAULT_SAFETY
) -> int | None:
    """The witnessed price, of a wave of 1 packed row or more; None where no complete reading bounds it.

    Never falls as P, L, S, O or F grow. The higher of both quantities'. A footprint is read once a size band, and that
    once may be the reading in doubt: so it is taken at no more than `COLD_FOOTPRINT` times the allocated.
    """
    allocated = witnessed_evidence_bytes(wave, profile, law, safety)
    if allocated is None:
        return None
    footprint = cold_footprint_bytes(wave, allocated)
    seen = witnessed_evidence_bytes(wave, profile.footprint, law, safety)
    return maximum(allocated, footprint if seen is None else minimum(seen, footprint))


def stands_against(required_bytes: int, witnessed: int | None) -> bool:
    """Whether a price is doubted: at `AGAINST` times the witnessed price or more."""
    return witnessed is not None and required_bytes >= AGAINST * witnessed
