"""CrossHair on one harness, in a child process that is killed when it overruns."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from proofs.solver.decide import Verdict

START_S = 30.0
"""Importing and patching, before any condition is looked at, on a busy machine."""

PLUGIN = Path(__file__).with_name("crosshair_plugin.py")

_CONFIRMED = re.compile(r": info: Confirmed over all paths")
_UNDECIDED = re.compile(r": (?:info|warning): (?:Not confirmed|Unable to meet precondition)")


def check(target: str, per_condition_s: float) -> Verdict:
    """CrossHair on `module.function`: "confirmed" over all paths, "refuted", or "unknown" (with what it said)."""
    command = [sys.executable, "-m", "crosshair", "check", target]
    options = ["--analysis_kind=PEP316", "--report_all", f"--per_condition_timeout={per_condition_s}"]
    options += ["--extra_plugin", str(PLUGIN)]
    began = time.perf_counter()
    try:
        finished = subprocess.run(
            command + options, capture_output=True, text=True, timeout=per_condition_s + START_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Verdict("unknown", time.perf_counter() - began)
    seconds = time.perf_counter() - began
    if ": error:" in finished.stdout or finished.returncode == 1:
        return Verdict("refuted", seconds)
    lines = finished.stdout.splitlines()
    confirmed = [line for line in lines if _CONFIRMED.search(line)]
    undecided = [line for line in lines if _UNDECIDED.search(line)]
    return Verdict("confirmed" if confirmed and not undecided else "unknown", seconds)
