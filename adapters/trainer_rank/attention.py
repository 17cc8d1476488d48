"""Attention by segment ancestry: a row sees the rows before it in its own segment and in its segment's ancestors.

How far back it sees along that path is the layer's `Reach`: everything, a sliding window, or its own chunk. Both count
positions in the request, never packed rows. Soft caps and sinks are computed where a layer has them.

On CUDA this is FlexAttention with a block mask computed here, block by block. Elsewhere, and for waves of less than a
block (which FlexAttention would lower to its decoding kernel, and fail on), it is scaled dot-product attention with
an explicit boolean mask, a chunk of queries at a time and recomputed in backward. Neither ever holds P x P anything,
so that attention's memory grows with rows, not with their square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention
from torch.utils.checkpoint import checkpoint

from adapters.trainer_rank.rows import PADDING_SEGMENT, Ints, PackedRows

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far back a row sees along its own path. At most one of the two is given; neither is full attention.

    window: that many positions, its own included. chunk: back to the start of its own chunk of that many positions.
    """

    window: int | None = None
    chunk: int | None = None

    @property
    def size(self) -> int | None:
        """Positions a row sees at most; None for all."""
        return self.chunk if self.window is None else self.window

    def lowest_positions(self, positions: Ints) -> Ints:
        """The first position that a row at each of `positions` may see."""
        if self.window is not None:
            return np.maximum(positions - self.window + 1, 0)
        if self.chunk is not None:
            return positions // self.chunk * self.chunk
        return np.zeros_like(positions)

    def __str__(self) -> str:
        if self.size is None:
            return "full attention"
        return f"a sliding window of {self.window}" if self.window is not None else f"chunks of {self.chunk}"


FULL_REACH = Reach()


def ancestry_mask(rows: PackedRows, reach: Reach = FULL_REACH) -> BlockMask:
    """The attention mask of one forward. Only on CUDA are its blocks worked out; the rule is in its `mask_mod`.

    Elsewhere it is one block, so that nothing of it grows with rows squared.
    """
    starts, ends = rows.ancestry_2P
    positions = rows.positions_P.to(torch.int32)
    lowest = rows.on_device(reach.lowest_positions(rows.position_ids)).to(torch.int32)

    def may_attend(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return _may_attend(starts[query], positions[query], lowest[query], starts[key], ends[key], positions[key])

    block_rows = BLOCK_ROWS if _flex_runs_on(rows.device) else max(1, rows.packed_rows)
    if rows.device.type == "cuda":
        any_BB, all_BB = (torch.from_numpy(table).to(rows.device) for table in touched_blocks(rows, reach))
    else:
        blocks = -(-rows.packed_rows // block_rows)
        any_BB = torch.ones(blocks, blocks, dtype=torch.bool)
        all_BB = torch.zeros_like(any_BB)
    partial_counts, partial_indices = _ordered(any_BB & ~all_BB)
    full_counts, full_indices = _ordered(all_BB)
    return BlockMask.from_kv_blocks(
        partial_counts,
        partial_indices,
        full_counts,
        full_indices,
        BLOCK_SIZE=block_rows,
        mask_mod=may_attend,
        seq_lengths=(rows.packed_rows, rows.packed_rows),
    )


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: BlockMask,
    scale: float,
    *,
    softcap: float | None = None,
    sinks_H: Tensor | None = None,
) -> Tensor:
    """Attention over packed rows: query and result [1, H, P, D]; key, value [1, Hkv, P, D] with Hkv dividing H.

    softcap: scores become softcap * tanh(score / softcap). sinks_H: a score a head that takes its part of the softmax
    and gives nothing (attention sinks).
    """
    if _flex_runs_on(query.device) and query.shape[2] >= BLOCK_ROWS:
        return _flex(query, key, value, mask, scale, softcap, sinks_H)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    pieces = []
    for chunk, queries in enumerate(torch.split(query, _QUERY_ROWS, dim=2)):
        arguments = (queries, key, value, chunk * _QUERY_ROWS, mask, scale, softcap, sinks_H)
        if torch.is_grad_enabled():
            pieces.append(checkpoint(_explicit_attention, *arguments, use_reentrant=False))
        else:
            pieces.append(_explicit_attention(*arguments))
    return torch.cat(pieces, dim=2)


def _flex_runs_on(device: torch.device) -> bool:
    return device.type == "cuda" or FLEX_STAND_IN.get() is not None


def _flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: BlockMask,
    scale: float,
    softcap: float | None,
    sinks_H: Tensor | None,
) -> Tensor:
    settings: dict[str, Any] = {
        "block_mask": mask,
        "scale": scale,
        "enable_gqa": query.shape[1] != key.shape[1],
    }
    if softcap is not None:
        settings["score_mod"] = _soft_capped(softcap)
    kernel = FLEX_STAND_IN.get() or _compiled_flex_attention()
    if sinks_H is None:
        plain: Tensor = kernel(query, key, value, **settings)
        return plain
    out, auxiliary = kernel(query, key, value, return_aux=AuxRequest(lse=True), **settings)
    # A sink adds exp(sink) to the softmax's sum, so the rows without it shrink by sum / (sum + exp(sink)).
    left_HP = torch.sigmoid(auxiliary.lse - sinks_H.float()[None, :, None])
    shrunk: Tensor = (out * left_HP[..., None]).to(query.dtype)
    return shrunk


def _soft_capped(softcap: float) -> Callable[..., Tensor]:
    def capped(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return softcap * torch.tanh(score / softcap)

    return capped


def _explicit_attention(
    queries: Tensor,
    key: Tensor,
    value: Tensor,
    first: int,
    mask: BlockMask,
    scale: float,
    softcap: float | None,
    sinks_H: Tensor | None,
) -> Tensor:
    """Attention of the query rows from `first` on, with their part of the mask written out."""
    rows = torch.arange(first, first + queries.shape[2], device=queries.device)
    keys = torch.arange(key.shape[2], device=queries.device)
    nothing = rows.new_zeros(())
    allowed = mask.mask_mod(nothing, nothing, rows[:, None], keys[None, :])
    if softcap is None and sinks_H is None:
        return F.scaled_dot_product_attention(queries, key, value, attn_mask=allowed, scale=scale)
    scores = queries @ key.transpose(-2, -1) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~allowed, float("-inf"))
    exact = torch.promote_types(scores.dtype, torch.float32)
    if sinks_H is None:
        return scores.softmax(dim=-1, dtype=exact).to(value.dtype) @ value
    sinks = sinks_H.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:-1], 1)
    weights = torch.cat([scores, sinks], dim=-1).softmax(dim=-1, dtype=exact)[..., :-1]
    return weights.to(value.dtype) @ value


def _may_attend(
    query_start: Tensor,
    query_position: Tensor,
    query_lowest: Tensor,
    key_start: Tensor,
    key_end: Tensor,
    key_position: Tensor,
) -> Tensor:
    """Whether the key's segment is the query's or an ancestor of it, and the key's position in the query's reach."""
    related = (key_start <= query_start) & (query_start < key_end)
    return related & (key_position <= query_position) & (key_position >= query_lowest)


def touched_blocks(rows: PackedRows, reach: Reach = FULL_REACH) -> tuple[Mask, Mask]:
    """Which blocks of the mask have any allowed pair, and which nothing else: bool [B, B] each, on the host.

    With a reach the first may name a block too many: one that the reach, looked at pair by pair, leaves empty.

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
    touched, full = total > 0, total == BLOCK_ROWS * BLOCK_ROWS
    if reach == FULL_REACH:
        return touched, full
    lowest = reach.lowest_positions(rows.position_ids)
    edges = np.arange(0, rows.packed_rows, BLOCK_ROWS)
    first_seen, last_start = np.minimum.reduceat(lowest, edges), np.maximum.reduceat(lowest, edges)
    first_key, last_key = (extreme.reduceat(rows.position_ids, edges) for extreme in (np.minimum, np.maximum))
    touched &= last_key[None, :] >= first_seen[:, None]
    full &= first_key[None, :] >= last_start[:, None]
    return touched, full


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
