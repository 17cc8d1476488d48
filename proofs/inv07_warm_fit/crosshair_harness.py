"""INV-7 by CrossHair."""

from __future__ import annotations

from pricing import contracts
from proofs.harness import profile_with, warm_profile, wave_of


def warm_fit_never_raises(rate: int, warm: int, floor_rows: int, packed: int, logical: int, packs: bool) -> bool:
    """
    pre: 0 <= warm <= rate <= 10**12 and 1 <= floor_rows <= 10**9
    pre: 1 <= packed <= 10**9 and 0 <= logical <= 10**9
    post: _
    """
    return contracts.warm_fit_never_raises(wave_of(packed, logical, packs=packs), warm_profile(rate, warm, floor_rows))


def without_a_warm_fit_both_laws_price_alike(rate: int, packed: int, logical: int, packs: bool) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 0 <= packed <= 10**9 and 0 <= logical <= 10**9
    pre: packed > 0 or logical == 0
    post: _
    """
    return contracts.warm_fit_never_raises(wave_of(packed, logical, packs=packs), profile_with(rate))
