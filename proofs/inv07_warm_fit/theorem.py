"""INV-7 on all integers."""

from __future__ import annotations

from dataclasses import replace

from pricing import contracts
from pricing.kernel.price import evidence_bytes
from pricing.kernel.rate_laws import WARM
from proofs.lemmas import MONOTONE
from proofs.solver.proof import Given, theorem


@theorem("INV-7", lemmas=MONOTONE)
def the_warm_law_never_prices_above_the_packed_law_and_equals_it_without_a_fit(t: Given) -> None:
    t.holds(contracts.warm_fit_never_raises, t.wave(), t.profile(retained=False), t.safety())


@theorem("INV-7", lemmas=MONOTONE)
def a_pending_warm_rate_prices_nothing(t: Given) -> None:
    """A rate raised before the fit is complete leaves every price as it was without it."""
    profile, wave, safety, law = t.profile(retained=False, warm="pending"), t.wave(), t.safety(), t.law()
    without = t.valid(lambda: replace(profile, warm_bytes_per_row=None))
    t.prove(
        t.merged(evidence_bytes, wave, profile, law, safety) == t.merged(evidence_bytes, wave, without, law, safety)
    )


@theorem("INV-7", lemmas=MONOTONE)
def a_higher_warm_rate_never_lowers_a_price(t: Given) -> None:
    profile, wave, safety = t.profile(retained=False, warm="fit"), t.wave(), t.safety()
    higher = t.integer("higher_rate", 0)
    warm = profile.warm_bytes_per_row
    assert warm is not None, "a warm fit has a rate"
    t.assume(warm <= higher)
    hotter = t.valid(lambda: replace(profile, warm_bytes_per_row=higher))
    t.prove(
        t.merged(evidence_bytes, wave, profile, WARM, safety) <= t.merged(evidence_bytes, wave, hotter, WARM, safety)
    )
