"""Tables in documents that are made from data, so that no figure can differ from the file it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; all columns but the first are aligned right."""
    lines = [" | ".join(heads), " | ".join(["---"] + ["---:"] * (len(heads) - 1))]
    return "\n".join(f"| {line} |" for line in (*lines, *(" | ".join(map(str, row)) for row in rows)))


def with_tables(document: str, tables: Mapping[str, str]) -> str:
    """The document with every table between its markers `<!-- begin NAME -->` and `<!-- end NAME -->` replaced."""
    for name, text in tables.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        head, found, rest = document.partition(begin)
        _, closed, tail = rest.partition(end)
        assert found and closed, f"the document has no place for the table {name}"
        document = f"{head}{begin}\n{text}\n{end}{tail}"
    return document
