"""Generates the tables of `identity.md` from what was measured: `python -m spec.identity_figures [--check]`.

The measurements are `evidence/identity-pairs.json` and `evidence/identity-table.json`; `make deep` takes them anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pricing.formats.files import write_text_atomically
from spec.tables import table, with_tables

ROOT: Final = Path(__file__).resolve().parent.parent
DOCUMENT: Final = ROOT / "spec" / "identity.md"
PAIRS: Final = ROOT / "spec" / "evidence" / "identity-pairs.json"
ROWS: Final = ROOT / "spec" / "evidence" / "identity-table.json"


def tables() -> dict[str, str]:
    pairs, measured = json.loads(PAIRS.read_text()), json.loads(ROWS.read_text())
    return {"pairs": _pairs(pairs), "rows": _rows(measured)}


def _pairs(pairs: dict[str, Any]) -> str:
    medians = pairs["price_at_1_over_peak_percent"]
    text = (
        f"`{pairs['command']}`: {pairs['pairs']:,} pairs, {pairs['pairs_of_equal_signature']:,} of one signature, "
        f"{pairs['answers']:,} prices. Under a peak at 11/10: **{pairs['under_the_price_at_11_10']}**. "
        f"At a factor of 1: {pairs['under_the_price_at_1']}, by constants. Were outputs taken off every peak whole, "
        f"{pairs['were_outputs_taken_off_whole']['under_the_price_at_11_10']} would be under at 11/10.\n\n"
    )
    return text + table(
        ["law", "worst miss at 1", "median price / peak - 1", "outputs taken off whole"],
        [
            [
                law,
                f"{miss} %",
                f"+{medians[law]['median']} %",
                f"+{medians[law]['median_were_outputs_taken_off_whole']} %",
            ]
            for law, miss in pairs["worst_miss_at_1_percent"].items()
        ],
    )


def _rows(measured: dict[str, Any]) -> str:
    return table(
        ["learned, then priced", "took", "by total rows (0.1.0)", "one signature now", "as a relative"],
        [
            [
                row["what"],
                _mb(row["took_bytes"]),
                _mb(row["priced_by_total_rows_bytes"]),
                "yes" if row["same_signature"] else "no",
                _mb(row["priced_as_a_relative_bytes"]),
            ]
            for row in measured["rows"]
        ],
    )


def _mb(size_bytes: int | None) -> str:
    return "none: cold" if size_bytes is None else f"{size_bytes / 1e6:,.1f} MB"


def main(arguments: Sequence[str]) -> int:
    text = DOCUMENT.read_text()
    wanted = with_tables(text, tables())
    if "--check" in arguments:
        return int(text != wanted)
    write_text_atomically(DOCUMENT, wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
