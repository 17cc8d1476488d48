"""Hugging Face decoders run packed rows and equal their own unshared run; also under LoRA and recompute."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
import transformers
from torch import nn

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import TrainerRank
from adapters.trainer_rank.binding import HuggingFaceDecoder, PackedModel, bind_model
from adapters.trainer_rank.errors import UnsupportedModelError
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL
from tests.adapters.trainer_rank.support import VOCABULARY, a_tree, assert_shared_equals_unshared, tokens
from tests.adapters.trainer_rank.waves import groups, train

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
}


def qwen3(**changes: Any) -> Any:
    torch.manual_seed(0)
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES | changes)).train()


def qwen3_moe() -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, decoder_sparse_step=1
    )
    return transformers.Qwen3MoeForCausalLM(config).train()


def llama() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).train()


@pytest.mark.parametrize("build", [qwen3, qwen3_moe, llama])
def test_shared_equals_unshared(build: Any) -> None:
    assert_shared_equals_unshared(build(), a_tree())


def test_shared_equals_unshared_with_lora_and_recompute() -> None:
    model = peft.get_peft_model(
        qwen3(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    )
    model.get_base_model().gradient_checkpointing_enable()  # type: ignore[operator]
    model.enable_input_require_grads()
    assert bind_model(model).recompute_mode() == ONE_LAYER_FULL
    assert_shared_equals_unshared(model, a_tree())
    trained = [name for name, value in model.named_parameters() if value.grad is not None]
    assert trained
    assert all("lora_" in name for name in trained)


def test_the_unshared_run_is_the_models_own_forward() -> None:
    """Binding must not change what ordinary calls of the model compute."""
    model = qwen3()
    row = torch.from_numpy(tokens(30))[None]
    padded = torch.ones(1, 30, dtype=torch.long)
    padded[0, :4] = 0
    before = model(row).logits, model(row, attention_mask=padded).logits
    binding = bind_model(model)
    assert isinstance(binding, HuggingFaceDecoder)
    after = model(row).logits, model(row, attention_mask=padded).logits
    torch.testing.assert_close(after[0], before[0])
    torch.testing.assert_close(after[1][0, 4:], before[1][0, 4:])


def test_recompute_is_read_from_the_layers_live() -> None:
    model = qwen3()
    binding = bind_model(model)
    assert binding.recompute_mode() == NO_RECOMPUTE
    model.gradient_checkpointing_enable()
    assert binding.recompute_mode() == ONE_LAYER_FULL
    assert binding.recompute_mode().is_one_layer_full
    model.eval()
    assert not binding.recompute_mode().is_one_layer_full
    model.train()
    model.model.layers[1].eval()
    assert not binding.recompute_mode().is_one_layer_full
    model.train()
    model.model.layers[1].gradient_checkpointing = False
    assert not binding.recompute_mode().is_one_layer_full
    model.gradient_checkpointing_disable()
    assert binding.recompute_mode() == NO_RECOMPUTE


def test_models_whose_shared_rows_would_differ_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="attention_dropout"):
        bind_model(qwen3(attention_dropout=0.1))
    with pytest.raises(UnsupportedModelError, match="neither a PackedModel"):
        bind_model(nn.Linear(2, 2))


def test_a_binding_is_a_packed_model() -> None:
    assert isinstance(bind_model(qwen3()), PackedModel)


def test_a_qwen3_with_lora_trains_in_measured_waves_with_the_callers_own_optimizer(meter: PeakMeter) -> None:
    """Waves with gradient accumulation give the step that one unshared pass over everything gives."""
    items = groups(3, prompt=70, rollouts=2, completion=10)
    stepped = []
    for shared in (True, False):
        model = peft.get_peft_model(qwen3(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
        model.get_base_model().gradient_checkpointing_enable()  # type: ignore[operator]
        model.enable_input_require_grads()
        optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-2)
        rank = TrainerRank(model, meter=meter, memory_bytes=512 << 20, cold_transient_bytes=0)
        calls = [items] if shared else [[[request]] for item in items for request in item]
        for step in range(2):
            waves = [wave for call in calls for wave in train(rank, call)]
            assert all(wave.stats.is_complete for wave in waves), step
            optimizer.step()
            optimizer.zero_grad()
        if shared:
            assert any(len(wave.items) > 1 for wave in waves)
            assert all(wave.stats.plan.wave.packed_rows < wave.stats.plan.wave.logical_rows for wave in waves)
        stepped.append(torch.cat([v.detach().flatten() for n, v in model.named_parameters() if "lora_B" in n]))
    assert stepped[0].abs().max() > 1e-3
    torch.testing.assert_close(stepped[0], stepped[1], rtol=1e-3, atol=1e-4)
