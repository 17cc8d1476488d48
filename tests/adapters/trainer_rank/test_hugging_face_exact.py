"""Case E13 and its kin: Hugging Face decoders run packed as their ordinary forward runs each request, or not at all.

Everything here is compared with the model's plain forward, never with a packed run of ours.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from torch import Tensor

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import Request, RequestError, TrainerRank, UnsupportedModelError
from adapters.trainer_rank.binding import SKIP_THE_CHECK, bind_model
from adapters.trainer_rank.check import check_packed_execution
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.rows import PackedRows, tree_rows
from tests.adapters.trainer_rank.families import (
    FAMILIES,
    VOCABULARY,
    a_tree,
    gradients,
    packed_log_probs,
    plain_log_probs,
)
from tests.adapters.trainer_rank.support import CPU

BY_NAME = {family.name: family for family in FAMILIES}


def built(name: str, **changes: Any) -> Any:
    return BY_NAME[name].build(**changes)


def difference(model: Any, rows: PackedRows | None = None, *, outer: Any = None) -> float:
    rows = a_tree() if rows is None else rows
    with torch.no_grad():
        plain = plain_log_probs(model if outer is None else outer, rows)
        return float((packed_log_probs(bind_model(model if outer is None else outer), rows) - plain).abs().max())


# E13 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 7, 8, 13, 40, 64, 4096])
def test_e13_a_sliding_window_of_any_size(window: int) -> None:
    model = built("MistralForCausalLM", sliding_window=window)
    assert difference(model) < 1e-4
    assert model.config.sliding_window == window


@pytest.mark.parametrize("name", ["Qwen3ForCausalLM", "Gemma2ForCausalLM", "Llama4ForCausalLM", "GptOssForCausalLM"])
@pytest.mark.parametrize("size", [1, 5, 16, 512])
def test_e13_mixed_layers_of_any_window_or_chunk(name: str, size: int) -> None:
    settings: dict[str, Any] = {"sliding_window": size}
    if name == "Qwen3ForCausalLM":
        settings |= {"use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"]}
    if name == "Llama4ForCausalLM":
        settings = {"attention_chunk_size": size}
    assert difference(built(name, **settings)) < 1e-4


def test_e13_a_default_mistral_past_its_4096_rows() -> None:
    """The window is checked short; here it is at work at its own size, between a prompt and its branches."""
    model = built("MistralForCausalLM", sliding_window=4096, max_position_embeddings=8192)
    generator = np.random.default_rng(0)
    rows = tree_rows([generator.integers(0, VOCABULARY, size) for size in (4090, 30, 12)], (-1, 0, 0), (1, 2), CPU)
    assert difference(model, rows) < 1e-3


@pytest.mark.parametrize("scale", [0.0625, 1.0, 8.0])
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("GraniteForCausalLM", "logits_scaling"),
        ("CohereForCausalLM", "logit_scale"),
        ("HyperCLOVAXForCausalLM", "logits_scaling"),
        ("Gemma2ForCausalLM", "final_logit_softcapping"),
    ],
)
def test_e13_what_a_model_does_to_its_logits_is_done(name: str, setting: str, scale: float) -> None:
    assert difference(built(name, **{setting: scale})) < 1e-3


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("PROMPT_TUNING", peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)),
        ("P_TUNING", peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=8)),
        ("PREFIX_TUNING", peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)),
    ],
)
@pytest.mark.parametrize("check", ["at-binding", SKIP_THE_CHECK])
def test_e13_virtual_tokens_are_refused_by_name(kind: str, settings: Any, check: str) -> None:
    model = peft.get_peft_model(built("LlamaForCausalLM"), settings)
    with pytest.raises(UnsupportedModelError, match=f"is {kind}, whose virtual tokens"):
        bind_model(model, check=check)


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("LlamaForCausalLM, attention_dropout", {}, "attention_dropout = 0.1"),
        ("BertLMHeadModel, is_decoder", {"attention_probs_dropout_prob": 0.2}, "attention_probs_dropout_prob = 0.2"),
        ("GPT2LMHeadModel", {"embd_pdrop": 0.3}, "embd_pdrop = 0.3"),
        ("OPTForCausalLM", {"layerdrop": 0.1}, "layerdrop = 0.1"),
        ("MixtralForCausalLM", {"router_jitter_noise": 0.1}, "router_jitter_noise = 0.1"),
        ("LlamaForCausalLM, rope dynamic", {}, "dynamic"),
        ("Phi3ForCausalLM, rope longrope", {}, "longrope"),
        ("T5ForConditionalGeneration", {}, "encoder-decoder"),
        ("BertForMaskedLM", {}, "later rows"),
    ],
)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_what_would_differ_is_refused_by_name_whatever_the_mode(
    name: str, settings: dict[str, Any], why: str, mode: str
) -> None:
    model = getattr(built(name, **settings), mode)()
    with pytest.raises(UnsupportedModelError, match=why):
        bind_model(model)


def test_dropout_of_an_adapter_is_refused_by_its_place() -> None:
    model = peft.get_peft_model(built("LlamaForCausalLM"), peft.LoraConfig(lora_dropout=0.1, target_modules=["q_proj"]))
    with pytest.raises(UnsupportedModelError, match=r"q_proj\.lora_dropout\.default drops out with p = 0\.1"):
        bind_model(model)


# What binding leaves as it was ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["GptOssForCausalLM", "MistralForCausalLM", "Gemma2ForCausalLM", "GPT2LMHeadModel"])
def test_ordinary_forwards_generation_and_saving_stay_bit_for_bit(
    name: str, implementation: str, tmp_path: Any
) -> None:
    if implementation == "sdpa" and name in ("GptOssForCausalLM", "Gemma2ForCausalLM"):
        implementation = "eager"  # they have no other on a CPU
    model = built(name, attn_implementation=implementation)
    untouched = copy.deepcopy(model)
    bound = bind_model(model)
    packed_log_probs(bound, a_tree()).sum().backward()
    tokens = torch.randint(3, VOCABULARY, (2, 30), generator=torch.Generator().manual_seed(0))
    padded = torch.ones_like(tokens)
    padded[0, :4] = 0
    for arguments in ({}, {"attention_mask": padded}):
        for grads in (True, False):
            with torch.set_grad_enabled(grads):
                got, wanted = (one(input_ids=tokens, **arguments).logits for one in (model, untouched))
            assert torch.equal(got, wanted)
    for one in (model, untouched):
        one.eval()
    got, wanted = (one.generate(tokens[:1], max_new_tokens=8, do_sample=False) for one in (model, untouched))
    assert torch.equal(got, wanted)
    assert model.config.to_dict() == untouched.config.to_dict()
    assert model.config._attn_implementation == untouched.config._attn_implementation == implementation
    assert model.state_dict().keys() == untouched.state_dict().keys()
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, attn_implementation=implementation).eval()
    assert torch.equal(again(input_ids=tokens).logits, untouched(input_ids=tokens).logits)


def test_a_check_leaves_no_gradient_no_hook_of_its_own_and_no_drawn_number() -> None:
    model = built("LlamaForCausalLM")
    bind_model(model)
    before = torch.get_rng_state(), {name: len(m._forward_hooks) for name, m in model.named_modules()}
    trained = [value.requires_grad for value in model.parameters()]
    bind_model(model)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert {name: len(m._forward_hooks) for name, m in model.named_modules()} == before[1]
    assert [value.requires_grad for value in model.parameters()] == trained
    assert all(value.grad is None for value in model.parameters())


def test_an_error_inside_a_packed_forward_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.trainer_rank import hugging_face

    model = built("LlamaForCausalLM")
    bound = bind_model(model)
    tokens = torch.arange(3, 12)[None]
    before = model(input_ids=tokens).logits

    def broken(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("the kernel's own")

    with monkeypatch.context() as patch:
        patch.setattr(hugging_face, "packed_attention", broken)
        with pytest.raises(RuntimeError, match="the kernel's own"):
            packed_log_probs(bound, a_tree())
    assert torch.equal(model(input_ids=tokens).logits, before)
    assert "forward" not in vars(model)


@pytest.mark.parametrize("is_reentrant", [True, False])
@pytest.mark.parametrize("name", ["Gemma2ForCausalLM", "GptOssForCausalLM", "GPT2LMHeadModel"])
def test_layers_run_again_in_backward_are_packed_and_ordinary_ones_are_not(name: str, is_reentrant: bool) -> None:
    """An ordinary and a packed graph are alive together, and each is recomputed as what it was."""
    model, plain = built(name), built(name)
    wanted = gradients(plain, plain_log_probs(plain, a_tree()))
    for one in (model, plain):
        one.gradient_checkpointing_enable({"use_reentrant": is_reentrant})
        one.enable_input_require_grads()
    bound = bind_model(model)
    packed, ordinary = packed_log_probs(bound, a_tree()), plain_log_probs(model, a_tree())
    for log_probs in (packed, ordinary):
        for parameter, gradient in gradients(model, log_probs).items():
            torch.testing.assert_close(gradient, wanted[parameter], rtol=1e-3, atol=1e-5, msg=parameter)


# Heads that change afterwards -----------------------------------------------------------------------------------------


def test_a_head_that_is_replaced_after_binding_is_the_one_that_runs() -> None:
    model = built("LlamaForCausalLM")
    bound = bind_model(model)
    with torch.no_grad():
        model.set_output_embeddings(torch.nn.Linear(32, VOCABULARY, bias=True))
        plain = plain_log_probs(model, a_tree())
        assert float((packed_log_probs(bound, a_tree()) - plain).abs().max()) < 1e-4
        model.resize_token_embeddings(VOCABULARY + 30)
        assert bound.model_facts().vocabulary == VOCABULARY + 30
        plain = plain_log_probs(model, a_tree())
        assert float((packed_log_probs(bound, a_tree()) - plain).abs().max()) < 1e-4
        model.resize_token_embeddings(50)
    assert bound.model_facts().vocabulary == 50
    with pytest.raises(RequestError, match="the vocabulary has 50"):
        Request(tokens=[60]).spec(bound.model_facts().vocabulary)


def test_adapters_put_on_the_head_after_binding_are_trained() -> None:
    model = built("LlamaForCausalLM")
    bound = bind_model(model)
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=["lm_head", "q_proj"], init_lora_weights=False)
    )
    plain = plain_log_probs(adapted, a_tree())
    wanted = gradients(adapted, plain)
    packed = packed_log_probs(bound, a_tree())
    torch.testing.assert_close(packed, plain, rtol=1e-4, atol=1e-4)
    got = gradients(adapted, packed)
    assert any("lm_head" in name for name in got)
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    "settings",
    [
        peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM", init_lora_weights=False),
        peft.LoraConfig(r=2, target_modules=["q_proj"], use_dora=True, init_lora_weights=False),
        peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    ],
    ids=["lora", "dora", "ia3"],
)
def test_adapters_are_checked_and_equal_their_ordinary_forward(settings: Any) -> None:
    model = peft.get_peft_model(built("Gemma2ForCausalLM"), settings)
    assert difference(model.get_base_model(), outer=model) < 1e-4
    bound = bind_model(model)
    with model.disable_adapter(), torch.no_grad():  # the reference policy
        plain = plain_log_probs(model, a_tree())
        assert float((packed_log_probs(bound, a_tree()) - plain).abs().max()) < 1e-4


# The check itself -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GptOssForCausalLM", "Qwen3MoeForCausalLM"])
def test_right_models_pass_in_every_dtype_with_room_to_spare(name: str, dtype: torch.dtype) -> None:
    model = built(name, experts_implementation="eager").to(dtype)  # the other one takes no fp64
    report = check_packed_execution(bind_model(model), model)
    assert report.gradient is not None
    for seen in (report.log_probs, report.gradient):
        assert seen.worst < seen.tolerance / 1.5


def test_it_is_left_out_by_its_name_only() -> None:
    model = built("LlamaForCausalLM")
    for wrong in ("skip", "no", "", None, False):
        with pytest.raises(UnsupportedModelError, match="'skip-the-check-at-binding'"):
            bind_model(model, check=wrong)  # type: ignore[arg-type]
    bind_model(model, check="skip-the-check-at-binding")


def test_wrappers_are_told_what_to_pass() -> None:
    with pytest.raises(UnsupportedModelError, match=r"pass what it wraps \(\.module\)"):
        bind_model(torch.nn.DataParallel(built("LlamaForCausalLM")))
    with pytest.raises(UnsupportedModelError, match=r"pass what it wraps \(\._orig_mod\)"):
        bind_model(torch.compile(built("LlamaForCausalLM")))  # type: ignore[arg-type]


# Position tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OPTForCausalLM", "BioGptForCausalLM", "GPTJForCausalLM"])
def test_a_request_longer_than_the_position_table_is_refused_before_anything_runs(name: str, meter: PeakMeter) -> None:
    model = built(name)
    rank = TrainerRank(model, meter=meter, memory_bytes=512 << 20)
    calls: list[None] = []
    model.register_forward_pre_hook(lambda *_: calls.append(None))
    good, longest, long = (Request(tokens=[5] * size, targets=[6] * size) for size in (8, 64, 65))
    with pytest.raises(RequestError, match=r"item 1, request 1: the request has 65 tokens; .* 64 positions"):
        list(rank.forward_micro_batches([good, [longest, long]]))
    assert not calls
    assert len(rank.dp_rank_forward([good, longest])) == 2


def test_rotary_positions_have_no_table() -> None:
    assert bind_model(built("LlamaForCausalLM")).model_facts().positions is None
    assert issubclass(transformers.LlamaForCausalLM, torch.nn.Module)


def test_requests_may_be_shorter_than_a_window_and_shared_to_the_last_row() -> None:
    model = built("MistralForCausalLM")
    bound = bind_model(model)
    tokens = np.arange(3, 9)
    rows = tree_rows([tokens], (-1,), (0, 0, 0), CPU)
    outputs = packed_forward(bound, rows, [Request(tokens=tokens, targets=tokens)] * 3, grads=False)
    logits = model(input_ids=torch.from_numpy(tokens)[None]).logits[0].log_softmax(-1)
    for output in outputs:
        assert output.target_log_probs is not None
        wanted = logits[torch.arange(6), torch.from_numpy(tokens)]
        torch.testing.assert_close(output.target_log_probs, wanted.detach(), rtol=1e-4, atol=1e-4)


def test_caps_that_the_models_own_attention_leaves_out_are_refused_by_name() -> None:
    """Older transformers run Gemma 2 under sdpa without its caps; newer ones refuse to, so the setting is put there."""
    bound = bind_model(built("Gemma2ForCausalLM"))
    for config in bound._configs:  # type: ignore[attr-defined]
        config._attn_implementation_internal = "sdpa"
    with pytest.raises(UnsupportedModelError, match='attn_implementation="eager"'):
        packed_log_probs(bound, a_tree())
