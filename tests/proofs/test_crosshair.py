"""The CrossHair harnesses: the kernel's contracts on CrossHair's own symbolic ints, all harnesses in one child.

Stated time: at most 30 s a condition and 600 s in all, for machines that do something else beside (about a minute on a
quiet core). A refutation fails; so does a harness that is not confirmed over all paths, unless
`registry.CROSSHAIR_UNDECIDED` names it, with its reason: of such a one only a counterexample fails.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from proofs import registry
from proofs.solver.crosshair import PLUGIN

PER_CONDITION_S = 30
TOTAL_S = 600
HARNESSES = list(registry.harnesses())
pytestmark = pytest.mark.timeout(TOTAL_S + 60)  # the first test waits for the child
CONFIRMED, UNDECIDED = "info: Confirmed over all paths.", "info: Not confirmed."


@pytest.fixture(scope="module")
def said() -> dict[tuple[str, int], str]:
    """What CrossHair said, by file and line of the harness (its own line, or one inside it)."""
    modules = sorted({harness.module for harness in HARNESSES})
    options = ["--analysis_kind=PEP316", "--report_all", f"--per_condition_timeout={PER_CONDITION_S}"]
    try:
        finished = subprocess.run(
            [sys.executable, "-m", "crosshair", "check", *modules, *options, "--extra_plugin", str(PLUGIN)],
            capture_output=True,
            text=True,
            timeout=TOTAL_S,
            check=False,
            cwd=registry.ROOT,
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"CrossHair took more than {TOTAL_S} s: {error.stdout!r}")
    lines = re.findall(r"^(.*?):(\d+): (.*)$", finished.stdout, re.MULTILINE)
    assert lines, finished.stderr
    return {(path.split("proofs/", 1)[-1], int(line)): text for path, line, text in lines}


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: f"{harness.law}-{harness.name}")
def test_harness_is_confirmed_over_all_paths(harness: registry.Harness, said: dict[tuple[str, int], str]) -> None:
    path = registry.path_of(harness.module).removeprefix("proofs/")
    verdicts = [text for (file, line), text in said.items() if file == path and harness.line <= line <= harness.last]
    allowed = {CONFIRMED, UNDECIDED} if harness.name in registry.CROSSHAIR_UNDECIDED else {CONFIRMED}
    assert len(verdicts) == 1 and set(verdicts) <= allowed, verdicts
