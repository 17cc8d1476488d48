"""Frozen dataclasses to JSON and back, and to the JSON Schema that says what the JSON looks like.

The dataclasses are the format: one declaration gives the writer, the reader and the schema, so the three cannot drift
apart. This is the one reader of JSON values; every file that this package takes is declared so. Field types:

* `int` (of 63 bits, of either sign), `Natural` (the same, at least 0), `Count` and `Signed` (up to 256 bits: figures);
* `str`, `Text` (of bounded length), `bool`, string enums, `Safety` (written as "11/10");
* other dataclasses, `tuple[X, ...]`, `Mapping[str, X]`, `X | None`;
* `Annotated[X, Leaf(...)]` for a type that is written by functions of its own.

Numbers are whole; no float is ever written, and one that is read where a field is known is an error. So is anything
that is missing without a default, or of another type, or refused by the dataclass's own checks: a `FileFormatError`
with file, line, path and value. What becomes of fields that nobody knows, the `Place` says that is read from.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pricing.formats.place import MAX_NAME_SHOWN, Place
from pricing.kernel.errors import PricingError
from pricing.kernel.quantities import Safety

T = TypeVar("T")

QUANTITY_BITS: Final = 63
"""Longest number taken from outside: what a signed 64-bit counter of a device can say."""

FIGURE_BITS: Final = 256
"""Longest number computed here and read back. Prices are products of 63-bit quantities: fewer than 200 bits."""

MAX_TEXT_CHARS: Final = 4_096
"""Longest `Text` read or written."""

REASON_CHARS: Final = 300
"""Longest reason that a type's own parser may give."""


class UnwritableError(PricingError):
    """A value of a type that no format has."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Marks an integer field with the least value it may have (None: any) and its longest magnitude in bits."""

    least: int | None
    bits: int = FIGURE_BITS


@dataclass(frozen=True, slots=True)
class Longest:
    """Marks a text field with its greatest length in characters."""

    chars: int


Natural = Annotated[int, Whole(0, QUANTITY_BITS)]
"""A quantity taken from outside, at least 0."""

Count = Annotated[int, Whole(0)]
"""A figure of at least 0: rows, segments, bytes."""

Signed = Annotated[int, Whole(None)]
"""A figure that may be negative: a headroom, an error."""

Text = Annotated[str, Longest(MAX_TEXT_CHARS)]
"""A text of bounded length: a name, a note."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leaf:
    """Marks a field of a type that has a format of its own: how it is written, read and described."""

    encode: Callable[[Any], object]
    decode: Callable[[object, Place], object]
    schema: Mapping[str, object] = dataclasses.field(default_factory=dict)


# --- writing ---------------------------------------------------------------------------------------------------------


def encode(value: object) -> object:
    """A supported value as JSON values. Of a dataclass every field is written, also those at their default."""
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, Safety)):
        return {spec.name: _encode_field(spec.hint, getattr(value, spec.name)) for spec in _fields_of(type(value))}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {name: encode(item) for name, item in value.items()}
    if isinstance(value, (Safety, StrEnum)):
        return str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise UnwritableError(f"a {type(value).__name__} cannot be recorded")


def _encode_field(hint: Any, value: object) -> object:
    origin, arguments = get_origin(hint), get_args(hint)
    if value is None:
        return None
    if origin is Annotated and isinstance(arguments[1], Leaf):
        return arguments[1].encode(value)
    if origin in (Union, types.UnionType):
        return _encode_field(_given(arguments), value)
    if origin is tuple and get_origin(arguments[0]) is Annotated:
        return [_encode_field(arguments[0], item) for item in cast(tuple[object, ...], value)]
    return encode(value)


def _given(arguments: tuple[Any, ...]) -> Any:
    """The X of an `X | None`."""
    return next(argument for argument in arguments if argument is not types.NoneType)


# --- reading ---------------------------------------------------------------------------------------------------------


def decode(kind: type[T], data: object, place: Place) -> T:
    """`data`, as parsed from JSON and standing at `place`, as an instance of the dataclass `kind`.

    Raises `MissingFieldError` for a missing field without a default and `FileFormatError` for everything else,
    including what the dataclass's own checks refuse.
    """
    return cast(T, _reader_of(cast(Any, kind))(data, place))


def naturals(data: object, place: Place) -> tuple[int, ...]:
    """A list of integers in [0, 2**63 - 1]. Raises `FileFormatError`."""
    return cast(tuple[int, ...], _reader_of(tuple[Natural, ...])(data, place))


_Reader = Callable[[object, Place], object]


@cache
def _reader_of(hint: Any) -> _Reader:
    """How a value of this type is read: put together once for each type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marker = arguments[1]
        if isinstance(marker, Leaf):
            return marker.decode
        return _integer_reader(marker) if isinstance(marker, Whole) else _text_reader(marker.chars)
    if origin in (Union, types.UnionType):
        return _optional_reader(_given(arguments))
    if origin is tuple:
        return _list_reader(arguments[0])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_reader(arguments[1])
    if hint is Safety:
        return _safety
    if dataclasses.is_dataclass(hint):
        return _object_reader(cast(type, hint))
    if hint is bool:
        return _flag
    if hint is int:
        return _integer_reader(Whole(None, QUANTITY_BITS))
    return _text_reader(None) if hint is str else _enum_reader(cast(type[StrEnum], hint))


def _object_reader(kind: type) -> _Reader:
    def read(data: object, place: Place) -> object:
        if not isinstance(data, dict):
            raise place.wrong("must be an object", data)
        fields = _fields_of(kind)
        if not data.keys() <= _names_of(kind):
            for name in data:
                if name not in _names_of(kind):
                    place.unknown(name, data[name])
        values = {}
        for spec in fields:
            if spec.name in data:
                values[spec.name] = _reader_of(spec.hint)(data[spec.name], place.member(spec.name))
            elif spec.is_required:
                raise place.member(spec.name).missing()
        return place.build(lambda: kind(**values))

    return read


def _list_reader(hint: Any) -> _Reader:
    read_item = _reader_of(hint)

    def read(data: object, place: Place) -> object:
        if not isinstance(data, list):
            raise place.wrong("must be a list", data)
        return tuple(read_item(item, place.item(at)) for at, item in enumerate(data))

    return read


def _mapping_reader(hint: Any) -> _Reader:
    read_item = _reader_of(hint)

    def read(data: object, place: Place) -> object:
        if not isinstance(data, dict):
            raise place.wrong("must be an object", data)
        return {name: read_item(item, place.member(name)) for name, item in data.items()}

    return read


def _optional_reader(hint: Any) -> _Reader:
    read_given = _reader_of(hint)
    return lambda data, place: None if data is None else read_given(data, place)


def _integer_reader(marker: Whole) -> _Reader:
    least, most = marker.least, (1 << marker.bits) - 1
    shown = f"{most} (2**63 - 1)" if marker.bits == QUANTITY_BITS else f"(2**{marker.bits} - 1)"

    def read(data: object, place: Place) -> object:
        if not isinstance(data, int) or isinstance(data, bool):
            raise place.wrong("must be an integer", data)
        if not -most <= data <= most:
            raise place.error(f"must lie within +-{shown}", data)
        if least is not None and data < least:
            raise place.error(f"must be at least {least}", data)
        return data

    return read


def _text_reader(most_chars: int | None) -> _Reader:
    def read(data: object, place: Place) -> object:
        if not isinstance(data, str):
            raise place.wrong("must be text", data)
        if most_chars is not None and len(data) > most_chars:
            raise place.error(f"must have at most {most_chars} characters, has {len(data)}")
        return data

    return read


def _flag(data: object, place: Place) -> object:
    if not isinstance(data, bool):
        raise place.wrong("must be true or false", data)
    return data


def _safety(data: object, place: Place) -> object:
    if not isinstance(data, str):
        raise place.wrong("must be text", data)
    try:
        return Safety.parse(data)
    except PricingError as error:
        raise place.error(str(error)[:REASON_CHARS]) from None


def _enum_reader(kind: type[StrEnum]) -> _Reader:
    words = re.sub("(?<!^)(?=[A-Z])", " ", kind.__name__).lower()

    def read(data: object, place: Place) -> object:
        if not isinstance(data, str):
            raise place.wrong("must be text", data)
        if len(data) > MAX_NAME_SHOWN:
            raise place.error(f"is none of the names known here: {len(data)} characters", data)
        try:
            return kind(data)
        except ValueError:
            raise place.error(f"unknown {words} {data!r}; known: {', '.join(kind)}") from None

    return read


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a dataclass as a reader sees it: without a default it must be there."""

    name: str
    hint: Any
    is_required: bool


@cache
def _fields_of(kind: type) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _Field(spec.name, hints[spec.name], spec.default is MISSING and spec.default_factory is MISSING)
        for spec in dataclasses.fields(kind)
        if spec.init
    )


@cache
def _names_of(kind: type) -> frozenset[str]:
    return frozenset(spec.name for spec in _fields_of(kind))


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
        return _schema_of_marked(arguments[1])
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(_given(arguments), definitions), {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(arguments[0], definitions)}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], definitions)}
    if hint is Safety:
        return {"type": "string", "pattern": "^[0-9]{1,19}(/[0-9]{1,19}|\\.[0-9]{1,18})?$"}
    if dataclasses.is_dataclass(hint):
        return _schema_of_dataclass(cast(type, hint), definitions)
    if hint is bool:
        return {"type": "boolean"}
    if hint in (int, str):
        return {"type": "integer" if hint is int else "string"}
    return {"enum": [str(member) for member in cast(type[StrEnum], hint)]}


def _schema_of_marked(marker: Leaf | Whole | Longest) -> dict[str, object]:
    if isinstance(marker, Leaf):
        return dict(marker.schema)
    if isinstance(marker, Longest):
        return {"type": "string", "maxLength": marker.chars}
    return {"type": "integer"} if marker.least is None else {"type": "integer", "minimum": marker.least}


def _schema_of_dataclass(kind: type, definitions: dict[str, object]) -> dict[str, object]:
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # reserved, so that a class that contains itself would end here
        fields = _fields_of(kind)
        definitions[kind.__name__] = {
            "type": "object",
            "description": (kind.__doc__ or "").strip().split("\n")[0],
            "properties": {spec.name: _schema_of(spec.hint, definitions) for spec in fields},
            "required": [spec.name for spec in fields if spec.is_required],
        }
    return {"$ref": f"#/$defs/{kind.__name__}"}
