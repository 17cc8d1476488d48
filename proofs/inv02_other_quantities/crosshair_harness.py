"""INV-2 by CrossHair, one quantity at a time."""

from __future__ import annotations

from pricing import contracts
from proofs.harness import profile_with, warm_profile, wave_of


def price_never_falls_with_logical_rows(packed: int, logical: int, extra: int) -> bool:
    """
    pre: 1 <= packed <= 10**9 and 0 <= logical <= 10**9 and 0 <= extra <= 10**9
    post: _
    """
    return contracts.price_never_falls_with_logical_rows(wave_of(packed, logical), extra, profile_with(459_782))


def price_never_falls_with_segments(packed: int, segments: int, extra: int, state: int, packs: bool) -> bool:
    """
    pre: 1 <= packed <= 10**9 and 0 <= segments <= 10**6 and 0 <= extra <= 10**6 and 0 <= state <= 10**9
    post: _
    """
    wave = wave_of(packed, 0, packs=packs, segments=segments, state=state)
    return contracts.price_never_falls_with_segments(wave, extra, profile_with(1_000))


def price_never_falls_with_outputs(rate: int, packed: int, outputs: int, extra: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 0 <= packed <= 10**9 and 0 <= outputs <= 10**12 and 0 <= extra <= 10**12
    post: _
    """
    return contracts.price_never_falls_with_outputs(wave_of(packed, 0, outputs=outputs), extra, profile_with(rate))


def price_never_falls_with_the_floor(rate: int, packed: int, floor: int, extra: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 0 <= packed <= 10**9 and 0 <= floor <= 10**12 and 0 <= extra <= 10**12
    post: _
    """
    return contracts.price_never_falls_with_floor(wave_of(packed, 0, floor=floor), extra, profile_with(rate))


def charges_are_exact(rate: int, warm: int, packed: int, extra_rows: int, extra_segments: int, packs: bool) -> bool:
    """
    pre: 0 <= warm <= rate <= 10**12 and 1 <= packed <= 10**9
    pre: 0 <= extra_rows <= 10**6 and 0 <= extra_segments <= 10**6
    post: _
    """
    wave = wave_of(packed, packed, packs=packs, state=4_292_608)
    return contracts.charges_are_exact(wave, extra_rows, extra_segments, warm_profile(rate, warm, 1_000))
