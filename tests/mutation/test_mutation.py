"""The recorded mutation score: high enough, every survivor argued; and what the mutator does to a small source."""

from __future__ import annotations

import json
from pathlib import Path

from mutation import beyond, excluded_mutants
from mutation.score import ARGUED, REQUIRED_SCORE, TARGET

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads(TARGET.read_text())
BEYOND = json.loads(beyond.TARGET.read_text())


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


def test_the_sample_beyond_the_law_modules_has_run_and_its_score_did_not_fall() -> None:
    assert BEYOND["seed"] == beyond.SEED and BEYOND["ran"] == BEYOND["sample"] == beyond.SAMPLE >= 300
    assert BEYOND["killed"] + len(BEYOND["survivors"]) == BEYOND["ran"] == len(BEYOND["results"])
    assert BEYOND["score"] >= beyond.REQUIRED_SCORE
    assert {survivor["mutant"] for survivor in BEYOND["survivors"] if survivor["reason"]} == set(beyond.ARGUED)


def test_one_token_changes_are_of_operators_names_and_numbers_and_leave_valid_source() -> None:
    source = 'def f(a: int = 3) -> bool:\n    "1 < 2"\n    return a is not None and not a in (1,) or min(a, 2) <= 4\n'
    mutants = list(beyond.mutants_of("m", source))
    assert [(mutant.before, mutant.after) for mutant in mutants] == [
        ("3", "4"),
        ("not", ""),
        ("and", "or"),
        ("not", ""),
        ("in", "not in"),
        ("1", "2"),
        ("or", "and"),
        ("min", "max"),
        ("2", "3"),
        ("<=", "<"),
        ("4", "5"),
    ]
    for mutant in mutants:
        compile(mutant.made_in(source), "m", "exec")
