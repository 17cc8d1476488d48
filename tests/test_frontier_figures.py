"""The frontier law's published figures are what the code and the traces say."""

from __future__ import annotations

import json

from spec import frontier_figures


def test_figures_and_tables_are_current() -> None:
    assert frontier_figures.main(["--check"]) == 0


def test_the_promises_of_the_law_stand_in_its_figures() -> None:
    figures = json.loads(frontier_figures.FIGURES.read_text())
    for name in ("h200/dense-1", "h200/moe-1", "h200/gdn_moe-1"):
        of = figures["traces"][name]["laws"]["frontier"]
        assert of["median_percent"] <= 11.5
        assert of["median_percent_at_51_50"] <= 3.5
        assert of["p95_percent"] <= 40
    for trace in figures["traces"].values():
        of = trace["laws"]["frontier"]
        assert of["under_recorded"] == of["under_descending"] == of["under_shuffled"] == 0
    for row in figures["oracle"]["results"]:
        assert row["of_oracle"]["frontier"] >= 0.95
