"""Files and folders as an attack left them: nothing is lost, nothing waits for ever, no traceback, nothing obeyed."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pricing import GIB, FileFormatError, PricingError, Profile, Signature, allocated_bytes, observe
from pricing.cli.app import pricing
from pricing.formats.profile_file import ProfileFile, load_profile, load_profiles, merge_profiles
from pricing.formats.strict_json import MAX_DEPTH, parse_json
from pricing.kernel.rate_laws import WARM
from pricing.records.record import DecisionRecord
from pricing.records.record_file import record_text
from pricing.records.recorder import Recorder, Triggers, record_of_price
from pricing.records.spool import WAVES_SUFFIX, Spool
from pricing.text import visible
from tests.files.test_profile_file import signature
from tests.making import a_reading, a_wave, learned

PROFILE = learned(a_reading(1_000 * size, 300_000_000 * size) for size in (1, 2, 3))
PNG, SETS_TITLE, UPWARDS = "\x1b]1337;File=:AAAA\x07", "\x1b]0;owned\x07", "\x1b[2A\x1b[2K"
HOSTILE_NAMES = (SETS_TITLE, UPWARDS, PNG, "a\x9b2Jb", "\u202ekcab", "half \udcff pair", "two\nlines", "nul\x00")


def run(*arguments: str | Path, text: str | bytes | None = None) -> Result:
    """A verb, with a mind of its own ended well: no traceback, no mistake of ours, no terminal escape."""
    result = CliRunner().invoke(pricing, [str(argument) for argument in arguments], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 1, 2), result.output
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", result.output), ascii(result.output)
    return result


def a_record(name: str = "rank0") -> DecisionRecord:
    return record_of_price(a_wave(5_000), PROFILE, available_bytes=2 * GIB, name=name)


# --- two processes, one file ---------------------------------------------------------------------------------------


@pytest.mark.invariant("INV-19")
def test_two_runs_on_one_file_lose_no_evidence(tmp_path: Path) -> None:
    """Each loads the file, learns, saves: the rate of the first to save was gone (a price fell)."""
    path = tmp_path / "profiles.json"
    common = learned([a_reading(1_000, 10**8)])
    merge_profiles(path, ProfileFile(profiles={None: common}))
    ours, theirs = load_profile(path), load_profile(path)
    for _ in range(2):
        ours, theirs = observe(ours, a_reading(900, 4 * 10**8)), observe(theirs, a_reading(1_000, 10**8))
    for profile in (ours, theirs):
        merge_profiles(path, ProfileFile(profiles={None: profile}))
    after = load_profile(path)
    assert allocated_bytes(a_wave(1_000), after, law=WARM) == allocated_bytes(a_wave(1_000), ours, law=WARM)
    assert after.complete_readings == 3, "the common reading is not counted again"


# --- nesting and numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 200, 331, 400, 600, 990, 5_000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_deep_nesting_is_a_typed_error_in_every_reader(depth: int, opening: str, tmp_path: Path) -> None:
    """Whole or cut off, and on a stack that is deep already."""
    closing = "".join({"[": "]", "{": "}"}[sign] for sign in reversed(opening) if sign in "[{")
    text = opening * depth + "1" + closing * depth
    path = tmp_path / "deep.json"

    def deeper(levels: int) -> None:
        if levels:
            deeper(levels - 1)
            return
        for content in (text, opening * depth):
            with pytest.raises(FileFormatError):
                parse_json(content, "deep")
            path.write_text(content)
            with pytest.raises(PricingError):
                load_profiles(path)

    deeper(0)
    deeper(sys.getrecursionlimit() // 3)


def test_what_is_not_deep_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(parse_json(text, "flat")) == text


@pytest.mark.parametrize(
    "arguments",
    [
        ("backtest", "FILE"),
        ("learn", "FILE", "-o", "OUT"),
        ("price", "--profile", "FILE", "--packed-rows", "5", "--logical-rows", "5"),
        ("explain", "--profile", "FILE", "--packed-rows", "5", "--logical-rows", "5"),
        ("plan", "FILE", "--budget", "1GiB"),
        ("plan", "GOOD", "--budget", "1GiB", "--profile", "FILE"),
        ("replay", "FILE"),
        ("report", "FOLDER"),
        ("scale", "FILE"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 600,
        "[" * 600 + "]" * 600,
        '{"a":' * 600 + "1" + "}" * 600,
        "",
        "nan",
        '{"schema_version": ' + "9" * 5_000 + "}",
        "\ud800",
        '"\\ud800"',
        "\x1b[2J{}",
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_no_verb_dies_of_a_file(arguments: tuple[str, ...], text: str, tmp_path: Path) -> None:
    names = {name: tmp_path / name for name in ("FILE", "OUT", "GOOD", "FOLDER")}
    names["FOLDER"].mkdir()
    names["GOOD"].write_text('{"length": 70}\n')
    for path in (names["FILE"], names["FOLDER"] / "one.json", names["FOLDER"] / f"{'a' * 12}{WAVES_SUFFIX}"):
        path.write_bytes(text.encode(errors="surrogatepass"))
    result = run(*(names.get(argument, argument) for argument in arguments))
    assert result.exit_code == (0 if arguments[0] == "report" else 2), result.output


@pytest.mark.parametrize("share", ["nan", "inf", "-inf", "-1", "1e400", "9" * 5_000, "1e-5000", "", "٣", "1/0"])
def test_a_share_that_is_no_number_is_bad_use(share: str) -> None:
    trace = Path(__file__).parents[2] / "spec" / "evidence" / "h200" / "dense-1.jsonl"
    assert run("scale", trace, f"--at-most={share}").exit_code == 2


@pytest.mark.parametrize("mode", ["full/uniform/" + "9" * 5_000, "full/uniform/-1", "full/uniform/²", "/", "a/b/c/d"])
def test_a_recompute_mode_that_is_none_is_bad_use(mode: str, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text('{"length": 70}\n')
    assert run("plan", tmp_path / "items.jsonl", "--budget", "1GiB", "--recompute", mode).exit_code == 2


def test_exit_code_1_is_not_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("of ours \x1b[2J")

    monkeypatch.setattr("pricing.cli.replay._outcome", broken)
    (tmp_path / "one.json").write_text("{}")
    result = CliRunner().invoke(pricing, ["replay", str(tmp_path)])
    assert result.exit_code == 3 and "Traceback" not in result.output
    assert "ValueError: of ours \\x1b[2J" in result.output and "test_file_cases.py" in result.output


# --- names that a terminal obeys, or that are no text ---


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_names_in_records_are_shown_never_obeyed(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    recorder = Recorder(name=name, spool=folder, triggers=Triggers(everything=True))
    ticket = recorder.priced(a_wave(5_000), PROFILE, available_bytes=2 * GIB)
    recorder.observed(ticket, a_reading(5_000, GIB), note=name)
    assert recorder.failures == recorder.spool.dropped == 0  # type: ignore[union-attr]
    (record,) = folder.glob("*-observed.json")
    data = json.loads(record.read_text())
    data["verdict"], data["law"], data[name] = name, name, name
    (folder / "other.json").write_text(json.dumps(data))
    assert "1 equal" in run("replay", record).stdout
    assert run("replay", folder).exit_code == 2
    assert "other.json" in run("report", folder, "--html", tmp_path / "page.html").output
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", (tmp_path / "page.html").read_bytes().decode())


@pytest.mark.parametrize("name", [b"caf\xe9", b"\xff\xfe", b"a\x1b[2Jb", "日本".encode(), b"new\nline"])
def test_files_and_folders_of_any_name(name: bytes, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(name)
    spool = Spool(folder)
    written = spool.write(a_record())
    assert written is not None
    written.rename(folder / (os.fsdecode(name) + ".json"))
    assert run("replay", folder).exit_code == run("replay", folder, "--json").exit_code == 0
    assert run("report", folder, "--json").exit_code == 0
    assert run("report", folder, "--html", tmp_path / (os.fsdecode(name) + ".html")).exit_code == 0
    assert run("price", "--profile", folder, "--packed-rows", "5", "--logical-rows", "5").exit_code == 2
    path = tmp_path / (os.fsdecode(name) + ".profile")
    merge_profiles(path, ProfileFile(profiles={None: PROFILE}))
    assert run("price", "--profile", path, "--packed-rows", "5", "--logical-rows", "5").exit_code == 0
    assert run("price", "--profile", f"{path}-none", "--packed-rows", "5", "--logical-rows", "5").exit_code == 2


def test_visible_text_keeps_what_is_seen() -> None:
    for text in ("", "plain", "ümläut 日本 🙂", "two\nlines"):
        assert visible(text) == text
    assert visible("\x1b[2J\udcff\u202e\t\x9b") == "\\x1b[2J\\udcff\\u202e\\t\\x9b"


# --- what is no record in a folder of records ---


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


def _broken(path: Path) -> None:
    path.symlink_to("nowhere")


def _folder(path: Path) -> None:
    path.mkdir()


def _own_folder(path: Path) -> None:
    path.symlink_to(path.parent)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [_pipe, _endless, _circle, _broken, _folder, _own_folder])
@pytest.mark.parametrize("suffix", [".json", WAVES_SUFFIX])
def test_what_is_no_record_is_listed_and_waited_for_by_nobody(
    make: Callable[[Path], None], suffix: str, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    spool = Spool(folder)
    for name in ("rank0", "rank1"):
        Recorder(name=name, spool=spool, triggers=Triggers(everything=True)).abandoned(a_record(name))
    odd = folder / f"{'f' * 12}{suffix if suffix == WAVES_SUFFIX else '-00000001-refused.json'}"
    make(odd)
    report = run("report", folder, "--html", tmp_path / "page.html")
    assert report.exit_code == 0 and odd.name in report.output
    assert json.loads(run("report", folder, "--json").stdout)["waves"] == 2
    replayed = run("replay", folder, "--json")
    counts = json.loads(replayed.stdout)
    assert (counts["equal"], counts["unreadable"]) == ((2, 1) if suffix == ".json" else (2, 0))
    assert spool.write(a_record()) is not None, spool.last_failure


def test_a_profile_that_is_a_pipe_starts_a_trainer_cold(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from adapters.trainer_rank import ProfileStore

    for number, make in enumerate((_pipe, _endless, _circle, _folder)):
        path = tmp_path / f"profiles-{number}.json"
        make(path)
        store = ProfileStore(path, {})
        assert store.refusal is not None and not store.started_warm
        store.put(_signature(), Profile())
        store.save()
        assert not path.is_file()


def test_a_damaged_profile_starts_a_trainer_cold_is_kept_aside_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch")
    from adapters.trainer_rank import ProfileStore

    path = tmp_path / "profiles.json"
    merge_profiles(path, ProfileFile(profiles={_signature(): PROFILE}))
    damaged = path.read_text().replace('"complete_readings": 3', '"complete_readings": 7')
    for content in (damaged, "[" * 600, ""):
        caplog.clear()
        path.write_text(content)
        store = ProfileStore(path, {})
        assert store.refusal is not None and len(store) == 0
        for _ in range(3):
            store.put(_signature(), PROFILE)
            store.save()
        assert load_profiles(path).profiles == {_signature(): PROFILE}
        aside = max(tmp_path.glob("*.damaged*"), key=lambda kept: kept.stat().st_mtime_ns)
        assert aside.read_text() == content
        assert [entry.getMessage().split(" in ")[0] for entry in caplog.records] == [
            "profiles",
            "the profiles that could not be read are kept",
        ]


def test_a_record_of_any_text_is_written_and_read_back() -> None:
    for name in HOSTILE_NAMES:
        assert json.loads(record_text(a_record(name)))["name"] == name


def _signature() -> Signature:
    return signature()
