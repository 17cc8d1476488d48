"""What the recorded runs of ART's planner on simulated devices said (`tests.art.fragmenting_rank` makes them)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "spec" / "evidence" / "art"
COLUMNS = ("waves", "failures", "worst_run", "readmitted", "retries", "releases")


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, int]]:
    document = json.loads((FOLDER / "fragmenting.json").read_text())
    assert document["runs"] == 120
    return dict(document["results"])


@pytest.mark.invariant("INV-16", "INV-17", "INV-18")
def test_what_ran_out_of_memory_was_never_admitted_again_and_errors_ended(results: dict[str, dict[str, int]]) -> None:
    learned = [results["with footprints"], results["with footprints understated"]]
    assert [tally["readmitted"] for tally in learned] == [tally["beside_the_cache"] for tally in learned] == [0, 0]
    assert results["with footprints understated"]["failures"] > 0 and max(each["worst_run"] for each in learned) <= 5


def test_footprints_spare_nearly_every_error(results: dict[str, dict[str, int]]) -> None:
    alone, footprints = results["allocated alone"], results["with footprints"]
    assert alone["failures"] > 300 and alone["readmitted"] > 200
    assert footprints["failures"] * 50 < alone["failures"]


def test_the_page_says_what_was_recorded(results: dict[str, dict[str, int]]) -> None:
    page = (FOLDER / "README.md").read_text()
    for name, tally in results.items():
        assert f"| {name} | {' | '.join(f'{tally[column]:,}' for column in COLUMNS)} |" in page
