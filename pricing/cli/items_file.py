"""The file of items that `pricing plan` takes: JSON lines, an item a line, requests by token ids or by lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pricing.formats.strict_json import Fields, read_json_lines
from pricing.kernel.errors import FileFormatError
from pricing.kernel.quantities import MAX_QUANTITY
from pricing.kernel.requests import RequestSpec
from pricing.planner.batch import Item, PlanRequest
from pricing.planner.tokens import Tokens

TARGET_BYTES_PER_ROW: Final = 4
"""Output of single-target log-probabilities: one fp32 a row."""

MAX_MADE_UP_ROWS: Final = 1 << 24
"""Longest request by length alone, 16.8 M rows: a slip of the pen must not ask for all memory there is."""

ITEMS_HELP: Final = """
REQUESTS holds JSON lines, an item a line: one request, or {"requests": [...]} for requests that run in one wave.
A request gives its token ids, or, where there are none to give, its length and what prefix it shares:

\b
    {"tokens": [101, 7, 7, 42]}
    {"length": 1536, "prefix": "prompt-1", "prefix_length": 1024}
    {"requests": [{"length": 900}, {"length": 1100, "active": false}]}

\b
It asks for single-target log-probabilities, with gradients, unless it says otherwise: "target_shape",
"top_k", "logits", "hidden_states", "routes", "active", "grads", and "output_bytes" (4 bytes a row of
single-target labels; must be given for anything else). "slot" and "adapter" name its adapter.
"""


def read_items(path: str, tokens: Tokens, on_item: Callable[[int], None] | None = None) -> list[Item]:
    """Every item of a file. `on_item` is told how many were read. Raises `FileFormatError` and `OSError`."""
    reader = _Reader(tokens)
    items: list[Item] = []
    for fields in read_json_lines(path):
        items.append(reader.item(fields))
        if on_item is not None:
            on_item(len(items))
    if not items:
        raise FileFormatError(path, "holds no item")
    return items


class _Reader:
    """Reads items; gives prefixes and tails that have no tokens ids of their own.

    Real token ids are at least 0, so made-up ones are negative and never shared with them.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._prefixes: dict[str, int] = {}
        self._adapters: dict[tuple[str, bool], str] = {}
        self._tails = 0

    def item(self, fields: Fields) -> Item:
        if not fields.has("requests"):
            return (self._request(fields),)
        requests = tuple(self._request(member) for member in fields.members("requests"))
        fields.finish()
        return requests

    def _request(self, fields: Fields) -> PlanRequest:
        row = self._row(fields)
        spec = self._spec(fields, len(row))
        single = spec.target_shape == spec.input_shape and not (spec.top_k or spec.logits or spec.hidden_states)
        default = TARGET_BYTES_PER_ROW * len(row) if single else 0
        if spec.is_active and not single and not fields.has("output_bytes"):
            raise fields.error("output_bytes", "must be given for a request that asks for more than single targets")
        request = PlanRequest(
            tokens=row,
            spec=spec,
            slot=fields.text("slot", ""),
            adapter=fields.text("adapter", ""),
            grads=fields.flag("grads", True),
            output_bytes=fields.count("output_bytes", default),
        )
        fields.finish()
        if spec.is_active:
            self._require_one_adapter(fields, request)
        return request

    def _require_one_adapter(self, fields: Fields, request: PlanRequest) -> None:
        """A batch refuses two adapters in one slot too, but knows no line."""
        held = self._adapters.setdefault((request.slot, request.grads), request.adapter)
        if held != request.adapter:
            raise fields.error("adapter", f"slot {request.slot!r} has {held!r} in an earlier request", request.adapter)

    def _spec(self, fields: Fields, length: int) -> RequestSpec:
        if not fields.flag("active", True):
            return RequestSpec(input_shape=(length,))
        target = fields.counts("target_shape") if fields.has("target_shape") else None
        top_k, logits = fields.optional_count("top_k"), fields.flag("logits", False)
        hidden_states, routes = fields.flag("hidden_states", False), fields.flag("routes", False)
        if target is None and top_k is None and not (logits or hidden_states or routes):
            target = (length,)
        return RequestSpec(
            input_shape=(length,),
            target_shape=target,
            top_k=top_k,
            logits=logits,
            hidden_states=hidden_states,
            routes=routes,
        )

    def _row(self, fields: Fields) -> Any:
        if fields.has("tokens"):
            listed = fields.items("tokens")
            if not all(type(token) is int and 0 <= token <= MAX_QUANTITY for token in listed):
                bad = next(token for token in listed if type(token) is not int or not 0 <= token <= MAX_QUANTITY)
                raise fields.error("tokens", "must be integers of at least 0, of 63 bits at most", bad)
            return self._tokens.row(listed)
        if not fields.has("length"):
            raise fields.error("tokens", "is missing: a request gives its tokens, or its length")
        return self._made_up_row(fields)

    def _made_up_row(self, fields: Fields) -> Any:
        length, prefix = fields.count("length"), fields.optional_text("prefix")
        shared = fields.count("prefix_length") if prefix is not None else 0
        if shared > length:
            raise fields.error("prefix_length", f"must be at most the length, {length}", shared)
        if length > MAX_MADE_UP_ROWS:
            raise fields.error("length", f"must be at most {MAX_MADE_UP_ROWS}", length)
        self._tails += 1
        number = 0 if prefix is None else self._prefixes.setdefault(prefix, len(self._prefixes) + 1)
        parts = [self._tokens.filled(shared, -2 * number), self._tokens.filled(length - shared, 1 - 2 * self._tails)]
        return self._tokens.concatenate(parts)
