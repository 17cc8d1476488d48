"""INV-3 by CrossHair."""

from __future__ import annotations

from pricing import contracts
from proofs.harness import profile_with, wave_of


def bounds_enclose_the_price(rate: int, full: int, packed: int, unshared: int, segments: int, requests: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= full <= packed <= unshared <= 10**9
    pre: 0 <= segments <= 2 * requests <= 10**6
    post: _
    """
    wave = wave_of(packed, unshared, segments=segments, state=4_292_608)
    return contracts.bounds_enclose_the_price(wave, full, unshared, requests, profile_with(rate))
