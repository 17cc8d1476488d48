"""Typed errors of packed execution. Those of the loop are `adapters.wave_loop.errors`'."""

from __future__ import annotations

from pricing.kernel.errors import PricingError


class UnsupportedModelError(PricingError):
    """A model whose packed execution would not equal its unshared one, or that cannot run packed rows at all."""


class RequestError(PricingError):
    """A request that contradicts itself, for example labels of another length than its tokens."""
