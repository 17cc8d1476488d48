"""The two-GPU script runs whole on gloo and simulated devices, and all its checks hold there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_script_runs_on_cpus(tmp_path: Path) -> None:
    out = tmp_path / "log.json"
    arguments = ["--device", "cpu", "--waves", "6", "--out", str(out)]
    command = [sys.executable, "-m", "benchmarks.h200.nccl_quorum", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    log = json.loads(out.read_text())
    assert log["failed_checks"] == []
    assert [len(rank["waves"]) for rank in log["ranks"]] == [6, 6]
