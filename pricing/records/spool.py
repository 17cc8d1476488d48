"""The spool: a folder of records and wave lines, bounded, whole after every crash, never a reason for training to stop.

    <writer>-<number>-<event>.json    one decision record, whole or absent
    <writer>.waves.jsonl              one line a wave, newest last; the line a crash cut off is passed over by readers
    .spool.lock                       held while something is written or removed; holds the latest number
    .spool.gone                       how much of each kind went to make room, or could not be written
    .<name>.tmp                       being written; whoever holds the lock next knows that its writer died

Files of any number of processes live in one folder. All of them count under the two bounds. Age is the number that a
record got under the lock, and for wave lines that of their first one: never the clock, which may be set. The oldest
file goes first, records of refusals and of running out of memory after all others (they are what people come to read),
and wave lines only where all of them together take more than half of a bound: no record pushes them out.

All writing happens under one advisory lock, which the system releases when a process dies, so a temporary file found
by the holder of the lock is a dead writer's and is removed. A write that finds the lock taken for longer than
`LOCK_WAIT_SECONDS`, the disk full or the folder gone is dropped, counted, and said in the log once a kind. Behind a
lock that is held for long, later writes do not wait again before a growing pause is over. What went and what was
dropped is counted by kind in the folder too, with the next write that succeeds, so that a report can say it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pricing.formats.files import open_regular
from pricing.formats.strict_json import canonical_json, parse_json
from pricing.kernel.errors import PricingError
from pricing.records.record import DecisionRecord, Event, RecordError
from pricing.records.record_file import LEAST_RECORD_BYTES, MAX_RECORD_BYTES, record_text

DEFAULT_MAX_FILES: Final = 256
DEFAULT_MAX_BYTES: Final = 64 << 20

LOCK_WAIT_SECONDS: Final = 0.25
"""Longest a write waits for another process; a write takes about a millisecond on a local disk."""

LONGEST_PAUSE_SECONDS: Final = 60.0
"""Longest pause between waits for a lock that is held elsewhere; the first is a second, each next double."""

WAVES_SHARE: Final = 4
"""A writer's wave lines take at most 1 / WAVES_SHARE of the spool's bytes; then their older half goes."""

ALL_WAVES_SHARE: Final = 2
"""All wave lines together take at most 1 / ALL_WAVES_SHARE of each bound; then the oldest writer's go."""

SEQUENCE: Final = "sequence"
"""Field of a file's first wave line: its number among everything that was written to the folder."""

MOST_WRITERS: Final = 128
"""From so many writers on, wave lines are looked after every time."""

MAX_FIRST_LINE_BYTES: Final = 1 << 16

MAX_SEQUENCE: Final = 10**12
"""Numbers above are no count of ours: the lock's file was written by somebody else."""

RECORD_SUFFIX: Final = ".json"
WAVES_SUFFIX: Final = ".waves.jsonl"
_KEPT_SUFFIXES: Final = (f"-{Event.REFUSED}{RECORD_SUFFIX}", f"-{Event.OUT_OF_MEMORY}{RECORD_SUFFIX}")
WAVE_LINES: Final = "wave lines"
RECORDS: Final = "records"
_LOCK_NAME: Final = ".spool.lock"
_GONE_NAME: Final = ".spool.gone"
MAX_GONE_BYTES: Final = 1 << 14
"""Longest file of counts read; ours hold a dozen kinds."""
_TEMPORARY_SUFFIX: Final = ".tmp"

_log = logging.getLogger(__name__)


class SpoolError(RecordError):
    """Bounds that no spool can keep. Raised when a spool is made, never while it is used."""


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    size_bytes: int
    modified_ns: int

    @property
    def is_waves(self) -> bool:
        return self.path.name.endswith(WAVES_SUFFIX)

    @property
    def kind(self) -> str:
        """What the file holds, for the counts of what went."""
        return WAVE_LINES if self.is_waves else self.path.name.removesuffix(RECORD_SUFFIX).split("-")[-1]

    @property
    def age(self) -> tuple[bool, int, int, str]:
        """Sorts by age: kept records last, by number, and by the clock only what has no number of ours."""
        kept = self.path.name.endswith(_KEPT_SUFFIXES)
        return kept, sequence_of(self.path), self.modified_ns, self.path.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What a folder was to hold and does not, by kind (an event of records, or wave lines), as its writers counted.

    evicted: went to make room, the oldest first. dropped: could not be written: disk full, lock held, folder gone.
    """

    evicted: Mapping[str, int]
    dropped: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.evicted or self.dropped)


class Spool:
    """One process's hand on a spool folder. Made before training; `write` and `append_wave` never raise.

    max_files, max_bytes: bounds on the folder's records and wave lines together, whoever wrote them. max_record_bytes:
    cap on one record, which lists what was left out for it. Raises `SpoolError` for bounds too small to hold a record;
    a folder that cannot be used only counts as dropped writes (`dropped`, `last_failure`).

    dropped, dropped_by_kind: writes that were not made, of records and of wave lines. evicted, evicted_by_kind: files
    that went to make room, records by their event, and wave lines one by one.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        max_files: int = DEFAULT_MAX_FILES,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        if max_files < 2:
            raise SpoolError(f"max_files must be at least 2 (one record, one file of wave lines), got {max_files}")
        if not LEAST_RECORD_BYTES <= max_record_bytes <= max_bytes // 2:
            raise SpoolError(
                f"max_record_bytes must lie in [{LEAST_RECORD_BYTES}, max_bytes / 2 = {max_bytes // 2}], "
                f"got {max_record_bytes}"
            )
        self.folder = Path(folder)
        self.max_files = max_files
        self.max_bytes = max_bytes
        self.max_record_bytes = max_record_bytes
        self.writer = secrets.token_hex(6)
        self.written = 0
        self.evicted = 0
        self.dropped = 0
        self.evicted_by_kind: Counter[str] = Counter()
        self.dropped_by_kind: Counter[str] = Counter()
        self.last_failure: str | None = None
        self._told: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self._pause_seconds = 0.0
        self._paused_until = 0.0
        self._process = os.getpid()
        self._said: set[str] = set()

    def write(self, record: DecisionRecord) -> Path | None:
        """Write one record whole; its path, or None where it was dropped. Never raises."""
        try:
            content = record_text(record, self.max_record_bytes).encode() + b"\n"
            with self._locked() as lock:
                number = self._next_number(lock)
                target = self.folder / f"{self.writer}-{number:08d}-{record.event}{RECORD_SUFFIX}"
                self._make_room(1, len(content))
                self._write_whole(target, content)
                self._tell_what_went()
        except Exception as error:  # training goes on without this record, whatever went wrong
            self._drop(error, RECORDS)
            return None
        self.written += 1
        return target

    def append_wave(self, line: dict[str, object]) -> bool:
        """Append one wave's line; whether it was. Never raises."""
        try:
            content = canonical_json(line).encode() + b"\n"
            if len(content) > self.max_bytes // (2 * WAVES_SHARE):
                raise OSError(errno.EFBIG, f"a wave line of {len(content)} B")
            with self._locked() as lock:
                path = self.folder / f"{self.writer}{WAVES_SUFFIX}"
                if path.exists():
                    self._halve_waves(path, len(content))
                else:
                    numbered = {**line, SEQUENCE: self._next_number(lock)}
                    content = canonical_json(numbered).encode() + b"\n"
                self._make_room(0 if path.exists() else 1, len(content), spared=path)
                _append_whole(path, content)
                self._tell_what_went()
        except Exception as error:  # as above
            self._drop(error, WAVE_LINES)
            return False
        return True

    def _tell_what_went(self) -> None:
        """Add what this process has evicted and dropped since it last said so to the folder's counts.

        Under the lock, after the write that was asked for: counts that cannot be kept cost no record.
        """
        now = Counter(self.evicted_by_kind), Counter(self.dropped_by_kind)
        if now == self._told:
            return
        path = self.folder / _GONE_NAME
        if path.is_symlink() or (path.exists() and not path.is_file()):
            return  # not ours to replace
        with contextlib.suppress(OSError):
            before = what_went(self.folder)
            evicted, dropped = (
                {kind: known.get(kind, 0) + mine[kind] - told[kind] for kind in {*known, *mine}}
                for known, mine, told in zip((before.evicted, before.dropped), now, self._told, strict=True)
            )
            text = canonical_json({"evicted": evicted, "dropped": dropped})
            temporary = self.folder / f"{_GONE_NAME}{_TEMPORARY_SUFFIX}"
            temporary.write_text(text + "\n")
            os.replace(temporary, path)
            self._told = now

    def _drop(self, error: Exception, kind_of_write: str) -> None:
        self.dropped += 1
        self.dropped_by_kind[kind_of_write] += 1
        kind = type(error).__name__
        self.last_failure = f"{kind}: {error}"
        if kind not in self._said:
            self._said.add(kind)
            _log.warning("spool: a record was dropped and training goes on (said once a kind): %s", self.last_failure)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the folder's lock; first remove what dead writers left. Raises `OSError` where it cannot be had."""
        if os.getpid() != self._process:  # forked: names of its own, or parent and child would overwrite each other
            self._process, self.writer = os.getpid(), secrets.token_hex(6)
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._take(descriptor)
            for leftover in self.folder.glob(f".*{_TEMPORARY_SUFFIX}"):
                leftover.unlink(missing_ok=True)
            yield descriptor
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        """Take the lock. One that is held for long costs a wait now and then, not one every wave."""
        now = time.monotonic()
        try:
            _take(descriptor, LOCK_WAIT_SECONDS if now >= self._paused_until else 0)
        except TimeoutError:
            if now >= self._paused_until:
                self._pause_seconds = min(max(1.0, 2 * self._pause_seconds), LONGEST_PAUSE_SECONDS)
                self._paused_until = time.monotonic() + self._pause_seconds
            raise
        self._pause_seconds = self._paused_until = 0.0

    def _next_number(self, lock: int) -> int:
        """One more than any number given in this folder. Kept in the lock's own file, found again where that is new."""
        text = os.pread(lock, 32, 0).strip()
        latest = int(text) if text.isdigit() else MAX_SEQUENCE
        if latest >= MAX_SEQUENCE:
            latest = max((sequence_of(entry.path) for entry in _entries(self.folder)), default=0)
        os.pwrite(lock, b"%020d\n" % (latest + 1), 0)
        return latest + 1

    def _make_room(self, files: int, size_bytes: int, spared: Path | None = None) -> None:
        """Remove files until `files` more of `size_bytes` together fit both bounds."""
        entries = list(_entries(self.folder))
        count = len(entries) + files
        total = sum(entry.size_bytes for entry in entries) + size_bytes
        if count <= self.max_files and total <= self.max_bytes:
            return
        for entry in self._victims(entries, spared):
            if count <= self.max_files and total <= self.max_bytes:
                return
            self.evicted_by_kind[entry.kind] += _lines_of(entry.path) if entry.is_waves else 1
            entry.path.unlink(missing_ok=True)
            self.evicted += 1
            count -= 1
            total -= entry.size_bytes

    def _victims(self, entries: list[_Entry], spared: Path | None) -> Iterator[_Entry]:
        """Files in the order in which they go: wave lines over their share, records, the other wave lines."""
        waves = sorted((entry for entry in entries if entry.is_waves), key=lambda entry: entry.age)
        records = sorted((entry for entry in entries if not entry.is_waves), key=lambda entry: entry.age)
        count, total = len(waves), sum(entry.size_bytes for entry in waves)
        others = [entry for entry in waves if entry.path != spared]
        while others and (
            count > max(1, self.max_files // ALL_WAVES_SHARE) or total > self.max_bytes // ALL_WAVES_SHARE
        ):
            entry = others.pop(0)
            count, total = count - 1, total - entry.size_bytes
            yield entry
        yield from records
        yield from others

    def _write_whole(self, target: Path, content: bytes) -> None:
        temporary = self.folder / f".{target.name}{_TEMPORARY_SUFFIX}"
        with open(temporary, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)

    def _halve_waves(self, path: Path, size_bytes: int) -> None:
        """Keep the newer half of a writer's wave lines where one more would take them over their share.

        The share is smaller where many write, so that no living writer's lines have to go as a whole.
        """
        if path.stat().st_size + size_bytes <= self.max_bytes // (4 * MOST_WRITERS):
            return
        writers = sum(1 for entry in _entries(self.folder) if entry.is_waves)
        share = self.max_bytes // max(WAVES_SHARE, ALL_WAVES_SHARE * writers)
        if path.stat().st_size + size_bytes <= share:
            return
        content = path.read_bytes()
        start = content.find(b"\n", len(content) // 2) + 1
        first = content.find(b"\n") + 1
        kept = content[start:]
        self.evicted_by_kind[WAVE_LINES] += content.count(b"\n") - kept.count(b"\n")
        self._write_whole(path, _numbered_like(content[:first], kept))


def _take(descriptor: int, wait_seconds: float) -> None:
    """Take the lock, waiting at most `wait_seconds`."""
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError("the spool is locked by another process") from None
            time.sleep(0.002)


def _append_whole(path: Path, content: bytes) -> None:
    """Append a line, or nothing: what a full disk cut off is taken back, and what a crash cut off is ended first."""
    with open(path, "ab", buffering=0) as stream:
        before = stream.tell()
        if before and _last_byte(path) != b"\n":
            content = b"\n" + content
        try:
            written = stream.write(content)
            if written < len(content):
                raise OSError(errno.ENOSPC, f"{written} of {len(content)} bytes were written")
        except OSError:
            stream.truncate(before)
            raise


def _last_byte(path: Path) -> bytes:
    with open(path, "rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1)


def _numbered_like(first: bytes, kept: bytes) -> bytes:
    """The kept lines, of which the first now carries the number of the file's former first line."""
    line, _, rest = kept.partition(b"\n")
    with contextlib.suppress(PricingError):
        number, wave = _number_of_line(first), parse_json(line, "wave line")
        if number and isinstance(wave, dict):
            return canonical_json({**wave, SEQUENCE: number}).encode() + b"\n" + rest
    return kept


def _number_of_line(line: bytes) -> int:
    """The number that a file's first wave line carries; 0 where it has none that we gave."""
    try:
        wave = parse_json(line, "wave line")
    except PricingError:
        return 0
    number = wave.get(SEQUENCE) if isinstance(wave, dict) else None
    return number if type(number) is int and 0 < number < MAX_SEQUENCE else 0


def _lines_of(path: Path) -> int:
    try:
        with open_regular(path) as stream:
            return sum(1 for _ in stream)
    except OSError:
        return 0


def what_went(folder: str | os.PathLike[str]) -> Gone:
    """The folder's own counts; nothing where it has none, or none that can be read."""
    counts: dict[str, dict[str, int]] = {"evicted": {}, "dropped": {}}
    with contextlib.suppress(OSError, PricingError):
        with open_regular(Path(folder) / _GONE_NAME) as stream:
            found = parse_json(stream.read(MAX_GONE_BYTES), _GONE_NAME)
        for name, kept in counts.items():
            given = found.get(name) if isinstance(found, dict) else None
            for kind, count in given.items() if isinstance(given, dict) else ():
                if type(count) is int and 0 < count < MAX_SEQUENCE:
                    kept[kind] = count
    return Gone(evicted=counts["evicted"], dropped=counts["dropped"])


def sequence_of(path: Path) -> int:
    """The number under which a spool wrote this file; 0 for a file without one (0.1 numbered wave lines not at all)."""
    name = path.name
    if name.endswith(WAVES_SUFFIX):
        try:
            with open_regular(path) as stream:
                return _number_of_line(stream.readline(MAX_FIRST_LINE_BYTES))
        except OSError:
            return 0
    parts = name.split("-")
    if is_spool_file(name) and len(parts) == 3 and parts[1].isascii() and parts[1].isdecimal() and len(parts[1]) <= 12:
        return int(parts[1])
    return 0


def _entries(folder: Path) -> Iterator[_Entry]:
    """Records and wave files of every writer. Other files are not ours to count or remove."""
    with os.scandir(folder) as listing:
        for item in listing:
            if is_spool_file(item.name):
                with contextlib.suppress(FileNotFoundError):
                    status = item.stat(follow_symlinks=False)
                    yield _Entry(Path(item.path), status.st_size, status.st_mtime_ns)


def is_spool_file(name: str) -> bool:
    """Whether a file of this name is a record or a file of wave lines that some spool wrote."""
    writer = name[:12]
    if len(name) < 13 or not all(digit in "0123456789abcdef" for digit in writer):
        return False
    return name[12:] == WAVES_SUFFIX or (name[12] == "-" and name.endswith(RECORD_SUFFIX))


def record_paths(folder: str | os.PathLike[str]) -> list[Path]:
    """Every `.json` file in a folder, oldest first: by number, without one by time of writing. Raises `OSError`."""
    return _paths(folder, RECORD_SUFFIX)


def wave_paths(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of wave lines in a folder, oldest first. Raises `OSError`."""
    return _paths(folder, WAVES_SUFFIX)


def _paths(folder: str | os.PathLike[str], suffix: str) -> list[Path]:
    """Whatever has such a name, also what is no regular file: who opens it says so, and waits for nothing."""
    found = []
    with os.scandir(folder) as listing:
        for item in listing:
            if item.name.endswith(suffix) and not item.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # evicted by a writer just now
                    path, status = Path(item.path), item.stat(follow_symlinks=False)
                    found.append((sequence_of(path), status.st_mtime_ns, item.name, path))
    return [path for *_, path in sorted(found)]
