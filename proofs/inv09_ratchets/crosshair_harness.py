"""INV-9 by CrossHair, clause by clause."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.profile import Profile
from proofs.harness import profile_with, reading_of, warm_profile, wave_of


def observing_only_ratchets(rate: int, warm: int, floor_rows: int, packed: int, delta: int, whole: bool) -> bool:
    """
    pre: 0 <= warm <= rate <= 10**12 and 1 <= floor_rows <= 10**9 and 0 <= packed <= 10**9 and 0 <= delta <= 10**12
    post: _
    """
    return contracts.observing_only_ratchets(
        warm_profile(rate, warm, floor_rows), reading_of(packed, delta, whole=whole)
    )


def the_first_complete_reading_is_the_seed(packed: int, delta: int, whole: bool) -> bool:
    """
    pre: 0 <= packed <= 10**9 and 0 <= delta <= 10**12
    post: _
    """
    return contracts.first_complete_reading_is_the_seed(Profile(), reading_of(packed, delta, whole=whole))


def the_second_complete_reading_makes_the_warm_fit(rate: int, packed: int, delta: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= packed <= 10**9 and 0 <= delta <= 10**12
    post: _
    """
    return contracts.second_complete_reading_makes_the_warm_fit(profile_with(rate), reading_of(packed, delta))


def an_incomplete_reading_never_completes(rate: int, packed: int, delta: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 0 <= packed <= 10**9 and 0 <= delta <= 10**12
    post: _
    """
    reading = reading_of(packed, delta, whole=False)
    return contracts.incomplete_reading_never_completes(profile_with(rate), reading)


def an_incomplete_reading_never_lowers(rate: int, packed: int, delta: int, wave_rows: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= packed <= 10**6 and 0 <= delta <= 10**12 and 1 <= wave_rows <= 10**6
    post: _
    """
    reading = reading_of(packed, delta, whole=False)
    return contracts.incomplete_reading_never_lowers(wave_of(wave_rows, 0), profile_with(rate), reading)
