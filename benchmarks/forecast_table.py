"""Forecasts beside what the H200 showed: python -m benchmarks.forecast_table

Every recorded wave of the families in `benchmarks.h200.families` is forecast from its packed rows, logical rows and
segments alone, with the model built on no device, and set beside the peak that was read. Writes the figures to
`spec/evidence/forecast/h200.json`; `--table` makes the table of its README from them. Needs no GPU; minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from adapters.forecast.fake_run import Target
from adapters.forecast.lines import COLD_TRANSIENT_BYTES, forecast_model
from adapters.forecast.shapes import TRAINING
from adapters.forecast.trace import Loss
from adapters.trainer_rank import head
from benchmarks.h200.families import build
from benchmarks.h200.record_trace import FAMILY_OF
from pricing.kernel.forecast import Forecast, ForecastLine, forecast_peak_bytes

ROOT: Final = Path(__file__).parents[1]
EVIDENCE: Final = ROOT / "spec" / "evidence"
FIGURES: Final = EVIDENCE / "forecast" / "h200.json"

TRACES: Final = {
    "h200/dense-1": "dense_1024",
    "h200-physical/dense-23": "dense_1024",
    "h200/moe-1": "moe",
    "h200-physical/moe-21": "moe",
    "h200/gdn_moe-1": "gdn_moe",
    **{f"h200-own/{name}": name for name in ("gdn", "deep", "long", "many", "alternate", "saver", "imbalance")},
    **{f"h200-physical/{name}-31": name for name in ("deep", "gdn", "gdn_moe", "imbalance")},
}
"""Trace -> the scenario of `benchmarks.h200.record_trace` that has its model and its loss."""

SAME_MODEL: Final = {"long": "dense", "many": "dense", "alternate": "dense", "imbalance": "moe"}
"""Scenario -> the one whose forecast is its own: the same model and loss. A router's imbalance changes no shape that a
forecast knows."""

HEAD_CHUNK_ROWS: Final = {"dense_1024": 1_024, "moe_1024": 1_024}
"""Another program recorded the traces of `h200` and two of `h200-physical`: its head ran in chunks of 1,024 rows."""

SIZES: Final = ((0, 2_048), (2_048, 16_384), (16_384, 65_536), (65_536, 1 << 62))
"""Packed rows from, and below."""


def forecast_of(scenario: str) -> Forecast:
    """Of waves that train the scenario's model: gradients of single-target log-probabilities, none there before."""
    family, change, caller = FAMILY_OF[scenario.removesuffix("_1024")]
    head.HEAD_CHUNK_ROWS = HEAD_CHUNK_ROWS.get(scenario, 512)
    model = build(family, torch.device("meta"), change=change)
    loss: Loss = caller
    return forecast_model(model, [TRAINING], target=Target.CUDA, loss=loss, transient_bytes=0)


def waves_of(trace: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EVIDENCE / f"{trace}.jsonl").read_text().splitlines()]


def compared(trace: str, forecast: Forecast) -> Iterator[tuple[int, int, int]]:
    """(packed rows, forecast bytes, observed peak bytes) of every wave; the process's first pays the transient."""
    for index, wave in enumerate(waves_of(trace)):
        size = wave["packed_rows"], wave["logical_rows"], wave["grad_segments"]
        said = forecast_peak_bytes(forecast, *size) + (COLD_TRANSIENT_BYTES if index == 0 else 0)
        yield wave["packed_rows"], said, wave["peak_bytes"]


def figures(trace: str, forecast: Forecast) -> list[dict[str, Any]]:
    """One line a size: forecast over observed, in parts per thousand, rounded down."""
    found = list(compared(trace, forecast))
    lines = []
    for first, below in SIZES:
        ratios = sorted(1000 * said // seen for rows, said, seen in found if first <= rows < below)
        if ratios:
            lines.append(
                {
                    "trace": trace,
                    "from_rows": first,
                    "below_rows": below if below < 1 << 62 else None,
                    "waves": len(ratios),
                    "least_permille": ratios[0],
                    "median_permille": ratios[len(ratios) // 2],
                    "most_permille": ratios[-1],
                }
            )
    return lines


def as_table(lines: Sequence[dict[str, Any]]) -> str:
    """The figures as the table of `spec/evidence/forecast/README.md`."""
    ratio: Callable[[int], str] = lambda permille: f"{permille / 1000:.3f}"  # noqa: E731
    rows = ["| trace | packed rows | waves | least | median | most |", "|---|---|---|---|---|---|"]
    for line in lines:
        size = f"{line['from_rows']:,} and more" if line["below_rows"] is None else f"below {line['below_rows']:,}"
        least, median, most = (ratio(line[f"{name}_permille"]) for name in ("least", "median", "most"))
        rows.append(f"| `{line['trace']}` | {size} | {line['waves']} | {least} | {median} | {most} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="only print the table of the figures that are there")
    scenarios = list(dict.fromkeys(SAME_MODEL.get(scenario, scenario) for scenario in TRACES.values()))
    parser.add_argument("--only", nargs="*", default=scenarios, help="models to forecast anew")
    arguments = parser.parse_args()
    if arguments.table:
        print(as_table(json.loads(FIGURES.read_text())["waves"]), end="")
        return
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {"forecasts": {}, "waves": []}
    for scenario in arguments.only:
        forecast = forecast_of(scenario)
        known["forecasts"][scenario] = {
            "assumption": forecast.assumption,
            "lines": [{name: getattr(line, name) for name in type(line).__slots__} for line in forecast.lines],
        }
    known["waves"] = []
    for trace, scenario in TRACES.items():
        written = known["forecasts"].get(SAME_MODEL.get(scenario, scenario))
        if written is not None:
            lines = tuple(ForecastLine(**line) for line in written["lines"])
            known["waves"] += figures(trace, Forecast(lines=lines, assumption=written["assumption"]))
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
