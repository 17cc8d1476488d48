"""The spool: a folder of records and wave lines, bounded, whole after every crash, never a reason for training to stop.

    <writer>-<number>-<event>.json    one decision record, whole or absent
    <writer>.waves.jsonl              one line a wave, newest last; the line a crash cut off is passed over by readers
    .spool.lock                       held while something is written or removed
    .<name>.tmp                       being written; whoever holds the lock next knows that its writer died

Files of any number of processes live in one folder. All of them count under the two bounds. The oldest file goes
first, and records of refusals and of running out of memory go after all others: they are what people come to read.

All writing happens under one advisory lock, which the system releases when a process dies, so a temporary file found
by the holder of the lock is a dead writer's and is removed. A write that finds the lock taken for longer than
`LOCK_WAIT_SECONDS`, the disk full or the folder gone is dropped, counted, and said in the log once a kind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pricing.formats.codec import RecordError
from pricing.formats.strict_json import canonical_json
from pricing.records.record import DecisionRecord, Event
from pricing.records.record_file import LEAST_RECORD_BYTES, MAX_RECORD_BYTES, record_text

DEFAULT_MAX_FILES: Final = 256
DEFAULT_MAX_BYTES: Final = 64 << 20

LOCK_WAIT_SECONDS: Final = 0.25
"""Longest a write waits for another process; a write takes about a millisecond on a local disk."""

WAVES_SHARE: Final = 4
"""A writer's wave lines take at most 1 / WAVES_SHARE of the spool's bytes; then their older half goes."""

RECORD_SUFFIX: Final = ".json"
WAVES_SUFFIX: Final = ".waves.jsonl"
_KEPT_SUFFIXES: Final = (f"-{Event.REFUSED}{RECORD_SUFFIX}", f"-{Event.OUT_OF_MEMORY}{RECORD_SUFFIX}")
_LOCK_NAME: Final = ".spool.lock"
_TEMPORARY_SUFFIX: Final = ".tmp"

_log = logging.getLogger(__name__)


class SpoolError(RecordError):
    """Bounds that no spool can keep. Raised when a spool is made, never while it is used."""


@dataclass(frozen=True, slots=True)
class _Entry:
    rank: tuple[bool, int, str]
    """Whether it is kept longer, when it was written, its name."""
    path: Path
    size_bytes: int


class Spool:
    """One process's hand on a spool folder. Made before training; `write` and `append_wave` never raise.

    max_files, max_bytes: bounds on the folder's records and wave lines together, whoever wrote them. max_record_bytes:
    cap on one record, which lists what was left out for it. Raises `SpoolError` for bounds too small to hold a record;
    a folder that cannot be used only counts as dropped writes (`dropped`, `last_failure`).
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
        self.last_failure: str | None = None
        self._number = 0
        self._process = os.getpid()
        self._said: set[str] = set()

    def write(self, record: DecisionRecord) -> Path | None:
        """Write one record whole; its path, or None where it was dropped. Never raises."""
        try:
            content = record_text(record, self.max_record_bytes).encode() + b"\n"
            with self._locked():
                self._number += 1
                target = self.folder / f"{self.writer}-{self._number:08d}-{record.event}{RECORD_SUFFIX}"
                self._make_room(1, len(content))
                self._write_whole(target, content)
        except Exception as error:  # training goes on without this record, whatever went wrong
            self._drop(error)
            return None
        self.written += 1
        return target

    def append_wave(self, line: dict[str, object]) -> bool:
        """Append one wave's line; whether it was. Never raises."""
        try:
            content = canonical_json(line).encode() + b"\n"
            with self._locked():
                path = self.folder / f"{self.writer}{WAVES_SUFFIX}"
                self._halve_waves(path, len(content))
                self._make_room(0 if path.exists() else 1, len(content), spared=path)
                with open(path, "ab") as stream:
                    stream.write(content)
        except Exception as error:  # as above
            self._drop(error)
            return False
        return True

    def _drop(self, error: Exception) -> None:
        self.dropped += 1
        kind = type(error).__name__
        self.last_failure = f"{kind}: {error}"
        if kind not in self._said:
            self._said.add(kind)
            _log.warning("spool: a record was dropped and training goes on (said once a kind): %s", self.last_failure)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock; first remove what dead writers left. Raises `OSError` where it cannot be had."""
        if os.getpid() != self._process:  # forked: names of its own, or parent and child would overwrite each other
            self._process, self.writer = os.getpid(), secrets.token_hex(6)
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _take(descriptor)
            for leftover in self.folder.glob(f".*{_TEMPORARY_SUFFIX}"):
                leftover.unlink(missing_ok=True)
            yield
        finally:
            os.close(descriptor)

    def _make_room(self, files: int, size_bytes: int, spared: Path | None = None) -> None:
        """Remove the oldest files until `files` more of `size_bytes` together fit both bounds."""
        entries = sorted(_entries(self.folder), key=lambda entry: entry.rank)
        count = len(entries) + files
        total = sum(entry.size_bytes for entry in entries) + size_bytes
        for entry in entries:
            if count <= self.max_files and total <= self.max_bytes:
                return
            if entry.path == spared:
                continue
            entry.path.unlink(missing_ok=True)
            self.evicted += 1
            count -= 1
            total -= entry.size_bytes

    def _write_whole(self, target: Path, content: bytes) -> None:
        temporary = self.folder / f".{target.name}{_TEMPORARY_SUFFIX}"
        with open(temporary, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)

    def _halve_waves(self, path: Path, size_bytes: int) -> None:
        """Keep the newer half of a writer's wave lines where one more would take them over their share."""
        share = self.max_bytes // WAVES_SHARE
        if size_bytes > share // 2:
            raise OSError(errno.EFBIG, f"a wave line of {size_bytes} B")
        if not path.exists() or path.stat().st_size + size_bytes <= share:
            return
        content = path.read_bytes()
        start = content.index(b"\n", len(content) // 2) + 1
        self._write_whole(path, content[start:])


def _take(descriptor: int) -> None:
    """Take the lock, waiting at most `LOCK_WAIT_SECONDS`."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the spool was locked for {LOCK_WAIT_SECONDS} s by another process") from None
            time.sleep(0.002)


def _entries(folder: Path) -> Iterator[_Entry]:
    """Records and wave files of every writer. Other files are not ours to count or remove."""
    with os.scandir(folder) as listing:
        for item in listing:
            if is_spool_file(item.name):
                with contextlib.suppress(FileNotFoundError):
                    status = item.stat(follow_symlinks=False)
                    kept = item.name.endswith(_KEPT_SUFFIXES)
                    yield _Entry((kept, status.st_mtime_ns, item.name), Path(item.path), status.st_size)


def is_spool_file(name: str) -> bool:
    """Whether a file of this name is a record or a file of wave lines that some spool wrote."""
    writer = name[:12]
    if len(name) < 13 or not all(digit in "0123456789abcdef" for digit in writer):
        return False
    return name[12:] == WAVES_SUFFIX or (name[12] == "-" and name.endswith(RECORD_SUFFIX))


def record_paths(folder: str | os.PathLike[str]) -> list[Path]:
    """Every `.json` file in a folder, oldest first (by time of writing, then by name). Raises `OSError`."""
    return _paths(folder, RECORD_SUFFIX)


def wave_paths(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of wave lines in a folder, oldest first. Raises `OSError`."""
    return _paths(folder, WAVES_SUFFIX)


def _paths(folder: str | os.PathLike[str], suffix: str) -> list[Path]:
    found = []
    with os.scandir(folder) as listing:
        for item in listing:
            if item.name.endswith(suffix) and not item.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # evicted by a writer just now
                    found.append((item.stat().st_mtime_ns, item.name, Path(item.path)))
    return [path for _, _, path in sorted(found)]
