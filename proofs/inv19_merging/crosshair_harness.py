"""INV-19 by CrossHair: profiles before and after their warm fit, merged."""

from __future__ import annotations

from pricing import contracts
from proofs.harness import profile_with, warm_profile


def profiles_merge_the_same_in_either_order(rate: int, other_rate: int, warm: int, floor_rows: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 0 <= warm <= other_rate <= 10**12 and 1 <= floor_rows <= 10**9
    post: _
    """
    return contracts.merging_does_not_depend_on_order(profile_with(rate), warm_profile(other_rate, warm, floor_rows))


def merging_a_warm_profile_again_changes_nothing(rate: int, other_rate: int, warm: int, floor_rows: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 0 <= warm <= other_rate <= 10**12 and 1 <= floor_rows <= 10**9
    post: _
    """
    return contracts.merging_again_changes_nothing(profile_with(rate), warm_profile(other_rate, warm, floor_rows))
