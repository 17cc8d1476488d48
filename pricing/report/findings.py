"""What a person should know about a run and do about it, most urgent first.

Advice is given where the records bear it out: another law is named only where replay says that it would have helped,
and memory that grew outside the waves is named before any law, for none gives it back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

from pricing.planner.budget import BudgetVerdict
from pricing.planner.rules import Verdict
from pricing.records.metrics import WaveSummary
from pricing.records.record import DecisionRecord, Event
from pricing.records.replay import Answer
from pricing.report.run_report import Recorded, RunReport, median
from pricing.report.words import counted, gib, of_total, percent

LOOSE_OVER: Final = Fraction(1)
"""Median over-estimate from which on prices are called loose: twice the observed peak."""

SHRUNK: Final = Fraction(1, 20)
"""A budget shrinks that lost this share of its first value in the first half of a run and again in the second."""

LEAST_WAVES_OF_A_TREND: Final = 16


class Severity(StrEnum):
    """How much a finding matters, most first."""

    FAILED = "failed"
    REFUSED = "refused"
    NOTICE = "notice"
    GOOD = "good"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a person should know, and what to do about it."""

    severity: Severity
    what: str
    advice: str


def findings_of(report: RunReport) -> tuple[Finding, ...]:
    """What to know and to do, most urgent first. Never empty."""
    found = [finding for rule in _RULES for finding in rule(report)]
    return tuple(found or [_all_well(report)])


MOST_EXPECTED_FAILURES: Final = 64
"""Failures that one signature can take until a wave of 1/48 of what the budget claims is admitted (INV-18)."""


# --- out of memory ---------------------------------------------------------------------------------------------------


def _out_of_memory(report: RunReport) -> Iterator[Finding]:
    count, tries = report.count(Event.OUT_OF_MEMORY), report.further_tries
    if not count:
        return
    what = f"{counted(count, 'wave')} ran out of memory after admission"
    advice = _failure_advice([item.record for item in report.failures])
    if tries:
        what += f"; {counted(tries, 'wave')} ran narrower in their place"
        advice += (
            " What was learned of each is in the profile file: keep it, and a restarted run repeats none of them. "
            f"{_tries_advice(count, tries)}"
        )
    if report.unsurvived:
        advice += (
            f" {counted(report.unsurvived, 'run')} ended with such a wave: let `train_batch` own loss "
            "and backward, which takes back what the wave had added and runs it narrower."
        )
    yield Finding(severity=Severity.FAILED, what=what, advice=advice)


def _tries_advice(failures: int, tries: int) -> str:
    """Whether the failures are the price of learning, or go on and cost time."""
    if failures > MOST_EXPECTED_FAILURES:
        return (
            "So many are more than learning takes: the device has less than the budget says, again and again. Give "
            "`memory_bytes` what it really has."
        )
    return (
        "Each failure made later waves narrower by 1/17 at least: a few at the start of a run are what learning takes."
    )


def _failure_advice(records: Sequence[DecisionRecord]) -> str:
    """By the likeliest cause: nothing was promised, cached memory was counted, or memory outside the price."""
    unpromised = sum(1 for record in records if _is_unpromised(record))
    on_cache = sum(1 for record in records if _leaned_on_cache(record))
    if not records:
        return "No record of it is left in this folder: give the spool more room, or look in the trainer's log."
    if unpromised:
        return (
            f"{of_total(unpromised, len(records)).capitalize()} ran as a cold start or a probe, which nothing promises "
            "to fit. Begin with a smaller item, or load the profile that an earlier run learned."
        )
    if on_cache:
        return (
            f"{of_total(on_cache, len(records)).capitalize()} fitted only by counting what the allocator had cached. "
            "Cached is not free: release the cache before such a wave (verdict `release`), and keep the reserve "
            "physically free."
        )
    least = min(record.headroom_bytes for record in records)
    return (
        f"The admission had {gib(least)} to spare, so the price alone does not explain it. Look for memory outside the "
        "price: another process on the device, a library that allocates for itself, fragmentation, or a loss that "
        "keeps more than 6 KiB a logical row. The records below keep the admission's own figures."
    )


def _is_unpromised(record: DecisionRecord) -> bool:
    return record.verdict in (Verdict.COLD_START, Verdict.PROBE) or WaveSummary.of(record).is_cold


def _leaned_on_cache(record: DecisionRecord) -> bool:
    """Whether the wave fitted only because cached bytes were counted, and the cache was not released for it."""
    if record.handoff is not None and record.handoff.verdict == BudgetVerdict.RELEASE:
        return False
    held = record.handoff.budget if record.handoff is not None else record.budget
    return held is not None and record.required_bytes > held.free_bytes - held.reserve_bytes


# --- peaks above prices ----------------------------------------------------------------------------------------------


def _under_priced(report: RunReport) -> Iterator[Finding]:
    under = report.under
    if not under:
        return
    worst = max(under, key=lambda wave: Fraction(wave.used_bytes or 0, max(1, wave.estimate_bytes)))
    miss = Fraction(worst.used_bytes or 0, max(1, worst.estimate_bytes)) - 1
    place = f"{worst.name} wave {worst.index}" if worst.name else f"wave {worst.index}"
    yield Finding(
        severity=Severity.FAILED,
        what=f"{counted(len(under), 'wave')} peaked above the price, at most by {percent(miss)} ({place})",
        advice="This must not happen to a wave like those already seen. Until it is understood, "
        f"{_more_safety(report)}. Then look whether the wave was smaller than any before it (not promised), or its "
        "loss keeps more than 6 KiB a logical row.",
    )


def _more_safety(report: RunReport) -> str:
    """The least safety factor in hundredths that would have covered every recorded peak."""
    records = [item.record for item in report.records if item.record.observed is not None]
    needed = [
        Fraction(record.safety.numerator, record.safety.denominator)
        * Fraction(record.observed.used_bytes, record.required_bytes)
        for record in records
        if record.observed is not None and record.required_bytes and WaveSummary.of(record).is_under
    ]
    if not needed:
        return "raise the safety factor by as much"
    hundredths = math.ceil(100 * max(needed))
    return f"raise the safety factor to {hundredths // 100}.{hundredths % 100:02d} or more"


# --- refusals --------------------------------------------------------------------------------------------------------


def _refused(report: RunReport) -> Iterator[Finding]:
    count = report.count(Event.REFUSED)
    if not count:
        return
    here = [item for item in report.refusals if not item.record.refused_elsewhere]
    yield Finding(
        severity=Severity.REFUSED,
        what=f"{counted(count, 'wave')} {'was' if count == 1 else 'were'} refused before anything ran",
        advice=_refusal_advice(report, here),
    )


def _refusal_advice(report: RunReport, refusals: Sequence[Recorded]) -> str:
    if not refusals:
        return "The reason lies on another rank, or its record is gone: look at the records of every rank."
    most = max((item.record.refusal.shortfall_bytes for item in refusals if item.record.refusal), default=0)
    advice = f"The largest misses its budget by {gib(most)}." if most else "Each has its reason below."
    lost = [
        before - item.record.available_bytes
        for item, before in zip(refusals, _highest_budgets_before(report, refusals), strict=True)
        if item.record.available_bytes < item.record.required_bytes <= before
    ]
    if lost:
        return (
            f"{advice} {of_total(len(lost), len(refusals)).capitalize()} would have fitted into the budget of an "
            f"earlier wave: up to {gib(max(lost))} went to something outside the waves since, and no law gives that "
            "back. Look for what is kept: outputs of earlier waves, gradients, state of the optimizer, evaluation, "
            "another process."
        )
    helped = Counter(
        answer.law
        for item in refusals
        for answer in item.what_ifs
        if answer.answer is not Answer.REFUSED and answer.law != "logical"
    )
    if helped:
        law, count = helped.most_common(1)[0]
        return f"{advice} Replayed, {of_total(count, len(refusals))} would have run under the {law} law: consider it."
    return f"{advice} No other law would have run them: free as much, or make the item smaller (below: by how much)."


def _highest_budgets_before(report: RunReport, refusals: Sequence[Recorded]) -> list[int]:
    """For each refusal the highest budget that a wave of its process had before it; 0 where none ran."""
    found = {(item.writer, item.record.index): 0 for item in refusals}
    for process in report.processes:
        highest = 0
        for wave in process.waves:
            if wave.event is not Event.REFUSED:
                highest = max(highest, wave.available_bytes)
            elif (process.writer, wave.index) in found:
                found[process.writer, wave.index] = highest
    return [found[item.writer, item.record.index] for item in refusals]


def _shrinking(report: RunReport) -> Iterator[Finding]:
    """Budgets that fall from the beginning of a process to its end: something outside the waves grows."""
    for series in report.series:
        for process in series.processes:
            lost = _steady_loss(process.waves)
            if lost:
                yield Finding(
                    severity=Severity.NOTICE,
                    what=f"the budget of {series.label} shrank by {gib(lost)} in {len(process.waves):,} waves",
                    advice="Memory outside the waves grew all along, which no price covers. Look for what is kept from "
                    "step to step: outputs, evaluation, statistics on the device, another process.",
                )
                return


def _steady_loss(waves: Sequence[WaveSummary]) -> int:
    """What a budget lost from its first eighth to its last; 0 where it did not fall in both halves."""
    eighth = len(waves) // 8
    if len(waves) < LEAST_WAVES_OF_A_TREND:
        return 0
    middle = len(waves) // 2
    parts = (waves[:eighth], waves[middle - eighth // 2 : middle - eighth // 2 + eighth], waves[-eighth:])
    first, amid, last = (max(wave.available_bytes for wave in part) for part in parts)
    least = SHRUNK * max(0, first)
    return first - last if first - amid > least and amid - last > least else 0


# --- loose prices ----------------------------------------------------------------------------------------------------


def _loose(report: RunReport) -> Iterator[Finding]:
    over = report.median_over
    if over is None or over < LOOSE_OVER:
        return
    advice = "Waves are narrower than they could be."
    closer = _closer_law(report)
    if closer is not None:
        law, here, there, count = closer
        advice += (
            f" Replayed on {counted(count, 'record')}, the {law} law prices {percent(there)} over the peak at the "
            f"median instead of {percent(here)}, and none under it: `pricing replay FOLDER --law {law}`."
        )
    yield Finding(
        severity=Severity.NOTICE,
        what=f"prices are loose: at the median {percent(over)} over the observed peak",
        advice=advice,
    )


def _closer_law(report: RunReport) -> tuple[str, Fraction, Fraction, int] | None:
    """The law that would have priced the recorded waves closest, if that is less and never under a peak."""
    observed = [
        item
        for item in report.records
        if item.record.observed is not None and item.what_ifs and not WaveSummary.of(item.record).is_cold
    ]
    peaks = [item.record.observed.used_bytes for item in observed if item.record.observed is not None]
    if not observed or not all(peaks):
        return None
    prices: dict[str, list[int]] = {}
    for item in observed:
        for answer in item.what_ifs:
            prices.setdefault(answer.law, []).append(answer.required_bytes)
    covering = {
        law: _median_over(priced, peaks)
        for law, priced in prices.items()
        if len(priced) == len(peaks) and all(price >= peak for price, peak in zip(priced, peaks, strict=True))
    }
    here = _median_over([item.record.required_bytes for item in observed], peaks)
    if not covering:
        return None
    law = min(covering, key=lambda name: covering[name])
    return (law, here, covering[law], len(observed)) if covering[law] < here else None


def _median_over(prices: Sequence[int], peaks: Sequence[int]) -> Fraction:
    over = median([Fraction(price, peak) - 1 for price, peak in zip(prices, peaks, strict=True)])
    assert over is not None, "asked only of records"
    return over


# --- the folder itself -----------------------------------------------------------------------------------------------


def _not_replaying(report: RunReport) -> Iterator[Finding]:
    differing = [item for item in report.records if not item.replays]
    if differing:
        yield Finding(
            severity=Severity.NOTICE,
            what=f"{len(differing)} of {len(report.records)} records do not replay to the byte in this build",
            advice="`pricing replay FOLDER` names the first difference. Records of an older build may differ rightly.",
        )
    if report.unreadable:
        yield Finding(
            severity=Severity.NOTICE,
            what=f"{len(report.unreadable)} files could not be read in full",
            advice="They are listed at the end. A process that was killed leaves at most one line cut off.",
        )


def _all_well(report: RunReport) -> Finding:
    if not report.waves:
        return Finding(
            severity=Severity.NOTICE,
            what="nothing was recorded in this folder",
            advice="Give the trainer's recorder this folder as its spool.",
        )
    return Finding(
        severity=Severity.GOOD,
        what=f"all {counted(report.ran, 'wave')} ran, each within its price",
        advice="Nothing to do.",
    )


_RULES: Final = (_out_of_memory, _under_priced, _refused, _shrinking, _loose, _not_replaying)
