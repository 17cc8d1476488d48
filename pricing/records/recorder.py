"""The recorder: what a trainer calls, once when a wave is decided and once when it is over.

    recorder = Recorder(name="rank0", spool=Spool("records"), metrics=[wandb_logger(run.log)])
    ticket = recorder.admitted(plan, budget=budget)
    ...
    recorder.observed(ticket, reading)

Nothing here raises into training: whatever goes wrong is counted in `failures`, kept in `last_failure`, said in the log
once a kind, and the wave goes on unrecorded. Without a spool nothing touches a disk. Where nobody listens (no spool, no
sink) a record is only made when somebody asks for `last_record`.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from pricing.formats.codec import MAX_TEXT_CHARS
from pricing.kernel.law import Law
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety
from pricing.kernel.reading import Reading
from pricing.kernel.wave import Wave
from pricing.planner.budget import Budget, BudgetVerdict, judge
from pricing.records.metrics import MetricsSink, WaveSummary
from pricing.records.record import BudgetFacts, DecisionRecord, Event, FailureFacts, HandoffFacts, ObservedFacts
from pricing.records.spool import Spool
from pricing.records.write_down import record_of_plan, record_of_price

if TYPE_CHECKING:
    from pricing.kernel.requests import Signature
    from pricing.planner.batch import Batch
    from pricing.planner.wave_plan import WavePlan

__all__ = [
    "Handoff",
    "PendingRecord",
    "Recorder",
    "Ticket",
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
        over, used = 100 * observed.error_bytes, observed.used_bytes
        return over > self.over_percent * used or -over > self.under_percent * used


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """The fresh sample right before execution and what was made of it.

    required_bytes: what was held against it; None for the plan's own. verdict: None to judge it here.
    """

    budget: Budget
    verdict: BudgetVerdict | str | None = None
    required_bytes: int | None = None
    cache_serves: bool = False


class PendingRecord:
    """A record that nobody has asked for yet: `record` makes it, once, from what its decision was made from.

    Its fields can be read as the record's own, which makes it too: tickets were records in 0.1.
    """

    __slots__ = ("_make", "_record")

    def __init__(self, make: Callable[[], DecisionRecord]) -> None:
        self._make = make
        self._record: DecisionRecord | None = None

    @property
    def record(self) -> DecisionRecord:
        if self._record is None:
            self._record = self._make()
        return self._record

    def __getattr__(self, name: str) -> Any:
        return getattr(self.record, name)


Ticket = DecisionRecord | PendingRecord
"""What `admitted` and `priced` give and the calls about the same wave take."""


def record_of(ticket: Ticket) -> DecisionRecord:
    """The record behind a ticket."""
    return ticket.record if isinstance(ticket, PendingRecord) else ticket


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
        self._last: Ticket | None = None
        self._last_finished: Ticket | None = None
        self._next_index = 0
        self._said: set[str] = set()

    @property
    def listens(self) -> bool:
        """Whether anybody takes records or summaries: else waves cost next to nothing here."""
        return self.spool is not None or bool(self.sinks)

    @property
    def last_record(self) -> DecisionRecord | None:
        """The record of the latest call, made now where nobody listened."""
        return None if self._last is None else record_of(self._last)

    @property
    def last_summary(self) -> WaveSummary | None:
        """The summary of the latest wave that is over or refused."""
        return None if self._last_finished is None else WaveSummary.of(record_of(self._last_finished))

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
        after_out_of_memory: int = 0,
    ) -> Ticket:
        """A planned wave is about to run. Returns the ticket that the calls below take.

        batch: what it was planned from, for the lengths and the tree of its requests. budget: the sample it was planned
        with. index: the caller's number of the wave; the recorder counts where none is given. after_out_of_memory: how
        many waves in a row ran out of memory right before it, so that this one is another try.
        """
        number = self._numbered(index)

        def make() -> DecisionRecord:
            record = record_of_plan(plan, name=self.name, index=number, batch=batch, budget=budget)
            if after_out_of_memory:
                record = replace(record, after_out_of_memory=after_out_of_memory)
            if handoff is None:
                return record
            return replace(record, handoff=_handoff_facts(handoff, record.required_bytes))

        self._last = make() if self.listens else PendingRecord(make)
        return self._last

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
        footprints: bool = True,
    ) -> DecisionRecord:
        """A wave was priced by itself, without this project's planner, and is about to run. Returns a ticket.

        footprints: False where what is allocated is all that was priced (`record_of_price`)."""
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
            footprints=footprints,
        )
        self._last = record
        return record

    @_never_raises
    def observed(self, ticket: Ticket | None, reading: Reading | None, *, note: str = "") -> None:
        """The wave is over. `reading` is its last one, None (with a note why) where none may be believed."""
        if ticket is None:
            return

        def finished(record: DecisionRecord) -> DecisionRecord:
            facts = None if reading is None else ObservedFacts.of(reading, record.required_bytes)
            event = Event.ABANDONED if facts is None else Event.OBSERVED
            return replace(record, event=event, observed=facts, note=note[:MAX_TEXT_CHARS])

        self._finish(ticket, finished)

    @_never_raises
    def abandoned(self, ticket: Ticket | None, *, note: str = "") -> None:
        """The wave is over and no reading of it may be believed."""
        if ticket is not None:
            self._finish(ticket, lambda record: replace(record, event=Event.ABANDONED, note=note[:MAX_TEXT_CHARS]))

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
        return self._finish(record, lambda record: replace(record, event=Event.REFUSED))

    @_never_raises
    def out_of_memory(
        self,
        ticket: Ticket | None,
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
        return self._finish(
            record_of(ticket),
            lambda record: replace(record, event=Event.OUT_OF_MEMORY, failure=failure, note=note[:MAX_TEXT_CHARS]),
        )

    def _numbered(self, index: int | None) -> int:
        number = self._next_index if index is None else index
        self._next_index = number + 1
        return number

    @overload
    def _finish(self, ticket: DecisionRecord, change: Callable[[DecisionRecord], DecisionRecord]) -> DecisionRecord: ...
    @overload
    def _finish(self, ticket: Ticket, change: Callable[[DecisionRecord], DecisionRecord]) -> Ticket: ...

    def _finish(self, ticket: Ticket, change: Callable[[DecisionRecord], DecisionRecord]) -> Ticket:
        """The wave is over: `change` says how its record goes on. Told to whoever listens."""
        if isinstance(ticket, PendingRecord):
            self._last = self._last_finished = PendingRecord(lambda: change(ticket.record))
            if not self.listens:
                return self._last
        record = self._last = self._last_finished = change(record_of(ticket))
        if not self.listens:
            return record
        summary = WaveSummary.of(record)
        if self.spool is not None:
            self.spool.append_wave(summary.line())
            if self.triggers.fires(record):
                self.spool.write(record)
        for sink in self.sinks:
            try:
                sink(summary)
            except Exception as error:  # one broken sink takes neither the others nor training with it
                self._fail(error)
        return record

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        self.last_failure = f"{type(error).__name__}: {error}"[:MAX_TEXT_CHARS]
        kind = type(error).__name__
        if kind not in self._said:
            self._said.add(kind)
            _log.warning("recorder: a wave goes on unrecorded (said once a kind): %s", self.last_failure)


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
