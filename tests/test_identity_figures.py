"""The page on identity says what was measured, and every point of it has the regression that it names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from spec import identity_figures

ROOT = Path(__file__).resolve().parents[1]


def test_the_tables_are_current() -> None:
    assert identity_figures.main(["--check"]) == 0, "run python -m spec.identity_figures"


def test_every_regression_and_file_that_is_named_is_there() -> None:
    text = identity_figures.DOCUMENT.read_text()
    named = re.findall(r"`((?:tests|adapters|pricing|proofs)/[\w/]+(?:\.py)?)(?:::(\w+))?`", text)
    assert len(named) >= 30
    for file, test in named:
        path = ROOT / file
        assert path.exists(), file
        if test:
            functions = {
                node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)
            }
            assert test in functions, f"{file}::{test}"


def test_every_point_has_a_regression() -> None:
    _, _, points = identity_figures.DOCUMENT.read_text().partition("| point | regressions |")
    rows = [line for line in points.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) >= 12
    assert all("`tests/" in row for row in rows)
