"""INV-6 by CrossHair."""

from __future__ import annotations

from pricing import contracts
from proofs.harness import warm_profile, wave_of


def warm_floor_holds(rate: int, warm: int, floor_rows: int, packed: int, logical: int) -> bool:
    """
    pre: 0 <= warm <= rate <= 10**12 and 1 <= floor_rows <= 10**9
    pre: 1 <= packed <= 10**9 and 0 <= logical <= 10**9
    post: _
    """
    return contracts.warm_floor_holds(wave_of(packed, logical), warm_profile(rate, warm, floor_rows))
