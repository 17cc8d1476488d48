"""Wrapped, compiled and otherwise sharded models are refused at construction, in a sentence that says what to pass
instead (E12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.rank import TrainerRank
from tests.adapters.trainer_rank.test_identity import llama


@pytest.fixture(scope="module", autouse=True)
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = Path(tmp_path_factory.mktemp("group")) / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded_layers_and_root(model: nn.Module) -> nn.Module:
    for layer in layers_of(model):
        fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    return model


def sharded_layers_alone(model: nn.Module) -> nn.Module:
    for layer in layers_of(model):
        fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
    return model


def one_parameter(placement: Shard | Replicate) -> Callable[[nn.Module], nn.Module]:
    def change(model: nn.Module) -> nn.Module:
        mesh = init_device_mesh("cpu", (1,))
        owner = next(module for module in model.modules() if module._parameters)
        name, value = next(iter(owner._parameters.items()))
        assert value is not None
        owner._parameters[name] = nn.Parameter(distribute_tensor(value.detach(), mesh, [placement]))
        return model

    return change


def wrapped_layer(model: nn.Module) -> nn.Module:
    layers = layers_of(model)
    layers[0] = FullyShardedDataParallel(layers[0], device_id=torch.device("cpu"))
    return model


def layers_of(model: nn.Module) -> nn.ModuleList:
    return max((m for m in model.modules() if isinstance(m, nn.ModuleList)), key=len)


KINDS: dict[str, tuple[Callable[[nn.Module], nn.Module], str]] = {
    "ddp": (DistributedDataParallel, r"DistributedDataParallel.*pass what it wraps \(\.module\), and reduce gradients"),
    "compiled": (torch.compile, r"pass what it wraps \(\._orig_mod\); its layers may be compiled"),  # type: ignore[dict-item]
    "fsdp1": (
        lambda model: FullyShardedDataParallel(model, device_id=torch.device("cpu")),
        "the model is wrapped in FullyShardedDataParallel, and models sharded that way are not supported: every",
    ),
    "fsdp1 on a layer": (wrapped_layer, r"0 is wrapped in FullyShardedDataParallel, and models sharded"),
    "fsdp2 on layers": (
        sharded_layers_alone,
        r"0 is sharded by fully_shard \(FSDP2\).*on the whole model",
    ),
    "dtensor": (
        one_parameter(Shard(0)),
        "the parameter .* is a DTensor, and models sharded that way are not",
    ),
    "dtensor, replicated": (one_parameter(Replicate()), "the parameter .* is a DTensor"),
    "compiled ddp": (lambda model: torch.compile(DistributedDataParallel(model)), "DistributedDataParallel"),  # type: ignore[dict-item,return-value]
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", ["at-binding", "skip-the-check-at-binding"])
def test_it_is_refused_at_construction_and_told_what_to_pass(kind: str, check: str, meter: PeakMeter) -> None:
    change, sentence = KINDS[kind]
    ran: list[None] = []
    model = llama()
    model.register_forward_pre_hook(lambda *_: ran.append(None))
    with pytest.raises(UnsupportedModelError, match=sentence) as told:
        TrainerRank(change(model), memory_bytes=1 << 30, meter=meter, check=check)
    assert not ran and "\n" not in str(told.value)


def test_what_the_sentence_says_to_pass_is_taken(meter: PeakMeter) -> None:
    wrapped = DistributedDataParallel(llama())
    TrainerRank(wrapped.module, memory_bytes=1 << 30, meter=meter)
    compiled = torch.compile(llama())
    TrainerRank(compiled._orig_mod, memory_bytes=1 << 30, meter=meter)  # type: ignore[attr-defined]


def test_layers_and_root_sharded_by_fully_shard_are_taken(meter: PeakMeter) -> None:
    TrainerRank(sharded_layers_and_root(llama()), memory_bytes=1 << 30, meter=meter)
