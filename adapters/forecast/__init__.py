"""Forecasts: what a model needs, before it runs and without a device."""

from pricing.neighbours import warn_of_foreign_adapters

warn_of_foreign_adapters()
