"""What a caller asks for, with the tokens: requests and their outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adapters.trainer_rank.errors import RequestError
from adapters.trainer_rank.head import IGNORED_TARGET
from adapters.trainer_rank.packed_model import ModelFacts, PackedModel
from adapters.trainer_rank.routing import RoutedModel
from adapters.trainer_rank.rows import Ints
from pricing.kernel.requests import RequestSpec

LOG_PROB_BYTES = 4
TOKEN_ID_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """One sequence and what is wanted of it. Arrays may be lists, numpy arrays or tensors.

    They are copied when the request is made: a buffer may be filled anew at once, and later waves run what was asked.

    tokens: token ids, (N,) or (1, N). targets: labels whose log-probability is wanted, one per token ((N,) or the
    tokens' shape) or K per token ((N, K)); -100 gives 0. top_k: that many likeliest tokens after each token.
    entropy: the entropy of the distribution after each token, in nats. temperature: log-probabilities and entropies
    are those of logits / temperature. logits, hidden_states: those of each token, as the model makes them.
    auxiliary_loss: the load-balancing loss of a mixture of experts, see `RequestOutputs`. grads: whether outputs carry
    gradients. A request that wants nothing is inactive: it runs no model work and costs nothing. One without tokens
    gets outputs without entries.

    Tokens and labels are whole numbers below the vocabulary. Of negative ones only the label -100 has a meaning.
    """

    tokens: Any
    targets: Any = None
    top_k: int | None = None
    logits: bool = False
    hidden_states: bool = False
    grads: bool = True
    temperature: float = 1.0
    entropy: bool = False
    auxiliary_loss: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", _copied(self.tokens))
        object.__setattr__(self, "targets", _copied(self.targets))

    def spec(self, vocabulary: int, positions: int | None = None) -> RequestSpec:
        """The request by its shapes. positions: how many a model has a table for.

        Raises `RequestError` where something is of the wrong type, where labels do not fit the tokens, where tokens,
        labels or top_k do not fit the vocabulary, or where the request is longer than the table: on an accelerator the
        last two would end the process, and label -1 would be taken for the last token.
        """
        input_shape = _shape("tokens", self.tokens)
        target_shape = None if self.targets is None else _shape("targets", self.targets)
        rows = int(np.prod(input_shape))
        if len(input_shape) not in (1, 2) or (len(input_shape) == 2 and input_shape[0] != 1):
            raise RequestError(f"tokens must have shape (N,) or (1, N), got {input_shape}")
        if target_shape is not None and target_shape[: len(input_shape)] != input_shape and target_shape[:1] != (rows,):
            raise RequestError(f"targets of shape {target_shape} do not fit tokens of shape {input_shape}")
        _require_within("tokens", self.tokens, vocabulary)
        if self.targets is not None:
            _require_within("targets", self.targets, vocabulary, besides=IGNORED_TARGET)
        self._require_settings(vocabulary)
        if positions is not None and rows > positions:
            raise RequestError(f"the request has {rows:,} tokens; the model has a table of {positions:,} positions")
        return RequestSpec(
            input_shape=input_shape,
            target_shape=target_shape,
            top_k=self.top_k,
            logits=self.logits,
            hidden_states=self.hidden_states,
            routes=self.auxiliary_loss,
            entropy=self.entropy,
        )

    def _require_settings(self, vocabulary: int) -> None:
        for name in ("logits", "hidden_states", "grads", "entropy", "auxiliary_loss"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise RequestError(f"{name} must be True or False, got {value!r}")
        if self.top_k is not None:
            if not isinstance(self.top_k, int) or isinstance(self.top_k, bool) or self.top_k < 1:
                raise RequestError(f"top_k must be a whole number of at least 1, got {self.top_k!r}")
            if self.top_k > vocabulary:
                raise RequestError(f"top_k is {self.top_k}; the vocabulary has {vocabulary} tokens")
        heat = self.temperature
        if not isinstance(heat, (int, float)) or isinstance(heat, bool) or not 0 < heat < math.inf:
            raise RequestError(f"temperature must be a number above 0, got {heat!r}")

    def token_row(self) -> Ints:
        """The tokens as one int64 row."""
        return _ints(self.tokens).reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutputs:
    """What one request gets back, on the model's device; None where it was not asked for.

    target_log_probs: fp32, shaped like the targets. top_k_log_probs: fp32 [N, K]. top_k_ids: int64 [N, K].
    entropy: fp32 [N], nats. logits: [N, V]. hidden_states: [N, H]. What is fp32 here is fp64 of an fp64 model. A
    request's outputs are views of its wave's: keeping one keeps them all.

    auxiliary_loss: a scalar, the load-balancing loss over the packed rows of the forward that the request ran in, each
    row once however many requests share it. All requests of that forward hold the same one: add up a wave's by
    `auxiliary_loss(wave.outputs)`, not request by request. auxiliary_rows: the rows it is over.
    """

    target_log_probs: Tensor | None = None
    top_k_log_probs: Tensor | None = None
    top_k_ids: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: Tensor | None = None
    entropy: Tensor | None = None
    auxiliary_loss: Tensor | None = None
    auxiliary_rows: int | None = None

    def tensors(self) -> list[Tensor]:
        fields = (
            *(self.target_log_probs, self.top_k_log_probs, self.top_k_ids, self.logits, self.hidden_states),
            *(self.entropy, self.auxiliary_loss),
        )
        return [value for value in fields if value is not None]


def auxiliary_loss(outputs: Sequence[RequestOutputs]) -> Tensor | None:
    """A wave's load-balancing loss: each forward's once, weighted by its packed rows; None where there is none."""
    forwards = {id(one.auxiliary_loss): one for one in outputs if one.auxiliary_loss is not None}
    weighted = [
        one.auxiliary_loss * one.auxiliary_rows
        for one in forwards.values()
        if one.auxiliary_loss is not None and one.auxiliary_rows is not None
    ]
    if not weighted:
        return None
    return torch.stack(weighted).sum() / sum(one.auxiliary_rows or 0 for one in forwards.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedItems:
    """A call's items, checked: each item's requests, and what each of them is by its shapes."""

    requests: tuple[tuple[Request, ...], ...]
    specs: tuple[tuple[RequestSpec, ...], ...]


def prepared(items: Sequence[Request | Sequence[Request]], model: PackedModel) -> PreparedItems:
    """Check every request before anything runs. Raises `RequestError` with the item and the request it is about."""
    facts = model.model_facts()
    requests, specs = [], []
    for position, item in enumerate(items):
        group = (item,) if isinstance(item, Request) else tuple(item) if isinstance(item, Sequence) else ()
        if isinstance(item, (str, bytes)) or not (isinstance(item, (Request, Sequence))):
            raise RequestError(f"item {position} must be a Request or a sequence of them, got {type(item).__name__}")
        found = []
        for number, request in enumerate(group):
            where = f"item {position}" if isinstance(item, Request) else f"item {position}, request {number}"
            if not isinstance(request, Request):
                raise RequestError(f"{where} must be a Request, got {type(request).__name__}")
            try:
                found.append(request.spec(facts.vocabulary, facts.positions))
                if request.auxiliary_loss and not (isinstance(model, RoutedModel) and model.router_facts()):
                    raise RequestError(f"{facts.name} has no load-balancing loss that is known here")
            except RequestError as error:
                raise RequestError(f"{where}: {error}") from None
        requests.append(group)
        specs.append(tuple(found))
    return PreparedItems(requests=tuple(requests), specs=tuple(specs))


def output_bytes(spec: RequestSpec, facts: ModelFacts) -> int:
    """Bytes of one request's outputs (O of the laws)."""
    rows = spec.logical_rows
    number_bytes = max(LOG_PROB_BYTES, facts.dtype_bytes)
    total = 0
    if spec.target_shape is not None:
        total += number_bytes * int(np.prod(spec.target_shape))
    if spec.top_k is not None:
        total += (number_bytes + TOKEN_ID_BYTES) * rows * spec.top_k
    if spec.entropy:
        total += number_bytes * rows
    if spec.logits:
        total += facts.dtype_bytes * rows * facts.vocabulary
    if spec.hidden_states:
        total += facts.dtype_bytes * rows * facts.hidden
    if spec.routes:
        total += number_bytes
    return total


def target_entries(request: Request, positions: Ints) -> tuple[Ints, Ints]:
    """The packed row and the label of each wanted log-probability of one request."""
    targets = _ints(request.targets)
    if not len(positions):
        return positions, targets.reshape(-1)
    targets = targets.reshape(len(positions), -1)
    return np.repeat(positions, targets.shape[1]), targets.reshape(-1)


def concatenated(arrays: Sequence[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _copied(values: Any) -> Any:
    """`values` as an int64 array of their own that nobody can write to; what is no such array as it was given."""
    if values is None:
        return None
    try:
        # A tensor by `.numpy()`: its `__array__` takes no copy keyword, and numpy warns of that.
        array = np.array(values.detach().cpu().numpy() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError, RuntimeError):
        return values
    if array.size == 0 and not isinstance(values, (Tensor, np.ndarray)):
        array = array.astype(np.int64)  # an empty list has no type of its own
    if array.dtype.kind not in "iu":
        return values
    array = np.ascontiguousarray(array, dtype=np.int64).reshape(array.shape)
    array.setflags(write=False)
    return array


def _shape(name: str, values: Any) -> tuple[int, ...]:
    """The shape of a copied array. Raises `RequestError` with what it is instead, and where."""
    if isinstance(values, np.ndarray) and values.dtype == np.int64:
        return tuple(int(size) for size in values.shape)
    kind = getattr(values, "dtype", type(values).__name__)
    where = ""
    try:
        array = np.asarray(values)
        kind = array.dtype if array.dtype.kind not in "O" else kind
        flat = array.reshape(-1)
        index = next(i for i, value in enumerate(flat.tolist()) if type(value) is not int)
        where = f": {name}[{index}] is {flat.tolist()[index]!r}"
    except (TypeError, ValueError, RuntimeError, StopIteration):
        pass
    raise RequestError(f"{name} must be an array of whole numbers, got {kind}{where}")


def _require_within(name: str, values: Ints, vocabulary: int, besides: int | None = None) -> None:
    """Check that all of `values` are 0 to `vocabulary` - 1, or `besides`."""
    outside = (values < 0) | (values >= vocabulary)
    if besides is not None:
        outside &= values != besides
    if outside.any():
        index = int(np.flatnonzero(outside)[0])
        found = int(values.reshape(-1)[index])
        raise RequestError(f"{name} holds {found} (at {index}); the vocabulary has {vocabulary} tokens")


def _ints(values: Any) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(np.asarray(values), dtype=np.int64)
