"""Bad input to the command line: a line on stderr that names file, line, field and value; exit code 2; no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pricing import cli
from pricing.cli.app import pricing
from pricing.formats.profile_file import save_profile
from pricing.kernel.profile import Profile
from tests.files.test_trace import READING, WAVE

ROWS = ("--packed-rows", "10", "--logical-rows", "10")


def refused(*arguments: str, text: str | None = None) -> str:
    """What is said on stderr to a use that must be refused."""
    result = CliRunner().invoke(pricing, arguments, input=text)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr) < 1_000
    return result.stderr


def written(tmp_path: Path, text: str, name: str = "some.jsonl") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


BAD_LINES = [
    (json.dumps(WAVE)[:-30], "cut off"),
    (json.dumps(WAVE | {"packed_rows": -5}), "packed_rows: must be at least 0, got -5"),
    (json.dumps(WAVE | {"packed_rows": 5.5}), "packed_rows: must be an integer, got 5.5"),
    (json.dumps(WAVE | {"peak_bytes": float("nan")}), "peak_bytes: is not a number that can be used, got NaN"),
    (json.dumps(WAVE | {"peak_bytes": 10**300}), "peak_bytes: must lie within"),
    ('{"peak_bytes": ' + "7" * 9_000 + "}", "peak_bytes"),
    (json.dumps(WAVE | {"kind": "?"}), "kind"),
    ("{}", "is missing"),
]


@pytest.mark.parametrize(("line", "said"), BAD_LINES, ids=[said[:24] for _, said in BAD_LINES])
@pytest.mark.parametrize("verb", [("backtest",), ("backtest", "--json"), ("learn", "-o", "/dev/null/none")], ids=str)
def test_a_bad_line_is_named_by_file_and_line(verb: tuple[str, ...], line: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(WAVE) + "\n" + line + "\n")
    message = refused(*verb, path)

    assert f"{path}:2:" in message
    if verb[0] == "backtest":
        assert said in message


def test_nothing_is_written_when_readings_are_bad(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    refused("learn", written(tmp_path, json.dumps(READING) + "\n{"), "-o", str(output))

    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("backtest", "/no/such/trace.jsonl"), "/no/such/trace.jsonl: No such file"),
        (("backtest", "/tmp"), "Is a directory"),
        (("learn", "/no/such/readings.jsonl", "-o", "x.json"), "No such file"),
        (("price", "--profile", "/no/such/profile.json", *ROWS), "No such file"),
        (("price", "/no/such/wave.json"), "No such file"),
        (("price", "--law", "cheapest", *ROWS), "unknown law 'cheapest'; known: logical, packed, warm"),
        (("price", "--safety", "0.9", *ROWS), "at least 1"),
        (("price", "--safety", "1e3", *ROWS), "fraction or a decimal"),
        (("price", "--safety", "nan", *ROWS), "fraction or a decimal"),
        (("price", "--safety", "11/0", *ROWS), "not a fraction"),
        (("price",), "Give a wave"),
        (("price", "--packed-rows", "10"), "logical_rows: is missing"),
        (("price", "--packed-rows", "-10", "--logical-rows", "10"), "'-10' is not an integer"),
        (("price", "--packed-rows", "1.5", "--logical-rows", "10"), "'1.5' is not an integer"),
        (("price", "--packed-rows", "nan", "--logical-rows", "10"), "'nan' is not an integer"),
        (("price", "--packed-rows", "9" * 30, "--logical-rows", "10"), "is not an integer"),
        (("price", "--packed-rows", "9" * 5_000, "--logical-rows", "10"), "is not an integer"),
        (("price", "--packed-rows", "0", "--logical-rows", "10"), "nothing to run"),
        (("price", *ROWS, "--output-bytes", "5 apples"), "not an amount of memory"),
        (("price", *ROWS, "--output-bytes", "9999999999GiB"), "more than 2**63 - 1"),
        (("price", *ROWS, "--recompute", "full//1"), "recompute"),
        (("price", *ROWS, "--recompute", "full/uniform/one"), "recompute"),
        (("backtest", "--skip", "-1", "x"), "'-1' is not an integer"),
        (("backtest", "--order", "backwards", "x"), "backwards"),
        (("backtest",), "Missing argument"),
        (("learn", "x"), "Missing option"),
        (("foresee",), "No such command"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_bad_use_is_refused_in_words(arguments: tuple[str, ...], said: str) -> None:
    assert said in " ".join(refused(*arguments).split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cut off"),
        ("[1, 2]", "one JSON object"),
        ('{"packed_rows": 1, "logical_rows": 1, "grad_segmets": 3}', "grad_segmets: is not a field"),
        ('{"packed_rows": 1, "logical_rows": 1.0}', "logical_rows: must be an integer, got 1.0"),
        ('{"packed_rows": true, "logical_rows": 1}', "packed_rows"),
        ('{"packed_rows": 1, "packed_rows": 1, "logical_rows": 1}', "packed_rows: stands there twice"),
        ('{"packed_rows": 1, "logical_rows": 1, "grads": "some"}', "grads: must be one of all, none, mixed"),
        ('{"packed_rows": 1, "logical_rows": 1, "request_mixes": "logits"}', "request_mixes: must be a list"),
        ('{"packed_rows": 1, "logical_rows": 1, "request_mixes": ["target:singel"]}', "got 'target:singel'"),
        ('{"packed_rows": 1, "logical_rows": 1, "request_mixes": ["logits+topk:8"]}', "got 'logits+topk:8'"),
        ('{"packed_rows": 1, "logical_rows": 1, "request_mixes": ["logits+logits"]}', "got 'logits+logits'"),
    ],
)
def test_a_bad_wave_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, text, "wave.json")

    assert said in refused("price", path) and path in refused("explain", path)
    assert said in refused("price", "-", text=text)


def test_a_wave_is_given_once(tmp_path: Path) -> None:
    path = written(tmp_path, '{"packed_rows": 1, "logical_rows": 1}', "wave.json")

    assert "not both" in refused("price", path, *ROWS)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"format": "packed-pricing profile", "schema_version": 9}', json.dumps(WAVE)]
)
def test_a_file_that_is_no_profile_is_refused(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text, "profile.json")

    assert path in refused("price", "--profile", path, *ROWS)


def test_a_picture_of_an_unknown_kind_or_place_is_refused(tmp_path: Path) -> None:
    trace = written(tmp_path, json.dumps(WAVE))

    assert "cannot draw" in refused("backtest", trace, "--plot", str(tmp_path / "picture.docx"))
    assert "No such file" in refused("backtest", trace, "--plot", str(tmp_path / "none" / "picture.png"))
    assert "its ending must say the format" in refused("backtest", trace, "--plot", str(tmp_path))


def test_a_profile_that_cannot_be_chosen_is_named_by_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "profile.json")
    save_profile(path, Profile())

    assert f"{path}: the file holds 1 profiles" in refused("price", "--profile", path, "--signature", "ab", *ROWS)


def test_a_file_that_cannot_be_written_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    readings = written(tmp_path, json.dumps(READING))
    (tmp_path / "folder").mkdir()

    for target in (str(tmp_path / "folder"), str(tmp_path / "none" / "profile.json")):
        assert f"Error: {target}: " in refused("learn", readings, "-o", target)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
@pytest.mark.parametrize("arguments", [("--help",), ("price", "--help"), ("price", *ROWS)], ids=" ".join)
def test_a_full_disk_is_told_in_a_line(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "pricing.cli", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert (ended.returncode, ended.stderr) == (2, "Error: No space left on device\n")


def test_a_verb_without_its_module_breaks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = cli.Verb("pricing.cli.not_there", "Not there.")
    monkeypatch.setattr("pricing.cli.app.VERBS", {**cli.VERBS, "missing": missing})

    assert "the verb 'missing' is not part of this build" in refused("missing")
    assert CliRunner().invoke(pricing, ["price", *ROWS]).exit_code == 0
    assert CliRunner().invoke(pricing, ["--help"]).exit_code == 0


WITHOUT_A_MODULE = """
import sys
absent = sys.argv[1]
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from pricing.cli import main
sys.argv = ["pricing", *sys.argv[2:]]
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("click", ("--help",), "packed-pricing[cli]"),
        ("rich", ("backtest", "TRACE"), "packed-pricing[cli]"),
        ("matplotlib", ("backtest", "TRACE", "--plot", "PICTURE"), "packed-pricing[plot]"),
    ],
)
def test_a_missing_extra_is_named(module: str, arguments: tuple[str, ...], extra: str, tmp_path: Path) -> None:
    places = {"TRACE": written(tmp_path, json.dumps(WAVE)), "PICTURE": str(tmp_path / "picture.png")}
    command = [sys.executable, "-c", WITHOUT_A_MODULE, module, *(places.get(text, text) for text in arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert result.returncode == 2
    assert extra in result.stderr and module in result.stderr and "Traceback" not in result.stderr


def test_the_console_script_is_this_command_line(tmp_path: Path) -> None:
    trace = written(tmp_path, "{")
    for command in ([sys.executable, "-m", "pricing.cli"], [str(Path(sys.executable).with_name("pricing"))]):
        result = subprocess.run([*command, "backtest", trace], capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 2
        assert result.stderr.startswith(f"Error: {trace}:1:") and result.stdout == ""
