"""Generates the tables in `evidence/any-trainer/README.md` from the runs beside it.

python -m spec.any_trainer_figures            writes them
python -m spec.any_trainer_figures --check    exits 1 if a table is not what the runs say
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pricing.formats.files import write_text_atomically
from spec.tables import table, with_tables

EVIDENCE = Path(__file__).resolve().parent / "evidence" / "any-trainer"
DOCUMENT = EVIDENCE / "README.md"
MIB = 1 << 20
SHAPES = ("padded", "packed")


def tables() -> dict[str, str]:
    """Every table by name."""
    return {"runs": runs(), "trainers": trainers()}


def runs() -> str:
    """The 200-step runs."""
    rows = []
    for shape in SHAPES:
        run = json.loads((EVIDENCE / f"{shape}.json").read_text())
        rows.append(
            [
                f"{shape}, {run['law']} at {run['safety']}",
                run["steps"],
                f"{run['needed_bytes'] / MIB:.0f}",
                f"{run['device_bytes'] / MIB:.0f}",
                run["waves_run"],
                run["out_of_memory"],
                run["under_priced"],
                f"{run['mean_use_of_full_waves_percent']:.1f} %",
                f"{run['mean_use_percent']:.1f} %",
                f"{run['largest_gradient_difference']:.1e}",
            ]
        )
    heads = (
        "run", "steps", "whole batch needs, MiB", "device, MiB", "waves", "out of memory", "under-priced",
        "use, full waves", "use, all waves", "gradients differ by",
    )  # fmt: skip
    return table(heads, rows)


def trainers() -> str:
    """Four trainers in waves and with `auto_find_batch_size`."""
    rows = []
    for run in json.loads((EVIDENCE / "trainers.json").read_text()):
        for way in ("in_waves", "auto_find_batch_size"):
            rows.append([run["trainer"], way.replace("in_waves", "in waves"), *_way(run[way])])
    heads = (
        "trainer", "how", "batch trained on", "out of memory", "restarts", "forward and backward passes",
        "use, full waves", "use, all", "parameters differ by",
    )  # fmt: skip
    return table(heads, rows)


def _way(ran: dict[str, Any]) -> list[object]:
    if "refused" in ran:
        return ["refused by TRL", "-", "-", "-", "-", "-", "-"]
    full, apart = ran.get("mean_use_of_full_waves_percent"), ran.get("largest_parameter_difference")
    return [
        ran["batch_trained_on"],
        ran["out_of_memory"],
        ran["restarts"],
        ran["passes"],
        "-" if full is None else f"{full:.1f} %",
        f"{ran['mean_use_percent']:.1f} %",
        "another batch" if apart is None else f"{apart:.1e}",
    ]


def main(arguments: Sequence[str]) -> int:
    document = DOCUMENT.read_text()
    current = with_tables(document, tables())
    if "--check" in arguments:
        print("current" if current == document else "stale: run python -m spec.any_trainer_figures")
        return 0 if current == document else 1
    write_text_atomically(DOCUMENT, current)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
