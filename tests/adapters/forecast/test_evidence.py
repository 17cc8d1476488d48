"""The shipped table of forecasts over what the H200 showed is what its figures and traces say."""

from __future__ import annotations

import json

from benchmarks.forecast_table import FIGURES, SAME_MODEL, TRACES, as_table, figures
from pricing.kernel.forecast import FORECAST_SAFETY, Forecast, ForecastLine

WRITTEN = json.loads(FIGURES.read_text())
OUR_OWN = [line for line in WRITTEN["waves"] if line["trace"].startswith("h200-own") or line["trace"].endswith("-31")]


def test_the_figures_follow_from_the_lines_and_the_traces() -> None:
    again = []
    for trace, scenario in TRACES.items():
        forecast = WRITTEN["forecasts"].get(SAME_MODEL.get(scenario, scenario))
        if forecast is not None:
            again += figures(trace, Forecast(lines=tuple(ForecastLine(**line) for line in forecast["lines"])))
    assert again == WRITTEN["waves"]


def test_the_page_has_the_table() -> None:
    assert as_table(WRITTEN["waves"]) in (FIGURES.parent / "README.md").read_text()


def test_our_own_models_keep_the_promise_and_the_safety_factor_covers_them() -> None:
    assert sum(line["waves"] for line in OUR_OWN) == 293
    for line in OUR_OWN:
        assert line["least_permille"] >= 950 and line["most_permille"] <= 1_250
        assert line["least_permille"] * FORECAST_SAFETY.numerator >= 1_000 * FORECAST_SAFETY.denominator
