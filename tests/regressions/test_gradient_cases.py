"""Gradients in whole training loops (public cases E01, E02, E03 and their kinds): counted once, wherever they are made
and let go, by a real rank on the CPU's own counter."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from adapters.torch_memory import Flaw, PeakMeter, StorageCounter
from adapters.trainer_rank import MicroBatch, Request, TrainerRank
from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from pricing import Profile, required_bytes
from tests.adapters.trainer_rank.waves import given_bytes, loss_of

MIB = 1 << 20
VOCABULARY = 97
SHAPE = DecoderConfig(
    vocabulary=VOCABULARY, hidden=64, layers=3, heads=4, kv_heads=2, head_dim=16, feed_forward=2048, dtype=torch.float32
)  # 4.8 MiB of parameters


@pytest.fixture
def meter() -> Iterator[PeakMeter]:
    with PeakMeter(StorageCounter()) as meter:
        yield meter


def request(rows: int, seed: int = 0) -> Request:
    drawn = np.random.default_rng(1_000 * rows + seed).integers(0, VOCABULARY, rows)
    return Request(tokens=drawn, targets=np.roll(drawn, -1))


class SignMomentum:
    """An optimizer that PyTorch does not know: its states are made at its first step."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._momenta: dict[nn.Parameter, torch.Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        for value in self._parameters:
            if value.grad is not None:
                momentum = self._momenta.setdefault(value, torch.zeros_like(value))
                momentum.mul_(0.9).add_(value.grad)
                value.add_(momentum.sign(), alpha=-1e-5)


Optimizer = Callable[[list[nn.Parameter]], object]
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda values: torch.optim.SGD(values, lr=1e-4),
    "adamw": lambda values: torch.optim.AdamW(values, lr=1e-4, foreach=False),
    "foreach adamw": lambda values: torch.optim.AdamW(values, lr=1e-4, foreach=True),
    "fused adamw": lambda values: torch.optim.AdamW(values, lr=1e-4, fused=True),
    "unknown": SignMomentum,
}


@dataclass(kw_only=True)
class Training:
    """One training loop. zero_at: where gradients are let go. in_backward: the optimizer steps a parameter at a time
    inside backward. lora: only a few small matrices train. profiles: where what was learned is kept.
    device_bytes: what the CPU stands for, where it is not roomy; for ranks started from then on."""

    meter: PeakMeter
    optimizer: str = "sgd"
    zero_at: str = "end"
    set_to_none: bool = True
    in_backward: bool = False
    lora: bool = False
    law: str = "frontier"
    profiles: Path | None = None
    device_bytes: int | None = None
    rank: TrainerRank = field(init=False)
    waves: list[MicroBatch] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.model = Decoder(replace(SHAPE, lora_rank=8 if self.lora else 0)).train()
        self.trained = [value for value in self.model.parameters() if value.requires_grad]
        assert self.trained
        counter = self.meter.counter
        assert isinstance(counter, StorageCounter)
        counter.track(self.model.parameters())
        self.start()
        if self.in_backward:
            for value in self.trained:
                value.register_post_accumulate_grad_hook(self._stepper(value))
        else:
            self._optimizer = OPTIMIZERS[self.optimizer](self.trained)

    def start(self) -> None:
        """A rank that knows what the file says; the model, its gradients and the optimizer stay."""
        self.rank = TrainerRank(
            self.model,
            meter=self.meter,
            memory_bytes=512 * MIB,
            cold_transient_bytes=0,
            law=self.law,
            forecast=False,
            check="skip-the-check-at-binding",
            profiles=self.profiles,
        )
        if self.device_bytes is not None:
            given_bytes(self.rank, self.device_bytes - self.meter.counter.allocated())

    def _stepper(self, value: nn.Parameter) -> Callable[[torch.Tensor], None]:
        optimizer = OPTIMIZERS[self.optimizer]([value])

        def step(_value: torch.Tensor) -> None:
            optimizer.step()  # type: ignore[attr-defined]
            value.grad = None

        return step

    def zero(self) -> None:
        self.model.zero_grad(set_to_none=self.set_to_none)

    def step(self, lengths: list[int], *, accumulates: bool = False, alone: bool = False) -> None:
        """One optimizer step over the items, in as many waves as the device allows. accumulates: no step yet. alone:
        each item in a call of its own."""
        if self.zero_at == "start":
            self.zero()
        calls = [[request(rows)] for rows in lengths] if alone else [[request(rows) for rows in lengths]]
        waves = (wave for call in calls for wave in self.rank.forward_micro_batches(call))
        missing, is_first = self.missing_bytes(), True
        for wave in waves:
            self.assert_held_back(wave, *missing)
            loss = loss_of(wave.outputs)
            if self.zero_at == "inside" and is_first:
                self.zero()
            loss.backward()
            del loss
            missing, is_first = self.missing_bytes(), False
            self.waves.append(wave)
        if not self.in_backward and not accumulates:
            self._optimizer.step()  # type: ignore[attr-defined]
        if self.zero_at == "end":
            self.zero()

    def missing_bytes(self) -> tuple[int, int]:
        """Of gradients that the next backward makes: all together, and the largest."""
        missing = [value.nbytes for value in self.trained if value.requires_grad and value.grad is None]
        return sum(missing), max(missing, default=0)

    def assert_held_back(self, wave: MicroBatch, missing_bytes: int, largest_bytes: int) -> None:
        """An account of its own: each gradient that is not there counts once, and those that never coexist do not."""
        if self.in_backward:
            assert wave.stats.gradient_bytes <= largest_bytes
        else:
            assert wave.stats.gradient_bytes == missing_bytes

    @property
    def profile(self) -> Profile:
        (profile,) = self.rank.profiles.values()
        return profile

    def peak_bytes(self) -> int:
        """The highest bytes in use that any wave saw."""
        return max(wave.stats.closing.peak_bytes for wave in self.waves if wave.stats.closing is not None)

    def assert_priced(self, waves: list[MicroBatch]) -> None:
        """What each wave took above its start was held against the device."""
        for wave in waves:
            closing = wave.stats.closing
            assert closing is not None
            assert closing.peak_bytes - closing.baseline_bytes <= wave.stats.admission.required_bytes

    def assert_covered(self) -> None:
        """No reading lies above the price of its wave now."""
        for wave in self.waves:
            closing = wave.stats.closing
            assert closing is not None and closing.reading is not None
            assert closing.reading.peak_delta_bytes <= required_bytes(
                wave.stats.plan.wave, self.profile, self.rank.law, self.rank.safety
            )


LENGTHS = [120, 60, 100]
LAWS = ("logical", "packed", "warm", "frontier")
LOOPS: list[dict[str, object]] = [
    {"optimizer": optimizer, "zero_at": zero_at, "set_to_none": set_to_none}
    for optimizer in OPTIMIZERS
    for zero_at, set_to_none in (("end", True), ("start", True), ("end", False), ("inside", True), ("inside", False))
    if optimizer == "sgd" or (zero_at, set_to_none) in {("end", True), ("inside", False)}
]
LOOPS += [{"lora": True, "optimizer": optimizer, "zero_at": "end"} for optimizer in ("adamw", "foreach adamw")]
LOOPS += [{"in_backward": True, "optimizer": optimizer, "zero_at": "end"} for optimizer in ("sgd", "adamw")]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: " ".join(str(value) for value in loop.values()))
def test_every_step_of_a_training_loop_runs(meter: PeakMeter, loop: dict[str, object]) -> None:
    """On a device with a quarter to spare over the widest item alone, nothing is refused for bookkeeping, and no wave
    takes more than was held against the device. (The safety factor takes its part of that, and gradients that are made
    after the peak: rows and all gradients are held against the device together, which no moment of a wave reaches.)"""
    alone = Training(meter=meter, **loop)  # type: ignore[arg-type]
    for _ in range(2):
        for rows in LENGTHS:
            alone.step([rows])
    needed_bytes = alone.peak_bytes()
    held = [value.grad for value in alone.trained if value.grad is not None]
    without_bytes = meter.counter.allocated() - sum(gradient.nbytes for gradient in held)
    del held
    spare_bytes = (needed_bytes - without_bytes) // 4
    if alone.zero_at == "inside":  # priced as if the gradients stayed: they do when the next wave accumulates
        spare_bytes += sum(value.nbytes for value in alone.trained)
    alone.waves.clear()
    given_bytes(alone.rank, needed_bytes + spare_bytes - meter.counter.allocated())
    for _ in range(2):
        alone.step(LENGTHS)
    assert sum(len(wave.items) for wave in alone.waves) == 2 * len(LENGTHS)
    alone.assert_priced(alone.waves)
    alone.assert_covered()


@pytest.mark.parametrize("law", LAWS)
def test_gradients_are_no_cost_of_rows(meter: PeakMeter, law: str) -> None:
    """E01: the wave that makes the gradients reads like the one that finds them there."""
    training = Training(meter=meter, law=law)
    training.step([100])
    training.step([100])
    training.zero_at = "never"
    training.step([100])
    training.step([100])
    making, _, _, finding = (wave.stats.closing for wave in training.waves)
    assert making is not None and finding is not None and making.reading is not None and finding.reading is not None
    gradient_bytes = sum(value.nbytes for value in training.trained)
    assert making.left_bytes > gradient_bytes // 2 and finding.left_bytes == 0
    assert abs(making.reading.peak_delta_bytes - finding.reading.peak_delta_bytes) < gradient_bytes // 100


def test_gradients_that_are_cut_from_one_buffer_count_once(meter: PeakMeter) -> None:
    """Of E01's kind: flat buffers, as data parallel trainers keep them. What a wave made comes off its reading once."""
    training = Training(meter=meter)
    sizes = [value.numel() for value in training.trained]
    buffers: list[torch.Tensor] = []

    def cut(at: int) -> Callable[[torch.Tensor], None]:
        def move(value: torch.Tensor) -> None:
            if not buffers:
                buffers.append(torch.zeros(sum(sizes)))
            own, gradient = buffers[0][sum(sizes[:at]) : sum(sizes[: at + 1])].view_as(value), value.grad
            assert gradient is not None
            if gradient.data_ptr() != own.data_ptr():
                value.grad = own.copy_(gradient)

        return move

    for at, value in enumerate(training.trained):
        value.register_post_accumulate_grad_hook(cut(at))
    looks = []
    for _ in range(2):
        for wave in training.rank.forward_micro_batches([request(100)]):
            loss_of(wave.outputs).backward()
            training.waves.append(wave)
        looks.append(training.waves[-1].stats.closing)
    making, finding = looks
    assert making is not None and finding is not None and making.reading is not None and finding.reading is not None
    assert 0 < making.left_bytes <= buffers[0].nbytes
    assert making.reading.peak_delta_bytes >= finding.reading.peak_delta_bytes * 99 // 100


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_die_inside_do_not_hide_the_peak(meter: PeakMeter, law: str, set_to_none: bool) -> None:
    """E02: zero_grad() between forward and backward, then a step of two micro-batches."""
    training = Training(meter=meter, law=law, zero_at="inside", set_to_none=set_to_none)
    for rows in (200, 210, 220, 190):
        training.step([rows])
    given_bytes(training.rank, 512 * MIB)
    seen = len(training.waves)
    training.step([200])
    training.zero_at = "never"
    training.step([210])
    training.assert_priced(training.waves[seen:])
    training.assert_covered()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_step_inside_backward_teaches_and_holds_nothing_back(meter: PeakMeter, law: str, optimizer: str) -> None:
    """E03: gradients never coexist, so all of them are never held back; such waves are complete evidence."""
    training = Training(meter=meter, law=law, in_backward=True, optimizer=optimizer)
    for rows in (60, 80, 100, 80):
        training.step([rows])
    last = training.waves[-1].stats
    assert last.closing is not None and last.is_complete
    assert Flaw.STEP_BEFORE_BACKWARD not in last.closing.flaws
    assert last.budget.held_back_bytes == 0
    assert training.profile.complete_readings >= 4


class HalfMomentum(SignMomentum):
    """Keeps its states in half as many bytes as there are gradients, and a scratch of its own while it steps."""

    @torch.no_grad()
    def step(self) -> None:
        for value in self._parameters:
            if value.grad is not None:
                self._momenta.setdefault(value, torch.zeros_like(value, dtype=torch.bfloat16))
                value.add_(torch.cat([value.grad.flatten()] * 8)[: value.numel()].view_as(value).sign(), alpha=-1e-5)


UNKNOWN = {"momentum": SignMomentum, "half momentum and scratch": HalfMomentum}


def stepping_inside(meter: PeakMeter, law: str, kind: type[SignMomentum] | None) -> list[int]:
    """Peaks that waves of equal rows taught, where an optimizer that torch does not know steps inside each of them.

    What earlier tests left in cycles is collected first: where it dies in the wave in which states are made, the one
    hides the other.
    """
    gc.collect()
    training = Training(meter=meter, law=law, zero_at="never")
    optimizer = None if kind is None else kind(training.trained)
    peaks = []
    for _ in range(4):
        for wave in training.rank.forward_micro_batches([request(100)]):
            loss_of(wave.outputs).backward()
            if optimizer is not None:
                optimizer.step()
            training.waves.append(wave)
        closing = training.waves[-1].stats.closing
        assert closing is not None and closing.reading is not None
        peaks.append(closing.reading.peak_delta_bytes)
    training.assert_covered()
    return peaks


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", UNKNOWN)
def test_states_of_an_optimizer_that_torch_does_not_know_are_no_cost_of_rows(
    meter: PeakMeter, law: str, kind: str
) -> None:
    """It is no `torch.optim.Optimizer`, so no hook of torch tells of its step: its states are noticed by what stays
    allocated after the wave. The first wave, in which they are made, teaches what the same wave does without them."""
    without = stepping_inside(meter, law, None)
    within = stepping_inside(meter, law, UNKNOWN[kind])
    gradient_bytes = 5 * MIB  # of which at least half are states
    assert abs(within[0] - without[0]) < gradient_bytes // 100
