"""`transformers.Trainer` in waves: the unsplit step's losses and gradients, on a device that holds a third of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.hf_trainer import UnslicableBatchError, UnsupportedTrainerError, WaveStep, in_waves
from adapters.hf_trainer.slices import BatchItems
from adapters.torch_distributed import DistributedQuorum
from adapters.torch_memory import meter_for
from tests.adapters.hf_trainer.support import assert_same_run, in_a_third, plainly, trained
from tests.adapters.hf_trainer.trainers import plain
from tests.adapters.torch_distributed.ranks import run_ranks


def lora(folder: Path, **more: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    trainer: Any = plain(folder, **more)
    torch.manual_seed(1)
    adapted = get_peft_model(trainer.model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0))
    return type(trainer)(
        model=adapted,
        args=trainer.args,
        train_dataset=trainer.train_dataset,
        data_collator=trainer.data_collator,
    )


KINDS: dict[str, tuple[Any, dict[str, Any], float]] = {
    "plain": (plain, {}, 1e-5),
    "accumulation": (plain, {"gradient_accumulation_steps": 2}, 1e-5),
    "checkpointing": (plain, {"gradient_checkpointing": True}, 1e-5),
    "lora": (lora, {}, 1e-5),
    "bf16": (plain, {"bf16": True}, 2e-3),
    "clipping": (plain, {"max_grad_norm": 0.05}, 1e-5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_trainer_in_waves_is_the_trainer_unsplit(kind: str, tmp_path: Path) -> None:
    make, more, tolerance = KINDS[kind]
    more = {"per_device_train_batch_size": 12, "max_steps": 3} | more
    whole = plainly(make, tmp_path, **more)
    ours = in_a_third(make, tmp_path, whole.peak_bytes, **more)
    assert_same_run(ours, whole, tolerance)
    assert ours.raised == 0, "nothing ran out of memory"
    assert ours.waves > len(ours.results) == 3 * more.get("gradient_accumulation_steps", 1)
    for result in ours.results:
        assert sorted(item for wave in result.waves for item in wave.items) == list(range(12))


def test_a_trainer_survives_a_device_smaller_than_its_budget_says(tmp_path: Path) -> None:
    more = {"per_device_train_batch_size": 12, "max_steps": 4}
    whole = plainly(plain, tmp_path, **more)
    ours = in_a_third(plain, tmp_path, whole.peak_bytes, claimed=4, **more)
    assert_same_run(ours, whole)
    assert ours.raised == sum(len(result.out_of_memory) for result in ours.results) > 0


def test_evaluation_and_undoing_leave_the_trainer_its_own(tmp_path: Path) -> None:
    trainer = plain(tmp_path, eval_strategy="no")
    trainer.eval_dataset = trainer.train_dataset
    with meter_for("cpu") as meter:
        before = trainer.evaluate()["eval_loss"]
        waves = in_waves(trainer, meter=meter, memory_bytes=1 << 28)
        assert trainer.evaluate()["eval_loss"] == before
        assert waves.runner.results == []  # type: ignore[attr-defined]
        waves.undo()
    assert "compute_loss" not in vars(trainer)


# What cannot run as waves ---------------------------------------------------------------------------------------------


def a_batch(**more: Any) -> dict[str, Any]:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]])
    return {"input_ids": torch.arange(12).view(3, 4), "attention_mask": mask, "labels": mask} | more


def test_a_batch_is_cut_along_its_items_and_to_the_longest_of_them() -> None:
    items = BatchItems.of(a_batch(weights=torch.tensor([1.0, 2.0, 3.0]), names=["a", "b", "c"], scale=2))
    assert (items.count, items.lengths, [items.rows(at) for at in range(3)]) == (3, (3, 1, 2), [3, 1, 2])
    cut = items.batch([1, 2])
    assert cut["input_ids"].tolist() == [[4, 5], [8, 9]] and cut["weights"].tolist() == [2.0, 3.0]
    assert cut["names"] == ["b", "c"] and cut["scale"] == 2
    assert items.batch([2, 0])["input_ids"].tolist() == [[8, 9, 10], [0, 1, 2]]


def test_pairs_are_cut_from_both_halves() -> None:
    """DPO's batch: first all chosen, then all rejected."""
    both = {name: torch.cat([value, value + 1]) for name, value in a_batch().items() if name == "input_ids"}
    items = BatchItems.of(both, rows_per_item=2)
    assert (items.count, items.rows(0)) == (3, 8)
    assert items.batch([1])["input_ids"].tolist() == [[4, 5, 6, 7], [5, 6, 7, 8]]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"position_ids": torch.zeros(1, 12)}, r"position_ids has \(1, 12\): its first dimension is neither 3 items"),
        ({"names": ["a", "b"]}, "names has 2 entries"),
        ({"nested": {"x": 1}}, "nested is a mapping"),
    ],
)
def test_what_cannot_be_cut_is_named(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(UnslicableBatchError, match=said):
        BatchItems.of(a_batch(**bad))


def test_a_batch_without_anything_to_count_by_is_refused() -> None:
    with pytest.raises(UnslicableBatchError, match="this batch has none of input_ids"):
        BatchItems.of({"mystery": torch.zeros(3)})


def _losing(change: Any) -> Any:
    def make(folder: Path, **more: Any) -> Any:
        base = plain(folder, **more)

        class Changed(type(base)):  # type: ignore[misc]
            def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **others: Any) -> Tensor:
                logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
                picked = logits.float().log_softmax(-1)[..., 1] * inputs["attention_mask"]
                return change(picked, inputs["attention_mask"])  # type: ignore[no-any-return]

        base.__class__ = Changed
        base.model_accepts_loss_kwargs = False
        return base

    return make


LOSSES = {
    "a mean over sequences": lambda picked, mask: (picked.sum(1) / mask.sum(1)).mean(),
    "a mean over tokens": lambda picked, mask: picked.sum() / mask.sum(),
    "a sum": lambda picked, mask: picked.sum() / 100,
}


@pytest.mark.parametrize("name", LOSSES)
def test_how_an_unknown_loss_adds_up_is_found_out(name: str, tmp_path: Path) -> None:
    make, more = _losing(LOSSES[name]), {"per_device_train_batch_size": 8}
    whole = plainly(make, tmp_path, **more)
    ours = in_a_third(make, tmp_path, whole.peak_bytes, **more)
    assert_same_run(ours, whole)
    assert ours.waves > 2


def test_a_loss_that_looks_across_the_batch_is_refused(tmp_path: Path) -> None:
    def whitened(picked: Tensor, mask: Tensor) -> Tensor:
        scores = picked.sum(1) / mask.sum(1)
        return (scores - scores.mean()).square().mean()

    trainer = _losing(whitened)(tmp_path)
    with meter_for("cpu") as meter:
        in_waves(trainer, meter=meter, memory_bytes=1 << 28)
        with pytest.raises(UnsupportedTrainerError, match="does not add up over slices of its batch"):
            trainer.train()


def test_trainers_that_own_their_backward_are_refused(tmp_path: Path) -> None:
    trainer = plain(tmp_path)
    trainer.accelerator.state.distributed_type = "DEEPSPEED"
    try:
        with pytest.raises(UnsupportedTrainerError, match="DeepSpeed and Megatron own backward"):
            WaveStep(trainer, runner=None)  # type: ignore[arg-type]
    finally:
        trainer.accelerator.state.distributed_type = "NO"


# Two processes --------------------------------------------------------------------------------------------------------


def two_processes(quorum: DistributedQuorum) -> dict[str, Any]:
    """The trainer under DDP, plain and in waves. The last batch of rank 1 has fewer items than that of rank 0."""
    import tempfile

    os.environ |= {
        "RANK": str(quorum.rank),
        "LOCAL_RANK": str(quorum.rank),
        "WORLD_SIZE": str(quorum.size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",  # the group is there already: nobody connects
    }
    more: dict[str, Any] = {
        "per_device_train_batch_size": 7,
        "max_steps": 2,
        "gradient_accumulation_steps": 2,
        "ddp_backend": "gloo",
        "accelerator_config": {"even_batches": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        whole = trained(plain(Path(folder) / "plain", **more))
        trainer: Any = plain(Path(folder) / "waves", **more)
        with meter_for("cpu") as meter:
            meter.counter.track(trainer.model.parameters())  # type: ignore[attr-defined]
            # Rank 1 has less memory: both run the width that it can.
            waves = in_waves(trainer, meter=meter, memory_bytes=(900 - 200 * quorum.rank) << 10, law="frontier")
            ours = trained(trainer)
        widths = [
            [len(wave.items) for wave in result.waves]
            for result in waves.runner.results  # type: ignore[attr-defined]
        ]
    return {
        "processes": trainer.accelerator.num_processes,
        "losses": (ours[0], whole[0]),
        "apart": max(float((ours[1][name] - value).abs().max()) for name, value in whole[1].items()),
        "widths": widths,
    }


def test_two_processes_with_uneven_waves_agree_and_reduce_once() -> None:
    outcomes = run_ranks(2, two_processes)
    assert [outcome.error for outcome in outcomes] == [None, None], [outcome.text for outcome in outcomes]
    first, second = (outcome.value for outcome in outcomes)
    assert first["processes"] == 2
    for ours in (first, second):
        assert ours["apart"] <= 1e-5
        assert ours["losses"][0] == pytest.approx(ours["losses"][1], abs=1e-3)
    counts = [[sum(widths) for widths in ours["widths"]] for ours in (first, second)]
    assert counts == [[7, 7, 7, 7], [7, 3, 7, 3]], "the last batch of an epoch has fewer items on rank 1"
    assert [len(widths) for widths in first["widths"]] == [len(widths) for widths in second["widths"]]
    assert all(len(widths) > 1 for widths in first["widths"])
