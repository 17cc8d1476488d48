"""The example of a plain PyTorch module: it trains, computes what it would unpacked, and is checked at binding."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.trainer_rank import PackedModel, Request, TrainerRank, UnsupportedModelError, bind_model

EXAMPLE = Path(__file__).parents[3] / "examples" / "plain_module.py"


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_module", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_trains_as_shown(example: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(example, "TrainerRank", functools.partial(TrainerRank, forecast=False))
    example.main()
    waves = capsys.readouterr().out.splitlines()
    assert waves == [
        "wave of 1: 120 packed rows for 120 logical ones",
        "wave of 7: 360 packed rows for 840 logical ones",
    ]


def test_its_log_probabilities_are_those_of_an_ordinary_forward(example: Any) -> None:
    torch.manual_seed(1)
    model = example.PlainDecoder().double().train()
    prompt = torch.randint(example.VOCABULARY, (70,)).tolist()
    rows = [prompt + torch.randint(example.VOCABULARY, (length,)).tolist() for length in (9, 30, 5)]
    rank = TrainerRank(model, memory_bytes=1 << 30, forecast=False)
    seen: dict[int, Tensor] = {}
    for wave in rank.forward_micro_batches([[Request(tokens=row, targets=[*row[1:], -100]) for row in rows]]):
        for number, output in enumerate(wave.outputs):
            assert output.target_log_probs is not None
            seen[number] = output.target_log_probs.detach()
        torch.stack([output.target_log_probs.sum() for output in wave.outputs]).sum().backward()  # type: ignore[union-attr]
    assert sorted(seen) == [0, 1, 2]
    for number, row in enumerate(rows):
        expected = ordinary_log_probs(model, torch.tensor(row))
        assert torch.allclose(seen[number][:-1], expected, rtol=1e-9, atol=1e-9)


def ordinary_log_probs(model: Any, tokens: Tensor) -> Tensor:
    """Each next token's log-probability by the same weights under causal attention, written out."""
    with torch.no_grad():
        hidden = model.tokens(tokens) + model.positions(torch.arange(len(tokens)))
        for layer in model.layers:
            normed = layer.before_attention(hidden)
            projected = layer.query_key_value(normed).chunk(3, -1)
            query, key, value = (part.unflatten(-1, (4, -1)).transpose(0, 1) for part in projected)
            attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            hidden = hidden + layer.out(attended.transpose(0, 1).flatten(1))
            hidden = hidden + layer.feed_forward(layer.before_feed_forward(hidden))
        log_probs = torch.log_softmax(model.head(model.norm(hidden)), -1)
        return log_probs[:-1].gather(1, tokens[1:, None])[:, 0]


def test_a_module_that_looks_at_all_rows_before_is_refused_at_binding(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mistake that is easy to make: ordinary causal attention over rows that belong to several requests."""

    def causal(query: Tensor, key: Tensor, value: Tensor, mask: object, scale: float) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)

    assert isinstance(bind_model(example.PlainDecoder()), PackedModel)
    monkeypatch.setattr(example, "packed_attention", causal)
    with pytest.raises(UnsupportedModelError):
        bind_model(example.PlainDecoder())


def test_a_module_without_the_methods_is_refused_by_their_names(example: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="packed_hidden_states, head_logits, recompute_mode, model_facts"):
        bind_model(torch.nn.Linear(2, 2))


def test_a_check_that_failed_leaves_no_hooks_on(example: Any) -> None:
    """As with a checkpoint of PyTorch before 2.13: its hooks stay on while a frame of the forward that raised lives."""

    def hooked() -> Iterator[None]:
        with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, unpacked):
            yield

    def unpacked(kept: Tensor) -> Tensor:
        raise AssertionError("saved by the hooks of a model that was refused")

    def raising(hidden: Tensor) -> Tensor:
        hooks = hooked()
        next(hooks)
        raise RuntimeError("no such kernel")

    model = example.PlainDecoder()
    model.layers[0].feed_forward.forward = raising
    with pytest.raises(UnsupportedModelError, match="raised RuntimeError: no such kernel") as refused:
        bind_model(model)
    assert refused.value.__cause__ is not None and refused.value.__cause__.__traceback__ is not None, "its frames live"
    leaf = torch.ones(3, requires_grad=True)
    leaf.exp().sum().backward()
    assert leaf.grad is not None
