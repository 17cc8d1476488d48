"""What a caller asks for, with the tokens: requests and their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from adapters.trainer_rank.binding import ModelFacts
from adapters.trainer_rank.errors import RequestError
from adapters.trainer_rank.head import IGNORED_TARGET
from adapters.trainer_rank.rows import Ints
from pricing.kernel.requests import RequestSpec

LOG_PROB_BYTES = 4
TOKEN_ID_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """One sequence and what is wanted of it. Arrays may be lists, numpy arrays or CPU tensors.

    tokens: token ids, (N,) or (1, N). targets: labels whose log-probability is wanted, one per token ((N,) or the
    tokens' shape) or K per token ((N, K)); -100 gives 0. top_k: that many likeliest tokens after each token.
    logits, hidden_states: those of each token. grads: whether outputs carry gradients. A request that wants nothing is
    inactive: it runs no model work and costs nothing.

    Tokens and labels are whole numbers below the vocabulary. Of negative ones only the label -100 has a meaning.
    """

    tokens: Any
    targets: Any = None
    top_k: int | None = None
    logits: bool = False
    hidden_states: bool = False
    grads: bool = True

    def spec(self, vocabulary: int) -> RequestSpec:
        """The request by its shapes.

        Raises `RequestError` where labels do not fit the tokens, or where tokens, labels or top_k do not fit the
        vocabulary: on an accelerator the last would end the process, and label -1 would be taken for the last token.
        """
        input_shape = np.shape(self.tokens)
        target_shape = None if self.targets is None else np.shape(self.targets)
        rows = int(np.prod(input_shape))
        if len(input_shape) not in (1, 2) or (len(input_shape) == 2 and input_shape[0] != 1):
            raise RequestError(f"tokens must have shape (N,) or (1, N), got {input_shape}")
        if target_shape is not None and target_shape[: len(input_shape)] != input_shape and target_shape[:1] != (rows,):
            raise RequestError(f"targets of shape {target_shape} do not fit tokens of shape {input_shape}")
        _require_within("tokens", self.tokens, vocabulary)
        if self.targets is not None:
            _require_within("targets", self.targets, vocabulary, besides=IGNORED_TARGET)
        if self.top_k is not None and self.top_k > vocabulary:
            raise RequestError(f"top_k is {self.top_k}; the vocabulary has {vocabulary} tokens")
        return RequestSpec(
            input_shape=tuple(int(size) for size in input_shape),
            target_shape=None if target_shape is None else tuple(int(size) for size in target_shape),
            top_k=self.top_k,
            logits=self.logits,
            hidden_states=self.hidden_states,
        )

    def token_row(self) -> Ints:
        """The tokens as one int64 row."""
        return _ints(self.tokens).reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutputs:
    """What one request gets back, on the model's device; None where it was not asked for.

    target_log_probs: fp32, shaped like the targets. top_k_log_probs: fp32 [N, K]. top_k_ids: int64 [N, K].
    logits: [N, V]. hidden_states: [N, H]. A request's outputs are views of its wave's: keeping one keeps them all.
    """

    target_log_probs: Tensor | None = None
    top_k_log_probs: Tensor | None = None
    top_k_ids: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        fields = (self.target_log_probs, self.top_k_log_probs, self.top_k_ids, self.logits, self.hidden_states)
        return [value for value in fields if value is not None]


def output_bytes(spec: RequestSpec, facts: ModelFacts) -> int:
    """Bytes of one request's outputs (O of the laws)."""
    rows = spec.logical_rows
    total = 0
    if spec.target_shape is not None:
        total += LOG_PROB_BYTES * int(np.prod(spec.target_shape))
    if spec.top_k is not None:
        total += (LOG_PROB_BYTES + TOKEN_ID_BYTES) * rows * spec.top_k
    if spec.logits:
        total += facts.dtype_bytes * rows * facts.vocabulary
    if spec.hidden_states:
        total += facts.dtype_bytes * rows * facts.hidden
    return total


def target_entries(request: Request, positions: Ints) -> tuple[Ints, Ints]:
    """The packed row and the label of each wanted log-probability of one request."""
    targets = _ints(request.targets).reshape(len(positions), -1)
    return np.repeat(positions, targets.shape[1]), targets.reshape(-1)


def concatenated(arrays: Sequence[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _require_within(name: str, values: Any, vocabulary: int, besides: int | None = None) -> None:
    """Check that all of `values` are whole numbers of 0 to `vocabulary` - 1, or `besides`."""
    array = np.asarray(values)
    if array.size == 0:
        return
    if array.dtype.kind not in "iu":
        raise RequestError(f"{name} must be whole numbers, got {array.dtype}")
    if array.min() >= 0 and array.max() < vocabulary:
        return
    outside = array[(array < 0) | (array >= vocabulary)]
    outside = outside if besides is None else outside[outside != besides]
    if outside.size:
        raise RequestError(f"{name} holds {int(outside[0])}; the vocabulary has {vocabulary} tokens")


def _ints(values: Any) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(np.asarray(values), dtype=np.int64)
