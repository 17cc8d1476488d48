"""INV-11 by CrossHair."""

from __future__ import annotations

from pricing import contracts
from proofs.harness import profile_with, wave_of


def retained_is_never_above_required(rate: int, retained: int, packed: int, logical: int, packs: bool) -> bool:
    """
    pre: 0 <= retained <= rate <= 10**12 and 1 <= packed <= 10**9 and 0 <= logical <= 10**9
    post: _
    """
    profile = profile_with(rate, largest=1_000, retained=retained)
    return contracts.retained_is_never_above_required(wave_of(packed, logical, packs=packs), profile)


def retained_is_required_outside_the_windows(rate: int, retained: int, packed: int, logical: int, largest: int) -> bool:
    """
    pre: 0 <= retained <= rate <= 10**12 and 1 <= packed <= 10**9 and 0 <= logical <= 10**9 and 1 <= largest <= 10**9
    post: _
    """
    profile = profile_with(rate, largest=largest, retained=retained)
    return contracts.retained_is_required_outside_the_windows(wave_of(packed, logical), profile)


def retained_is_the_formula_inside_the_windows(rate: int, retained: int, packed: int, logical: int) -> bool:
    """
    pre: 0 <= retained <= rate <= 10**12 and 1 <= packed <= 8_000 and 0 <= logical <= 8 * packed
    post: _
    """
    profile = profile_with(rate, largest=1_000, retained=retained)
    return contracts.retained_is_the_formula_inside_the_windows(wave_of(packed, logical), profile)
