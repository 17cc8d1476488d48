"""Layouts: what a trainer packs by them is exactly what was asked and what was priced."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.kernel.requests import RequestSpec
from pricing.planner.batch import Batch, PlanRequest
from pricing.planner.curve import gather
from pricing.planner.layout import NO_SEGMENT, Layout, layout_of
from pricing.planner.tokens import ArrayTokens, NumpyTokens, Tokens
from tests.planner.naive import items

Items = Sequence[Sequence[PlanRequest]]
BACKENDS: list[Tokens] = [NumpyTokens(), ArrayTokens()]
by_backend = pytest.mark.parametrize("tokens", BACKENDS, ids=lambda tokens: tokens.name)
multiples = st.sampled_from([1, 1, 3, 64])


def some_requests(batch: Batch, seed: int) -> list[int]:
    draw = random.Random(seed)
    chosen = [at for at in range(len(batch.requests)) if draw.random() < 0.7]
    draw.shuffle(chosen)
    return chosen


@by_backend
@given(items=items, multiple=multiples, seed=st.integers(0, 50))
def test_positions_rebuild_every_request(tokens: Tokens, items: Items, multiple: int, seed: int) -> None:
    batch = Batch(items, tokens=tokens)
    chosen = some_requests(batch, seed)
    layout = layout_of(batch, chosen, multiple)
    assert list(layout.request_positions) == chosen
    for at, positions in layout.request_positions.items():
        expected = list(batch.requests[at].tokens) if batch.is_active(at) else []
        assert [int(layout.token_ids[row]) for row in positions] == expected
        assert [int(layout.position_ids[row]) for row in positions] == list(range(len(expected)))


@by_backend
@given(items=items, multiple=multiples, seed=st.integers(0, 50))
def test_rows_are_those_that_were_priced(tokens: Tokens, items: Items, multiple: int, seed: int) -> None:
    batch = Batch(items, tokens=tokens)
    chosen = some_requests(batch, seed)
    layout, shape = layout_of(batch, chosen, multiple), gather(batch, chosen, multiple).shape
    assert layout.packed_rows == shape.packed_rows
    assert len(layout.segments) == shape.segments
    assert sum(group.rows for group in layout.groups) == shape.shared_rows
    for column in (layout.position_ids, layout.segment_ids, layout.parent_ids):
        assert len(column) == layout.packed_rows


@given(items=items, multiple=multiples)
def test_a_row_sees_exactly_its_prefix(items: Items, multiple: int) -> None:
    """Attention by segment ancestry: a row's ancestors and the rows before it in its own segment are its prefix."""
    batch = Batch(items)
    layout = layout_of(batch, range(len(batch.requests)), multiple)
    for positions in layout.request_positions.values():
        rows = [int(row) for row in positions]
        if rows:
            assert visible_rows(layout, rows[-1]) == sorted(rows)


def visible_rows(layout: Layout, row: int) -> list[int]:
    segment = int(layout.segment_ids[row])
    seen = list(range(layout.segments[segment].start, row + 1))
    while (segment := layout.segments[segment].parent) != NO_SEGMENT:
        seen += range(layout.segments[segment].start, layout.segments[segment].stop)
    return sorted(seen)


@given(items=items, multiple=multiples)
def test_segments_groups_and_padding_tile_the_rows(items: Items, multiple: int) -> None:
    batch = Batch(items)
    layout = layout_of(batch, range(len(batch.requests)), multiple)
    at = 0
    for group in layout.groups:
        assert group.start == at and group.padded_rows % multiple == 0 and group.padded_rows - group.rows < multiple
        for row in range(group.start + group.rows, group.start + group.padded_rows):
            columns = layout.token_ids, layout.position_ids, layout.segment_ids, layout.parent_ids
            assert [int(column[row]) for column in columns] == [0, 0, NO_SEGMENT, NO_SEGMENT]
        at += group.padded_rows
    assert at == layout.packed_rows
    for index, segment in enumerate(layout.segments):
        assert segment.start < segment.stop and segment.parent < index
        for row in (segment.start, segment.stop - 1):
            assert (int(layout.segment_ids[row]), int(layout.parent_ids[row])) == (index, segment.parent)
            assert int(layout.position_ids[row]) == segment.first_position + row - segment.start


@given(items=items, multiple=multiples, seed=st.integers(0, 50))
def test_both_backends_lay_out_the_same(items: Items, multiple: int, seed: int) -> None:
    layouts = []
    for tokens in BACKENDS:
        batch = Batch(items, tokens=tokens)
        layout = layout_of(batch, some_requests(batch, seed), multiple)
        columns = layout.token_ids, layout.position_ids, layout.segment_ids, layout.parent_ids
        positions = {at: [int(row) for row in rows] for at, rows in layout.request_positions.items()}
        layouts.append(([[int(value) for value in column] for column in columns], positions, layout.segments))
    assert layouts[0] == layouts[1]


@by_backend
def test_a_deep_chain_is_laid_out(tokens: Tokens) -> None:
    """10,000 nested prefixes: each request's rows are the first of one run, and one run is all the memory they take."""
    row = tokens.row(list(range(10_000)))
    requests = [
        PlanRequest(tokens=row[:length], spec=RequestSpec(input_shape=(length,), target_shape=(length,)))
        for length in range(1, 10_001)
    ]
    batch = Batch([requests], tokens=tokens)
    tracemalloc.start()
    layout = layout_of(batch, range(10_000))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert layout.packed_rows == 10_000 and len(layout.segments) == 10_000
    assert [int(at) for at in layout.request_positions[1_234]] == list(range(1_235))
    assert held < 2_000 * len(requests)
