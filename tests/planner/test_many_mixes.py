"""Batches in which every request asks for something else: memory of their curve grows with them, not squared."""

from __future__ import annotations

import tracemalloc

from pricing.kernel.requests import NO_RECOMPUTE, RequestSpec
from pricing.planner.batch import Batch, PlanRequest
from pricing.planner.curve import Curve


def distinct_mixes(count: int) -> Batch:
    spec = [RequestSpec(input_shape=(4,), top_k=1 + (at * 7_919) % count) for at in range(count)]
    return Batch([[PlanRequest(tokens=[1, 2, 3, at], spec=spec[at])] for at in range(count)])


def curve_bytes(batch: Batch) -> int:
    tracemalloc.start()
    try:
        curve = Curve(batch, 0)
        curve.shape(len(batch))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_linear_in_the_number_of_mixes() -> None:
    few, many = (curve_bytes(distinct_mixes(count)) for count in (500, 4_000))
    assert many < 24 * few, "eight times the mixes: near eight times the bytes, and far from 64 times"
    assert many < 2_000 * 4_000


def test_every_width_has_the_mixes_of_its_own_requests() -> None:
    batch = distinct_mixes(40)
    curve = Curve(batch, 0)
    curve.shape(40)
    for width in (1, 2, 17, 40):
        wanted = tuple(sorted(batch.mixes[:width]))
        assert curve.workload(width, NO_RECOMPUTE).request_mixes == wanted
        assert curve.signature(width, NO_RECOMPUTE, "").request_mixes == wanted
