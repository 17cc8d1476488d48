"""What a folder of records says about a run: its waves in order, what went wrong, and what to do about it.

Everything is computed here; `pricing.report.html` and the command line only show it.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Final

from pricing.formats.codec import Findings, decode
from pricing.formats.files import open_regular
from pricing.formats.strict_json import parse_json
from pricing.kernel.errors import FileFormatError, PricingError
from pricing.kernel.laws import LAWS
from pricing.kernel.quantities import GIB, MIB
from pricing.planner.budget import BudgetVerdict
from pricing.planner.rules import Verdict
from pricing.records.metrics import SUMMARY_VERSION, WaveSummary
from pricing.records.record import DecisionRecord, Event
from pricing.records.record_file import ReadRecord, read_record
from pricing.records.replay import Answer, WhatIf, replay, what_if
from pricing.records.spool import WAVES_SUFFIX, Gone, record_paths, wave_paths, what_went

NOTHING_GONE: Final = Gone(evicted={}, dropped={})

LOOSE_OVER: Final = Fraction(1)
"""Median over-estimate from which on prices are called loose: twice the observed peak."""

MAX_LINE_BYTES: Final = 1 << 16
"""Longest wave line read; ours are about 400 B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The waves of one process, oldest first. `label` is unique within a report."""

    label: str
    waves: tuple[WaveSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One record: whether it replays, and what the other laws would have said (empty unless something went wrong)."""

    source: str
    read: ReadRecord
    replays: bool
    what_ifs: tuple[WhatIf, ...] = ()

    @property
    def record(self) -> DecisionRecord:
        return self.read.record


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run. `unreadable` says which files or lines were passed over and why; `gone` what the folder no longer holds."""

    title: str
    series: tuple[Series, ...]
    records: tuple[Recorded, ...]
    unreadable: tuple[str, ...]
    gone: Gone = NOTHING_GONE

    @property
    def waves(self) -> tuple[WaveSummary, ...]:
        return tuple(wave for series in self.series for wave in series.waves)

    def count(self, event: Event) -> int:
        return sum(1 for wave in self.waves if wave.event is event)

    @property
    def ran(self) -> int:
        """Waves that ran to their end; turns in which a rank had nothing left to run are none."""
        ended = [wave for wave in self.waves if wave.event in (Event.OBSERVED, Event.ABANDONED)]
        return sum(1 for wave in ended if wave.verdict != Verdict.EMPTY)

    @property
    def scored(self) -> tuple[WaveSummary, ...]:
        """Waves with a price that something was learned for and an observed peak."""
        return tuple(wave for wave in self.waves if wave.observed_bytes and not wave.is_cold)

    @property
    def under(self) -> tuple[WaveSummary, ...]:
        """Waves whose peak exceeded a learned price."""
        return tuple(wave for wave in self.scored if wave.is_under)

    @property
    def median_over(self) -> Fraction | None:
        """Median of price / observed - 1 over the scored waves."""
        shares = sorted(Fraction(wave.estimate_bytes, wave.observed_bytes or 1) - 1 for wave in self.scored)
        if not shares:
            return None
        middle = len(shares) // 2
        return shares[middle] if len(shares) % 2 else (shares[middle - 1] + shares[middle]) / 2

    @property
    def tightest(self) -> WaveSummary | None:
        """The wave that ran within its budget with the least headroom."""
        ran = [wave for wave in self.waves if wave.event is not Event.REFUSED and wave.verdict in _WITHIN_BUDGET]
        return min(ran, key=lambda wave: wave.headroom_bytes, default=None)

    @property
    def refusals(self) -> tuple[Recorded, ...]:
        return tuple(item for item in self.records if item.record.event is Event.REFUSED)

    @property
    def failures(self) -> tuple[Recorded, ...]:
        return tuple(item for item in self.records if item.record.event is Event.OUT_OF_MEMORY)

    def findings(self) -> tuple[Finding, ...]:
        """What to know and to do, most urgent first. Never empty."""
        found = [finding for rule in _RULES for finding in rule(self)]
        return tuple(found or [_all_well(self)])


_WITHIN_BUDGET: Final = frozenset((Verdict.RUN, Verdict.SPLIT))


# --- reading a folder ------------------------------------------------------------------------------------------------


def read_run(folder: str | os.PathLike[str], title: str | None = None) -> RunReport:
    """The run whose records and wave lines lie in `folder`. What cannot be read is listed. Raises `OSError`."""
    unreadable: list[str] = []
    records = list(_read_records(folder, unreadable))
    lines = {path.name.removesuffix(WAVES_SUFFIX): _read_waves(path, unreadable) for path in wave_paths(folder)}
    found = {writer: waves for writer, waves in lines.items() if waves}
    for writer, waves in _waves_of_records(records).items():
        found.setdefault(writer, waves)
    return RunReport(
        title=Path(folder).resolve().name if title is None else title,
        series=tuple(_labelled(list(found.values()))),
        records=tuple(records),
        unreadable=tuple(unreadable),
        gone=what_went(folder),
    )


def _read_records(folder: str | os.PathLike[str], unreadable: list[str]) -> Iterator[Recorded]:
    for path in record_paths(folder):
        try:
            read = read_record(path)
            replayed = replay(read.record)
            yield Recorded(
                source=path.name, read=read, replays=replayed.is_equal, what_ifs=tuple(_alternatives(read.record))
            )
        except OSError as error:
            unreadable.append(f"{path.name}: {error.strerror or error}")
        except PricingError as error:
            unreadable.append(f"{path.name}: {error}")


def _alternatives(record: DecisionRecord) -> Iterator[WhatIf]:
    """What every other law would have said of a wave that did not run through."""
    if record.event in (Event.REFUSED, Event.OUT_OF_MEMORY):
        for law in LAWS.values():
            if law.name != record.law:
                yield what_if(record, law, record.safety)


def _read_waves(path: Path, unreadable: list[str]) -> tuple[WaveSummary, ...]:
    """The wave lines of one process. The last line of a killed process may be cut off; it is passed over."""
    waves, skipped = [], 0
    try:
        with open_regular(path) as stream:
            while line := stream.readline(MAX_LINE_BYTES):
                try:
                    waves.append(_wave_of_line(line, path.name))
                except PricingError:
                    skipped += 1
    except OSError as error:
        unreadable.append(f"{path.name}: {error.strerror or error}")
    if skipped:
        unreadable.append(f"{path.name}: {skipped} of {skipped + len(waves)} wave lines are not whole")
    return tuple(waves)


def _wave_of_line(line: bytes, source: str) -> WaveSummary:
    wave = decode(WaveSummary, parse_json(line, source), Findings())
    if wave.version > SUMMARY_VERSION:
        raise FileFormatError(source, f"wave line of version {wave.version}; this build reads {SUMMARY_VERSION}")
    return wave


def _waves_of_records(records: Sequence[Recorded]) -> dict[str, tuple[WaveSummary, ...]]:
    """Waves of writers that left no wave lines (records copied by hand): what was recorded is all there is."""
    found: dict[str, list[WaveSummary]] = {}
    for item in records:
        found.setdefault(item.source.split("-")[0], []).append(WaveSummary.of(item.record))
    return {writer: tuple(sorted(waves, key=lambda wave: wave.index)) for writer, waves in found.items()}


def _labelled(found: Sequence[tuple[WaveSummary, ...]]) -> Iterator[Series]:
    """Series by name; processes of one name (a restarted run) are numbered."""
    names = [waves[0].name or "process" for waves in found]
    seen: Counter[str] = Counter()
    for name, waves in sorted(zip(names, found, strict=True), key=lambda pair: pair[0]):
        seen[name] += 1
        label = name if names.count(name) == 1 else f"{name}, part {seen[name]}"
        yield Series(label=label, waves=waves)


# --- findings --------------------------------------------------------------------------------------------------------


def _out_of_memory(report: RunReport) -> Iterator[Finding]:
    count = report.count(Event.OUT_OF_MEMORY)
    if count:
        yield Finding(
            severity=Severity.FAILED,
            what=f"{_waves(count)} ran out of memory after admission",
            advice=_failure_advice([item.record for item in report.failures]),
        )


def _failure_advice(records: Sequence[DecisionRecord]) -> str:
    """By the likeliest cause: nothing was promised, cached memory was counted, or memory outside the price."""
    unpromised = sum(1 for record in records if _is_unpromised(record))
    on_cache = sum(1 for record in records if _leaned_on_cache(record))
    if not records:
        return "No record of it is left in this folder: give the spool more room, or look in the trainer's log."
    if unpromised:
        return (
            f"{_of(unpromised, len(records)).capitalize()} ran as a cold start or a probe, which nothing promises to "
            "fit. Begin with a smaller item, or load the profile that an earlier run learned."
        )
    if on_cache:
        return (
            f"{_of(on_cache, len(records)).capitalize()} fitted only by counting what the allocator had cached. Cached "
            "is not free: release the cache before such a wave (verdict `release`), and keep the reserve physically "
            "free."
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


def _under_priced(report: RunReport) -> Iterator[Finding]:
    under = report.under
    if not under:
        return
    worst = max(under, key=lambda wave: Fraction(wave.observed_bytes or 0, max(1, wave.estimate_bytes)))
    miss = Fraction(worst.observed_bytes or 0, max(1, worst.estimate_bytes)) - 1
    yield Finding(
        severity=Severity.FAILED,
        what=f"{_waves(len(under))} peaked above the price, at most by {percent(miss)} ({_place(worst)})",
        advice="This must not happen to a wave like those already seen. Until it is understood, "
        f"{_more_safety(report)}. Then look whether the wave was smaller than any before it (not promised), or its "
        "loss keeps more than 6 KiB a logical row.",
    )


def _more_safety(report: RunReport) -> str:
    """The least safety factor in hundredths that would have covered every recorded peak."""
    records = [item.record for item in report.records if item.record.observed is not None]
    needed = [
        Fraction(record.safety.numerator, record.safety.denominator)
        * Fraction(record.observed.peak_delta_bytes, record.required_bytes)
        for record in records
        if record.observed is not None and record.required_bytes and WaveSummary.of(record).is_under
    ]
    if not needed:
        return "raise the safety factor by as much"
    hundredths = math.ceil(100 * max(needed))
    return f"raise the safety factor to {hundredths // 100}.{hundredths % 100:02d} or more"


def _refused(report: RunReport) -> Iterator[Finding]:
    count = report.count(Event.REFUSED)
    if not count:
        return
    yield Finding(
        severity=Severity.REFUSED,
        what=f"{_waves(count)} {'was' if count == 1 else 'were'} refused before anything ran",
        advice=_refusal_advice([item for item in report.refusals if not item.record.refused_elsewhere]),
    )


def _refusal_advice(refusals: Sequence[Recorded]) -> str:
    if not refusals:
        return "The reason lies on another rank, or its record is gone: look at the records of every rank."
    helped = Counter(
        answer.law
        for item in refusals
        for answer in item.what_ifs
        if answer.answer is not Answer.REFUSED and answer.law != "logical"
    )
    most = max((item.record.refusal.shortfall_bytes for item in refusals if item.record.refusal), default=0)
    advice = f"The largest misses its budget by {gib(most)}." if most else "Each has its reason below."
    if helped:
        law, count = helped.most_common(1)[0]
        return f"{advice} Under the {law} law {_of(count, len(refusals))} would have run: consider it."
    return f"{advice} No other law would have run them: free as much, or make the item smaller (below: by how much)."


def _loose(report: RunReport) -> Iterator[Finding]:
    median = report.median_over
    if median is None or median < LOOSE_OVER:
        return
    laws = sorted({wave.law for wave in report.scored})
    advice = "Waves are narrower than they could be."
    if "frontier" not in laws and "frontier" in LAWS:
        advice += " The frontier law follows mixed wave sizes far more closely: `pricing replay FOLDER --law frontier`"
        advice += " shows what it would have priced."
    yield Finding(
        severity=Severity.NOTICE,
        what=f"prices are loose: at the median {percent(median)} over the observed peak",
        advice=advice,
    )


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


def _gone(report: RunReport) -> Iterator[Finding]:
    """What the spool no longer has, by kind, so that a count of refusals or waves is not taken for the whole run's."""
    if report.gone.evicted:
        yield Finding(
            severity=Severity.NOTICE,
            what=f"{_by_kind(report.gone.evicted)} went to make room: the page shows what was left",
            advice="Give the spool more room (max_files, max_bytes), or each run a folder of its own.",
        )
    if report.gone.dropped:
        yield Finding(
            severity=Severity.NOTICE,
            what=f"{_by_kind(report.gone.dropped)} could not be written",
            advice="The log says why, once a kind: a full disk, a lock held elsewhere, a folder that is gone.",
        )


def _by_kind(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind[:40]}" for kind, count in sorted(counts.items())[:12])


def _all_well(report: RunReport) -> Finding:
    if not report.waves:
        return Finding(
            severity=Severity.NOTICE,
            what="nothing was recorded in this folder",
            advice="Give the trainer's recorder this folder as its spool.",
        )
    return Finding(
        severity=Severity.GOOD,
        what=f"all {_waves(report.ran)} ran, each within its price",
        advice="Nothing to do.",
    )


_RULES: Final = (_out_of_memory, _under_priced, _refused, _loose, _not_replaying, _gone)


# --- words -----------------------------------------------------------------------------------------------------------


def gib(byte_count: int) -> str:
    """Bytes in GiB with two decimals; in MiB below a tenth of a GiB, in KiB below a tenth of a MiB."""
    if abs(byte_count) < MIB // 10:
        return f"{byte_count / 1024:,.1f} KiB"
    if abs(byte_count) < GIB // 10:
        return f"{byte_count / MIB:,.1f} MiB"
    return f"{byte_count / GIB:,.2f} GiB"


def percent(share: Fraction | float) -> str:
    """A share in percent: one decimal below a hundred, none above."""
    value = float(100 * share)
    return f"{value:,.1f} %" if abs(value) < 100 else f"{value:,.0f} %"


def _place(wave: WaveSummary) -> str:
    return f"{wave.name} wave {wave.index}" if wave.name else f"wave {wave.index}"


def _waves(count: int) -> str:
    return f"{count:,} wave" if count == 1 else f"{count:,} waves"


def _of(count: int, total: int) -> str:
    if count == total:
        return "it" if total == 1 else f"all {total}"
    return f"{count} of {total}"
