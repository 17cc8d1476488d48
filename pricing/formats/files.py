"""Files that survive: regular files written whole or not at all, and a lock that a dying process cannot leave behind.

Only a regular file is ever replaced, or a file made where there is none. Symbolic links are followed, so what they name
is written and they stay links; a device, a pipe, a socket or a folder is an error that says so. The mode of a file that
was there is kept. What a killed writer left half-written is removed by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

try:
    import fcntl as _fcntl
except ImportError:  # no advisory locks on this system: one process a file
    _flock: Any = None
else:
    _flock = _fcntl

LOCK_WAIT_SECONDS: Final = 5.0
"""Longest a writer waits for another; a save takes milliseconds on a local disk."""

STALE_SECONDS: Final = 2.0
"""Age from which a half-written file that nobody has locked is a dead writer's: it is made and locked at once."""

_TEMPORARY_SUFFIX: Final = ".tmp"

KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class NotRegularFileError(OSError):
    """What is there is no regular file: it is neither read nor replaced."""

    def __init__(self, path: str | os.PathLike[str], kind: str) -> None:
        super().__init__(errno.EINVAL, f"is {kind}, not a regular file", os.fspath(path))


def kind_of(mode: int) -> str | None:
    """What a file of this mode is, in words, where it is no regular file; None for a regular one."""
    if stat.S_ISREG(mode):
        return None
    return next((name for is_kind, name in KINDS if is_kind(mode)), "a special file")


def open_regular(path: str | os.PathLike[str]) -> Any:
    """The regular file at `path`, open for reading bytes. Never waits for a pipe's writer.

    Raises `NotRegularFileError`, `OSError`.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        kind = kind_of(os.fstat(descriptor).st_mode)
        if kind is not None:
            raise NotRegularFileError(path, kind)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def real_target(path: str | os.PathLike[str]) -> Path:
    """The file that writing to `path` must write: links followed, to a file that may not be there yet.

    Raises `NotRegularFileError` where something else than a regular file is there, `OSError` for a circle of links.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return target
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    kind = kind_of(mode)
    if kind is not None:
        raise NotRegularFileError(path, kind)
    return target


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole regular file or none: a reader, or a crash at any point, sees the old content or the new one.

    A temporary file in the same folder, flushed to the disk, then renamed over the target. Half a surrogate pair (of a
    file name that was no UTF-8) is written as an escape. Raises `OSError`.
    """
    target = real_target(path)
    remove_leftovers(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}{_TEMPORARY_SUFFIX}")
    try:
        with open(temporary, "x", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            _try_lock(stream.fileno())
            _keep_mode(target, stream.fileno())
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
            os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = os.fspath(path), None  # the caller knows no temporary file
        raise
    flush_folder(target.parent)


def remove_leftovers(target: Path) -> None:
    """Remove what writers of `target` left that were killed: half-written files that no living process has locked."""
    if _flock is None:
        return
    with contextlib.suppress(OSError):
        for leftover in target.parent.glob(f".{_escaped(target.name)}.*{_TEMPORARY_SUFFIX}"):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime < STALE_SECONDS:
                    continue
                with open_regular(leftover) as stream:
                    if _try_lock(stream.fileno()):
                        leftover.unlink()


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], wait_seconds: float = LOCK_WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock of the folder that `path` lies in. The system releases it when a process dies; no file is left.

    Raises `TimeoutError` where another process holds it for longer than `wait_seconds`, `OSError` where there is no
    such folder.
    """
    folder = real_target(path).parent
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        deadline = time.monotonic() + wait_seconds
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"locked by another process for {wait_seconds} s", os.fspath(path))
            time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def keep_aside(path: str | os.PathLike[str]) -> Path:
    """Rename a file that cannot be used to the first free of `NAME.damaged`, `NAME.damaged-2`, ...; its new path."""
    target = real_target(path)
    number = 1
    while (aside := target.with_name(f"{target.name}.damaged{'' if number == 1 else f'-{number}'}")).exists():
        number += 1
    os.replace(target, aside)
    return aside


def flush_folder(folder: Path) -> None:
    """Make a rename itself durable. Some file systems cannot; the rename stands all the same."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Whether the lock was had. True where the system or the file system knows no locks: then nobody is kept out."""
    if _flock is None:
        return True
    try:
        _flock.flock(descriptor, _flock.LOCK_EX | _flock.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _keep_mode(target: Path, descriptor: int) -> None:
    """Give a file the mode of the one that it replaces."""
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(os.stat(target).st_mode)
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)


def _escaped(name: str) -> str:
    """A file name as a glob pattern that only it matches."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
