"""A run survives: a device that holds a third of what its budget claims, and every error that means out of memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from adapters.torch_memory import PeakMeter, meter_for
from adapters.trainer_rank import (
    AdmittedOutOfMemoryError,
    MicroBatch,
    OutOfMemoryRefusedError,
    OutputsRefusedError,
    Request,
    TrainerRank,
    WaveRefusedError,
)
from tests.adapters.trainer_rank.support import CPU, tiny_decoder
from tests.adapters.trainer_rank.waves import groups, loss_of

ITEMS = 40
SIZES = {"prompt": 24, "rollouts": 2, "completion": 8}


class Scarce(TorchDispatchMode):
    """Operations run out of memory as soon as more than `limit_bytes` are live, as on a device of that size."""

    def __init__(self, meter: PeakMeter, limit_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.meter = meter
        self.limit_bytes = limit_bytes
        self.raised = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.meter.counter.allocated() > self.limit_bytes:
            self.raised += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
        return result


@pytest.fixture
def meter() -> Iterator[PeakMeter]:
    with meter_for(CPU) as made:
        yield made


def a_loss(wave: MicroBatch) -> Tensor:
    """A mean over the batch's tokens, so that gradients are of the size that a trainer's are."""
    return loss_of(wave.outputs) / (ITEMS * 64)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def unlimited(items: list[Any]) -> dict[str, Tensor]:
    """The gradients of the same items on a device that holds them all."""
    with meter_for(CPU) as made:
        model = tiny_decoder()
        TrainerRank(
            model, meter=made, memory_bytes=8 << 30, device=CPU, cold_transient_bytes=0, forecast=False
        ).train_batch(items, a_loss)
        return gradients(model)


def _named(name: str, message: str) -> str:
    return f"{name}: {message}"


def assert_same_gradients(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-6, msg=partial(_named, name))


def most_bytes(meter: PeakMeter, law: str) -> int:
    """What one item at a time needs, above what is live: the least that a device must hold."""
    model = tiny_decoder()
    rank = TrainerRank(
        model, meter=meter, memory_bytes=8 << 30, device=CPU, cold_transient_bytes=0, forecast=False, law=law
    )
    peaks = []
    for item in groups(3, **SIZES):
        result = rank.train_batch([item], a_loss)
        peaks += [wave.stats.observed_bytes or 0 for wave in result.waves]
    return max(peaks)


@pytest.mark.parametrize(("law", "before"), [("warm", True), ("frontier", False)])
def test_every_item_is_trained_on_a_device_that_holds_a_third(
    meter: PeakMeter, tmp_path: Path, law: str, before: bool
) -> None:
    items = groups(ITEMS, **SIZES)
    wanted = unlimited(items)
    with meter_for(CPU) as meter:
        need = most_bytes(meter, law)
        model = tiny_decoder()
        if before:
            for value in model.parameters():
                value.grad = torch.ones_like(value)
        live = meter.counter.allocated() + sum(value.nbytes for value in model.parameters()) * (1 + before)
        really = live + 4 * need
        profiles = tmp_path / "profiles.json"

        def a_rank() -> TrainerRank:
            return TrainerRank(
                model,
                meter=meter,
                memory_bytes=live + 12 * need,
                device=CPU,
                cold_transient_bytes=0,
                forecast=False,
                law=law,
                profiles=profiles,
            )

        rank, device = a_rank(), Scarce(meter, really)
        with device:
            result = rank.train_batch(items, a_loss)
        assert device.raised, "the device ran out"
        assert [item for wave in result.waves for item in wave.items] == list(range(ITEMS))
        assert len(result.out_of_memory) <= 24, "each raises the price by 1/16 at least"
        got = gradients(model)
        if before:
            got = {name: value - 1 for name, value in got.items()}
        assert_same_gradients(got, wanted)

        for again in (rank, a_rank()):  # the second epoch, and a restarted process
            model.zero_grad(set_to_none=True)
            with Scarce(meter, really) as quiet:
                second = again.train_batch(items, a_loss)
            assert not quiet.raised and not second.out_of_memory
            assert_same_gradients(gradients(model), wanted)


ERRORS = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
)


class Injected(TorchDispatchMode):
    """Raises one error at one operation, counted from the start. Views do nothing on a device that could fail."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.at = at
        self.error = error

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.at -= not func.is_view
        if self.at == 0 and not func.is_view:
            raise self.error
        return func(*args, **(kwargs or {}))


@contextmanager
def counted() -> Iterator[list[int]]:
    mode = Injected(-1, RuntimeError())
    count = [0]
    with mode:
        yield count
    count[0] = -1 - mode.at


@pytest.mark.parametrize("seed", range(12))
def test_an_injected_error_anywhere_loses_and_repeats_no_gradient(meter: PeakMeter, seed: int) -> None:
    draw = random.Random(seed)
    items = groups(4, **SIZES)
    wanted = unlimited(items)
    with meter_for(CPU) as meter:
        model = tiny_decoder()
        rank = TrainerRank(
            model,
            meter=meter,
            memory_bytes=8 << 30,
            device=CPU,
            cold_transient_bytes=0,
            forecast=False,
            law=draw.choice(["warm", "frontier"]),
        )
        with counted() as operations:
            rank.train_batch(items, a_loss)
        model.zero_grad(set_to_none=True)
        kept = {name: value.detach().clone() for name, value in model.named_parameters()}
        error = draw.choice(ERRORS)
        try:
            with Injected(draw.randint(1, operations[0]), type(error)(*error.args)):
                result = rank.train_batch(items, a_loss)
        except (AdmittedOutOfMemoryError, OutOfMemoryRefusedError, WaveRefusedError):
            assert not gradients(model), "what was there before the call is there after it"
        else:
            assert [item for wave in result.waves for item in wave.items] == list(range(4))
            assert_same_gradients(gradients(model), wanted)
        for name, value in model.named_parameters():
            assert torch.equal(value, kept[name])


def test_another_error_leaves_gradients_as_they_were(meter: PeakMeter) -> None:
    model = tiny_decoder()
    for value in model.parameters():
        value.grad = torch.full_like(value, 2.0)
    rank = TrainerRank(model, meter=meter, memory_bytes=8 << 30, device=CPU, cold_transient_bytes=0, forecast=False)
    calls = []

    def failing(wave: MicroBatch) -> Tensor:
        calls.append(wave)
        if len(calls) == 2:
            raise ValueError("a bug of the caller's")
        return a_loss(wave)

    with pytest.raises(ValueError, match="a bug"):
        rank.train_batch(groups(4, **SIZES), failing)
    assert all(torch.equal(value, torch.full_like(value, 2.0)) for value in gradients(model).values())


def test_an_item_that_cannot_run_is_left_out_by_name(meter: PeakMeter) -> None:
    model = tiny_decoder()
    items = groups(3, **SIZES)
    rank = TrainerRank(model, meter=meter, memory_bytes=8 << 30, device=CPU, cold_transient_bytes=0, forecast=False)
    rank.train_batch(items, a_loss)
    big = [[request for item in groups(24, **SIZES) for request in item]]
    limit = meter.counter.allocated() + 2 * rank.plan(items[:1]).required_bytes
    small = TrainerRank(model, meter=meter, memory_bytes=limit, device=CPU, cold_transient_bytes=0, forecast=False)
    for signature in rank.profiles:
        small.profiles.put(signature, rank.profiles[signature])
    model.zero_grad(set_to_none=True)
    result = small.train_batch([items[0], *big, items[1]], a_loss, on_refusal="skip")
    assert [skipped.item for skipped in result.skipped] == [1]
    assert [item for wave in result.waves for item in wave.items] == [0, 2]
    with pytest.raises(WaveRefusedError, match="item 1"):
        small.train_batch([items[0], *big, items[1]], a_loss)


def test_outputs_that_can_never_fit_together_are_refused_before_anything_runs(meter: PeakMeter) -> None:
    model = tiny_decoder()
    rank = TrainerRank(model, meter=meter, memory_bytes=8 << 30, device=CPU, cold_transient_bytes=0, forecast=False)
    items = [Request(tokens=[1 + n % 9] * 400, hidden_states=True, grads=False) for n in range(40)]
    kept = rank.dp_rank_forward(items[:4])
    limit = meter.counter.allocated() + sum(tensor.nbytes for output in kept for tensor in output.tensors()) * 9
    small = TrainerRank(model, meter=meter, memory_bytes=limit, device=CPU, cold_transient_bytes=0, forecast=False)
    ran: list[int] = []
    handle = model.register_forward_hook(lambda *_: ran.append(1))
    with pytest.raises(
        OutputsRefusedError, match=r"the outputs of these items take .* and stay alive together"
    ) as caught:
        small.dp_rank_forward(items)
    handle.remove()
    assert not ran
    assert caught.value.output_bytes > caught.value.available_bytes
    assert caught.value.holdings.outputs_bytes > 0, "those of the first call are still held"
    assert "outputs of earlier waves that are still alive" in str(caught.value)
    del kept
