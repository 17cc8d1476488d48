"""Attention by segment ancestry: a row sees the rows before it in its own segment and in its segment's ancestors.

On CUDA this is FlexAttention with a block mask computed here, block by block (a P x P mask is never held); elsewhere an
explicit boolean mask through scaled dot-product attention, quadratic in P, meant for tests and demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from adapters.trainer_rank.rows import PackedRows

BLOCK_ROWS = 128
"""FlexAttention's block edge."""

_MASK_CELLS_AT_ONCE = 1 << 24
"""Row pairs looked at per step while the block mask is built: tens of MiB of transient memory at any P."""

_COMPILED_SHAPES = 64
"""How many (head shape, dtype, grad mode) variants may be compiled in one process before a loud failure. PyTorch's own
limit of 8 is reached by four model families, and a silent fall back to eager would hold P x P scores."""

AncestryMask = BlockMask | Tensor


def ancestry_mask(rows: PackedRows) -> AncestryMask:
    """The attention mask of one forward: a block mask on CUDA, else bool [1, 1, P, P] (True: may attend)."""
    if rows.device.type == "cuda":
        return _block_mask(rows)
    starts, ends = rows.ancestry_2P
    positions = rows.positions_P
    return _may_attend(
        starts[:, None], positions[:, None], starts[None, :], ends[None, :], positions[None, :]
    )[None, None]


def packed_attention(query: Tensor, key: Tensor, value: Tensor, mask: AncestryMask, scale: float) -> Tensor:
    """Attention over packed rows. query [1, H, P, D]; key, value [1, Hkv, P, D] with Hkv dividing H; out [1, H, P, D]."""
    if isinstance(mask, BlockMask):
        out = _compiled_flex_attention()(
            query, key, value, block_mask=mask, scale=scale, enable_gqa=query.shape[1] != key.shape[1]
        )
        assert isinstance(out, Tensor)
        return out
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def _may_attend(
    query_start: Tensor, query_position: Tensor, key_start: Tensor, key_end: Tensor, key_position: Tensor
) -> Tensor:
    """Whether the key's segment is the query's or an ancestor of it, and the key lies no later in the request."""
    return (key_start <= query_start) & (query_start < key_end) & (key_position <= query_position)


def _block_mask(rows: PackedRows) -> BlockMask:
    """The block mask of the ancestry rule, exact per block, built a few block rows at a time."""
    starts, ends = rows.ancestry_2P
    positions = rows.positions_P.to(torch.int32)
    count = rows.packed_rows
    blocks = -(-count // BLOCK_ROWS)
    gap = blocks * BLOCK_ROWS - count
    # Rows beyond the end are no keys (empty interval) and no queries (a start outside every interval).
    starts_padded = F.pad(starts, (0, gap), value=-1)
    ends_padded = F.pad(ends, (0, gap), value=-1)
    positions_padded = F.pad(positions, (0, gap))
    any_BB = torch.empty(blocks, blocks, dtype=torch.bool, device=rows.device)
    all_BB = torch.empty_like(any_BB)
    step = max(1, _MASK_CELLS_AT_ONCE // (BLOCK_ROWS * blocks * BLOCK_ROWS))
    for first in range(0, blocks, step):
        last = min(blocks, first + step)
        queries = slice(first * BLOCK_ROWS, last * BLOCK_ROWS)
        allowed = _may_attend(
            starts_padded[queries, None],
            positions_padded[queries, None],
            starts_padded[None],
            ends_padded[None],
            positions_padded[None],
        ).view(last - first, BLOCK_ROWS, blocks, BLOCK_ROWS)
        any_BB[first:last] = allowed.any(dim=3).any(dim=1)
        all_BB[first:last] = allowed.all(dim=3).all(dim=1)

    def may_attend(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return _may_attend(starts[query], positions[query], starts[key], ends[key], positions[key])

    partial_counts, partial_indices = _ordered(any_BB & ~all_BB)
    full_counts, full_indices = _ordered(all_BB)
    return BlockMask.from_kv_blocks(
        partial_counts,
        partial_indices,
        full_counts,
        full_indices,
        BLOCK_SIZE=BLOCK_ROWS,
        mask_mod=may_attend,
        seq_lengths=(count, count),
    )


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
