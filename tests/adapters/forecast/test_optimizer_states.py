"""What an optimizer keeps and takes, by its own code without values, is what it keeps and takes on the CPU counter."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from adapters.forecast.errors import ForecastError
from adapters.forecast.fake_run import Target
from adapters.forecast.optimizer_states import OPTIMIZERS, OptimizerNeeds, optimizer_needs, torch_optimizers
from adapters.torch_memory.cpu_counter import StorageCounter

SHAPES = [(7, 3), (64, 33), (128, 16)]
OF_OTHER_INPUTS = {"LBFGS": "closure", "SparseAdam": "sparse|dense"}
"""Optimizers whose step is called otherwise."""


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.ones(*shape, dtype=dtype)) for shape in SHAPES]
    for value in made:
        value.grad = torch.full_like(value, 0.5)
    return made


def seen(made: Any, given: list[nn.Parameter], target: Target) -> OptimizerNeeds:
    """Two real steps on the CPU."""
    counter = StorageCounter()
    with counter:
        optimizer = made(given, target)
        optimizer.step()
        state_bytes = counter.allocated()
        counter.reset_peak()
        optimizer.step()
        return OptimizerNeeds(state_bytes=state_bytes, step_bytes=counter.peaks()[0] - state_bytes)


@pytest.mark.parametrize("name", sorted(set(torch_optimizers()) - set(OF_OTHER_INPUTS)))
def test_every_optimizer_of_torch_is_the_counter_to_the_byte(name: str) -> None:
    given = parameters()
    kind: Any = getattr(torch.optim, name)
    settings = {"lr": 0.1} if "lr" in inspect.signature(kind).parameters else {}
    told = optimizer_needs(given, name, target=Target.CPU)
    found = seen(lambda values, _: kind(values, **settings), given, Target.CPU)
    assert told.state_bytes == found.state_bytes
    if name == "ASGD":  # what it averages depends on a number; the dearer of the two is told
        assert told.step_bytes >= found.step_bytes
    else:
        assert told.step_bytes == found.step_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_usual_ones_are_the_counter_to_the_byte(name: str, dtype: torch.dtype) -> None:
    given = parameters(dtype)
    assert optimizer_needs(given, name, target=Target.CPU) == seen(OPTIMIZERS[name], given, Target.CPU)


def test_states_are_what_everybody_knows_they_are() -> None:
    given = parameters(torch.bfloat16)
    count = sum(value.numel() for value in given)
    states = {name: optimizer_needs(given, name, target=Target.CPU).state_bytes for name in OPTIMIZERS}
    steps = 4 * len(given)
    assert states == {
        "adamw": 2 * 2 * count + steps,
        "adamw-fused": 2 * 2 * count + steps,
        "adamw-fp32": 3 * 4 * count + steps,
        "momentum": 2 * count,
        "sgd": 0,
    }


def test_on_cuda_a_step_over_lists_takes_what_a_fused_one_does_not() -> None:
    given = [nn.Parameter(torch.empty(1 << 10, 1 << 10, device="meta")) for _ in range(4)]
    lists, fused = (optimizer_needs(given, name, target=Target.CUDA) for name in ("adamw", "adamw-fused"))
    assert lists.state_bytes == fused.state_bytes == 4 * (2 * 4 << 20) + 4 * 512
    assert lists.step_bytes >= 4 * 4 << 20 and fused.step_bytes == 0


@pytest.mark.parametrize(("name", "said"), [*OF_OTHER_INPUTS.items(), ("adam8bit", "must be one of adamw, ")])
def test_what_takes_no_step_says_why(name: str, said: str) -> None:
    with pytest.raises(ForecastError, match=said):
        optimizer_needs(parameters(), name, target=Target.CPU)
