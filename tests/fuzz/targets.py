"""What is fuzzed, and what must hold: a typed error or an answer, soon; no evidence lost; no rank left waiting.

Each target takes a random source, a folder and a number of tries, and returns counts by outcome. A broken promise is an
`AssertionError`, or whatever escaped.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from pricing import PricingError, Profile, Reading, observe
from pricing.cli.app import pricing
from pricing.evidence.trace import read_readings, read_trace
from pricing.formats.profile_file import ProfileFile, load_profiles, merge_profiles, profiles_text
from pricing.kernel.forecast import Forecast, ForecastLine
from pricing.kernel.merge import merge
from pricing.planner.plan import Setting, WavePlan
from pricing.planner.quorum import PeerPlanningError
from pricing.records.metrics import WaveSummary
from pricing.records.record_file import parse_record, read_record, record_text
from pricing.records.replay import replay
from pricing.records.spool import WAVES_SUFFIX, Spool, record_paths
from pricing.report.run_report import read_run
from tests.files.test_profile_file import PROFILE, signature
from tests.fuzz.mutate import mutated
from tests.making import a_reading
from tests.planner.naive import grpo
from tests.planner.test_quorum import plan_ranks
from tests.records.test_reader_fuzz import a_record
from tests.records.test_spool import assert_only_whole_records, kill_one_writer, writing_seconds

SECONDS: Final = 10.0
"""Longest that any one input may take, on a busy machine: sound ones take milliseconds."""

ROOT: Final = Path(__file__).parents[2]
OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


def _profile_text() -> bytes:
    line = ForecastLine(phase="head", fixed_bytes=5, bytes_per_packed_row=7)
    contents = ProfileFile(
        profiles={signature(): PROFILE, None: PROFILE},
        environment={"a": "b"},
        splits={(signature(), ((10, 20, 1, 0), (12, 20, 1, 0))): 900},
        forecasts={(("model", "m"),): Forecast(lines=(line,), assumption="ROUTING")},
    )
    return profiles_text(contents).encode()


def _trace_text() -> bytes:
    lines = (ROOT / "spec" / "evidence" / "h200" / "dense-1.jsonl").read_bytes().splitlines(keepends=True)
    return b"".join(lines[:12])


def _items_text() -> bytes:
    shared = b'{"length": 70, "prefix": "a", "prefix_length": 60}\n'
    return shared + b'{"tokens": [1, 2, 3], "target_shape": [3]}\n{"length": 90}\n'


def _wave_lines() -> bytes:
    return b"".join(canonical_line(WaveSummary.of(a_record()).line() | {"index": number}) for number in range(8))


def canonical_line(line: dict[str, object]) -> bytes:
    from pricing.formats.strict_json import canonical_json

    return canonical_json(line).encode() + b"\n"


def _bounded(act: Callable[[], str]) -> str:
    began = time.perf_counter()
    try:
        outcome = act()
    except PricingError as error:
        assert len(str(error)) < 3_000, "a message is for people"
        outcome = "refused"
    assert time.perf_counter() - began < SECONDS
    return outcome


# --- readers ---------------------------------------------------------------------------------------------------------


def profile_files(draw: random.Random, folder: Path, tries: int) -> Counter[str]:
    """A mutated profile file is refused or holds what was written: never another profile, never a lower price."""
    counts: Counter[str] = Counter()
    text, path = _profile_text(), folder / "profile.json"
    path.write_bytes(text)
    right = load_profiles(path)

    def read() -> str:
        assert load_profiles(path) == right, "another profile was read"
        return "as written"

    for _ in range(tries):
        path.write_bytes(mutated(draw, text))
        counts[_bounded(read)] += 1
    return counts


def records(draw: random.Random, folder: Path, tries: int) -> Counter[str]:
    """A mutated record is refused, or replays equal, or its difference is found."""
    counts: Counter[str] = Counter()
    text = record_text(a_record()).encode()
    for _ in range(tries):
        content = mutated(draw, text)
        counts[_bounded(lambda: "equal" if replay(parse_record(content).record).is_equal else "different")] += 1  # noqa: B023
    return counts


def traces(draw: random.Random, folder: Path, tries: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    text, path = _trace_text(), folder / "trace.jsonl"

    def read() -> str:
        for _ in read_readings(path):
            pass
        read_trace(path)
        return "read"

    for _ in range(tries):
        path.write_bytes(mutated(draw, text))
        counts[_bounded(read)] += 1
    return counts


def record_folders(draw: random.Random, folder: Path, tries: int) -> Counter[str]:
    """The report reads every folder, lists what it cannot, and its page is whole and obeys nobody."""
    from pricing.report.html import page

    counts: Counter[str] = Counter()
    lines, record = _wave_lines(), record_text(a_record()).encode()
    gone = canonical_line({"evicted": {"refused": 3, "waves": 1}, "dropped": {"refused": 2}})
    for number in range(tries):
        (folder / ".spool.gone").write_bytes(mutated(draw, gone))
        (folder / f"{'a' * 12}{WAVES_SUFFIX}").write_bytes(mutated(draw, lines))
        (folder / f"{'a' * 12}-00000001-refused.json").write_bytes(mutated(draw, record))

        def read(number: int = number) -> str:
            report = read_run(folder)
            if number % 20 == 0:
                assert page(report).rstrip().endswith("</html>")
            return "with something listed" if report.unreadable else "all read"

        counts[_bounded(read)] += 1
    return counts


# --- the command line ------------------------------------------------------------------------------------------------


def command_line(draw: random.Random, folder: Path, tries: int) -> Counter[str]:
    """Verbs with mutated files and odd options: exit code 0, 1 where a check failed, 2; no traceback, no escape."""
    counts: Counter[str] = Counter()
    texts = {
        "PROFILE": _profile_text(),
        "RECORD": record_text(a_record()).encode(),
        "TRACE": _trace_text(),
        "ITEMS": _items_text(),
    }
    numbers = [
        "5",
        "0",
        "-1",
        "nan",
        "inf",
        "1e9",
        "9" * 5_000,
        "",
        "\u0663",
        "\x1b[2J",
        "full/uniform/1",
        "51/50",
        "1/0",
    ]
    verbs: list[list[str]] = [
        ["backtest", "TRACE", "--skip", "?"],
        ["learn", "TRACE", "-o", "OUT"],
        ["learn", "TRACE", "--onto", "PROFILE", "-o", "OUT"],
        ["price", "--profile", "PROFILE", "--packed-rows", "?", "--logical-rows", "?", "--output-bytes", "?"],
        ["explain", "--profile", "PROFILE", "--packed-rows", "5", "--logical-rows", "9", "--recompute", "?"],
        ["plan", "ITEMS", "--budget", "?", "--profile", "PROFILE", "--recompute", "?"],
        ["plan", "ITEMS", "--budget", "1GiB", "--safety", "?"],
        ["replay", "RECORD", "--safety", "?"],
        ["replay", "RECORD", "--law", "?", "--json"],
        ["report", "FOLDER"],
        ["scale", "TRACE", "--at-most", "?"],
        ["scale", "TRACE", "--json"],
    ]
    runner = CliRunner()
    for _ in range(tries):
        for name, text in texts.items():
            (folder / name).write_bytes(text if draw.random() < 0.5 else mutated(draw, text))
        names = {name: str(folder / name) for name in (*texts, "OUT", "FOLDER")}
        arguments = [
            draw.choice(numbers) if argument == "?" else names.get(argument, argument)
            for argument in draw.choice(verbs)
        ]
        (folder / "FOLDER").mkdir(exist_ok=True)
        (folder / "FOLDER" / "one.json").write_bytes((folder / "RECORD").read_bytes())
        began = time.perf_counter()
        result = runner.invoke(pricing, arguments)
        assert time.perf_counter() - began < SECONDS, arguments
        assert result.exit_code in (0, 1, 2), (arguments, result.output)
        assert result.exit_code != 1 or arguments[0] in ("replay", "scale", "backtest", "plan"), (
            arguments,
            result.output,
        )
        assert "Traceback" not in result.output and not OBEYED.search(result.output), (arguments, ascii(result.output))
        counts[f"exit code {result.exit_code}"] += 1
    return counts


# --- killed processes ------------------------------------------------------------------------------------------------


def killed_spools(draw: random.Random, folder: Path, tries: int) -> Counter[str]:
    """Writers killed at any moment leave only whole records, within the bounds."""
    counts: Counter[str] = Counter()
    seconds = writing_seconds(folder / "measured")
    for number in range(tries):
        counts["left a temporary file"] += kill_one_writer(folder / "spool", draw, seconds=seconds)
        if number % 20 == 19 and (folder / "spool").exists():
            counts["whole records found"] += assert_only_whole_records(folder / "spool")
    counts["killed"] = tries
    return counts


def killed_savers(draw: random.Random, folder: Path, tries: int) -> Counter[str]:
    """Processes killed while they merge into one profile file: it is readable, and no evidence in it is ever lost."""
    counts: Counter[str] = Counter()
    path = folder / "profiles.json"
    held = Profile()
    for number in range(tries):
        child = os.fork()
        if child == 0:
            try:
                profile = Profile()
                for step in range(1_000):
                    profile = observe(profile, reading_number(1_000 * number + step))
                    merge_profiles(path, ProfileFile(profiles={None: profile}))
            finally:
                os._exit(1)
        time.sleep(0.002 + draw.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if not path.exists():
            continue
        found = load_profiles(path).profiles[None]
        assert merge(found, held) == found, "evidence was lost"
        held = found
        counts["readable"] += 1
    counts["killed"] = tries
    return counts


def reading_number(number: int) -> Reading:
    draw = random.Random(number)
    rows = draw.randrange(1, 40_000)
    return a_reading(rows, rows * draw.randrange(100_000, 400_000), logical_rows=rows * draw.randrange(1, 9))


def spools_under_load(draw: random.Random, folder: Path, tries: int) -> Counter[str]:
    """Records and wave lines in any mixture, by several writers: bounds hold, what went was counted."""
    counts: Counter[str] = Counter()
    record = a_record()
    for number in range(tries):
        spool = Spool(folder, max_files=draw.choice((2, 5, 30)), max_bytes=1 << 18, max_record_bytes=1 << 16)
        for _ in range(draw.randrange(1, 12)):
            if draw.random() < 0.5:
                assert spool.write(record) is not None, spool.last_failure
                counts["records"] += 1
            else:
                assert spool.append_wave(WaveSummary.of(record).line() | {"index": number}), spool.last_failure
                counts["wave lines"] += 1
        for path in record_paths(folder):
            assert replay(read_record(path).record).is_equal
        assert spool.dropped == 0
        counts["evicted"] += sum(spool.evicted_by_kind.values())
    return counts


# --- ranks -----------------------------------------------------------------------------------------------------------


def ranks(draw: random.Random, folder: Path, tries: int) -> Counter[str]:
    """Ranks with other items, budgets and faults: all make the same collectives, and all run, or none does."""
    counts: Counter[str] = Counter()

    def broken() -> Setting:
        raise ValueError("the model cannot be read")

    for _ in range(tries):
        count = draw.randrange(2, 5)
        batches = [
            grpo(
                prompts=draw.randrange(1, 4),
                rollouts=draw.randrange(1, 9),
                prompt=draw.randrange(1, 300),
                completion=draw.randrange(1, 300),
            )
            for _ in range(count)
        ]
        plans, calls = plan_ranks(
            batches,
            [draw.choice((-1, 0, 10**6, 10**7, 2 * 10**7, 1 << 30)) for _ in range(count)],
            starts=[draw.choice((0, 0, len(batch))) for batch in batches],
            settings=[broken if draw.random() < 0.05 else Setting() for _ in range(count)],
        )
        assert {tuple(made) for made in calls} <= {
            ("min",),
            ("min", "all_fit"),
            ("min", "max"),
            ("min", "max", "all_fit"),
        }
        failed = [isinstance(plan, Exception) for plan in plans]
        if any(failed):
            assert all(failed) and sum(not isinstance(plan, PeerPlanningError) for plan in plans) >= 1
            counts["an error on every rank"] += 1
            continue
        made = [plan for plan in plans if isinstance(plan, WavePlan)]
        assert len({plan.runs for plan in made}) == 1, "some run and some do not"
        counts["run" if made[0].runs else "refused together"] += 1
    return counts


TARGETS: Final[Mapping[str, tuple[Callable[[random.Random, Path, int], Counter[str]], int, int]]] = {
    "profile files": (profile_files, 50_000, 300),
    "records": (records, 25_000, 150),
    "traces": (traces, 25_000, 100),
    "record folders": (record_folders, 4_000, 30),
    "command line": (command_line, 4_000, 60),
    "killed spools": (killed_spools, 260, 6),
    "killed savers": (killed_savers, 260, 6),
    "spools under load": (spools_under_load, 500, 6),
    "ranks": (ranks, 2_000, 30),
}
"""Target -> what it does, its tries in a full run and in the short one."""
