"""`python -m proofs`: prove, refute, confirm; print a table; write JSON. Exit code 1 on anything unexpected."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from proofs import registry
from proofs.runner import Opinion, Outcome, run_all

RESULTS = registry.ROOT / "proofs" / "results.json"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.workers > 1:
        return _by_workers(options, list(sys.argv[1:] if arguments is None else arguments))
    console = Console(width=None if sys.stdout.isatty() else 170)
    began = time.perf_counter()
    outcomes = []
    for outcome in run_all(
        quick=options.quick,
        second=not options.no_cvc5,
        harnesses=not options.no_crosshair,
        only=dict.fromkeys(options.only, True),
        items=frozenset(options.item),
        per_condition_s=options.per_condition * options.patience,
        patience=options.patience,
        share=options.share,
    ):
        outcomes.append(outcome)
        if not outcome.passed or options.verbose:
            console.print(f"{_said(outcome)}  {outcome.law} {outcome.name}", highlight=False)
    seconds = time.perf_counter() - began
    console.print(table(outcomes))
    console.print(summary(outcomes, seconds))
    target = options.json or (None if options.quick or options.only or options.item else RESULTS)
    if target is not None:
        Path(target).write_text(json.dumps(report(outcomes, seconds, options), indent=1) + "\n")
    return 0 if outcomes and all(outcome.passed for outcome in outcomes) else 1


def _by_workers(options: argparse.Namespace, arguments: list[str]) -> int:
    """The same run by several processes, each with its share of the registry; one result."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder) / f"{place}.json" for place in range(options.workers)]
        command = [sys.executable, "-m", "proofs", *arguments, "--workers", "1"]
        workers = [
            subprocess.Popen(
                [*command, "--share", f"{place}/{options.workers}", "--json", str(part)],
                start_new_session=True,  # some schedulers share a processor by session
            )
            for place, part in enumerate(parts)
        ]
        failed = [worker.wait() for worker in workers]
        written = [json.loads(part.read_text()) for part in parts if part.exists()]
    if len(written) < options.workers:
        return 1
    results = [result for part in written for result in part["results"]]
    order = {name: place for place, name in enumerate(registry.names())}
    results.sort(key=lambda result: order[result["kind"] == "crosshair", result["name"]])
    whole = {
        **written[0],
        "command": f"{written[0]['command']} --workers {options.workers}",
        "seconds": round(time.perf_counter() - began, 1),
        "all_as_expected": all(part["all_as_expected"] for part in written),
        "counts": dict(sum((Counter(part["counts"]) for part in written), Counter())),
        "obligations": sum(part["obligations"] for part in written),
        "results": results,
    }
    (Path(options.json) if options.json else RESULTS).write_text(json.dumps(whole, indent=1) + "\n")
    return max(failed)


def _share(text: str) -> tuple[int, int]:
    place, count = text.split("/")
    return int(place), int(count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proofs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the CI subset: z3 on all but slow theorems, every probe")
    parser.add_argument(
        "--only", action="append", default=[], metavar="LAW", help='one law, such as "INV-1"; repeatable'
    )
    parser.add_argument(
        "--item", action="append", default=[], metavar="NAME", help="one theorem, lemma, probe or check; repeatable"
    )
    parser.add_argument("--no-cvc5", action="store_true", help="without the second opinion")
    parser.add_argument("--no-crosshair", action="store_true", help="without the CrossHair harnesses")
    parser.add_argument("--per-condition", type=float, default=60.0, metavar="S", help="CrossHair's limit a condition")
    parser.add_argument("--patience", type=float, default=1.0, metavar="N", help="N times all limits: a busy machine")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="N processes side by side")
    parser.add_argument("--share", type=_share, default=(0, 1), metavar="K/N", help="what one of N workers does")
    parser.add_argument("--json", metavar="FILE", help="where the result goes (a whole run: proofs/results.json)")
    parser.add_argument("--verbose", action="store_true", help="a line as each item ends")
    return parser


def _said(outcome: Outcome) -> str:
    opinions = [outcome.z3, outcome.cvc5, outcome.crosshair]
    verdicts = ", ".join(opinion.verdict for opinion in opinions if opinion) or outcome.evidence
    mark = "ok" if outcome.passed else "UNEXPECTED"
    return f"{mark:10} {verdicts} in {outcome.seconds:.1f} s"


def table(outcomes: Iterable[Outcome]) -> Table:
    """One row an item: law, name, obligations, each opinion and its seconds, whether it is as expected."""
    made = Table(title="Proofs of the pricing laws", pad_edge=False)
    for column in ("law", "kind"):
        made.add_column(column, no_wrap=True)
    made.add_column("statement", overflow="fold", ratio=1)
    for column in ("obligations", "z3", "cvc5", "CrossHair", "as expected"):
        made.add_column(column, justify="right", no_wrap=True)
    for outcome in outcomes:
        made.add_row(
            outcome.law,
            outcome.kind,
            outcome.name.replace("_", " "),
            str(outcome.obligations or ""),
            _cell(outcome.z3) or (outcome.kind == "check" and ("holds" if outcome.passed else "fails")) or "",
            _cell(outcome.cvc5),
            _cell(outcome.crosshair),
            "yes" if outcome.passed else "[bold red]NO[/]",
        )
    return made


def _cell(opinion: Opinion | None) -> str:
    if opinion is None:
        return ""
    count = f" ({len(opinion.undecided)})" if opinion.undecided else ""
    return f"{opinion.verdict}{count} {opinion.seconds:.1f} s"


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    kinds = Counter(outcome.kind for outcome in outcomes)
    obligations = sum(outcome.obligations for outcome in outcomes if outcome.kind in ("theorem", "lemma"))
    unexpected = [outcome.name for outcome in outcomes if not outcome.passed]
    parts = ", ".join(f"{count} {kind}{'' if kind == 'crosshair' else 's'}" for kind, count in kinds.items())
    verdict = "all as expected" if not unexpected else f"{len(unexpected)} NOT as expected: {', '.join(unexpected)}"
    return f"{parts}; {obligations} obligations proven or asked; {seconds:.0f} s; {verdict}."


def report(outcomes: Sequence[Outcome], seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """The JSON result."""
    return {
        "command": "python -m proofs"
        + (" --quick" if options.quick else "")
        + (f" --patience {options.patience:g}" if options.patience != 1 else ""),
        "seconds": round(seconds, 1),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("z3-solver", "cvc5", "crosshair-tool")},
        },
        "all_as_expected": all(outcome.passed for outcome in outcomes),
        "counts": dict(Counter(outcome.kind for outcome in outcomes)),
        "obligations": sum(outcome.obligations for outcome in outcomes if outcome.kind in ("theorem", "lemma")),
        "results": [_rounded(outcome.as_json()) for outcome in outcomes],
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
