"""`pricing replay`: equal or the first difference, incomplete with the field's name, and what another law would say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pricing import GIB, Safety, find_law, required_bytes
from pricing.cli.app import pricing
from pricing.kernel.laws import LAWS
from pricing.records.record_file import record_text
from pricing.records.recorder import record_of_price
from tests.making import a_reading, a_wave, learned
from tests.records.recorded_run import record_run

PROFILE = learned(a_reading(1_000 * size, 300_000_000 * size, retained_bytes=10_000) for size in (1, 2, 3))
WAVE = a_wave(5_000, 20_000, 7)


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(pricing, ["replay", *map(str, arguments)])
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def document(*arguments: str | Path, exit_code: int = 0) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def written(path: Path, **changes: Any) -> Path:
    """A record on disk, with top-level fields changed (None: removed)."""
    data = json.loads(record_text(record_of_price(WAVE, PROFILE, available_bytes=2 * GIB, name="rank0")))
    for name, value in changes.items():
        if value is None:
            del data[name]
        else:
            data[name] = value
    path.write_text(json.dumps(data))
    return path


def test_an_untouched_record_is_equal(tmp_path: Path) -> None:
    result = run(written(tmp_path / "one.json"))
    assert result.exit_code == 0
    assert "one.json: equal" in result.stdout and "1 record: 1 equal" in result.stdout


def test_the_first_difference_is_named_with_both_values_and_exit_code_1(tmp_path: Path) -> None:
    path = written(tmp_path / "one.json", required_bytes=7)
    result = run(path)
    assert result.exit_code == 1
    right = required_bytes(WAVE, PROFILE)
    assert f"first difference: required_bytes: recorded 7, replayed {right}" in result.stdout
    (outcome,) = document(path, exit_code=1)["results"]
    assert outcome["status"] == "different"
    assert outcome["first_difference"] == {"field": "required_bytes", "recorded": 7, "replayed": right}


def test_a_record_without_the_recompute_mode_is_incomplete_with_exit_code_2(tmp_path: Path) -> None:
    path = written(tmp_path / "one.json")
    data = json.loads(path.read_text())
    del data["regimes"][0]["recompute"]
    path.write_text(json.dumps(data))
    result = run(path)
    assert result.exit_code == 2
    assert "incomplete: regimes[0].recompute was not recorded" in result.stderr
    (outcome,) = document(path, exit_code=2)["results"]
    assert outcome["status"] == "incomplete" and "regimes[0].recompute" in outcome["error"]


def test_unknown_fields_are_accepted_and_said(tmp_path: Path) -> None:
    path = written(tmp_path / "one.json", weather="fine")
    result = run(path)
    assert result.exit_code == 0
    assert "accepted 1 fields that this build does not know: weather" in result.stdout
    assert document(path)["results"][0]["unknown_fields"] == ["weather"]


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"schema_version": 9}', "{}", "\x00\xff"])
def test_what_is_no_record_is_an_error_of_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    result = run(path)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1


def test_missing_files_and_empty_folders_are_errors(tmp_path: Path) -> None:
    assert run(tmp_path / "gone.json").exit_code == 2
    assert run(tmp_path).exit_code == 2
    assert run().exit_code == 2
    assert run(written(tmp_path / "one.json"), "--law", "nonsense").exit_code == 2
    assert run(written(tmp_path / "one.json"), "--safety", "0.9").exit_code == 2


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    written(tmp_path / "a.json")
    written(tmp_path / "b.json", required_bytes=7)
    (tmp_path / "c.json").write_text("{")
    counted = document(tmp_path, exit_code=2)
    assert (counted["equal"], counted["different"], counted["unreadable"]) == (1, 1, 1)
    assert [Path(outcome["report"]).name for outcome in counted["results"]] == ["a.json", "b.json", "c.json"]


def test_what_if_prices_are_the_kernel_s(tmp_path: Path) -> None:
    path = written(tmp_path / "one.json")
    laws = [argument for law in LAWS for argument in ("--law", law)]
    (outcome,) = document(path, *laws, "--safety", "3/2")["results"]
    for answer in outcome["what_if"]:
        law = find_law(answer["law"])
        assert answer["safety"] == "3/2"
        assert answer["required_bytes"] == required_bytes(WAVE, PROFILE, law, Safety.parse("3/2"))
        assert answer["answer"] == ("runs" if answer["required_bytes"] <= 2 * GIB else "refused")
    assert [answer["law"] for answer in outcome["what_if"]] == list(LAWS)


def test_a_safety_alone_keeps_each_record_s_own_law(tmp_path: Path) -> None:
    (outcome,) = document(written(tmp_path / "one.json"), "--safety", "1")["results"]
    assert [(answer["law"], answer["safety"]) for answer in outcome["what_if"]] == [("frontier", "1/1")]


def test_a_whole_run_replays(tmp_path: Path) -> None:
    record_run(tmp_path, refused=(20,), out_of_memory=(30,), under=(35,))
    result = run(tmp_path, "--law", "frontier")
    assert result.exit_code == 0, result.output
    assert " equal\n" in result.stdout
    assert "rank0 wave 20 refused: verdict refuse" in result.stdout
    assert "rank0 wave 30 out of memory: verdict run" in result.stdout
    assert "under frontier, 11/10: " in result.stdout
