"""Prefix tree: which rows of a batch of token rows are the same prefix, found in one pass over the tokens.

A **segment** is a maximal run of tokens shared by the same requests; its parent is the run before it. Packed at full
sharing, a batch has as many rows as its tree has token nodes.

The tree under construction is kept as **tails**. A tail is the part of one stored row below the point where it parted
from an older tail; a row that runs on beyond a tail's end becomes the tail's new stored row. Nothing is copied, every
token of a new row is compared at most once, and a chain of nested prefixes in any order is one tail, however deep.
Each new row is first compared with the one before it, because siblings usually come together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pricing.planner.tokens import Tokens, default_tokens

ROOT = 0


class PrefixTree:
    """A radix tree under construction. Memory beyond the rows: O(rows + segments)."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens if tokens is not None else default_tokens()
        self._rows: list[Any] = []
        self._places: list[tuple[int, int]] = []
        self._shared_with_last = 0
        # Tail 0 begins as the empty row; the first row runs on beyond its end and becomes it.
        self._tail_row: list[Any] = [self._tokens.row(())]
        self._tail_source: list[int] = [-1]
        self._tail_start: list[int] = [0]
        self._tail_parent: list[int] = [-1]
        self._tail_stops: list[list[int]] = [[]]
        self._branches: dict[tuple[int, int, int], int] = {}

    def add(self, tokens: Any) -> int:
        """Add a row of token ids in caller order; returns its index. Raises `TokenError`."""
        return self.add_row(self._tokens.row(tokens))

    def add_row(self, row: Any) -> int:
        """Add what `Tokens.row` made."""
        tail, depth = self._start_beside_last(row)
        tail, depth = self._descend(row, tail, depth)
        index = len(self._rows)
        if depth < len(row):
            if depth == len(self._tail_row[tail]):
                self._tail_row[tail], self._tail_source[tail] = row, index
            else:
                self._mark_stop(tail, depth)
                tail = self._new_tail(row, index, tail, depth)
        self._mark_stop(tail, len(row))
        self._rows.append(row)
        self._places.append((tail, len(row)))
        return index

    def _start_beside_last(self, row: Any) -> tuple[int, int]:
        """Where `row` parts from the row before it: a tail that holds that depth, and the depth."""
        if not self._rows:
            return ROOT, 0
        shared = self._shared_with_last = self._tokens.first_difference(row, self._rows[-1], 0, self._shared_with_last)
        tail = self._places[-1][0]
        while tail != ROOT and self._tail_start[tail] >= shared:
            tail = self._tail_parent[tail]
        return tail, shared

    def _descend(self, row: Any, tail: int, depth: int) -> tuple[int, int]:
        """Follow the tree from (tail, depth) as far as it spells `row`."""
        while True:
            stored = self._tail_row[tail]
            depth = self._tokens.first_difference(row, stored, depth)
            if depth == len(row) or depth == len(stored):
                return tail, depth
            branch = self._branches.get((tail, depth, int(row[depth])))
            if branch is None:
                return tail, depth
            tail = branch

    def _new_tail(self, row: Any, source: int, parent: int, start: int) -> int:
        tail = len(self._tail_row)
        self._tail_row.append(row)
        self._tail_source.append(source)
        self._tail_start.append(start)
        self._tail_parent.append(parent)
        self._tail_stops.append([])
        self._branches[parent, start, int(row[start])] = tail
        return tail

    def _mark_stop(self, tail: int, depth: int) -> None:
        """A segment ends at this depth of the tail: a row ends there or tails part there. Depth 0 is the root."""
        stops = self._tail_stops[tail]
        if not stops:
            if depth > 0:
                stops.append(depth)
            return
        at = bisect_left(stops, depth)
        if depth > 0 and (at == len(stops) or stops[at] != depth):
            stops.insert(at, depth)

    def freeze(self) -> SegmentTree:
        """The segments, numbered depth-first with children in first-seen order."""
        branches_of: list[dict[int, list[int]] | None] = [None] * len(self._tail_row)
        for tail in range(1, len(self._tail_row)):
            parent, start = self._tail_parent[tail], self._tail_start[tail]
            branches = branches_of[parent]
            if branches is None:
                branches_of[parent] = {start: [tail]}
            else:
                branches.setdefault(start, []).append(tail)
        node_at: dict[tuple[int, int], int] = {(ROOT, 0): ROOT}
        parents, depths, sources = [-1], [0], [-1]
        # A stack of (tail, index into its stops, parent node). A tail's own continuation is older than what
        # branches off it, so it is pushed last and comes first.
        from_root = branches_of[ROOT] or {}
        pending = [(tail, 0, ROOT) for tail in reversed(from_root.get(0, []))]
        pending.append((ROOT, 0, ROOT))
        while pending:
            tail, stop_index, parent = pending.pop()
            stops = self._tail_stops[tail]
            if stop_index == len(stops):
                continue
            node, depth = len(parents), stops[stop_index]
            node_at[tail, depth] = node
            parents.append(parent)
            depths.append(depth)
            sources.append(self._tail_source[tail])
            branches = branches_of[tail]
            if branches is not None and depth in branches:
                pending.extend([(branch, 0, node) for branch in reversed(branches[depth])])
            if stop_index + 1 < len(stops):
                pending.append((tail, stop_index + 1, node))
        terminals = [node_at[place] if place[1] else ROOT for place in self._places]
        return SegmentTree(parents=parents, depths=depths, sources=sources, terminals=terminals)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTree:
    """The finished tree. Node 0 is the root (no tokens); node n > 0 is a segment, a parent always before its children.

    parents[n]: the segment before it. depths[n]: tokens from the root to its end; its run is
    [depths[parents[n]], depths[n]). sources[n]: index of a row that spells it. terminals[i]: where row i ends.
    """

    parents: list[int]
    depths: list[int]
    sources: list[int]
    terminals: list[int]

    @property
    def segment_count(self) -> int:
        return len(self.parents) - 1

    def depth_first_rows(self) -> list[int]:
        """Row indices depth-first: children in first-seen order, after the rows that end at their parent."""
        return sorted(range(len(self.terminals)), key=self.terminals.__getitem__)

    def packed_rows(self, shared_levels: int | None = None) -> int:
        """Rows when at most `shared_levels` nested levels of shared segments are shared (None: all, the minimum)."""
        members, levels = self._member_counts(), [0] * len(self.parents)
        packed = 0
        for node in range(1, len(self.parents)):
            levels[node] = levels[self.parents[node]] + 1
            shared = shared_levels is None or levels[node] <= shared_levels
            packed += self._run(node) * (1 if shared else members[node])
        return packed

    def segments(self) -> Iterator[tuple[list[int], int, int]]:
        """Each segment as (rows that share it, first token, end token), depth-first. For tests and small batches."""
        members: list[list[int]] = [[] for _ in self.parents]
        for row, terminal in enumerate(self.terminals):
            members[terminal].append(row)
        for node in range(len(self.parents) - 1, 0, -1):
            members[self.parents[node]].extend(members[node])
        for node in range(1, len(self.parents)):
            yield sorted(members[node]), self.depths[self.parents[node]], self.depths[node]

    def _run(self, node: int) -> int:
        return self.depths[node] - self.depths[self.parents[node]]

    def _member_counts(self) -> list[int]:
        counts = [0] * len(self.parents)
        for terminal in self.terminals:
            counts[terminal] += 1
        for node in range(len(counts) - 1, 0, -1):
            counts[self.parents[node]] += counts[node]
        return counts


def build_tree(rows: Sequence[Any], tokens: Tokens | None = None) -> SegmentTree:
    """The tree over `rows`, added in order."""
    tree = PrefixTree(tokens)
    for row in rows:
        tree.add(row)
    return tree.freeze()
