"""What can keep a model from being forecast."""

from __future__ import annotations

from pricing.kernel.errors import PricingError


class ForecastError(PricingError):
    """The model could not be run without a device: why, in the words of what stopped it. The static floor stays."""
