"""A price under the frontier law stays cheap whatever has been learned."""

from __future__ import annotations

from benchmarks import frontier_price
from pricing.kernel.bands import MOST_BANDS

LIMIT_US = 25.0


def test_a_price_with_every_band_filled_takes_at_most_25_microseconds() -> None:
    """Of CPU time, best of repeats: about 10 on a quiet core, so a busy one does not fail it."""
    figures = frontier_price.measure()
    assert figures["full"]["bands"] == MOST_BANDS
    assert figures["run"]["required_us"] <= LIMIT_US
    assert figures["full"]["required_us"] <= LIMIT_US
