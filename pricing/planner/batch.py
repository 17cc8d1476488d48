"""A batch as the planner sees it: items of requests with their tokens, and the prefix tree over each group.

The tree is built once, when the batch is made. That is the only pass over the tokens: every width of every wave, every
split and every layout is then answered from it with integers. A batch that shares nothing (`share=False`) needs no
tokens: each request is a child of its own of the root, as deep as it is long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pricing.kernel.errors import PricingError
from pricing.kernel.quantities import MAX_QUANTITY, ceil_div, require_count
from pricing.kernel.requests import INACTIVE, SINGLE_TARGET, RequestSpec, mix_key
from pricing.planner.prefix_tree import ROOT, PrefixTree
from pricing.planner.tokens import Tokens, default_tokens

INACTIVE_GROUP: Final = -1
"""Group number of inactive requests."""


class BatchError(PricingError):
    """Requests that contradict one another or themselves. `request` is the index in caller order."""

    def __init__(self, request: int, reason: str) -> None:
        super().__init__(f"request {request}: {reason}")
        self.request = request
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanRequest:
    """One request with its tokens.

    tokens: a row of token ids (list, numpy array, CPU tensor), as many as `spec.logical_rows`; None where nothing is
    shared (`Batch(share=False)`) and no layout is wanted. Requests share rows only
    within a group: the same adapter `slot` and the same grad mode. adapter: the shape of that slot's adapter, as it
    stands in the memory signature. output_bytes: bytes of what it asks for. padded_tail_rows: rows at its end that are
    padding, which a refusal names. Compared by identity: tokens may be arrays.
    """

    tokens: Any = None
    spec: RequestSpec
    slot: str = ""
    adapter: str = ""
    grads: bool = True
    output_bytes: int = 0
    padded_tail_rows: int = 0


def without_padding(request: PlanRequest) -> PlanRequest:
    """The request without the padding at its end; outputs shrink in proportion."""
    spec, rows = request.spec, request.spec.logical_rows
    left = rows - request.padded_tail_rows
    if left == rows:
        return request
    input_shape = (*spec.input_shape[:-1], left)
    target_shape = spec.target_shape
    if target_shape is not None:
        whole = target_shape[: len(spec.input_shape)] == spec.input_shape
        target_shape = (*input_shape, *target_shape[len(input_shape) :]) if whole else (left, *target_shape[1:])
    return replace(
        request,
        tokens=None if request.tokens is None else request.tokens[:left],
        spec=replace(spec, input_shape=input_shape, target_shape=target_shape),
        output_bytes=ceil_div(request.output_bytes * left, rows),
        padded_tail_rows=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """Requests with equal keys may share rows."""

    slot: str
    grads: bool
    adapter: str

    @property
    def kind(self) -> str:
        """The kind of its rows: what a layer's memory for them depends on."""
        grads = "gradients" if self.grads else "no gradients"
        return f"{grads}, adapter {self.adapter}" if self.adapter else grads


Item = Sequence[PlanRequest]


class Batch:
    """Items in caller order and what planning needs of each request. Treat as immutable.

    Inactive requests keep their index and take no rows. Nodes of all groups' trees are numbered through; node 0 is the
    root of every group, and `parents[0]` is -1. `rows` holds the tokens of active requests (None for one without).

    share: False where every request runs all of its own rows, whatever its tokens are: packed rows are then logical
    rows, and a segment is a request. Raises `BatchError`, `TokenError` or `QuantityError`.
    """

    def __init__(self, items: Sequence[Item], *, tokens: Tokens | None = None, share: bool = True) -> None:
        self.share = share
        self.items: tuple[tuple[PlanRequest, ...], ...] = tuple(tuple(item) for item in items)
        self.requests: tuple[PlanRequest, ...] = tuple(request for item in self.items for request in item)
        self.first_request: list[int] = [0]
        for item in self.items:
            self.first_request.append(self.first_request[-1] + len(item))
        self.tokens: Tokens = tokens if tokens is not None else default_tokens()
        self.groups: list[GroupKey] = []
        self.mixes: list[str] = []
        self.lengths: list[int] = []
        self.output_bytes: list[int] = []
        self.group_of: list[int] = []
        self.single_target_rows: list[int | None] = []
        self._kinds: dict[tuple[int, str], str] = {}
        self._describe()
        self._build_trees()

    def __len__(self) -> int:
        return len(self.items)

    def item_requests(self, first_item: int, width: int) -> range:
        """Request indices of `width` items from `first_item` on."""
        return range(self.first_request[first_item], self.first_request[first_item + width])

    def is_active(self, request: int) -> bool:
        return self.mixes[request] != INACTIVE

    def depth_first(self, requests: Sequence[int]) -> list[int]:
        """`requests` group by group and depth-first over each tree, so siblings are adjacent; inactive first."""
        return sorted(requests, key=lambda request: (self.group_of[request], self.terminals[request], request))

    def cluster(self) -> tuple[Batch, tuple[int, ...]]:
        """The same items with siblings side by side, and the permutation: item i of the new batch was item p[i] here.

        Items follow their first active request depth-first over the trees; the sort is stable.
        """
        order = sorted(range(len(self.items)), key=self._cluster_key)
        return Batch([self.items[item] for item in order], tokens=self.tokens, share=self.share), tuple(order)

    def _cluster_key(self, item: int) -> tuple[int, int]:
        for request in self.item_requests(item, 1):
            if self.is_active(request):
                return self.group_of[request], self.terminals[request]
        return -1, ROOT

    def kind_of(self, group: int, mix: str) -> str:
        """The kind of the logical rows of a group's requests of this mix."""
        kind = self._kinds.get((group, mix))
        if kind is None:
            kind = self._kinds[group, mix] = f"{mix}, {self.groups[group].kind}"
        return kind

    def _describe(self) -> None:
        """What planning needs of each request. Requests by the thousand: what is usual is asked first and in place."""
        numbers: dict[tuple[str, bool], int] = {}
        slot: str | None = None
        grads, adapter, number = False, "", INACTIVE_GROUP
        for index, request in enumerate(self.requests):
            spec, output_bytes = request.spec, request.output_bytes
            mix = SINGLE_TARGET if _is_plain(spec) else mix_key(spec)
            length = spec.logical_rows
            if type(output_bytes) is not int or not 0 <= output_bytes <= MAX_QUANTITY:
                require_count("output_bytes", output_bytes)
            self.mixes.append(mix)
            self.lengths.append(length)
            self.output_bytes.append(output_bytes)
            self.single_target_rows.append(length if mix == SINGLE_TARGET else None)
            if mix == INACTIVE:
                self.group_of.append(INACTIVE_GROUP)
                continue
            if request.slot != slot or request.grads is not grads or request.adapter != adapter:
                number = self._group_number(numbers, index, request)
                slot, grads, adapter = request.slot, request.grads, request.adapter
            self.group_of.append(number)

    def _group_number(self, numbers: dict[tuple[str, bool], int], index: int, request: PlanRequest) -> int:
        number = numbers.setdefault((request.slot, request.grads), len(self.groups))
        if number == len(self.groups):
            self.groups.append(GroupKey(slot=request.slot, grads=request.grads, adapter=request.adapter))
        elif self.groups[number].adapter != request.adapter:
            raise BatchError(
                index,
                f"adapter {request.adapter!r} in slot {request.slot!r}, where an earlier request has "
                f"{self.groups[number].adapter!r}",
            )
        return number

    def _build_trees(self) -> None:
        members: list[list[int]] = [[] for _ in self.groups]
        self.rows: list[Any] = [()] * len(self.requests)
        for index, group in enumerate(self.group_of):
            if group != INACTIVE_GROUP:
                self.rows[index] = self._row(index)
                members[group].append(index)
        self.parents: list[int] = [-1]
        self.depths: list[int] = [0]
        self.sources: list[int] = [-1]
        self.terminals: list[int] = [ROOT] * len(self.requests)
        for requests in members:
            if self.share:
                tree = PrefixTree(self.tokens)
                for index in requests:
                    tree.add_row(self.rows[index])
                self._append_tree(tree, requests)
            else:
                self._append_apart(requests)

    def _row(self, index: int) -> Any:
        """The tokens of a request. Raises `BatchError` where there are none to find prefixes in, or another number."""
        given = self.requests[index].tokens
        if given is None:
            if self.share:
                raise BatchError(index, "has no tokens to find prefixes in (share=False plans by lengths alone)")
            return None
        row = self.tokens.row(given)
        if len(row) != self.lengths[index]:
            raise BatchError(index, f"{len(row)} tokens, but its input shape has {self.lengths[index]}")
        return row

    def _append_apart(self, requests: list[int]) -> None:
        """Each request as the only one of its path. One without rows ends at the root, as in a tree."""
        for index in requests:
            if self.lengths[index]:
                self.terminals[index] = len(self.parents)
                self.parents.append(ROOT)
                self.depths.append(self.lengths[index])
                self.sources.append(index)

    def _append_tree(self, tree: PrefixTree, requests: list[int]) -> None:
        nodes = tree.freeze()
        shift = len(self.parents) - 1
        self.parents.extend(parent + shift if parent else ROOT for parent in nodes.parents[1:])
        self.depths.extend(nodes.depths[1:])
        self.sources.extend(requests[source] for source in nodes.sources[1:])
        for request, terminal in zip(requests, nodes.terminals, strict=True):
            self.terminals[request] = terminal + shift if terminal else ROOT


def _is_plain(spec: RequestSpec) -> bool:
    """Whether a request asks for one label a row of a flat input and nothing else, as almost all do."""
    shape = spec.target_shape
    return (
        shape is not None
        and spec.top_k is None
        and not (spec.logits or spec.hidden_states or spec.routes or spec.entropy)
        and len(shape) == 1
        and shape == spec.input_shape
    )
