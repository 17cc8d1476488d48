"""Attention by segment ancestry: a row sees the rows before it in its own segment and in its segment's ancestors.

On CUDA this is FlexAttention with a block mask computed here, block by block. Elsewhere, and for waves of less than a
block (which FlexAttention would lower to its decoding kernel, and fail on), it is scaled dot-product attention with
an explicit boolean mask, a chunk of queries at a time and recomputed in backward. Neither ever holds P x P anything,
so that attention's memory grows with rows, not with their square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.utils.checkpoint import checkpoint

from adapters.trainer_rank.rows import PADDING_SEGMENT, PackedRows

BLOCK_ROWS = 128
"""FlexAttention's block edge."""

_COMPILED_SHAPES = 64
"""How many (head shape, dtype, grad mode) variants may be compiled in one process before a loud failure. PyTorch's own
limit of 8 is reached by four model families, and a silent fall back to eager would hold P x P scores."""

Mask = npt.NDArray[np.bool_]

FLEX_STAND_IN: ContextVar[Callable[..., Any] | None] = ContextVar("FLEX_STAND_IN", default=None)
"""What runs in FlexAttention's place on no device: a forecast's model of what its kernels allocate."""

_QUERY_ROWS = 256
"""Queries per chunk of the explicit mask."""


def ancestry_mask(rows: PackedRows) -> BlockMask:
    """The attention mask of one forward. Only on CUDA are its blocks worked out; the rule is in its `mask_mod`."""
    starts, ends = rows.ancestry_2P
    positions = rows.positions_P.to(torch.int32)

    def may_attend(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return _may_attend(starts[query], positions[query], starts[key], ends[key], positions[key])

    if rows.device.type == "cuda":
        any_BB, all_BB = (torch.from_numpy(table).to(rows.device) for table in touched_blocks(rows))
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
    stand_in = FLEX_STAND_IN.get()
    if (query.device.type == "cuda" or stand_in is not None) and query.shape[2] >= BLOCK_ROWS:
        kernel = _compiled_flex_attention() if stand_in is None else stand_in
        out: Tensor = kernel(query, key, value, block_mask=mask, scale=scale, enable_gqa=query.shape[1] != key.shape[1])
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


def touched_blocks(rows: PackedRows) -> tuple[Mask, Mask]:
    """Which blocks of the mask have any allowed pair, and which nothing else: bool [B, B] each, on the host.

    Counted, not looked at: a run of rows (of one segment, within one block) may attend to whole intervals of rows, one
    for each ancestor and one for its own segment. So the cost is that of runs and ancestors, not of rows squared.
    """
    blocks = -(-rows.packed_rows // BLOCK_ROWS)
    counts = _PairCounts(blocks)
    spans = rows.segment_spans()
    before: list[tuple[tuple[int, int], ...]] = []  # of each segment, its ancestors' rows as few intervals
    for first, count, parent in spans:
        above = before[parent] if parent >= 0 else ()
        before.append(_joined(above, (first, first + count)))
        for start, stop in _runs(first, first + count):
            for interval in above:
                counts.add(start, stop, *interval)
            counts.add(start, stop, first, start)
            counts.add_causal(start, stop)
    padding = np.flatnonzero(rows.segment_ids == PADDING_SEGMENT)
    if len(padding):
        first, stop = int(padding[0]), int(padding[-1]) + 1
        for run in _runs(first, stop):
            counts.add(*run, first, stop)
    total = counts.total()
    return total > 0, total == BLOCK_ROWS * BLOCK_ROWS


class _PairCounts:
    """How many pairs of rows are allowed in each pair of blocks."""

    def __init__(self, blocks: int) -> None:
        self._direct = np.zeros((blocks, blocks), dtype=np.int64)
        self._steps = np.zeros((blocks, blocks + 1), dtype=np.int64)  # summed along keys: whole blocks of an interval

    def add(self, start: int, stop: int, first_key: int, end_key: int) -> None:
        """Rows [start, stop), all of one block, each attend to keys [first_key, end_key)."""
        if first_key >= end_key:
            return
        block, rows = start // BLOCK_ROWS, stop - start
        first, last = first_key // BLOCK_ROWS, (end_key - 1) // BLOCK_ROWS
        if first == last:
            self._direct[block, first] += rows * (end_key - first_key)
            return
        self._direct[block, first] += rows * ((first + 1) * BLOCK_ROWS - first_key)
        self._direct[block, last] += rows * (end_key - last * BLOCK_ROWS)
        self._steps[block, first + 1] += rows * BLOCK_ROWS
        self._steps[block, last] -= rows * BLOCK_ROWS

    def add_causal(self, start: int, stop: int) -> None:
        """Each of rows [start, stop), all of one block, attends to those of them up to itself."""
        rows = stop - start
        self._direct[start // BLOCK_ROWS, start // BLOCK_ROWS] += rows * (rows + 1) // 2

    def total(self) -> npt.NDArray[np.int64]:
        total: npt.NDArray[np.int64] = self._direct + self._steps.cumsum(axis=1)[:, :-1]
        return total


def _runs(first: int, stop: int) -> Iterator[tuple[int, int]]:
    """The parts of rows [first, stop) that lie in one block each."""
    while first < stop:
        end = min(stop, (first // BLOCK_ROWS + 1) * BLOCK_ROWS)
        yield first, end
        first = end


def _joined(intervals: tuple[tuple[int, int], ...], more: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """`intervals` and one more, which is joined to the last where it follows it directly."""
    if intervals and intervals[-1][1] == more[0]:
        return (*intervals[:-1], (intervals[-1][0], more[1]))
    return (*intervals, more)


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
