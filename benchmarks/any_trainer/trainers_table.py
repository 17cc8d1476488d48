"""Four trainers on a device that holds a third of their batch: in waves, and with `auto_find_batch_size`.

    python -m benchmarks.any_trainer.trainers_table --out spec/evidence/any-trainer/trainers.json

Tiny decoders on a CPU that really runs out (`LimitedCounter`), float32, plain SGD at learning rate 1, so that the
largest difference of any parameter from the unsplit run is a sum of gradient differences. Use: live bytes at the peak
of each forward and backward (a wave; a whole step for `auto_find_batch_size`) over the device's size; of waves from the
eleventh on, over all of them and over those that left items of their batch behind. Needs TRL (`make test-trainers`
installs it).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from adapters.hf_trainer import PricedRunner, in_waves
from adapters.torch_memory import PeakMeter, meter_for
from adapters.torch_memory.testing import LimitedCounter
from tests.adapters.hf_trainer import trainers

BATCH = 24
STEPS = 8
SETTLED_WAVES = 10

MAKERS = {
    "transformers.Trainer": trainers.plain,
    "SFTTrainer": trainers.sft,
    "DPOTrainer": trainers.dpo,
    "GRPOTrainer": trainers.grpo,
}


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=MAKERS, action="append")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.only or MAKERS:
            rows.append(compared(name, Path(folder) / name, chosen.steps))
            print(json.dumps(rows[-1]))
    if chosen.out is not None:
        chosen.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    return rows


def compared(name: str, folder: Path, steps: int) -> dict[str, Any]:
    """One trainer: unsplit on a device that holds it, then both ways on a third of that."""
    more = {"per_device_train_batch_size": BATCH, "max_steps": steps}
    trainer: Any = MAKERS[name](folder / "whole", **more)
    with meter_for("cpu") as meter:
        meter.counter.track(trainer.model.parameters())  # type: ignore[attr-defined]
        trainer.train()
        needed_bytes = meter.counter.peaks()[0]
    whole = {key: value.detach().clone() for key, value in trainer.model.named_parameters()}
    limit_bytes = needed_bytes // 3
    return {
        "trainer": name,
        "batch": BATCH,
        "steps": steps,
        "needed_bytes": needed_bytes,
        "device_bytes": limit_bytes,
        "in_waves": waves(MAKERS[name](folder / "waves", **more), limit_bytes, whole),
        "auto_find_batch_size": found(name, folder / "found", limit_bytes, **more),
    }


def waves(trainer: Any, limit_bytes: int, whole: dict[str, torch.Tensor]) -> dict[str, Any]:
    counter = LimitedCounter(limit_bytes)
    with PeakMeter(counter) as meter:
        counter.track(trainer.model.parameters())
        step = in_waves(trainer, meter=meter, memory_bytes=limit_bytes, law="frontier", safety="51/50")
        trainer.train()
    assert isinstance(step.runner, PricedRunner)
    ran = [wave.stats for result in step.runner.results for wave in result.waves]
    uses = [
        (stats.closing.peak_bytes / limit_bytes, stats.plan.next_start < BATCH)
        for stats in ran
        if stats.closing is not None
    ][SETTLED_WAVES:]
    return {
        "passes": len(ran),
        "out_of_memory": counter.raised,
        "restarts": 0,
        "batch_trained_on": BATCH,
        "mean_use_percent": percent([use for use, _ in uses]),
        "mean_use_of_full_waves_percent": percent([use for use, is_full in uses if is_full]),
        "largest_parameter_difference": max(
            float((value - whole[name]).abs().max()) for name, value in trainer.model.named_parameters()
        ),
    }


def percent(shares: list[float]) -> float | None:
    return round(100 * statistics.mean(shares), 1) if shares else None


def found(name: str, folder: Path, limit_bytes: int, **more: Any) -> dict[str, Any]:
    """What `auto_find_batch_size` does: a smaller batch after each out-of-memory error, from the first step on."""
    try:
        trainer = MAKERS[name](folder, auto_find_batch_size=True, **more)
    except ValueError as error:
        return {"refused": str(error)}
    counter = LimitedCounter(limit_bytes)
    sizes: list[int] = []
    uses: list[float] = []
    inner, training_step = trainer._inner_training_loop, trainer.training_step

    def loop(*given: Any, **named: Any) -> Any:
        sizes.append(named.get("batch_size", given[0] if given else 0))
        uses.clear()
        return inner(*given, **named)

    def one_step(*given: Any, **named: Any) -> Any:
        counter.reset_peak()
        loss = training_step(*given, **named)
        uses.append(counter.peaks()[0] / limit_bytes)
        return loss

    trainer._inner_training_loop, trainer.training_step = loop, one_step
    with PeakMeter(counter):
        counter.track(trainer.model.parameters())
        try:
            trainer.train()
            ended = ""
        except Exception as error:
            ended = f"{type(error).__name__}: {str(error)[:120]}"
    return {
        "passes": len(uses),
        "out_of_memory": counter.raised,
        "restarts": len(sizes) - 1,
        "batch_trained_on": trainer._train_batch_size,
        "mean_use_percent": percent(uses),
        "ended_with": ended,
    }


if __name__ == "__main__":
    main()
