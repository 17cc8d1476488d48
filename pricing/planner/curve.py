"""The curve: for waves that begin at one item, what every width w asks of the device, found in one pass.

Requests join in caller order. Each marks the part of its path that the wave does not hold yet; the unmarked length is
the rows it adds, and at most two segment ends appear: its own, and the one where it parts from what is there. So a step
costs O(new segments), and a whole curve O(requests + segments).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pricing.kernel.quantities import MAX_QUANTITY, SHORT_REQUEST_ROWS, ceil_div
from pricing.kernel.requests import RecomputeMode, Signature, Workload
from pricing.kernel.shares import ONE_KIND, KindRows, Share, shares_of
from pricing.planner.batch import INACTIVE_GROUP, Batch
from pricing.planner.prefix_tree import ROOT

_T = TypeVar("_T", str, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveShape:
    """Rows and bytes of a set of requests at full sharing.

    packed_rows: token rows, each group rounded up to its row multiple. shared_rows: the same before rounding (the
    minimum any layout needs). unshared_rows: rows without any sharing, rounded up a group (the maximum). kinds: the
    rows of each kind where there are several. grad_rows: packed rows of gradient groups (None: nobody counted).
    """

    packed_rows: int
    shared_rows: int
    unshared_rows: int
    logical_rows: int
    grad_segments: int
    segments: int
    output_bytes: int
    kinds: KindRows = ONE_KIND
    grad_rows: int | None = None

    @property
    def rows_with_gradients(self) -> int:
        """Packed rows of gradient groups; all of them where nobody counted and there is a segment with gradients."""
        if self.grad_rows is None:
            return self.packed_rows if self.grad_segments else 0
        return min(self.grad_rows, self.packed_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """A stretch of widths over which signature and eligibility stay fixed, from `first_width` to the next regime.

    Shares may come back to what they were: the same signature is then several regimes. first_mixes: the request mixes
    of the wave, and those that later widths add, in the order in which they come; the first `mix_count` are this
    regime's. One list serves all regimes: a batch of thousands of mixes has as many regimes.
    """

    first_width: int
    group_count: int
    grad_modes: tuple[bool, ...]
    adapter_shapes: tuple[str, ...]
    first_mixes: Sequence[str]
    mix_count: int
    has_short_request: bool
    kinds: KindRows = ONE_KIND

    @property
    def mixes(self) -> tuple[str, ...]:
        """The distinct request mixes, sorted."""
        return tuple(sorted(self.first_mixes[: self.mix_count]))

    @property
    def shares(self) -> tuple[Share, ...]:
        return () if self.kinds is ONE_KIND else shares_of(self.kinds)


class Gathering:
    """Requests of a batch gathered one by one, with the shape of what was gathered so far. Order of gathering is
    free."""

    def __init__(self, batch: Batch, row_multiple: int = 1) -> None:
        self._batch = batch
        self._multiple = row_multiple
        self._is_end: dict[int, bool] = {ROOT: True}
        self._group_rows: dict[int, list[int]] = {}
        self._group_kinds: dict[int, str] = {}
        self._asked: dict[tuple[int, str], str] = {}
        self._packed_kinds: dict[str, int] = {}
        self._logical_kinds: dict[str, int] = {}
        self.packed_rows = 0
        self.shared_rows = 0
        self.unshared_rows = 0
        self.logical_rows = 0
        self.grad_rows = 0
        self.grad_segments = 0
        self.segments = 0
        self.output_bytes = 0
        self.first_mixes: list[str] = []
        self._mixes: set[str] = set()
        self.grad_modes: list[bool] = []
        self.adapter_shapes: list[str] = []
        self.shortest_single_target_rows: int | None = None

    def add(self, request: int) -> None:
        """Gather one more request, which must not be in yet. Inactive requests change nothing."""
        batch = self._batch
        group = batch.group_of[request]
        if group == INACTIVE_GROUP:
            return
        length = batch.lengths[request]
        rows, segments = self._mark_path(batch.terminals[request], length)
        self._grow_group(group, rows, length)
        self.shared_rows += rows
        self.logical_rows += length
        self.segments += segments
        if batch.groups[group].grads:
            self.grad_segments += segments
        self.output_bytes += batch.output_bytes[request]
        asked = group, batch.mixes[request]
        kind = self._asked.get(asked)
        if kind is None:
            kind = self._asked[asked] = batch.kind_of(*asked)
            if asked[1] not in self._mixes:
                self._mixes.add(asked[1])
                self.first_mixes.append(asked[1])
        if length:
            self._logical_kinds[kind] = self._logical_kinds.get(kind, 0) + length
        single = batch.single_target_rows[request]
        if single is not None:
            shortest = self.shortest_single_target_rows
            self.shortest_single_target_rows = single if shortest is None else min(shortest, single)

    def _mark_path(self, terminal: int, length: int) -> tuple[int, int]:
        """Mark the path to `terminal`; returns the rows and segments that this adds to what was gathered."""
        is_end, parents = self._is_end, self._batch.parents
        segments, node = 0, terminal
        if node not in is_end:
            is_end[node] = True
            segments, node = 1, parents[node]
            while node not in is_end:
                is_end[node] = False
                node = parents[node]
        if not is_end[node]:
            is_end[node] = True
            segments += 1
        return length - self._batch.depths[node], segments

    def _grow_group(self, group: int, rows: int, length: int) -> None:
        held = self._group_rows.get(group)
        if held is None:
            held = self._group_rows[group] = [0, 0]
            key = self._batch.groups[group]
            self._group_kinds[group] = key.kind
            _insert_once(self.grad_modes, key.grads)
            _insert_once(self.adapter_shapes, key.adapter)
        multiple, before = self._multiple, self.packed_rows
        if multiple == 1:
            self.packed_rows += rows
            self.unshared_rows += length
        else:
            shared, unshared = held
            self.packed_rows += multiple * (ceil_div(shared + rows, multiple) - ceil_div(shared, multiple))
            self.unshared_rows += multiple * (ceil_div(unshared + length, multiple) - ceil_div(unshared, multiple))
        grown = self.packed_rows - before
        if grown:
            kind = self._group_kinds[group]
            self._packed_kinds[kind] = self._packed_kinds.get(kind, 0) + grown
        if self._batch.groups[group].grads:
            self.grad_rows += grown
        held[0] += rows
        held[1] += length

    def segment_nodes(self) -> list[tuple[int, int]]:
        """The gathered requests' segments as (node where it ends, node where its parent ends), depth-first."""
        above: dict[int, int] = {ROOT: ROOT}
        found = []
        for node in sorted(self._is_end)[1:]:
            parent = above[self._batch.parents[node]]
            above[node] = node if self._is_end[node] else parent
            if self._is_end[node]:
                found.append((node, parent))
        return found

    @property
    def group_count(self) -> int:
        return len(self._group_rows)

    @property
    def has_short_request(self) -> bool:
        shortest = self.shortest_single_target_rows
        return shortest is not None and shortest < SHORT_REQUEST_ROWS

    def kind_rows(self) -> KindRows:
        """The rows of each kind, where there are several."""
        return self.all_kind_rows() if len(self._logical_kinds) > 1 else ONE_KIND

    def all_kind_rows(self) -> KindRows:
        """The rows of each kind, also of a single one. Groups of one grad mode and adapter shape are one kind.

        They are counted as requests join: a wave of thousands of kinds costs no more a request than one of a few."""
        return KindRows.of(self._packed_kinds.items(), self._logical_kinds.items())

    @property
    def shape(self) -> WaveShape:
        return WaveShape(
            packed_rows=self.packed_rows,
            shared_rows=self.shared_rows,
            unshared_rows=self.unshared_rows,
            logical_rows=self.logical_rows,
            grad_segments=self.grad_segments,
            segments=self.segments,
            output_bytes=self.output_bytes,
            kinds=self.kind_rows(),
            grad_rows=self.grad_rows,
        )


def _insert_once(values: list[_T], value: _T) -> None:
    """Keep `values` sorted and distinct."""
    at = bisect_left(values, value)
    if at == len(values) or values[at] != value:
        values.insert(at, value)


def gather(batch: Batch, requests: Iterable[int], row_multiple: int = 1) -> Gathering:
    """All of `requests` gathered."""
    gathering = Gathering(batch, row_multiple)
    for request in requests:
        gathering.add(request)
    return gathering


class Curve:
    """What each width asks for, for waves that begin at item `start`. Grows only as far as it is asked."""

    def __init__(self, batch: Batch, start: int, row_multiple: int = 1) -> None:
        self._batch = batch
        self._start = start
        self._gathering = Gathering(batch, row_multiple)
        self._columns: list[tuple[int, int, int, int, int, int, int, int]] = []
        self._kinds: list[KindRows] = []
        self._shortest: list[int | None] = []
        self._regimes: list[Regime] = []
        self._seen = (-1, -1, False)
        self._limit = len(batch) - start
        self._last_shares: tuple[Share, ...] | None = None

    @property
    def limit(self) -> int:
        """The widest wave that there can be: every item from `start` on, or as many as have countable rows and bytes.

        Sums beyond 2**63 - 1 are found as the curve grows: `reaches` tells.
        """
        return self._limit

    @property
    def items_left(self) -> int:
        """Items from `start` on."""
        return len(self._batch) - self._start

    def reaches(self, width: int) -> bool:
        """Whether there is a wave of `width` items."""
        if width <= self._limit:
            self._extend(width)
        return width <= self._limit

    def shape(self, width: int) -> WaveShape:
        """The shape of the first `width` items (1 to `limit`)."""
        self._extend(width)
        packed, shared, unshared, logical, grad_segments, segments, output, grad_rows = self._columns[width - 1]
        return WaveShape(
            packed_rows=packed,
            shared_rows=shared,
            unshared_rows=unshared,
            logical_rows=logical,
            grad_segments=grad_segments,
            segments=segments,
            output_bytes=output,
            kinds=self._kinds[width - 1],
            grad_rows=grad_rows,
        )

    def regime(self, width: int) -> Regime:
        """The regime of `width`."""
        self._extend(width)
        return self._regimes[self._regime_index(width)]

    def last_width_of_regime(self, width: int, at_most: int) -> int:
        """The last width of `width`'s regime that is at most `at_most`."""
        self._extend(at_most)
        at_most = min(at_most, self._limit)
        following = self._regime_index(width) + 1
        if following == len(self._regimes):
            return at_most
        return min(at_most, self._regimes[following].first_width - 1)

    def workload(self, width: int, recompute: RecomputeMode) -> Workload:
        """The facts of eligibility of the first `width` items."""
        regime = self.regime(width)
        return Workload(
            grad_modes=regime.grad_modes,
            request_mixes=regime.mixes,
            recompute=recompute,
            shortest_single_target_rows=self._shortest[width - 1],
        )

    def signature(self, width: int, recompute: RecomputeMode, topology: str) -> Signature:
        """The memory signature of the first `width` items."""
        regime = self.regime(width)
        return Signature(
            topology=topology,
            group_count=regime.group_count,
            request_mixes=regime.mixes,
            grad_modes=regime.grad_modes,
            adapter_shapes=regime.adapter_shapes,
            recompute=recompute,
            shares=regime.shares,
        )

    def _regime_index(self, width: int) -> int:
        return bisect_right(self._regimes, width, key=lambda regime: regime.first_width) - 1

    def _extend(self, width: int) -> None:
        assert 1 <= width <= self.limit, (width, self.limit)
        gathering, first_request, add = self._gathering, self._batch.first_request, self._gathering.add
        note_column, note_kinds, note_shortest = self._columns.append, self._kinds.append, self._shortest.append
        for joined in range(len(self._columns) + 1, width + 1):
            item = self._start + joined - 1
            for request in range(first_request[item], first_request[item + 1]):
                add(request)
            if joined > 1 and max(gathering.unshared_rows, gathering.output_bytes) > MAX_QUANTITY:
                self._limit = joined - 1  # the narrowest wave is not cut off: its own error names the quantity
                return
            note_column(
                (
                    gathering.packed_rows,
                    gathering.shared_rows,
                    gathering.unshared_rows,
                    gathering.logical_rows,
                    gathering.grad_segments,
                    gathering.segments,
                    gathering.output_bytes,
                    gathering.grad_rows,
                )
            )
            note_kinds(gathering.kind_rows())
            note_shortest(gathering.shortest_single_target_rows)
            self._note_regime(joined)

    def _note_regime(self, width: int) -> None:
        """Groups and mixes only accumulate and the short flag only rises, so counting them tells a change. Shares go
        up and down; they are looked at only where nothing else tells."""
        gathering, kinds = self._gathering, self._kinds[width - 1]
        seen = (gathering.group_count, len(gathering.first_mixes), gathering.has_short_request)
        if seen == self._seen and (kinds is ONE_KIND or shares_of(kinds) == self._shares_seen()):
            return
        self._seen = seen
        self._last_shares = None
        self._regimes.append(
            Regime(
                first_width=width,
                group_count=gathering.group_count,
                grad_modes=tuple(gathering.grad_modes),
                adapter_shapes=tuple(gathering.adapter_shapes),
                first_mixes=gathering.first_mixes,
                mix_count=len(gathering.first_mixes),
                has_short_request=gathering.has_short_request,
                kinds=kinds,
            )
        )

    def _shares_seen(self) -> tuple[Share, ...]:
        """The shares of the regime noted last."""
        if self._last_shares is None:
            self._last_shares = self._regimes[-1].shares
        return self._last_shares
