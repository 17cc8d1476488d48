"""The spool keeps its bounds, survives kill -9 at any point and two processes, and never raises into training."""

from __future__ import annotations

import fcntl
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pricing import PricingError
from pricing.records.metrics import WaveSummary
from pricing.records.record import DecisionRecord, Event, StructureFacts
from pricing.records.record_file import parse_record, read_record, record_text
from pricing.records.recorder import record_of_price
from pricing.records.replay import replay
from pricing.records.spool import (
    LOCK_WAIT_SECONDS,
    WAVES_SUFFIX,
    Spool,
    SpoolError,
    is_spool_file,
    record_paths,
    sequence_of,
    wave_paths,
)
from pricing.report.run_report import read_run
from tests.making import a_reading, a_wave, learned
from tests.records import spool_writer

KILLS = 40
"""Writers killed at least; `make fuzz` kills hundreds."""
MOST_KILLS = 400
"""So many where none of them was amid a write."""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def record() -> DecisionRecord:
    profile = learned([a_reading(1_000, 300_000_000)] * 3)
    return record_of_price(a_wave(5_000, 20_000, 7), profile, available_bytes=1 << 33, name="rank0")


def sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.iterdir() if is_spool_file(path.name)]


def test_a_record_is_written_whole_and_reads_back(tmp_path: Path, record: DecisionRecord) -> None:
    spool = Spool(tmp_path / "new" / "folder")
    path = spool.write(record)
    assert path is not None and read_record(path).record == record
    assert (spool.written, spool.dropped) == (1, 0)
    assert path.read_text() == record_text(record) + "\n"


def test_both_bounds_hold_and_the_oldest_goes_first(tmp_path: Path, record: DecisionRecord) -> None:
    spool = Spool(tmp_path, max_files=5, max_bytes=1 << 20)
    for number in range(40):
        assert spool.write(replace(record, index=number)) is not None
        assert spool.append_wave(WaveSummary.of(replace(record, index=number)).line())
        assert len(sizes(tmp_path)) <= 5
    kept = [read_record(path).record.index for path in record_paths(tmp_path)]
    assert kept == [36, 37, 38, 39]
    assert spool.evicted == 36

    heavy = StructureFacts(request_rows=tuple(range(3_000)), segment_rows=(), segment_parents=())
    tight = Spool(tmp_path, max_files=100, max_bytes=60_000, max_record_bytes=30_000)
    for number in range(20):
        assert tight.write(replace(record, index=number, structure=heavy)) is not None
        assert sum(sizes(tmp_path)) <= 60_000


def test_refusals_and_failures_are_kept_longest(tmp_path: Path, record: DecisionRecord) -> None:
    spool = Spool(tmp_path, max_files=4)
    spool.write(replace(record, index=0, event=Event.OUT_OF_MEMORY))
    spool.write(replace(record, index=1, event=Event.REFUSED))
    for number in range(2, 30):
        spool.write(replace(record, index=number, event=Event.OBSERVED))
    kept = [read_record(path).record.index for path in record_paths(tmp_path)]
    assert kept == [0, 1, 28, 29]


def test_wave_lines_keep_their_newer_half(tmp_path: Path, record: DecisionRecord) -> None:
    spool = Spool(tmp_path, max_bytes=40_000, max_record_bytes=16_384)
    for number in range(500):
        assert spool.append_wave(WaveSummary.of(replace(record, index=number)).line())
        assert sum(sizes(tmp_path)) <= 10_000
    (series,) = read_run(tmp_path).series
    indices = [wave.index for wave in series.waves]
    assert indices == list(range(indices[0], 500)) and len(indices) >= 10


def test_other_files_in_the_folder_are_not_ours_to_remove(tmp_path: Path, record: DecisionRecord) -> None:
    for name in ("notes.txt", "config.json", "0123456789ab.json", "README.md"):
        (tmp_path / name).write_text("mine" * 10_000)
    spool = Spool(tmp_path, max_files=2)
    for _ in range(9):
        spool.write(record)
    assert {"notes.txt", "config.json", "0123456789ab.json", "README.md"} <= {path.name for path in tmp_path.iterdir()}
    assert len(sizes(tmp_path)) == 2


def test_a_record_over_its_cap_lists_what_was_left_out_and_still_replays(record: DecisionRecord) -> None:
    bulky = replace(record, structure=StructureFacts(request_rows=(7,) * 50_000, segment_rows=(), segment_parents=()))
    text = record_text(bulky, 16 << 10)
    read = parse_record(text).record
    assert len(text) <= 16 << 10
    assert read.omitted == ("structure",) and read.structure is None
    assert replay(read).is_equal


def test_bounds_that_no_spool_can_keep_are_refused_when_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="max_files must be at least 2"):
        Spool(tmp_path, max_files=1)
    with pytest.raises(SpoolError, match="max_record_bytes"):
        Spool(tmp_path, max_record_bytes=100)
    with pytest.raises(SpoolError, match="max_record_bytes"):
        Spool(tmp_path, max_bytes=1 << 18, max_record_bytes=1 << 18)


# --- what goes first -------------------------------------------------------------------------------------------------


def waves_in(folder: Path) -> list[int]:
    return [wave.index for wave in read_run(folder).waves]


@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize(("max_files", "max_bytes"), [(6, 1 << 20), (1_000, 60_000)])
def test_no_flood_of_records_pushes_wave_lines_out(
    event: Event, max_files: int, max_bytes: int, tmp_path: Path, record: DecisionRecord
) -> None:
    """A spool full of refusals deleted every wave line, and counted nothing."""
    spool = Spool(tmp_path, max_files=max_files, max_bytes=max_bytes, max_record_bytes=16 << 10)
    for number in range(10):
        assert spool.append_wave(WaveSummary.of(replace(record, index=number)).line())
    for number in range(100):
        assert spool.write(replace(record, index=number, event=event)) is not None
        assert len(sizes(tmp_path)) <= max_files and sum(sizes(tmp_path)) <= max_bytes
    assert waves_in(tmp_path) == list(range(10))
    kept = [read_record(path).record.index for path in record_paths(tmp_path)]
    assert kept == list(range(100 - len(kept), 100)) and kept
    assert spool.evicted == 100 - len(kept) and spool.evicted_by_kind == {str(event): 100 - len(kept)}
    assert spool.dropped == 0 == sum(spool.dropped_by_kind.values())


@pytest.mark.parametrize("jump_seconds", [-86_400, -(10**9), 10**9])
def test_a_clock_that_is_set_changes_nothing(
    jump_seconds: int, tmp_path: Path, record: DecisionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        spool = Spool(tmp_path, max_files=8)
        spool.write(replace(record, index=number))
        then = time.time() + jump_seconds * (number % 2)
        for path in tmp_path.glob(f"{spool.writer}*"):
            os.utime(path, (then, then))
    assert [read_record(path).record.index for path in record_paths(tmp_path)] == list(range(2, 10))


def test_wave_lines_of_many_writers_go_oldest_first_whatever_the_clock_says(
    tmp_path: Path, record: DecisionRecord
) -> None:
    counted: Counter[str] = Counter()
    for number in range(9):
        spool = Spool(tmp_path, max_files=8)
        for line in range(3):
            assert spool.append_wave(WaveSummary.of(replace(record, index=10 * number + line)).line())
        os.utime(tmp_path / f"{spool.writer}{WAVES_SUFFIX}", (10**9 - number, 10**9 - number))
        for _ in range(2):
            spool.write(record)
        counted.update(spool.evicted_by_kind)
    assert {index // 10 for index in waves_in(tmp_path)} == {5, 6, 7, 8}
    assert counted["wave lines"] == 15 and counted["admitted"] == 14


def test_a_halved_file_of_wave_lines_keeps_its_age(tmp_path: Path, record: DecisionRecord) -> None:
    spool = Spool(tmp_path, max_bytes=40_000, max_record_bytes=16_384)
    spool.write(record)
    for number in range(200):
        assert spool.append_wave(WaveSummary.of(replace(record, index=number)).line())
    (path,) = wave_paths(tmp_path)
    assert sequence_of(path) == 2 and spool.evicted_by_kind["wave lines"] == waves_in(tmp_path)[0] > 100


def test_numbers_go_on_where_the_lock_file_was_lost_or_is_not_ours(tmp_path: Path, record: DecisionRecord) -> None:
    spool, numbers = Spool(tmp_path), []
    for content in (b"", b"no number", b"9" * 40, b"-5", b"\x00" * 20, None):
        if content is None:
            (tmp_path / ".spool.lock").unlink()
        else:
            (tmp_path / ".spool.lock").write_bytes(content)
        for _ in range(2):
            path = spool.write(record)
            assert path is not None, spool.last_failure
            numbers.append(sequence_of(path))
    assert numbers == list(range(1, 13))


def test_a_line_that_a_full_disk_cut_off_swallows_no_other(
    tmp_path: Path, record: DecisionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path)
    lines = [WaveSummary.of(replace(record, index=number)).line() for number in range(6)]
    assert spool.append_wave(lines[0])
    resource = pytest.importorskip("resource")
    (path,) = wave_paths(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:  # the next line fits in part only
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
        assert not spool.append_wave(lines[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert spool.append_wave(lines[2]) and spool.dropped_by_kind == {"wave lines": 1}
    path.write_bytes(path.read_bytes() + b'{"torn by a crash": ')
    assert spool.append_wave(lines[3])
    report = read_run(tmp_path)
    assert [wave.index for wave in report.waves] == [0, 2, 3]
    assert report.unreadable == (f"{path.name}: 1 of 4 wave lines are not whole",)


def test_a_lock_held_for_long_costs_one_wait_now_and_then(
    tmp_path: Path, record: DecisionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path)
    line = WaveSummary.of(record).line()
    spool.write(record)
    with open(tmp_path / ".spool.lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        for _ in range(100):
            assert spool.write(record) is None and not spool.append_wave(line)
        assert time.monotonic() - began < 3 * LOCK_WAIT_SECONDS, "200 waits would take 50 s"
    assert spool.dropped_by_kind == {"records": 100, "wave lines": 100}
    assert spool.write(record) is not None and spool.append_wave(line), "and goes on at once"


# --- never raises ----------------------------------------------------------------------------------------------------


def a_file_instead_of_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_text("not a folder")


def no_rename(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(os, "replace", refuse)


def disk_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)


def no_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.parametrize("trouble", [a_file_instead_of_a_folder, no_rename, disk_full, no_locks])
def test_trouble_is_counted_and_said_and_never_raised(
    trouble: Callable[[Path, pytest.MonkeyPatch], None],
    tmp_path: Path,
    record: DecisionRecord,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    trouble(tmp_path / "spool", monkeypatch)
    spool = Spool(tmp_path / "spool")
    for _ in range(3):
        assert spool.write(record) is None
    assert spool.dropped == 3 and spool.last_failure
    assert len([entry for entry in caplog.records if entry.name == "pricing.records.spool"]) == 1, "said once a kind"


def test_what_cannot_be_written_is_dropped(tmp_path: Path, record: DecisionRecord) -> None:
    spool = Spool(tmp_path)
    assert spool.write(replace(record, name="\udcff" * 3, note="x" * (1 << 20))) is None
    assert not spool.append_wave({"a float": 1.5})
    assert not spool.append_wave({"a line": "x" * (32 << 20)})
    assert spool.dropped == 3 and sizes(tmp_path) == []


def test_a_lock_that_is_held_elsewhere_costs_the_record_and_no_more_than_its_wait(
    tmp_path: Path, record: DecisionRecord
) -> None:
    spool = Spool(tmp_path)
    spool.write(record)
    with open(tmp_path / ".spool.lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        assert spool.write(record) is None
        assert time.monotonic() - began < 2
    assert spool.write(record) is not None
    assert (spool.written, spool.dropped) == (2, 1)


# --- processes -------------------------------------------------------------------------------------------------------


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.records.spool_writer", str(folder), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def assert_only_whole_records(folder: Path) -> int:
    """Every record reads and replays, every bound holds; how many records there are."""
    paths = record_paths(folder)
    for path in paths:
        assert replay(read_record(path).record).is_equal
    assert len(sizes(folder)) <= spool_writer.MAX_FILES
    assert sum(sizes(folder)) <= spool_writer.MAX_BYTES
    return len(paths)


def writing_seconds(folder: Path) -> float:
    """How long the first writes of a writer take here and now: what kills are spread over, also on a busy machine."""
    began = time.monotonic()
    spool_writer.write(str(folder), 4)
    return max(0.012, time.monotonic() - began)


def kill_one_writer(
    folder: Path, rng: random.Random, patch: Callable[[], None] = lambda: None, seconds: float = 0.012
) -> int:
    """Fork a writer, kill it at a random moment of its first `seconds` of writing; how many temporaries it left."""
    ready_end, ready = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(ready, 1)
            patch()
            spool_writer.main(str(folder), 1 << 60)
        finally:
            os._exit(1)
    os.close(ready)
    try:
        assert select.select([ready_end], [], [], 20)[0], "the writer did not begin"
        assert os.read(ready_end, 5) == b"begun"
        time.sleep(rng.random() * seconds)
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(ready_end)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    return len(list(folder.glob(".*.tmp")))


def test_kill_at_any_point_leaves_only_whole_records(tmp_path: Path) -> None:
    rng, folder = random.Random(5), tmp_path / "spool"
    amid_a_write = found = 0
    seconds = writing_seconds(tmp_path / "measured")
    for kill in range(MOST_KILLS):
        amid_a_write += kill_one_writer(folder, rng, seconds=seconds)
        if kill % 20 == 19:
            found += assert_only_whole_records(folder)
            if kill >= KILLS - 1 and amid_a_write:
                break
    assert found > 0, "writers were killed before they wrote anything: nothing was tested"
    assert amid_a_write > 0, "no writer was killed amid a write: nothing was tested"
    report = read_run(folder)
    assert report.records and all(item.replays for item in report.records)

    cleaner = Spool(folder, max_files=spool_writer.MAX_FILES, max_bytes=spool_writer.MAX_BYTES)
    assert cleaner.append_wave({"version": 1})
    assert not list(folder.glob(".*.tmp")), "what dead writers left is removed by the next"


def test_the_kill_test_finds_a_writer_that_is_not_atomic(tmp_path: Path) -> None:
    def write_in_place(self: Spool, target: Path, content: bytes) -> None:
        with open(target, "wb", buffering=0) as stream:
            stream.write(content[: len(content) // 2])
            time.sleep(0.002)  # a slow disk
            stream.write(content[len(content) // 2 :])

    def patch() -> None:
        Spool._write_whole = write_in_place  # type: ignore[method-assign]  # in the forked writer only

    rng, broken = random.Random(6), 0
    seconds = writing_seconds(tmp_path / "measured")
    for _ in range(MOST_KILLS):
        kill_one_writer(tmp_path, rng, patch, seconds)
        for path in record_paths(tmp_path):
            try:
                read_record(path)
            except PricingError:
                broken += 1
        if broken:
            return
    pytest.fail("no torn record in as many kills")


def test_two_processes_share_a_folder(tmp_path: Path) -> None:
    writers = [start(tmp_path, "60") for _ in range(2)]
    outputs = [writer.communicate(timeout=60)[0].splitlines() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert [lines[1].split()[1] for lines in outputs] == ["0", "0"], f"records were dropped: {outputs}"
    assert assert_only_whole_records(tmp_path) > 2
    report = read_run(tmp_path)
    (series,) = report.series
    assert series.label == "writer" and len(series.processes) == 2
    assert not report.unreadable


def test_a_forked_child_writes_under_a_name_of_its_own(tmp_path: Path, record: DecisionRecord) -> None:
    spool = Spool(tmp_path)
    spool.write(record)
    child = os.fork()
    if child == 0:
        os._exit(0 if spool.write(replace(record, index=1)) is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    spool.write(replace(record, index=2))
    assert sorted(read_record(path).record.index for path in record_paths(tmp_path)) == [0, 1, 2]


def test_a_torn_wave_line_is_passed_over_and_said(tmp_path: Path, record: DecisionRecord) -> None:
    spool = Spool(tmp_path)
    spool.append_wave(WaveSummary.of(record).line())
    spool.append_wave(WaveSummary.of(replace(record, index=1)).line())
    (path,) = wave_paths(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    report = read_run(tmp_path)
    assert [wave.index for wave in report.waves] == [0]
    assert report.unreadable == (f"{path.name}: 1 of 2 wave lines are not whole",)
