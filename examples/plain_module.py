"""A plain PyTorch decoder that `TrainerRank` can train: the least it must have, and one step of training.

    pip install 'packed-pricing[torch]'
    python examples/plain_module.py

Whatever attends from row to row must take a row's ancestors instead of all rows before it: `ancestry_mask` is that
mask and `packed_attention` the attention that follows it. All else (embeddings, norms, feed-forward) is row by row and
stays as it is, but positions come from `rows.positions_P`: packed rows of several requests stand one after another.

Shapes: P packed rows, H hidden size, A heads, D head size, V vocabulary, C rows of a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint

from adapters.trainer_rank import ModelFacts, PackedRows, Request, TrainerRank, ancestry_mask, packed_attention
from pricing import NO_RECOMPUTE, ONE_LAYER_FULL, RecomputeMode

VOCABULARY, HIDDEN, HEADS, LAYERS, POSITIONS = 64, 32, 4, 2, 512


class Layer(nn.Module):
    """Attention and feed-forward of one layer. The mask is all that packing adds."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_feed_forward = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.query_key_value = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.feed_forward = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, hidden_PH: Tensor, mask: BlockMask) -> Tensor:
        projected = self.query_key_value(self.before_attention(hidden_PH))
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(0, 1)[None] for part in projected.chunk(3, -1))
        attended_1APD = packed_attention(query, key, value, mask, query.shape[-1] ** -0.5)
        hidden_PH = hidden_PH + self.out(attended_1APD[0].transpose(0, 1).flatten(1))
        out: Tensor = hidden_PH + self.feed_forward(self.before_feed_forward(hidden_PH))
        return out


class PlainDecoder(nn.Module):
    """A `PackedModel` by having its four methods; it inherits from nothing of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def packed_hidden_states(self, rows: PackedRows) -> Tensor:
        """[P, H] after the last norm; each layer recomputed in backward, as `recompute_mode` says."""
        hidden_PH = self.tokens(rows.tokens_P) + self.positions(rows.positions_P)
        mask = ancestry_mask(rows)
        for layer in self.layers:
            if self.training and torch.is_grad_enabled():
                hidden_PH = checkpoint(layer, hidden_PH, mask, use_reentrant=False)
            else:
                hidden_PH = layer(hidden_PH, mask)
        out: Tensor = self.norm(hidden_PH)
        return out

    def head_logits(self, hidden_CH: Tensor) -> Tensor:
        """[C, V]; called chunk by chunk, so that the logits of a whole wave never stand in memory at once."""
        out: Tensor = self.head(hidden_CH)
        return out

    def recompute_mode(self) -> RecomputeMode:
        """What forward would do now. Only one-layer full recompute is priced by packed rows."""
        return ONE_LAYER_FULL if self.training else NO_RECOMPUTE

    def model_facts(self) -> ModelFacts:
        """Shapes for the static floor; `positions` refuses requests longer than the table."""
        return ModelFacts(
            name="PlainDecoder",
            layers=LAYERS,
            hidden=HIDDEN,
            vocabulary=VOCABULARY,
            dtype=self.head.weight.dtype,
            positions=POSITIONS,
        )


def main() -> None:
    torch.manual_seed(0)
    model = PlainDecoder().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rank = TrainerRank(model, memory_bytes=256 << 20)  # on a GPU the device says
    prompt = torch.randint(VOCABULARY, (80,)).tolist()
    rollouts = [prompt + torch.randint(VOCABULARY, (40,)).tolist() for _ in range(8)]
    items = [Request(tokens=row, targets=[*row[1:], -100]) for row in rollouts]
    for wave in rank.forward_micro_batches(items):
        loss = -torch.stack([output.target_log_probs.mean() for output in wave.outputs]).sum() / len(items)
        loss.backward()
        rows = wave.stats.plan.wave
        print(f"wave of {len(wave.outputs)}: {rows.packed_rows} packed rows for {rows.logical_rows} logical ones")
    optimizer.step()


if __name__ == "__main__":
    main()
