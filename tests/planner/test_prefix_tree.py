"""The prefix tree against a naive count of prefixes, and where trees are hard: deep, short, equal, many."""

from __future__ import annotations

import random
import time
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pricing.planner.prefix_tree import build_tree
from pricing.planner.tokens import ArrayTokens, NumpyTokens, TokenError, Tokens
from tests.planner.naive import naive_tree

BACKENDS: list[Tokens] = [NumpyTokens(), ArrayTokens()]
by_backend = pytest.mark.parametrize("tokens", BACKENDS, ids=lambda tokens: tokens.name)

rows_of_few_symbols = st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=9)


@by_backend
@given(rows=rows_of_few_symbols)
def test_packs_every_prefix_once(tokens: Tokens, rows: list[list[int]]) -> None:
    tree = build_tree(rows, tokens)
    assert (tree.packed_rows(), tree.segment_count) == naive_tree(rows)
    assert tree.packed_rows(shared_levels=0) == sum(map(len, rows))


@by_backend
@given(rows=rows_of_few_symbols)
def test_segments_spell_their_rows(tokens: Tokens, rows: list[list[int]]) -> None:
    """Runs tile each row, their members share the run, and siblings' tokens differ where they part."""
    tiles: dict[int, list[tuple[int, int]]] = {index: [] for index in range(len(rows))}
    for members, start, end in build_tree(rows, tokens).segments():
        assert len({tuple(rows[member][:end]) for member in members}) == 1
        for member in members:
            tiles[member].append((start, end))
    for index, runs in tiles.items():
        assert [0, *[end for _, end in sorted(runs)]] == [*[start for start, _ in sorted(runs)], len(rows[index])]


@given(rows=rows_of_few_symbols)
def test_both_backends_build_the_same_tree(rows: list[list[int]]) -> None:
    assert build_tree(rows, BACKENDS[0]) == build_tree(rows, BACKENDS[1])


@given(rows=rows_of_few_symbols, seed=st.integers(0, 100))
def test_order_of_rows_changes_neither_rows_nor_segments(rows: list[list[int]], seed: int) -> None:
    shuffled = random.Random(seed).sample(rows, len(rows))
    tree, other = build_tree(rows), build_tree(shuffled)
    assert (tree.packed_rows(), tree.segment_count) == (other.packed_rows(), other.segment_count)


@given(rows=rows_of_few_symbols)
def test_depth_first_rows_keep_siblings_adjacent(rows: list[list[int]]) -> None:
    """In depth-first order the members of every segment are one run of neighbours, in order of first appearance."""
    tree = build_tree(rows)
    order = tree.depth_first_rows()
    assert sorted(order) == list(range(len(rows)))
    for members, _, _ in tree.segments():
        places = sorted(order.index(member) for member in members)
        assert places == list(range(places[0], places[0] + len(members)))


@by_backend
@pytest.mark.parametrize("arrange", [sorted, lambda lengths: sorted(lengths, reverse=True), list])
def test_chain_of_10_000_nested_prefixes(tokens: Tokens, arrange: Callable[[Any], list[int]]) -> None:
    row = tokens.row(list(range(10_000)))
    lengths = list(range(1, 10_001))
    random.Random(3).shuffle(lengths)
    began = time.process_time()
    tree = build_tree([row[:length] for length in arrange(lengths)], tokens)
    assert time.process_time() - began < 2
    assert (tree.packed_rows(), tree.segment_count) == (10_000, 10_000)


@by_backend
def test_a_staircase_of_2_000_branches(tokens: Tokens) -> None:
    """Row i leaves the common path at depth i: every row branches off the one before it."""
    path = list(range(2_000))
    tree = build_tree([[*path[:depth], 9_999] for depth in range(2_000)], tokens)
    assert tree.packed_rows() == 2_000 - 1 + 2_000
    assert tree.segment_count == 2_000 - 2 + 2_000


@by_backend
def test_ten_thousand_requests_of_one_token(tokens: Tokens) -> None:
    rows = [[index % 7] for index in range(10_000)]
    tree = build_tree(rows, tokens)
    assert (tree.packed_rows(), tree.segment_count) == (7, 7)


@by_backend
def test_duplicates_add_no_row_and_no_segment(tokens: Tokens) -> None:
    once, often = build_tree([[1, 2, 3]], tokens), build_tree([[1, 2, 3]] * 5, tokens)
    assert (once.packed_rows(), once.segment_count) == (often.packed_rows(), often.segment_count) == (3, 1)


@by_backend
@pytest.mark.parametrize("rows", [[], [[]], [[], [], [4]], [[4], []]])
def test_empty_rows_end_at_the_root(tokens: Tokens, rows: list[list[int]]) -> None:
    tree = build_tree(rows, tokens)
    assert tree.packed_rows() == max((len(row) for row in rows), default=0)
    assert all(tree.terminals[index] == 0 for index, row in enumerate(rows) if not row)


def test_memory_is_linear_in_rows_and_segments() -> None:
    """1,024 rows of 1,000 tokens (8 MB): the tree may hold its nodes, not copies of tokens."""
    draw = numpy.random.default_rng(0)
    prompts = [draw.integers(0, 50_000, 600) for _ in range(64)]
    rows = [numpy.concatenate([prompts[index // 16], draw.integers(0, 50_000, 400)]) for index in range(1_024)]
    tracemalloc.start()
    tree = build_tree(rows)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 600 * (len(rows) + tree.segment_count)


WRITTEN: list[Any] = [
    [5, 6, 7],
    (5, 6, 7),
    [[5, 6, 7]],
    array("q", [5, 6, 7]),
    array("i", [5, 6, 7]),
    numpy.array([5, 6, 7], dtype=numpy.int32),
    numpy.array([[5, 6, 7]], dtype=numpy.uint16),
    numpy.array([5, 6, 7], dtype=numpy.uint64),
    torch.tensor([5, 6, 7]),
    torch.tensor([[5, 6, 7]], dtype=torch.int32),
]


@by_backend
@pytest.mark.parametrize("row", WRITTEN, ids=lambda row: f"{type(row).__module__}.{type(row).__name__}")
def test_rows_may_come_in_any_form(tokens: Tokens, row: Any) -> None:
    tree = build_tree([[5, 6, 8], row], tokens)
    assert (tree.packed_rows(), tree.segment_count) == (4, 3)


@by_backend
@pytest.mark.parametrize(
    "row",
    [
        [1.0],
        [1, 2.5],
        [True, False],
        [True, 2],
        ["a"],
        [None],
        [[1, 2], [3]],
        [1 << 64],
        numpy.array([1.0]),
        numpy.array([1 << 63], dtype=numpy.uint64),
        7,
        None,
        "12",
    ],
    ids=repr,
)
def test_what_is_no_row_of_integers_is_refused(tokens: Tokens, row: Any) -> None:
    with pytest.raises(TokenError, match="token ids must be"):
        build_tree([row], tokens)


def test_long_rows_that_part_late_and_early() -> None:
    """Around the block sizes of the comparison, both backends find the same first difference."""
    for length in (1, 127, 128, 129, 639, 640, 641, 20_000):
        base = list(range(length))
        for at in {0, 1, length // 2, length - 1}:
            changed = [*base[:at], -1, *base[at + 1 :]]
            for tokens in BACKENDS:
                for expected in (0, 1, at - 1, at, at + 1, length + 9):
                    assert tokens.first_difference(tokens.row(base), tokens.row(changed), 0, expected) == at
                assert tokens.first_difference(tokens.row(base), tokens.row(base[:at]), 0) == at
                assert tokens.first_difference(tokens.row(base), tokens.row(base), at) == length
