"""The layout of a wave for the trainer: which tokens run, where each sits, and which rows each request gathers.

Groups follow one another, each padded to its row multiple; within a group, segments lie depth-first, so that every
segment is one run of rows and siblings are adjacent. A request gathers its own rows by position: a row that several
requests share is computed once and lost to none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pricing.kernel.quantities import ceil_div
from pricing.planner.batch import INACTIVE_GROUP, Batch, BatchError, GroupKey
from pricing.planner.curve import gather
from pricing.planner.prefix_tree import ROOT

NO_SEGMENT: Final = -1
"""Segment id of padding rows, and parent id of segments that begin at the first token."""

PADDING_TOKEN: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSegment:
    """One segment: packed rows [start, stop), tokens from `first_position` on, after segment `parent`."""

    start: int
    stop: int
    first_position: int
    parent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutGroup:
    """One group: `rows` rows from packed row `start` on, `padded_rows` with padding."""

    key: GroupKey
    start: int
    rows: int
    padded_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A packed wave. Rows are int64 (numpy where installed, else `array`); P packed rows, padding included.

    token_ids, position_ids (position within the request), segment_ids, parent_ids (the segment's parent): one per
    packed row; padding rows have token 0, position 0 and segment -1. request_positions: for each request, by its
    index in the batch, the packed rows of its tokens in order; empty for inactive requests. Rows of nested requests
    share memory: not to be written to.
    """

    token_ids: Any
    position_ids: Any
    segment_ids: Any
    parent_ids: Any
    request_positions: Mapping[int, Any]
    segments: tuple[LayoutSegment, ...]
    groups: tuple[LayoutGroup, ...]

    @property
    def packed_rows(self) -> int:
        return len(self.token_ids)


def layout_of(batch: Batch, requests: Sequence[int], row_multiple: int = 1) -> Layout:
    """The full-sharing layout of `requests` (indices in the batch). Its `packed_rows` equal the wave's shape.

    Raises `BatchError` where a request was planned without tokens.
    """
    for request in requests:
        if batch.rows[request] is None:
            raise BatchError(request, "was planned by its length alone: without tokens there is no layout")
    return _LayoutBuilder(batch, row_multiple).build(requests)


class _LayoutBuilder:
    def __init__(self, batch: Batch, row_multiple: int) -> None:
        self._batch = batch
        self._multiple = row_multiple
        self._tokens = batch.tokens
        self._segments: list[LayoutSegment] = []
        self._groups: list[LayoutGroup] = []
        self._token_runs: list[Any] = []
        self._position_runs: list[Any] = []
        self._segment_runs: list[Any] = []
        self._parent_runs: list[Any] = []
        self._positions: dict[int, Any] = {}
        self._row = 0

    def build(self, requests: Sequence[int]) -> Layout:
        by_group: dict[int, list[int]] = {}
        for request in self._batch.depth_first(requests):
            by_group.setdefault(self._batch.group_of[request], []).append(request)
        for request in by_group.pop(INACTIVE_GROUP, ()):
            self._positions[request] = self._tokens.count_up(0, 0)
        for group, members in by_group.items():
            self._lay_group(group, members)
        join = self._tokens.concatenate
        return Layout(
            token_ids=join(self._token_runs),
            position_ids=join(self._position_runs),
            segment_ids=join(self._segment_runs),
            parent_ids=join(self._parent_runs),
            request_positions={request: self._positions[request] for request in requests},
            segments=tuple(self._segments),
            groups=tuple(self._groups),
        )

    def _lay_group(self, group: int, members: list[int]) -> None:
        start = self._row
        nodes = gather(self._batch, members).segment_nodes()
        leaf_rows = self._rows_to_first_leaf(nodes)
        waiting = iter(members)  # depth-first too, so requests end in the order in which segments are laid
        member = next(waiting, None)
        # (node, segment id, packed positions from the root) of the path to the segment laid last.
        path: list[tuple[int, int, Any]] = [(ROOT, NO_SEGMENT, self._tokens.filled(leaf_rows[ROOT], 0))]
        laid = ROOT
        for node, parent in [(ROOT, ROOT), *nodes]:
            if node != ROOT:
                while path[-1][0] != parent:
                    path.pop()
                _, segment, positions = path[-1]
                if laid != parent:  # not its first child: the positions from the root go on in another row
                    positions = self._copied(positions, self._batch.depths[parent], leaf_rows[node])
                path.append((node, self._lay_segment(node, parent, segment, positions), positions))
            while member is not None and self._batch.terminals[member] == node:
                self._positions[member] = self._tokens.view(path[-1][2], self._batch.depths[node])
                member = next(waiting, None)
            laid = node
        assert member is None, f"request {member} ends at no segment of its group"
        rows = self._row - start
        padded_rows = ceil_div(rows, self._multiple) * self._multiple
        self._pad(padded_rows - rows)
        key = self._batch.groups[group]
        self._groups.append(LayoutGroup(key=key, start=start, rows=rows, padded_rows=padded_rows))

    def _rows_to_first_leaf(self, nodes: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Rows from the root to the end of the first leaf below each node: all that its first children's paths need."""
        rows = {ROOT: 0}
        for node, parent in reversed(nodes):
            rows[node] = rows.get(node, self._batch.depths[node])
            rows[parent] = rows[node]
        return rows

    def _copied(self, positions: Any, count: int, length: int) -> Any:
        """A row of `length` that begins with the first `count` positions."""
        row = self._tokens.filled(length, 0)
        row[:count] = positions[:count]
        return row

    def _lay_segment(self, node: int, parent_node: int, parent: int, positions: Any) -> int:
        """Lay the segment's rows, note them in `positions`; returns its id."""
        batch, tokens = self._batch, self._tokens
        first, end = batch.depths[parent_node], batch.depths[node]
        start, stop = self._row, self._row + end - first
        segment = len(self._segments)
        self._segments.append(LayoutSegment(start=start, stop=stop, first_position=first, parent=parent))
        self._token_runs.append(batch.rows[batch.sources[node]][first:end])
        self._position_runs.append(tokens.count_up(first, end))
        self._segment_runs.append(tokens.filled(end - first, segment))
        self._parent_runs.append(tokens.filled(end - first, parent))
        positions[first:end] = tokens.count_up(start, stop)
        self._row = stop
        return segment

    def _pad(self, count: int) -> None:
        tokens = self._tokens
        self._token_runs.append(tokens.filled(count, PADDING_TOKEN))
        self._position_runs.append(tokens.filled(count, 0))
        self._segment_runs.append(tokens.filled(count, NO_SEGMENT))
        self._parent_runs.append(tokens.filled(count, NO_SEGMENT))
        self._row += count
