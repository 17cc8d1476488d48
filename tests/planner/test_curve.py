"""The curve against the naive model at every width, its regimes, and the bounds around every layout."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.kernel.laws import LAWS
from pricing.kernel.price import required_bytes
from pricing.kernel.requests import ONE_LAYER_FULL, RequestSpec, signature_of, workload_of
from pricing.planner.batch import Batch, BatchError, PlanRequest
from pricing.planner.curve import Curve, gather
from pricing.planner.setting import Setting
from tests.planner.naive import (
    NaiveShape,
    grpo,
    items,
    learned,
    naive_shape,
    naive_signature,
    naive_wave,
    plan_request,
    spec_groups,
    training_items,
)

Items = Sequence[Sequence[PlanRequest]]
multiples = st.sampled_from([1, 1, 3, 64])


@given(items=items, multiple=multiples, data=st.data())
def test_every_width_has_the_shape_of_its_requests(items: Items, multiple: int, data: st.DataObject) -> None:
    batch = Batch(items)
    start = data.draw(st.integers(0, len(batch)))
    curve = Curve(batch, start, multiple)
    for width in range(1, curve.limit + 1):
        shape = curve.shape(width)
        requests = [batch.requests[at] for at in batch.item_requests(start, width)]
        assert naive_shape(requests, multiple) == NaiveShape(
            packed_rows=shape.packed_rows,
            unshared_rows=shape.unshared_rows,
            logical_rows=shape.logical_rows,
            segments=shape.segments,
            grad_segments=shape.grad_segments,
            output_bytes=shape.output_bytes,
        )
        assert shape.shared_rows == naive_shape(requests).packed_rows


@given(items=items, data=st.data())
def test_every_width_has_the_signature_and_workload_of_its_requests(items: Items, data: st.DataObject) -> None:
    batch = Batch(items)
    start = data.draw(st.integers(0, len(batch)))
    curve = Curve(batch, start)
    for width in range(1, curve.limit + 1):
        requests = [batch.requests[at] for at in batch.item_requests(start, width)]
        groups = spec_groups(requests)
        signature = curve.signature(width, ONE_LAYER_FULL, "t")
        assert signature == naive_signature(requests, Setting(topology="t"))
        assert signature.without_shares == signature_of(groups, ONE_LAYER_FULL, topology="t")
        assert curve.workload(width, ONE_LAYER_FULL) == workload_of(groups, ONE_LAYER_FULL)


@given(items=items)
def test_a_regime_is_a_stretch_of_one_signature_and_one_eligibility(items: Items) -> None:
    batch = Batch(items)
    curve = Curve(batch, 0)
    seen: list[Any] = []
    for width in range(1, curve.limit + 1):
        signature = curve.signature(width, ONE_LAYER_FULL, "")
        fixed = signature, curve.workload(width, ONE_LAYER_FULL).has_short_request
        if not seen or seen[-1][1] != fixed:
            seen.append((width, fixed))
        assert curve.regime(width).first_width == seen[-1][0]
        assert curve.last_width_of_regime(seen[-1][0], width) == width


@given(items=items, data=st.data())
def test_growing_the_curve_in_steps_changes_nothing(items: Items, data: st.DataObject) -> None:
    batch = Batch(items)
    whole, stepwise = Curve(batch, 0), Curve(batch, 0)
    for width in sorted(data.draw(st.sets(st.integers(1, max(1, whole.limit))))):
        if width <= whole.limit:
            assert stepwise.shape(width) == whole.shape(width)
            assert stepwise.regime(width) == whole.regime(width)


@given(items=items)
def test_no_quantity_falls_with_width(items: Items) -> None:
    curve = Curve(Batch(items), 0)
    shapes = [curve.shape(width) for width in range(1, curve.limit + 1)]
    for narrow, wide in itertools.pairwise(shapes):
        for field in ("packed_rows", "shared_rows", "unshared_rows", "logical_rows", "grad_segments", "segments"):
            assert getattr(narrow, field) <= getattr(wide, field), field


@pytest.mark.invariant("INV-3")
@given(items=training_items, law=st.sampled_from(list(LAWS.values())), data=st.data())
def test_any_layout_is_priced_between_full_sharing_and_none(items: Items, law: object, data: st.DataObject) -> None:
    """A layout that shares some prefixes: rows between the two counts, at most two segments a request (INV-3)."""
    batch = Batch(items)
    setting = Setting(segment_state_bytes=50_000)
    shape = gather(batch, range(len(batch.requests))).shape
    exact = naive_wave(batch.requests, setting)
    layout = replace(
        exact,
        packed_rows=data.draw(st.integers(shape.packed_rows, shape.unshared_rows)),
        grad_segments=data.draw(st.integers(0, 2 * len(batch.requests))),
    )
    lower = replace(exact, grad_segments=0)
    upper = replace(exact, packed_rows=shape.unshared_rows, grad_segments=2 * len(batch.requests))
    profile = learned(rows=300, sharing=data.draw(st.sampled_from([1, 3])))
    prices = [required_bytes(wave, profile, law) for wave in (lower, layout, upper)]  # type: ignore[arg-type]
    assert prices == sorted(prices)
    assert shape.grad_segments < 2 * len(batch.requests)


@pytest.mark.invariant("INV-13")
def test_inactive_requests_are_invisible() -> None:
    active = [[plan_request([0, 1])], [plan_request([0, 2])]]
    idle = plan_request([2, 2, 2], active=False, slot="other", grads=False)
    with_idle = Batch([[idle, *active[0]], [active[1][0], idle]])
    assert Curve(with_idle, 0).shape(2) == Curve(Batch(active), 0).shape(2)
    signature = Curve(with_idle, 0).signature(2, ONE_LAYER_FULL, "")
    assert signature == Curve(Batch(active), 0).signature(2, ONE_LAYER_FULL, "")


def test_requests_of_different_groups_share_no_row() -> None:
    same, slot, free = plan_request([0, 1]), plan_request([0, 1], slot="a"), plan_request([0, 1], grads=False)
    shape = Curve(Batch([[same, same, slot, free]]), 0).shape(1)
    assert (shape.packed_rows, shape.segments, shape.grad_segments) == (240, 3, 2)


def test_each_group_is_padded_on_its_own() -> None:
    """Three groups of 4k + 1 rows at a multiple of 4: 3 padding rows each, not 1 in all (public case D17)."""
    requests = []
    for slot in ("a", "b", "c"):
        spec = RequestSpec(input_shape=(81,), target_shape=(81,))
        requests.append(PlanRequest(tokens=list(range(81)), spec=spec, slot=slot))
    assert Curve(Batch([requests]), 0, 4).shape(1).packed_rows == 3 * 84


def test_a_batch_of_ten_thousand_one_token_requests() -> None:
    spec = RequestSpec(input_shape=(1,), target_shape=(1,))
    batch = Batch([[PlanRequest(tokens=[at % 3], spec=spec)] for at in range(10_000)])
    shape = Curve(batch, 0).shape(10_000)
    assert (shape.packed_rows, shape.segments, shape.logical_rows) == (3, 3, 10_000)


def test_cluster_puts_siblings_together_and_says_how() -> None:
    batch = grpo(prompts=3, rollouts=2, prompt=100, completion=20)
    mixed = Batch([batch.items[at] for at in (0, 2, 4, 1, 3, 5)])
    clustered, order = mixed.cluster()
    assert order == (0, 3, 1, 4, 2, 5)
    assert clustered.items == batch.items
    assert Curve(clustered, 0).shape(2).packed_rows < Curve(mixed, 0).shape(2).packed_rows


@given(items=items)
def test_cluster_is_a_permutation(items: Items) -> None:
    batch = Batch(items)
    clustered, order = batch.cluster()
    assert sorted(order) == list(range(len(batch)))
    assert [clustered.items[at] for at in range(len(batch))] == [batch.items[at] for at in order]


def test_tokens_and_shape_must_agree() -> None:
    spec = RequestSpec(input_shape=(3,), target_shape=(3,))
    with pytest.raises(BatchError, match="request 0: 2 tokens, but its input shape has 3"):
        Batch([[PlanRequest(tokens=[1, 2], spec=spec)]])


def test_one_slot_has_one_adapter_shape() -> None:
    first = plan_request([0], slot="a")
    with pytest.raises(BatchError, match="request 1: adapter 'rank-16' in slot 'a'"):
        Batch([[first], [replace(first, adapter="rank-16")]])
