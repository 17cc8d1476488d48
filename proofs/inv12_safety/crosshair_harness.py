"""INV-12 by CrossHair."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.quantities import Safety
from pricing.kernel.rate_laws import WARM
from proofs.harness import profile_with, wave_of


def safety_is_tight(rate: int, packed: int, outputs: int, floor: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 0 <= packed <= 10**9 and 0 <= outputs <= 10**12 and 0 <= floor <= 10**12
    post: _
    """
    return contracts.safety_is_tight(wave_of(packed, 0, outputs=outputs, floor=floor), profile_with(rate))


def safety_is_tight_for_other_factors(rate: int, packed: int, factor: int) -> bool:
    """
    pre: 0 <= rate <= 10**9 and 1 <= packed <= 10**9 and 51 <= factor <= 110
    post: _
    """
    safety = Safety(numerator=factor, denominator=50)
    return contracts.safety_is_tight(wave_of(packed, 0), profile_with(rate), WARM, safety)
