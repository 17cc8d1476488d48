"""A small plain-PyTorch decoder that runs packed rows: for demonstrations, tests and benchmarks.

It shows what `TrainerRank` asks of a model (see `binding.PackedModel`): hidden states of packed rows, a head, and a
recompute setting that can be read live. Layers are pluggable, so that other families reuse the frame.

Shape legend: P packed rows, H hidden size, A attention heads, D head dimension, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint

from adapters.trainer_rank.attention import ancestry_mask, packed_attention
from adapters.trainer_rank.packed_model import ModelFacts
from adapters.trainer_rank.rows import PackedRows
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, RecomputeMode


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Sizes of a decoder. `lora_rank` > 0 freezes every weight and trains rank-r adapters of the projections."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    rope_theta: float = 1_000_000.0
    lora_rank: int = 0
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInputs:
    """What every layer gets beside its hidden states: rotary tables [P, D], the attention mask, the rows."""

    cos_PD: Tensor
    sin_PD: Tensor
    mask: BlockMask
    rows: PackedRows
    shared: dict[str, Any] = field(default_factory=dict)
    """Tables that layers of one kind build once a forward."""


class Projection(nn.Module):
    """A linear map without bias, with an optional low-rank adapter beside a frozen weight."""

    def __init__(self, inputs: int, outputs: int, config: DecoderConfig) -> None:
        super().__init__()
        frozen = config.lora_rank > 0
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=config.dtype), requires_grad=not frozen)
        nn.init.normal_(self.weight, std=0.02)
        if frozen:
            self.down = nn.Parameter(torch.empty(config.lora_rank, inputs, dtype=config.dtype))
            self.up = nn.Parameter(torch.empty(outputs, config.lora_rank, dtype=config.dtype))
            nn.init.normal_(self.down, std=0.02)
            nn.init.normal_(self.up, std=0.02)
        self.adapted = frozen

    def forward(self, inputs: Tensor) -> Tensor:
        out = F.linear(inputs, self.weight)
        return out + F.linear(F.linear(inputs, self.down), self.up) if self.adapted else out


class Norm(nn.Module):
    """Root-mean-square norm."""

    def __init__(self, size: int, config: DecoderConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, dtype=config.dtype), requires_grad=config.lora_rank == 0)

    def forward(self, inputs: Tensor) -> Tensor:
        return F.rms_norm(inputs, (inputs.shape[-1],), self.weight, 1e-6)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions over packed rows."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.query = Projection(config.hidden, config.heads * config.head_dim, config)
        self.key = Projection(config.hidden, config.kv_heads * config.head_dim, config)
        self.value = Projection(config.hidden, config.kv_heads * config.head_dim, config)
        self.out = Projection(config.heads * config.head_dim, config.hidden, config)

    def forward(self, hidden_PH: Tensor, inputs: LayerInputs) -> Tensor:
        size = self.config.head_dim
        query = _rotated(self.query(hidden_PH).unflatten(-1, (-1, size)).transpose(0, 1), inputs)
        key = _rotated(self.key(hidden_PH).unflatten(-1, (-1, size)).transpose(0, 1), inputs)
        value = self.value(hidden_PH).unflatten(-1, (-1, size)).transpose(0, 1)
        out_1APD = packed_attention(query[None], key[None], value[None], inputs.mask, size**-0.5)
        out: Tensor = self.out(out_1APD[0].transpose(0, 1).flatten(1))
        return out


class GatedFeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DecoderConfig, width: int | None = None) -> None:
        super().__init__()
        width = config.feed_forward if width is None else width
        self.gate = Projection(config.hidden, width, config)
        self.up = Projection(config.hidden, width, config)
        self.down = Projection(width, config.hidden, config)

    def forward(self, hidden_PH: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(hidden_PH)) * self.up(hidden_PH))
        return out


class DecoderLayer(nn.Module):
    """Pre-norm residual layer around a token mixer (rows see one another) and a row-wise feed-forward."""

    def __init__(self, config: DecoderConfig, mixer: nn.Module, feed_forward: nn.Module) -> None:
        super().__init__()
        self.mixer_norm = Norm(config.hidden, config)
        self.mixer = mixer
        self.feed_forward_norm = Norm(config.hidden, config)
        self.feed_forward = feed_forward

    def forward(self, hidden_PH: Tensor, inputs: LayerInputs) -> Tensor:
        hidden_PH = hidden_PH + self.mixer(self.mixer_norm(hidden_PH), inputs)
        out: Tensor = hidden_PH + self.feed_forward(self.feed_forward_norm(hidden_PH))
        return out


def attention_layer(config: DecoderConfig, index: int) -> DecoderLayer:
    """The dense family's layer, the same at every depth."""
    return DecoderLayer(config, Attention(config), GatedFeedForward(config))


class Decoder(nn.Module):
    """Embedding, layers, norm, head. `recompute` may be changed at any time and is read live.

    `segment_state_bytes` is G of the laws: what one segment holds in one recurrent layer (0: attention only).
    """

    def __init__(
        self,
        config: DecoderConfig,
        layer: Callable[[DecoderConfig, int], nn.Module] = attention_layer,
        *,
        recompute: RecomputeMode = ONE_LAYER_FULL,
        segment_state_bytes: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        self.recompute = recompute
        self.segment_state_bytes = segment_state_bytes
        frozen = config.lora_rank > 0
        self.embedding = nn.Embedding(config.vocabulary, config.hidden, dtype=config.dtype)
        self.embedding.weight.requires_grad_(not frozen)
        self.layers = nn.ModuleList([layer(config, index) for index in range(config.layers)])
        self.norm = Norm(config.hidden, config)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False, dtype=config.dtype)
        self.head.weight.requires_grad_(not frozen)
        nn.init.normal_(self.head.weight, std=0.02)

    def recompute_mode(self) -> RecomputeMode:
        """The mode as it would run now: what is set, and whether the decoder trains."""
        mode = self.recompute
        return RecomputeMode(
            granularity=mode.granularity, method=mode.method, num_layers=mode.num_layers, training=self.training
        )

    def model_facts(self) -> ModelFacts:
        config = self.config
        return ModelFacts(
            name=type(self).__name__,
            layers=config.layers,
            hidden=config.hidden,
            vocabulary=config.vocabulary,
            dtype=config.dtype,
            segment_state_bytes=self.segment_state_bytes,
        )

    def head_logits(self, hidden_CH: Tensor) -> Tensor:
        out: Tensor = self.head(hidden_CH)
        return out

    def packed_hidden_states(self, rows: PackedRows) -> Tensor:
        """Hidden states of packed rows, [P, H], after the final norm."""
        hidden_PH: Tensor = self.embedding(rows.tokens_P)
        cos_PD, sin_PD = self._rotary_tables(rows.positions_P)
        inputs = LayerInputs(cos_PD=cos_PD, sin_PD=sin_PD, mask=ancestry_mask(rows), rows=rows)
        recompute = self.recompute_mode()
        if recompute not in (ONE_LAYER_FULL, NO_RECOMPUTE) and recompute.training:
            raise NotImplementedError(f"this decoder recomputes one layer at a time or nothing, not {recompute}")
        for layer in self.layers:
            if recompute.is_one_layer_full and torch.is_grad_enabled():
                hidden_PH = checkpoint(layer, hidden_PH, inputs, use_reentrant=False)
            else:
                hidden_PH = layer(hidden_PH, inputs)
        out: Tensor = self.norm(hidden_PH)
        return out

    def _rotary_tables(self, positions_P: Tensor) -> tuple[Tensor, Tensor]:
        size = self.config.head_dim
        exponents = torch.arange(0, size, 2, device=positions_P.device, dtype=torch.float32) / size
        angles = positions_P[:, None].float() * self.config.rope_theta**-exponents
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos().to(self.config.dtype), angles.sin().to(self.config.dtype)


def _rotated(states_APD: Tensor, inputs: LayerInputs) -> Tensor:
    first, second = states_APD.chunk(2, dim=-1)
    return states_APD * inputs.cos_PD + torch.cat([-second, first], dim=-1) * inputs.sin_PD
