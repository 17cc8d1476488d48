"""A tiny Hugging Face decoder, sequences of many lengths, and a device that really runs out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from adapters.torch_memory import PeakMeter
from adapters.torch_memory.testing import LimitedCounter
from benchmarks.any_trainer.sft import llama, packed_loss, padded_loss

__all__ = ["llama", "packed_loss", "padded_loss"]

VOCABULARY = 96

Sequences = list[list[int]]


@contextmanager
def limited_device(limit_bytes: int) -> Iterator[tuple[PeakMeter, LimitedCounter]]:
    """A meter of such a CPU, and its counter."""
    counter = LimitedCounter(limit_bytes)
    with PeakMeter(counter) as meter:
        yield meter, counter


def sequences(count: int, *, least: int = 16, most: int = 200, seed: int = 0) -> Sequences:
    draw = random.Random(seed)
    return [[draw.randrange(VOCABULARY) for _ in range(draw.randint(least, most))] for _ in range(count)]


LOSSES = {True: padded_loss, False: packed_loss}
"""By whether it is padded."""


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def _named(name: str, message: str) -> str:
    return f"{name}: {message}"


def assert_same_gradients(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Float32, to 1e-5 of each tensor's largest entry: sums of thousands of rows in another order."""
    assert got.keys() == wanted.keys() and got
    for name, value in wanted.items():
        atol = 1e-5 * float(value.abs().max())
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=atol, msg=partial(_named, name))
