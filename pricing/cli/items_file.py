"""The file of items that `pricing plan` takes: JSON lines, an item a line, requests by token ids or by lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pricing.formats.codec import Leaf, Natural, decode
from pricing.formats.place import Place
from pricing.formats.strict_json import JsonObject, read_json_lines
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
    for line, place in read_json_lines(path):
        items.append(reader.item(line, place))
        if on_item is not None:
            on_item(len(items))
    if not items:
        raise FileFormatError(path, "holds no item")
    return items


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What a request says of itself beside its rows. An inactive one asks for nothing."""

    slot: str = ""
    adapter: str = ""
    grads: bool = True
    active: bool = True
    target_shape: tuple[Natural, ...] | None = None
    top_k: Natural | None = None
    logits: bool = False
    hidden_states: bool = False
    routes: bool = False
    output_bytes: Natural | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what it asks for in so many words."""
        asked = {"target_shape": self.target_shape is not None, "top_k": self.top_k is not None}
        asked |= {"logits": self.logits, "hidden_states": self.hidden_states, "routes": self.routes}
        return tuple(name for name, is_asked in asked.items() if is_asked)

    def spec(self, length: int) -> RequestSpec:
        """As the planner takes it, of so many rows. Without a word on outputs it asks for single targets."""
        if not self.active:
            return RequestSpec(input_shape=(length,))
        return RequestSpec(
            input_shape=(length,),
            target_shape=self.target_shape if self.outputs else (length,),
            top_k=self.top_k,
            logits=self.logits,
            hidden_states=self.hidden_states,
            routes=self.routes,
        )


def _token_ids(data: object, place: Place) -> list[int]:
    """Token ids by the hundred thousand: one pass for all of them, and no path for each."""
    if not isinstance(data, list):
        raise place.wrong("must be a list", data)
    if not all(type(token) is int and 0 <= token <= MAX_QUANTITY for token in data):
        bad = next(token for token in data if type(token) is not int or not 0 <= token <= MAX_QUANTITY)
        raise place.error("must be integers of at least 0, of 63 bits at most", bad)
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenRequest(_Request):
    """A request that gives its token ids."""

    tokens: Annotated[list[int], Leaf(encode=list, decode=_token_ids)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _LengthRequest(_Request):
    """A request that gives its length, and of how many rows it shares which prefix."""

    length: Natural
    prefix: str | None = None
    prefix_length: Natural | None = None


def _read_request(data: object, place: Place) -> _TokenRequest | _LengthRequest:
    if not isinstance(data, dict):
        raise place.wrong("must be an object", data)
    if data.get("tokens") is not None:
        return decode(_TokenRequest, data, place)
    if data.get("length") is None and not data.keys() - _LengthRequest.__dataclass_fields__.keys():
        raise place.member("tokens").missing("is missing: a request gives its tokens, or its length")
    return decode(_LengthRequest, {name: value for name, value in data.items() if name != "tokens"}, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Together:
    """Requests that run in one wave."""

    requests: tuple[Annotated[_TokenRequest | _LengthRequest, Leaf(encode=str, decode=_read_request)], ...]


class _Reader:
    """Makes items of what was read; gives prefixes and tails that have no token ids of their own.

    Real token ids are at least 0, so made-up ones are negative and never shared with them.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._prefixes: dict[str, int] = {}
        self._adapters: dict[tuple[str, bool], str] = {}
        self._tails = 0

    def item(self, line: JsonObject, place: Place) -> Item:
        if line.get("requests") is None:
            return (self._request(_read_request(line, place), place),)
        several = place.member("requests")
        read = decode(_Together, line, place).requests
        return tuple(self._request(request, several.item(at)) for at, request in enumerate(read))

    def _request(self, read: _TokenRequest | _LengthRequest, place: Place) -> PlanRequest:
        row = self._tokens.row(read.tokens) if isinstance(read, _TokenRequest) else self._made_up_row(read, place)
        if read.outputs and not read.active:
            raise place.member(read.outputs[0]).error("is asked for, and the request is not active")
        spec = read.spec(len(row))
        single = spec.target_shape == spec.input_shape and not (spec.top_k or spec.logits or spec.hidden_states)
        if spec.is_active and not single and read.output_bytes is None:
            raise place.member("output_bytes").missing(
                "must be given for a request that asks for more than single targets"
            )
        request = PlanRequest(
            tokens=row,
            spec=spec,
            slot=read.slot,
            adapter=read.adapter,
            grads=read.grads,
            output_bytes=(TARGET_BYTES_PER_ROW * len(row) if single else 0)
            if read.output_bytes is None
            else read.output_bytes,
        )
        if spec.is_active:
            self._require_one_adapter(request, place)
        return request

    def _require_one_adapter(self, request: PlanRequest, place: Place) -> None:
        """A batch refuses two adapters in one slot too, but knows no line."""
        held = self._adapters.setdefault((request.slot, request.grads), request.adapter)
        if held != request.adapter:
            said = f"slot {request.slot!r} has {held!r} in an earlier request"
            raise place.member("adapter").error(said, request.adapter)

    def _made_up_row(self, read: _LengthRequest, place: Place) -> Any:
        length, shared = read.length, read.prefix_length
        if (read.prefix is None) != (shared is None):
            missing = "prefix" if read.prefix is None else "prefix_length"
            raise place.member(missing).missing("is missing: a shared prefix has a name and a length")
        if shared is not None and shared > length:
            raise place.member("prefix_length").error(f"must be at most the length, {length}", shared)
        if length > MAX_MADE_UP_ROWS:
            raise place.member("length").error(f"must be at most {MAX_MADE_UP_ROWS}", length)
        self._tails += 1
        number = 0 if read.prefix is None else self._prefixes.setdefault(read.prefix, len(self._prefixes) + 1)
        parts = [
            self._tokens.filled(shared or 0, -2 * number),
            self._tokens.filled(length - (shared or 0), 1 - 2 * self._tails),
        ]
        return self._tokens.concatenate(parts)
