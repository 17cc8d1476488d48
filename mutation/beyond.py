"""Mutation beyond the law modules: a sample of one-token changes, each against the tests that are about its module.

    python -m mutation.beyond --minutes 30      goes on where the last run stopped; writes mutation/beyond.json
    python -m mutation.beyond --again NAME      one mutant again, survivor or not

Every one-token change of the modules in `TESTS` is listed (comparisons, arithmetic, `and` / `or`, min / max, True /
False, whole numbers) and shuffled with the committed seed. The first `SAMPLE` are run in that order, so a part of a run
is a sample too. A mutant is killed if a test fails, or if the tests take longer than five times what they take without
a change. It is made in a copy; the project is not written to but for the result.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "mutation" / "beyond.json"
SEED: Final = 20_261_202
SAMPLE: Final = 320
SLOWEST: Final = 5
COPIED: Final = (
    "pricing",
    "adapters",
    "proofs",
    "tests",
    "spec",
    "examples",
    "benchmarks",
    "pyproject.toml",
    "README.md",
)

_PLANNER: Final = ("tests/planner/test_conform_planner.py", "tests/regressions/test_planner_cases.py")
_RECORDS: Final = (
    "tests/records/test_recorder.py",
    "tests/records/test_what_if.py",
    "tests/records/test_round_trip.py",
)
_RANK: Final = (
    "tests/adapters/trainer_rank/test_head_numbers.py",
    "tests/adapters/trainer_rank/test_packed_execution.py",
)

TESTS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "pricing/planner/width_search.py": ("tests/planner/test_width_search.py", *_PLANNER),
        "pricing/planner/curve.py": ("tests/planner/test_curve.py", "tests/planner/test_width_search.py", *_PLANNER),
        "pricing/planner/prefix_tree.py": ("tests/planner/test_prefix_tree.py", "tests/planner/test_layout.py"),
        "pricing/planner/layout.py": ("tests/planner/test_layout.py", "tests/planner/test_prefix_tree.py"),
        "pricing/planner/split.py": ("tests/planner/test_split.py", *_PLANNER),
        "pricing/planner/budget.py": ("tests/planner/test_budget.py", "tests/adapters/torch_memory/test_budget.py"),
        "pricing/planner/quorum.py": ("tests/planner/test_quorum.py",),
        "pricing/planner/agreement.py": ("tests/planner/test_quorum.py",),
        "pricing/records/record.py": _RECORDS,
        "pricing/records/record_file.py": _RECORDS,
        "pricing/records/recorder.py": _RECORDS,
        "pricing/records/replay.py": _RECORDS,
        "pricing/records/spool.py": ("tests/records/test_spool.py",),
        "adapters/torch_memory/meter.py": ("tests/adapters/torch_memory",),
        "adapters/torch_memory/trust.py": ("tests/adapters/torch_memory",),
        "adapters/torch_memory/measurement.py": ("tests/adapters/torch_memory",),
        "adapters/trainer_rank/rank.py": ("tests/adapters/trainer_rank/test_waves.py",),
        "adapters/trainer_rank/execution.py": _RANK,
        "adapters/trainer_rank/rows.py": _RANK,
        "adapters/trainer_rank/head.py": _RANK,
    }
)
"""Module -> the tests that are about it, quickest first."""

SWAPPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "<": "<=",
        "<=": "<",
        ">": ">=",
        ">=": ">",
        "==": "!=",
        "!=": "==",
        "+": "-",
        "-": "+",
        "*": "+",
        "//": "*",
        "/": "*",
        "%": "+",
        "and": "or",
        "or": "and",
        "min": "max",
        "max": "min",
        "True": "False",
        "False": "True",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One token of `module` at `line` and `column` (from 1 and 0), changed from `before` to `after`."""

    module: str
    line: int
    column: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line}:{self.column} {self.before} -> {self.after}"

    def made_in(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        assert line[self.column :].startswith(self.before), self.name
        lines[self.line - 1] = line[: self.column] + self.after + line[self.column + len(self.before) :]
        return "".join(lines)


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Every one-token change of a module outside of annotations, imports, texts and signatures' markers."""
    places = _places(ast.parse(source))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line, column = token.start
        kind = places.get((line, column))
        after = SWAPPED.get(token.string)
        if token.type == tokenize.NUMBER and kind == "number" and token.string.replace("_", "").isdigit():
            after = str(int(token.string.replace("_", "")) + 1)
        elif token.type == tokenize.OP:
            after = after if _is_between(places, token.start) else None
        elif token.type == tokenize.NAME and token.string in ("and", "or"):
            pass
        elif not (token.type == tokenize.NAME and kind == "name"):
            after = None
        if after is not None:
            yield Mutant(module=module, line=line, column=column, before=token.string, after=after)


def _places(tree: ast.Module) -> dict[Any, Any]:
    """Where numbers, names and operators that may change stand: start of the first two, spans of the last."""
    found: dict[Any, Any] = {"spans": []}
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns", "decorator_list", "type_params"):
                pending += [
                    part for part in (value if isinstance(value, list) else [value]) if isinstance(part, ast.AST)
                ]
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
            found[node.lineno, node.col_offset] = "name" if isinstance(node.value, bool) else "number"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            found[node.func.lineno, node.func.col_offset] = "name"
        elif isinstance(node, ast.BinOp):
            found["spans"].append(_span(node.left, node.right))
        elif isinstance(node, ast.Compare):
            for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                found["spans"].append(_span(left, right))
    return found


def _span(left: ast.expr, right: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    assert left.end_lineno is not None and left.end_col_offset is not None, "parsed from source"
    return (left.end_lineno, left.end_col_offset), (right.lineno, right.col_offset)


def _is_between(places: Mapping[Any, Any], start: tuple[int, int]) -> bool:
    return any(first <= start < last for first, last in places["spans"])


def sampled() -> list[Mutant]:
    """The sample, in the order of the committed seed."""
    every = [mutant for module in TESTS for mutant in mutants_of(module, (ROOT / module).read_text(encoding="utf-8"))]
    return random.Random(SEED).sample(every, min(SAMPLE, len(every)))


class Copy:
    """A copy of the project in which one mutant at a time is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[Sequence[str], float] = {}
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, folder / name)

    def is_killed(self, mutant: Mutant) -> bool:
        tests = TESTS[mutant.module]
        if tests not in self.seconds:
            began = time.perf_counter()
            assert self._passes(tests, 1800), f"{tests} pass before anything is changed"
            self.seconds[tests] = time.perf_counter() - began
        path = self.folder / mutant.module
        original = path.read_text(encoding="utf-8")
        path.write_text(mutant.made_in(original), encoding="utf-8")
        try:
            return not self._passes(tests, SLOWEST * self.seconds[tests] + 10)
        finally:
            path.write_text(original, encoding="utf-8")

    def _passes(self, tests: Sequence[str], limit_s: float) -> bool:
        command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command, cwd=self.folder, capture_output=True, timeout=limit_s, env=environment, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


ARGUED: Final[Mapping[str, str]] = MappingProxyType({})
"""Survivor -> why no test can or should kill it."""


def report(ran: Mapping[str, bool], sample: Sequence[Mutant]) -> dict[str, Any]:
    """Counts, and every mutant that ran. `ran` holds those of the present source alone."""
    names = [mutant.name for mutant in sample]
    done = [name for name in names if name in ran]
    killed = [name for name in done if ran[name]]
    return {
        "command": "python -m mutation.beyond",
        "seed": SEED,
        "sample": len(names),
        "ran": len(done),
        "killed": len(killed),
        "score": round(len(killed) / len(done), 4) if done else None,
        "survivors": [{"mutant": name, "reason": ARGUED.get(name, "")} for name in done if not ran[name]],
        "results": {name: ran[name] for name in done},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutation.beyond", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop; what ran stays")
    parser.add_argument("--again", action="append", default=[], metavar="NAME", help="one mutant again; repeatable")
    parser.add_argument("--json", type=Path, default=TARGET, metavar="FILE", help="the result, read and written")
    options = parser.parse_args(arguments)
    sample, target = sampled(), options.json
    ran: dict[str, bool] = json.loads(target.read_text())["results"] if target.exists() else {}
    wanted = [
        mutant for mutant in sample if (mutant.name in options.again if options.again else mutant.name not in ran)
    ]
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for mutant in wanted:
            if time.monotonic() >= until:
                break
            ran[mutant.name] = copy.is_killed(mutant)
            target.write_text(json.dumps(report(ran, sample), indent=1) + "\n")
            print(f"{'killed  ' if ran[mutant.name] else 'SURVIVED'} {mutant.name}", flush=True)
    found = report(ran, sample)
    print(f"{found['killed']} of {found['ran']} killed; {found['sample'] - found['ran']} of the sample not run yet")
    return 0


if __name__ == "__main__":
    sys.exit(main())
