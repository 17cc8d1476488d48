"""A run survives: what `train_batch` promises when memory runs out, and when other things go wrong meanwhile.

Devices that hold a third, and errors at random, on one rank and on several, are in `test_survival_ranks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from adapters.torch_memory import PeakMeter, meter_for
from adapters.trainer_rank import (
    AdmittedOutOfMemoryError,
    MicroBatch,
    OutputsRefusedError,
    Request,
    TrainerRank,
    WaveRefusedError,
)
from adapters.wave_loop.errors import RefusalChoiceError
from benchmarks.h200.survival_ranks import Narrowing, decoder, items_of, put_before
from tests.adapters.trainer_rank.support import CPU, tiny_decoder
from tests.adapters.trainer_rank.waves import groups, loss_of

ITEMS = 40
SIZES = {"prompt": 24, "rollouts": 2, "completion": 8}


@pytest.fixture
def meter() -> Iterator[PeakMeter]:
    with meter_for(CPU) as made:
        yield made


def a_loss(wave: MicroBatch) -> Tensor:
    """A mean over the batch's tokens, so that gradients are of the size that a trainer's are."""
    return loss_of(wave.outputs) / (ITEMS * 64)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def _named(name: str, message: str) -> str:
    return f"{name}: {message}"


def assert_same_gradients(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-6, msg=partial(_named, name))


def a_rank(meter: PeakMeter, model: nn.Module, **settings: Any) -> TrainerRank:
    settings.setdefault("memory_bytes", 8 << 30)
    return TrainerRank(model, meter=meter, device=CPU, cold_transient_bytes=0, forecast=False, **settings)


def right(items: list[Any], loss: Any = a_loss, **settings: Any) -> dict[str, Tensor]:
    """The gradients of the same items, a wave each, without any trouble."""
    with meter_for(CPU) as made:
        model = decoder(CPU, recomputes=True, **settings)
        rank = a_rank(made, model)
        torch.manual_seed(7)
        for item in items:
            rank.train_batch([item], loss)
        return gradients(model)


class Once(TorchDispatchMode):
    """The first operation of this name on a gradient of the model, or on one that was set aside, fails as one of a
    library that finds no memory."""

    def __init__(self, name: str, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name = name
        self.model = model
        self.aside = {value.grad.data_ptr() for value in model.parameters() if value.grad is not None}
        self.left = 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.left and func.__name__.split(".")[0] == self.name:
            made = {value.grad.data_ptr() for value in self.model.parameters() if value.grad is not None}
            self.left -= args[0].data_ptr() in (self.aside if self.name == "add_" else made)
        if not self.left:
            self.left = -1
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        return func(*args, **(kwargs or {}))


class FailsAt:
    """A loss that runs out of memory at some of its calls, after its backward of a part of the wave."""

    def __init__(self, *calls: int, error: BaseException | None = None, loss: Any = a_loss) -> None:
        self.calls = calls
        self.error = error or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 KiB.")
        self.loss = loss
        self.seen = 0

    def __call__(self, wave: MicroBatch) -> Tensor:
        self.seen += 1
        loss: Tensor = self.loss(wave)
        if self.seen in self.calls:
            (loss * 3).backward()
            raise self.error
        return loss


def test_an_interrupt_leaves_gradients_and_the_rank_as_they_were(meter: PeakMeter) -> None:
    model = decoder(CPU, recomputes=True)
    items, rank = items_of(0, 4), a_rank(meter, model)
    for value in model.parameters():
        value.grad = torch.full_like(value, 2.0)
    with pytest.raises(KeyboardInterrupt):
        rank.train_batch(items, FailsAt(2, error=KeyboardInterrupt()))
    assert all(torch.equal(value, torch.full_like(value, 2.0)) for value in gradients(model).values())
    assert not meter._intervals and not rank._open_waves, "nothing is still being measured"
    model.zero_grad(set_to_none=True)
    result = rank.train_batch(items, a_loss)
    assert all(wave.stats.is_complete for wave in result.waves), "the next waves are read whole"
    assert_same_gradients(gradients(model), right(items))


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_dropout_draws_for_each_item_what_it_would_have_drawn(meter: PeakMeter, lora_rank: int) -> None:
    """Waves that failed are as if they had not been: also to the random numbers."""

    def noisy(wave: MicroBatch) -> Tensor:
        found = [each.target_log_probs for each in wave.outputs if each.target_log_probs is not None]
        return F.dropout(torch.cat(found), 0.5).sum() / (ITEMS * 64)

    items = items_of(0, 8)
    model = decoder(CPU, recomputes=True, lora_rank=lora_rank)
    rank = a_rank(meter, model, law="warm")
    rank.train_batch(items, a_loss)
    model.zero_grad(set_to_none=True)
    torch.manual_seed(7)
    loss_fn = FailsAt(1, 3, loss=noisy)
    result = rank.train_batch(items, loss_fn)
    waves = [wave.items for wave in result.waves]
    assert len(result.out_of_memory) == 2 and len(waves) > 1 and loss_fn.seen >= len(waves) + 2
    got = gradients(model)
    with meter_for(CPU) as other:
        again = decoder(CPU, recomputes=True, lora_rank=lora_rank)
        quorum = Narrowing()
        roomy = a_rank(other, again, quorum=quorum, law="warm")
        roomy.train_batch(items, a_loss)
        again.zero_grad(set_to_none=True)
        torch.manual_seed(7)
        quorum.widths = [len(wave) for wave in waves]
        assert [wave.items for wave in roomy.train_batch(items, noisy).waves] == waves
        wanted = gradients(again)
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("operation", ["clone", "add_"])
def test_running_out_between_waves_is_survived_too(meter: PeakMeter, operation: str) -> None:
    """The copies before a wave, and the sum with what was there before."""
    items, quorum = items_of(0, 4), Narrowing()
    model = decoder(CPU, recomputes=True)
    rank = a_rank(meter, model, quorum=quorum)
    rank.train_batch(items, a_loss)
    before = put_before(model)
    quorum.widths = [2]
    with Once(operation, model) as once:
        assert len(rank.train_batch(items, a_loss).waves) == 2
    assert once.left < 0, "it was met"
    assert_same_gradients({name: value - before[name] for name, value in gradients(model).items()}, right(items))


def test_an_error_of_a_hook_runs_out_like_any_other(meter: PeakMeter) -> None:
    items = items_of(0, 4)
    model = decoder(CPU, recomputes=True)
    rank = a_rank(meter, model)
    rank.train_batch(items, a_loss)
    model.zero_grad(set_to_none=True)
    failing = FailsAt(1)

    def hook(value: Tensor) -> None:
        failing.seen += 1
        if failing.seen == 2:
            raise failing.error

    handles = [value.register_post_accumulate_grad_hook(hook) for value in model.parameters()]
    result = rank.train_batch(items, a_loss)
    for handle in handles:
        handle.remove()
    assert len(result.out_of_memory) == 1
    assert_same_gradients(gradients(model), right(items))


def test_an_error_of_a_forward_hook_is_the_callers(meter: PeakMeter) -> None:
    model = decoder(CPU, recomputes=True)
    rank = a_rank(meter, model)
    handle = model.layers[1].register_forward_hook(raises_key_error)
    with pytest.raises(KeyError):
        rank.train_batch(items_of(0, 2), a_loss)
    handle.remove()
    assert not gradients(model) and not meter._intervals
    rank.train_batch(items_of(0, 2), a_loss)
    assert_same_gradients(gradients(model), right(items_of(0, 2)))


def raises_key_error(*_: object) -> None:
    raise KeyError("a hook")


def test_items_may_come_from_a_generator(meter: PeakMeter) -> None:
    items = items_of(0, 4)
    model = decoder(CPU, recomputes=True)
    rank = a_rank(meter, model)
    result = rank.train_batch((item for item in items), FailsAt(2))  # type: ignore[arg-type]
    assert len(result.out_of_memory) == 1
    assert_same_gradients(gradients(model), right(items))


def test_a_call_inside_a_loss_is_run_again_with_its_wave(meter: PeakMeter) -> None:
    items = items_of(0, 4)
    model = decoder(CPU, recomputes=True)
    rank = a_rank(meter, model)
    asked = []

    def nested(wave: MicroBatch) -> Tensor:
        with torch.no_grad():
            asked.append(rank.dp_rank_forward([Request(tokens=[1, 2, 3], targets=[2, 3, 4], grads=False)]))
        return a_loss(wave)

    result = rank.train_batch(items, FailsAt(2, loss=nested))
    assert len(result.out_of_memory) == 1 and len(asked) == len(result.waves) + 1
    assert_same_gradients(gradients(model), right(items))


@pytest.mark.parametrize("plain", [True, False])
def test_a_caller_who_tries_again_by_himself_gets_on(meter: PeakMeter, plain: bool) -> None:
    """Each try is narrower (E06). Without `with wave:` the rank learns from what the caller says at the next one."""
    items = items_of(0, 8)
    model = decoder(CPU, recomputes=True)
    rank = a_rank(meter, model)
    rank.train_batch(items, a_loss)
    tries: list[int] = []
    for _ in range(30):
        model.zero_grad(set_to_none=True)
        done = 0
        try:
            for wave in rank.forward_micro_batches(items):
                with wave:
                    width = wave.stats.plan.width
                    if width > 2:
                        tries.append(width)
                        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 KiB.")
                    a_loss(wave).backward()
                    done += width
        except AdmittedOutOfMemoryError as error:
            if plain:
                assert "this was learned" in str(error)
            continue
        break
    assert done == 8 and tries == sorted(set(tries), reverse=True), tries
    assert_same_gradients(gradients(model), right(items))


def test_what_cannot_be_saved_is_said_once_counted_and_saved_later(
    meter: PeakMeter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profiles = tmp_path / "profiles.json"
    profiles.mkdir()  # no file can be written in its place
    rank = a_rank(meter, decoder(CPU, recomputes=True), profiles=profiles)
    for _ in range(3):
        rank.train_batch(items_of(0, 2), a_loss)
    assert rank.save_failures >= 3
    assert len([line for line in caplog.messages if "could not be saved" in line]) == 1
    profiles.rmdir()
    rank.train_batch(items_of(0, 1), a_loss)
    assert profiles.is_file(), "everything is in the first save that works"


def test_a_choice_that_is_none_is_said_before_anything_runs(meter: PeakMeter) -> None:
    rank = a_rank(meter, decoder(CPU, recomputes=True))
    with pytest.raises(RefusalChoiceError, match="on_refusal must be one of raise, skip, got 'ignore'"):
        rank.train_batch(items_of(0, 1), a_loss, on_refusal="ignore")  # type: ignore[arg-type]


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
