"""The head in chunks: what requests want of the hidden states, without ever holding P x vocabulary logits.

A chunk of `HEAD_CHUNK_ROWS` packed rows is projected, the wanted numbers are taken, and the logits are dropped;
backward projects the chunk again. So the head's memory is a workspace (a few chunk x vocabulary buffers), not a
slope. A row that several requests share is projected once, whatever number of targets they ask of it.

Shape legend: P packed rows, H hidden size, V vocabulary, E entries (wanted numbers), C rows of a chunk, K of top-k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from adapters.trainer_rank.rows import Ints

HEAD_CHUNK_ROWS = 512
IGNORED_TARGET = -100
"""A label of no interest (as in cross-entropy losses): its log-probability is 0 and carries no gradient."""

Head = Callable[[Tensor], Tensor]
"""Hidden states [C, H] to logits [C, V]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadPlan:
    """Which packed rows to project and which entry each number belongs to, sorted by row; host arrays.

    rows: int64 [U], the distinct packed rows, ascending. row_of_entry: int64 [E], index into `rows`, ascending.
    order: int64 [E], the entry in the caller's order. chunk_ends: entry count up to the end of each chunk of rows.
    """

    rows: Ints
    row_of_entry: Ints
    order: Ints
    chunk_ends: Ints

    @classmethod
    def of(cls, positions: Ints, packed_rows: int) -> HeadPlan:
        wanted = np.zeros(packed_rows, dtype=bool)
        wanted[positions] = True
        rows = np.flatnonzero(wanted)
        rank = np.cumsum(wanted) - 1
        unsorted = rank[positions]
        order = np.argsort(unsorted, kind="stable")
        row_of_entry = unsorted[order]
        ends = np.arange(HEAD_CHUNK_ROWS, len(rows) + HEAD_CHUNK_ROWS, HEAD_CHUNK_ROWS)
        return cls(rows=rows, row_of_entry=row_of_entry, order=order, chunk_ends=np.searchsorted(row_of_entry, ends))


def target_log_probs(hidden_PH: Tensor, head: Head, positions: Ints, targets: Ints) -> Tensor:
    """Log-probability of `targets[e]` after packed row `positions[e]`: fp32 [E], differentiable.

    Entries whose target is `IGNORED_TARGET` are 0, and rows wanted by no other entry are not projected.
    """
    kept = np.flatnonzero(targets != IGNORED_TARGET)
    plan = HeadPlan.of(positions[kept], hidden_PH.shape[0])
    device = hidden_PH.device
    targets_E = _to(targets[kept][plan.order], device)
    row_of_entry_E = _to(plan.row_of_entry, device)
    picked = []
    first = 0
    for chunk, (hidden_CH, end) in enumerate(_chunks(hidden_PH, plan)):
        local_rows = row_of_entry_E[first:end] - chunk * HEAD_CHUNK_ROWS
        picked.append(_recomputed(_target_chunk, head, hidden_CH, local_rows, targets_E[first:end]))
        first = end
    out = torch.zeros(len(targets), dtype=torch.float32, device=device)
    if not picked:
        return out
    return out.index_put((_to(kept[plan.order], device),), torch.cat(picked))


def top_k_log_probs(hidden_PH: Tensor, head: Head, positions: Ints, k: int) -> tuple[Tensor, Tensor]:
    """The `k` likeliest tokens after each packed row of `positions`: log-probabilities fp32, ids int64, [E, K]."""
    plan = HeadPlan.of(positions, hidden_PH.shape[0])
    values, ids = [], []
    for hidden_CH, _ in _chunks(hidden_PH, plan):
        chunk_values, chunk_ids = _recomputed(_top_k_chunk, head, hidden_CH, k)
        values.append(chunk_values)
        ids.append(chunk_ids)
    back = _to(plan.row_of_entry[np.argsort(plan.order, kind="stable")], hidden_PH.device)
    return torch.cat(values)[back], torch.cat(ids)[back]


def full_logits(hidden_PH: Tensor, head: Head, positions: Ints) -> Tensor:
    """Logits of each packed row of `positions`: [E, V]. They are an output, so nothing is dropped or recomputed."""
    plan = HeadPlan.of(positions, hidden_PH.shape[0])
    logits = torch.cat([head(hidden_CH) for hidden_CH, _ in _chunks(hidden_PH, plan)])
    return logits[_to(plan.row_of_entry[np.argsort(plan.order, kind="stable")], hidden_PH.device)]


def _chunks(hidden_PH: Tensor, plan: HeadPlan) -> list[tuple[Tensor, int]]:
    """The wanted hidden rows in chunks, each with the number of entries up to its end.

    Split, not sliced: the gradient of a split is one concatenation, that of slices a P x H buffer a slice.
    """
    if not len(plan.rows):
        return []
    wanted = hidden_PH if len(plan.rows) == hidden_PH.shape[0] else hidden_PH[_to(plan.rows, hidden_PH.device)]
    return list(zip(torch.split(wanted, HEAD_CHUNK_ROWS), plan.chunk_ends.tolist(), strict=True))


def _target_chunk(head: Head, hidden_CH: Tensor, rows_E: Tensor, targets_E: Tensor) -> Tensor:
    out: Tensor = _TargetLogProbs.apply(head(hidden_CH), rows_E, targets_E)  # type: ignore[no-untyped-call]
    return out


def _top_k_chunk(head: Head, hidden_CH: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, ids = head(hidden_CH).float().log_softmax(dim=-1).topk(k, dim=-1)
    return values, ids


def _recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    if not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False)


class _TargetLogProbs(torch.autograd.Function):
    """logits[row, target] - logsumexp(logits[row]) for several entries a row; one fp32 [C, V] buffer in backward."""

    @staticmethod
    def forward(ctx: Any, logits_CV: Tensor, rows_E: Tensor, targets_E: Tensor) -> Tensor:
        normalizer_C = torch.logsumexp(logits_CV.float(), dim=-1)
        ctx.save_for_backward(logits_CV, normalizer_C, rows_E, targets_E)
        return logits_CV[rows_E, targets_E].float() - normalizer_C[rows_E]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits_CV, normalizer_C, rows_E, targets_E = ctx.saved_tensors
        (gradient_E,) = gradients
        row_sums_C = torch.zeros_like(normalizer_C).index_add_(0, rows_E, gradient_E)
        out_CV = torch.sub(logits_CV, normalizer_C[:, None]).exp_().mul_(-row_sums_C[:, None])
        out_CV.index_put_((rows_E, targets_E), gradient_E, accumulate=True)
        return out_CV.to(logits_CV.dtype), None, None


def _to(array: Ints, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
