"""INV-9 on all integers, clause by clause."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.profile import observe
from proofs.inv05_more_sharing.theorem import tell_reaches
from proofs.lemmas import MONOTONE, shared_rows_are_packed_rows_within_reach_and_clamped_beyond, tell_sharing
from proofs.solver.proof import Given, theorem


@theorem("INV-9", slow=True)
def observing_only_ratchets(t: Given) -> None:
    profile, reading = t.profile(), t.reading()
    tell_sharing(t, profile, reading)
    t.holds(contracts.observing_only_ratchets, profile, reading)


@theorem("INV-9")
def observing_a_peak_only_ratchets(t: Given) -> None:
    """The quick part: no retained bytes."""
    profile, reading = t.profile(retained=False), t.reading(retained=False)
    tell_sharing(t, profile, reading)
    t.holds(contracts.observing_only_ratchets, profile, reading)


@theorem("INV-9", slow=True)
def the_first_complete_reading_is_the_seed_and_makes_no_warm_fit(t: Given) -> None:
    profile, reading = t.profile(), t.reading(retained=False)
    tell_sharing(t, profile, reading)
    t.holds(contracts.first_complete_reading_is_the_seed, profile, reading)


@theorem("INV-9")
def the_second_complete_reading_makes_a_warm_fit_with_the_pending_rate_in_it(t: Given) -> None:
    profile, reading = t.profile(), t.reading(retained=False)
    tell_sharing(t, profile, reading)
    t.holds(contracts.second_complete_reading_makes_the_warm_fit, profile, reading)


@theorem("INV-9")
def an_incomplete_reading_never_completes_a_warm_fit(t: Given) -> None:
    profile, reading = t.profile(), t.reading(retained=False)
    tell_sharing(t, profile, reading)
    t.holds(contracts.incomplete_reading_never_completes, profile, reading)


@theorem("INV-9", slow=True, lemmas=(*MONOTONE, shared_rows_are_packed_rows_within_reach_and_clamped_beyond))
def an_incomplete_reading_never_lowers_the_price_of_a_plan_within_known_sharing(t: Given) -> None:
    profile, reading, wave = t.profile(retained=False), t.reading(complete=False, retained=False), t.wave()
    tell_sharing(t, profile, reading)
    tell_reaches(t, wave, profile, observe(profile, reading))
    t.holds(contracts.incomplete_reading_never_lowers, wave, profile, reading, t.law(), t.safety())
