"""Makes each break in a copy of the source and asks the proofs about it."""

from __future__ import annotations

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
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one break. `caught_by`: the first named item that turned red, or nothing."""

    name: str
    caught_by: str | None
    kind: str
    seconds: float


def run(breaks: Sequence[Break]) -> Iterator[Result]:
    """Each break's result. The same items must be as expected without any break (checked by the tests' own run)."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "evidence"))
            else:
                shutil.copy(source, copy / name)
        for fault in breaks:
            path = copy / fault.path
            original = path.read_text()
            path.write_text(fault.made_in(original))
            began = time.perf_counter()
            caught_by, kind = _caught(fault, copy)
            path.write_text(original)
            yield Result(name=fault.name, caught_by=caught_by, kind=kind, seconds=time.perf_counter() - began)


def _caught(fault: Break, copy: Path) -> tuple[str | None, str]:
    for item in fault.proofs:
        if not _passes([sys.executable, "-B", "-m", "proofs", "--no-cvc5", "--no-crosshair", "--item", item], copy):
            return item, "proof"
    for test in fault.values:
        if not _passes([sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test], copy):
            return test, "value"
    return None, "proof" if fault.proofs else "value"


def _passes(command: Sequence[str], folder: Path) -> bool:
    """Whether the command ends well. Out of time is no catch: it would hide a break behind a slow solver."""
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=TIMEOUT_S, check=False)
    return done.returncode == 0
