"""First waves of a `TrainerRank`: priced by a forecast, above what is then observed."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import Request, TrainerRank, WaveRefusedError
from tests.adapters.trainer_rank.support import tiny_decoder, tokens
from tests.adapters.trainer_rank.test_hugging_face import llama, qwen3, qwen3_moe


def lora(model: Any) -> Any:
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    model.get_base_model().gradient_checkpointing_enable()
    model.enable_input_require_grads()
    return model


def recomputed(model: Any) -> Any:
    model.gradient_checkpointing_enable()
    return model


MODELS: dict[str, Any] = {
    "decoder": tiny_decoder,
    "qwen3, full": qwen3,
    "qwen3, full, recompute": lambda: recomputed(qwen3()),
    "qwen3, LoRA": lambda: lora(qwen3()),
    "qwen3_moe, full": qwen3_moe,
    "qwen3_moe, LoRA": lambda: lora(qwen3_moe()),
    "llama, full": llama,
    "llama, LoRA": lambda: lora(llama()),
}

WANTED: dict[str, dict[str, Any]] = {
    "labels": {"targets": True},
    "logits": {"targets": True, "logits": True},
    "hidden states without gradients": {"hidden_states": True, "grads": False},
}

CASES = [
    *((name, "labels") for name in MODELS),
    *((name, "logits") for name in ("decoder", "qwen3, LoRA", "qwen3_moe, full")),
    *((name, "hidden states without gradients") for name in ("decoder", "qwen3_moe, LoRA", "llama, full")),
]
"""Every model with labels; the other wants with one of each kind of model."""


def request(rows: int, *, targets: bool = False, **wanted: Any) -> Request:
    row = tokens(rows, rows)
    return Request(tokens=row, targets=tokens(rows, rows + 1) if targets else None, **wanted)


def first_wave(rank: TrainerRank, items: list[Any]) -> Any:
    for wave in rank.forward_micro_batches(items):
        with wave:
            wanted = [t for output in wave.outputs for t in output.tensors() if t.requires_grad]
            if wanted:
                torch.stack([tensor.sum() for tensor in wanted]).sum().backward()
        return wave
    raise AssertionError("no wave ran")


@pytest.mark.parametrize(("name", "wanted"), CASES)
def test_the_first_wave_costs_no_more_than_its_price(name: str, wanted: str, meter: PeakMeter) -> None:
    model = MODELS[name]()
    rank = TrainerRank(model, meter=meter, memory_bytes=1 << 30, cold_transient_bytes=0)
    kept_back = sum(value.nbytes for value in model.parameters() if value.requires_grad)
    wave = first_wave(rank, [[request(700, **WANTED[wanted]), request(64, **WANTED[wanted])]])
    stats = wave.stats
    assert stats.binding_term == "forecast"
    assert stats.is_complete
    assert stats.observed_bytes is not None
    held = stats.plan.price.required_bytes + (kept_back if "without" not in wanted else 0)
    assert stats.observed_bytes <= held <= 1.6 * stats.observed_bytes  # 11/10, and 4/3 for a footprint


def test_a_long_first_item_is_refused_with_its_forecast_where_the_floor_let_it_run(meter: PeakMeter) -> None:
    """One item alone, however long, used to be admitted by its floor: a tenth of what it needs."""
    items = [[request(3_000, targets=True)]]
    admitted = TrainerRank(tiny_decoder(), meter=meter, memory_bytes=4 << 20, cold_transient_bytes=0, forecast=False)
    assert admitted.plan(items).runs
    rank = TrainerRank(tiny_decoder(), meter=meter, memory_bytes=4 << 20, cold_transient_bytes=0)
    with pytest.raises(WaveRefusedError, match="binding term forecast") as refused:
        next(rank.forward_micro_batches(items))
    assert "forecast, without its safety factor" in str(refused.value)
    roomy = TrainerRank(tiny_decoder(), meter=meter, memory_bytes=1 << 30, cold_transient_bytes=0)
    assert first_wave(roomy, items).stats.observed_bytes > 4 << 20


def test_logits_are_not_priced_by_what_labels_taught(meter: PeakMeter) -> None:
    rank = TrainerRank(tiny_decoder(), meter=meter, memory_bytes=1 << 30, cold_transient_bytes=0)
    first_wave(rank, [[request(500, targets=True)]])
    later = first_wave(rank, [[request(500, targets=True, logits=True)]])
    assert later.stats.binding_term == "forecast"
    assert later.stats.observed_bytes <= later.stats.plan.price.required_bytes


def test_a_reading_takes_over(meter: PeakMeter) -> None:
    rank = TrainerRank(tiny_decoder(), meter=meter, memory_bytes=1 << 30, cold_transient_bytes=0)
    assert first_wave(rank, [[request(500, targets=True)]]).stats.binding_term == "forecast"
    assert first_wave(rank, [[request(500, targets=True)]]).stats.binding_term == "all_readings"


def test_what_cannot_be_forecast_starts_from_the_floor(meter: PeakMeter, caplog: pytest.LogCaptureFixture) -> None:
    def loss(outputs: Any) -> Any:
        value = outputs[0].target_log_probs.sum()
        return value * (2.0 if value.item() > 0 else 1.0)

    rank = TrainerRank(tiny_decoder(), meter=meter, memory_bytes=1 << 30, forecast_loss=loss)
    assert first_wave(rank, [[request(100, targets=True)]]).stats.binding_term == "cold"
    assert "the static floor prices the first wave: Decoder cannot be run without values" in caplog.text
