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


def test_readme_quotes_the_soak_as_logged() -> None:
    readme = (h200_figures.EVIDENCE.parents[1] / "README.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in h200_figures.footprint_soak().splitlines()[2:]]
    waves, crashes = sum(int(row[1]) for row in rows), sum(int(row[2]) for row in rows)
    tight = [round(float(row[5].split()[0])) for row in rows if "51/50" in row[0]]
    wide = [round(float(row[5].split()[0])) for row in rows if "11/10" in row[0]]

    assert f"{waves:,} waves of {len({row[0].split(',')[0] for row in rows})} families" in readme.replace("four", "4")
    assert crashes == 0 and "none out of memory" in readme
    assert f"with {min(tight)} to {max(tight)} % of the cap reserved" in readme
    assert set(wide) == {90} and "90 % at" in readme
