"""What `TrainerRank` asks of a model, and the binding of Hugging Face decoders.

A model takes part by having the three methods of `PackedModel`. Hugging Face causal decoders (also under peft) are
bound by `bind_model`; nothing here is imported from `transformers` until such a model is seen.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from adapters.trainer_rank.attention import ancestry_mask, packed_attention
from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.rows import PackedRows
from pricing.kernel.requests import NO_RECOMPUTE, RecomputeMode

ATTENTION_NAME = "packed_ancestry"
"""Name under which the ancestry attention is registered with `transformers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Shapes that price a model's memory. `segment_state_bytes` is G of the laws (0: attention only)."""

    name: str
    layers: int
    hidden: int
    vocabulary: int
    dtype: torch.dtype
    segment_state_bytes: int = 0

    @property
    def dtype_bytes(self) -> int:
        return self.dtype.itemsize


@runtime_checkable
class PackedModel(Protocol):
    """A decoder that can run packed rows."""

    def packed_hidden_states(self, rows: PackedRows) -> Tensor:
        """Hidden states [P, H] after the last norm. Row i depends on rows of its own segment and its ancestors only."""

    def head_logits(self, hidden_CH: Tensor) -> Tensor:
        """Logits [C, V] of hidden states [C, H]."""

    def recompute_mode(self) -> RecomputeMode:
        """The activation recompute as it would run now; asked anew at every price."""

    def model_facts(self) -> ModelFacts:
        """Shapes for the static floor and the profile's identity."""


def bind_model(model: nn.Module | PackedModel) -> PackedModel:
    """The `PackedModel` of a model: itself, or its Hugging Face binding. Raises `UnsupportedModelError`."""
    if isinstance(model, PackedModel):
        return model
    transformers = sys.modules.get("transformers")
    if transformers is not None:
        base_model = getattr(model, "get_base_model", None)  # peft's wrapper has one
        inner: Any = model if base_model is None else base_model()
        if isinstance(inner, transformers.PreTrainedModel):
            return HuggingFaceDecoder(inner)
    raise UnsupportedModelError(
        f"{type(model).__name__} is neither a PackedModel (packed_hidden_states, head_logits, recompute_mode, "
        "model_facts) nor a Hugging Face decoder"
    )


class HuggingFaceDecoder:
    """A Hugging Face causal decoder whose attention follows segment ancestry.

    The attention implementation of the model is set once and stays, because layers recomputed in backward look it up
    again; ordinary calls of the model keep working through it (they get causal attention as before).
    Refused: recurrent or sliding-window layers, softcapped logits, active dropout in attention: for those a shared row
    would not equal an unshared one.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._decoder = model.base_model
        self._head = model.get_output_embeddings()
        self._config = model.config.get_text_config()
        self._layers = _decoder_layers(self._decoder)
        _require_plain_attention(self._config)
        if self._head is None or self._decoder is model:
            raise UnsupportedModelError(f"{type(model).__name__} has no decoder with a separate head")
        _register_attention()
        model.set_attn_implementation(ATTENTION_NAME)

    def packed_hidden_states(self, rows: PackedRows) -> Tensor:
        out = self._decoder(
            input_ids=rows.tokens_P[None],
            position_ids=rows.positions_P[None],
            attention_mask=ancestry_mask(rows),
            use_cache=False,
        )
        hidden: Tensor = out.last_hidden_state
        return hidden[0]

    def head_logits(self, hidden_CH: Tensor) -> Tensor:
        logits: Tensor = self._head(hidden_CH)
        return logits

    def recompute_mode(self) -> RecomputeMode:
        """Read from the layers themselves: the flag of each and whether each is training."""
        flags = {bool(getattr(layer, "gradient_checkpointing", False)) for layer in self._layers}
        if flags == {False}:
            return NO_RECOMPUTE
        training = all(layer.training for layer in self._layers)
        if flags == {True}:
            return RecomputeMode(granularity="full", method="uniform", num_layers=1, training=training)
        return RecomputeMode(granularity="full", method="some_layers", training=training)

    def model_facts(self) -> ModelFacts:
        config = self._config
        return ModelFacts(
            name=type(self._model).__name__,
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            vocabulary=config.vocab_size,
            dtype=self._model.dtype,
        )


def _decoder_layers(decoder: Any) -> list[nn.Module]:
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not len(layers):
        raise UnsupportedModelError(f"{type(decoder).__name__} has no list of decoder layers")
    return list(layers)


def _require_plain_attention(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        raise UnsupportedModelError(f"layers of kind {', '.join(sorted(kinds))} cannot run shared rows by a mask alone")
    for name in ("final_logit_softcapping", "attn_logit_softcapping", "attention_dropout"):
        if getattr(config, name, None):
            raise UnsupportedModelError(f"{name} = {getattr(config, name)} is not supported in packed execution")


def _register_attention() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    AttentionInterface.register(ATTENTION_NAME, _hugging_face_attention)
    # Ordinary calls of the model build the mask that scaled dot-product attention would get.
    AttentionMaskInterface.register(ATTENTION_NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def _hugging_face_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: BlockMask | Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention function `transformers` calls: [B, H, P, D] in, ([B, P, H, D], no weights) out."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if isinstance(attention_mask, BlockMask):
        out = packed_attention(query, key, value, attention_mask, scale)
    else:  # an ordinary call of the model
        is_causal = attention_mask is None and query.shape[2] > 1
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, is_causal=is_causal, scale=scale, enable_gqa=True
        )
    return out.transpose(1, 2).contiguous(), None
