"""The short form of `benchmarks.any_trainer.run_sft` (its 200 steps are in spec/evidence/any-trainer)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.any_trainer import run_sft
from benchmarks.any_trainer.sft import LENGTHS, lengths, long_tailed


@pytest.mark.parametrize("shape", ["padded", "packed"])
def test_a_third_of_the_memory_is_enough_and_well_used(shape: str, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    run_sft.main(
        [
            "--shape",
            shape,
            "--steps",
            "6",
            "--batch",
            "128",
            "--shorten",
            "8",
            "--compare-every",
            "3",
            "--out",
            str(out),
        ]
    )
    figures = json.loads(out.read_text())
    assert figures["device_bytes"] * 3 <= figures["needed_bytes"]
    assert figures["out_of_memory"] == 0 and figures["waves_run"] > 3 * figures["steps"]
    assert figures["mean_use_of_full_waves_percent"] >= 85
    assert figures["compared_steps"] == 2 and figures["largest_gradient_difference"] <= 1e-5


def test_the_committed_lengths_are_those_of_the_generator() -> None:
    known = lengths()
    assert known == long_tailed(len(known)) and len(known) >= 200 * 64, LENGTHS
    assert min(known) == 64 and max(known) == 4_096
    ordered = sorted(known)
    assert ordered[len(ordered) // 2] < sum(known) / len(known) < ordered[int(0.9 * len(ordered))], "a long tail"
