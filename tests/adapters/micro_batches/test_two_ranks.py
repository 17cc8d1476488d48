"""Two gloo ranks in loops of their own: one number of micro-batches, also where one has no items left."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from adapters.micro_batches import MicroBatches
from adapters.torch_distributed import DistributedQuorum
from adapters.torch_memory import meter_for
from tests.adapters.torch_distributed.ranks import run_ranks


def decoder() -> nn.Module:
    """Enough of one to make logits; nothing of transformers, which takes a rank seconds to import."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(96, 32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 96))


def padded_loss(model: nn.Module, chosen: Sequence[Sequence[int]]) -> Tensor:
    longest = max(map(len, chosen))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in chosen])
    loss: Tensor = model(ids).logsumexp(-1).sum()
    return loss


def sequences(count: int, seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(96) for _ in range(draw.randint(100, 120))] for _ in range(count)]


def both_ranks(quorum: DistributedQuorum) -> dict[str, Any]:
    items = sequences(30 if quorum.rank == 0 else 7, seed=quorum.rank)
    model = decoder()
    with meter_for("cpu") as meter:
        meter.counter.track(model.parameters())  # type: ignore[attr-defined]
        batches = MicroBatches(
            model, meter=meter, memory_bytes=(2_000 - 200 * quorum.rank) << 10, quorum=quorum, law="frontier"
        )
        widths = []
        for _ in range(2):
            for micro in batches.split(items, padded=True):
                with micro:
                    if micro.items:
                        padded_loss(model, micro.items).backward()
                widths.append(len(micro.items))
        stepped: list[int] = []

        def step(micro: Any) -> Any:
            stepped.append(len(micro.items))
            return padded_loss(model, micro.items) if micro.items else None

        batches.train_batch(items, step, padded=True, step_empty=True)
        refused = None
        try:
            list(batches.split([[0] * (9_000 if quorum.rank else 10)], padded=True))
        except Exception as error:
            refused = type(error).__name__
    return {"widths": widths, "stepped": stepped, "refused": refused}


def test_ranks_make_the_same_number_of_micro_batches() -> None:
    outcomes = run_ranks(2, both_ranks)
    assert [outcome.error for outcome in outcomes] == [None, None], [outcome.text for outcome in outcomes]
    first, second = (outcome.value for outcome in outcomes)
    for name in ("widths", "stepped"):
        assert len(first[name]) == len(second[name]) > 2
        assert all(mine == theirs or theirs < mine for mine, theirs in zip(first[name], second[name], strict=True))
        assert 0 in second[name] and 0 not in first[name]
    assert (sum(first["widths"]), sum(second["widths"])) == (60, 14)
    assert (sum(first["stepped"]), sum(second["stepped"])) == (30, 7)
    assert first["refused"] == second["refused"] == "WaveRefusedError", "refused on one rank, run on none"
