"""The planner: from a batch, what was learned and a budget to the next wave, or to all of them.

A wave is the next `width` items. Width search keeps one contract: **the answer is the largest width all of whose
smaller widths are feasible**. A width is feasible if its price fits the budget, its packed rows are at most 8 times
the largest ever seen (trust growth), and something was learned of its memory signature; where nothing was, only the
narrowest wave runs (cold start). Within a regime (fixed signature and eligibility) prices never fall with width, so
the search gallops and bisects; regimes are taken in order. The set of feasible widths so found is downward closed,
which is what lets ranks agree on a minimum.

Where not even the narrowest wave fits, in this order: a split whose rung fits; a **probe**, if only the learned term is
in the way and no complete reading after the seed supports it, or only trust growth is; a refusal that says what was
tried.

What was priced is what runs: `WavePlan.layout` gives the layout, and its rows are the shape that was priced.

>>> from pricing import Profile, Reading, RequestSpec, observe
>>> from pricing.plan import Batch, PlanRequest, plan_wave
>>> prompt = list(range(1_000))
>>> rollouts = [prompt + [9_000 + number] * 200 for number in range(8)]
>>> spec = RequestSpec(input_shape=(1_200,), target_shape=(1_200,))
>>> batch = Batch([[PlanRequest(tokens=tokens, spec=spec, output_bytes=4_800)] for tokens in rollouts])
>>> cold = plan_wave(batch, profiles={}, available_bytes=1 << 30)
>>> cold.verdict.value, cold.width
('cold_start', 1)
>>> reading = Reading(packed_rows=1_200, logical_rows=1_200, grad_segments=1, output_bytes=4_800,
...     peak_delta_bytes=400_000_000)
>>> profiles = {cold.signature: observe(Profile(), reading)}
>>> warm = plan_wave(batch, start=cold.next_start, profiles=profiles, available_bytes=1 << 30)
>>> warm.verdict.value, warm.width, warm.wave.packed_rows, warm.wave.logical_rows, warm.price.binding_term
('run', 7, 2400, 8400, 'all_readings')
>>> warm.layout(batch).packed_rows
2400
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from pricing.kernel.errors import QuantityError
from pricing.kernel.law import Law
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import Price, price, required_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import DEFAULT_SAFETY, TRUST_GROWTH, Safety, require_integer
from pricing.kernel.requests import Signature, Workload
from pricing.kernel.wave import Wave
from pricing.planner.batch import Batch, BatchError, GroupKey, Item, PlanRequest
from pricing.planner.budget import fits
from pricing.planner.curve import Curve, WaveShape
from pricing.planner.layout import Layout, layout_of
from pricing.planner.quorum import (
    FAILED_STATUS,
    FAILED_WIDTH,
    REFUSED_STATUS,
    SINGLE_PROCESS,
    UNBOUNDED_WIDTH,
    PeerPlanningError,
    Quorum,
)
from pricing.planner.refusal import Refusal
from pricing.planner.setting import Setting
from pricing.planner.split import Ladder, RungTried, SplitChild, SplitKey

__all__ = [
    "Batch",
    "BatchError",
    "BatchPlan",
    "GroupKey",
    "Item",
    "PlanRequest",
    "ProbeTest",
    "Refusal",
    "RungTried",
    "Setting",
    "SplitChild",
    "Verdict",
    "WavePlan",
    "WaveShape",
    "WidthTried",
    "plan_batch",
    "plan_wave",
]


class Verdict(StrEnum):
    """What is to be done with the next items."""

    RUN = "run"
    COLD_START = "cold_start"
    """Nothing was learned of this signature: the narrowest wave runs alone."""
    PROBE = "probe"
    """Only what was learned stands in the way, and that is too little to refuse by: it runs once, alone."""
    SPLIT = "split"
    REFUSE = "refuse"
    EMPTY = "empty"
    """This rank has nothing left; it takes part in the wave with nothing to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthTried:
    """One width that the search asked about, with its own figures in bytes.

    learned: whether anything was learned of its signature (true also where there is nothing to run). trusted: whether
    its packed rows are within trust growth. fits: feasible, all three together.
    """

    width: int
    wave: Wave
    signature: Signature
    required_bytes: int
    available_bytes: int
    learned: bool
    trusted: bool
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTest:
    """What a probe is judged by: whether this signature had one, and the narrowest wave as if nothing were learned."""

    had_probe: bool
    cold: Wave


@dataclass(frozen=True, slots=True, kw_only=True)
class WavePlan:
    """One wave's decision and everything it was made from. Plain data: it can be recorded and replayed.

    start, width: its items. requests: their indices in the batch. wave, price, profile, signature: what was priced,
    and by what. shape: the layout's rows (its packed rows differ from the wave's where the busiest rank was priced).
    agreed_width: the width ranks agreed on; 0 where some rank's narrowest wave does not fit, `UNBOUNDED_WIDTH` where
    every rank runs all it has left. tried, consulted: widths in the order they were asked about, and the profile of
    each signature among them. subforwards: the largest number of sub-forwards of any rank, 1 unless a rank splits.
    refused_elsewhere: this rank could have run, another cannot. probe: where the narrowest wave does not fit whole.
    """

    start: int
    width: int
    requests: range
    verdict: Verdict
    wave: Wave
    shape: WaveShape
    signature: Signature
    profile: Profile
    price: Price
    available_bytes: int
    row_multiple: int
    agreed_width: int
    tried: tuple[WidthTried, ...]
    consulted: tuple[tuple[Signature, Profile], ...]
    rungs: tuple[RungTried, ...] = ()
    children: tuple[SplitChild, ...] = ()
    subforwards: int = 1
    refusal: Refusal | None = None
    refused_elsewhere: bool = False
    probe: ProbeTest | None = None

    @property
    def runs(self) -> bool:
        return self.verdict is not Verdict.REFUSE

    @property
    def next_start(self) -> int:
        """First item after this wave."""
        return self.start + self.width

    @property
    def required_bytes(self) -> int:
        """What is held against the budget: the price, or the rung's cost for a split."""
        cost = self.rungs[-1].cost_bytes if self.verdict is Verdict.SPLIT else None
        return self.price.required_bytes if cost is None else cost

    @property
    def headroom_bytes(self) -> int:
        """Budget left over; negative for a probe, which runs over its price, and for a refusal."""
        return self.available_bytes - self.required_bytes

    def layout(self, batch: Batch) -> Layout:
        """The layout this wave was priced with."""
        layout = layout_of(batch, self.requests, self.row_multiple)
        assert layout.packed_rows == self.shape.packed_rows, (layout.packed_rows, self.shape)
        return layout

    def child_layouts(self, batch: Batch) -> list[Layout]:
        """The layouts of a split's sub-forwards, in order."""
        return [layout_of(batch, child.requests, self.row_multiple) for child in self.children]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Waves over a whole batch with the profile held fixed. Refused items are waves too, of verdict `refuse`.

    stopped: why planning ended before the last item (what follows depends on what a wave teaches), or None.
    """

    waves: tuple[WavePlan, ...]
    unplanned_items: int
    stopped: str | None

    @property
    def refused(self) -> tuple[WavePlan, ...]:
        return tuple(wave for wave in self.waves if not wave.runs)


NO_SPLITS: Final[Mapping[SplitKey, int]] = MappingProxyType({})


def plan_wave(
    batch: Batch,
    *,
    start: int = 0,
    profiles: Mapping[Signature, Profile],
    available_bytes: int,
    setting: Setting | Callable[[], Setting] | None = None,
    law: Law = DEFAULT_LAW,
    safety: Safety = DEFAULT_SAFETY,
    quorum: Quorum = SINGLE_PROCESS,
    probed: Container[Signature] = (),
    measured_splits: Mapping[SplitKey, int] = NO_SPLITS,
) -> WavePlan:
    """The next wave from item `start` on.

    available_bytes: this rank's budget (`Budget.available_bytes`); negative refuses everything. profiles: missing means
    cold. setting: may be a function that reads the live model; what it raises then reaches every rank. probed:
    signatures that had their probe. measured_splits: measured peaks of splits that ran, in bytes. On every rank this
    makes the collectives that `pricing.planner.quorum` lists. Raises `PeerPlanningError` where another rank's planning
    raised, and this rank's own error after telling the others.
    """

    def judge() -> _Judge:
        return _Judge(
            batch=batch,
            start=start,
            profiles=profiles,
            available_bytes=available_bytes,
            setting=setting() if callable(setting) else setting or Setting(),
            law=law,
            safety=safety,
            probed=probed,
            measured_splits=measured_splits,
        )

    return _agree(judge, quorum)


def plan_batch(
    batch: Batch,
    *,
    profiles: Mapping[Signature, Profile],
    available_bytes: int,
    setting: Setting | None = None,
    law: Law = DEFAULT_LAW,
    safety: Safety = DEFAULT_SAFETY,
    start: int = 0,
    progress: Callable[[int], None] | None = None,
) -> BatchPlan:
    """All waves from item `start` on, as one process would run them, for as long as that can be known beforehand.

    Profiles stay as they are, except that the largest packed rows is the running maximum of what was planned (trust
    growth). Planning goes on behind a refused item and stops behind a cold start or a probe. `progress` is called with
    the number of items decided.
    """
    known = _GrownProfiles(profiles)
    waves: list[WavePlan] = []
    while start < len(batch):
        wave = plan_wave(
            batch,
            start=start,
            profiles=known,
            available_bytes=available_bytes,
            setting=setting,
            law=law,
            safety=safety,
        )
        waves.append(wave)
        start = wave.next_start
        if progress is not None:
            progress(start)
        if wave.verdict in _TEACHING:
            break
        if wave.runs and wave.profile.largest_packed_rows < wave.wave.packed_rows:
            known.grow(wave.signature, replace(wave.profile, largest_packed_rows=wave.wave.packed_rows))
    left = len(batch) - start
    stopped = _TEACHING.get(waves[-1].verdict) if waves and left else None
    return BatchPlan(waves=tuple(waves), unplanned_items=left, stopped=stopped)


class _GrownProfiles(Mapping[Signature, Profile]):
    """Profiles with some of them grown in trust; the mapping below stays as it was."""

    def __init__(self, profiles: Mapping[Signature, Profile]) -> None:
        self._profiles = profiles
        self._grown: dict[Signature, Profile] = {}

    def grow(self, signature: Signature, profile: Profile) -> None:
        self._grown[signature] = profile

    def __getitem__(self, signature: Signature) -> Profile:
        grown = self._grown.get(signature)
        return self._profiles[signature] if grown is None else grown

    def __iter__(self) -> Iterator[Signature]:
        return iter({**self._profiles, **self._grown})

    def __len__(self) -> int:
        return len({**self._profiles, **self._grown})


_TEACHING: Final = {
    Verdict.COLD_START: "nothing was learned of this memory signature: what follows depends on what this wave teaches",
    Verdict.PROBE: "the profile is too young to refuse by: what follows depends on what this probe teaches",
}


# --- agreement -------------------------------------------------------------------------------------------------------


def _agree(make_judge: Callable[[], _Judge], quorum: Quorum) -> WavePlan:
    try:
        judge = make_judge()
        proposed = judge.proposed_width()
    except Exception:
        quorum.min(FAILED_WIDTH)
        raise
    agreed = quorum.min(proposed)
    if agreed == FAILED_WIDTH:
        raise PeerPlanningError("planning raised on another rank: no rank runs this wave")
    plan = _wide(judge, agreed, quorum) if agreed > 0 else _agree_on_narrowest(judge, quorum)
    if quorum.all_fit(plan.runs) or not plan.runs:
        return plan
    return replace(plan, verdict=Verdict.REFUSE, refused_elsewhere=True)


def _wide(judge: _Judge, agreed: int, quorum: Quorum) -> WavePlan:
    """The wave of the agreed width. If pricing it raises here, the others learn from the vote that it does not run."""
    try:
        return judge.wide(agreed)
    except Exception:
        quorum.all_fit(False)
        raise


def _agree_on_narrowest(judge: _Judge, quorum: Quorum) -> WavePlan:
    """Some rank cannot run its narrowest wave whole: every rank runs one item, and all learn how often it is cut."""
    try:
        plan = judge.narrow()
        status = plan.subforwards if plan.runs else REFUSED_STATUS
    except Exception:
        quorum.max(FAILED_STATUS)
        raise
    agreed = quorum.max(status)
    if agreed == FAILED_STATUS:
        raise PeerPlanningError("planning raised on another rank: no rank runs this wave")
    return plan if agreed == REFUSED_STATUS else replace(plan, subforwards=agreed)


# --- one rank's judgement --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Regime:
    """What stays fixed over a regime: the signature, its profile and whether that knows anything."""

    signature: Signature
    profile: Profile
    learned: bool


class _Judge:
    """One rank's judgement of its own next items."""

    def __init__(
        self,
        *,
        batch: Batch,
        start: int,
        profiles: Mapping[Signature, Profile],
        available_bytes: int,
        setting: Setting,
        law: Law,
        safety: Safety,
        probed: Container[Signature],
        measured_splits: Mapping[SplitKey, int],
    ) -> None:
        require_integer("available_bytes", available_bytes)
        if not 0 <= start <= len(batch):
            raise QuantityError("start", start, f"must be an item of the batch (0 to {len(batch)})")
        self._batch = batch
        self._start = start
        self._profiles = profiles
        self._available_bytes = available_bytes
        self._setting = setting
        self._law = law
        self._safety = safety
        self._probed = probed
        self._measured_splits = measured_splits
        self._curve = Curve(batch, start, setting.row_multiple)
        self._regimes: dict[int, _Regime] = {}
        self._tried: dict[int, WidthTried] = {}

    def proposed_width(self) -> int:
        """The widest feasible wave; `UNBOUNDED_WIDTH` where that is everything left."""
        width = widest_feasible(self._curve, lambda width: self._try(width).fits)
        return UNBOUNDED_WIDTH if width == self._curve.limit else width

    def wide(self, agreed: int) -> WavePlan:
        """The wave of the agreed width, or what is left."""
        width = min(agreed, self._curve.limit)
        if width == 0:
            return self._empty(agreed)
        tried = self._try(width)
        assert tried.fits, f"agreed on width {agreed}, but {tried} does not fit"
        return self._plan(width, self._running_verdict(tried), agreed)

    def narrow(self) -> WavePlan:
        """One item, where some rank's narrowest wave does not fit: run, split, probe or refuse."""
        if self._curve.limit == 0:
            return self._empty(0)
        tried = self._try(1)
        if tried.fits:
            return self._plan(1, self._running_verdict(tried), 0)
        over_budget = not fits(tried.required_bytes, self._available_bytes)
        rungs = tuple(self._ladder().climb()) if over_budget else ()
        probe = ProbeTest(had_probe=self._regime(1).signature in self._probed, cold=self._wave(1, cold=True))
        if rungs and rungs[-1].fits:
            plan = replace(self._plan(1, Verdict.SPLIT, 0), rungs=rungs, probe=probe)
            return replace(plan, children=rungs[-1].children, subforwards=rungs[-1].subforwards)
        if self._may_probe(probe, over_budget):
            return replace(self._plan(1, Verdict.PROBE, 0), rungs=rungs, probe=probe)
        plan = self._plan(1, Verdict.REFUSE, 0)
        refusal = Refusal.of(plan.wave, plan.price, plan.profile, self._law, self._available_bytes, rungs)
        return replace(plan, rungs=rungs, refusal=refusal, probe=probe)

    def _may_probe(self, probe: ProbeTest, over_budget: bool) -> bool:
        """Whether the learned term alone refuses, and is too young to: one tiny first wave must never make every later
        one unrunnable. O, F and the cold transient must fit. Over budget a signature is probed once; beyond trust
        growth alone as often as a wave is, for nothing else could teach the profile more rows."""
        regime = self._regime(1)
        if not regime.learned:
            return False
        if over_budget and (probe.had_probe or regime.profile.complete_readings > 1):
            return False
        return fits(required_bytes(probe.cold, Profile(), self._law, self._safety), self._available_bytes)

    def _running_verdict(self, tried: WidthTried) -> Verdict:
        return Verdict.RUN if tried.learned else Verdict.COLD_START

    def _try(self, width: int) -> WidthTried:
        known = self._tried.get(width)
        if known is not None:
            return known
        regime = self._regime(width)
        wave = self._wave(width, cold=regime.profile.is_empty)
        required = required_bytes(wave, regime.profile, self._law, self._safety)
        trusted = not regime.learned or self._is_trusted(wave, regime.profile)
        tried = self._tried[width] = WidthTried(
            width=width,
            wave=wave,
            signature=regime.signature,
            required_bytes=required,
            available_bytes=self._available_bytes,
            learned=regime.learned,
            trusted=trusted,
            fits=fits(required, self._available_bytes) and trusted and (regime.learned or width == 1),
        )
        return tried

    def _is_trusted(self, wave: Wave, profile: Profile) -> bool:
        return wave.packed_rows <= TRUST_GROWTH * profile.largest_packed_rows or wave.packed_rows == 0

    def _regime(self, width: int) -> _Regime:
        found = self._curve.regime(width)
        regime = self._regimes.get(found.first_width)
        if regime is None:
            signature = self._curve.signature(width, self._setting.recompute, self._setting.topology)
            profile = self._profiles.get(signature, Profile())
            regime = _Regime(
                signature=signature, profile=profile, learned=not profile.is_empty or signature.group_count == 0
            )
            self._regimes[found.first_width] = regime
        return regime

    def _wave(self, width: int, *, cold: bool) -> Wave:
        return self._setting.wave(
            self._curve.shape(width),
            self._batch.item_requests(self._start, width),
            self._curve.workload(width, self._setting.recompute),
            cold=cold,
        )

    def _ladder(self) -> Ladder:
        return Ladder(
            batch=self._batch,
            requests=self._batch.item_requests(self._start, 1),
            workload=self._curve.workload(1, self._setting.recompute),
            profile=self._regime(1).profile,
            setting=self._setting,
            law=self._law,
            safety=self._safety,
            available_bytes=self._available_bytes,
            measured_splits=self._measured_splits,
        )

    def _plan(self, width: int, verdict: Verdict, agreed: int) -> WavePlan:
        tried, regime = self._try(width), self._regime(width)
        priced = price(tried.wave, regime.profile, self._law, self._safety)
        assert priced.required_bytes == tried.required_bytes, "the executed price is the admitted one"
        return WavePlan(
            start=self._start,
            width=width,
            requests=self._batch.item_requests(self._start, width),
            verdict=verdict,
            wave=tried.wave,
            shape=self._curve.shape(width),
            signature=regime.signature,
            profile=regime.profile,
            price=priced,
            available_bytes=self._available_bytes,
            row_multiple=self._setting.row_multiple,
            agreed_width=agreed,
            tried=tuple(self._tried.values()),
            consulted=tuple((regime.signature, regime.profile) for regime in self._regimes.values()),
        )

    def _empty(self, agreed: int) -> WavePlan:
        setting = self._setting
        workload = Workload(grad_modes=(), request_mixes=(), recompute=setting.recompute)
        wave = Wave(packed_rows=0, logical_rows=0, grad_segments=0, output_bytes=0, workload=workload)
        signature = Signature(
            topology=setting.topology,
            group_count=0,
            request_mixes=(),
            grad_modes=(),
            adapter_shapes=(),
            recompute=setting.recompute,
        )
        shape = WaveShape(
            packed_rows=0,
            shared_rows=0,
            unshared_rows=0,
            logical_rows=0,
            grad_segments=0,
            segments=0,
            output_bytes=0,
        )
        return WavePlan(
            start=self._start,
            width=0,
            requests=range(0),
            verdict=Verdict.EMPTY,
            wave=wave,
            shape=shape,
            signature=signature,
            profile=Profile(),
            price=price(wave, Profile(), self._law, self._safety),
            available_bytes=self._available_bytes,
            row_multiple=setting.row_multiple,
            agreed_width=agreed,
            tried=(),
            consulted=(),
        )


def widest_feasible(curve: Curve, feasible: Callable[[int], bool]) -> int:
    """The largest width all of whose smaller widths are feasible; 0 if the narrowest is not.

    `feasible` must be monotone within each regime of the curve. Asks about O(log width) widths a regime, and grows the
    curve to less than twice the answer.
    """
    answer = 0
    while answer < curve.limit:
        first = answer + 1
        if not feasible(first):
            return answer
        answer, step = first, 1
        while True:
            wanted = min(answer + step, curve.limit)
            width = curve.last_width_of_regime(first, wanted)
            if width == answer:
                break
            if not feasible(width):
                return _bisect(answer, width, feasible)
            answer, step = width, 2 * step
    return answer


def _bisect(low: int, high: int, feasible: Callable[[int], bool]) -> int:
    """`low` is feasible, `high` is not; between them feasibility changes once."""
    while high - low > 1:
        middle = (low + high) // 2
        if feasible(middle):
            low = middle
        else:
            high = middle
    return low
