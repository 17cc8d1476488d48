"""Requests: what a caller asks for, which requests count, and what a batch's memory signature and workload are.

Inactive requests (those that ask for no output) run no model work. They are dropped at the door: nothing below this
module ever sees them, so they can change neither a price nor a profile (INV-13).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pricing.kernel.errors import QuantityError, WaveError
from pricing.kernel.quantities import SHORT_REQUEST_ROWS, require_count
from pricing.kernel.shares import Share, kinds_of

INACTIVE: Final = "inactive"
SINGLE_TARGET: Final = "target:single"

_T = TypeVar("_T", str, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """One request by its shapes: no token, no tensor.

    `input_shape` is the shape of the token ids; its product is the request's logical rows. `target_shape` is the shape
    of the labels whose log-probabilities are wanted (None: none). `top_k` is K, or None. `routes`: something of a
    mixture's routers. `entropy`: the entropy after each token.
    """

    input_shape: tuple[int, ...]
    target_shape: tuple[int, ...] | None = None
    top_k: int | None = None
    logits: bool = False
    hidden_states: bool = False
    routes: bool = False
    entropy: bool = False

    def __post_init__(self) -> None:
        for field, shape in (("input_shape", self.input_shape), ("target_shape", self.target_shape or ())):
            if not isinstance(shape, tuple):
                raise QuantityError(field, shape, "must be a tuple of ints")
            for size in shape:
                require_count(field, size)
        if self.top_k is not None:
            require_count("top_k", self.top_k)

    @property
    def logical_rows(self) -> int:
        """Rows of the input: the product of its shape."""
        return math.prod(self.input_shape)

    @property
    def is_active(self) -> bool:
        return mix_key(self) != INACTIVE

    @property
    def is_short(self) -> bool:
        """Active, asking for single-target log-probabilities only, under `SHORT_REQUEST_ROWS` rows."""
        return mix_key(self) == SINGLE_TARGET and self.logical_rows < SHORT_REQUEST_ROWS


def mix_key(request: RequestSpec) -> str:
    """The request mix of one request: what it asks for, in a fixed order; `inactive` if nothing (laws, section 3).

    The labels are classified by the shape they have beside the input: an input (1, N) with labels (N, K) is
    `target:(K,)`, not `target:single`.
    """
    parts = []
    if request.target_shape is not None:
        tail = _target_tail(request.input_shape, request.target_shape)
        parts.append("target:" + (str(tail) if tail else "single"))
    if request.top_k is not None:
        parts.append(f"topk:{request.top_k}")
    if request.logits:
        parts.append("logits")
    if request.hidden_states:
        parts.append("hidden")
    if request.routes:
        parts.append("routes")
    if request.entropy:
        parts.append("entropy")
    return "+".join(parts) or INACTIVE


def _target_tail(input_shape: tuple[int, ...], target_shape: tuple[int, ...]) -> tuple[int, ...]:
    covered = len(input_shape) if target_shape[: len(input_shape)] == input_shape else 1
    return target_shape[covered:]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeMode:
    """The activation recompute mode as read from the live decoder when the price is asked for.

    `training` is whether recompute really happens: frameworks skip it in eval mode. `num_layers` is the number of
    layers recomputed as one unit.
    """

    granularity: str
    method: str | None = None
    num_layers: int | None = None
    training: bool = True

    @property
    def is_one_layer_full(self) -> bool:
        """Full recompute, one layer at a time, live: the only mode the packed law's evidence covers."""
        return self.training and self.granularity == "full" and self.method == "uniform" and self.num_layers == 1

    def __str__(self) -> str:
        mode = "/".join(str(part) for part in (self.granularity, self.method, self.num_layers) if part is not None)
        return mode if self.training else f"{mode} (not training: skipped)"


ONE_LAYER_FULL: Final = RecomputeMode(granularity="full", method="uniform", num_layers=1)
NO_RECOMPUTE: Final = RecomputeMode(granularity="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The facts that decide whether a wave is packed-priced (laws, section 3). No learned figure is among them.

    `grad_modes`: the distinct grad modes of the wave's groups, sorted. `request_mixes`: the distinct mix keys of its
    active requests, sorted. `shortest_single_target_rows`: rows of the shortest active `target:single` request.
    """

    grad_modes: tuple[bool, ...]
    request_mixes: tuple[str, ...]
    recompute: RecomputeMode
    shortest_single_target_rows: int | None = None

    def __post_init__(self) -> None:
        if self.shortest_single_target_rows is not None:
            require_count("shortest_single_target_rows", self.shortest_single_target_rows)

    @property
    def has_short_request(self) -> bool:
        shortest = self.shortest_single_target_rows
        return shortest is not None and shortest < SHORT_REQUEST_ROWS

    @property
    def grads(self) -> bool:
        """Whether any group of the wave runs with gradients."""
        return True in self.grad_modes

    @classmethod
    def training(cls, *, shortest_rows: int | None = None, recompute: RecomputeMode = ONE_LAYER_FULL) -> Workload:
        """The workload the packed law is for: gradients, single-target labels, one-layer full recompute."""
        return cls(
            grad_modes=(True,),
            request_mixes=(SINGLE_TARGET,),
            recompute=recompute,
            shortest_single_target_rows=shortest_rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestGroup:
    """Requests that may share rows: same adapter, same grad mode. `adapter` names the adapter's shape ("" for none)."""

    requests: tuple[RequestSpec, ...]
    grads: bool
    adapter: str = ""

    @property
    def active(self) -> tuple[RequestSpec, ...]:
        return tuple(request for request in self.requests if request.is_active)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Identity of a profile: waves with equal signatures teach one another (laws, section 2).

    Made from active requests only. The short flag is not part of it: a short batch reuses the profile learned from
    longer ones and is priced by another rule instead of starting cold. `shares` says how the rows divide over kinds,
    where there are several (`pricing.kernel.shares`); empty for a wave of one kind.
    """

    topology: str
    group_count: int
    request_mixes: tuple[str, ...]
    grad_modes: tuple[bool, ...]
    adapter_shapes: tuple[str, ...]
    recompute: RecomputeMode
    shares: tuple[Share, ...] = ()

    def __post_init__(self) -> None:
        require_count("group_count", self.group_count)
        _require_distinct("request_mixes", self.request_mixes)
        _require_distinct("grad_modes", self.grad_modes)
        _require_distinct("adapter_shapes", self.adapter_shapes)
        if tuple(sorted(self.shares)) != self.shares or len(kinds_of(self.shares)) != len(self.shares):
            raise WaveError(f"signature shares must be sorted, one a kind, got {self.shares!r}")

    @property
    def without_shares(self) -> Signature:
        """What waves of the same kinds have in common, whatever their proportions."""
        return replace(self, shares=()) if self.shares else self

    @property
    def key(self) -> str:
        """Canonical text: equal for equal signatures, on every machine."""
        mode = self.recompute
        facts: dict[str, object] = {
            "topology": self.topology,
            "group_count": self.group_count,
            "request_mixes": self.request_mixes,
            "grad_modes": self.grad_modes,
            "adapter_shapes": self.adapter_shapes,
            "recompute": [mode.granularity, mode.method, mode.num_layers, mode.training],
        }
        if self.shares:  # a wave of one kind has the key that it had before there were shares
            facts["shares"] = [[share.quantity, share.kind, share.size_class] for share in self.shares]
        return json.dumps(facts, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """First 16 hex digits of the key's SHA-256, for file names and records."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]


def workload_of(groups: Sequence[RequestGroup], recompute: RecomputeMode) -> Workload:
    """The workload of a batch. Groups without an active request do not count."""
    active = [(group, request) for group in groups for request in group.active]
    single_rows = [request.logical_rows for _, request in active if mix_key(request) == SINGLE_TARGET]
    return Workload(
        grad_modes=_distinct(group.grads for group, _ in active),
        request_mixes=_distinct(mix_key(request) for _, request in active),
        recompute=recompute,
        shortest_single_target_rows=min(single_rows, default=None),
    )


def signature_of(groups: Sequence[RequestGroup], recompute: RecomputeMode, *, topology: str) -> Signature:
    """The memory signature of a batch but for its shares, which depend on what the requests' tokens share.

    `topology` names the parallel layout and model (any fixed text).
    """
    counted = [group for group in groups if group.active]
    workload = workload_of(counted, recompute)
    return Signature(
        topology=topology,
        group_count=len(counted),
        request_mixes=workload.request_mixes,
        grad_modes=workload.grad_modes,
        adapter_shapes=_distinct(group.adapter for group in counted),
        recompute=recompute,
    )


def _require_distinct(field: str, values: tuple[_T, ...]) -> None:
    if len(set(values)) < len(values) or sorted(values) != list(values):
        raise WaveError(f"signature {field} must be sorted and distinct, got {values!r}")


def _distinct(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(sorted(set(values)))
