"""Generates the frontier law's figures: `evidence/frontier.json`, and the tables in `frontier.md` made from it.

    python -m spec.frontier_figures            measures again and writes both
    python -m spec.frontier_figures --check    exits 1 if what is on disk is not what the code and the traces say

Every recorded trace is replayed under the frontier and the warm law, in recorded, descending and shuffled order; SCALE
is tested on each. The comparison with an oracle is read from `benchmarks/results/frontier_oracle.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from pricing.evidence.backtest import Order, Score, backtest
from pricing.evidence.scale import Miss, scale_test
from pricing.evidence.trace import TraceWave, read_trace
from pricing.formats.files import write_text_atomically
from pricing.kernel.laws import find_law
from pricing.kernel.quantities import Safety
from spec.tables import table, with_tables

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "spec" / "frontier.md"
FIGURES = ROOT / "spec" / "evidence" / "frontier.json"
ORACLE = ROOT / "benchmarks" / "results" / "frontier_oracle.json"
FOLDERS = ("h200", "h200-own")

SKIP = 3
SHUFFLES = range(20)
LAWS = ("frontier", "warm")
TEN_PERCENT, TWO_PERCENT = Safety(numerator=11, denominator=10), Safety(numerator=51, denominator=50)


def measured() -> dict[str, Any]:
    """All figures, by trace. Shares are in percent, rounded to hundredths."""
    traces = {
        f"{folder}/{path.stem}": _figures(read_trace(path))
        for folder in FOLDERS
        for path in sorted((ROOT / "spec" / "evidence" / folder).glob("*.jsonl"))
    }
    return {"skip": SKIP, "shuffles": len(SHUFFLES), "traces": traces, "oracle": json.loads(ORACLE.read_text())}


def _figures(waves: Sequence[TraceWave]) -> dict[str, Any]:
    test = scale_test(waves)
    return {
        "waves": len(waves),
        "laws": {law: _of_law(law, waves) for law in LAWS},
        "scale": {
            "scaling_percent": _share(test.scaling),
            "charged_percent": _share(test.charged),
            "lifted_waves": test.lifted_waves,
            "raised_waves": test.raised_waves,
            "most_lifted_percent": _percent(test.most_lifted, 3),
        },
    }


def _of_law(name: str, waves: Sequence[TraceWave]) -> dict[str, Any]:
    law = find_law(name)

    def scored(order: Order, safety: Safety = TEN_PERCENT, seed: int = 0) -> Score:
        return backtest(name, waves, law, skip=SKIP, safety=safety, order=order, seed=seed).score

    recorded, descending = scored(Order.RECORDED), scored(Order.DESCENDING)
    shuffled = [scored(Order.SHUFFLED, seed=seed) for seed in SHUFFLES]
    return {
        "median_percent": _percent(recorded.over_median),
        "median_percent_at_51_50": _percent(scored(Order.RECORDED, TWO_PERCENT).over_median),
        "p95_percent": _percent(recorded.over_p95),
        "max_percent": _percent(recorded.over_max),
        "under_recorded": recorded.under,
        "under_descending": descending.under,
        "under_shuffled": sum(score.under for score in shuffled),
        "worst_percent": _percent(min(score.over_min or Fraction(0) for score in (recorded, descending, *shuffled))),
        "median_percent_descending": _percent(descending.over_median),
    }


def _percent(share: Fraction | None, digits: int = 2) -> float | None:
    return None if share is None else round(float(100 * share), digits)


def _share(miss: Miss | None) -> float | None:
    return None if miss is None else _percent(miss.share, 3)


# --- tables ----------------------------------------------------------------------------------------------------------


def tables(figures: dict[str, Any]) -> dict[str, str]:
    """Markdown tables by the name of the place in `frontier.md` that they go to."""
    return {
        "traces": _traces(figures),
        "orders": _orders(figures),
        "scale": _scale(figures),
        "oracle": _oracle(figures),
    }


def _traces(figures: dict[str, Any]) -> str:
    rows = [
        (
            name,
            trace["waves"],
            f"{trace['laws']['frontier']['median_percent']:+.1f} %",
            f"{trace['laws']['frontier']['median_percent_at_51_50']:+.1f} %",
            f"{trace['laws']['frontier']['p95_percent']:+,.1f} %",
            f"{trace['laws']['warm']['median_percent']:+.1f} %",
            f"{trace['laws']['warm']['p95_percent']:+,.1f} %",
        )
        for name, trace in figures["traces"].items()
    ]
    return table(("trace", "waves", "median", "at 51/50", "p95", "warm: median", "p95"), rows)


def _orders(figures: dict[str, Any]) -> str:
    def cells(name: str, law: str) -> tuple[str, ...]:
        of = figures["traces"][name]["laws"][law]
        under = (str(of[f"under_{order}"]) for order in ("recorded", "descending", "shuffled"))
        return (*under, f"{of['worst_percent']:+.1f} %")

    rows = [(name, *cells(name, "frontier"), *cells(name, "warm")) for name in figures["traces"]]
    heads = ("recorded", "descending", "shuffled", "worst")
    return table(("trace", *heads, *(f"warm: {head}" for head in heads)), rows)


def _scale(figures: dict[str, Any]) -> str:
    rows = []
    for name, trace in figures["traces"].items():
        of = trace["scale"]
        rows.append(
            (
                name,
                f"{of['scaling_percent']:+.3f} %",
                f"{of['charged_percent']:+.3f} %",
                of["lifted_waves"],
                of["raised_waves"],
                f"{of['most_lifted_percent']:.3f} %",
            )
        )
    return table(("trace", "scaling alone", "with charges", "lifted", "raised", "most"), rows)


def _oracle(figures: dict[str, Any]) -> str:
    rows = [
        (
            of["trace"],
            f"{of['noise_per_mille'] / 10:.0f} %",
            *(f"{of['rows_a_wave'][key]:,}" for key in ("frontier", "warm", "oracle")),
            *(f"{100 * of['of_oracle'][key]:.1f} %" for key in ("frontier", "warm")),
            *(of["under"][key] for key in ("frontier", "warm")),
        )
        for of in figures["oracle"]["results"]
    ]
    heads = ("machine", "noise", "rows a wave", "warm", "oracle", "of the oracle", "warm", "under", "warm")
    return table(heads, rows)


def written(document: str, figures: dict[str, Any]) -> str:
    """The document with its tables made anew."""
    return with_tables(document, tables(figures))


def main(arguments: Sequence[str]) -> int:
    figures = measured()
    text, document = json.dumps(figures, indent=2) + "\n", DOCUMENT.read_text()
    if "--check" in arguments:
        stale = FIGURES.read_text() != text or written(document, figures) != document
        print("stale: run python -m spec.frontier_figures" if stale else "current")
        return 1 if stale else 0
    write_text_atomically(FIGURES, text)
    write_text_atomically(DOCUMENT, written(document, figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
