"""The published figures of footprints are what the code and the traces say, and what they are said to show."""

from __future__ import annotations

import json

from spec import footprint_figures


def test_figures_and_tables_are_current() -> None:
    assert footprint_figures.main(["--check"]) == 0


def test_what_is_said_of_footprints_stands_in_their_figures() -> None:
    figures = json.loads(footprint_figures.FIGURES.read_text())
    for trace in figures["traces"].values():
        of = trace["laws"]["11/10"]
        assert of["recorded"]["under"] == 0
        assert of["recorded"]["median_percent"] <= 20
        assert all(of[order]["under_without_the_first"] == 0 for order in ("recorded", "descending", "shuffled"))
        assert trace["worst_miss_percent"]["footprint"] <= 10
    assert all(0 <= cap["least_cap_percent"] <= cap["reserved_peak_percent"] for cap in figures["least_caps"])
