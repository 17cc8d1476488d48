"""Packed execution: shared rows give what unshared rows give, outputs and gradients, fp32 on CPU to 1e-5."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from adapters.trainer_rank.attention import ancestry_mask, packed_attention, touched_blocks
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.head import HEAD_CHUNK_ROWS, target_log_probs
from adapters.trainer_rank.request import Request
from adapters.trainer_rank.rows import PackedRows, ancestry_intervals, branched_rows, unshared_rows
from benchmarks.h200.families import FAMILIES, build
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL
from tests.adapters.trainer_rank.support import (
    CPU,
    VOCABULARY,
    a_tree,
    assert_same,
    assert_shared_equals_unshared,
    every_kind_of_request,
    request_tokens,
    results,
    tiny_decoder,
    tokens,
)


@pytest.mark.parametrize("recompute", [ONE_LAYER_FULL, NO_RECOMPUTE], ids=str)
def test_shared_equals_unshared_for_every_kind_of_output(recompute: object) -> None:
    assert_shared_equals_unshared(tiny_decoder(recompute=recompute), a_tree())


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_equals_unshared_in_every_family(family: str) -> None:
    torch.manual_seed(0)
    assert_shared_equals_unshared(build(family, CPU, small=True), a_tree())


def test_a_chain_of_nested_prefixes_equals_its_unshared_run() -> None:
    """Every request is a prefix of the next: as many segments as requests, each the parent of the next."""
    whole = tokens(40)
    ends = [1, 2, 5, 13, 14, 40]
    starts = [0, *ends[:-1]]
    chain = PackedRows(
        token_ids=whole,
        position_ids=np.arange(40),
        segment_ids=np.repeat(np.arange(6), np.diff([0, *ends])),
        segment_parents=np.arange(-1, 5),
        request_positions=tuple(np.arange(end) for end in ends),
        device=CPU,
    )
    assert chain.segment_spans() == [(s, e - s, i - 1) for i, (s, e) in enumerate(zip(starts, ends, strict=True))]
    assert_shared_equals_unshared(tiny_decoder(), chain)


def test_padding_rows_change_nothing() -> None:
    rows = a_tree()
    padded = padded_by(rows, 11)
    for family in ("dense", "gdn"):
        model = build(family, CPU, small=True)
        requests = every_kind_of_request(request_tokens(rows))
        assert_same(results(model, padded, requests), results(model, rows, requests))


def padded_by(rows: PackedRows, count: int) -> PackedRows:
    """`rows` and `count` rows of padding, as the planner lays them."""
    nothing = np.zeros(count, dtype=np.int64)
    return PackedRows(
        token_ids=np.append(rows.token_ids, nothing),
        position_ids=np.append(rows.position_ids, nothing),
        segment_ids=np.append(rows.segment_ids, nothing - 1),
        segment_parents=rows.segment_parents,
        request_positions=rows.request_positions,
        device=CPU,
    )


def test_ten_thousand_nested_segments_need_no_recursion_and_no_square() -> None:
    starts, ends = ancestry_intervals(np.arange(-1, 9_999))
    assert starts.tolist() == list(range(10_000))
    assert set(ends.tolist()) == {10_000}


def test_intervals_say_who_descends_from_whom() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        count = int(generator.integers(1, 30))
        parents = np.array([int(generator.integers(-1, index)) if index else -1 for index in range(count)])
        starts, ends = ancestry_intervals(parents)
        for segment in range(count):
            ancestors = {segment}
            while parents[min(ancestors)] >= 0:
                ancestors.add(int(parents[min(ancestors)]))
            inside = {a for a in range(count) if starts[a] <= starts[segment] < ends[a]}
            assert inside == ancestors


@pytest.mark.parametrize("seed", range(4))
def test_attention_in_chunks_and_the_blocks_that_cuda_visits_follow_the_ancestry_rule(seed: int) -> None:
    """Against a dense mask made row by row: chunked attention, FlexAttention's own reading, and the block tables."""
    generator = np.random.default_rng(seed)
    families = [
        (tokens(int(generator.integers(1, 300)), seed), [tokens(int(n)) for n in generator.integers(0, 150, 4)])
        for _ in range(3)
    ]
    rows = padded_by(branched_rows(families, CPU), 150 * (seed % 2))
    count, edge = rows.packed_rows, 128
    padded = -(-count // edge) * edge
    dense = torch.zeros(padded, padded, dtype=torch.bool)
    for own in rows.request_positions:
        dense[own[:, None], own[None, :]] |= torch.ones(len(own), len(own), dtype=torch.bool).tril()
    padding = rows.segment_ids < 0
    dense[:count, :count] |= torch.from_numpy(padding[:, None] & padding[None, :])
    any_BB, all_BB = touched_blocks(rows)
    tiles = dense.unflatten(0, (-1, edge)).unflatten(2, (-1, edge)).transpose(1, 2)
    assert torch.equal(torch.from_numpy(any_BB), tiles.any(dim=-1).any(dim=-1))
    assert torch.equal(torch.from_numpy(all_BB), tiles.all(dim=-1).all(dim=-1))
    query, key, value = (torch.randn(1, 2, count, 16) for _ in range(3))
    wanted = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=dense[:count, :count], scale=0.25
    )
    mask = ancestry_mask(rows)
    for got in (
        packed_attention(query, key, value, mask, 0.25),
        flex_attention(query, key, value, block_mask=mask, scale=0.25),
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_chunked_head_equals_log_softmax_over_several_chunks() -> None:
    torch.manual_seed(0)
    rows = 2 * HEAD_CHUNK_ROWS + 17
    hidden = torch.randn(rows, 8, requires_grad=True)
    head = torch.nn.Linear(8, VOCABULARY)
    positions = np.random.default_rng(0).integers(0, rows, 3_000)
    targets = np.random.default_rng(1).integers(0, VOCABULARY, 3_000)
    weights = torch.randn(3_000)
    got = target_log_probs(hidden, head, positions, targets)
    found = torch.autograd.grad((got * weights).sum(), [hidden, head.weight, head.bias])
    logits = head(hidden).log_softmax(dim=-1)
    plain = logits[torch.from_numpy(positions), torch.from_numpy(targets)]
    wanted = torch.autograd.grad((plain * weights).sum(), [hidden, head.weight, head.bias])
    torch.testing.assert_close(got, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_ignored_labels_give_a_zero_that_has_a_backward() -> None:
    model = tiny_decoder()
    row = tokens(12)
    requests = [Request(tokens=row, targets=np.full(12, -100))]
    (output,) = packed_forward(model, unshared_rows([row], CPU), requests, grads=True)
    assert output.target_log_probs is not None
    assert output.target_log_probs.eq(0).all()
    output.target_log_probs.sum().backward()
    gradients = [value.grad for value in model.parameters() if value.grad is not None]
    assert gradients and not any(gradient.any() for gradient in gradients)


def test_without_gradients_nothing_is_kept_for_a_backward() -> None:
    model = tiny_decoder()
    rows = a_tree()
    for output in packed_forward(model, rows, every_kind_of_request(request_tokens(rows)), grads=False):
        assert not any(tensor.requires_grad for tensor in output.tensors())
