"""A tiny Hugging Face decoder, sequences of many lengths, and a device that really runs out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM

from adapters.torch_memory import PeakMeter, StorageCounter

VOCABULARY = 96
VARLEN = "one_sequence_at_a_time"

Sequences = list[list[int]]


class LimitedCounter(StorageCounter):
    """A CPU that runs out of memory as soon as more than `limit_bytes` are live. `raised`: how often."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self.limit_bytes = limit_bytes
        self.raised = 0

    def _resize(self, key: int, size_bytes: int) -> int:
        known = self._live.get(key)
        grown_bytes = size_bytes - (0 if known is None else known.size_bytes)
        if grown_bytes > 0 and self._live_bytes + grown_bytes > self.limit_bytes:
            self.raised += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
        return size_bytes


@contextmanager
def limited_device(limit_bytes: int) -> Iterator[tuple[PeakMeter, LimitedCounter]]:
    """A meter of such a CPU, and its counter."""
    counter = LimitedCounter(limit_bytes)
    with PeakMeter(counter) as meter:
        yield meter, counter


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
    """Causal attention within each sequence, as flash attention's variable-length call: nothing of size P x P.

    query, key, value: [B, heads, T, head_dim]. cu_seq_lens_q: where the sequences of the one row begin, and its end.
    """
    bounds = [0, query.shape[2]] if cu_seq_lens_q is None else cu_seq_lens_q.tolist()
    sizes = [end - start for start, end in pairwise(bounds)]
    apart = zip(query.split(sizes, dim=2), key.split(sizes, dim=2), value.split(sizes, dim=2), strict=True)
    attend = partial(nn.functional.scaled_dot_product_attention, is_causal=True, scale=scaling, enable_gqa=True)
    parts = [attend(q, k, v) for q, k, v in apart]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(VARLEN, varlen_attention)
AttentionMaskInterface.register(VARLEN, lambda *_, **__: None)


def llama(seed: int = 0, *, hidden: int = 32, layers: int = 2, vocabulary: int = VOCABULARY) -> Any:
    torch.manual_seed(seed)
    config_of: Any = LlamaConfig
    config = config_of(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=8192, use_cache=False,
        attn_implementation=VARLEN,
    )  # fmt: skip
    return LlamaForCausalLM(config).train()


def sequences(count: int, *, least: int = 16, most: int = 200, seed: int = 0) -> Sequences:
    draw = random.Random(seed)
    return [[draw.randrange(VOCABULARY) for _ in range(draw.randint(least, most))] for _ in range(count)]


def padded_loss(model: nn.Module, chosen: Sequence[list[int]]) -> Tensor:
    """Summed cross-entropy of one padded tensor [B, longest]. Right padding under a causal mask needs no mask."""
    longest = max(map(len, chosen))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in chosen])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in chosen])
    logits = model(input_ids=ids).logits
    return _summed(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def packed_loss(model: nn.Module, chosen: Sequence[list[int]]) -> Tensor:
    """Summed cross-entropy of sequences laid one after the other in one row [1, sum], each with its own positions."""
    ids = torch.tensor([[token for row in chosen for token in row]])
    positions = torch.tensor([[at for row in chosen for at in range(len(row))]])
    bounds = torch.tensor([0, *map(len, chosen)]).cumsum(0)
    labels = torch.tensor([token for row in chosen for token in [*row[1:], -100]])
    logits = model(input_ids=ids, position_ids=positions, cu_seq_lens_q=bounds).logits
    return _summed(logits[0], labels)


def _summed(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="sum")


LOSSES = {True: padded_loss, False: packed_loss}
"""By whether it is padded."""


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def _named(name: str, message: str) -> str:
    return f"{name}: {message}"


def assert_same_gradients(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Float32, to 1e-5 of each tensor's largest entry: sums of thousands of rows in another order."""
    assert got.keys() == wanted.keys() and got
    for name, value in wanted.items():
        atol = 1e-5 * float(value.abs().max())
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=atol, msg=partial(_named, name))
