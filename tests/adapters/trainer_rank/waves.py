"""Ranks and items for the wave tests, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adapters.torch_memory import BudgetSampler, PeakMeter, SimulatedMemory, StorageCounter
from adapters.trainer_rank import MicroBatch, Request, RequestOutputs, TrainerRank
from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from pricing.planner.budget import reserve_of
from tests.adapters.trainer_rank.support import VOCABULARY

MIB = 1 << 20
ROOMY_BYTES = 512 * MIB
"""What the CPU stands for where memory is not the subject."""


def decoder(device: torch.device, **settings: Any) -> Decoder:
    torch.manual_seed(0)
    config = DecoderConfig(
        vocabulary=VOCABULARY,
        hidden=64,
        layers=3,
        heads=4,
        kv_heads=2,
        head_dim=32,
        feed_forward=256,
        dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
    )
    with device:
        return Decoder(config, **settings).train()


def rank_on(meter: PeakMeter, **settings: Any) -> TrainerRank:
    """A rank on the meter's device with a small decoder and no cold transient, so that small budgets mean something."""
    device = meter.counter.device
    model = settings.pop("model", None) or decoder(device)
    settings.setdefault("memory_bytes", ROOMY_BYTES if device.type == "cpu" else None)
    settings.setdefault("cold_transient_bytes", 0)
    settings.setdefault("forecast", False)  # tens of seconds a rank on a busy CPU; `tests/adapters/forecast` has it
    return TrainerRank(model, meter=meter, **settings)


def group(seed: int, *, prompt: int = 96, rollouts: int = 4, completion: int = 24, grads: bool = True) -> list[Request]:
    """A prompt and its rollouts: one item."""
    generator = np.random.default_rng(seed)
    shared = generator.integers(0, VOCABULARY, prompt)
    rows = [np.concatenate([shared, generator.integers(0, VOCABULARY, completion)]) for _ in range(rollouts)]
    return [Request(tokens=row, targets=np.roll(row, -1), grads=grads) for row in rows]


def groups(count: int, **sizes: Any) -> list[list[Request]]:
    return [group(seed, **sizes) for seed in range(count)]


def loss_of(outputs: Sequence[RequestOutputs]) -> Tensor:
    return torch.stack(
        [output.target_log_probs.sum() for output in outputs if output.target_log_probs is not None]
    ).sum()


def train(rank: TrainerRank, items: Sequence[Any]) -> list[MicroBatch]:
    """Every wave of one call, each with its backward inside."""
    waves = []
    for wave in rank.forward_micro_batches(items):
        loss_of(wave.outputs).backward()
        waves.append(wave)
    return waves


def calibrated(meter: PeakMeter, **settings: Any) -> TrainerRank:
    """A rank with a warm fit: a seed and two more complete waves."""
    rank = rank_on(meter, **settings)
    for _ in range(3):
        train(rank, [group(0)])
    return rank


def only_profile(rank: TrainerRank) -> Any:
    (profile,) = rank.profiles.values()
    return profile


def given_bytes(rank: TrainerRank, available_bytes: int) -> None:
    """Make the CPU stand for a device that has at least `available_bytes`, and hardly more, for a wave now."""
    counter = rank.meter.counter
    assert isinstance(counter, StorageCounter)
    capacity = counter.allocated() + available_bytes
    while capacity - reserve_of(capacity) - counter.allocated() < available_bytes:
        capacity += available_bytes // 100 + 1
    rank.sampler = BudgetSampler(SimulatedMemory(counter, capacity))


def separate(count: int) -> list[Request]:
    """One item of requests that share nothing, so that a split costs no row."""
    return [request for seed in range(count) for request in group(seed, rollouts=1)]
