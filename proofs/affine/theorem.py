"""Where memory is a fixed cost plus a rate that the warm rate covers at the floor, the warm term covers every size."""

from __future__ import annotations

from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import WARM, warm_bytes, warm_rows
from proofs.lemmas import MONOTONE, a_rate_that_covers_at_the_floor_covers_above, the_safety_factor_never_shrinks
from proofs.solver.proof import Given, theorem


@theorem("affine", lemmas=MONOTONE)
def the_warm_term_covers_affine_memory_at_every_size(t: Given) -> None:
    """If W*Pw >= fixed + rate*Pw then the warm term is >= fixed + rate*P for every P, below the floor and above."""
    profile, wave, growth = t.profile(retained=False, warm="fit"), t.wave(), t.integer("growth", 1)
    fixed, rate = t.integer("fixed", 0), t.integer("rate", 0)
    warm, floor_rows, sharing = profile.warm_bytes_per_row, profile.warm_packed_rows, profile.warm_sharing
    assert warm is not None and floor_rows is not None and sharing is not None, "a warm fit has all three"
    t.assume(wave.packed_rows >= 1)
    t.assume(warm * floor_rows >= fixed + rate * floor_rows)
    term = warm_bytes(wave, profile, growth)
    assert term is not None, "a warm fit prices"
    rows = warm_rows(wave, floor_rows, sharing, growth)
    t.use(a_rate_that_covers_at_the_floor_covers_above, warm, fixed, rate, floor_rows, rows)
    t.prove(term >= fixed + rate * wave.packed_rows)


@theorem("affine", lemmas=(*MONOTONE, the_safety_factor_never_shrinks))
def the_price_covers_affine_memory_from_the_warm_floor_on(t: Given) -> None:
    """The price, too, for waves no smaller than the evidence, if the all-readings rate covers at the floor as well."""
    profile, wave, safety = t.profile(retained=False, warm="fit"), t.wave(), t.safety()
    fixed, rate = t.integer("fixed", 0), t.integer("rate", 0)
    warm, floor_rows = profile.warm_bytes_per_row, profile.warm_packed_rows
    assert warm is not None and floor_rows is not None, "a warm fit has both"
    t.assume(wave.packed_rows >= floor_rows)
    t.assume(warm * floor_rows >= fixed + rate * floor_rows)
    price = t.merged(evidence_bytes, wave, profile, WARM, safety)
    t.use(a_rate_that_covers_at_the_floor_covers_above, warm, fixed, rate, floor_rows, wave.packed_rows)
    t.prove(price >= fixed + rate * wave.packed_rows)
