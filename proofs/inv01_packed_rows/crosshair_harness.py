"""INV-1 by CrossHair: the same functions on Python's own integers, one quantity at a time."""

from __future__ import annotations

from pricing import contracts
from proofs.harness import profile_with, warm_profile, wave_of


def packed_price_never_falls(rate: int, packed: int, extra: int, logical: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= packed <= 10**9 and 0 <= extra <= 10**9 and 0 <= logical <= 10**9
    post: _
    """
    return contracts.price_never_falls_with_packed_rows(wave_of(packed, logical), extra, profile_with(rate))


def warm_price_never_falls(rate: int, warm: int, floor_rows: int, packed: int, extra: int) -> bool:
    """
    pre: 0 <= warm <= rate <= 10**12 and 1 <= floor_rows <= 10**9
    pre: 1 <= packed <= 10**9 and 0 <= extra <= 10**9
    post: _
    """
    profile = warm_profile(rate, warm, floor_rows)
    return contracts.price_never_falls_with_packed_rows(wave_of(packed, 0), extra, profile)
