"""Recorded answers of another implementation: none differs, none is passed over; and a wrong answer is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.differential.conform import conform, main

PEER = Path(__file__).parents[1] / "data" / "peer"

LEAST_ANSWERS = {"differential.jsonl": 18_000, "mix_keys.jsonl": 1_440}
"""How many answers each file is known to hold: a comparison that looks at fewer has gone blind."""


@pytest.mark.parametrize("name", LEAST_ANSWERS)
def test_nothing_differs_and_nothing_is_skipped(name: str) -> None:
    comparison = conform([str(PEER / name)])

    assert comparison.differences == []
    assert comparison.skipped == 0
    assert comparison.compared >= LEAST_ANSWERS[name]


def first_case(name: str) -> dict[str, Any]:
    case: dict[str, Any] = json.loads((PEER / name).read_text().splitlines()[0])
    return case


def run(tmp_path: Path, text: str) -> int:
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    return main([str(path)])


@pytest.mark.parametrize("change", ["required", "retained", "trusted", "rate", "count", "sharing"])
def test_one_wrong_answer_is_a_difference(change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = first_case("differential.jsonl")
    query = case["queries"][0]
    if change in ("required", "retained"):
        query[change] += 40_000  # more than a row and a byte a row, at that case's 19,331 bytes a row and 240 rows
    elif change == "trusted":
        query[change] = not query[change]
    elif change == "rate":
        case["profile"]["bytes_per_token"] += 1.5
    elif change == "count":
        case["profile"]["caller_plans"] += 1
    else:
        case["profile"]["logical_per_packed"] += 1e-9

    assert run(tmp_path, json.dumps(case)) == 1
    assert ", 1 differ, 0 skipped" in capsys.readouterr().out


@pytest.mark.parametrize("theirs", [True, False])
def test_an_empty_wave_after_readings_without_rows_is_decided_by_the_definition(
    theirs: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R is unknown, so the wave is outside the window of retained bytes; an answer that says otherwise is counted."""
    case = first_case("differential.jsonl")
    case["observations"] = [case["observations"][0] | {"packed": 0, "logical": 0} for _ in range(3)]
    case["profile"], case["profiles"] = None, [None] * 3
    query = case["queries"][0] | {"packed": 0, "logical": 0, "segments": 0, "trusted": theirs}
    query["required"] = query["retained"] = query["output_bytes"]
    case["queries"] = [query]

    assert run(tmp_path, json.dumps(case)) == 0
    said = capsys.readouterr().out
    assert ("1 decided: an empty wave is trusted" in said) == theirs


def test_a_price_too_high_is_a_difference(tmp_path: Path) -> None:
    case = first_case("differential.jsonl")
    case["queries"][0]["required"] -= 40_000

    assert run(tmp_path, json.dumps(case)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"observations": [',
        '{"observations": 3, "geometry": {}, "segment_bytes": 0}',
        '{"input_shape": [1.5], "outputs": {}, "key": "inactive", "short": false}',
        '{"input_shape": [2], "observations": []}',
    ],
)
def test_what_is_no_case_is_an_error_with_file_and_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, text) == 2
    said = capsys.readouterr()
    assert "cases.jsonl" in said.err and "Traceback" not in said.err
    assert said.out == ""


@pytest.mark.parametrize(("bytes_above_ours", "differs"), [(2, False), (3, True)])
def test_ours_may_lie_two_bytes_under_and_no_more(bytes_above_ours: int, differs: bool, tmp_path: Path) -> None:
    case = first_case("differential.jsonl")
    outputs_only = {**case["queries"][0], "packed": 0, "output_bytes": 1_000, "required": 1_000 + bytes_above_ours}
    case["queries"] = [{name: value for name, value in outputs_only.items() if name != "retained"}]

    assert run(tmp_path, json.dumps(case)) == int(differs)


def test_a_file_that_is_not_there_and_no_file_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/no/such/file.jsonl"]) == 2
    assert "/no/such/file.jsonl" in capsys.readouterr().err
    assert main([]) == 2
