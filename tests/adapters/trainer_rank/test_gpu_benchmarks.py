"""The GPU benchmarks run on a CPU too, in small; their traces are what the backtest reads."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.torch_memory.meter import close_process_meters
from benchmarks.h200 import binding_check, controlled_table, high_branch, micro_batches, overhead, record_trace, soak
from benchmarks.h200.waves import controlled, rollouts
from pricing.evidence.trace import read_trace


@pytest.fixture(autouse=True)
def _cpu_given_back() -> Iterator[None]:
    """A benchmark opens the process's meter of the CPU and ends with the process; here the process goes on."""
    yield
    close_process_meters()


SMALL = ["--small", "--device", "cpu", "--seconds", "60"]


def run(module: object, monkeypatch: pytest.MonkeyPatch, out: Path, *arguments: str) -> list[dict[str, object]]:
    monkeypatch.setattr("sys.argv", ["benchmark", *SMALL, "--out", str(out), *arguments])
    module.main()  # type: ignore[attr-defined]
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("scenario", ["gdn_moe", "saver"])
def test_recorded_traces_can_be_replayed(scenario: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = run(record_trace, monkeypatch, tmp_path / "trace.jsonl", "--scenario", scenario, "--waves", "2")
    trace = read_trace(tmp_path / "trace.jsonl")
    assert len(trace) == len(lines) == 2
    for line in lines:
        assert (
            0 < int(str(line["retained_bytes"])) <= int(str(line["forward_peak_bytes"])) <= int(str(line["peak_bytes"]))
        )


def test_the_tables_print_what_they_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(controlled_table, monkeypatch, tmp_path / "c.jsonl", "--family", "dense", "--repeats", "1")
    run(high_branch, monkeypatch, tmp_path / "h.jsonl", "--repeats", "1")
    run(overhead, monkeypatch, tmp_path / "o.jsonl", "--pairs", "1", "--warm-up", "1")
    checks = run(binding_check, monkeypatch, tmp_path / "b.jsonl")
    assert [line["check"] for line in checks] == ["at-binding", "skip-the-check-at-binding", "at-binding"]
    printed = capsys.readouterr().out
    assert "dense    flat to" in printed
    assert "an extra segment, G" in printed
    assert "metered and admitted" in printed


def test_a_soak_goes_on_where_it_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "soak.jsonl"
    for waves in (2, 3):
        lines = run(soak, monkeypatch, out, "--gib", "0.03", "--waves", str(waves))
        assert sum(line["event"] == "wave" for line in lines) == waves
    taken = [int(str(line["next_group"])) for line in lines]
    assert taken == sorted(set(taken))
    assert "waves 3, out of memory 0, refused 0" in capsys.readouterr().out


@pytest.mark.parametrize("shape", ["padded", "packed"])
def test_a_soak_without_shared_prefixes_runs_full_waves(
    shape: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = run(micro_batches, monkeypatch, tmp_path / "m.jsonl", "--shape", shape, "--gib", "0.003", "--waves", "14")
    waves = [line for line in lines if line["event"] == "wave"]
    assert len(waves) == 14 and all(line["complete"] for line in waves)
    assert {int(str(line["packed_rows"])) >= int(str(line["logical_rows"])) for line in waves} == {True}
    assert "waves 14, out of memory 0" in capsys.readouterr().out


@pytest.mark.parametrize("sharing", [1, 2, 4, 8])
def test_controlled_shapes_have_the_rows_and_nearly_the_sharing_they_are_named_after(sharing: int) -> None:
    shape = controlled(16_384, 512, sharing)
    logical_rows = sum((prompt + size) for prompt, sizes in shape.families for size in (sizes or (0,)))
    assert shape.packed_rows == 16_384
    assert logical_rows / 16_384 == pytest.approx(sharing, rel=0.1)


def test_rollouts_reach_the_rows_asked_for() -> None:
    draw = random.Random(0)
    for rows in (600, 8_192, 60_000):
        assert rows <= rollouts(draw, rows).packed_rows <= rows + 2_048 + 8 * 1_024


def test_an_oracle_gets_all_of_its_own_rows() -> None:
    """Waves that fill the budget exactly have a share of one; waves of half the rows, about a half."""

    def line(rows: int, available: int) -> dict[str, int]:
        return {
            "packed_rows": rows,
            "logical_rows": rows,
            "observed_bytes": 1_000 + 10 * rows,
            "available_bytes": available,
        }

    full = [line(rows, 1_000 + 10 * rows) for rows in (100, 200, 400)]
    assert soak.oracle_share(full, full) == pytest.approx(1.0)
    half = [line(rows, 1_000 + 20 * rows) for rows in (100, 200, 400)]
    assert soak.oracle_share(half, half) == pytest.approx(0.5)
