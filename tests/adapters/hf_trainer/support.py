"""Runs of one tiny trainer: plain, and in waves on a device that holds a third of what the plain one needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adapters.hf_trainer import PricedRunner, in_waves
from adapters.torch_memory import meter_for
from adapters.wave_loop.batch_result import BatchResult
from tests.adapters.micro_batches.support import limited_device

Make = Callable[..., Any]
FLOAT32 = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a training run ended with. peak_bytes: the highest live bytes of the run, weights included."""

    losses: list[float]
    parameters: dict[str, Tensor]
    peak_bytes: int = 0
    raised: int = 0
    results: tuple[BatchResult, ...] = ()

    @property
    def waves(self) -> int:
        return sum(len(result.waves) for result in self.results)


def trained(trainer: Any) -> tuple[list[float], dict[str, Tensor]]:
    """Train; the losses that were logged, and the parameters."""
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


def plainly(make: Make, folder: Path, **more: Any) -> Ran:
    """Whole batches, on a device that holds them."""
    trainer = make(folder / "plain", **more)
    with meter_for("cpu") as meter:
        meter.counter.track(trainer.model.parameters())  # type: ignore[attr-defined]
        losses, parameters = trained(trainer)
        return Ran(losses=losses, parameters=parameters, peak_bytes=meter.counter.peaks()[0])


def in_a_third(make: Make, folder: Path, needed_bytes: int, *, claimed: int = 1, **more: Any) -> Ran:
    """The same in waves, on a device of a third of `needed_bytes`, whose budget claims `claimed` times as much."""
    trainer = make(folder / "waves", **more)
    with limited_device(needed_bytes // 3) as (meter, device):
        device.track(trainer.model.parameters())
        waves = in_waves(
            trainer, meter=meter, memory_bytes=claimed * device.limit_bytes, law="frontier", safety="51/50"
        )
        losses, parameters = trained(trainer)
        waves.undo()
        assert isinstance(waves.runner, PricedRunner)
        return Ran(losses=losses, parameters=parameters, raised=device.raised, results=tuple(waves.runner.results))


def assert_same_run(ours: Ran, theirs: Ran, tolerance: float = FLOAT32) -> None:
    """Losses and parameters, and with them every gradient: the optimizer is plain SGD."""
    torch.testing.assert_close(ours.losses, theirs.losses, rtol=1e-3, atol=1e-3)  # as they are logged: four digits
    assert ours.parameters.keys() == theirs.parameters.keys()
    for name, value in theirs.parameters.items():
        torch.testing.assert_close(ours.parameters[name], value, rtol=tolerance, atol=tolerance)
