"""The split ladder: a wave that does not fit, cut into sub-forwards whose graphs live together until backward.

While one sub-forward is at its peak the others hold what they retain, so a rung costs

    max over j of (required_j + sum of the other children's retained)  =  sum of retained + max of (required - retained)

and at least the measured peak of an identical split. Rungs are k = 2, 3, 4, ... children; far up the ladder steps grow
(an eighth of k), and the last rung has one request a child. A rung that does not fit says nothing of the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, Protocol

from pricing.kernel.law import Law
from pricing.kernel.price import cold_footprint_bytes, evidence_bytes, required_bytes, retained_bytes
from pricing.kernel.profile import Evidence, Profile
from pricing.kernel.quantities import TRUST_GROWTH, Safety, ceil_div, with_safety
from pricing.kernel.requests import Signature, Workload
from pricing.kernel.shares import Share
from pricing.kernel.splits import SplitKey, split_key_of
from pricing.kernel.wave import Wave
from pricing.planner.batch import Batch
from pricing.planner.budget import fits
from pricing.planner.curve import Gathering, WaveShape, gather
from pricing.planner.setting import Setting

DENSE_RUNGS: Final = 16
"""Rungs up to here are all tried; beyond, each next one has an eighth more children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitChild:
    """One sub-forward: its requests (indices in the batch, depth-first), what was priced, and the two prices in
    bytes."""

    requests: tuple[int, ...]
    wave: Wave
    required_bytes: int
    retained_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RungTried:
    """One rung with its own figures. A pruned rung was never cut: its lower bound alone is over the budget.

    subforwards: number of children; `children` is empty if the rung was pruned, and then cost_bytes is None.
    measured_bytes: measured peak of an identical split, None where there was none.
    """

    subforwards: int
    children: tuple[SplitChild, ...]
    lower_bound_bytes: int
    cost_bytes: int | None
    measured_bytes: int | None
    available_bytes: int

    @property
    def pruned(self) -> bool:
        return self.cost_bytes is None

    @property
    def fits(self) -> bool:
        return self.cost_bytes is not None and fits(self.cost_bytes, self.available_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Everything a split is priced with: the whole wave's profile and workload hold for its children too, because one
    short request switches the whole batch and a child's reading is learned under the wave's signature."""

    batch: Batch
    requests: Sequence[int]
    workload: Workload
    profile: Profile
    setting: Setting
    law: Law
    safety: Safety
    available_bytes: int
    measured_splits: Mapping[SplitKey, int]
    signature: Signature
    shares: tuple[Share, ...] = ()
    floors: bool = True

    def climb(self) -> list[RungTried]:
        """Rungs in order up to the first that fits; the last one does not fit if none does."""
        active = sum(1 for request in self.requests if self.batch.is_active(request))
        bounds = RungBounds(self)
        tried = []
        for subforwards in rung_sizes(active):
            rung = self.rung(subforwards, bounds.lower_bound_bytes(subforwards))
            tried.append(rung)
            if rung.fits:
                break
        return tried

    def rung(self, subforwards: int, lower_bound_bytes: int) -> RungTried:
        """The rung of `subforwards` children, cut and priced unless its lower bound is already over the budget."""
        children: tuple[SplitChild, ...] = ()
        cost = measured = None
        if fits(lower_bound_bytes, self.available_bytes):
            ordered = self.batch.depth_first(self.requests)
            parts = cut(self.batch, ordered, subforwards, self.setting.row_multiple)
            children = tuple(self.child(part) for part in parts)
            measured = self.measured_splits.get(split_key(self.signature, children))
            cost = split_cost_bytes(children, measured)
        return RungTried(
            subforwards=subforwards,
            children=children,
            lower_bound_bytes=lower_bound_bytes,
            cost_bytes=cost,
            measured_bytes=measured,
            available_bytes=self.available_bytes,
        )

    def child(self, requests: Sequence[int]) -> SplitChild:
        gathering = gather(self.batch, requests, self.setting.row_multiple)
        shape = gathering.shape
        if self.shares:
            shape = replace(shape, kinds=gathering.all_kind_rows())
        wave = self.wave(shape, requests)
        return SplitChild(
            requests=tuple(requests),
            wave=wave,
            required_bytes=required_bytes(wave, self.profile, self.law, self.safety),
            retained_bytes=retained_bytes(wave, self.profile, self.law, self.safety),
        )

    def wave(self, shape: WaveShape, requests: Sequence[int]) -> Wave:
        """The wave of a child. Its kinds are mixed otherwise than the whole's: it counts for the rows of a wave of the
        whole's proportions that holds as many of each kind, when it is priced and when it is read."""
        wave = self.setting.wave(
            shape,
            requests,
            self.workload,
            cold=self.profile.is_empty,
            forecast=self.profile.complete_readings == 0,
            shares=self.shares,
            floors=self.floors,
        )
        return replace(wave, evidence=None)


def rung_sizes(active_requests: int) -> Iterator[int]:
    """Numbers of children to try for a wave of `active_requests`: none for a single request, which cannot be cut."""
    subforwards = 2
    while subforwards < active_requests:
        yield subforwards
        subforwards += 1 if subforwards < DENSE_RUNGS else subforwards // 8
    if active_requests >= 2:
        yield active_requests


class PricedChild(Protocol):
    """A sub-forward's two prices in bytes, wherever they stand."""

    @property
    def required_bytes(self) -> int: ...

    @property
    def retained_bytes(self) -> int: ...


def split_cost_bytes(children: Sequence[PricedChild], measured_bytes: int | None) -> int:
    """What is held for a split: its rung's cost, and at least the measured peak of an identical one."""
    return max(rung_cost_bytes(children), measured_bytes or 0)


def rung_cost_bytes(children: Sequence[PricedChild]) -> int:
    """Bytes of a rung: every child retained, and the one with most to add at its peak."""
    retained = sum(child.retained_bytes for child in children)
    return retained + max(child.required_bytes - child.retained_bytes for child in children)


def split_key(signature: Signature, children: Sequence[SplitChild]) -> SplitKey:
    """Identity of a split, for its measured peak."""
    return split_key_of(signature, (child.wave for child in children))


def cut(batch: Batch, ordered: Sequence[int], parts: int, row_multiple: int = 1) -> list[list[int]]:
    """`ordered` requests cut into `parts` contiguous parts (at most one an active request) whose largest packed rows
    are least.

    Every part is checked as it is cut (a count of ceil(total / cap) parts would not do: requests are indivisible),
    and a prefix that two parts share counts in both.
    """
    low = max((batch.lengths[request] for request in ordered if batch.is_active(request)), default=0)
    high = gather(batch, ordered, row_multiple).packed_rows
    best = [list(ordered)]
    while low <= high:
        cap = (low + high) // 2
        found = _cut_at(batch, ordered, parts, cap, row_multiple)
        if found is None:
            low = cap + 1
        else:
            best, high = found, cap - 1
    return _cut_finer(batch, best, parts)


def _cut_finer(batch: Batch, cuts: list[list[int]], parts: int) -> list[list[int]]:
    """Halve the part with most active requests until there are `parts`: fewer sufficed for the least largest part."""
    while len(cuts) < parts:
        counts = [sum(1 for request in part if batch.is_active(request)) for part in cuts]
        at = counts.index(max(counts))
        if counts[at] < 2:
            break
        # Inactive requests come first, so the second half always begins at an active one.
        middle = len(cuts[at]) - counts[at] // 2
        cuts[at : at + 1] = [cuts[at][:middle], cuts[at][middle:]]
    return cuts


def _cut_at(
    batch: Batch, ordered: Sequence[int], parts: int, cap_rows: int, row_multiple: int
) -> list[list[int]] | None:
    """Greedy parts of at most `cap_rows` packed rows; None if more than `parts` are needed or a request is larger."""
    cuts: list[list[int]] = [[]]
    gathering = Gathering(batch, row_multiple)
    for request in ordered:
        gathering.add(request)
        if gathering.packed_rows > cap_rows:
            if len(cuts) == parts:
                return None
            cuts.append([])
            gathering = gather(batch, [request], row_multiple)
            if gathering.packed_rows > cap_rows:
                return None
        cuts[-1].append(request)
    return [part for part in cuts if part]


def retained_lower_bound_bytes(wave: Wave, profile: Profile, law: Law, safety: Safety) -> int:
    """A lower bound on the retained bytes of any layout of a wave, of either quantity as in `retained_bytes`.

    `profile` is not empty.
    """
    allocated = _retained_lower_bound(wave, profile, law, safety)
    if profile.footprint.is_empty:
        return cold_footprint_bytes(wave, allocated)
    return max(allocated, _retained_lower_bound(wave, profile.footprint, law, safety))


def _retained_lower_bound(wave: Wave, profile: Evidence, law: Law, safety: Safety) -> int:
    """The same by one body of evidence, from the wave at full sharing (its fewest rows).

    The retained price at full sharing is *not* one: a layout with more rows may lie inside the sharing window where the
    full-sharing one lies outside and counts as keeping everything. Either a layout is outside a window, and retains its
    required bytes, or it has at least L / (8 r) rows and retains what these keep.
    """
    rows = max(
        wave.packed_rows,
        ceil_div(wave.logical_rows * profile.sharing.packed_rows, TRUST_GROWTH * profile.sharing.logical_rows),
    )
    bare = replace(wave, grad_segments=0)
    required = evidence_bytes(bare, profile, law, safety)
    if wave.packed_rows == 0:
        return required
    inside = replace(bare, packed_rows=rows)
    kept = law.kept_bytes(inside, profile, not law.ineligibility(profile, wave.workload))
    if kept is None:
        return required
    held = wave.output_bytes + max(wave.checkpoint_retained_bytes, kept)
    return min(required, with_safety(safety.numerator, safety.denominator, held))


class RungBounds:
    """Lower bounds on what a rung of k children can cost, before it is cut. Two facts hold of every cut:

    - some child j has at least 1/k of the wave's rows, so required_j is at least the price of these rows alone;
    - each of the other k - 1 children holds a whole request and retains at least what that request alone must.

    And whatever the cut, all outputs are there.
    """

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder
        self._whole = gather(ladder.batch, ladder.requests, ladder.setting.row_multiple).shape
        least = sorted(self._retained_alone(request) for request in ladder.requests if ladder.batch.is_active(request))
        self._retained_of_least = [0, *accumulate(least)]

    def lower_bound_bytes(self, subforwards: int) -> int:
        ladder = self._ladder
        rows = ceil_div(self._whole.shared_rows, subforwards)
        packed_rows = rows if ladder.setting.rank_rows is None else min(1, rows)
        largest = Wave(
            packed_rows=packed_rows,
            logical_rows=rows,
            grad_segments=0,
            output_bytes=0,
            workload=ladder.workload,
            segment_state_bytes=ladder.setting.segment_state_bytes,  # no segments here, but G says what evidence means
        )
        required = required_bytes(largest, ladder.profile, ladder.law, ladder.safety)
        return required + max(self._whole.output_bytes, self._retained_of_least[subforwards - 1])

    def _retained_alone(self, request: int) -> int:
        ladder = self._ladder
        batch, multiple = ladder.batch, ladder.setting.row_multiple
        length, grads = batch.lengths[request], batch.groups[batch.group_of[request]].grads
        padded = ceil_div(length, multiple) * multiple
        shape = WaveShape(
            packed_rows=padded,
            shared_rows=length,
            unshared_rows=padded,
            logical_rows=length,
            grad_segments=1 if grads and length else 0,
            segments=1 if length else 0,
            output_bytes=batch.output_bytes[request],
        )
        wave = ladder.wave(shape, [request])
        if ladder.profile.is_empty:
            return required_bytes(replace(wave, grad_segments=0), ladder.profile, ladder.law, ladder.safety)
        return retained_lower_bound_bytes(wave, ladder.profile, ladder.law, ladder.safety)
