"""INV-10 by CrossHair: two readings of unshared waves, in either order, kind by kind."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.quantities import UNSHARED, more_sharing
from proofs.harness import profile_with, reading_of


def two_complete_readings_may_swap(packed: int, delta: int, other_packed: int, other_delta: int) -> bool:
    """
    pre: 1 <= packed <= 10**6 and 0 <= delta <= 10**12 and 1 <= other_packed <= 10**6 and 0 <= other_delta <= 10**12
    post: _
    """
    one, other = reading_of(packed, delta), reading_of(other_packed, other_delta)
    return contracts.order_does_not_matter(profile_with(1), one, other)


def a_complete_and_an_incomplete_reading_may_swap(packed: int, delta: int, other_packed: int, other_delta: int) -> bool:
    """
    pre: 1 <= packed <= 10**6 and 0 <= delta <= 10**12 and 1 <= other_packed <= 10**6 and 0 <= other_delta <= 10**12
    post: _
    """
    one, other = reading_of(packed, delta), reading_of(other_packed, other_delta, whole=False)
    return contracts.order_does_not_matter(profile_with(1), one, other)


def the_kept_sharing_does_not_depend_on_order(logical: int, packed: int, other_logical: int, other_packed: int) -> bool:
    """
    pre: 0 <= logical <= 40 and 1 <= packed <= 8 and 0 <= other_logical <= 40 and 1 <= other_packed <= 8
    post: _
    """
    one = more_sharing(more_sharing(UNSHARED, logical, packed), other_logical, other_packed)
    return one == more_sharing(more_sharing(UNSHARED, other_logical, other_packed), logical, packed)
