"""Makes each break in a copy of the source and asks the proofs about it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proofs.breaks.table import Break

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("pricing", "proofs", "tests", "spec", "pyproject.toml")
TIMEOUT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one break. `caught_by`: the first named item that turned red, or None. `verdict`: how it turned red:
    "refuted" (z3 has a counterexample), "unknown" (it no longer goes through), "fails" (a check, a test or an import).
    """

    name: str
    caught_by: str | None
    kind: str
    verdict: str
    seconds: float


def run(breaks: Sequence[Break]) -> Iterator[Result]:
    """Each break's result. Red means something only for items that are green without any break: see `unbroken`."""
    with tempfile.TemporaryDirectory() as folder:
        copy = _copied(Path(folder))
        for fault in breaks:
            path = copy / fault.path
            original = path.read_text()
            path.write_text(fault.made_in(original))
            began = time.perf_counter()
            caught_by, kind, verdict = _caught(fault, copy)
            path.write_text(original)
            yield Result(
                name=fault.name, caught_by=caught_by, kind=kind, verdict=verdict, seconds=time.perf_counter() - began
            )


def unbroken(breaks: Sequence[Break]) -> list[str]:
    """The items and tests named by `breaks` that are red on the shipped source as it is: there must be none."""
    items = list(dict.fromkeys(item for fault in breaks for item in fault.proofs))
    tests = list(dict.fromkeys(test for fault in breaks for test in fault.values))
    with tempfile.TemporaryDirectory() as folder:
        copy = _copied(Path(folder))
        red = [item for item in items if _proof(item, copy) is not None]
        return red + [test for test in tests if _value(test, copy) is not None]


def _copied(copy: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "evidence"))
        else:
            shutil.copy(source, copy / name)
    return copy


def _caught(fault: Break, copy: Path) -> tuple[str | None, str, str]:
    for item in fault.proofs:
        verdict = _proof(item, copy)
        if verdict is not None:
            return item, "proof", verdict
    for test in fault.values:
        verdict = _value(test, copy)
        if verdict is not None:
            return test, "value", verdict
    return None, "proof" if fault.proofs else "value", "green"


def _proof(item: str, folder: Path) -> str | None:
    """How an item of the proofs is red, or None. Out of time is an error of the run: a slow solver is no catch."""
    written = folder / "outcome.json"
    written.unlink(missing_ok=True)
    command = ["-m", "proofs", "--no-cvc5", "--no-crosshair", "--item", item, "--json", str(written)]
    if _returncode(command, folder) == 0:
        return None
    if not written.exists():
        return "fails"
    outcome = json.loads(written.read_text())["results"][0]
    return str(outcome["z3"]["verdict"]) if outcome.get("z3") else "fails"


def _value(test: str, folder: Path) -> str | None:
    return "fails" if _returncode(["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test], folder) else None


def _returncode(command: Sequence[str], folder: Path) -> int:
    return subprocess.run(
        [sys.executable, "-B", *command], cwd=folder, capture_output=True, timeout=TIMEOUT_S, check=False
    ).returncode
