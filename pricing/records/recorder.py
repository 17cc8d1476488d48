"""The recorder: what a trainer calls, once when a wave is decided and once when it is over.

    recorder = Recorder(name="rank0", spool=Spool("records"), metrics=[wandb_logger(run.log)])
    ticket = recorder.admitted(plan, budget=budget)
    ...
    recorder.observed(ticket, reading)

Nothing here raises into training: whatever goes wrong is counted in `failures`, kept in `last_failure`, said in the log
once a kind, and the wave goes on unrecorded. Without a spool nothing touches a disk.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pricing.formats.codec import MAX_TEXT_CHARS
from pricing.kernel.law import Law
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import price
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety
from pricing.kernel.reading import Reading
from pricing.kernel.wave import Wave
from pricing.planner.budget import Budget, BudgetVerdict, fits, judge
from pricing.planner.curve import gather
from pricing.records.metrics import MetricsSink, WaveSummary
from pricing.records.record import (
    SCHEMA_VERSION,
    BudgetFacts,
    ChildFacts,
    DecisionRecord,
    Event,
    FailureFacts,
    HandoffFacts,
    ObservedFacts,
    PriceFacts,
    ProbeFacts,
    RefusalFacts,
    RegimeTable,
    RungFacts,
    StructureFacts,
    WidthFacts,
)
from pricing.records.spool import Spool

if TYPE_CHECKING:
    from pricing.kernel.requests import Signature
    from pricing.planner.batch import Batch
    from pricing.planner.plan import WavePlan, WidthTried
    from pricing.planner.refusal import Refusal
    from pricing.planner.split import RungTried

__all__ = [
    "Handoff",
    "Recorder",
    "Triggers",
    "record_of_plan",
    "record_of_price",
]

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggers:
    """When a record is written. A wave's summary line is written always.

    over_percent, under_percent: the price exceeds the observed peak, or the peak its price, by more than so many
    percent of the observed peak. refusals, out_of_memory: those events. everything: every decision.
    """

    over_percent: int = 100
    under_percent: int = 0
    refusals: bool = True
    out_of_memory: bool = True
    everything: bool = False

    def fires(self, record: DecisionRecord) -> bool:
        """Whether this record is to be written."""
        if self.everything:
            return True
        if record.event is Event.REFUSED:
            return self.refusals
        if record.event is Event.OUT_OF_MEMORY:
            return self.out_of_memory
        return record.observed is not None and self._is_far_off(record.observed)

    def _is_far_off(self, observed: ObservedFacts) -> bool:
        over, peak = 100 * observed.error_bytes, observed.peak_delta_bytes
        return over > self.over_percent * peak or -over > self.under_percent * peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """The fresh sample right before execution and what was made of it.

    required_bytes: what was held against it; None for the plan's own. verdict: None to judge it here.
    """

    budget: Budget
    verdict: BudgetVerdict | str | None = None
    required_bytes: int | None = None
    cache_serves: bool = False


def _never_raises(
    method: Callable[Concatenate[Recorder, _P], _R],
) -> Callable[Concatenate[Recorder, _P], _R | None]:
    """The method, with every error counted instead of raised; it then returns None."""

    @functools.wraps(method)
    def guarded(self: Recorder, /, *args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # a record is worth less than the run it is about
            self._fail(error)
            return None

    return guarded


class Recorder:
    """Builds records of decisions, keeps the metrics flowing, and spools what a trigger asks for.

    name: the caller's label, such as "rank0". spool: a `Spool`, or a folder to make one in; None writes nothing.
    metrics: sinks that take each wave's `WaveSummary`.
    """

    def __init__(
        self,
        *,
        name: str = "",
        spool: Spool | str | os.PathLike[str] | None = None,
        metrics: Iterable[MetricsSink] = (),
        triggers: Triggers | None = None,
    ) -> None:
        self.name = name[:MAX_TEXT_CHARS]
        self.spool = spool if spool is None or isinstance(spool, Spool) else Spool(spool)
        self.sinks = tuple(metrics)
        self.triggers = Triggers() if triggers is None else triggers
        self.failures = 0
        self.last_failure: str | None = None
        self.last_record: DecisionRecord | None = None
        self.last_summary: WaveSummary | None = None
        self._next_index = 0
        self._said: set[str] = set()

    # What happens to a wave, in the order of its life.

    @_never_raises
    def admitted(
        self,
        plan: WavePlan,
        *,
        batch: Batch | None = None,
        budget: Budget | None = None,
        handoff: Handoff | None = None,
        index: int | None = None,
    ) -> DecisionRecord:
        """A planned wave is about to run. Returns the ticket that the calls below take.

        batch: what it was planned from, for the lengths and the tree of its requests. budget: the sample it was planned
        with. index: the caller's number of the wave; the recorder counts where none is given.
        """
        record = record_of_plan(plan, name=self.name, index=self._numbered(index), batch=batch, budget=budget)
        if handoff is not None:
            record = replace(record, handoff=_handoff_facts(handoff, record.required_bytes))
        self.last_record = record
        return record

    @_never_raises
    def priced(
        self,
        wave: Wave,
        profile: Profile,
        *,
        available_bytes: int,
        signature: Signature | None = None,
        law: Law = DEFAULT_LAW,
        safety: Safety = DEFAULT_SAFETY,
        budget: Budget | None = None,
        index: int | None = None,
    ) -> DecisionRecord:
        """A wave was priced by itself, without this project's planner, and is about to run. Returns a ticket."""
        record = record_of_price(
            wave,
            profile,
            available_bytes=available_bytes,
            signature=signature,
            law=law,
            safety=safety,
            budget=budget,
            name=self.name,
            index=self._numbered(index),
        )
        self.last_record = record
        return record

    @_never_raises
    def observed(self, ticket: DecisionRecord | None, reading: Reading | None, *, note: str = "") -> None:
        """The wave is over. `reading` is its last one, None (with a note why) where none may be believed."""
        if ticket is None:
            return
        facts = None if reading is None else ObservedFacts.of(reading, ticket.required_bytes)
        event = Event.ABANDONED if facts is None else Event.OBSERVED
        self._finish(replace(ticket, event=event, observed=facts, note=note[:MAX_TEXT_CHARS]))

    @_never_raises
    def abandoned(self, ticket: DecisionRecord | None, *, note: str = "") -> None:
        """The wave is over and no reading of it may be believed."""
        if ticket is not None:
            self._finish(replace(ticket, event=Event.ABANDONED, note=note[:MAX_TEXT_CHARS]))

    @_never_raises
    def refused(
        self,
        plan: WavePlan,
        *,
        batch: Batch | None = None,
        budget: Budget | None = None,
        index: int | None = None,
    ) -> DecisionRecord:
        """A wave was refused, here or on another rank."""
        record = record_of_plan(plan, name=self.name, index=self._numbered(index), batch=batch, budget=budget)
        record = replace(record, event=Event.REFUSED)
        self._finish(record)
        return record

    @_never_raises
    def out_of_memory(
        self,
        ticket: DecisionRecord | None,
        *,
        requested_bytes: int | None = None,
        budget_after: Budget | None = None,
        note: str = "",
    ) -> DecisionRecord | None:
        """An admitted wave ran out of memory.

        The record keeps the admission's own figures. What the device shows now (`budget_after`) and what was asked of
        it stand apart: checking again on the failed state would report a budget that nobody decided by.
        """
        if ticket is None:
            return None
        failure = FailureFacts(
            cause=str(Event.OUT_OF_MEMORY),
            requested_bytes=requested_bytes,
            budget_after=None if budget_after is None else BudgetFacts.of(budget_after),
        )
        record = replace(ticket, event=Event.OUT_OF_MEMORY, failure=failure, note=note[:MAX_TEXT_CHARS])
        self._finish(record)
        return record

    def _numbered(self, index: int | None) -> int:
        number = self._next_index if index is None else index
        self._next_index = number + 1
        return number

    def _finish(self, record: DecisionRecord) -> None:
        self.last_record = record
        summary = self.last_summary = WaveSummary.of(record)
        if self.spool is not None:
            self.spool.append_wave(summary.line())
            if self.triggers.fires(record):
                self.spool.write(record)
        for sink in self.sinks:
            try:
                sink(summary)
            except Exception as error:  # one broken sink takes neither the others nor training with it
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        self.last_failure = f"{type(error).__name__}: {error}"[:MAX_TEXT_CHARS]
        kind = type(error).__name__
        if kind not in self._said:
            self._said.add(kind)
            _log.warning("recorder: a wave goes on unrecorded (said once a kind): %s", self.last_failure)


# --- records of decisions --------------------------------------------------------------------------------------------


def record_of_plan(
    plan: WavePlan, *, name: str = "", index: int = 0, batch: Batch | None = None, budget: Budget | None = None
) -> DecisionRecord:
    """The record of a planner's decision, before anything ran."""
    table = RegimeTable()
    profiles = dict(plan.consulted)
    wave = table.add(plan.wave, plan.profile, plan.signature)
    tried = tuple(_width_facts(step, profiles[step.signature], table) for step in plan.tried)
    rungs = tuple(_rung_facts(rung, plan, table) for rung in plan.rungs)
    probe = None
    if plan.probe is not None:
        cold = table.add(plan.probe.cold, Profile(), plan.signature)
        probe = ProbeFacts(had_probe=plan.probe.had_probe, cold=cold)
    return DecisionRecord(
        schema_version=SCHEMA_VERSION,
        event=Event.ADMITTED,
        name=name,
        index=index,
        law=plan.price.law,
        safety=plan.price.safety,
        verdict=str(plan.verdict),
        wave=wave,
        price=PriceFacts.of(plan.price),
        required_bytes=plan.required_bytes,
        available_bytes=plan.available_bytes,
        width=plan.width,
        agreed_width=plan.agreed_width,
        budget=None if budget is None else BudgetFacts.of(budget),
        tried=tried,
        rungs=rungs,
        subforwards=plan.subforwards,
        probe=probe,
        refusal=None if plan.refusal is None else _refusal_facts(plan.refusal),
        refused_elsewhere=plan.refused_elsewhere,
        structure=None if batch is None else _structure_facts(plan, batch),
        regimes=table.regimes,
        profiles=table.profiles,
    )


def record_of_price(
    wave: Wave,
    profile: Profile,
    *,
    available_bytes: int,
    signature: Signature | None = None,
    law: Law = DEFAULT_LAW,
    safety: Safety = DEFAULT_SAFETY,
    budget: Budget | None = None,
    name: str = "",
    index: int = 0,
) -> DecisionRecord:
    """The record of a wave that was priced by itself: it runs where its price fits `available_bytes`."""
    table = RegimeTable()
    facts = table.add(wave, profile, signature)
    priced = price(wave, profile, law, safety)
    runs = fits(priced.required_bytes, available_bytes)
    return DecisionRecord(
        schema_version=SCHEMA_VERSION,
        event=Event.ADMITTED if runs else Event.REFUSED,
        name=name,
        index=index,
        law=priced.law,
        safety=priced.safety,
        verdict="run" if runs else "refuse",
        wave=facts,
        price=PriceFacts.of(priced),
        required_bytes=priced.required_bytes,
        available_bytes=available_bytes,
        budget=None if budget is None else BudgetFacts.of(budget),
        regimes=table.regimes,
        profiles=table.profiles,
    )


def _width_facts(step: WidthTried, profile: Profile, table: RegimeTable) -> WidthFacts:
    return WidthFacts(
        width=step.width,
        wave=table.add(step.wave, profile, step.signature),
        required_bytes=step.required_bytes,
        available_bytes=step.available_bytes,
        learned=step.learned,
        trusted=step.trusted,
        fits=step.fits,
    )


def _rung_facts(rung: RungTried, plan: WavePlan, table: RegimeTable) -> RungFacts:
    """A rung; its children are priced by the whole wave's profile."""
    return RungFacts(
        subforwards=rung.subforwards,
        children=tuple(
            ChildFacts(
                requests=len(child.requests),
                wave=table.add(child.wave, plan.profile, plan.signature),
                required_bytes=child.required_bytes,
                retained_bytes=child.retained_bytes,
            )
            for child in rung.children
        ),
        cost_bytes=rung.cost_bytes,
        measured_bytes=rung.measured_bytes,
        lower_bound_bytes=rung.lower_bound_bytes,
        available_bytes=rung.available_bytes,
        pruned=rung.pruned,
        fits=rung.fits,
    )


def _refusal_facts(refusal: Refusal) -> RefusalFacts:
    text = str(refusal)
    return RefusalFacts(
        shortfall_bytes=refusal.shortfall_bytes,
        rows_that_fit=refusal.rows_that_fit,
        text=text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 4] + " ...",
    )


def _handoff_facts(handoff: Handoff, required_bytes: int) -> HandoffFacts:
    held = required_bytes if handoff.required_bytes is None else handoff.required_bytes
    verdict = handoff.verdict
    if verdict is None:
        verdict = judge(held, handoff.budget, cache_serves=handoff.cache_serves)
    return HandoffFacts(
        required_bytes=held,
        budget=BudgetFacts.of(handoff.budget),
        cache_serves=handoff.cache_serves,
        verdict=str(verdict),
    )


def _structure_facts(plan: WavePlan, batch: Batch) -> StructureFacts:
    segments = gather(batch, plan.requests).segment_nodes()
    numbers = {node: number for number, (node, _) in enumerate(segments)}
    return StructureFacts(
        request_rows=tuple(batch.lengths[request] for request in plan.requests if batch.is_active(request)),
        segment_rows=tuple(batch.depths[node] - batch.depths[parent] for node, parent in segments),
        segment_parents=tuple(numbers.get(parent, -1) for _, parent in segments),
    )
