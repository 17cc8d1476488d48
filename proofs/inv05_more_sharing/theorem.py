"""INV-5 on all integers: r and rw raised, nothing else changed."""

from __future__ import annotations

from dataclasses import replace

from pricing import contracts
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import TRUST_GROWTH, is_more_sharing
from pricing.kernel.rate_laws import UNPACKED_GROWTH
from pricing.kernel.wave import Wave
from proofs.lemmas import (
    MONOTONE,
    shared_rows_are_packed_rows_within_reach_and_clamped_beyond,
    what_less_sharing_reaches_more_sharing_reaches,
)
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


def tell_reaches(t: Given, wave: Wave, before: Profile, after: Profile) -> None:
    """Hints: what the known sharing of `before` reaches, each sharing of `after` reaches too."""
    known = before.sharing if before.warm_sharing is None else before.warm_sharing
    for growth in (TRUST_GROWTH, UNPACKED_GROWTH):
        for more in (before.sharing, after.sharing, after.warm_sharing):
            if more is not None:
                lemma = what_less_sharing_reaches_more_sharing_reaches
                t.use(lemma, wave.packed_rows, wave.logical_rows, known, more, growth)


@theorem("INV-5", lemmas=(*MONOTONE, shared_rows_are_packed_rows_within_reach_and_clamped_beyond))
def learning_more_sharing_alone_never_cheapens_a_plan_within_the_older_reach(t: Given) -> None:
    profile, wave = t.profile(retained=False), t.wave()
    more_shared = profile_with_more_sharing(t, profile)
    tell_reaches(t, wave, profile, more_shared)
    t.holds(contracts.more_sharing_never_cheapens, wave, profile, more_shared, t.law(), t.safety())
