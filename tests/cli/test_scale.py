"""`pricing scale` and the test of assumption SCALE behind it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from pricing.cli.scale import command
from pricing.evidence.scale import scale_test
from pricing.evidence.trace import TraceWave, read_trace
from tests.making import a_wave

EVIDENCE = Path(__file__).resolve().parents[2] / "spec" / "evidence" / "h200"
TRACES = sorted(path for folder in ("h200", "h200-own") for path in (EVIDENCE.parent / folder).glob("*.jsonl"))


def recorded(index: int, rows: int, peak_bytes: int, logical_rows: int | None = None) -> TraceWave:
    return TraceWave(
        index=index,
        wave=a_wave(rows, logical_rows),
        peak_bytes=peak_bytes,
        forward_peak_bytes=peak_bytes // 2,
        retained_bytes=0,
    )


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.output


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_on_every_trace_the_worst_miss_is_below_a_tenth_of_a_percent(path: Path) -> None:
    result = scale_test(read_trace(path))
    assert result.scaling is not None and result.charged is not None
    assert result.scaling.share < Fraction(1, 1_000)
    assert result.charged.share < Fraction(1, 1_000)
    assert result.most_lifted < Fraction(1, 100)


def test_a_fall_and_a_growth_faster_than_rows_are_both_misses_by_their_share() -> None:
    seed = recorded(0, 10, 5)
    fall = scale_test([seed, recorded(1, 100, 2_000_000), recorded(2, 200, 1_000_000)])
    assert fall.charged is not None
    assert (fall.charged.share, fall.charged.above, fall.charged.bounded_by) == (Fraction(1), 1, 2)
    growth = scale_test([seed, recorded(1, 100, 1_000_000), recorded(2, 200, 3_000_000)])
    assert growth.charged is not None
    assert (growth.charged.share, growth.charged.above, growth.charged.bounded_by) == (Fraction(1, 2), 2, 1)


def test_the_seed_is_no_evidence_and_one_wave_has_nothing_to_miss() -> None:
    result = scale_test([recorded(0, 10, 10**12), recorded(1, 10, 5)])
    assert (result.scaling, result.charged, result.lifted_waves) == (None, None, 0)


def test_lifts_are_counted_from_the_wave_after_the_contradiction() -> None:
    waves = [
        recorded(0, 10, 5),
        recorded(1, 200, 1_000_000),
        recorded(2, 100, 2_000_000),  # above the bound of wave 1, before any lift
        recorded(3, 150, 1_000_000),  # priced by a lifted bound
        recorded(4, 5_000, 20_000_000),  # nothing new is contradicted, but what is scaled up to it stays lifted
    ]
    result = scale_test(waves)
    assert result.lifted_waves == 2
    assert result.raised_waves == 2
    assert result.most_lifted == 1


def test_the_command_prints_a_table_and_a_document_and_fails_above_a_limit() -> None:
    path = str(EVIDENCE / "moe-1.jsonl")
    code, text = run(path)
    assert code == 0
    assert "moe-1" in text and "+0.08" in text

    code, text = run(path, "--json", "--at-most", "0.2")
    assert code == 0
    (result,) = json.loads(text)["results"]
    assert result["charged"]["above"] == 4
    assert 0 < result["charged"]["worst_percent"] < 0.1

    assert run(path, "--at-most", "0.05")[0] == 1
