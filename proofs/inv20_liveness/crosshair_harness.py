"""INV-20 by CrossHair."""

from __future__ import annotations

from pricing import contracts


def only_a_doubled_price_is_doubted(required: int, witnessed: int) -> bool:
    """
    pre: 0 <= required <= 10**13 and 0 <= witnessed <= 10**13
    post: _
    """
    return contracts.only_a_doubled_price_is_doubted(required, witnessed)
