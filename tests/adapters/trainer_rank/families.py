"""Tiny models of many Hugging Face architectures, and the page that says which of them run packed rows, how exactly.

python -m tests.adapters.trainer_rank.families spec/families.md

Every model is random and awkward: norms off 1, biases and sinks off 0, large enough weights that a wrong row shows.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

from adapters.trainer_rank.binding import bind_model
from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.request import Request
from adapters.trainer_rank.rows import PackedRows, tree_rows
from tests.adapters.trainer_rank.support import CPU

VOCABULARY = 97
LAYERS = 2

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "n_embd": 32,
    "n_layer": LAYERS,
    "n_head": 4,
    "n_positions": 64,
    "n_ctx": 64,
    "rotary_dim": 4,
    "n_inner": 48,
    "d_model": 32,
    "n_layers": LAYERS,
    "n_heads": 4,
    "max_seq_len": 64,
    "ffn_dim": 48,
    "word_embed_proj_dim": 32,
    "num_layers": LAYERS,
    "num_heads": 4,
    "decoder_layers": LAYERS,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48,
    "encoder_layers": LAYERS,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "moe_num_experts": 4,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "shared_expert_intermediate_size": 16,
    "kv_lora_rank": 8,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "ffn_hidden_size": 48,
    "expert_ffn_hidden_size": 16,
    "max_window_layers": 1,
    "attention_chunk_size": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "dff": 48,
    "query_pre_attn_scalar": 8,
}
"""What every architecture's sizes are called, one way or another."""

RANDOM_UNLESS_ZERO = ("dropout", "pdrop", "layerdrop", "jitter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One architecture, by its classes and what its configuration says beside the sizes."""

    model: str
    config: str
    note: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.model}{', ' if self.note else ''}{self.note}"

    def build(self, **changes: Any) -> Any:
        """A random model in training mode, fp32."""
        config_class = getattr(transformers, self.config)
        known = set(inspect.signature(config_class.__init__).parameters) | set(
            getattr(config_class, "__dataclass_fields__", ())
        )
        settings = {name: value for name, value in SIZES.items() if name in known}
        settings |= {name: 0.0 for name in known if any(part in name for part in RANDOM_UNLESS_ZERO)}
        settings.pop("classifier_dropout", None)
        settings |= self.settings | changes
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = config_class(**settings)
            kinds = getattr(config, "layer_types", None)
            if kinds and len(kinds) != LAYERS:
                config = config_class(**settings, layer_types=list(dict.fromkeys(kinds))[:LAYERS])
            model = getattr(transformers, self.model)(config)
        generator = torch.Generator().manual_seed(1)
        spread = 0.3 * (32 / settings.get("hidden_size", 32)) ** 0.5  # wide models would drown in their own rounding
        with torch.no_grad():
            for name, value in model.named_parameters():
                noise = torch.randn(value.shape, generator=generator)
                if value.dim() >= 2:
                    value.copy_(noise * (1.0 if "emb" in name or "wte" in name else spread))
                else:
                    value.add_(noise * 0.3)
        return model.train()


def _same(*models: str, **settings: Any) -> list[Family]:
    """Architectures whose configuration is called after them."""
    return [Family(model=f"{model}ForCausalLM", config=f"{model}Config", settings=dict(settings)) for model in models]


def _text(model: str, config: str, **settings: Any) -> list[Family]:
    """The text part of a model of several kinds of input."""
    config = config if config.endswith("Text") else f"{config}Text"
    return [Family(model=f"{model}ForCausalLM", config=f"{config}Config", settings=dict(settings))]


def _as_decoders(*models: str, **settings: Any) -> list[Family]:
    """Encoders told to look back only."""
    return [
        Family(model=f"{model}ForCausalLM", config=f"{model}Config", note="is_decoder",
               settings={"is_decoder": True, **settings})
        for model in models
    ]  # fmt: skip


def _with_images(model: str, **text: Any) -> list[Family]:
    return [Family(model=f"{model}ForConditionalGeneration", config=f"{model}Config",
                   settings={"text_config": TEXT | text, "vision_config": VISION})]  # fmt: skip


HIDDEN = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
VISION = HIDDEN | {"num_hidden_layers": 1, "image_size": 16, "patch_size": 8}
TEXT = HIDDEN | {"vocab_size": VOCABULARY, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
                 "pad_token_id": 0}  # fmt: skip
PER_LAYER = {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8}
GEMMA3N = PER_LAYER | {"num_kv_shared_layers": 0}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}

FAMILIES: list[Family] = [
    *_same("Llama", "Qwen2", "Qwen3", "Qwen3Moe", "Mixtral", "Gemma", "Phi", "Phi3", "Olmo", "Olmo2", "Olmoe"),
    *_same("StableLm", "Starcoder2", "GPTNeoX", "Glm", "Glm4"),
    *_same("Granite", "GraniteMoe", "GraniteMoeShared", logits_scaling=8.0, embedding_multiplier=3.0,
           residual_multiplier=0.5, attention_multiplier=0.2),
    *_same("Cohere", logit_scale=0.25),
    *_same("Persimmon", "Nemotron", "Ernie4_5", "Ernie4_5_Moe", "SmolLM3", "SeedOss", "Helium", "Arcee", "Apertus"),
    *_same("DeepseekV2", "DeepseekV3", "Glm4Moe", "HunYuanDenseV1", "HunYuanMoEV1", "Dots1", "FlexOlmo", "MiniCPM3"),
    *_same("HyperCLOVAX", logits_scaling=4.0),
    *_same("Phimoe", "JetMoe", "NanoChat", "BioGpt", "OPT", "CodeGen", "GPTJ", "VaultGemma", "Exaone4"),
    *_same("Mistral", sliding_window=8),
    *_same("Ministral", **MIXED),
    *_same("Gemma2", attn_logit_softcapping=2.0, final_logit_softcapping=5.0, **MIXED),
    *_same("Cohere2", "GptOss", "Olmo3", **MIXED),
    Family(model="Gemma3ForCausalLM", config="Gemma3TextConfig", settings=dict(MIXED)),
    Family(model="Qwen2ForCausalLM", config="Qwen2Config", note="use_sliding_window",
           settings={"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    Family(model="Qwen2MoeForCausalLM", config="Qwen2MoeConfig"),
    Family(model="Llama4ForCausalLM", config="Llama4TextConfig",
           settings={"layer_types": ["chunked_attention", "full_attention"], "intermediate_size_mlp": 48,
                     "interleave_moe_layer_step": 2}),
    Family(model="GPT2LMHeadModel", config="GPT2Config"),
    Family(model="GPT2LMHeadModel", config="GPT2Config", note="scale_attn_by_inverse_layer_idx",
           settings={"scale_attn_by_inverse_layer_idx": True}),
    Family(model="GPTBigCodeForCausalLM", config="GPTBigCodeConfig"),
    Family(model="BertLMHeadModel", config="BertConfig", note="is_decoder", settings={"is_decoder": True}),
    Family(model="LlamaForCausalLM", config="LlamaConfig", note="rope linear",
           settings={"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    Family(model="LlamaForCausalLM", config="LlamaConfig", note="rope yarn",
           settings={"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4,
                                         "original_max_position_embeddings": 32}}),
    # Refused, each for a reason of its own.
    Family(model="LlamaForCausalLM", config="LlamaConfig", note="rope dynamic",
           settings={"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}),
    Family(model="Phi3ForCausalLM", config="Phi3Config", note="rope longrope",
           settings={"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4,
                                         "long_factor": [2.0] * 4, "original_max_position_embeddings": 32}}),
    Family(model="LlamaForCausalLM", config="LlamaConfig", note="attention_dropout",
           settings={"attention_dropout": 0.1}),
    Family(model="MixtralForCausalLM", config="MixtralConfig", note="router_jitter_noise",
           settings={"router_jitter_noise": 0.1}),
    Family(model="GPT2LMHeadModel", config="GPT2Config", note="resid_pdrop", settings={"resid_pdrop": 0.1}),
    Family(model="OPTForCausalLM", config="OPTConfig", note="layerdrop", settings={"layerdrop": 0.1}),
    Family(model="BertLMHeadModel", config="BertConfig", note="not a decoder"),
    Family(model="BertForMaskedLM", config="BertConfig"),
    *_same("Doge", "Mamba", "Qwen3Next", "RecurrentGemma", "Rwkv", "Bloom", "XGLM", "Bart", "GPTNeoXJapanese"),
    *_same("Lfm2", layer_types=["conv", "full_attention"]),
    Family(model="FalconForCausalLM", config="FalconConfig"),
    Family(model="FalconForCausalLM", config="FalconConfig", note="alibi", settings={"alibi": True}),
    Family(model="MptForCausalLM", config="MptConfig"),
    Family(model="OpenAIGPTLMHeadModel", config="OpenAIGPTConfig"),
    Family(model="T5ForConditionalGeneration", config="T5Config"),
    # Every other class that transformers lists for causal language modelling, and what it is with attention alone.
    *_same("Afmoe", "AXK1", "AXK2", "BailingHybrid", "Beam", "BigBird", "BigBirdPegasus", "BitNet", "Blenderbot"),
    *_same("BlenderbotSmall", "Cohere2Moe", "CpmAnt", "Cwm", "DeepseekV32", "DeepseekV4", "DiffLlama", "Dory"),
    *_same("ExaoneMoe", "FalconMamba", "Flint", "Glm4MoeLite", "GlmMoeDsa", "GraniteSWA", "GraniteMoeSWA", "HrmText"),
    *_same("HYV3", "HYV4", "Jais2", "Jamba", "KimiLinear", "Kolibri1", "Laguna", "LaraMini", "Lfm3", "Marian", "MBart"),
    *_same("Mellum", "MiMoV2Flash", "MiniMax", "MiniMaxM2", "Ministral3", "ModernBertDecoder", "Moshi", "Mvp"),
    *_same("NemotronH", "OlmoHybrid", "Pegasus", "PLBart", "ProphetNet", "RoFormer", "SolarOpen", "TrOCR", "Whisper"),
    *_same("xLSTM", "Youtu"),
    *_text("Apertus1p5Text", "Apertus1p5Text"),
    *_text("AriaText", "AriaText"),
    *_text("CohereCompass", "CohereCompass", layer_types=["sliding_attention", "full_attention"],
           rope_parameters={kind: {"rope_type": "default", "rope_theta": 1e4}
                            for kind in ("sliding_attention", "full_attention")}),
    *_text("Dots3Note", "Dots3Note", num_key_value_heads=4),
    *_text("Emu3", "Emu3"),
    *_text("Gemma3n", "Gemma3n", **GEMMA3N, activation_sparsity_pattern=[0.9, 0.0], **MIXED),
    *_text("Gemma4", "Gemma4", **PER_LAYER, **MIXED),
    *_text("Gemma4Unified", "Gemma4Unified"),
    *_text("Inkling", "Inkling"), *_text("Inkling2", "Inkling2"), *_text("Inkling2Loop", "Inkling2Loop"),
    *_text("MiniMaxM3VL", "MiniMaxM3VL"),
    Family(model="MiniMaxM3VLForCausalLM", config="MiniMaxM3VLTextConfig", note="sparse attention",
           settings={"layer_types": ["full_attention", "minimax_m3_sparse"]}),
    *_text("Mllama", "Mllama", cross_attention_layers=[]),
    *_text("Qwen3_5", "Qwen3_5"), *_text("Qwen3_5Moe", "Qwen3_5Moe"), *_text("Qwen4Exp", "Qwen4Exp"),
    Family(model="Qwen3NextForCausalLM", config="Qwen3NextConfig", note="attention alone",
           settings={"layer_types": ["full_attention"] * LAYERS}),
    *_same("Bamba", mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8),
    *_same("FalconH1", mamba_n_heads=8, mamba_d_head=8, mamba_d_ssm=64),
    *_same("GraniteMoeHybrid", mamba_n_heads=8, mamba_d_head=8, layer_types=["mamba", "attention"]),
    *_same("Lfm2Moe", layer_types=["conv", "full_attention"]),
    Family(model="Lfm2MoeForCausalLM", config="Lfm2MoeConfig", note="attention alone",
           settings={"layer_types": ["full_attention"] * LAYERS}),
    *_same("Mamba2", num_heads=8, head_dim=8, n_groups=2),
    *_same("Zamba", hybrid_layer_ids=[1], layer_types=["linear_attention", "hybrid"], num_mem_heads=4,
           tie_word_embeddings=False),
    *_same("Zamba2", layer_types=["linear_attention", "hybrid"]),
    *_same("Zaya", num_experts_per_tok=1),
    *_same("Dbrx", attn_config={"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
           ffn_config={"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}),
    *_same("LongcatFlash", head_dim=4, num_key_value_heads=4, num_layers=1, zero_expert_num=2, moe_topk=2),
    *_same("GPTNeo", attention_types=[[["global", "local"], 1]], window_size=8),
    Family(model="CTRLLMHeadModel", config="CTRLConfig"),
    Family(model="XLMWithLMHeadModel", config="XLMConfig", settings={"emb_dim": 32}),
    Family(model="XLNetLMHeadModel", config="XLNetConfig"),
    Family(model="ReformerModelWithLMHead", config="ReformerConfig", settings={
        "is_decoder": True, "attn_layers": ["local", "lsh"], "axial_pos_embds": False, "attention_head_size": 8,
        "local_attn_chunk_length": 4, "lsh_attn_chunk_length": 4, "feed_forward_size": 48, "num_buckets": 2,
        "num_hashes": 1, "hash_seed": 0}),
    *_as_decoders("Camembert", "Data2VecText", "Electra", "Ernie", "MegatronBert", "RemBert", "Roberta"),
    *_as_decoders("RobertaPreLayerNorm", "RoCBert", "XLMRoberta", "XLMRobertaXL", "BigBird"),
    *_as_decoders("Xmod", default_language="en_XX"),
    Family(model="BertGenerationDecoder", config="BertGenerationConfig", note="is_decoder",
           settings={"is_decoder": True}),
    Family(model="BltForCausalLM", config="BltConfig", settings={
        "patcher_config": HIDDEN | {"vocab_size": VOCABULARY}, "global_config": HIDDEN,
        "encoder_config": HIDDEN | {"vocab_size": VOCABULARY, "hidden_size_global": 32},
        "decoder_config": HIDDEN | {"vocab_size": VOCABULARY, "hidden_size_global": 32},
        "encoder_hash_byte_group_vocab": 101, "encoder_hash_byte_group_nb_functions": 1}),
    Family(model="GitForCausalLM", config="GitConfig", settings={"vision_config": VISION}),
    Family(model="MusicgenForCausalLM", config="MusicgenDecoderConfig"),
    Family(model="MusicgenMelodyForCausalLM", config="MusicgenMelodyDecoderConfig"),
    # Models of text and images, trained on text.
    Family(model="FuyuForCausalLM", config="FuyuConfig",
           settings={"text_config": {"model_type": "persimmon"} | TEXT, "image_size": 16, "patch_size": 8}),
    *_with_images("Gemma3"),
    *_with_images("Gemma4", vocab_size_per_layer_input=VOCABULARY, hidden_size_per_layer_input=8),
    Family(model="GotOcr2ForConditionalGeneration", config="GotOcr2Config", settings={
        "text_config": {"model_type": "qwen2"} | TEXT,
        "vision_config": {**VISION, "output_channels": 8, "mlp_dim": 48, "global_attn_indexes": [0]}}),
    Family(model="Phi4MultimodalForCausalLM", config="Phi4MultimodalConfig", settings={
        "vision_config": VISION | {"crop_size": 16}, "audio_config": HIDDEN | {
            "num_blocks": 1, "ext_pw_out_channel": 32, "nemo_conv_channels": 32}}),
]  # fmt: skip
"""Supported and refused ones; which is which, the models themselves say. Every causal class of transformers but
`NOT_BUILT`."""

NOT_BUILT = {
    "Gemma3nForConditionalGeneration": "its image part is of another package; its text is Gemma3nForCausalLM",
    "Gemma4AssistantForCausalLM": "it drafts from another model's cache",
    "Gemma4UnifiedAssistantForCausalLM": "it drafts from another model's cache",
    "Gemma4UnifiedForConditionalGeneration": "its text is Gemma4UnifiedForCausalLM",
    "MossTranscribeDiarizeForConditionalGeneration": "it takes sound; its text is a Qwen3 decoder",
}
"""Causal classes that the page does not run, and why. Binding checks them all the same."""


def a_tree() -> PackedRows:
    """A tree of its own, unlike the check's: three levels, branches of one row, paths of up to 41 rows."""
    generator = np.random.default_rng(3)
    lengths, parents = (14, 1, 12, 15, 9, 6, 11, 4), (-1, 0, 0, 2, 2, -1, 5, -1)
    return tree_rows(
        [generator.integers(0, VOCABULARY, length) for length in lengths], parents, (1, 3, 4, 2, 6, 5, 7), CPU
    )


def labels(rows: PackedRows) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(0, VOCABULARY, (len(own),), generator=generator) for own in rows.request_positions]


def plain_log_probs(model: Any, rows: PackedRows) -> Tensor:
    """Every request on its own through the model's ordinary forward."""
    found = []
    for own, wanted in zip(rows.request_positions, labels(rows), strict=True):
        logits = model(input_ids=torch.from_numpy(rows.token_ids[own])[None], use_cache=False).logits[0]
        found.append(logits.log_softmax(dim=-1).gather(1, wanted[:, None])[:, 0])
    return torch.cat(found)


def packed_log_probs(bound: Any, rows: PackedRows) -> Tensor:
    requests = [
        Request(tokens=rows.token_ids[own], targets=wanted, top_k=2, logits=True, hidden_states=True, entropy=True)
        for own, wanted in zip(rows.request_positions, labels(rows), strict=True)
    ]
    outputs = packed_forward(bound, rows, requests, grads=True)
    return torch.cat([output.target_log_probs for output in outputs if output.target_log_probs is not None])


def gradients(model: nn.Module, log_probs: Tensor) -> dict[str, Tensor]:
    """Every parameter's, of a weighted mean."""
    model.zero_grad(set_to_none=True)
    (log_probs * torch.linspace(-1.0, 1.0, len(log_probs))).mean().backward()
    return {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the page. log_prob, gradient: largest differences, the second relative to the largest gradient."""

    family: Family
    refusal: str | None = None
    log_prob: float = 0.0
    gradient: float = 0.0


def row_of(family: Family) -> Row:
    """Bind the family's model and, where it is accepted, compare it on a tree that the check has not seen."""
    model = family.build()
    try:
        bound = bind_model(model)
    except UnsupportedModelError as error:
        return Row(family=family, refusal=str(error))
    rows = a_tree()
    plain = plain_log_probs(model, rows)
    plain_gradients = gradients(model, plain)
    if model.supports_gradient_checkpointing:  # layers run again in backward, under the packed attention
        model.gradient_checkpointing_enable({"use_reentrant": False})
    packed = packed_log_probs(bound, rows)
    packed_gradients = gradients(model, packed)
    assert packed_gradients.keys() == plain_gradients.keys(), family.name
    # Some gradients are nothing but rounding (softmax does not see a key's bias), so none counts as less than this.
    least = 1e-3 * max(float(wanted.abs().max()) for wanted in plain_gradients.values())
    return Row(
        family=family,
        log_prob=float((packed - plain).abs().max()),
        gradient=max(
            float((packed_gradients[name] - wanted).abs().max()) / max(least, float(wanted.abs().max()))
            for name, wanted in plain_gradients.items()
        ),
    )


PAGE = """# Families

Generated by `python -m tests.adapters.trainer_rank.families spec/families.md`; `test_families.py` holds it to what the
models do. Tiny random models of transformers {version}, fp32 on a CPU, one layer in two windowed where windows are
mixed. Differences are between packed rows and the model's ordinary forward of each request on its own, on a tree that
the check at binding does not use: of log-probabilities, and of every parameter's gradient (as a share of its largest).

Every class that transformers lists for causal language modelling is here, but these: {not_built}. An architecture that
is not listed is not refused for it: `bind_model` checks each model by itself. The page shows one configuration of each;
`python -m tests.adapters.trainer_rank.sweep` draws others at random, and what came of it is in
[evidence](evidence/README.md#random-models).

## ALiBi

Bloom, MPT and Falcon with `alibi` are refused. Their bias is linear in the key's position, which could be had exactly
along a branch; but their attention writes out all scores, rows by rows, in code of its own. They take no positions
(Bloom and MPT count columns) and never ask transformers for an attention function, so there is nothing to exchange
while packed rows run. To run them would take a copy of their attention here, kept in step with theirs, or rows squared
of memory if it were to stay their code, which no law here prices. `test_families.py` shows that they do not ask.

## What the check costs

In rows of an ordinary forward, by PyTorch's count of operations on Llama shapes of 30, 44 and 87 M parameters: 282 to
290, forwards and backwards by the embeddings together, whatever the size. In time on one CPU core 11 to 13 forwards of
47 rows, because it is eight forwards and backwards of few rows each. An 8B model runs as many rows: 4.5 TFLOP. On CUDA
the tree is nine times as long, so that FlexAttention's own kernel is what runs: some 41 TFLOP, and the memory of a
training wave of 423 rows. That was worked out, not timed: no GPU has run the check on a model of that size for us.

## Run packed

| model | log-probability | gradient |
|---|---|---|
{accepted}

## Refused

| model | reason |
|---|---|
{refused}
"""


def page(rows: list[Row]) -> str:
    accepted = [
        f"| {row.family.name} | {row.log_prob:.0e} | {row.gradient:.0e} |" for row in rows if row.refusal is None
    ]
    refused = [f"| {row.family.name} | {reason(row.refusal)} |" for row in rows if row.refusal is not None]
    not_built = "; ".join(f"{model} ({why})" for model, why in NOT_BUILT.items())
    return PAGE.format(
        version=transformers.__version__, not_built=not_built, accepted="\n".join(accepted), refused="\n".join(refused)
    )


def reason(refusal: str) -> str:
    return refusal.split(" cannot run shared rows: ")[-1].replace("|", "/")


def built_rows() -> Iterator[Row]:
    for family in FAMILIES:
        yield row_of(family)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(list(built_rows())))
