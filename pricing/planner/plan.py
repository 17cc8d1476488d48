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
...     peak_delta_bytes=370_000_000, footprint_bytes=400_000_000)
>>> profiles = {cold.signature: observe(Profile(), reading)}
>>> warm = plan_wave(batch, start=cold.next_start, profiles=profiles, available_bytes=1 << 30)
>>> warm.verdict.value, warm.width, warm.wave.packed_rows, warm.wave.logical_rows, warm.price.binding_term
('run', 7, 2400, 8400, 'all_readings')
>>> warm.layout(batch).packed_rows
2400
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, cast

from pricing.kernel.law import Law
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety
from pricing.kernel.requests import Signature
from pricing.kernel.splits import SplitKey
from pricing.planner.agreement import agree
from pricing.planner.batch import Batch, BatchError, GroupKey, Item, PlanRequest
from pricing.planner.curve import WaveShape
from pricing.planner.judge import Judge, Profiles, profile_of
from pricing.planner.most_rows import RowBudget, most_rows
from pricing.planner.quorum import SINGLE_PROCESS, Quorum
from pricing.planner.refusal import Refusal
from pricing.planner.rules import Verdict
from pricing.planner.setting import Setting
from pricing.planner.split import RungTried, SplitChild
from pricing.planner.wave_plan import BatchPlan, ProbeTest, WavePlan, WidthTried

__all__ = [
    "Batch",
    "BatchError",
    "BatchPlan",
    "GroupKey",
    "Item",
    "PlanRequest",
    "ProbeTest",
    "Refusal",
    "RowBudget",
    "RungTried",
    "Setting",
    "SplitChild",
    "Verdict",
    "WavePlan",
    "WaveShape",
    "WidthTried",
    "most_rows",
    "plan_batch",
    "plan_wave",
]

NO_SPLITS: Final[Mapping[SplitKey, int]] = MappingProxyType({})


def plan_wave(
    batch: Batch,
    *,
    start: int = 0,
    profiles: Profiles,
    available_bytes: int,
    setting: Setting | Callable[[], Setting] | None = None,
    law: Law = DEFAULT_LAW,
    safety: Safety = DEFAULT_SAFETY,
    quorum: Quorum = SINGLE_PROCESS,
    probed: Container[Signature] = (),
    lost: Container[Signature] = (),
    survives: bool = False,
    measured_splits: Mapping[SplitKey, int] = NO_SPLITS,
) -> WavePlan:
    """The next wave from item `start` on.

    available_bytes: this rank's budget (`Budget.available_bytes`); negative refuses everything. profiles: what was
    learned by signature, or a function that says so; a signature that is not there is cold. setting: may be a function
    that reads the live model; what it raises then reaches every rank. probed: signatures that had their probe; lost:
    those of which a wave ran out of memory. survives: whether the run survives a wave that runs out of memory anywhere,
    so that one may be tried whose forecast does not fit.
    measured_splits: measured peaks of splits that ran, in bytes. On every rank this makes the collectives that
    `pricing.planner.quorum` lists. Raises `PeerPlanningError` where another rank's planning raised, and this rank's own
    error after telling the others.
    """

    def judge() -> Judge:
        return Judge(
            batch=batch,
            start=start,
            profiles=profiles,
            available_bytes=available_bytes,
            setting=setting() if callable(setting) else setting or Setting(),
            law=law,
            safety=safety,
            probed=probed,
            lost=lost,
            survives=survives,
            measured_splits=measured_splits,
        )

    return agree(judge, quorum)


def plan_batch(
    batch: Batch,
    *,
    profiles: Profiles,
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
    grown: dict[Signature, Profile] = {}

    def looked_up(signature: Signature) -> Profile:
        return grown.get(signature) or profile_of(profiles, signature)

    known = ChainMap(grown, cast(dict[Signature, Profile], profiles)) if isinstance(profiles, Mapping) else looked_up
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
        if wave.verdict in _TEACHING and wave.wave.packed_rows:  # requests without tokens teach nothing
            break
        own = not profile_of(known, wave.signature).is_empty  # a relative's evidence says nothing of rows it has seen
        if own and wave.runs and wave.profile.largest_packed_rows < wave.wave.packed_rows:
            grown[wave.signature] = replace(wave.profile, largest_packed_rows=wave.wave.packed_rows)
    left = len(batch) - start
    stopped = _TEACHING.get(waves[-1].verdict) if waves and left else None
    return BatchPlan(waves=tuple(waves), unplanned_items=left, stopped=stopped)


_TEACHING: Final = {
    Verdict.COLD_START: "nothing was learned of this memory signature: what follows depends on what this wave teaches",
    Verdict.PROBE: "the profile is too young to refuse by: what follows depends on what this probe teaches",
}
