"""Commands that cannot do what was meant say so: exit codes, folded refusals, narrow terminals, closed pipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pricing.cli.app import pricing

ROOT = Path(__file__).parents[2]
TRACE = str(ROOT / "spec/evidence/h200/dense-1.jsonl")
ITEMS = str(ROOT / "examples/rollouts.jsonl")


def run(*arguments: str, columns: int = 120) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(pricing, arguments)


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = str(tmp_path / "profile.json")
    assert run("learn", TRACE, "-o", path).exit_code == 0
    return path


@pytest.mark.parametrize("budget", ["12", "1KiB", "1MiB"])
@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_plan_that_refuses_items_exits_1_and_folds_them(profile: str, budget: str, json: tuple[str, ...]) -> None:
    result = run("plan", ITEMS, "--profile", profile, "--budget", budget, *json)

    assert result.exit_code == 1
    assert json or (len(result.stdout.splitlines()) < 100 and "And 383 more refused" in result.stdout)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_plan_keeps_number_price_and_binding_term(profile: str, columns: int) -> None:
    result = run("plan", ITEMS, "--profile", profile, "--budget", "12GiB", columns=columns)

    assert result.exit_code == 1 and "15 waves, 2 items refused, of 386 items" in result.stdout
    lines = result.stdout.splitlines()
    assert all(len(line) <= columns for line in lines)
    waves = [line for line in lines if line.startswith("│") and " run " in line]
    assert len(waves) == 15 and all("GiB" in line and "…" not in line for line in waves)
    assert all(line.split("│")[-2].strip() for line in waves), "the binding term"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_backtest_keeps_its_columns(columns: int) -> None:
    result = run("backtest", TRACE, columns=columns)

    assert result.exit_code == 0 and "…" not in result.stdout and "frontier" in result.stdout
    assert all(len(line) <= columns for line in result.stdout.splitlines())


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_backtest_that_scores_nothing_exits_1(json: tuple[str, ...]) -> None:
    result = run("backtest", TRACE, "--skip", "100", *json)

    assert result.exit_code == 1 and "no wave was scored" in result.stderr


def test_a_price_without_profile_is_cold_and_not_0_bytes() -> None:
    result = run("price", "--packed-rows", "100", "--logical-rows", "200")

    assert result.exit_code == 0 and "Cold: no price" in result.stdout and "0 bytes" not in result.stdout


@pytest.mark.parametrize("mode", ["weird", "ful", "Full/uniform/1", "weird/uniform/1"])
def test_an_unknown_recompute_mode_is_bad_input(mode: str) -> None:
    assert run("price", "--packed-rows", "1", "--logical-rows", "2", "--recompute", mode).exit_code == 2
    assert run("plan", ITEMS, "--budget", "1GiB", "--recompute", mode).exit_code == 2


def test_packed_rows_above_logical_ones_are_padding_or_a_mistake() -> None:
    assert run("price", "--packed-rows", "1024", "--logical-rows", "1000").exit_code == 0
    assert run("price", "--packed-rows", "109065", "--logical-rows", "16205").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("plan", "--help"),
        ("plan", ITEMS, "--profile", "PROFILE", "--budget", "12GiB"),
        ("plan", ITEMS, "--profile", "PROFILE", "--budget", "12GiB", "--json"),
        ("backtest", TRACE),
    ],
    ids=lambda words: " ".join(word for word in words if "/" not in word),
)
def test_a_closed_pipe_is_no_error(words: tuple[str, ...], profile: str) -> None:
    """Such as `pricing plan ... | head`: the reader has what it wanted."""
    command = [sys.executable, "-m", "pricing.cli", *(profile if word == "PROFILE" else word for word in words)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 0
