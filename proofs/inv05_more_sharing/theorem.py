"""INV-5 on all integers: r and rw raised, nothing else changed."""

from __future__ import annotations

from dataclasses import replace

from pricing import contracts
from pricing.profile import Profile
from pricing.quantities import is_more_sharing
from proofs.lemmas import MONOTONE, rounding_up_is_the_least_integer_above
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import negation


def profile_with_more_sharing(t: Given, profile: Profile) -> Profile:
    """`profile` with its sharing fields raised (or kept), as any further readings could have raised them."""
    sharing, known = t.sharing("raised.r"), profile.sharing
    t.assume(negation(t.merged(is_more_sharing, known.logical_rows, known.packed_rows, sharing)))
    warm_known, warm = profile.warm_sharing, None
    if warm_known is not None:
        warm = t.sharing("raised.rw")
        t.assume(negation(t.merged(is_more_sharing, warm_known.logical_rows, warm_known.packed_rows, warm)))
    return t.valid(lambda: replace(profile, sharing=sharing, warm_sharing=warm))


@theorem("INV-5", lemmas=(*MONOTONE, rounding_up_is_the_least_integer_above))
def learning_more_sharing_alone_never_cheapens_a_plan_within_the_older_reach(t: Given) -> None:
    profile, wave = t.profile(retained=False), t.wave()
    more_shared = profile_with_more_sharing(t, profile)
    t.holds(contracts.more_sharing_never_cheapens, wave, profile, more_shared, t.law(), t.safety())
