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
