"""The reachability invariant by CrossHair."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.profile import Profile
from proofs.harness import profile_with, reading_of, warm_profile


def the_first_reading_leads_to_a_reachable_profile(packed: int, delta: int, logical: int, whole: bool) -> bool:
    """
    pre: 0 <= packed <= 10**9 and 0 <= delta <= 10**12 and 0 <= logical <= 10**9
    post: _
    """
    return contracts.profile_stays_reachable(Profile(), reading_of(packed, delta, logical=logical, whole=whole))


def the_second_complete_reading_leads_to_a_reachable_profile(rate: int, packed: int, delta: int, logical: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 0 <= packed <= 10**9 and 0 <= delta <= 10**12 and 0 <= logical <= 10**9
    post: _
    """
    return contracts.profile_stays_reachable(profile_with(rate), reading_of(packed, delta, logical=logical))


def later_readings_lead_to_reachable_profiles(rate: int, warm: int, floor_rows: int, packed: int, delta: int) -> bool:
    """
    pre: 0 <= warm <= rate <= 10**12 and 1 <= floor_rows <= 10**9 and 0 <= packed <= 10**9 and 0 <= delta <= 10**12
    post: _
    """
    return contracts.profile_stays_reachable(warm_profile(rate, warm, floor_rows), reading_of(packed, delta))
