"""No figure on a page differs from the log it was made from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pricing import LAWS
from pricing.evidence.backtest import Order, backtest, quantities_of
from pricing.evidence.trace import read_trace
from spec import h200_figures, tables


def test_h200_page_says_what_the_logs_say() -> None:
    assert h200_figures.main(["--check"]) == 0


def test_a_changed_figure_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = h200_figures.tables() | {"overhead": "| run |"}
    monkeypatch.setattr(h200_figures, "tables", lambda: changed)
    assert h200_figures.main(["--check"]) == 1


def test_a_table_without_a_place_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no place for the table prices"):
        tables.with_tables("# A page\n", {"prices": "| a |"})


def test_readme_quotes_the_soaks_as_logged() -> None:
    readme = " ".join((h200_figures.EVIDENCE.parents[1] / "README.md").read_text().split())
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for made in (h200_figures.footprint_soak(), h200_figures.cap_soak())
        for line in made.strip().splitlines()[2:]
    ]
    assert {row[2] for row in rows} == {"0"}
    assert "none ran out of memory" in readme and "none out of memory" in readme
    waves = sum(int(row[1]) for row in rows)
    assert f"{waves:,} waves ran in {len(rows)} runs" in readme and f"{waves:,} waves in {len(rows)} runs" in readme
    tight = [float(row[5].split()[0]) for row in rows if "51/50" in row[0]]
    wide = [float(row[5].split()[0]) for row in rows if "11/10" in row[0]]
    assert f"with {int(min(tight))} % of the cap reserved or more at a safety factor of 51/50" in readme
    assert f"and {min(wide):.0f} to {max(wide):.0f} % at 11/10" in readme


def test_readme_quotes_the_costs_as_logged() -> None:
    readme = " ".join((h200_figures.EVIDENCE.parents[1] / "README.md").read_text().split())
    costs = h200_figures.costs()
    for share in ("0.51 %", "0.27 %"):
        assert f"({share})" in costs and share in readme


ROOT = h200_figures.EVIDENCE.parents[1]
BACKTESTS = {Order.RECORDED: "backtest.json", Order.DESCENDING: "backtest-descending.json"}


def committed(order: Order) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads((ROOT / "benchmarks" / "results" / BACKTESTS[order]).read_text())[
        "results"
    ]
    return results


@pytest.mark.parametrize("order", BACKTESTS)
def test_backtest_results_are_what_the_laws_say_now(order: Order) -> None:
    """Every entry of the committed files, made anew; both quantities wherever a trace has both."""
    results = committed(order)
    made = []
    for path in dict.fromkeys(entry["trace"] for entry in results):
        waves = read_trace(str(ROOT / path))
        made += [
            backtest(path, waves, law, quantity=quantity, skip=3, order=order).to_json()
            for quantity in quantities_of(waves)
            for law in LAWS.values()
        ]
    assert made == results
    shown = {(entry["trace"].split("/")[-2], entry["quantity"]) for entry in results}
    assert shown == {("h200", "allocated"), ("h200-physical", "allocated"), ("h200-physical", "footprint")}


def test_readme_quotes_the_backtest() -> None:
    """The table of median over-estimates is that of the recorded order, and no wave of it is under."""
    readme = (ROOT / "README.md").read_text()
    results = committed(Order.RECORDED)
    assert all(entry["under"] == 0 for entry in results)

    def median(trace: str, law: str, quantity: str) -> str:
        (entry,) = (
            entry
            for entry in results
            if (entry["trace"].split("/")[-1], entry["law"], entry["quantity"]) == (f"{trace}.jsonl", law, quantity)
        )
        return f"+{100 * entry['over_median']:.0f} %"

    for law in LAWS:
        (row,) = (line for line in readme.splitlines() if line.startswith(f"| `{law}`") and "of footprints" not in line)
        cells = [median(trace, law, "allocated") for trace in ("dense-1", "moe-1", "gdn_moe-1")]
        assert [cell.strip() for cell in row.split("|")[2:6]] == [*cells, "0"]
    (row,) = (line for line in readme.splitlines() if line.startswith("| `frontier`, of footprints"))
    cells = [median(trace, "frontier", "footprint") for trace in ("dense-23", "moe-21")]
    assert [cell.strip() for cell in row.split("|")[2:6]] == [*cells, "", "0"]
