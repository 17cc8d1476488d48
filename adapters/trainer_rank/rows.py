"""Packed rows: the tensors of one prefix-shared forward.

A prefix tree's segments lie one after another in one sequence of P rows. Every row knows its token, its position in its
own request and its segment; every request knows which rows are its own. Requests that begin alike share rows.

Shape legend: P packed rows, S segments, L logical rows, N rows of one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int64]

PADDING_SEGMENT = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedRows:
    """One forward's rows, as host arrays with their device copies.

    token_ids, position_ids, segment_ids: int64 [P]. The rows of a segment are consecutive. Padding rows carry segment
    `PADDING_SEGMENT`; they attend to one another only, and no request owns one.
    segment_parents: int64 [S], the parent's index or -1 for a root; parents come before children.
    request_positions: per request, int64 [N], the packed row of each of its tokens.
    """

    token_ids: Ints
    position_ids: Ints
    segment_ids: Ints
    segment_parents: Ints
    request_positions: tuple[Ints, ...]
    device: torch.device

    def __post_init__(self) -> None:
        rows = len(self.token_ids)
        assert len(self.position_ids) == rows and len(self.segment_ids) == rows
        assert rows == 0 or int(self.segment_ids.max()) < len(self.segment_parents)
        assert bool(np.all(self.segment_parents < np.arange(len(self.segment_parents))))

    @property
    def packed_rows(self) -> int:
        """P, padding included."""
        return len(self.token_ids)

    @property
    def logical_rows(self) -> int:
        """L: the sum of the requests' lengths."""
        return sum(len(positions) for positions in self.request_positions)

    @property
    def segment_count(self) -> int:
        """S, without the padding."""
        return len(self.segment_parents)

    @cached_property
    def tokens_P(self) -> Tensor:
        return self.on_device(self.token_ids)

    @cached_property
    def positions_P(self) -> Tensor:
        return self.on_device(self.position_ids)

    @cached_property
    def ancestry_2P(self) -> Tensor:
        """int32 [2, P]: for each row, the half-open interval of its segment in a walk of the tree.

        Segment a is s or an ancestor of s exactly when a.start <= s.start < a.end, so ancestry is two comparisons a
        pair of rows and needs no S x S table. Padding rows form a root of their own.
        """
        starts, ends = ancestry_intervals(self.segment_parents)
        starts = np.append(starts, len(starts))  # index -1 is the padding's own root
        ends = np.append(ends, len(ends) + 1)
        return self.on_device(np.stack([starts[self.segment_ids], ends[self.segment_ids]]).astype(np.int32))

    def on_device(self, array: npt.NDArray[np.int32] | Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def segment_spans(self) -> list[tuple[int, int, int]]:
        """(first row, rows, parent) of each segment, in segment order. Each segment's rows are consecutive."""
        counts = np.bincount(self.segment_ids[self.segment_ids >= 0], minlength=self.segment_count)
        firsts = np.zeros(self.segment_count, dtype=np.int64)
        firsts[self.segment_ids[::-1]] = np.arange(self.packed_rows - 1, -1, -1) if self.packed_rows else 0
        return [
            (int(first), int(count), int(parent))
            for first, count, parent in zip(firsts, counts, self.segment_parents, strict=True)
        ]


def ancestry_intervals(parents: Ints) -> tuple[Ints, Ints]:
    """Start and end of every segment's subtree in a depth-first numbering. Parents precede children; no recursion."""
    count = len(parents)
    sizes = np.ones(count, dtype=np.int64)
    for segment in range(count - 1, -1, -1):
        if parents[segment] >= 0:
            sizes[parents[segment]] += sizes[segment]
    starts = np.zeros(count, dtype=np.int64)
    next_free = np.zeros(count + 1, dtype=np.int64)  # the last entry serves the roots (parent -1)
    for segment in range(count):
        parent = parents[segment]
        starts[segment] = next_free[parent]
        next_free[parent] += sizes[segment]
        next_free[segment] = starts[segment] + 1
    return starts, starts + sizes


def unshared_rows(token_rows: Sequence[Ints], device: torch.device) -> PackedRows:
    """Every request as its own root segment: nothing is shared."""
    lengths = [len(tokens) for tokens in token_rows]
    firsts = np.cumsum([0, *lengths])
    return PackedRows(
        token_ids=np.concatenate([np.asarray(tokens, dtype=np.int64) for tokens in token_rows]),
        position_ids=np.concatenate([np.arange(length) for length in lengths]),
        segment_ids=np.repeat(np.arange(len(lengths)), lengths),
        segment_parents=np.full(len(lengths), -1, dtype=np.int64),
        request_positions=tuple(
            np.arange(first, first + length) for first, length in zip(firsts, lengths, strict=False)
        ),
        device=device,
    )


def no_rows(device: torch.device, requests: int = 1) -> PackedRows:
    """A forward of nothing: every request is empty."""
    nothing = np.zeros(0, dtype=np.int64)
    return PackedRows(
        token_ids=nothing,
        position_ids=nothing,
        segment_ids=nothing,
        segment_parents=nothing,
        request_positions=(nothing,) * requests,
        device=device,
    )


def tree_rows(
    segments: Sequence[Ints], parents: Sequence[int], request_segments: Sequence[int], device: torch.device
) -> PackedRows:
    """A tree of any depth built by hand: each segment's own tokens and its parent (-1: a root; parents come first).

    request_segments: for each request, the segment it ends with; its rows are those of the way there from the root.
    """
    lengths = [len(tokens) for tokens in segments]
    firsts = np.cumsum([0, *lengths])
    paths: list[Ints] = []
    for segment, parent in enumerate(parents):
        own = np.arange(firsts[segment], firsts[segment + 1])
        paths.append(own if parent < 0 else np.concatenate([paths[parent], own]))
    return PackedRows(
        token_ids=np.concatenate([np.asarray(tokens, dtype=np.int64) for tokens in segments]),
        position_ids=np.concatenate(
            [np.arange(len(path) - length, len(path)) for path, length in zip(paths, lengths, strict=True)]
        ),
        segment_ids=np.repeat(np.arange(len(segments)), lengths),
        segment_parents=np.asarray(parents, dtype=np.int64),
        request_positions=tuple(paths[segment] for segment in request_segments),
        device=device,
    )


def branched_rows(families: Sequence[tuple[Ints, Sequence[Ints]]], device: torch.device) -> PackedRows:
    """A two-level tree built by hand: each family is a prompt and the branches that continue it (none: a lone request).

    Empty branches are duplicates of the prompt: they own its rows and add none.
    """
    tokens: list[Ints] = []
    depths: list[Ints] = []
    lengths: list[int] = []
    parents: list[int] = []
    requests: list[Ints] = []
    row = 0

    def add(segment: Ints, depth: int, parent: int) -> Ints:
        nonlocal row
        tokens.append(np.asarray(segment, dtype=np.int64))
        depths.append(np.arange(depth, depth + len(segment)))
        lengths.append(len(segment))
        parents.append(parent)
        row += len(segment)
        return np.arange(row - len(segment), row)

    for prompt, branches in families:
        root = len(parents)
        prompt_rows = add(prompt, 0, -1)
        if not len(branches):
            requests.append(prompt_rows)
        for branch in branches:
            own = add(branch, len(prompt), root) if len(branch) else prompt_rows[:0]
            requests.append(np.concatenate([prompt_rows, own]) if len(branch) else prompt_rows)
    return PackedRows(
        token_ids=np.concatenate(tokens),
        position_ids=np.concatenate(depths),
        segment_ids=np.repeat(np.arange(len(lengths)), lengths),
        segment_parents=np.asarray(parents, dtype=np.int64),
        request_positions=tuple(requests),
        device=device,
    )
