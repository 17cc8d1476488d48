"""The recurrent family of the benchmarks computes the gated delta rule: against the rule row by row, fp64."""

from __future__ import annotations

import torch
from torch import Tensor

from adapters.trainer_rank.rows import PackedRows, branched_rows
from benchmarks.h200.families import SLAB_CHUNKS, ChunkPlan, delta_rule
from tests.adapters.trainer_rank.support import CPU, tokens

HEADS, KEY, VALUE = 2, 4, 3


def a_tree() -> PackedRows:
    """Branches of several lengths, some equal, some longer than a chunk; more equal chunks than one slab takes."""
    short = [tokens(5) for _ in range(SLAB_CHUNKS + 3)]
    return branched_rows([(tokens(150), [*short, tokens(70), tokens(1)]), (tokens(64), [])], CPU)


def row_by_row(rows: PackedRows, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, strength: Tensor) -> Tensor:
    states: list[Tensor] = []
    outputs: list[Tensor] = []
    for first, count, parent in rows.segment_spans():
        state = states[parent] if parent >= 0 else torch.zeros(HEADS, KEY, VALUE, dtype=torch.float64)
        for row in range(first, first + count):
            state = state * decay[row].exp()[:, None, None]
            missing = value[row] - (key[row][:, None] @ state)[:, 0]
            state = state + key[row][:, :, None] * (strength[row][:, None] * missing)[:, None]
            outputs.append((query[row][:, None] @ state)[:, 0] * KEY**-0.5)
        states.append(state)
    return torch.stack(outputs)


def test_chunks_and_branching_states_follow_the_rule_in_outputs_and_gradients() -> None:
    torch.manual_seed(0)
    rows = a_tree()
    plan = ChunkPlan.of(rows, 4)
    count = rows.packed_rows
    inputs = [
        torch.nn.functional.normalize(torch.randn(count, HEADS, KEY, dtype=torch.float64), dim=-1),
        torch.nn.functional.normalize(torch.randn(count, HEADS, KEY, dtype=torch.float64), dim=-1),
        torch.randn(count, HEADS, VALUE, dtype=torch.float64),
        -torch.rand(count, HEADS, dtype=torch.float64),
        torch.rand(count, HEADS, dtype=torch.float64),
    ]
    weights = torch.randn(count, HEADS, VALUE, dtype=torch.float64)
    chunked = [tensor.clone().requires_grad_() for tensor in inputs]
    plain = [tensor.clone().requires_grad_() for tensor in inputs]
    query, key, value, log_decay, strength = (tensor[plan.order] for tensor in chunked)
    got = delta_rule(query, key, value, log_decay, strength, plan)[plan.back]
    wanted = row_by_row(rows, *plain)
    torch.testing.assert_close(got, wanted)
    (got * weights).sum().backward()
    (wanted * weights).sum().backward()
    for mine, reference in zip(chunked, plain, strict=True):
        torch.testing.assert_close(mine.grad, reference.grad)
