"""Two gloo ranks: they agree on every wave, one that runs out of items goes on, and a failure on one reaches both."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from adapters.torch_distributed import DistributedQuorum
from adapters.torch_memory import BudgetSampler, MemorySample, PeakMeter, SimulatedMemory, meter_for
from adapters.torch_memory.errors import BudgetSampleError
from adapters.trainer_rank import PackedRows, Request, TrainerRank, WaveRefusedError
from pricing.kernel.errors import PricingError
from tests.adapters.torch_distributed.ranks import run_ranks
from tests.adapters.trainer_rank.waves import calibrated, given_bytes, groups, loss_of, separate, train

ITEMS_OF_RANK = (5, 2)


class UnreadableMemory(SimulatedMemory):
    def sample(self) -> MemorySample:
        raise BudgetSampleError("the driver does not answer")


def both_ranks(quorum: DistributedQuorum) -> dict[str, Any]:
    """Everything one rank does, one thing after another; the other does the same."""
    with meter_for("cpu") as meter:
        return {
            "unequal": unequal_items(meter, quorum),
            "narrow": less_memory_on_one(meter, quorum),
            "refused": refused_on_one(meter, quorum),
            "unreadable": unreadable_on_one(meter, quorum),
            "out of memory": out_of_memory_on_one(meter, quorum),
            "malformed": error_of(calibrated(meter, quorum=quorum), [malformed()] if dist.get_rank() else groups(1)),
            "after": [len(wave.items) for wave in train(calibrated(meter, quorum=quorum), groups(2))],
        }


def unequal_items(meter: PeakMeter, quorum: DistributedQuorum) -> dict[str, Any]:
    rank = calibrated(meter, quorum=quorum)
    model = rank._model
    assert isinstance(model, torch.nn.Module)
    model.zero_grad(set_to_none=False)
    items = groups(5) if dist.get_rank() == 0 else groups(7)[5:]
    given_bytes(rank, rank.plan(groups(2)).required_bytes)
    waves = []
    for wave in rank.forward_micro_batches(items):
        if wave.requests:
            loss_of(wave.outputs).backward()
        for parameter in model.parameters():  # as a data-parallel trainer would, wave by wave
            assert parameter.grad is not None
        dist.barrier()
        waves.append((str(wave.stats.plan.verdict), len(wave.items)))
    gradient = gradient_of(model)
    dist.all_reduce(gradient)
    return {"waves": waves, "gradient": gradient.numpy()}


def less_memory_on_one(meter: PeakMeter, quorum: DistributedQuorum) -> list[int]:
    rank = calibrated(meter, quorum=quorum)
    given_bytes(rank, rank.plan(groups(4 if dist.get_rank() == 0 else 1)).required_bytes)
    return [len(wave.items) for wave in train(rank, groups(3))]


def refused_on_one(meter: PeakMeter, quorum: DistributedQuorum) -> str:
    rank = calibrated(meter, quorum=quorum)
    given_bytes(rank, rank.plan(groups(1)).required_bytes)
    return error_of(rank, [separate(12)] if dist.get_rank() == 1 else groups(1))


def unreadable_on_one(meter: PeakMeter, quorum: DistributedQuorum) -> str:
    rank = calibrated(meter, quorum=quorum)
    if dist.get_rank() == 1:
        rank.sampler = BudgetSampler(UnreadableMemory(meter.counter, 1))  # type: ignore[arg-type]
    return error_of(rank, groups(1))


def out_of_memory_on_one(meter: PeakMeter, quorum: DistributedQuorum) -> str:
    rank = calibrated(meter, quorum=quorum)
    if dist.get_rank() == 1:
        rank._model.packed_hidden_states = runs_out  # type: ignore[method-assign]
    return error_of(rank, groups(1))


def runs_out(rows: PackedRows) -> torch.Tensor:
    raise torch.OutOfMemoryError("out of memory")


def malformed() -> Request:
    return Request(tokens=[1, 2, 3], targets=[1])


def error_of(rank: TrainerRank, items: list[Any]) -> str:
    try:
        train(rank, items)
    except (PricingError, WaveRefusedError, BudgetSampleError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def gradient_of(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])


def test_two_ranks_agree_on_every_wave(meter: PeakMeter) -> None:
    outcomes = run_ranks(2, both_ranks)
    assert [outcome.error for outcome in outcomes] == [None, None], outcomes
    first, second = (outcome.value for outcome in outcomes)
    assert len(first["unequal"]["waves"]) == len(second["unequal"]["waves"])
    for value, count in zip((first, second), ITEMS_OF_RANK, strict=True):
        assert sum(width for _, width in value["unequal"]["waves"]) == count
    assert second["unequal"]["waves"][-1] == ("empty", 0)
    # The summed gradient is the one a single rank gets from all items.
    alone = calibrated(meter)
    model = alone._model
    assert isinstance(model, torch.nn.Module)
    model.zero_grad(set_to_none=False)
    train(alone, groups(7))
    summed = torch.from_numpy(first["unequal"]["gradient"])
    torch.testing.assert_close(summed, gradient_of(model), rtol=1e-4, atol=1e-4)
    # The rank with less memory narrows both.
    assert first["narrow"] == second["narrow"] == [1, 1, 1]
    assert "another rank cannot run its part" in first["refused"]
    assert "cannot run 1,440 packed rows" in second["refused"]
    assert "the driver does not answer" in second["unreadable"]
    # Whatever its rank 1 tries runs out of memory: narrower and narrower, then it is refused on both.
    assert second["out of memory"].startswith("OutOfMemoryRefusedError: item 0: cannot run")
    assert "out of memory in the forward" in second["out of memory"]
    assert "another rank cannot run its part" in first["out of memory"]
    assert "RequestError" in second["malformed"]
    for failure in ("unreadable", "malformed"):
        assert first[failure].startswith("RankFailedError: rank 1 failed")
    assert first["after"] == second["after"]
