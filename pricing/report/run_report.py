"""What a folder of records says about a run: its waves in order, by rank and process, and the records beside them.

Everything is computed here and in `findings`; the page and the command line only show it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Final

from pricing.formats.codec import decode
from pricing.formats.files import open_regular
from pricing.formats.place import Findings, Place
from pricing.formats.strict_json import parse_json
from pricing.kernel.errors import FileFormatError, PricingError
from pricing.kernel.laws import LAWS
from pricing.planner.rules import Verdict
from pricing.records.metrics import SUMMARY_VERSION, WaveSummary
from pricing.records.record import DecisionRecord, Event
from pricing.records.record_file import ReadRecord, read_record
from pricing.records.replay import WhatIf, replay, what_if
from pricing.records.spool import WAVES_SUFFIX, Gone, record_paths, wave_paths, what_went

NOTHING_GONE: Final = Gone(evicted={}, dropped={})

MAX_LINE_BYTES: Final = 1 << 16
"""Longest wave line read; ours are about 400 B."""

MAX_WAVES: Final = 200_000
"""Wave lines kept of a folder, the newest of each process: about 1 KB of memory each."""

PROGRESS_WAVES: Final = 1_000
"""So many lines are read between two words about how far the reading is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The waves that one process left in the folder, oldest first. `writer`: the name of its files."""

    writer: str
    waves: tuple[WaveSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The waves recorded under one name: of one process, or of several one after another (a run that was restarted).

    `label` is unique within a report.
    """

    label: str
    processes: tuple[Process, ...]

    @property
    def waves(self) -> tuple[WaveSummary, ...]:
        return tuple(chain.from_iterable(process.waves for process in self.processes))

    @property
    def starts(self) -> tuple[int, ...]:
        """Position in `waves` of the first wave of each process."""
        found, at = [], 0
        for process in self.processes:
            found.append(at)
            at += len(process.waves)
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One record: whether it replays, and what the other laws would have said of it."""

    source: str
    read: ReadRecord
    replays: bool
    what_ifs: tuple[WhatIf, ...] = ()

    @property
    def record(self) -> DecisionRecord:
        return self.read.record

    @property
    def writer(self) -> str:
        return self.source.split("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run. unreadable: which files or lines were passed over and why. left_out: older waves beyond `MAX_WAVES`.

    gone: what the folder was to hold and does not, as its writers counted.
    """

    title: str
    series: tuple[Series, ...]
    records: tuple[Recorded, ...]
    unreadable: tuple[str, ...]
    left_out: int = 0
    gone: Gone = NOTHING_GONE

    @property
    def waves(self) -> tuple[WaveSummary, ...]:
        return tuple(chain.from_iterable(process.waves for process in self.processes))

    @property
    def processes(self) -> tuple[Process, ...]:
        return tuple(chain.from_iterable(series.processes for series in self.series))

    def count(self, event: Event) -> int:
        return sum(1 for wave in self.waves if wave.event is event)

    @property
    def further_tries(self) -> int:
        """Waves that ran in the place of ones that had run out of memory."""
        return sum(1 for wave in self.waves if wave.is_another_try)

    @property
    def unsurvived(self) -> int:
        """Processes whose last wave ran out of memory: nothing ran in its place."""
        return sum(1 for series in self.series if _ends_out_of_memory(series.waves))

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
        return median([Fraction(wave.estimate_bytes, wave.used_bytes or 1) - 1 for wave in self.scored])

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


def _ends_out_of_memory(waves: Sequence[WaveSummary]) -> bool:
    return bool(waves) and waves[-1].event is Event.OUT_OF_MEMORY


_WITHIN_BUDGET: Final = frozenset((Verdict.RUN, Verdict.SPLIT))


def median(values: Sequence[Fraction]) -> Fraction | None:
    """The median, exactly; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


# --- reading a folder ------------------------------------------------------------------------------------------------


def read_run(
    folder: str | os.PathLike[str], title: str | None = None, progress: Callable[[int], None] = lambda _waves: None
) -> RunReport:
    """The run whose records and wave lines lie in `folder`. What cannot be read is listed. Raises `OSError`.

    `progress` is called with the number of records and wave lines read so far.
    """
    unreadable: list[str] = []
    records = []
    for record in _read_records(folder, unreadable):
        records.append(record)
        progress(len(records))
    found: dict[str, deque[WaveSummary]] = {}
    seen = 0
    for path in wave_paths(folder):
        waves: deque[WaveSummary] = deque(maxlen=MAX_WAVES)
        for wave in _read_waves(path, unreadable):
            waves.append(wave)
            seen += 1
            if seen % PROGRESS_WAVES == 0:
                progress(len(records) + seen)
        if waves:
            found[path.name.removesuffix(WAVES_SUFFIX)] = waves
            _keep_newest(list(found.values()))
    kept = sum(map(len, found.values()))
    for writer, recorded in _waves_of_records(records).items():
        found.setdefault(writer, deque(recorded))
    return RunReport(
        title=Path(folder).resolve().name if title is None else title,
        series=tuple(_by_name([Process(writer=writer, waves=tuple(waves)) for writer, waves in found.items()])),
        records=tuple(records),
        unreadable=tuple(unreadable),
        left_out=seen - kept,
        gone=what_went(folder),
    )


def _keep_newest(found: Sequence[deque[WaveSummary]]) -> None:
    """Drop the oldest waves of the longest processes until no more than `MAX_WAVES` are held."""
    while sum(map(len, found)) > MAX_WAVES:
        longest = max(found, key=len)
        for _ in range(-(-len(longest) // 8)):
            longest.popleft()


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
    """What every other law would have said: of a wave that did not run through, and of one whose peak was seen."""
    if record.event in (Event.REFUSED, Event.OUT_OF_MEMORY, Event.OBSERVED):
        for law in LAWS.values():
            if law.name != record.law:
                yield what_if(record, law, record.safety)


def _read_waves(path: Path, unreadable: list[str]) -> Iterator[WaveSummary]:
    """The wave lines of one process. The last line of a killed process may be cut off; it is passed over."""
    whole, skipped = 0, 0
    try:
        with open_regular(path) as stream:
            while line := stream.readline(MAX_LINE_BYTES):
                try:
                    wave = _wave_of_line(line, path.name)
                except PricingError:
                    skipped += 1
                else:
                    whole += 1
                    yield wave
    except OSError as error:
        unreadable.append(f"{path.name}: {error.strerror or error}")
    if skipped:
        unreadable.append(f"{path.name}: {skipped} of {skipped + whole} wave lines are not whole")


def _wave_of_line(line: bytes, source: str) -> WaveSummary:
    wave = decode(WaveSummary, parse_json(line, source), Place(source, findings=Findings()))
    if wave.version > SUMMARY_VERSION:
        raise FileFormatError(source, f"wave line of version {wave.version}; this build reads {SUMMARY_VERSION}")
    return wave


def _waves_of_records(records: Sequence[Recorded]) -> dict[str, tuple[WaveSummary, ...]]:
    """Waves of writers that left no wave lines (records copied by hand): what was recorded is all there is."""
    found: dict[str, list[WaveSummary]] = {}
    for item in records:
        found.setdefault(item.writer, []).append(WaveSummary.of(item.record))
    return {writer: tuple(sorted(waves, key=lambda wave: wave.index)) for writer, waves in found.items()}


def _by_name(processes: Sequence[Process]) -> Iterator[Series]:
    """Processes by the name they recorded under, oldest first: those of one name are one series."""
    named: dict[str, list[Process]] = {}
    for process in processes:
        named.setdefault(process.waves[0].name, []).append(process)
    for name, of_name in sorted(named.items()):
        label = name or ("process" if "process" not in named else "process without a name")
        yield Series(label=label, processes=tuple(of_name))
