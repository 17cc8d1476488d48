"""INV-4 by CrossHair, with the growths that the laws use."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.quantities import Sharing
from proofs.harness import profile_with, wave_of


def clamp_is_exact(rate: int, packed: int, logical: int, packs: bool) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= packed <= 10**9 and 0 <= logical <= 10**9
    post: _
    """
    return contracts.clamp_is_exact(wave_of(packed, logical), profile_with(rate), 8 if packs else 1)


def clamp_is_exact_at_a_learned_sharing(rate: int, packed: int, logical: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= packed <= 10**9 and 0 <= logical <= 10**9
    post: _
    """
    learned = profile_with(rate, largest=16_205, sharing=Sharing(logical_rows=109_065, packed_rows=16_205))
    return contracts.clamp_is_exact(wave_of(packed, logical), learned)
