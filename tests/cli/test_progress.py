"""Progress is shown to whoever watches a long command, and to nobody else."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from pricing.cli import progress
from pricing.cli.progress import Progress

TRACE = Path(__file__).parents[2] / "spec" / "evidence" / "h200" / "dense-1.jsonl"


def watched_by(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, environment: dict[str, str]) -> io.StringIO:
    told = io.StringIO()

    def console(*, stderr: bool) -> Console:
        assert stderr, "stdout is for results"
        return Console(file=told, force_terminal=terminal, width=100, _environ=environment)

    monkeypatch.setattr(progress, "console", console)
    return told


def work(seconds: float) -> None:
    with Progress("replaying", 40) as bar:
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            bar.advance()
            time.sleep(0.02)


@pytest.mark.parametrize("environment", [{"TERM": "xterm"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_a_long_command_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    told = watched_by(monkeypatch, terminal=True, environment=environment)
    work(0.4)
    assert "replaying" in told.getvalue() and "/40" in told.getvalue()
    assert ("\x1b[3" in told.getvalue()) is ("NO_COLOR" not in environment), "colours only where they are wanted"
    assert told.getvalue().endswith("\x1b[2K"), "it takes itself away"


def test_it_moves_while_no_step_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    told = watched_by(monkeypatch, terminal=True, environment={"TERM": "xterm"})
    with Progress("reading"):
        time.sleep(0.4)
    assert told.getvalue().count("reading") >= 2


def test_a_short_command_and_a_pipe_get_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    told = watched_by(monkeypatch, terminal=True, environment={"TERM": "xterm"})
    work(0.1)
    assert "replaying" not in told.getvalue()
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    told = watched_by(monkeypatch, terminal=False, environment={"TERM": "xterm"})
    work(0.3)
    assert told.getvalue() == ""


def test_an_error_takes_the_bar_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.01)
    told = watched_by(monkeypatch, terminal=True, environment={"TERM": "xterm"})
    with pytest.raises(ValueError, match="no such law"), Progress("reading"):
        time.sleep(0.1)
        raise ValueError("no such law")
    assert told.getvalue().endswith("\x1b[2K")


def test_a_bar_on_the_terminal_leaves_the_results_alone(tmp_path: Path) -> None:
    """stderr is a terminal, stdout a pipe: the JSON that comes through it is whole."""
    watcher, terminal = pty.openpty()
    code = (
        "import sys; from pricing.cli import progress; from pricing.cli.app import run; progress.QUIET_SECONDS = 0.0; "
        f"sys.argv = ['pricing', 'backtest', {str(TRACE)!r}, '--json']; sys.exit(run())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm"},
        timeout=120,
        check=False,
    )
    os.close(terminal)
    seen = os.read(watcher, 1 << 16)
    os.close(watcher)
    assert done.returncode == 0 and json.loads(done.stdout)["results"]
    assert b"replaying" in seen or b"reading" in seen or b", warm" in seen
