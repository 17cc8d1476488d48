"""The recorded mutation score: high enough, every survivor argued; and what the mutator does to a small source."""

from __future__ import annotations

import json
from pathlib import Path

from mutation import excluded_mutants
from mutation.score import ARGUED, REQUIRED_SCORE, TARGET

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads(TARGET.read_text())


def test_the_recorded_score_is_high_enough() -> None:
    assert RECORDED["score"] >= REQUIRED_SCORE == 0.98
    assert RECORDED["killed"] + len(RECORDED["survivors"]) == RECORDED["mutants"]


def test_every_kernel_module_is_mutated() -> None:
    modules, _ = excluded_mutants.configured(ROOT)
    assert set(modules) == {path.stem for path in (ROOT / "pricing" / "kernel").glob("*.py")} - {"__init__"}


def test_every_survivor_is_argued_and_every_argument_is_about_a_survivor() -> None:
    survivors = {survivor["mutant"].split(":", 1)[0]: survivor["reason"] for survivor in RECORDED["survivors"]}
    assert all(survivors.values())
    assert set(survivors) == set(ARGUED)


def test_properties_constants_and_defaults_are_mutated_and_functions_are_left_to_mutmut() -> None:
    source = (
        "LIMIT = 8\n"
        "def function(x):\n    return x + 1\n"
        "class Thing:\n"
        "    size: int = 3\n"
        "    @property\n"
        "    def large(self):\n        '''Text.'''\n        return self.size > 2 and not self.empty\n"
    )
    found = [(change.owner, change.before, change.after) for change in excluded_mutants.changes("m", source)]
    assert sorted(found) == sorted(
        [
            ("LIMIT", "8", "9"),
            ("Thing.size", "3", "4"),
            ("Thing.large", "self.size > 2 and not self.empty", "(self.size > 2 or not self.empty)"),
            ("Thing.large", "self.size > 2", "self.size >= 2"),
            ("Thing.large", "not self.empty", "self.empty"),
            ("Thing.large", "2", "3"),
        ]
    )
