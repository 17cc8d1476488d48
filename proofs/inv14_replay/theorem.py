"""INV-14. A price is a function of wave, profile, law and factor: run twice on the same symbols it gives the same term.

That nothing else can take part (clock, randomness, files, state that outlives a call) is a fact about the source, which
`structure.py` checks. That the record keeps the inputs exactly is the records' own test: integers as decimal text.
"""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.law import Law
from pricing.kernel.price import Quantity, evidence_bytes, quantity_price, retained_evidence_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.rate_laws import WARM
from proofs.solver.proof import Given, theorem


@theorem("INV-14", slow=True)
def a_price_from_copies_of_its_inputs_is_identical_in_every_part(t: Given) -> None:
    """Also: the explained price is the hot path's, required and retained."""
    t.holds(contracts.replay_is_identical, t.wave(), t.profile(), WARM)


@theorem("INV-14")
def the_parts_of_a_price_add_up_and_the_binding_term_decided_it(t: Given) -> None:
    t.holds(contracts.parts_add_up, t.wave(), t.profile(retained=False), t.law(), t.safety())


@theorem("INV-14", slow=True)
def the_explained_price_is_the_hot_path_s_under_any_safety_factor(t: Given) -> None:
    prove_that_both_prices_agree(t, t.profile(), t.law())


@theorem("INV-14", slow=True)
def the_explained_price_of_the_default_law_is_the_hot_path_s(t: Given) -> None:
    """The quick part: with a warm fit and a retained rate."""
    prove_that_both_prices_agree(t, t.profile(retained=True, warm="fit"), WARM)


def prove_that_both_prices_agree(t: Given, profile: Profile, law: Law) -> None:
    wave, safety = t.wave(), t.safety()
    explained = quantity_price(wave, profile, law, safety, Quantity.ALLOCATED)
    t.prove(explained.required_bytes == evidence_bytes(wave, profile, law, safety), "required")
    t.prove(explained.retained_bytes == retained_evidence_bytes(wave, profile, law, safety), "retained")
