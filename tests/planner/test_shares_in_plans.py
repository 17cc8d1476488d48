"""Shares through the planner: of two waves of one signature, either prices the other (assumption SHARES).

`tests/adapters/trainer_rank/identity_pairs.py` asks the same of real decoders; here memory is a sum of costs a row of
each kind, and nothing is left to a safety factor.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pricing.kernel.price import allocated_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import Safety
from pricing.kernel.reading import Reading
from pricing.kernel.requests import NO_RECOMPUTE, RequestSpec, Signature
from pricing.kernel.wave import Wave
from pricing.planner.batch import Batch, PlanRequest
from pricing.planner.curve import Curve
from pricing.planner.setting import Setting

ONE = Safety(numerator=1, denominator=1)


def spec_of(kind: int, rows: int) -> RequestSpec:
    """Labels or logits; the first two kinds carry gradients."""
    wants_logits = kind % 2 == 1
    return RequestSpec(input_shape=(rows,), target_shape=None if wants_logits else (rows,), logits=wants_logits)


@dataclass(frozen=True, slots=True)
class Pair:
    """Rows of each of four kinds in two waves, and what a row of each costs."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    costs: tuple[int, ...]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    most, others = draw(st.sampled_from((4, 40, 3_000))), draw(st.sampled_from((20, 3_000)))
    first = draw(st.lists(st.integers(0, most), min_size=4, max_size=4).filter(any))
    if draw(st.booleans()):
        second = [rows * draw(st.integers(60, 150)) // 100 for rows in first]
    else:
        second = [draw(st.integers(1, others)) if rows else 0 for rows in first]
    costs = [0] * 4
    for kind in draw(st.sets(st.integers(0, 3), min_size=1, max_size=2)):
        costs[kind] = draw(st.sampled_from((1, 100_000)))
    return Pair(tuple(first), tuple(second), tuple(costs))


def wave_of(rows: tuple[int, ...]) -> tuple[Signature, Wave]:
    """The whole batch as one wave, planned by its own shares."""
    items = [[PlanRequest(spec=spec_of(kind, count), grads=kind < 2)] for kind, count in enumerate(rows) if count > 0]
    batch = Batch(items, share=False)
    curve = Curve(batch, 0)
    width = len(items)
    signature = curve.signature(width, NO_RECOMPUTE, "")
    workload = curve.workload(width, NO_RECOMPUTE)
    wave = Setting().wave(curve.shape(width), range(width), workload, cold=False, shares=signature.shares)
    return signature, wave


def need_bytes(rows: tuple[int, ...], costs: tuple[int, ...]) -> int:
    return sum(count * cost for count, cost in zip(rows, costs, strict=True))


def is_covered(pair: Pair) -> bool:
    """Whether the price of the second wave, learned from the first, is at least its need; true of other signatures."""
    if not any(pair.second):
        return True
    (signature, learned), (other, priced) = wave_of(pair.first), wave_of(pair.second)
    if signature != other:
        return True
    told = learned.evidence_rows
    if told.packed_rows == 0:
        return True  # teaches nothing
    reading = Reading(
        packed_rows=told.packed_rows,
        logical_rows=told.logical_rows,
        grad_segments=told.grad_segments,
        output_bytes=0,
        peak_delta_bytes=need_bytes(pair.first, pair.costs),
    )
    price = allocated_bytes(priced, observe(Profile(), reading), safety=ONE)
    return price >= need_bytes(pair.second, pair.costs)


@given(pair=pairs())
def test_what_one_wave_taught_covers_every_wave_of_its_signature(pair: Pair) -> None:
    assert is_covered(pair)
