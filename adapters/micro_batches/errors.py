"""What can be wrong with a call."""

from __future__ import annotations

from pricing import PricingError, QuantityError


class ItemRowsError(PricingError):
    """An item whose rows are no count. `item` is its position."""

    def __init__(self, item: int, error: QuantityError) -> None:
        super().__init__(f"item {item}: {error}")
        self.item = item


class HeadError(PricingError):
    """A head that is neither of the two."""
