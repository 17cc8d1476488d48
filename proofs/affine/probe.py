"""The price is not the warm term: below the evidence, its minimum with B*P loses the fixed cost."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.quantities import Safety
from pricing.kernel.rate_laws import WARM
from proofs.solver.proof import Given, refuted


@refuted("affine")
def the_warm_price_covers_affine_memory_at_every_size(t: Given) -> None:
    """False: B*P goes through the origin. B = W = 1, Pw = 100, a fixed cost of 100: one row is priced 1, needs 100.

    It is the law of the source documents as specified; the frontier law has no such minimum.
    """
    profile, wave = t.profile(retained=False, warm="fit"), t.wave(logical_rows=0, grad_segments=0, floor_bytes=0)
    fixed, rate = t.integer("fixed", 0), t.integer("rate", 0)
    warm, floor_rows = profile.warm_bytes_per_row, profile.warm_packed_rows
    assert warm is not None and floor_rows is not None, "a warm fit has both"
    t.assume(wave.packed_rows >= 1)
    t.assume(warm * floor_rows >= fixed + rate * floor_rows)
    price = t.merged(evidence_bytes, wave, profile, WARM, Safety(numerator=1, denominator=1))
    t.prove(price >= wave.output_bytes + fixed + rate * wave.packed_rows)
