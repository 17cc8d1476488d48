"""INV-18 by CrossHair."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.rate_laws import WARM
from proofs.harness import EXACT, profile_with, wave_of


def a_failure_is_above_what_was_available(available: int, reserved: int, requested: int) -> bool:
    """
    pre: 0 <= available <= 10**13 and 0 <= reserved <= 10**13 and 0 <= requested <= 10**13
    post: _
    """
    return contracts.failure_is_above_what_was_available(available, reserved, requested)


def each_failure_raises_the_price(rate: int, packed: int, room: int) -> bool:
    """
    pre: 1 <= rate <= 10**6 and 1 <= packed <= 10**6 and 0 <= room <= 10**9
    post: _
    """
    available = 2 * rate * packed + room
    return contracts.each_failure_raises_the_price(profile_with(rate), wave_of(packed, 0), available, WARM, EXACT)
