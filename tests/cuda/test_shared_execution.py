"""Shared execution equals unshared execution on CUDA, to bf16 tolerance: outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adapters.trainer_rank.binding import bind_model
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.request import Request
from adapters.trainer_rank.rows import PackedRows, branched_rows, unshared_rows
from benchmarks.h200.families import FAMILIES, Family

pytestmark = pytest.mark.cuda

VOCABULARY = 1_000
TOLERANCE = 0.03
"""Relative error in norm. Two bf16 runs in different row orders differ by a few rounding steps of 2**-8 a layer."""


def reduced(family: Family) -> Family:
    """The family's structure with a few layers and a small vocabulary; attention at its real head size."""
    config = replace(family.config, vocabulary=VOCABULARY, hidden=512, layers=4, heads=4, kv_heads=2)
    if family.config.feed_forward:
        config = replace(config, feed_forward=1024)
    experts = family.experts and replace(family.experts, count=8, top=2, width=256)
    return replace(family, config=config, experts=experts)


def qwen3(device: torch.device) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
    )
    model: nn.Module = transformers.Qwen3ForCausalLM(config).to(device, torch.bfloat16).train()
    model.gradient_checkpointing_enable()  # type: ignore[operator]
    return model


BUILDERS: dict[str, Callable[[torch.device], nn.Module]] = {
    **{name: reduced(family).build for name, family in FAMILIES.items()},
    "qwen3": qwen3,
}


@pytest.mark.parametrize("name", BUILDERS)
def test_shared_equals_unshared(name: str, device: torch.device) -> None:
    if name.endswith("_fused"):
        pytest.importorskip("fla", reason="the fused kernels are the flash-linear-attention package's")
    model = BUILDERS[name](device)
    shared = a_tree(device)
    tokens = [shared.token_ids[own] for own in shared.request_positions]
    apart = run(model, shared, tokens), run(model, unshared_rows(tokens, device), tokens)
    for key, got in apart[0].items():
        wanted = apart[1][key]
        error = (got - wanted).norm() / wanted.norm().clamp(min=1e-6)
        assert error < TOLERANCE, f"{name}: {key} differs by {error:.4f} in norm"


def a_tree(device: torch.device) -> PackedRows:
    """Two prompts with branches around the block and chunk edges, a duplicate, and a lone request."""
    generator = np.random.default_rng(0)

    def tokens(count: int) -> np.ndarray[Any, Any]:
        return generator.integers(0, VOCABULARY, count)

    return branched_rows(
        [
            (tokens(300), [tokens(length) for length in (64, 65, 127, 1, 0)]),
            (tokens(129), [tokens(length) for length in (200, 3)]),
            (tokens(77), []),
        ],
        device,
    )


def run(model: nn.Module, rows: PackedRows, tokens: list[Any]) -> dict[str, Tensor]:
    model.zero_grad()
    requests = [Request(tokens=row, targets=np.roll(row, -1)) for row in tokens]
    outputs = packed_forward(bind_model(model), rows, requests, grads=True)
    log_probs = torch.cat([output.target_log_probs for output in outputs if output.target_log_probs is not None])
    weights = torch.linspace(-1.0, 1.0, len(log_probs), device=log_probs.device)
    (log_probs * weights).mean().backward()
    gradients = {
        name: parameter.grad.float() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    assert gradients
    # One vector of all gradients: a single tiny adapter matrix may be all rounding.
    return {
        "log_probs": log_probs.detach(),
        "gradients": torch.cat([gradient.flatten() for gradient in gradients.values()]),
    }
