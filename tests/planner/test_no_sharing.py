"""Batches that share nothing: rows add up or are padded, whatever the tokens are, and lengths are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.contracts.widths import rows_never_fall_with_width
from pricing.kernel.laws import LAWS
from pricing.kernel.profile import Profile
from pricing.kernel.requests import RequestSpec
from pricing.planner.batch import Batch, BatchError, PlanRequest
from pricing.planner.curve import Curve, WaveShape
from pricing.planner.layout import layout_of
from pricing.planner.plan import Verdict, plan_batch, plan_wave
from pricing.planner.row_shapes import RowShape, unshared_rows
from pricing.planner.setting import Setting
from tests.planner.naive import grpo, items, learned, training_items

Items = Sequence[Sequence[PlanRequest]]
multiples = st.sampled_from([1, 1, 3, 64])
lengths = st.lists(st.integers(0, 300), max_size=12)


def of_lengths(lengths: Sequence[int]) -> Batch:
    """One request an item, by its length alone."""
    return Batch([[PlanRequest(spec=RequestSpec(input_shape=(rows,), logits=True))] for rows in lengths], share=False)


def padded(batch: Batch, multiple: int = 1) -> Setting:
    """The setting of padded waves of this batch."""

    def rows(_shape: WaveShape, requests: Sequence[int]) -> int:
        return unshared_rows((batch.lengths[at] for at in requests), RowShape.PADDED, multiple)

    return Setting(topology="padded", rank_rows=rows)


def made_different(given: Items) -> list[list[PlanRequest]]:
    """The same requests with tokens that no two share: what sharing nothing means."""
    number = 0
    apart: list[list[PlanRequest]] = []
    for item in given:
        apart.append([])
        for request in item:
            number += 1
            apart[-1].append(replace(request, tokens=[-number] * len(request.tokens)))
    return apart


@given(items=items, multiple=multiples)
def test_without_sharing_a_batch_is_one_of_tokens_that_all_differ(items: Items, multiple: int) -> None:
    ours, theirs = Curve(Batch(items, share=False), 0, multiple), Curve(Batch(made_different(items)), 0, multiple)
    for width in range(1, len(items) + 1):
        assert ours.shape(width) == theirs.shape(width)
        assert ours.shape(width).packed_rows == ours.shape(width).unshared_rows
        assert ours.regime(width) == theirs.regime(width)


@given(items=training_items, share=st.booleans(), multiple=multiples, data=st.data())
def test_rows_never_fall_with_width_in_any_shape(items: Items, share: bool, multiple: int, data: st.DataObject) -> None:
    batch = Batch(items, share=share)
    start = data.draw(st.integers(0, len(items) - 1))
    curve = Curve(batch, start, multiple)
    widths = range(1, curve.limit + 1)
    assert rows_never_fall_with_width([curve.shape(width).packed_rows for width in widths])
    for shape in (RowShape.PACKED, RowShape.PADDED):
        rows = [
            unshared_rows((batch.lengths[at] for at in batch.item_requests(start, width)), shape, multiple)
            for width in widths
        ]
        assert rows_never_fall_with_width(rows)


def a_shape_that_falls(lengths: Sequence[int]) -> int:
    """Padding to the last sequence instead of the longest: the mistake that the contract is there for."""
    return len(lengths) * lengths[-1]


def test_the_contract_notices_a_shape_whose_rows_fall() -> None:
    falling = [a_shape_that_falls([300, 10, 10][:width]) for width in (1, 2, 3)]
    assert not rows_never_fall_with_width(falling)


@pytest.mark.parametrize(
    ("shape", "rows"),
    [(RowShape.PACKED, lambda lengths: sum(lengths)), (RowShape.PADDED, lambda lengths: len(lengths) * max(lengths))],
)
@given(lengths=lengths.filter(bool), data=st.data())
def test_rows_are_those_of_the_tensor(
    shape: RowShape, rows: Callable[[list[int]], int], lengths: list[int], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(lengths))
    assert unshared_rows(lengths, shape) == unshared_rows(shuffled, shape) == rows(lengths)
    for multiple in (8, 64):
        rounded = unshared_rows(lengths, shape, multiple)
        assert rounded % multiple == 0 and rows(lengths) <= rounded <= rows(lengths) + multiple * len(lengths)


@pytest.mark.parametrize("law", list(LAWS))
@given(lengths=lengths.filter(lambda drawn: any(drawn)), available=st.integers(0, 3_000_000), data=st.data())
def test_a_padded_wave_is_the_widest_whose_every_narrower_one_fits(
    law: str, lengths: list[int], available: int, data: st.DataObject
) -> None:
    """The search gallops; one width after the other must say the same."""
    batch = of_lengths(lengths)
    start = data.draw(st.integers(0, len(lengths) - 1))
    signature = plan_wave(batch, profiles={}, available_bytes=0, setting=padded(batch)).signature
    book = {signature: learned(rows=500, bytes_per_row=1_000)}
    plan = plan_wave(batch, start=start, profiles=book, available_bytes=available, setting=padded(batch), law=LAWS[law])
    widest = 0
    for width in range(1, len(lengths) - start + 1):
        alone = Batch(batch.items[start : start + width], share=False)
        one = plan_wave(
            Batch([[request for item in alone.items for request in item]], share=False),
            profiles=book,
            available_bytes=available,
            setting=padded(alone),
            law=LAWS[law],
        )
        if one.verdict is not Verdict.RUN:
            break
        widest = width
    assert (plan.width if plan.verdict is Verdict.RUN else 0) == widest
    if plan.width:
        own = lengths[start : start + plan.width]
        assert plan.wave.packed_rows == len(own) * max(own)
        assert plan.wave.logical_rows == sum(own)


@given(items=items, multiple=multiples)
def test_the_layout_of_a_batch_that_shares_nothing_rebuilds_every_request(items: Items, multiple: int) -> None:
    batch = Batch(items, share=False)
    layout = layout_of(batch, range(len(batch.requests)), multiple)
    taken: list[int] = []
    for at, positions in layout.request_positions.items():
        expected = list(batch.requests[at].tokens) if batch.is_active(at) else []
        assert [int(layout.token_ids[row]) for row in positions] == expected
        taken.extend(int(row) for row in positions)
    assert len(taken) == len(set(taken)), "no row serves two requests"


def test_lengths_alone_plan_but_have_no_layout() -> None:
    batch = of_lengths([70, 90])
    plan = plan_wave(batch, profiles={}, available_bytes=1 << 30)
    assert plan.wave.packed_rows == 70
    with pytest.raises(BatchError, match="request 0: was planned by its length alone"):
        plan.layout(batch)
    with pytest.raises(BatchError, match="request 0: has no tokens to find prefixes in"):
        Batch(batch.items)
    with pytest.raises(BatchError, match="3 tokens, but its input shape has 70"):
        Batch([[replace(batch.requests[0], tokens=[1, 2, 3])]], share=False)


def test_clustering_keeps_sharing_off() -> None:
    batch, order = Batch(grpo(2, 3, 100, 30).items, share=False).cluster()
    assert not batch.share and order == (0, 1, 2, 3, 4, 5)
    plan = plan_batch(batch, profiles=lambda _: Profile(), available_bytes=1 << 40)
    assert plan.waves[0].wave.packed_rows == plan.waves[0].wave.logical_rows
