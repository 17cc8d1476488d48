"""Which tests are about which public case: fills the last column of `cases.md`. `python -m spec.cases [--check]`."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = ROOT / "spec" / "cases.md"
_IN_NAME: Final = re.compile(r"\bdef test_((?:[ade]\d{2}_)+)")
_IN_CLASS: Final = re.compile(r"\bclass Test([ADE]\d{2})[A-Z]")
_IN_TEXT: Final = re.compile(r"\b([ADE]\d{2})\b(?!:\d)")
_ROW: Final = re.compile(r"^\| ([ADE]\d{2}) \|(.*)\|[^|]*\|$", re.MULTILINE)


def tests_of_cases() -> dict[str, set[str]]:
    """Case number -> files below `tests/` with a test that has the number in its name, or text that cites it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        numbers = {number.upper() for names in _IN_NAME.findall(source) for number in names.strip("_").split("_")}
        for number in numbers | set(_IN_CLASS.findall(source)) | set(_IN_TEXT.findall(source)):
            found[number].add(str(path.relative_to(ROOT / "tests")))
    return found


def filled(text: str, found: dict[str, set[str]]) -> str:
    """The table with its last column as the tests have it."""

    def row(match: re.Match[str]) -> str:
        files = ", ".join(f"[{name}](../tests/{name})" for name in sorted(found.get(match[1], ()))) or "open"
        return f"| {match[1]} |{match[2]}| {files} |"

    return _ROW.sub(row, text)


def main(arguments: list[str]) -> int:
    text = TABLE.read_text()
    wanted = filled(text, tests_of_cases())
    if "--check" in arguments:
        return int(text != wanted)
    TABLE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
