"""A wave run under fake tensors allocates, to the byte, what the same wave allocates on the CPU counter."""

from __future__ import annotations

from typing import Any

import numpy as np
import peft
import pytest
import torch
from torch import Tensor

from adapters.forecast.errors import ForecastError
from adapters.forecast.fake_run import FakeRun, Routing, Target
from adapters.forecast.trace import trace_wave
from adapters.torch_memory import PeakMeter
from adapters.torch_memory.cpu_counter import StorageCounter
from adapters.trainer_rank.decoder import Decoder
from benchmarks.h200.families import build
from pricing.kernel.requests import NO_RECOMPUTE
from tests.adapters.forecast.observed import CPU, WANTED, Families, groups, observe, untouched
from tests.adapters.trainer_rank.support import tiny_decoder
from tests.adapters.trainer_rank.test_hugging_face import llama, qwen3, qwen3_moe

SHAPES: dict[str, Families] = {"alone": [(530, ())], "shared": [(300, (100, 200, 0, 5)), (90, ())]}

RECURRENT_SHAPES: dict[str, Families] = {"shared": [(70, (30, 0, 5))]}


def lora() -> Any:
    model: Any = peft.get_peft_model(qwen3(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    model.get_base_model().gradient_checkpointing_enable()
    model.enable_input_require_grads()
    return model


MODELS: dict[str, Any] = {
    "decoder": tiny_decoder,
    "decoder without recompute": lambda: tiny_decoder(recompute=NO_RECOMPUTE),
    **{name: lambda name=name: build(name, CPU, small=True) for name in ("dense", "moe", "gdn", "gdn_moe")},
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "llama": llama,
    "lora": lora,
}


OF_THIS_PROJECT = {"dense", "moe", "gdn", "gdn_moe", "decoder without recompute"}
"""One decoder class: what is asked of it is the same work in all of them, so "decoder" stands for the others."""

CASES = [(name, wanted) for name in MODELS for wanted in WANTED if name not in OF_THIS_PROJECT or wanted == "targets"]


@pytest.mark.parametrize(("name", "wanted"), CASES)
def test_a_trace_is_the_counter_to_the_byte(name: str, wanted: str) -> None:
    model = MODELS[name]()
    for shape in (RECURRENT_SHAPES if "gdn" in name else SHAPES).values():
        wave = groups(model, shape, WANTED[wanted])
        seen = observe(model, untouched(wave))
        both = name in ("moe", "qwen3_moe") and wanted == "targets"
        for routing in Routing if both else [Routing.BALANCED]:  # rows are the same however they are spread
            traced = trace_wave(model, untouched(wave), target=Target.CPU, routing=routing)
            assert max(traced.phase_peaks[:2]) == seen.forward_peak_bytes
            assert traced.held_bytes == seen.held_bytes
            assert traced.peak_bytes == seen.peak_bytes


@pytest.mark.parametrize("name", ["decoder", "lora"])
def test_a_trace_leaves_the_model_and_a_live_meter_alone(name: str, meter: PeakMeter) -> None:
    model = MODELS[name]()
    wave = groups(model, SHAPES["shared"], WANTED["targets"])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert isinstance(meter.counter, StorageCounter)
    live = meter.counter.allocated(), meter.counter.peaks()
    trace_wave(model, untouched(wave), target=Target.CUDA)
    assert (meter.counter.allocated(), meter.counter.peaks()) == live
    assert all(value.grad is None for value in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.ones(2).sum().item() == 2.0  # tensors are real again


def test_gradients_that_are_there_are_not_made_again() -> None:
    model = tiny_decoder()
    wave = groups(model, SHAPES["alone"], WANTED["targets"])
    first = trace_wave(model, untouched(wave), target=Target.CPU)
    trainable = sum(value.nbytes for value in model.parameters())
    assert first.made_gradient_bytes == trainable
    later = trace_wave(model, untouched(wave), target=Target.CPU, has_gradients=True)
    assert later.made_gradient_bytes == 0
    assert later.peak_bytes < first.peak_bytes
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    assert trace_wave(model, untouched(wave), target=Target.CPU).phase_peaks == later.phase_peaks


def test_on_cuda_blocks_are_rounded_and_attention_keeps_no_mask() -> None:
    model = tiny_decoder()
    wave = groups(model, [(4000, ())], WANTED["targets"])
    cpu = trace_wave(model, untouched(wave), target=Target.CPU)
    cuda = trace_wave(model, untouched(wave), target=Target.CUDA)
    assert all(peak % 512 == 0 for peak in cuda.phase_peaks)
    assert cuda.phase_peaks[0] < cpu.phase_peaks[0] - 256 * 4000  # no mask of 256 queries by every key


class _LooksAtValues(Decoder):
    """A model whose shapes depend on values that nobody knows."""

    def packed_hidden_states(self, rows: Any) -> Tensor:
        hidden = super().packed_hidden_states(rows)
        return hidden + (len(hidden[hidden > 0]) < 0)


def test_what_cannot_be_traced_says_why() -> None:
    model = _LooksAtValues(tiny_decoder().config).train()
    with pytest.raises(ForecastError, match="_LooksAtValues cannot be run without values: DynamicOutputShape"):
        trace_wave(model, groups(model, SHAPES["alone"], WANTED["targets"]), target=Target.CPU)
    assert torch.ones(2).sum().item() == 2.0


def test_known_whole_numbers_decide_shapes_and_choices_follow_the_assumption() -> None:
    def counts(routing: Routing) -> list[int]:
        run = FakeRun(Target.CPU, routing)
        with run.running():
            table = torch.from_numpy(np.array([[0, 3], [2, 0]]))
            assert table.nonzero().shape == (2, 2)
            assert torch.arange(5)[torch.arange(5) % 2 == 0].shape == (3,)
            assert int(table.sum()) == 5
            assert not run.chose
            chosen = torch.rand(6, 4).topk(2, dim=-1).indices
            found = torch.bincount(chosen.flatten(), minlength=4).tolist()
            assert run.chose
        return [int(count) for count in found]

    assert counts(Routing.BALANCED) == [3, 3, 3, 3]
    assert counts(Routing.ONE_SIDED) == [6, 6, 0, 0]


def test_a_number_changed_in_place_is_the_changed_one() -> None:
    run = FakeRun(Target.CPU)
    with run.running():
        numbers = torch.arange(4)
        before = numbers * 1
        numbers.add_(2)
        assert (numbers > 3).nonzero().shape == (2, 1)
        assert (before > 3).nonzero().shape == (0, 1)
