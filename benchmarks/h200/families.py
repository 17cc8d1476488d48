"""Four model families with random frozen weights and rank-8 adapters, for measurements on a GPU.

dense: attention and a dense feed-forward (the sizes of an 8B model). moe: attention and 128 experts, top 8. gdn: three
layers in four are gated delta nets, dense feed-forward. gdn_moe: the same with 256 experts, top 8, and a shared one.
Everything is plain PyTorch: experts run in a loop over sorted rows, the delta rule in chunks of 64 rows. So rates per
row are those of this code, not those of fused kernels; how memory grows with rows, sharing and segments is the subject.

Shape legend: P packed rows, H hidden size, E experts, n chunks, c rows of a chunk, h value heads, d key or value size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from adapters.trainer_rank.decoder import (
    Attention,
    Decoder,
    DecoderConfig,
    DecoderLayer,
    GatedFeedForward,
    LayerInputs,
    Norm,
    Projection,
)
from adapters.trainer_rank.rows import PackedRows
from pricing.kernel.wave import RecurrentGeometry, segment_state_bytes

CHUNK_ROWS = 64
"""Rows the delta rule handles at once."""

SLAB_CHUNKS = 16
"""Chunks whose inner part is computed, and in backward recomputed, at a time."""

RECURRENT_EVERY = 4
"""In the gdn families every fourth layer is attention, the others are recurrent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of `count` experts of `width`, `top` of them a row; `shared_width` > 0 adds one that every row takes.

    `imbalance` is added to the router's scores in a falling ramp: 0 is balanced, large sends most rows to few experts.
    """

    count: int
    top: int
    width: int
    shared_width: int = 0
    imbalance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Everything needed to build one family's decoder."""

    config: DecoderConfig
    experts: Experts | None = None
    recurrent: RecurrentGeometry | None = None
    fused: bool = False
    """Whether the delta rule is the flash-linear-attention package's kernel (`benchmarks.h200.fused_delta_rule`)."""

    @property
    def segment_state_bytes(self) -> int:
        return 0 if self.recurrent is None else segment_state_bytes(self.recurrent)

    def build(self, device: torch.device) -> Decoder:
        """The decoder on `device`, in training mode, one-layer full recompute."""
        with device:
            model = Decoder(self.config, self._layer, segment_state_bytes=self.segment_state_bytes)
        return model.train()

    def _layer(self, config: DecoderConfig, index: int) -> DecoderLayer:
        is_recurrent = self.recurrent is not None and index % RECURRENT_EVERY != RECURRENT_EVERY - 1
        mixer = self._recurrent(config) if is_recurrent else Attention(config)
        feed_forward = GatedFeedForward(config) if self.experts is None else MixtureOfExperts(config, self.experts)
        return DecoderLayer(config, mixer, feed_forward)

    def _recurrent(self, config: DecoderConfig) -> GatedDeltaNet:
        assert self.recurrent is not None
        if not self.fused:
            return GatedDeltaNet(config, self.recurrent)
        from benchmarks.h200.fused_delta_rule import FusedGatedDeltaNet

        return FusedGatedDeltaNet(config, self.recurrent)


_GDN_GEOMETRY = RecurrentGeometry(value_heads=32, key_heads=16, key_dim=128, value_dim=128, conv_kernel=4)


def _sizes(**sizes: Any) -> DecoderConfig:
    return DecoderConfig(layers=8, head_dim=128, lora_rank=8, dtype=torch.bfloat16, **sizes)


FAMILIES: dict[str, Family] = {
    "dense": Family(config=_sizes(vocabulary=151_936, hidden=4096, heads=32, kv_heads=8, feed_forward=12_288)),
    "moe": Family(
        config=_sizes(vocabulary=151_936, hidden=2048, heads=32, kv_heads=4, feed_forward=0),
        experts=Experts(count=128, top=8, width=768),
    ),
    "gdn": Family(
        config=_sizes(vocabulary=248_320, hidden=2560, heads=32, kv_heads=4, feed_forward=9216),
        recurrent=_GDN_GEOMETRY,
    ),
    "gdn_moe": Family(
        config=_sizes(vocabulary=248_320, hidden=2048, heads=32, kv_heads=4, feed_forward=0),
        experts=Experts(count=256, top=8, width=512, shared_width=512),
        recurrent=_GDN_GEOMETRY,
    ),
}


FAMILIES |= {f"{name}_fused": replace(FAMILIES[name], fused=True) for name in ("gdn", "gdn_moe")}


def tiny(family: Family) -> Family:
    """The same structure in a size that a CPU runs in a blink, fp32."""
    config = replace(
        family.config,
        vocabulary=211,
        hidden=32,
        layers=min(4, family.config.layers),
        heads=4,
        kv_heads=2,
        head_dim=8,
        feed_forward=48,
        lora_rank=2,
        dtype=torch.float32,
    )
    experts = family.experts and replace(family.experts, count=6, top=2, width=16, shared_width=8)
    recurrent = family.recurrent and RecurrentGeometry(
        value_heads=4, key_heads=2, key_dim=8, value_dim=8, conv_kernel=4, dtype_bytes=4
    )
    return Family(config=config, experts=experts, recurrent=recurrent)


class MixtureOfExperts(nn.Module):
    """Top-k routed SwiGLU experts: rows sorted by expert, one expert after another."""

    def __init__(self, config: DecoderConfig, experts: Experts) -> None:
        super().__init__()
        self.experts = experts
        trains = config.lora_rank == 0
        self.router = Projection(config.hidden, experts.count, config)
        self.gate_up = nn.Parameter(
            torch.empty(experts.count, 2 * experts.width, config.hidden, dtype=config.dtype), trains
        )
        self.down = nn.Parameter(torch.empty(experts.count, config.hidden, experts.width, dtype=config.dtype), trains)
        nn.init.normal_(self.gate_up, std=0.02)
        nn.init.normal_(self.down, std=0.02)
        self.shared = GatedFeedForward(config, experts.shared_width) if experts.shared_width else None
        ramp = torch.linspace(experts.imbalance, 0.0, experts.count, dtype=torch.float32)
        self.register_buffer("ramp", ramp, persistent=False)

    def forward(self, hidden_PH: Tensor) -> Tensor:
        scores_PE = (self.router(hidden_PH).float() + self.ramp).softmax(dim=-1)
        weights_PK, chosen_PK = scores_PE.topk(self.experts.top, dim=-1)
        weights_PK = weights_PK / weights_PK.sum(dim=-1, keepdim=True)
        flat = chosen_PK.flatten()
        order = flat.argsort(stable=True)
        counts: list[int] = torch.bincount(flat, minlength=self.experts.count).tolist()
        source = order // self.experts.top
        pieces = hidden_PH[source].split(counts)
        done = [self._expert(index, piece) for index, piece in enumerate(pieces) if piece.shape[0]]
        weighted = torch.cat(done) * weights_PK.flatten()[order, None].to(hidden_PH.dtype)
        out_PH = torch.zeros_like(hidden_PH).index_add(0, source, weighted)
        return out_PH if self.shared is None else out_PH + self.shared(hidden_PH)

    def _expert(self, index: int, rows: Tensor) -> Tensor:
        gate, up = F.linear(rows, self.gate_up[index]).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down[index])


class GatedDeltaNet(nn.Module):
    """A gated delta net over a prefix tree: every segment starts from its parent's final state.

    Short causal convolution, decayed delta rule in fp32 chunks, gated output norm. All segments' initial states, and in
    backward the gradients of all final states, live through one layer: what G charges a segment.
    """

    def __init__(self, config: DecoderConfig, geometry: RecurrentGeometry) -> None:
        super().__init__()
        self.geometry = geometry
        key_width = geometry.key_heads * geometry.key_dim
        value_width = geometry.value_heads * geometry.value_dim
        self.widths = [key_width, key_width, value_width]
        self.mixed = Projection(config.hidden, 2 * key_width + value_width, config)
        self.output_gate = Projection(config.hidden, value_width, config)
        self.rates = Projection(config.hidden, 2 * geometry.value_heads, config)
        self.kernel = nn.Parameter(
            torch.randn(geometry.conv_kernel, 2 * key_width + value_width, dtype=config.dtype) * 0.2,
            requires_grad=config.lora_rank == 0,
        )
        self.norm = Norm(geometry.value_dim, config)
        self.out = Projection(value_width, config.hidden, config)

    def forward(self, hidden_PH: Tensor, inputs: LayerInputs) -> Tensor:
        geometry = self.geometry
        plan: ChunkPlan | None = inputs.shared.get("chunks")
        if plan is None:
            plan = inputs.shared["chunks"] = ChunkPlan.of(inputs.rows, geometry.conv_kernel)
        convolved: Tensor = TreeConvolution.apply(  # type: ignore[no-untyped-call]
            self.mixed(hidden_PH), self.kernel, plan.history_KP
        )
        mixed = F.silu(convolved)
        query, key, value = mixed.split(self.widths, dim=-1)
        repeat = geometry.value_heads // geometry.key_heads
        query = _unit(query.unflatten(-1, (-1, geometry.key_dim))).repeat_interleave(repeat, dim=1)
        key = _unit(key.unflatten(-1, (-1, geometry.key_dim))).repeat_interleave(repeat, dim=1)
        value = value.unflatten(-1, (-1, geometry.value_dim)).float()
        log_decay, strength = self.rates(hidden_PH)[plan.order].float().chunk(2, dim=-1)
        out = delta_rule(query, key, value, -F.softplus(log_decay), strength.sigmoid(), plan)
        out = self.norm(out[plan.back].to(hidden_PH.dtype)).flatten(1)
        gated: Tensor = self.out(out * F.silu(self.output_gate(hidden_PH)))
        return gated


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlan:
    """How a tree's rows are cut for the delta rule.

    Rows are reordered so that chunks of equal length lie side by side. groups: (chunks, rows a chunk) of each length,
    in that order. order: packed row of each reordered row; back: its inverse. steps: chunks parents first, each
    (first reordered row, rows, segment, parent segment to start from or None to go on). history_KP: for each tap of
    the convolution, the packed row that many tokens back in the request, or P where there is none; in reordered rows.
    """

    groups: tuple[tuple[int, int], ...]
    order: Tensor
    back: Tensor
    steps: tuple[tuple[int, int, int, int | None], ...]
    segments: int
    history_KP: Tensor

    @property
    def slabs(self) -> list[tuple[int, int]]:
        """`groups`, at most `SLAB_CHUNKS` chunks at a time."""
        return [
            (min(SLAB_CHUNKS, chunks - first), length)
            for chunks, length in self.groups
            for first in range(0, chunks, SLAB_CHUNKS)
        ]

    @staticmethod
    def history_of(rows: PackedRows, taps: int) -> Tensor:
        """history_KP in packed rows, not reordered."""
        return rows.on_device(_history(rows.segment_spans(), rows.packed_rows, taps))

    @classmethod
    def of(cls, rows: PackedRows, taps: int) -> ChunkPlan:
        spans = [(first, count, parent) for first, count, parent in rows.segment_spans()]
        padding = np.flatnonzero(rows.segment_ids < 0)
        if len(padding):
            spans.append((int(padding[0]), len(padding), -1))
        chunks = [
            (min(CHUNK_ROWS, count - offset), first + offset, segment, parent if offset == 0 else None)
            for segment, (first, count, parent) in enumerate(spans)
            for offset in range(0, count, CHUNK_ROWS)
        ]
        by_length = sorted(range(len(chunks)), key=lambda index: -chunks[index][0])
        firsts = np.zeros(len(chunks), dtype=np.int64)
        order = np.zeros(rows.packed_rows, dtype=np.int64)
        row = 0
        groups: list[tuple[int, int]] = []
        for index in by_length:
            length, packed_first, _, _ = chunks[index]
            firsts[index] = row
            order[row : row + length] = np.arange(packed_first, packed_first + length)
            row += length
            same = groups and groups[-1][1] == length
            groups[-1:] = [(groups[-1][0] + 1, length)] if same else [*groups[-1:], (1, length)]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        history = _history(spans, rows.packed_rows, taps)[:, order]
        return cls(
            groups=tuple(groups),
            order=rows.on_device(order),
            back=rows.on_device(back),
            steps=tuple(
                (int(firsts[index]), length, segment, parent)
                for index, (length, _, segment, parent) in enumerate(chunks)
            ),
            segments=len(spans),
            history_KP=rows.on_device(history),
        )


def _history(spans: list[tuple[int, int, int]], packed_rows: int, taps: int) -> np.ndarray[Any, Any]:
    """[taps, P]: the packed row t tokens back, through ancestors; `packed_rows` before the first token."""
    before = np.full(packed_rows + 1, packed_rows, dtype=np.int64)
    for first, count, parent in spans:
        before[first + 1 : first + count] = np.arange(first, first + count - 1)
        if parent >= 0 and count:
            before[first] = spans[parent][0] + spans[parent][1] - 1
    history = [np.arange(packed_rows)]
    for _ in range(taps - 1):
        history.append(before[history[-1]])
    return np.stack(history)


class TreeConvolution(torch.autograd.Function):
    """Causal depthwise convolution along every request: saves its input only, however many taps."""

    @staticmethod
    def forward(ctx: Any, inputs_PW: Tensor, kernel_KW: Tensor, history_KP: Tensor) -> Tensor:
        padded = F.pad(inputs_PW, (0, 0, 0, 1))
        out = torch.zeros_like(inputs_PW)
        for tap, source in zip(kernel_KW, history_KP, strict=True):
            out.addcmul_(padded[source], tap)
        ctx.save_for_backward(inputs_PW, kernel_KW, history_KP)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        inputs_PW, kernel_KW, history_KP = ctx.saved_tensors
        (gradient_PW,) = gradients
        padded_gradient = gradient_PW.new_zeros(inputs_PW.shape[0] + 1, inputs_PW.shape[1])
        for tap, source in zip(kernel_KW, history_KP, strict=True):
            padded_gradient.index_add_(0, source, gradient_PW * tap)
        kernel_gradient = None
        if ctx.needs_input_grad[1]:
            padded = F.pad(inputs_PW, (0, 0, 0, 1))
            kernel_gradient = torch.stack([(padded[source] * gradient_PW).sum(0) for source in history_KP])
        return padded_gradient[:-1], kernel_gradient, None


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, strength: Tensor, plan: ChunkPlan
) -> Tensor:
    """Gated delta rule over a tree: q, k [P, h, dk], v [P, h, dv], log decay and strength [P, h] in reordered rows.

    Row by row: S <- S * exp(g); S <- S + k (strength * (v - k S)); out = q S. Within a chunk the sequential part is a
    unit lower-triangular solve; between chunks only the state [h, dk, dv] is carried. What happens within chunks is
    recomputed slab by slab in backward: a workspace, so that the scan and its states hold the layer's peak.
    """
    inputs = (query, key, value, log_decay, strength)
    sizes = [chunks * length for chunks, length in plan.slabs]
    parts = [
        checkpoint(_within_chunks, *slab, length, use_reentrant=False)
        for (_, length), *slab in zip(plan.slabs, *(rows.split(sizes) for rows in inputs), strict=True)
    ]
    decayed_query, decayed_key, solved_value, solved_key, scores, total = (
        torch.cat(column) if len(column) > 1 else column[0] for column in zip(*parts, strict=True)
    )
    out: Tensor = _TreeScan.apply(decayed_query, decayed_key, solved_value, solved_key, scores, total, plan)  # type: ignore[no-untyped-call]
    return out


def _within_chunks(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, strength: Tensor, length: int
) -> tuple[Tensor, ...]:
    """What each chunk contributes without its starting state, flat over rows again: [rows, h, ...].

    The last two are the scores [rows, h, CHUNK_ROWS] (zero beyond the chunk) and the chunk's whole decay [rows, h].
    """

    def chunked(rows: Tensor) -> Tensor:
        by_chunk: Tensor = rows.unflatten(0, (-1, length)).transpose(1, 2)  # [n, h, c, ...]
        return by_chunk

    def flat(chunks: Tensor) -> Tensor:
        return chunks.transpose(1, 2).flatten(0, 1)

    query, key, value = chunked(query) * query.shape[-1] ** -0.5, chunked(key), chunked(value)
    decay = chunked(log_decay).cumsum(dim=-1)
    strength = chunked(strength)[..., None]
    lower = torch.ones(length, length, dtype=torch.bool, device=key.device).tril()
    between = (decay[..., :, None] - decay[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    weighted_key = key * strength
    system = (weighted_key @ key.transpose(-1, -2) * between).tril(-1)
    right_sides = torch.cat([value * strength, weighted_key * decay.exp()[..., None]], dim=-1)
    solved = torch.linalg.solve_triangular(system, right_sides, upper=False, unitriangular=True)
    solved_value, solved_key = solved.split([value.shape[-1], key.shape[-1]], dim=-1)
    scores = F.pad(query @ key.transpose(-1, -2) * between, (0, CHUNK_ROWS - length))
    total = decay[..., -1:]
    return (
        flat(query * decay.exp()[..., None]),
        flat(key * (total - decay).exp()[..., None]),
        flat(solved_value),
        flat(solved_key),
        flat(scores),
        flat(total.exp().expand_as(decay)),
    )


class _TreeScan(torch.autograd.Function):
    """The sequential part: states handed from chunk to chunk and from parent to child.

    Held through the layer: the state before every chunk (a segment's first one is its initial state); in backward also
    the gradient of every segment's final state, because its children add to it.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, solved_key: Tensor, scores: Tensor, total: Tensor,
        plan: ChunkPlan,
    ) -> Tensor:  # fmt: skip
        heads, key_dim, value_dim = query.shape[1], query.shape[2], value.shape[2]
        starts = query.new_zeros(len(plan.steps), heads, key_dim, value_dim)
        finals = query.new_zeros(plan.segments, heads, key_dim, value_dim)
        out = torch.empty_like(value)
        for step, (first, rows, segment, parent) in enumerate(plan.steps):
            here = slice(first, first + rows)
            if parent is None:
                starts[step] = finals[segment]
            elif parent >= 0:
                starts[step] = finals[parent]
            state = starts[step]
            new = value[here].transpose(0, 1) - solved_key[here].transpose(0, 1) @ state
            seen = query[here].transpose(0, 1) @ state + scores[here, :, :rows].transpose(0, 1) @ new
            out[here] = seen.transpose(0, 1)
            finals[segment] = state * total[first][:, None, None] + key[here].permute(1, 2, 0) @ new
        ctx.save_for_backward(query, key, value, solved_key, scores, total, starts)
        ctx.plan = plan
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, solved_key, scores, total, starts = ctx.saved_tensors
        plan: ChunkPlan = ctx.plan
        (gradient,) = gradients
        finals_gradient = starts.new_zeros(plan.segments, *starts.shape[1:])
        grads = [torch.zeros_like(tensor) for tensor in (query, key, value, solved_key, scores, total)]
        d_query, d_key, d_value, d_solved_key, d_scores, d_total = grads
        for step in range(len(plan.steps) - 1, -1, -1):
            first, rows, segment, parent = plan.steps[step]
            here = slice(first, first + rows)
            state, d_final = starts[step], finals_gradient[segment]
            d_out = gradient[here].transpose(0, 1)
            chunk_scores = scores[here, :, :rows].transpose(0, 1)
            new = value[here].transpose(0, 1) - solved_key[here].transpose(0, 1) @ state
            d_new = chunk_scores.transpose(1, 2) @ d_out + key[here].transpose(0, 1) @ d_final
            d_scores[here, :, :rows] = (d_out @ new.transpose(1, 2)).transpose(0, 1)
            d_query[here] = (d_out @ state.transpose(1, 2)).transpose(0, 1)
            d_key[here] = (new @ d_final.transpose(1, 2)).transpose(0, 1)
            d_value[here] = d_new.transpose(0, 1)
            d_solved_key[here] = -(d_new @ state.transpose(1, 2)).transpose(0, 1)
            d_total[first] = (d_final * state).sum(dim=(1, 2))
            d_state = query[here].permute(1, 2, 0) @ d_out
            d_state += d_final * total[first][:, None, None]
            d_state -= solved_key[here].permute(1, 2, 0) @ d_new
            if parent is None:
                finals_gradient[segment] = d_state
            elif parent >= 0:
                finals_gradient[parent] += d_state
        return *grads, None


def _unit(vectors: Tensor) -> Tensor:
    return F.normalize(vectors.float(), dim=-1, eps=1e-6)


def build(
    name: str, device: torch.device, *, small: bool = False, change: Callable[[Family], Family] | None = None
) -> Decoder:
    """The decoder of the family called `name`; `small` for CPU runs; `change` edits the family first."""
    family = FAMILIES[name]
    family = family if change is None else change(family)
    return (tiny(family) if small else family).build(device)
