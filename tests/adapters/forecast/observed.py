"""Real waves on the CPU beside their traces: models, requests, and what the storage counter sees of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from adapters.forecast.trace import TracedGroup, sum_of_outputs
from adapters.torch_memory.cpu_counter import StorageCounter
from adapters.trainer_rank.binding import bind_model
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.request import Request
from adapters.trainer_rank.rows import branched_rows

CPU = torch.device("cpu")

Families = Sequence[tuple[int, Sequence[int]]]

WANTED: dict[str, dict[str, Any]] = {
    "targets": {"targets": True},
    "several targets": {"targets": 3},
    "logits": {"targets": True, "logits": True},
    "hidden states without gradients": {"hidden_states": True, "grads": False},
    "top-k": {"top_k": 3},
}
"""What requests may ask for, by name."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a real run of a wave allocated on the CPU, in bytes above what was there."""

    forward_peak_bytes: int
    held_bytes: int
    peak_bytes: int


def groups(model: nn.Module, families: Families, wanted: dict[str, Any]) -> list[TracedGroup]:
    """One group of random requests; every one asks for `wanted`."""
    vocabulary = bind_model(model).model_facts().vocabulary
    draw = np.random.default_rng(0)
    rows = branched_rows(
        [
            (draw.integers(0, vocabulary, prompt), [draw.integers(0, vocabulary, size) for size in branches])
            for prompt, branches in families
        ],
        CPU,
    )
    others = {name: value for name, value in wanted.items() if name != "targets"}
    requests = []
    for own in rows.request_positions:
        tokens, targets = rows.token_ids[own], None
        if wanted.get("targets"):
            targets = np.roll(tokens, -1)
            if wanted["targets"] is not True:
                targets = np.stack([targets] * wanted["targets"], axis=1)
        requests.append(Request(tokens=tokens, targets=targets, **others))
    return [TracedGroup(rows=rows, requests=requests, grads=wanted.get("grads", True))]


def untouched(wave: Sequence[TracedGroup]) -> list[TracedGroup]:
    """The same wave without tensors that a run may have kept."""
    return [replace(group, rows=replace(group.rows)) for group in wave]


def observe(model: nn.Module, wave: Sequence[TracedGroup]) -> Observed:
    """Run the wave for real: forward, the sum of all outputs, backward. Gradients are dropped afterwards."""
    bound = bind_model(model)
    counter = StorageCounter()
    with counter:
        outputs = [
            output for group in wave for output in packed_forward(bound, group.rows, group.requests, grads=group.grads)
        ]
        forward_peak, held = counter.peaks()[0], counter.allocated()
        if any(tensor.requires_grad for output in outputs for tensor in output.tensors()):
            sum_of_outputs(outputs).backward()
        peak = counter.peaks()[0]
    model.zero_grad(set_to_none=True)
    return Observed(forward_peak, held, peak)
