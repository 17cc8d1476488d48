"""Frozen dataclasses to JSON and back, and to the JSON Schema that says what the JSON looks like.

The dataclasses are the format: one declaration gives the writer, the reader and the schema, so the three cannot drift
apart. Supported field types: `int`, `str`, `bool`, string enums, `Safety` (written as "11/10"), other dataclasses,
`tuple[X, ...]`, `X | None`, and `Annotated[X, Leaf(...)]` for a type that is written by functions of its own. Numbers
are whole; no float is ever written, and one that is read where a field is known is an error.

Reading is strict about what is known and tolerant about what is not: a missing field without a default is
`IncompleteRecordError`, a wrong type is `RecordFieldError`, and an unknown field is accepted and listed.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pricing.kernel.errors import PricingError
from pricing.kernel.quantities import Safety

T = TypeVar("T")

MAX_INTEGER_BITS: Final = 256
"""Longest number read, in bits. Prices are products of 63-bit quantities: fewer than 200."""

MAX_TEXT_CHARS: Final = 4_096
"""Longest text read or written in one field."""

MAX_EXTRAS_LISTED: Final = 20
"""How many unknown fields are named; the rest are counted."""


class RecordError(PricingError):
    """A record that cannot be read, written or replayed. The message says which part and why."""


class RecordFieldError(RecordError):
    """A field with a value that it cannot have. `where` is its path, such as `tried[3].wave.packed_rows`."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where or 'record'}: {reason}")
        self.where = where
        self.reason = reason


class IncompleteRecordError(RecordError):
    """A record without a field that its replay needs. `where` is the path of the missing field."""

    def __init__(self, where: str) -> None:
        super().__init__(f"incomplete: {where} was not recorded")
        self.where = where


@dataclass(frozen=True, slots=True)
class Whole:
    """Marks an integer field with the least value it may have (None: any)."""

    least: int | None


Count = Annotated[int, Whole(0)]
"""A whole number of at least 0: rows, segments, bytes."""

Signed = Annotated[int, Whole(None)]
"""A whole number that may be negative: a headroom, an error."""


@dataclass(slots=True)
class Findings:
    """What a reader came across and accepted: unknown fields (the first few by path, all by count), and remarks."""

    unknown: list[str] = field(default_factory=list)
    unknown_count: int = 0
    remarks: list[str] = field(default_factory=list)

    def add_unknown(self, where: str) -> None:
        self.unknown_count += 1
        if len(self.unknown) < MAX_EXTRAS_LISTED:
            self.unknown.append(where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """Marks a field of a type that has a format of its own: how it is written, read and described."""

    encode: Callable[[Any], object]
    decode: Callable[[object, Findings, str], object]
    schema: Mapping[str, object]


# --- writing ---------------------------------------------------------------------------------------------------------


def encode(value: object) -> object:
    """A supported value as JSON values. Of a dataclass every field is written, also those at their default."""
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, Safety)):
        hints = _fields_of(type(value))
        return {name: _encode_field(hint, getattr(value, name)) for name, (hint, _) in hints.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, (Safety, StrEnum)):
        return str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise RecordError(f"a {type(value).__name__} cannot be recorded")


def _encode_field(hint: Any, value: object) -> object:
    marker = get_args(hint)[1] if get_origin(hint) is Annotated else None
    return marker.encode(value) if isinstance(marker, Leaf) else encode(value)


# --- reading ---------------------------------------------------------------------------------------------------------


def decode(kind: type[T], data: object, findings: Findings, where: str = "") -> T:
    """`data` as an instance of the dataclass `kind`. Unknown fields are added to `findings`.

    Raises `IncompleteRecordError` for a missing field without a default and `RecordFieldError` for everything else,
    including what the dataclass's own checks refuse.
    """
    return cast(T, _decode_dataclass(kind, data, findings, where))


def _decode_dataclass(kind: type, data: object, findings: Findings, where: str) -> object:
    if not isinstance(data, dict):
        raise RecordFieldError(where, f"must be an object, got {_name_of(data)}")
    specs = _fields_of(kind)
    for name in data:
        if name not in specs:
            findings.add_unknown(_joined(where, str(name)[:80]))
    values = {}
    for name, (hint, required) in specs.items():
        if name in data:
            values[name] = _decode(hint, data[name], findings, _joined(where, name))
        elif required:
            raise IncompleteRecordError(_joined(where, name))
    try:
        return kind(**values)
    except PricingError as error:
        raise RecordFieldError(where, str(error)) from error


def _decode(hint: Any, data: object, findings: Findings, where: str) -> object:
    """One value by its type hint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marker = arguments[1]
        return (
            marker.decode(data, findings, where) if isinstance(marker, Leaf) else _decode_integer(marker, data, where)
        )
    if origin in (Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return None if data is None else _decode(inner, data, findings, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise RecordFieldError(where, f"must be an array, got {_name_of(data)}")
        return tuple(_decode(arguments[0], item, findings, f"{where}[{i}]") for i, item in enumerate(data))
    if dataclasses.is_dataclass(hint) and hint is not Safety:
        return _decode_dataclass(cast(type, hint), data, findings, where)
    return _decode_scalar(hint, data, where)


def _decode_integer(marker: Whole, data: object, where: str) -> int:
    if not isinstance(data, int) or isinstance(data, bool):
        raise RecordFieldError(where, f"must be a whole number, got {_name_of(data)}")
    if data.bit_length() > MAX_INTEGER_BITS:
        raise RecordFieldError(where, f"an integer of {data.bit_length()} bits; at most {MAX_INTEGER_BITS} are read")
    if marker.least is not None and data < marker.least:
        raise RecordFieldError(where, f"must be at least {marker.least}, got {data}")
    return data


def _decode_scalar(hint: Any, data: object, where: str) -> object:
    if hint is bool:
        if not isinstance(data, bool):
            raise RecordFieldError(where, f"must be true or false, got {_name_of(data)}")
        return data
    if not isinstance(data, str):
        raise RecordFieldError(where, f"must be text, got {_name_of(data)}")
    if len(data) > MAX_TEXT_CHARS:
        raise RecordFieldError(where, f"text of {len(data)} characters; at most {MAX_TEXT_CHARS} are read")
    try:
        if hint is Safety:
            return Safety.parse(data)
        return data if hint is str else hint(data)
    except (PricingError, ValueError) as error:
        raise RecordFieldError(where, str(error)[:300]) from None


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _name_of(data: object) -> str:
    """The JSON name of a value's type, for messages."""
    names: Mapping[type, str] = {
        dict: "an object",
        list: "an array",
        str: "text",
        bool: "true or false",
        int: "a number",
        types.NoneType: "null",
    }
    return names.get(type(data), type(data).__name__)


@cache
def _fields_of(kind: type) -> dict[str, tuple[Any, bool]]:
    """The fields of a dataclass: type hint, and whether a reader must find it."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        spec.name: (hints[spec.name], spec.default is MISSING and spec.default_factory is MISSING)
        for spec in dataclasses.fields(kind)
    }


# --- schema ----------------------------------------------------------------------------------------------------------


def json_schema(kind: type, *, title: str, identifier: str) -> dict[str, object]:
    """The JSON Schema (2020-12) of a dataclass and everything in it, one definition a class.

    Unknown fields are allowed, as the reader allows them.
    """
    definitions: dict[str, object] = {}
    reference = _schema_of(kind, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": identifier,
        "title": title,
        **reference,
        "$defs": dict(sorted(definitions.items())),
    }


def _schema_of(hint: Any, definitions: dict[str, object]) -> dict[str, object]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if isinstance(arguments[1], Leaf):
            return dict(arguments[1].schema)
        least = arguments[1].least
        return {"type": "integer"} if least is None else {"type": "integer", "minimum": least}
    if origin in (Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return {"anyOf": [_schema_of(inner, definitions), {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(arguments[0], definitions)}
    if hint is Safety:
        return {"type": "string", "pattern": "^[0-9]{1,19}(/[0-9]{1,19}|\\.[0-9]{1,18})?$"}
    if dataclasses.is_dataclass(hint):
        return _schema_of_dataclass(cast(type, hint), definitions)
    if hint is bool:
        return {"type": "boolean"}
    if hint is str:
        return {"type": "string", "maxLength": MAX_TEXT_CHARS}
    return {"enum": [str(member) for member in cast(type[StrEnum], hint)]}


def _schema_of_dataclass(kind: type, definitions: dict[str, object]) -> dict[str, object]:
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # reserved, so that a class that contains itself would end here
        specs = _fields_of(kind)
        definitions[kind.__name__] = {
            "type": "object",
            "description": (kind.__doc__ or "").strip().split("\n")[0],
            "properties": {name: _schema_of(hint, definitions) for name, (hint, _) in specs.items()},
            "required": [name for name, (_, required) in specs.items() if required],
        }
    return {"$ref": f"#/$defs/{kind.__name__}"}
