"""Attention by segment ancestry: a row sees the rows before it in its own segment and in its segment's ancestors.

On CUDA this is FlexAttention with a block mask computed here, block by block. Elsewhere, and for waves of less than a
block (which FlexAttention would lower to its decoding kernel, and fail on), it is scaled dot-product attention with
an explicit boolean mask, a chunk of queries at a time and recomputed in backward. Neither ever holds P x P anything,
so that attention's memory grows with rows, not with their square.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.utils.checkpoint import checkpoint

from adapters.trainer_rank.rows import PackedRows

BLOCK_ROWS = 128
"""FlexAttention's block edge."""

_MASK_CELLS_AT_ONCE = 1 << 24
"""Row pairs looked at per step while the block mask is built: tens of MiB of transient memory at any P."""

_COMPILED_SHAPES = 64
"""How many (head shape, dtype, grad mode) variants may be compiled in one process before a loud failure. PyTorch's own
limit of 8 is reached by four model families, and a silent fall back to eager would hold P x P scores."""

_QUERY_ROWS = 256
"""Queries per chunk of the explicit mask."""


def ancestry_mask(rows: PackedRows) -> BlockMask:
    """The attention mask of one forward. Only on CUDA are its blocks worked out; the rule is in its `mask_mod`."""
    starts, ends = rows.ancestry_2P
    positions = rows.positions_P.to(torch.int32)

    def may_attend(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return _may_attend(starts[query], positions[query], starts[key], ends[key], positions[key])

    if rows.device.type == "cuda":
        any_BB, all_BB = touched_blocks(rows)
    else:
        blocks = -(-rows.packed_rows // BLOCK_ROWS)
        any_BB = torch.ones(blocks, blocks, dtype=torch.bool)
        all_BB = torch.zeros_like(any_BB)
    partial_counts, partial_indices = _ordered(any_BB & ~all_BB)
    full_counts, full_indices = _ordered(all_BB)
    return BlockMask.from_kv_blocks(
        partial_counts,
        partial_indices,
        full_counts,
        full_indices,
        BLOCK_SIZE=BLOCK_ROWS,
        mask_mod=may_attend,
        seq_lengths=(rows.packed_rows, rows.packed_rows),
    )


def packed_attention(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float) -> Tensor:
    """Attention over packed rows: query and result [1, H, P, D]; key, value [1, Hkv, P, D] with Hkv dividing H."""
    if query.device.type == "cuda" and query.shape[2] >= BLOCK_ROWS:
        out: Tensor = _compiled_flex_attention()(
            query, key, value, block_mask=mask, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
        )
        return out
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    pieces = []
    for chunk, queries in enumerate(torch.split(query, _QUERY_ROWS, dim=2)):
        arguments = (queries, key, value, chunk * _QUERY_ROWS, mask, scale)
        if torch.is_grad_enabled():
            pieces.append(checkpoint(_explicit_attention, *arguments, use_reentrant=False))
        else:
            pieces.append(_explicit_attention(*arguments))
    return torch.cat(pieces, dim=2)


def _explicit_attention(
    queries: Tensor, key: Tensor, value: Tensor, first: int, mask: BlockMask, scale: float
) -> Tensor:
    """Attention of the query rows from `first` on, with their part of the mask written out."""
    rows = torch.arange(first, first + queries.shape[2], device=queries.device)
    keys = torch.arange(key.shape[2], device=queries.device)
    nothing = rows.new_zeros(())
    allowed = mask.mask_mod(nothing, nothing, rows[:, None], keys[None, :])
    return F.scaled_dot_product_attention(queries, key, value, attn_mask=allowed, scale=scale)


def _may_attend(
    query_start: Tensor, query_position: Tensor, key_start: Tensor, key_end: Tensor, key_position: Tensor
) -> Tensor:
    """Whether the key's segment is the query's or an ancestor of it, and the key lies no later in the request."""
    return (key_start <= query_start) & (query_start < key_end) & (key_position <= query_position)


def touched_blocks(rows: PackedRows) -> tuple[Tensor, Tensor]:
    """Which blocks of the mask have any allowed pair, and which nothing else: bool [B, B] each."""
    starts, ends = rows.ancestry_2P
    positions = rows.positions_P.to(torch.int32)
    blocks = -(-rows.packed_rows // BLOCK_ROWS)
    gap = blocks * BLOCK_ROWS - rows.packed_rows
    # Rows beyond the end are no keys (an empty interval) and no queries (a start outside every interval).
    starts, ends, positions = (
        F.pad(starts, (0, gap), value=-1),
        F.pad(ends, (0, gap), value=-1),
        F.pad(positions, (0, gap)),
    )
    any_BB = torch.empty(blocks, blocks, dtype=torch.bool, device=rows.device)
    all_BB = torch.empty_like(any_BB)
    step = max(1, _MASK_CELLS_AT_ONCE // (BLOCK_ROWS * BLOCK_ROWS * blocks))
    for first in range(0, blocks, step):
        last = min(blocks, first + step)
        queries = slice(first * BLOCK_ROWS, last * BLOCK_ROWS)
        allowed = _may_attend(
            starts[queries, None], positions[queries, None], starts[None], ends[None], positions[None]
        ).view(last - first, BLOCK_ROWS, blocks, BLOCK_ROWS)
        any_BB[first:last] = allowed.any(dim=3).any(dim=1)
        all_BB[first:last] = allowed.all(dim=3).all(dim=1)
    return any_BB, all_BB


def _ordered(wanted_BB: Tensor) -> tuple[Tensor, Tensor]:
    """Per block row, how many blocks are wanted and their indices first: int32 [1, 1, B] and [1, 1, B, B]."""
    counts = wanted_BB.sum(dim=-1).to(torch.int32)
    indices = torch.argsort(wanted_BB.to(torch.int8), dim=-1, descending=True, stable=True).to(torch.int32)
    return counts[None, None], indices[None, None]


@cache
def _compiled_flex_attention() -> Callable[..., Any]:
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, _COMPILED_SHAPES)
    return torch.compile(flex_attention, fullgraph=True)
