"""TRL's SFT, DPO and GRPO trainers in waves: the unsplit step's losses and gradients, on a third of its memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from adapters.hf_trainer import UnsupportedTrainerError, in_waves
from adapters.hf_trainer.known import GRPO_SHARES
from adapters.torch_memory import meter_for
from tests.adapters.hf_trainer.support import Make, assert_same_run, in_a_third, plainly
from tests.adapters.hf_trainer.trainers import dpo, grpo, sft

TOLERANCE = 1e-5

SFT: dict[str, Any] = {"per_device_train_batch_size": 12}
GRPO: dict[str, Any] = {"per_device_train_batch_size": 12, "max_completion_length": 16}

RUNS: dict[str, tuple[Make, dict[str, Any]]] = {
    "sft": (sft, SFT),
    "sft, accumulation": (sft, SFT | {"gradient_accumulation_steps": 2}),
    "sft, checkpointing": (sft, SFT | {"gradient_checkpointing": True}),
    "dpo": (dpo, SFT),
    "dpo, accumulation": (dpo, SFT | {"gradient_accumulation_steps": 2}),
    **{f"grpo, {loss}": (grpo, GRPO | {"loss_type": loss}) for loss in GRPO_SHARES if loss != "luspo"},
    "grpo, luspo": (grpo, GRPO | {"loss_type": "luspo", "importance_sampling_level": "sequence"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_in_waves_is_unsplit(name: str, tmp_path: Path) -> None:
    make, more = RUNS[name]
    whole = plainly(make, tmp_path, **more)
    ours = in_a_third(make, tmp_path, whole.peak_bytes, **more)
    assert_same_run(ours, whole, TOLERANCE)
    assert ours.raised == 0, "nothing ran out of memory"
    assert ours.waves > len(ours.results) >= 2


@pytest.mark.parametrize("make", [sft, dpo, grpo])
def test_a_device_smaller_than_its_budget_says_is_survived(make: Make, tmp_path: Path) -> None:
    more = {"per_device_train_batch_size": 12, "max_steps": 3}
    whole = plainly(make, tmp_path, **more)
    ours = in_a_third(make, tmp_path, whole.peak_bytes, claimed=4, **more)
    assert_same_run(ours, whole, TOLERANCE)
    assert ours.raised == sum(len(result.out_of_memory) for result in ours.results) > 0


def test_metrics_are_those_of_the_items_once(tmp_path: Path) -> None:
    """The two-item check and the waves that add nothing leave no trace in what TRL logs."""
    trainer = sft(tmp_path / "plain", **SFT)
    trainer.train()
    with meter_for("cpu") as meter:
        ours = sft(tmp_path / "waves", **SFT)
        in_waves(ours, meter=meter, memory_bytes=1 << 30)
        ours.train()
    tokens = [
        [entry["num_tokens"] for entry in each.state.log_history if "num_tokens" in entry] for each in (trainer, ours)
    ]
    assert tokens[0] == tokens[1]


def test_every_loss_type_of_this_trl_is_known() -> None:
    """One that adds up otherwise is found by the check of the first batch; this says that there is a new one."""
    from trl import GRPOConfig

    told = str(GRPOConfig.__dataclass_fields__["loss_type"].metadata.get("help", ""))
    named = set(re.findall(r"'(\w+)'(?: \(default\))?:", told))
    assert named == set(GRPO_SHARES)


def test_what_looks_across_the_batch_is_refused(tmp_path: Path) -> None:
    trainer = grpo(tmp_path, **GRPO, top_entropy_quantile=0.5)
    with meter_for("cpu") as meter, pytest.raises(UnsupportedTrainerError, match="top_entropy_quantile"):
        in_waves(trainer, meter=meter, memory_bytes=1 << 30)
