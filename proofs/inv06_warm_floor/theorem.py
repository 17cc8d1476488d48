"""INV-6 on all integers."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.price import evidence_bytes
from pricing.kernel.quantities import maximum, minimum, with_safety
from pricing.kernel.rate_laws import WARM
from proofs.lemmas import MONOTONE
from proofs.solver.proof import Given, theorem


@theorem("INV-6", lemmas=MONOTONE)
def a_wave_below_the_warm_floor_is_priced_warm_as_a_wave_of_the_floor(t: Given) -> None:
    profile, wave, growth = t.profile(retained=False, warm="fit"), t.wave(), t.integer("growth", 1)
    t.holds(contracts.warm_floor_holds, wave, profile, growth)


@theorem("INV-6", lemmas=MONOTONE)
def the_warm_price_is_at_least_the_lesser_of_the_two_terms(t: Given) -> None:
    """price >= sigma * min(B*P, W*max(Pw, P)): the true form of a statement that is false without the minimum."""
    profile, wave, safety = t.profile(retained=False, warm="fit"), t.wave(), t.safety()
    warm, floor_rows = profile.warm_bytes_per_row, profile.warm_packed_rows
    assert warm is not None and floor_rows is not None, "a warm fit has both"
    t.assume(wave.packed_rows >= 1)
    least = minimum(profile.peak_bytes_per_row * wave.packed_rows, warm * maximum(floor_rows, wave.packed_rows))
    price = t.merged(evidence_bytes, wave, profile, WARM, safety)
    t.prove(price >= with_safety(safety.numerator, safety.denominator, least))
