"""INV-14 by CrossHair."""

from __future__ import annotations

from pricing import contracts
from proofs.harness import profile_with, warm_profile, wave_of


def replay_is_identical(rate: int, packed: int, logical: int, packs: bool) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= packed <= 10**9 and 0 <= logical <= 10**9
    post: _
    """
    return contracts.replay_is_identical(wave_of(packed, logical, packs=packs), profile_with(rate))


def parts_add_up(rate: int, warm: int, floor_rows: int, packed: int, floor: int) -> bool:
    """
    pre: 0 <= warm <= rate <= 10**12 and 1 <= floor_rows <= 10**9 and 1 <= packed <= 10**9 and 0 <= floor <= 10**12
    post: _
    """
    return contracts.parts_add_up(wave_of(packed, 0, floor=floor), warm_profile(rate, warm, floor_rows))
