"""Mutation beyond the law modules: a sample of one-token changes, each against the tests that are about its module.

    python -m mutation.beyond --minutes 30      goes on where the last run stopped; writes mutation/beyond.json
    python -m mutation.beyond --again NAME      one mutant again, survivor or not; ALL: every survivor, then on
    python -m mutation.beyond --move            to the commit that is checked out: what was killed in modules that read
                                                the same there stays so; all else runs again

Every one-token change of the modules in `TESTS` is listed (comparisons, `is`, `in`, `not`, arithmetic, `and` / `or`,
min / max, True / False, whole numbers) and put in the order of a hash of the committed seed and its name. A name is the
text of the line and where in it the change is, so most of a sample stays when the source moves. The first `SAMPLE` are
run in that order: a part of a run is a sample too. A mutant is killed if a test fails, or if the tests take longer than
five times what they take without a change. All are of the source of one commit, which the result names: mutants are
made in a copy of it, with the tests of this checkout; no checkout is written to but for the result. Tests run in forks
of a process that has imported the libraries once. Without a result (delete the file) a run begins anew, at the commit
that is checked out.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "mutation" / "beyond.json"
SEED: Final = 20_261_202
SAMPLE: Final = 320
SLOWEST: Final = 5
REQUIRED_SCORE: Final = 0.9
PRELOADED: Final = ("torch", "numpy", "hypothesis.extra.numpy")
EXAMPLES: Final = "mutation"
"""Hypothesis profile: few examples. What few examples find, many find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """The tests that are about a module: the quick ones first; the slower ones only what survives those."""

    quick: Sequence[str]
    slower: Sequence[str] = ()


_LAYOUT: Final = Tests(
    quick=("tests/planner/test_boundaries.py", "tests/planner/test_prefix_tree.py", "tests/planner/test_layout.py"),
    slower=("tests/planner/test_curve.py", "tests/planner/test_no_sharing.py"),
)
_PLANNER: Final = Tests(
    quick=(
        "tests/planner/test_boundaries.py",
        "tests/planner/test_conform_planner.py",
        "tests/regressions/test_planner_cases.py",
        "tests/planner/test_budget.py",
        "tests/planner/test_quorum.py",
        "tests/planner/test_curve.py",
        "tests/planner/test_split.py",
    ),
    slower=(
        "tests/planner/test_no_sharing.py",
        "tests/planner/test_many_mixes.py",
        "tests/cli/test_plan.py",
        "tests/records/test_reach.py",
    ),
)
_SEARCH: Final = Tests(quick=_PLANNER.quick, slower=("tests/planner/test_width_search.py",))
_RECORDS: Final = Tests(
    quick=(
        "tests/records/test_boundaries.py",
        "tests/records/test_recorder.py",
        "tests/records/test_what_if.py",
        "tests/regressions/test_record_cases.py",
        "tests/cli/test_replay.py",
    ),
    slower=("tests/records/test_reach.py", "tests/records/test_reader_fuzz.py", "tests/records/test_round_trip.py"),
)
_METER: Final = Tests(
    quick=(
        "tests/adapters/torch_memory/test_boundaries.py",
        "tests/adapters/torch_memory/test_outputs.py",
        "tests/regressions/test_meter_cases.py",
        "tests/adapters/torch_memory/test_meter.py",
        "tests/adapters/torch_memory/test_out_of_memory.py",
    ),
    slower=(
        "tests/adapters/torch_memory/test_contract.py",
        "tests/adapters/torch_memory/test_footprints.py",
        "tests/adapters/torch_memory/test_backward_watch.py",
        "tests/adapters/torch_memory/test_simulated_allocator.py",
    ),
)
_BUDGET: Final = Tests(
    quick=(
        "tests/adapters/torch_memory/test_boundaries.py",
        "tests/planner/test_budget.py",
        "tests/adapters/torch_memory/test_budget.py",
    ),
    slower=(
        "tests/planner/test_boundaries.py",
        "tests/regressions/test_meter_cases.py",
        "tests/adapters/torch_memory/test_simulated_allocator.py",
    ),
)
_LOOP: Final = Tests(
    quick=("tests/adapters/trainer_rank/test_gradient_keeper.py", "tests/adapters/trainer_rank/test_boundaries.py"),
    slower=(
        "tests/adapters/trainer_rank/test_records.py",
        "tests/adapters/trainer_rank/test_survival.py",
        "tests/adapters/trainer_rank/test_waves.py",
    ),
)
_KEPT: Final = Tests(
    quick=("tests/adapters/trainer_rank/test_gradient_keeper.py", "tests/adapters/trainer_rank/test_profile_store.py"),
    slower=("tests/adapters/trainer_rank/test_boundaries.py", "tests/adapters/trainer_rank/test_survival.py"),
)
_EXECUTION: Final = Tests(
    quick=("tests/adapters/trainer_rank/test_rows.py", "tests/adapters/trainer_rank/test_head_numbers.py"),
    slower=(
        "tests/adapters/trainer_rank/test_packed_execution.py",
        "tests/adapters/trainer_rank/test_boundaries.py",
        "tests/adapters/trainer_rank/test_requests.py",
    ),
)
_SPOOL: Final = Tests(quick=("tests/records/test_boundaries.py",), slower=("tests/records/test_spool.py",))
_QUORUM: Final = Tests(quick=("tests/planner/test_quorum.py",), slower=("tests/planner/test_boundaries.py",))
_MOST_ROWS: Final = Tests(
    quick=("tests/planner/test_boundaries.py", "tests/planner/test_most_rows.py"), slower=("tests/cli/test_budget.py",)
)

TESTS: Final[Mapping[str, Tests]] = MappingProxyType(
    {
        "pricing/planner/width_search.py": _SEARCH,
        "pricing/planner/curve.py": _SEARCH,
        "pricing/planner/judge.py": _SEARCH,
        "pricing/planner/plan.py": _PLANNER,
        "pricing/planner/batch.py": _PLANNER,
        "pricing/planner/refusal.py": _PLANNER,
        "pricing/planner/setting.py": _PLANNER,
        "pricing/planner/rules.py": _PLANNER,
        "pricing/planner/wave_plan.py": _PLANNER,
        "pricing/planner/prefix_tree.py": _LAYOUT,
        "pricing/planner/layout.py": _LAYOUT,
        "pricing/planner/split.py": _PLANNER,
        "pricing/planner/most_rows.py": _MOST_ROWS,
        "pricing/planner/model_needs.py": _MOST_ROWS,
        "pricing/planner/budget.py": _BUDGET,
        "pricing/planner/quorum.py": _QUORUM,
        "pricing/planner/agreement.py": _QUORUM,
        "pricing/records/record.py": _RECORDS,
        "pricing/records/record_file.py": _RECORDS,
        "pricing/records/recorder.py": _RECORDS,
        "pricing/records/replay.py": _RECORDS,
        "pricing/records/write_down.py": _RECORDS,
        "pricing/records/spool.py": _SPOOL,
        "adapters/torch_memory/meter.py": _METER,
        "adapters/torch_memory/trust.py": _METER,
        "adapters/torch_memory/measurement.py": _METER,
        "adapters/torch_memory/budget.py": _BUDGET,
        "adapters/torch_memory/out_of_memory.py": _METER,
        "adapters/wave_loop/loop.py": _LOOP,
        "adapters/wave_loop/gradients.py": _LOOP,
        "adapters/wave_loop/failure.py": _KEPT,
        "adapters/wave_loop/profile_store.py": _KEPT,
        "adapters/trainer_rank/rank.py": _LOOP,
        "adapters/trainer_rank/execution.py": _EXECUTION,
        "adapters/trainer_rank/rows.py": _EXECUTION,
        "adapters/trainer_rank/head.py": _EXECUTION,
    }
)
"""Module -> the tests that are about it."""

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
        "is": "is not",
        "in": "not in",
        "not": "",
        "min": "max",
        "max": "min",
        "True": "False",
        "False": "True",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One token of `module` at `line` and `column` (from 1 and 0), changed from `before` to `after`.

    text: the line, without the `indent` before it. which: how many lines before it in the module read the same.
    """

    module: str
    line: int
    column: int
    before: str
    after: str
    indent: int
    text: str
    which: int

    @property
    def name(self) -> str:
        """Of what the line says, not of where it stands: `module `line` (column in it): before -> after`."""
        again = f" #{self.which + 1}" if self.which else ""
        return f"{self.module} `{self.text}`{again} ({self.column - self.indent}): {self.before} -> {self.after}"

    @property
    def rank(self) -> str:
        """Its place in the order of the committed seed."""
        return hashlib.sha256(f"{SEED} {self.name}".encode()).hexdigest()

    def made_in(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        assert line[self.column :].startswith(self.before), self.name
        lines[self.line - 1] = line[: self.column] + self.after + line[self.column + len(self.before) :]
        return "".join(lines)


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """Every one-token change of a module outside of annotations, imports, texts and signatures' markers."""
    places, lines = _places(ast.parse(source)), source.splitlines()
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, following in pairwise(tokens):
        line, column = token.start
        kind = places.get((line, column))
        after = SWAPPED.get(token.string)
        if token.type == tokenize.NUMBER and kind == "number" and token.string.replace("_", "").isdigit():
            after = str(int(token.string.replace("_", "")) + 1)
        elif token.type == tokenize.OP:
            after = after if _is_between(places, token.start) else None
        elif token.type == tokenize.NAME and token.string in ("and", "or", "not"):
            pass
        elif token.type == tokenize.NAME and token.string in ("is", "in"):
            # Of `is not` and `not in` the `not` is taken away; the other word stays.
            alone = following.string != "not" and not _follows_not(source, token.start)
            after = after if alone and _is_between(places, token.start) else None
        elif not (token.type == tokenize.NAME and kind == "name"):
            after = None
        if after is not None:
            text = lines[line - 1].strip()
            yield Mutant(
                module=module,
                line=line,
                column=column,
                before=token.string,
                after=after,
                indent=len(lines[line - 1]) - len(lines[line - 1].lstrip()),
                text=text,
                which=sum(earlier.strip() == text for earlier in lines[: line - 1]),
            )


def _follows_not(source: str, start: tuple[int, int]) -> bool:
    return source.splitlines()[start[0] - 1][: start[1]].rstrip().endswith("not")


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


def sampled(root: Path) -> list[Mutant]:
    """The sample of the source under `root`, in the order of the committed seed."""
    every = [mutant for module in TESTS for mutant in mutants_of(module, (root / module).read_text(encoding="utf-8"))]
    return sorted(every, key=lambda mutant: mutant.rank)[:SAMPLE]


def head() -> str:
    """The commit that is checked out."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def killed_and_unchanged(ran: Mapping[str, bool], commit: str) -> Iterator[str]:
    """Mutants that were killed at `commit` in modules that read the same in the commit that is checked out."""
    changed = subprocess.run(
        ["git", "diff", "--name-only", commit, "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return (name for name, killed in ran.items() if killed and name.split(" ", 1)[0] not in changed)


class Copy:
    """A copy of one commit, with the tests of this checkout, in which one mutant at a time is made."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.folder = folder
        self.seconds: dict[Sequence[str], float] = {}
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
        shutil.rmtree(folder / "tests")
        shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))

    def is_killed(self, mutant: Mutant, tests: Sequence[str]) -> bool:
        if tests not in self.seconds:
            began = time.perf_counter()
            assert self._passes(tests, 1800), f"{tests} pass before anything is changed"
            self.seconds[tests] = time.perf_counter() - began
        path = self.folder / mutant.module
        original = path.read_text(encoding="utf-8")
        path.write_text(mutant.made_in(original), encoding="utf-8")
        try:
            return not self._passes(tests, SLOWEST * self.seconds[tests] + 20)
        finally:
            path.write_text(original, encoding="utf-8")

    def _passes(self, tests: Sequence[str], limit_s: float) -> bool:
        child = os.fork()
        if child == 0:
            self._run(tests)
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False

    def _run(self, tests: Sequence[str]) -> NoReturn:
        """Run the tests in this process, a fork, and end it."""
        os.setpgid(0, 0)
        os.chdir(self.folder)
        sys.path[0] = str(self.folder)
        os.environ |= {"PYTHONPATH": str(self.folder), "HYPOTHESIS_PROFILE": EXAMPLES}
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        code = 1
        try:
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(code)


_LENGTHS: Final = "both are of one length by construction; `strict` only says so"
_FIRST: Final = "where a search begins: what is below is found not to do"
_SENTINEL: Final = "stands for none; every number that no figure can have says the same"

ARGUED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "adapters/trainer_rank/head.py `return list(zip(torch.split(wanted, HEAD_CHUNK_ROWS), "
        "plan.chunk_ends.tolist(), strict=True))` (87): True -> False": _LENGTHS,
        "adapters/wave_loop/gradients.py `for value, copy in zip(self._parameters, copies, strict=True)` (56): "
        "True -> False": _LENGTHS,
        "adapters/wave_loop/gradients.py `for value, kept in zip(self._parameters, aside, strict=True):` (55): "
        "True -> False": _LENGTHS,
        "pricing/records/replay.py `for at, pair in enumerate(zip(recorded, replayed, strict=True)):` (57): "
        "True -> False": _LENGTHS,
        "adapters/trainer_rank/head.py `nothing = hidden_PH[:0, :1].to(exact).expand(0, k)` (21): "
        "0 -> 1": "one row is expanded to none as no row is",
        "adapters/trainer_rank/rows.py `own = add(branch, len(prompt), root) if len(branch) else prompt_rows[:0]` "
        "(70): 0 -> 1": "read only where the branch has rows",
        "adapters/trainer_rank/execution.py `def nobody_asks(size_bytes: int, *, copied_bytes: int = 0) -> None:` "
        "(56): 0 -> 1": "it looks at none of its arguments",
        "adapters/wave_loop/loop.py `if most_bytes is not None and budget.available_bytes > most_bytes:` (53): "
        "> -> >=": "where both are the same nothing is taken off",
        "pricing/records/spool.py `text = os.pread(lock, 32, 0).strip()` (22): "
        "32 -> 33": "the file has 21 bytes; a longer number is above the most either way",
        "pricing/records/spool.py `if path.stat().st_size + size_bytes <= self.max_bytes // (4 * MOST_WRITERS):` "
        "(58): 4 -> 5": "a shortcut: the share is asked for right behind it",
        "pricing/records/spool.py `if now >= self._paused_until:` (7): "
        ">= -> >": "the very nanosecond in which a pause ends",
        "pricing/planner/prefix_tree.py `if stop_index + 1 < len(stops):` (14): "
        "+ -> -": "what is pushed too much has no stop left and is passed over when it is popped",
        "pricing/planner/prefix_tree.py `node_at: dict[tuple[int, int], int] = {(ROOT, 0): ROOT}` (46): "
        "0 -> 1": "rows of no tokens are sent to the root without a look; the entry is read by none",
        "pricing/planner/prefix_tree.py `return ROOT, 0` (13): "
        "0 -> 1": "of the first row, beside the empty one: no depth is beyond its end",
        "pricing/planner/prefix_tree.py `self._tail_start: list[int] = [0]` (31): "
        "0 -> 1": "where the root's own tail starts is asked by none",
        "pricing/planner/split.py `low = max((batch.lengths[request] for request in ordered if "
        "batch.is_active(request)), default=0)` (6): max -> min": _FIRST,
        "pricing/planner/split.py `low = max((batch.lengths[request] for request in ordered if "
        "batch.is_active(request)), default=0)` (95): 0 -> 1": _FIRST,
        "pricing/planner/split.py `self._retained_of_least = [0, *accumulate(least)]` (27): "
        "0 -> 1": "what no child retains: read for a rung of one child, and rungs begin with two",
        "pricing/planner/curve.py `self._seen = (-1, -1, False)` (15): 1 -> 2": _SENTINEL,
        "pricing/planner/batch.py `and len(shape) == 1` (15): "
        "== -> !=": "a shortcut: what is not plain is asked the long way, with the same answer",
        "pricing/planner/batch.py `self.parents: list[int] = [-1]` (28): 1 -> 2": "the root's parent is asked by none",
        "pricing/planner/judge.py `forecast_fits=tried.wave.forecast_bytes == 0` (43): "
        "0 -> 1": "without a forecast the other side asks what a probe is asked anyway",
        "pricing/planner/refusal.py `saved_bytes = max(0, self.price.required_bytes - unpadded_bytes)` (18): "
        "0 -> 1": "it is said in GiB of two digits",
        "pricing/planner/judge.py `best, best_bytes = (signature.shares, Profile()), -1` (51): 1 -> 2": _SENTINEL,
    }
)
"""Survivor -> why no test can or should kill it."""


def report(commit: str, ran: Mapping[str, bool], thorough: Collection[str], sample: Sequence[Mutant]) -> dict[str, Any]:
    """Counts, by module too, and every mutant that ran. `thorough`: those that the slower tests ran on as well."""
    names = [mutant.name for mutant in sample]
    done = [name for name in names if name in ran]
    killed = [name for name in done if ran[name]]
    modules = Counter(name.split(" ", 1)[0] for name in done)
    deaths = Counter(name.split(" ", 1)[0] for name in killed)
    return {
        "command": "python -m mutation.beyond",
        "commit": commit,
        "seed": SEED,
        "sample": len(names),
        "ran": len(done),
        "killed": len(killed),
        "score": round(len(killed) / len(done), 4) if done else None,
        "modules": {module: f"{deaths[module]} of {count}" for module, count in sorted(modules.items())},
        "survivors": [{"mutant": name, "reason": ARGUED.get(name, "")} for name in done if not ran[name]],
        "also_by_slower_tests": [name for name in done if name in thorough],
        "results": {name: ran[name] for name in done},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutation.beyond", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop; what ran stays")
    parser.add_argument("--again", action="append", default=[], metavar="NAME", help="one mutant again; repeatable")
    parser.add_argument("--json", type=Path, default=TARGET, metavar="FILE", help="the result, read and written")
    parser.add_argument("--move", action="store_true", help="to the commit that is checked out; changed modules anew")
    options = parser.parse_args(arguments)
    target: Path = options.json
    known = json.loads(target.read_text()) if target.exists() else {}
    commit, ran = known.get("commit") or head(), dict(known.get("results", {}))
    thorough = set(known.get("also_by_slower_tests", ()))
    if options.move:
        commit, ran = head(), dict.fromkeys(killed_and_unchanged(ran, commit), True)
    again = [name for name, killed in ran.items() if not killed] if "ALL" in options.again else options.again
    thorough -= set(again)
    for library in PRELOADED:
        importlib.import_module(library)
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), commit)
        sample = sampled(copy.folder)

        def run(mutant: Mutant, tests: Sequence[str]) -> None:
            began = time.perf_counter()
            ran[mutant.name] = copy.is_killed(mutant, tests)
            target.write_text(json.dumps(report(commit, ran, thorough, sample), indent=1) + "\n")
            said = "killed  " if ran[mutant.name] else "SURVIVED"
            print(f"{said} {time.perf_counter() - began:5.1f} s {mutant.name}", flush=True)

        for mutant in sample:
            goes_on = not options.again or "ALL" in options.again
            if time.monotonic() < until and (mutant.name in again or (goes_on and mutant.name not in ran)):
                run(mutant, TESTS[mutant.module].quick)
        for mutant in sorted(sample, key=lambda mutant: mutant.name in ARGUED):  # these last
            slower = TESTS[mutant.module].slower
            if time.monotonic() < until and slower and ran.get(mutant.name) is False and mutant.name not in thorough:
                thorough.add(mutant.name)
                run(mutant, slower)
        found = report(commit, ran, thorough, sample)
    target.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['killed']} of {found['ran']} killed; {found['sample'] - found['ran']} of the sample not run yet")
    return 0


if __name__ == "__main__":
    sys.exit(main())
