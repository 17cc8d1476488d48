"""Replay: compute a recorded decision again, with nothing but the record.

`recompute` gives the record that this build would have written: every price with its parts, every width and rung, the
verdict. `replay` compares the two field by field. `what_if` asks the same of another law or safety factor, and says
what it would have decided among the widths and rungs that were recorded: another law may have tried others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from pricing.formats.codec import encode
from pricing.kernel.law import Law
from pricing.kernel.laws import find_law
from pricing.kernel.liveness import witnessed_bytes
from pricing.kernel.price import (
    allocated_bytes,
    price,
    required_bytes,
    retained_bytes,
    retained_evidence_bytes,
)
from pricing.kernel.quantities import Safety
from pricing.planner.budget import fits, judge
from pricing.planner.refusal import Refusal
from pricing.planner.rules import (
    Verdict,
    earns_probe,
    held_bytes,
    is_feasible,
    is_learned,
    is_open_to_a_probe,
    is_trusted,
    may_probe,
    verdict_of,
)
from pricing.planner.split import split_cost_bytes
from pricing.records.record import (
    BudgetFacts,
    ChildFacts,
    DecisionRecord,
    HandoffFacts,
    IncompleteRecordError,
    ObservedFacts,
    PriceFacts,
    ProbeFacts,
    RefusalFacts,
    RungFacts,
    WaveFacts,
    WidthFacts,
)

MAX_DIFFERENCES: Final = 20
"""How many differences are listed; one is enough to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field whose recorded and replayed values differ, both as JSON values."""

    field: str
    recorded: object
    replayed: object

    def __str__(self) -> str:
        return f"{self.field}: recorded {self.recorded!r}, replayed {self.replayed!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The outcome. `differences` is empty where the record replays to the byte; the first one is the finding.

    steps: prices that were computed again. not_replayed: parts whose inputs were left out of the record for size.
    """

    record: DecisionRecord
    replayed: DecisionRecord
    differences: tuple[Difference, ...]
    steps: int
    not_replayed: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        return not self.differences


def replay(record: DecisionRecord) -> Replay:
    """Decide `record` again under its own law and safety factor.

    Raises `UnknownLawError`, `IncompleteRecordError` naming what was not recorded, and `PricingError` for quantities
    that no wave can have.
    """
    replayed = recompute(record, find_law(record.law), record.safety)
    found = _differences(encode(record), encode(replayed), "")
    return Replay(
        record=record,
        replayed=replayed,
        differences=tuple(difference for difference, _ in zip(found, range(MAX_DIFFERENCES), strict=False)),
        steps=sum(1 for _ in record.waves),
        not_replayed=tuple(_cut_parts(record)),
    )


def recompute(record: DecisionRecord, law: Law, safety: Safety) -> DecisionRecord:
    """The record with every computed field computed again; what was given or observed stays as it is."""
    pricer = _Pricer(record, law, safety)
    tried = tuple(pricer.width(step) for step in record.tried)
    rungs = tuple(pricer.rung(rung) for rung in record.rungs)
    priced = pricer.price(record.wave)
    narrowest = next((step for step in record.tried if step.width == record.width), None)
    draft = replace(
        record,
        law=law.name,
        safety=safety,
        wave=next((step.wave for step in tried if step.width == record.width), record.wave),
        price=priced,
        probe=None if narrowest is None else pricer.probe(record.probe, narrowest.wave),
        tried=tried,
        rungs=rungs,
        budget=None if record.budget is None else BudgetFacts.of(record.budget.budget),
    )
    verdict = Verdict.REFUSE if record.refused_elsewhere else _verdict(draft, pricer)
    required = held_bytes(verdict, priced.required_bytes, rungs[-1].cost_bytes if rungs else None)
    return replace(
        draft,
        verdict=str(verdict),
        required_bytes=required,
        handoff=_handoff(record),
        refusal=_refusal(record, pricer),
        observed=None if record.observed is None else ObservedFacts.of(record.observed.reading, required),
    )


@dataclass(frozen=True, slots=True)
class _Pricer:
    """Prices a record's waves under one law and safety factor."""

    record: DecisionRecord
    law: Law
    safety: Safety

    @property
    def knows_footprints(self) -> bool:
        """Records of version 1 were decided by what is allocated alone."""
        return self.record.schema_version > 1

    def price(self, wave: WaveFacts) -> PriceFacts:
        priced = price(self.record.wave_of(wave), self.record.profile_of(wave), self.law, self.safety)
        return PriceFacts.of(priced) if self.knows_footprints else PriceFacts.of_allocated(priced)

    def required_bytes(self, wave: WaveFacts) -> int:
        figure = required_bytes if self.knows_footprints else allocated_bytes
        return figure(self.record.wave_of(wave), self.record.profile_of(wave), self.law, self.safety)

    def retained_bytes(self, wave: WaveFacts) -> int:
        figure = retained_bytes if self.knows_footprints else retained_evidence_bytes
        return figure(self.record.wave_of(wave), self.record.profile_of(wave), self.law, self.safety)

    def width(self, step: WidthFacts) -> WidthFacts:
        profile = self.record.profile_of(step.wave)
        required = self.required_bytes(step.wave)
        learned = is_learned(profile, active_groups=len(self.record.regimes[step.wave.regime].grad_modes))
        trusted = is_trusted(step.wave.packed_rows, profile, learned=learned)
        return replace(
            step,
            required_bytes=required,
            learned=learned,
            trusted=trusted,
            fits=is_feasible(
                step.width,
                required_bytes=required,
                available_bytes=step.available_bytes,
                learned=learned,
                trusted=trusted,
            ),
        )

    def rung(self, rung: RungFacts) -> RungFacts:
        """A rung whose children were left out for size keeps its recorded cost."""
        pruned = not fits(rung.lower_bound_bytes, rung.available_bytes)
        children = tuple(self.child(child) for child in rung.children)
        cost = None if pruned else rung.cost_bytes
        if children and not pruned:
            cost = split_cost_bytes(children, rung.measured_bytes)
        return replace(
            rung,
            children=children,
            cost_bytes=cost,
            pruned=pruned,
            fits=cost is not None and fits(cost, rung.available_bytes),
        )

    def probe(self, probe: ProbeFacts | None, narrowest: WaveFacts) -> ProbeFacts | None:
        """Records of version 1 knew no witnesses."""
        if probe is None or not self.knows_footprints:
            return probe
        wave, profile = self.record.wave_of(narrowest), self.record.profile_of(narrowest)
        return replace(probe, witnessed_bytes=witnessed_bytes(wave, profile, self.law, self.safety))

    def child(self, child: ChildFacts) -> ChildFacts:
        return replace(
            child, required_bytes=self.required_bytes(child.wave), retained_bytes=self.retained_bytes(child.wave)
        )


def _verdict(record: DecisionRecord, pricer: _Pricer) -> Verdict:
    """The planner's rule for one rank, from recomputed steps (`pricing.planner.rules`)."""
    if record.width is None:
        runs = fits(record.price.required_bytes, record.available_bytes)
        return Verdict.RUN if runs else Verdict.REFUSE
    if record.width == 0:
        return Verdict.EMPTY
    step = next((step for step in record.tried if step.width == record.width), None)
    if step is None:
        raise IncompleteRecordError(f"tried (width {record.width}, which ran)")
    return verdict_of(
        feasible=step.fits,
        learned=step.learned,
        split_fits=bool(record.rungs) and record.rungs[-1].fits,
        probes=lambda: _probes(record, step, pricer),
    )


def _probes(record: DecisionRecord, step: WidthFacts, pricer: _Pricer) -> bool:
    """A wave that ran whole has nothing on record about a probe: under a law by which it does not fit, it is none."""
    over_budget = not fits(step.required_bytes, step.available_bytes)
    probe = pricer.probe(record.probe, step.wave)
    forecast_fits = True
    if step.wave.forecast_bytes and probe is not None:
        forecast = replace(probe.cold, forecast_bytes=step.wave.forecast_bytes)
        forecast_fits = fits(pricer.required_bytes(forecast), record.available_bytes)
    is_open = is_open_to_a_probe(
        record.profile_of(step.wave),
        learned=step.learned,
        over_budget=over_budget,
        forecast_fits=forecast_fits,
        survives=probe is not None and probe.survives,
    )
    if not is_open and (probe is None or probe.witnessed_bytes is None):
        return False
    if probe is None:
        if record.refusal is not None or record.verdict == Verdict.PROBE:
            raise IncompleteRecordError("probe")
        return False
    cold_bytes = pricer.required_bytes(probe.cold)
    is_unsupported = is_open and may_probe(
        had_probe=probe.had_probe,
        over_budget=over_budget,
        cold_required_bytes=cold_bytes,
        available_bytes=record.available_bytes,
    )
    return is_unsupported or earns_probe(
        lost=probe.lost,
        required_bytes=step.required_bytes,
        witnessed_bytes=probe.witnessed_bytes,
        cold_required_bytes=cold_bytes,
        available_bytes=record.available_bytes,
    )


def _handoff(record: DecisionRecord) -> HandoffFacts | None:
    handoff = record.handoff
    if handoff is None:
        return None
    budget = handoff.budget.budget
    verdict = judge(handoff.required_bytes, budget, cache_serves=handoff.cache_serves)
    return replace(handoff, budget=BudgetFacts.of(budget), verdict=str(verdict))


def _refusal(record: DecisionRecord, pricer: _Pricer) -> RefusalFacts | None:
    """The refusal's figures. Its text is a rendering of figures that are compared one by one, and is kept as it is."""
    if record.refusal is None:
        return None
    wave, profile = record.wave_of(record.wave), record.profile_of(record.wave)
    priced = price(wave, profile, pricer.law, pricer.safety)
    refusal = Refusal.of(wave, priced, profile, pricer.law, record.available_bytes, ())
    return replace(record.refusal, shortfall_bytes=refusal.shortfall_bytes, rows_that_fit=refusal.rows_that_fit)


def _cut_parts(record: DecisionRecord) -> Iterator[str]:
    """What cannot be computed again because the record was cut to its size cap."""
    for at, rung in enumerate(record.rungs):
        if not rung.children and rung.cost_bytes is not None:
            yield f"rungs[{at}].cost_bytes"
    yield from (part for part in record.omitted if part.startswith("tried"))


def _differences(recorded: object, replayed: object, where: str) -> Iterator[Difference]:
    """Fields in which two JSON values differ, depth-first in the order of their names."""
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for name in sorted(recorded.keys() | replayed.keys()):
            yield from _differences(recorded.get(name), replayed.get(name), f"{where}.{name}" if where else name)
    elif isinstance(recorded, list) and isinstance(replayed, list) and len(recorded) == len(replayed):
        for at, pair in enumerate(zip(recorded, replayed, strict=True)):
            yield from _differences(*pair, f"{where}[{at}]")
    elif recorded != replayed:
        yield Difference(field=where, recorded=recorded, replayed=replayed)


# --- under another law -----------------------------------------------------------------------------------------------


class Answer(StrEnum):
    """What another law would have said of a recorded decision, as far as the record can tell."""

    RUNS = "runs"
    """The wave as recorded would have run (whole, cold, as a probe or split)."""

    RUNS_NARROWER = "runs_narrower"
    """The wave as recorded would not have fitted; a narrower one that was tried would have."""

    REFUSED = "refused"
    """No recorded width or rung would have fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What would have been decided under `law` and `safety`, among the widths and rungs that were recorded.

    required_bytes: what the wave (or its split) would have been held at. widest: the largest recorded width all of
    whose recorded smaller widths fit; it may exceed the width that ran. under_bytes: by how much what was used
    (the footprint where one was read, else the peak) would have exceeded the price (0: covered; None: nothing
    observed).
    """

    law: str
    safety: Safety
    answer: Answer
    required_bytes: int
    headroom_bytes: int
    binding_term: str
    widest: int | None
    under_bytes: int | None


def what_if(record: DecisionRecord, law: Law, safety: Safety) -> WhatIf:
    """The same question put to another law or safety factor. Raises as `replay` does."""
    there = recompute(replace(record, refused_elsewhere=False), law, safety)
    widest = _widest(there) if record.tried else None
    observed = record.observed
    if there.verdict != Verdict.REFUSE or (
        record.refused_elsewhere and fits(there.required_bytes, there.available_bytes)
    ):
        answer = Answer.RUNS
    else:
        answer = Answer.RUNS_NARROWER if widest else Answer.REFUSED
    return WhatIf(
        law=law.name,
        safety=safety,
        answer=answer,
        required_bytes=there.required_bytes,
        headroom_bytes=there.headroom_bytes,
        binding_term=there.price.binding_term,
        widest=widest,
        under_bytes=None if observed is None else max(0, observed.used_bytes - there.required_bytes),
    )


def _widest(record: DecisionRecord) -> int:
    widest = 0
    for step in sorted(record.tried, key=lambda step: step.width):
        if not step.fits:
            break
        widest = step.width
    return widest
