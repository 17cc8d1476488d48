"""The head in chunks: what requests want of the hidden states, without ever holding P x vocabulary logits.

A chunk of `HEAD_CHUNK_ROWS` packed rows is projected, the wanted numbers are taken, and the logits are dropped;
backward projects the chunk again. So the head's memory is a workspace (a few chunk x vocabulary buffers), not a
slope. A row that several requests share is projected once, whatever number of targets they ask of it.

Log-probabilities and entropies are those of logits / temperature. A row wanted at two temperatures is projected twice.

Shape legend: P packed rows, H hidden size, V vocabulary, E entries (wanted numbers), C rows of a chunk, K of top-k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

BeforeCopies = Callable[[int], None]
"""Told before requests get their own numbers, with the bytes that the numbers of distinct rows take by then."""


def _nobody_asks(_distinct_bytes: int) -> None:
    """For callers that do not measure."""


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

    @property
    def chunk_count(self) -> int:
        return len(self.chunk_ends)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNumbers:
    """What the head says of single tokens: fp32 (fp64 of an fp64 model), differentiable.

    log_probs: [E], of each target. entropies: of each entropy position, [N]; None where none was asked for.
    """

    log_probs: Tensor
    entropies: Tensor | None


def token_numbers(
    hidden_PH: Tensor,
    head: Head,
    positions: Ints,
    targets: Ints,
    *,
    entropy_positions: Ints | None = None,
    temperature: float = 1.0,
    before_entropies: BeforeCopies = _nobody_asks,
) -> TokenNumbers:
    """Log-probability of `targets[e]` after packed row `positions[e]`, and the entropy (nats) after the others.

    Entries whose target is `IGNORED_TARGET` are 0, and rows wanted by no other entry are not projected. Where nothing
    is projected the zeros still hang on the hidden states, so that a loss of them has a backward.
    """
    kept = np.flatnonzero(targets != IGNORED_TARGET)
    wants_entropy = entropy_positions is not None
    asked = positions[kept] if entropy_positions is None else np.concatenate([positions[kept], entropy_positions])
    device, exact = hidden_PH.device, torch.promote_types(hidden_PH.dtype, torch.float32)
    log_probs_E = torch.zeros(len(targets), dtype=exact, device=device) + hidden_PH[:0].sum().to(exact)
    plan = HeadPlan.of(asked, hidden_PH.shape[0])
    picked, entropies = [], []
    if len(plan.rows):
        index_of_row = np.zeros(hidden_PH.shape[0], dtype=np.int64)
        index_of_row[plan.rows] = np.arange(len(plan.rows))
        order = np.argsort(index_of_row[positions[kept]], kind="stable")
        rows = index_of_row[positions[kept]][order]
        rows_E, targets_E = _to(rows, device), _to(targets[kept][order], device)
        ends = np.searchsorted(rows, np.arange(1, plan.chunk_count + 1) * HEAD_CHUNK_ROWS).tolist()
        first = 0
        for chunk, ((hidden_CH, _), end) in enumerate(zip(_chunks(hidden_PH, plan), ends, strict=True)):
            local_rows = rows_E[first:end] - chunk * HEAD_CHUNK_ROWS
            numbers, entropies_C = _recomputed(
                _token_chunk, head, hidden_CH, local_rows, targets_E[first:end], temperature, wants_entropy
            )
            picked.append(numbers)
            entropies.append(entropies_C)
            first = end
        if len(kept):
            log_probs_E = log_probs_E.index_put((_to(kept[order], device),), torch.cat(picked))
    if entropy_positions is None:
        return TokenNumbers(log_probs=log_probs_E, entropies=None)
    if not entropies:
        return TokenNumbers(log_probs=log_probs_E, entropies=log_probs_E[:0])
    back = _to(index_of_row[entropy_positions], device)
    before_entropies(_bytes_of(entropies))
    return TokenNumbers(log_probs=log_probs_E, entropies=torch.cat(entropies)[back])


def target_log_probs(hidden_PH: Tensor, head: Head, positions: Ints, targets: Ints, temperature: float = 1.0) -> Tensor:
    """`token_numbers` without entropies: [E]."""
    return token_numbers(hidden_PH, head, positions, targets, temperature=temperature).log_probs


def top_k_log_probs(
    hidden_PH: Tensor,
    head: Head,
    positions: Ints,
    k: int,
    temperature: float = 1.0,
    *,
    before_copies: BeforeCopies = _nobody_asks,
) -> tuple[Tensor, Tensor]:
    """The `k` likeliest tokens after each packed row of `positions`: log-probabilities fp32, ids int64, [E, K]."""
    plan = HeadPlan.of(positions, hidden_PH.shape[0])
    if not len(plan.rows):
        exact = torch.promote_types(hidden_PH.dtype, torch.float32)
        nothing = hidden_PH[:0, :1].to(exact).expand(0, k)
        return nothing, torch.zeros(0, k, dtype=torch.int64, device=hidden_PH.device)
    values, ids = [], []
    for hidden_CH, _ in _chunks(hidden_PH, plan):
        chunk_values, chunk_ids = _recomputed(_top_k_chunk, head, hidden_CH, k, temperature)
        values.append(chunk_values)
        ids.append(chunk_ids)
    back = _to(plan.row_of_entry[np.argsort(plan.order, kind="stable")], hidden_PH.device)
    before_copies(_bytes_of(values) + _bytes_of(ids))
    return torch.cat(values)[back], torch.cat(ids)[back]


def full_logits(
    hidden_PH: Tensor, head: Head, positions: Ints, vocabulary: int, *, before_copies: BeforeCopies = _nobody_asks
) -> Tensor:
    """Logits of each packed row of `positions`: [E, V]. They are an output, so nothing is dropped or recomputed.

    They are the model's own, at no temperature.
    """
    plan = HeadPlan.of(positions, hidden_PH.shape[0])
    if not len(plan.rows):
        return hidden_PH[:0, :1].expand(0, vocabulary)
    logits = torch.cat([head(hidden_CH) for hidden_CH, _ in _chunks(hidden_PH, plan)])
    before_copies(_bytes_of([logits]))
    return logits[_to(plan.row_of_entry[np.argsort(plan.order, kind="stable")], hidden_PH.device)]


def _chunks(hidden_PH: Tensor, plan: HeadPlan) -> list[tuple[Tensor, int]]:
    """The wanted hidden rows in chunks, each with the number of entries up to its end.

    Split, not sliced: the gradient of a split is one concatenation, that of slices a P x H buffer a slice.
    """
    if not len(plan.rows):
        return []
    wanted = hidden_PH if len(plan.rows) == hidden_PH.shape[0] else hidden_PH[_to(plan.rows, hidden_PH.device)]
    return list(zip(torch.split(wanted, HEAD_CHUNK_ROWS), plan.chunk_ends.tolist(), strict=True))


def _token_chunk(
    head: Head, hidden_CH: Tensor, rows_E: Tensor, targets_E: Tensor, temperature: float, wants_entropy: bool
) -> tuple[Tensor, Tensor]:
    numbers: tuple[Tensor, Tensor] = _TokenNumbers.apply(  # type: ignore[no-untyped-call]
        head(hidden_CH), rows_E, targets_E, temperature, wants_entropy
    )
    return numbers


def _top_k_chunk(head: Head, hidden_CH: Tensor, k: int, temperature: float) -> tuple[Tensor, Tensor]:
    values, ids = _tempered(head(hidden_CH), temperature).log_softmax(dim=-1).topk(k, dim=-1)
    return values, ids


def _tempered(logits: Tensor, temperature: float) -> Tensor:
    """logits / temperature in fp32, or in fp64 where they are fp64."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return exact if temperature == 1.0 else exact / temperature


def _recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    if not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False)


def _probabilities(logits_CV: Tensor, normalizer_C: Tensor, temperature: float) -> Tensor:
    """exp(logits / temperature - normalizer) in one exact buffer."""
    centred_CV = torch.sub(logits_CV, (normalizer_C * temperature)[:, None])
    if temperature != 1.0:
        centred_CV /= temperature
    return centred_CV.exp_()


class _TokenNumbers(torch.autograd.Function):
    """z[row, target] - logsumexp(z[row]) for several entries a row, and each row's entropy; z = logits / temperature.

    Backward makes one exact [C, V] buffer, and a second one where entropies are wanted. With p the softmax of z and H
    its entropy, d log p[t] / dz = [t] - p and dH / dz = -p (log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any, logits_CV: Tensor, rows_E: Tensor, targets_E: Tensor, temperature: float, wants_entropy: bool
    ) -> tuple[Tensor, Tensor]:
        normalizer_C = torch.logsumexp(_tempered(logits_CV, temperature), dim=-1)
        chosen_E = _tempered(logits_CV[rows_E, targets_E], temperature)
        if wants_entropy:
            entropies_C = torch.special.entr(_probabilities(logits_CV, normalizer_C, temperature)).sum(dim=-1)
        else:
            entropies_C = normalizer_C[:0].clone()
        ctx.save_for_backward(logits_CV, normalizer_C, entropies_C, rows_E, targets_E)
        ctx.temperature, ctx.wants_entropy = temperature, wants_entropy
        return chosen_E - normalizer_C[rows_E], entropies_C

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits_CV, normalizer_C, entropies_C, rows_E, targets_E = ctx.saved_tensors
        gradient_E, entropy_gradient_C = gradients
        probabilities_CV = _probabilities(logits_CV, normalizer_C, ctx.temperature)
        pull_C = torch.zeros_like(normalizer_C).index_add_(0, rows_E, gradient_E)
        if ctx.wants_entropy:
            pull_C += entropy_gradient_C * entropies_C
            spread_CV = torch.special.xlogy(probabilities_CV, probabilities_CV).mul_(entropy_gradient_C[:, None])
            out_CV = probabilities_CV.mul_(-pull_C[:, None]).sub_(spread_CV)
        else:
            out_CV = probabilities_CV.mul_(-pull_C[:, None])
        out_CV.index_put_((rows_E, targets_E), gradient_E, accumulate=True)
        if ctx.temperature != 1.0:
            out_CV /= ctx.temperature
        return out_CV.to(logits_CV.dtype), None, None, None, None


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _to(array: Ints, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
