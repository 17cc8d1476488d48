"""Forecasts: what a model needs, before it runs and without a device."""
