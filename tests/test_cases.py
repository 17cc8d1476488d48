"""The table of public cases says which tests are about which case, and knows every case that a test names."""

from __future__ import annotations

import re

from spec import cases


def test_the_table_is_current() -> None:
    assert cases.main(["--check"]) == 0, "run python -m spec.cases"


def test_every_case_that_a_test_names_is_in_the_table() -> None:
    listed = set(re.findall(r"^\| ([ADE]\d{2}) \|", cases.TABLE.read_text(), re.MULTILINE))
    assert set(cases.tests_of_cases()) <= listed


def test_a_case_without_a_test_is_called_open() -> None:
    text = "| D01 | somewhere | something | |\n| D02 | somewhere | something | [x](x) |\n"
    first, second = cases.filled(text, {"D01": {"a/test_b.py"}}).splitlines()
    assert first == "| D01 | somewhere | something | [a/test_b.py](../tests/a/test_b.py) |"
    assert second == "| D02 | somewhere | something | open |"
