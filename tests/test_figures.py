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
    rows = [line.strip("| ").split(" | ") for line in h200_figures.soak().splitlines()[2:]]
    by_run = {row[0]: row for row in rows}
    waves, crashes = sum(int(row[1]) for row in rows), sum(int(row[2]) for row in rows)
    frontier, warm = by_run["queue, frontier"], by_run["queue, warm"]

    assert f"no out-of-memory error in {waves} waves" in readme and crashes == 0
    assert f"ran {frontier[4]} rows a wave at {frontier[5]} of the cap" in readme
    assert f"the warm law {warm[4]} at {warm[5]}" in readme
