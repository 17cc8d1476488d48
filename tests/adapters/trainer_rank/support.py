"""Small models, trees and comparisons shared by the trainer tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adapters.trainer_rank.binding import bind_model
from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.request import Request
from adapters.trainer_rank.rows import Ints, PackedRows, branched_rows, unshared_rows

CPU = torch.device("cpu")
VOCABULARY = 97
TOLERANCE = 1e-5

TINY = DecoderConfig(vocabulary=VOCABULARY, hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, feed_forward=48)


def tiny_decoder(**settings: Any) -> Decoder:
    torch.manual_seed(0)
    return Decoder(TINY, **settings).train()


def tokens(count: int, seed: int = 0) -> Ints:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count)


def a_tree() -> PackedRows:
    """A prompt with four branches (one a duplicate of the prompt), a second prompt with two, a lone request."""
    return branched_rows(
        [
            (tokens(20, 1), [tokens(length, 10 + length) for length in (5, 7, 0, 3)]),
            (tokens(33, 2), [tokens(length, 20 + length) for length in (1, 70)]),
            (tokens(9, 3), []),
        ],
        CPU,
    )


def request_tokens(rows: PackedRows) -> list[Ints]:
    return [rows.token_ids[own] for own in rows.request_positions]


def every_kind_of_request(token_rows: Sequence[Ints]) -> list[Request]:
    """Requests that between them ask for everything, some of it together."""
    requests = []
    for index, row in enumerate(token_rows):
        labels = tokens(len(row), 100 + index)
        if index == 0:
            labels[:3] = -100
        requests.append(
            Request(
                tokens=row[None] if index == 1 else row,
                targets=[labels, labels[None], np.stack([labels, labels[::-1]], axis=1), None][index % 4],
                top_k=3 if index % 3 == 0 else None,
                logits=index % 4 == 3,
                hidden_states=index == 5,
            )
        )
    return requests


def results(model: nn.Module, rows: PackedRows, requests: Sequence[Request]) -> dict[str, Tensor]:
    """Every output and every gradient of one run, by name."""
    model.zero_grad(set_to_none=True)
    outputs = packed_forward(bind_model(model), rows, requests, grads=True)
    named = {
        f"{index}.{name}": getattr(output, name)
        for index, output in enumerate(outputs)
        for name in ("target_log_probs", "top_k_log_probs", "top_k_ids", "logits", "hidden_states")
        if getattr(output, name) is not None
    }
    loss = torch.zeros(())
    for tensor in named.values():
        if tensor.is_floating_point():
            loss = loss + (tensor * torch.linspace(-1, 1, tensor.numel()).reshape(tensor.shape)).mean()
    loss.backward()
    gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    assert gradients
    return {name: tensor.detach() for name, tensor in (named | gradients).items()}


def assert_shared_equals_unshared(model: nn.Module, shared: PackedRows) -> None:
    """Outputs and gradients of the tree equal those of the same requests without sharing, fp32, to 1e-5."""
    rows = request_tokens(shared)
    apart = unshared_rows(rows, CPU)
    assert shared.packed_rows < apart.packed_rows
    assert_same(results(model, shared, every_kind_of_request(rows)), results(model, apart, every_kind_of_request(rows)))


def _named(name: str, message: str) -> str:
    return f"{name}: {message}"


def assert_same(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name in got:
        torch.testing.assert_close(got[name], wanted[name], rtol=TOLERANCE, atol=TOLERANCE, msg=partial(_named, name))
