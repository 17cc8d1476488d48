"""What can be wrong with a trainer or its batch."""

from __future__ import annotations

from pricing import PricingError


class UnslicableBatchError(PricingError):
    """A batch that cannot be cut along its items."""


class UnsupportedTrainerError(PricingError):
    """A trainer whose step cannot run as waves, and why."""
