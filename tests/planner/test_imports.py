"""The planner needs no numpy: without it, the standard library answers the same."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest

import pricing.planner.plan
from pricing.planner.tokens import ArrayTokens, NumpyTokens, default_tokens

WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import pricing.planner.plan as planner
import doctest
failed, tried = doctest.testmod(planner)
assert tried > 5 and not failed
from pricing.planner.tokens import default_tokens
assert default_tokens().name == "array"
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_importing_the_planner_loads_no_numpy() -> None:
    run("import sys, pricing.planner.plan; assert 'numpy' not in sys.modules")


def test_the_planner_works_without_numpy() -> None:
    run(WITHOUT_NUMPY)


def test_the_example_in_the_docstring_is_true() -> None:
    outcome = doctest.testmod(pricing.planner.plan)
    assert outcome.attempted > 5 and outcome.failed == 0


def test_numpy_is_taken_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(default_tokens(), NumpyTokens)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert isinstance(default_tokens(), ArrayTokens)
