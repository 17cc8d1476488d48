"""Recorded trees and width searches of another planner: none differs, and a wrong answer would be noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.differential.conform import conform, main

PEER = Path(__file__).parents[1] / "data" / "peer"
LEAST_ANSWERS = {"prefix_trees.jsonl": 1_100, "width_search.jsonl": 1_500}


@pytest.mark.parametrize("name", LEAST_ANSWERS)
def test_nothing_differs_and_nothing_is_skipped(name: str) -> None:
    comparison = conform([str(PEER / name)])
    assert comparison.differences == []
    assert comparison.skipped == 0
    assert comparison.compared >= LEAST_ANSWERS[name]


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (PEER / name).read_text().splitlines()]


def differs(tmp_path: Path, case: dict[str, Any]) -> bool:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(case))
    return main([str(path)]) == 1


@pytest.mark.parametrize("field", ["packed_full", "packed_by_depth", "segments_full", "canonical_segments", "order"])
def test_a_wrong_tree_is_a_difference(field: str, tmp_path: Path) -> None:
    case = cases("prefix_trees.jsonl")[0]
    assert not differs(tmp_path, case)
    value = case[field]
    if field == "order":
        value[0], value[1] = value[1], value[0]
    elif field == "segments_full":
        value[0][2] += 1
    elif field == "packed_by_depth":
        value[1] += 1
    else:
        case[field] += 1
    assert differs(tmp_path, case)


@pytest.mark.parametrize("field", ["width", "packed", "logical", "segments", "required", "cold_start"])
def test_a_wrong_wave_is_a_difference(field: str, tmp_path: Path) -> None:
    case = cases("width_search.jsonl")[2]
    assert not differs(tmp_path, case)
    wave = case["waves"][2]
    wave[field] = not wave[field] if field == "cold_start" else wave[field] + 1_000_000 * (field == "required") + 1
    assert differs(tmp_path, case)


def test_a_narrower_recorded_width_is_no_difference_but_a_smaller_budget_is(tmp_path: Path) -> None:
    """Ours may be wider. With less memory than that planner had, ours would be narrower than recorded."""
    case = cases("width_search.jsonl")[2]
    case["budget"] //= 2
    assert differs(tmp_path, case)


def test_a_refusal_that_was_none_is_a_difference(tmp_path: Path) -> None:
    case = next(case for case in cases("width_search.jsonl") if case["refused"])
    assert not differs(tmp_path, case)
    case["budget"] *= 4
    assert differs(tmp_path, case)
