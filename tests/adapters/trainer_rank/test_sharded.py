"""E12: two gloo processes train a decoder that is sharded by `fully_shard` on its layers and its root. Gradients are
those of one process on the union of the data; ranks whose numbers of waves differ keep their collectives in step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from adapters.torch_distributed import DistributedQuorum
from adapters.torch_memory import PeakMeter, StorageCounter
from adapters.torch_memory.gradients import local_bytes
from adapters.trainer_rank import Request, RequestOutputs, TrainerRank
from adapters.wave_loop.wave import WaveStats
from pricing.kernel.errors import PricingError
from pricing.kernel.quantities import GIB
from pricing.planner.plan import Verdict
from tests.adapters.torch_distributed.ranks import run_ranks
from tests.adapters.trainer_rank.test_identity import llama
from tests.adapters.trainer_rank.waves import given_bytes

RANKS = 2
Items = list[Request]


def labelled(rows: int, seed: int, **asked: Any) -> Request:
    drawn = np.random.default_rng(1_000 * rows + seed).integers(0, 97, rows)
    return Request(tokens=drawn, targets=np.roll(drawn, -1), **asked)


def ignored(rows: int) -> Request:
    return Request(tokens=np.arange(rows) % 97, targets=np.full(rows, -100))


def hidden(rows: int) -> Request:
    return Request(tokens=np.arange(rows) % 97, hidden_states=True)


BATCHES: dict[str, Sequence[Items]] = {
    "as many on each": ([labelled(70, 1), labelled(90, 2)], [labelled(80, 3), labelled(84, 4)]),
    "more on the first": ([labelled(70, 1), labelled(90, 2), labelled(94, 3), labelled(92, 4)], [labelled(80, 5)]),
    "none on the first": ([], [labelled(80, 5), labelled(86, 6)]),
    "labels of no interest": ([labelled(70, 1)], [ignored(80), labelled(86, 6)]),
    "no head on one": ([labelled(70, 1)], [hidden(40)]),
    "no rows on one": ([labelled(70, 1)], [Request(tokens=[], targets=[])]),
}
"""Items of each rank."""


def loss_of(outputs: Sequence[RequestOutputs]) -> Tensor:
    terms = [output.target_log_probs.sum() for output in outputs if output.target_log_probs is not None]
    terms += [output.hidden_states.square().sum() for output in outputs if output.hidden_states is not None]
    return torch.stack(terms).sum()


def recomputing(model: Any) -> None:
    model.gradient_checkpointing_enable({"use_reentrant": False})


def frozen_below(model: Any) -> None:
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[0].requires_grad_(False)


KINDS: dict[str, Callable[[Any], None]] = {
    "plain": lambda model: None,
    "recompute": recomputing,
    "frozen": frozen_below,
}
CASES = [(kind, name) for kind in KINDS for name in list(BATCHES)[: None if kind == "plain" else 2]]


def sharded(kind: str) -> nn.Module:
    model: Any = llama()
    KINDS[kind](model)
    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    whole: nn.Module = model
    return whole


def bound(meter: PeakMeter, model: nn.Module, quorum: DistributedQuorum) -> TrainerRank:
    return TrainerRank(model, memory_bytes=GIB, meter=meter, quorum=quorum, topology="fsdp 2", cold_transient_bytes=0)


def trained(rank: TrainerRank, items: Items) -> list[WaveStats]:
    waves = []
    for wave in rank.forward_micro_batches([*items]):
        if wave.requests:
            loss_of(wave.outputs).backward()
        dist.barrier()  # a caller's own collective
        waves.append(wave.stats)
    return waves


def everything(quorum: DistributedQuorum) -> dict[str, Any]:
    with PeakMeter(StorageCounter()) as meter:
        found: dict[str, Any] = {}
        for kind in KINDS:
            model = sharded(kind)
            rank = bound(meter, model, quorum)
            roomy = rank.sampler
            for name in (name for of, name in CASES if of == kind):
                batch = BATCHES[name]
                model.zero_grad()
                missing = [value for value in model.parameters() if value.requires_grad]
                rank.sampler = roomy
                if name == "more on the first":  # than fit into one wave
                    price_bytes = rank.plan([labelled(100, 9)]).required_bytes
                    given_bytes(rank, price_bytes + sum(local_bytes(value) for value in missing))
                waves = trained(rank, batch[dist.get_rank()])
                found[f"{kind}, {name}"] = {
                    "gradients": {
                        key: value.grad.full_tensor().numpy()  # type: ignore[attr-defined]
                        for key, value in model.named_parameters()
                        if value.grad is not None
                    },
                    "verdicts": [str(wave.plan.verdict) for wave in waves],
                    "held back": [wave.gradient_bytes for wave in waves if wave.plan.requests],
                    "local": sum(local_bytes(value) for value in missing),
                    "global": sum(value.numel() * value.element_size() for value in missing),
                    "changed": any("changed" in wave.plan.signature.topology for wave in waves),
                    "complete": [wave.is_complete for wave in waves if wave.plan.wave.packed_rows],
                    "covered": [
                        wave.closing.peak_bytes - wave.closing.baseline_bytes <= wave.admission.required_bytes
                        for wave in waves
                        if wave.closing is not None and wave.plan.verdict is Verdict.RUN
                    ],
                }
            rank.sampler = roomy
        found["evaluation"] = evaluation(rank)
        found["gathered"] = gathered(meter, quorum)
        found["errors"] = errors(rank)
        found["after"] = [str(wave.plan.verdict) for wave in trained(rank, [labelled(70, 1)])]
        return found


def evaluation(rank: TrainerRank) -> list[float]:
    """Without gradients, three items on one rank and one on the other."""
    items = [labelled(70 + at, at, grads=False) for at in range(3 if dist.get_rank() == 0 else 1)]
    numbers = [output.target_log_probs for output in rank.dp_rank_forward([*items])]
    return [float(number.sum()) for number in numbers if number is not None]


def gathered(meter: PeakMeter, quorum: DistributedQuorum) -> tuple[int, int]:
    """What the first wave takes, and all parameters: of which it gathers no more than the root and two layers."""
    model = sharded("plain")
    rank = bound(meter, model, quorum)
    begun = meter.counter.allocated()
    (wave,) = trained(rank, [labelled(4, 1)])
    assert wave.closing is not None
    local = sum(local_bytes(value) for value in model.parameters())
    assert meter.counter.allocated() - begun <= local + 1024, "what was gathered is given back"
    return wave.closing.peak_bytes - wave.closing.baseline_bytes, RANKS * local


def errors(rank: TrainerRank) -> list[str]:
    grads = dist.get_rank() == 0
    calls: list[Callable[[], object]] = [
        lambda: trained(rank, [labelled(70, 1, grads=grads)]),
        lambda: next(iter(rank.forward_micro_batches([[labelled(70, 1), labelled(71, 1, grads=False)]]))),
        lambda: rank.dp_rank_forward([labelled(70, 1)]),
        lambda: rank.train_batch([labelled(70, 1)], lambda wave: loss_of(wave.outputs)),
    ]
    said = []
    for call in calls:
        with pytest.raises((PricingError, RuntimeError, ValueError)) as told:
            call()
        said.append(f"{type(told.value).__name__}: {told.value}")
    return said


def of_one_process(kind: str, batch: Sequence[Items]) -> dict[str, np.ndarray[Any, Any]]:
    """The ordinary forward and backward of one process on the union of the data."""
    model: Any = llama()
    KINDS[kind](model)
    for request in (request for items in batch for request in items if len(np.asarray(request.tokens))):
        tokens = torch.tensor(np.asarray(request.tokens))[None]
        if request.targets is None:
            model.model(input_ids=tokens).last_hidden_state.square().sum().backward()
            continue
        targets = torch.tensor(np.asarray(request.targets))
        log_probs = model(input_ids=tokens).logits[0].log_softmax(-1).gather(1, targets.clamp(min=0)[:, None])[:, 0]
        (log_probs * (targets >= 0)).sum().backward()
    return {
        key: torch.zeros_like(value).numpy() if value.grad is None else value.grad.numpy()
        for key, value in model.named_parameters()
        if value.requires_grad
    }


def test_two_ranks_of_a_sharded_model_train_as_one_process_does() -> None:
    outcomes = run_ranks(RANKS, everything, deadline_s=150)
    assert [outcome.error for outcome in outcomes] == [None] * RANKS, outcomes
    first, second = (outcome.value for outcome in outcomes)
    for kind, name in CASES:
        key, expected = f"{kind}, {name}", of_one_process(kind, BATCHES[name])
        for found in (first[key], second[key]):
            assert set(found["gradients"]) == set(expected), key
            for parameter, gradient in expected.items():
                scale = max(float(np.abs(gradient).max()), 1e-6)
                apart = np.abs(RANKS * found["gradients"][parameter] - gradient).max()  # FSDP takes the mean
                assert apart <= 1e-4 * scale, (key, parameter, apart, scale)
            assert not found["changed"] and all(found["complete"]) and all(found["covered"]), key
            assert found["held back"][:1] in ([], [found["local"]]) and 2 * found["local"] <= found["global"] + 4096
        assert len(first[key]["verdicts"]) == len(second[key]["verdicts"]), key
    for kind in KINDS:
        assert Verdict.EMPTY.value in second[f"{kind}, more on the first"]["verdicts"], "uneven numbers of waves"
    assert set(first["plain, none on the first"]["verdicts"]) == {Verdict.EMPTY.value}
    assert (len(first["evaluation"]), len(second["evaluation"])) == (3, 1)
    for peak_bytes, parameter_bytes in (first["gathered"], second["gathered"]):
        assert peak_bytes > parameter_bytes // 2, "the root and a layer at least were there"
    for found in (first, second):
        mixed, cut, kept, batch_of = found["errors"]
        assert mixed.startswith("OutOfStepError") and "some have rows with gradients, some without" in mixed
        assert cut.startswith("OutOfStepError") and "one forward on every rank" in cut
        assert kept.startswith("OutOfStepError") and "use forward_micro_batches" in kept
        assert batch_of.startswith("UnsupportedModelError") and "use forward_micro_batches" in batch_of
        assert len(found["after"]) == 1, "the ranks go on after errors"
