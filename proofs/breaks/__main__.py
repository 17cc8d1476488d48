"""`python -m proofs.breaks`: every break made, its items asked; a table on screen and results.json. Exit code 1 if one
is not noticed, or if an item is not as expected without any break."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from proofs.breaks.run import ROOT, Result, run, unbroken
from proofs.breaks.table import BREAKS

RESULTS = ROOT / "proofs" / "breaks" / "results.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs.breaks", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="one break; repeatable")
    parser.add_argument(
        "--json", metavar="FILE", help="where the result goes (a whole run: proofs/breaks/results.json)"
    )
    options = parser.parse_args(arguments)
    names = {fault.name for fault in BREAKS}
    if not set(options.only) <= names:
        parser.error(f"no break is called {', '.join(sorted(set(options.only) - names))}")
    breaks = [fault for fault in BREAKS if not options.only or fault.name in options.only]
    red = unbroken(breaks)
    print(f"without any break: {'all as expected' if not red else 'RED ' + ', '.join(red)}", flush=True)
    results = []
    for result in run(breaks):
        results.append(result)
        print(f"{result.seconds:6.1f} s  {_said(result)}  {result.name}", flush=True)
    caught = [result for result in results if result.caught_by is not None]
    print(f"{len(caught)} of {len(results)} breaks noticed")
    target = options.json or (None if options.only else RESULTS)
    if target is not None:
        Path(target).write_text(json.dumps(report(results, red), indent=1) + "\n")
    return 0 if len(caught) == len(results) and not red else 1


def _said(result: Result) -> str:
    return "NOT NOTICED" if result.caught_by is None else f"{result.kind}: {result.verdict} ({result.caught_by})"


def report(results: Sequence[Result], red: Sequence[str]) -> dict[str, object]:
    """The JSON result."""
    return {
        "command": "python -m proofs.breaks",
        "unexpected_without_any_break": list(red),
        "breaks": len(results),
        "noticed": sum(result.caught_by is not None for result in results),
        "noticed_by_a_proof": sum(result.caught_by is not None and result.kind == "proof" for result in results),
        "results": [
            {
                "name": result.name,
                "kind": result.kind,
                "caught_by": result.caught_by,
                "verdict": result.verdict,
                "seconds": round(result.seconds, 1),
            }
            for result in results
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
