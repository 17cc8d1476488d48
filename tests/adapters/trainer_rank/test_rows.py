"""Packed rows by themselves: what a forward's rows are, what they may not be, and a head that is asked for nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from adapters.trainer_rank import Request
from adapters.trainer_rank.binding import bind_model
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.head import HEAD_CHUNK_ROWS, HeadPlan, full_logits, token_numbers, top_k_log_probs
from adapters.trainer_rank.rows import (
    PADDING_SEGMENT,
    PackedRows,
    ancestry_intervals,
    branched_rows,
    no_rows,
    tree_rows,
    unshared_rows,
)
from tests.adapters.trainer_rank.support import CPU, tiny_decoder, tokens


def a_tree() -> PackedRows:
    """A root of three rows, two children of it, a child of the second, and another root."""
    segments = [tokens(3), tokens(2), tokens(4), tokens(1), tokens(5)]
    return tree_rows(segments, [-1, 0, 0, 2, -1], [1, 3, 4], CPU)


def test_a_tree_s_rows_know_their_place_in_each_request() -> None:
    rows = a_tree()
    assert (rows.packed_rows, rows.segment_count) == (15, 5)
    assert [list(positions) for positions in rows.request_positions] == [
        [0, 1, 2, 3, 4],
        [0, 1, 2, 5, 6, 7, 8, 9],
        [10, 11, 12, 13, 14],
    ]
    assert rows.logical_rows == 5 + 8 + 5
    assert rows.position_ids.tolist() == [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4]
    assert rows.segment_spans() == [(0, 3, -1), (3, 2, 0), (5, 4, 0), (9, 1, 2), (10, 5, -1)]


def test_an_interval_holds_those_of_its_own_subtree_and_no_others() -> None:
    parents = np.asarray([-1, 0, 0, 2, -1, 4, 2])
    starts, ends = ancestry_intervals(parents)
    for one in range(len(parents)):
        above, node = set(), one
        while node >= 0:
            above.add(node)
            node = int(parents[node])
        holders = {other for other in range(len(parents)) if starts[other] <= starts[one] < ends[other]}
        assert holders == above


def test_padding_rows_attend_to_one_another_alone() -> None:
    rows = a_tree()
    padded = replace(
        rows,
        token_ids=np.append(rows.token_ids, [0, 0]),
        position_ids=np.append(rows.position_ids, [0, 0]),
        segment_ids=np.append(rows.segment_ids, [PADDING_SEGMENT] * 2),
    )
    starts, ends = padded.ancestry_2P.tolist()
    for row in range(15):
        for padding in (15, 16):
            assert not starts[padding] <= starts[row] < ends[padding]
            assert not starts[row] <= starts[padding] < ends[row]
    assert starts[15] <= starts[16] < ends[15]
    assert padded.segment_spans() == rows.segment_spans()


@pytest.mark.parametrize(
    "change",
    [
        {"position_ids": np.zeros(14, dtype=np.int64)},
        {"segment_ids": np.zeros(14, dtype=np.int64)},
        {"segment_ids": np.full(15, 5)},
        {"segment_parents": np.asarray([-1, 1, 0, 2, -1])},
        {"segment_parents": np.asarray([-1, 2, 0, 2, -1])},
        {"segment_parents": np.asarray([0, 0, 0, 2, -1])},
    ],
    ids=["fewer positions", "fewer segments", "a segment that is not", "its own parent", "a later parent", "no root"],
)
def test_rows_that_cannot_be_are_noticed(change: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        replace(a_tree(), **change)


def test_the_last_segment_is_one_and_nothing_has_no_segment() -> None:
    rows = a_tree()
    assert replace(rows, segment_ids=np.full(15, 4)).segment_count == 5
    nothing = no_rows(CPU, 2)
    assert (nothing.packed_rows, nothing.logical_rows, nothing.segment_count, nothing.segment_spans()) == (0, 0, 0, [])
    assert nothing.ancestry_2P.shape == (2, 0)


def test_requests_of_their_own_share_no_row() -> None:
    rows = unshared_rows([tokens(3), tokens(1), tokens(2)], CPU)
    assert [list(positions) for positions in rows.request_positions] == [[0, 1, 2], [3], [4, 5]]
    assert rows.segment_parents.tolist() == [-1, -1, -1]
    assert rows.position_ids.tolist() == [0, 1, 2, 0, 0, 1]


def test_a_branch_of_nothing_is_its_prompt_again() -> None:
    rows = branched_rows([(tokens(3), [tokens(2), tokens(0), tokens(1)]), (tokens(2), [])], CPU)
    found = [list(positions) for positions in rows.request_positions]
    assert found == [[0, 1, 2, 3, 4], [0, 1, 2], [0, 1, 2, 5], [6, 7]]
    assert rows.position_ids.tolist() == [0, 1, 2, 3, 4, 3, 0, 1]
    assert rows.segment_parents.tolist() == [-1, 0, 0, -1]


# --- the head --------------------------------------------------------------------------------------------------------


def test_a_head_that_is_asked_for_nothing_gives_nothing_that_has_a_backward() -> None:
    hidden = torch.randn(4, 8, requires_grad=True)
    head, nowhere = torch.nn.Linear(8, 11), np.zeros(0, dtype=np.int64)
    values, ids = top_k_log_probs(hidden, head, nowhere, 3)
    assert (values.shape, ids.shape, ids.dtype) == ((0, 3), (0, 3), torch.int64)
    logits = full_logits(hidden, head, nowhere, 11)
    assert logits.shape == (0, 11)
    numbers = token_numbers(hidden, head, nowhere, nowhere, entropy_positions=nowhere)
    assert numbers.entropies is not None
    assert (numbers.log_probs.shape, numbers.entropies.shape) == ((0,), (0,))
    (values.sum() + logits.sum() + numbers.log_probs.sum() + numbers.entropies.sum()).backward()
    assert hidden.grad is not None and not hidden.grad.any()


@pytest.mark.parametrize("rows", [1, HEAD_CHUNK_ROWS, HEAD_CHUNK_ROWS + 1, 2 * HEAD_CHUNK_ROWS])
def test_a_row_is_projected_once_and_its_entries_end_with_its_chunk(rows: int) -> None:
    positions = np.repeat(np.arange(rows)[::-1], 2)
    plan = HeadPlan.of(positions, rows + 3)
    assert plan.rows.tolist() == list(range(rows))
    assert plan.chunk_count == -(-rows // HEAD_CHUNK_ROWS)
    assert plan.chunk_ends.tolist() == [2 * min(rows, (at + 1) * HEAD_CHUNK_ROWS) for at in range(plan.chunk_count)]
    assert np.array_equal(plan.rows[plan.row_of_entry], positions[plan.order])


def test_rows_beyond_the_hidden_size_are_rows_too_and_copies_are_announced() -> None:
    """More packed rows than the hidden states are wide."""
    hidden, head = torch.randn(9, 4), torch.nn.Linear(4, 11)
    positions = np.asarray([8, 3, 5])
    announced: list[int] = []
    right = head(hidden)[torch.from_numpy(positions)]
    logits = full_logits(hidden, head, positions, 11, before_copies=announced.append)
    torch.testing.assert_close(logits, right)
    assert announced == [3 * 11 * 4]
    values, ids = top_k_log_probs(hidden, head, positions, 2, before_copies=announced.append)
    wanted = right.log_softmax(dim=-1).topk(2)
    torch.testing.assert_close(values, wanted.values)
    assert torch.equal(ids, wanted.indices)
    assert announced[1:] == [3 * 2 * (4 + 8)], "values of 4 bytes and ids of 8"


def test_every_output_is_announced_to_the_byte() -> None:
    rows = unshared_rows([tokens(5), tokens(4), tokens(3)], CPU)
    requests = [
        Request(tokens=tokens(5), targets=np.roll(tokens(5), -1), top_k=3, entropy=True),
        Request(tokens=tokens(4), entropy=True, logits=True, temperature=0.5),
        Request(tokens=tokens(3), top_k=2, hidden_states=True),
    ]
    announced: list[tuple[int, int]] = []

    def before_outputs(size_bytes: int, *, copied_bytes: int = 0) -> None:
        announced.append((size_bytes, copied_bytes))

    model = bind_model(tiny_decoder())
    outputs = packed_forward(model, rows, requests, grads=True, before_outputs=before_outputs)
    made = sum(tensor.nbytes for output in outputs for tensor in output.tensors())
    assert made > 0 and sum(size for size, _ in announced) == made
    assert all(copied_bytes >= 0 for _, copied_bytes in announced)
