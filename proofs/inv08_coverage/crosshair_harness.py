"""INV-8 by CrossHair."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.rate_laws import WARM
from proofs.harness import EXACT, PACKED_WORKLOAD, profile_with, reading_of, wave_of


def all_readings_term_covers(rate: int, packed: int, delta: int, outputs: int, whole: bool) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= packed <= 10**9 and 0 <= delta <= 10**12 and 0 <= outputs <= 10**12
    post: _
    """
    reading = reading_of(packed, delta, outputs=outputs, whole=whole)
    return contracts.all_readings_term_covers(profile_with(rate), reading, (), wave_of(packed, 0))


def a_later_reading_is_covered_by_the_bare_price(rate: int, packed: int, delta: int, outputs: int, whole: bool) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= packed <= 10**9 and 0 <= delta <= 10**12 and 0 <= outputs <= 10**12
    post: _
    """
    reading = reading_of(packed, delta, outputs=outputs, whole=whole)
    return contracts.later_reading_stays_covered(profile_with(rate), reading, (), PACKED_WORKLOAD, WARM, EXACT)


def a_later_reading_stays_covered_after_another(packed: int, delta: int, other_packed: int, other_delta: int) -> bool:
    """
    pre: 1 <= packed <= 10**6 and 0 <= delta <= 10**12 and 1 <= other_packed <= 10**6 and 0 <= other_delta <= 10**12
    post: _
    """
    reading, other = reading_of(packed, delta, whole=False), reading_of(other_packed, other_delta)
    return contracts.later_reading_stays_covered(profile_with(1), reading, (other,), PACKED_WORKLOAD, WARM, EXACT)


def coverage_is_tight(packed: int, delta: int, outputs: int) -> bool:
    """
    pre: 0 <= packed <= 10**9 and 0 <= delta <= 10**12 and 0 <= outputs <= 10**12
    post: _
    """
    return contracts.coverage_is_tight(reading_of(packed, delta, outputs=outputs))
