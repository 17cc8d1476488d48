"""The page about any trainer says what its runs say, and the runs say what the page claims in words."""

from __future__ import annotations

import json

import pytest

from spec import any_trainer_figures


def test_the_page_says_what_the_runs_say() -> None:
    assert any_trainer_figures.main(["--check"]) == 0


@pytest.mark.parametrize("shape", any_trainer_figures.SHAPES)
def test_a_run_kept_its_promises(shape: str) -> None:
    run = json.loads((any_trainer_figures.EVIDENCE / f"{shape}.json").read_text())
    assert run["steps"] == 200 and run["safety"] == "51/50" and 3 * run["device_bytes"] <= run["needed_bytes"]
    assert run["out_of_memory"] == 0 and len(run["waves"]) == run["waves_run"]
    assert run["mean_use_of_full_waves_percent"] >= 85
    assert run["compared_steps"] == 10 and run["largest_gradient_difference"] <= 1e-5


def test_trainers_in_waves_neither_fail_nor_change_their_batch() -> None:
    runs = json.loads((any_trainer_figures.EVIDENCE / "trainers.json").read_text())
    assert [run["trainer"] for run in runs] == ["transformers.Trainer", "SFTTrainer", "DPOTrainer", "GRPOTrainer"]
    for run in runs:
        waves = run["in_waves"]
        assert (waves["out_of_memory"], waves["restarts"], waves["batch_trained_on"]) == (0, 0, run["batch"])
        assert waves["largest_parameter_difference"] <= 1e-5
        assert 3 * run["device_bytes"] <= run["needed_bytes"]
