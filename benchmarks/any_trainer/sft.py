"""Supervised fine-tuning as any loop does it: a Hugging Face decoder, materialised logits, sequences of many lengths.

Batches are built in both ways that people build them: `padded`, one tensor [B, longest]; `packed`, all sequences in one
row with variable-length attention, which is how flash attention is called (here torch's own on a GPU, and one sequence
after the other on a CPU).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM

VARLEN = "variable_length"
LENGTHS = Path(__file__).parents[2] / "spec" / "evidence" / "any-trainer" / "lengths.txt"

Sequence_ = list[int]


def varlen_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each sequence; nothing of size P x P.

    query, key, value: [B, heads, T, head_dim]. cu_seq_lens_q: where the sequences of the one row begin, and its end
    (None: each of the B rows is a sequence).
    """
    attend = partial(nn.functional.scaled_dot_product_attention, is_causal=True, scale=scaling, enable_gqa=True)
    if cu_seq_lens_q is None:
        return attend(query, key, value).transpose(1, 2).contiguous(), None
    if query.device.type == "cuda":
        from torch.nn.attention.varlen import varlen_attn

        bounds = cu_seq_lens_q.to(torch.int32)
        longest = int((bounds[1:] - bounds[:-1]).max())
        q, k, v = (each[0].transpose(0, 1).contiguous() for each in (query, key, value))  # [T, heads, head_dim]
        grouped: dict[str, Any] = {}
        if "enable_gqa" in signature(varlen_attn).parameters:
            grouped = {"enable_gqa": True}
        else:  # PyTorch 2.11
            k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], dim=1) for each in (k, v))
        out = varlen_attn(q, k, v, bounds, bounds, longest, longest, scale=scaling, window_size=(-1, 0), **grouped)
        assert isinstance(out, Tensor)
        return out.unsqueeze(0), None
    sizes = [end - start for start, end in pairwise(cu_seq_lens_q.tolist())]
    apart = zip(query.split(sizes, dim=2), key.split(sizes, dim=2), value.split(sizes, dim=2), strict=True)
    return torch.cat([attend(q, k, v) for q, k, v in apart], dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(VARLEN, varlen_attention)
AttentionMaskInterface.register(VARLEN, lambda *_, **__: None)


def llama(
    seed: int = 0,
    *,
    hidden: int = 32,
    layers: int = 2,
    heads: int = 4,
    vocabulary: int = 96,
    dtype: Any = torch.float32,
) -> Any:
    """A Llama of random weights, in training mode, on the CPU."""
    torch.manual_seed(seed)
    config_of: Any = LlamaConfig
    config = config_of(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads // 2, max_position_embeddings=8192, use_cache=False,
        attn_implementation=VARLEN,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)
    return model.to(dtype).train()


def padded_loss(model: nn.Module, chosen: Sequence[Sequence_], device: torch.device | str = "cpu") -> Tensor:
    """Summed cross-entropy of one padded tensor [B, longest]. Right padding under a causal mask needs no mask."""
    longest = max(map(len, chosen))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in chosen], device=device)
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in chosen], device=device)
    logits = model(input_ids=ids).logits
    return _summed(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def packed_loss(model: nn.Module, chosen: Sequence[Sequence_], device: torch.device | str = "cpu") -> Tensor:
    """Summed cross-entropy of sequences laid one after the other in one row [1, sum], each with its own positions."""
    ids = torch.tensor([[token for row in chosen for token in row]], device=device)
    positions = torch.tensor([[at for row in chosen for at in range(len(row))]], device=device)
    bounds = torch.tensor([0, *map(len, chosen)], device=device).cumsum(0)
    labels = torch.tensor([token for row in chosen for token in [*row[1:], -100]], device=device)
    logits = model(input_ids=ids, position_ids=positions, cu_seq_lens_q=bounds).logits
    return _summed(logits[0], labels)


def _summed(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="sum")


LOSSES = {"padded": padded_loss, "packed": packed_loss}


def long_tailed(count: int, seed: int = 0) -> list[int]:
    """Lengths as chat and code data have them: most of a few hundred tokens, a tail to 4,096.

    A log-normal of median 330 and sigma 0.95, cut off at 64 and 4,096 (what a tokenizer's truncation does).
    """
    draw = random.Random(seed)
    return [min(4_096, max(64, int(draw.lognormvariate(5.8, 0.95)))) for _ in range(count)]


def lengths() -> list[int]:
    """The committed lengths: the first `long_tailed` of them, so that no run depends on a generator."""
    return [int(line) for line in LENGTHS.read_text().split()]


def sequences(sizes: Sequence[int], vocabulary: int, seed: int) -> list[Sequence_]:
    """Random tokens of these lengths."""
    draw = random.Random(seed)
    return [draw.choices(range(vocabulary), k=size) for size in sizes]
