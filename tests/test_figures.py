"""No figure on a page differs from the log it was made from."""

from __future__ import annotations

import pytest

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
