"""ART's trainer runs real waves over a Megatron model with the kernel bound. Without a GPU there are no readings."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from adapters.art import bind, unbind
from tests.art.planning_runs import make_batch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed: make test-art runs this"
)


@pytest.fixture(scope="module")
def rank() -> Iterator[Any]:
    from benchmarks.h200 import art_model

    art_model.load_execution()
    shape = art_model.ModelShape(hidden=128, layers=2, heads=4, query_groups=2, ffn=256, vocabulary=50_304)
    yield art_model.trainer_rank(shape)
    art_model.stop_single_process()


@pytest.fixture(scope="module")
def batch() -> list[Any]:
    return make_batch(random.Random(7), prompts=3, rollouts=3, prompt=(140, 180), completion=(10, 40))


def gradients_of(rank: Any, batch: list[Any], seen: list[Any] | None = None) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Log-probabilities of every request, and the gradient of the learned positions after a backward of each wave."""
    positions = rank.runtime.model[0].embedding.position_embeddings.weight
    positions.grad = None
    outputs = []
    for wave in rank.forward_micro_batches(batch):
        given = [output.target_logprobs for output in wave.outputs]
        torch.cat(given).sum().backward()
        outputs += [logprobs.detach().clone() for logprobs in given]
        if seen is not None:
            seen.append(wave.stats)
    return outputs, positions.grad.clone()


def test_a_bound_rank_runs_the_same_forward_and_backward_and_explains_every_wave(rank: Any, batch: list[Any]) -> None:
    outputs, gradient = gradients_of(rank, batch)
    rank._memory_profiles.clear()
    stats: list[Any] = []
    binding = bind(rank)
    try:
        bound_outputs, bound_gradient = gradients_of(rank, batch, stats)
    finally:
        unbind(rank)
    assert len(bound_outputs) == len(batch)
    tolerance = 5e-2 if torch.cuda.is_available() else 1e-3  # bfloat16 there, float32 here
    for ours, theirs in zip(bound_outputs, outputs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    assert float((bound_gradient - gradient).norm()) <= tolerance * float(gradient.norm())
    assert stats and all(binding.explain(facts) is not None for facts in stats)
    assert len(binding.admissions) == len(stats)


@pytest.mark.cuda
def test_on_a_gpu_the_bound_rank_learns_complete_readings_from_real_peaks(rank: Any, batch: list[Any]) -> None:
    rank._memory_profiles.clear()
    binding = bind(rank)
    try:
        for _ in range(3):
            gradients_of(rank, batch)
    finally:
        unbind(rank)
    (profile,) = binding.profiles.values()
    assert profile.complete_readings >= 3 and profile.has_warm_fit
    assert profile.peak_bytes_per_row > 0 and profile.retained_bytes_per_row is not None
    assert profile.footprint.complete_readings >= 1 and profile.footprint.peak_bytes_per_row > 0
