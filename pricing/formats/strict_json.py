"""Strict reading of JSON, for every file this package takes.

JSON as Python reads it by default takes the last of two equal keys, NaN, a float where an integer belongs and a `true`
that passes for 1. Each of those can turn into a wrong price, so each is a `FileFormatError` here, with the file, the
line, the field and the value. Standard library only.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NoReturn, TypeVar

from pricing.kernel.errors import FileFormatError, PricingError, QuantityError
from pricing.kernel.quantities import require_count, require_integer

MAX_LINE_BYTES: Final = 1 << 26
"""Longest line or document read, 64 MiB: a bound on what a wrong file can make a reader hold."""

MAX_DIGITS: Final = 4_000
"""Longest integer turned into a number, just under what Python itself refuses. Longer ones are reported unread."""

MAX_NAME_SHOWN: Final = 120
"""Longest field name, or path of names, that a message repeats."""

MAX_DEPTH: Final = 64
"""Deepest nesting of objects and lists read. Our own formats stay under a dozen; Python gives up at some hundreds."""

TOO_DEEP: Final = f"nests too deep: more than {MAX_DEPTH} levels"

_T = TypeVar("_T")
_REQUIRED: Final = object()


class _Unreadable:
    """A number that JSON or this package has no value for: NaN, an infinity, an integer of thousands of digits."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text if len(self.text) <= 40 else f"a number of {len(self.text)} digits"


_NESTED: Final = (dict, list, _Unreadable)


class Fields:
    """One JSON object being read: typed getters that name file, line and field where a value is not what it should be.

    `prefix` goes before the field names of a nested object ("profile." for the members of one called profile). A getter
    marks its field as known; `finish` refuses what nobody asked for, `unknown` lists it. Where a format is read that a
    later build may have written, `pass_over` takes the path of each unknown field instead.
    """

    __slots__ = ("_file", "_known", "_line", "_pass_over", "_prefix", "_values")

    def __init__(
        self,
        values: Mapping[str, object],
        file: str,
        line: int | None = None,
        prefix: str = "",
        pass_over: Callable[[str], None] | None = None,
    ) -> None:
        self._values = values
        self._file = file
        self._line = line
        self._prefix = prefix
        self._pass_over = pass_over
        self._known: set[str] = set()

    @property
    def file(self) -> str:
        return self._file

    @property
    def line(self) -> int | None:
        return self._line

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names that no getter has asked for, in the order of the file."""
        return tuple(name for name in self._values if name not in self._known)

    def canonical_without(self, field: str) -> str:
        """The object's canonical text as if it had no such field. Raises `FileFormatError` for fractions in it."""
        try:
            return canonical_json({name: value for name, value in self._values.items() if name != field})
        except TypeError:
            raise self.error(None, "holds a fraction where this format has whole numbers only") from None

    def error(self, field: str | None, reason: str, value: object = None) -> FileFormatError:
        """The error that blames `field` (None: the whole object) of this object."""
        named = self._prefix.rstrip(".") or None if field is None else self._prefix + field
        return FileFormatError(self._file, reason, line=self._line, field=_short(named), value=value)

    def finish(self) -> None:
        """Refuse fields that no getter asked for: a misspelt optional field must not read as its default."""
        if self._pass_over is not None:
            for name in self.unknown:
                self._pass_over(f"{self._prefix}{name[:80]}")
        elif self.unknown:
            raise self.error(self.unknown[0], "is not a field of this format", self._values[self.unknown[0]])

    def has(self, field: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(field) is not None

    def raw(self, field: str) -> object:
        """The value as parsed, None where the field is missing."""
        self._known.add(field)
        return self._values.get(field)

    def count(self, field: str, default: object = _REQUIRED) -> int:
        """An integer in [0, 2**63 - 1]."""
        return self._checked(field, default, require_count)

    def integer(self, field: str, default: object = _REQUIRED) -> int:
        """An integer of at most 63 bits, of either sign."""
        return self._checked(field, default, require_integer)

    def optional_count(self, field: str) -> int | None:
        return self.count(field) if self._is_given(field) else None

    def optional_integer(self, field: str) -> int | None:
        return self.integer(field) if self._is_given(field) else None

    def flag(self, field: str, default: object = _REQUIRED) -> bool:
        """true or false."""
        value = self._value(field, default)
        if not isinstance(value, bool):
            raise self.error(field, "must be true or false", value)
        return value

    def text(self, field: str, default: object = _REQUIRED) -> str:
        value = self._value(field, default)
        if not isinstance(value, str):
            raise self.error(field, "must be text", value)
        return value

    def optional_text(self, field: str) -> str | None:
        return self.text(field) if self._is_given(field) else None

    def choice(self, field: str, parse: Callable[[str], _T], default: object = _REQUIRED) -> _T:
        """A text that `parse` understands; its `PricingError` is retold with file, line and field."""
        text = self.text(field, default)
        if len(text) > MAX_NAME_SHOWN:
            raise self.error(field, f"is none of the names known here: {len(text)} characters", text)
        try:
            return parse(text)
        except PricingError as error:
            raise self.error(field, str(error)) from None

    def member(self, field: str) -> Fields:
        """A nested object."""
        return self._nested(self._value(field, _REQUIRED), field)

    def optional_member(self, field: str) -> Fields | None:
        return self.member(field) if self._is_given(field) else None

    def members(self, field: str) -> list[Fields]:
        """A list of objects."""
        return [self._nested(item, f"{field}[{at}]") for at, item in enumerate(self.items(field))]

    def optional_members(self, field: str) -> list[Fields | None]:
        """A list of objects and nulls."""
        return [
            None if item is None else self._nested(item, f"{field}[{at}]") for at, item in enumerate(self.items(field))
        ]

    def items(self, field: str) -> list[object]:
        """A list of anything."""
        value = self._value(field, _REQUIRED)
        if not isinstance(value, list):
            raise self.error(field, "must be a list", value)
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of texts."""
        values = self.items(field)
        for at, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error(f"{field}[{at}]", "must be text", value)
        return tuple(value for value in values if isinstance(value, str))

    def flags(self, field: str) -> tuple[bool, ...]:
        """A list of true and false."""
        values = self.items(field)
        for at, value in enumerate(values):
            if not isinstance(value, bool):
                raise self.error(f"{field}[{at}]", "must be true or false", value)
        return tuple(value for value in values if isinstance(value, bool))

    def counts(self, field: str) -> tuple[int, ...]:
        """A list of integers in [0, 2**63 - 1]."""
        values = self.items(field)
        return tuple(self._judged(f"{field}[{at}]", value, require_count) for at, value in enumerate(values))

    def rows(self, field: str, lengths: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """A list of lists of integers in [0, 2**63 - 1], each of one of these lengths."""
        rows = []
        for at, row in enumerate(self.items(field)):
            if not isinstance(row, list) or len(row) not in lengths:
                raise self.error(f"{field}[{at}]", f"must be a list of {' or '.join(map(str, lengths))} integers", row)
            rows.append(
                tuple(self._judged(f"{field}[{at}][{place}]", value, require_count) for place, value in enumerate(row))
            )
        return tuple(rows)

    def build(self, make: Callable[[], _T]) -> _T:
        """`make()`, with a `PricingError` of its own retold as an error of this object."""
        try:
            return make()
        except FileFormatError:
            raise
        except QuantityError as error:
            raise self.error(error.field, error.reason, error.value) from None
        except PricingError as error:
            raise self.error(None, str(error)) from None

    def _is_given(self, field: str) -> bool:
        self._known.add(field)
        return self.has(field)

    def _value(self, field: str, default: object) -> object:
        self._known.add(field)
        if field in self._values:
            return self._values[field]
        if default is _REQUIRED:
            raise self.error(field, "is missing")
        return default

    def _checked(self, field: str, default: object, require: Callable[[str, int], None]) -> int:
        return self._judged(field, self._value(field, default), require)

    def _judged(self, field: str, value: object, require: Callable[[str, int], None]) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(field, "must be an integer", value)
        try:
            require(field, value)
        except QuantityError as error:
            raise self.error(field, error.reason, value) from None
        return value

    def _nested(self, value: object, name: str) -> Fields:
        if not isinstance(value, dict):
            raise self.error(name, "must be an object", value)
        return Fields(value, self._file, self._line, f"{self._prefix}{name}.", self._pass_over)


def parse_json(text: bytes | str, file: str, line: int | None = None) -> object:
    """The value of one JSON document. Raises `FileFormatError` for anything that strict JSON is not.

    NaN, infinities and integers beyond `MAX_DIGITS` digits are refused wherever they stand, also in fields that nobody
    reads: a document that holds them was not written by a sound writer.
    """

    def refuse(reason: str, field: str | None = None, value: object = None) -> NoReturn:
        raise FileFormatError(file, reason, line=line, field=_short(field), value=value)

    def without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
        values = dict(pairs)
        if len(values) < len(pairs):
            names = [name for name, _ in pairs]
            refuse("stands there twice", next(name for at, name in enumerate(names) if name in names[:at]))
        return values

    if len(text) > MAX_LINE_BYTES:
        refuse(f"is longer than {MAX_LINE_BYTES} bytes")
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        value: object = json.loads(
            decoded,
            object_pairs_hook=without_duplicates,
            parse_constant=_Unreadable,
            parse_int=_whole_number,
            parse_float=_fraction,
        )
    except RecursionError:
        refuse(TOO_DEEP)
    except UnicodeDecodeError as error:
        refuse(f"is not UTF-8 text: byte {error.start} does not decode")
    except json.JSONDecodeError as error:
        # The decoder names a line of its own; ours is that line where the document is the whole file.
        at = f"column {error.colno}" if line is not None else f"line {error.lineno}, column {error.colno}"
        refuse(f"is not JSON, or was cut off ({error.msg} at {at})")
    _check(value, refuse)
    return value


def _check(value: object, refuse: Callable[..., NoReturn]) -> None:
    """Refuse what nests too deep and numbers without a value. Without recursion: depth is the case.

    The pending values are (value, the name of the field it stands in, its depth).
    """
    pending: list[tuple[object, str | None, int]] = [(value, None, 0)]
    while pending:
        value, field, depth = pending.pop()
        if isinstance(value, _Unreadable):
            refuse("is not a number that can be used", field, value)
        if isinstance(value, (dict, list)):
            if depth == MAX_DEPTH:
                refuse(TOO_DEEP, field)
            named = ((field, item) for item in value) if isinstance(value, list) else value.items()
            pending.extend((item, name, depth + 1) for name, item in named if isinstance(item, _NESTED))


def read_json_file(path: str | os.PathLike[str]) -> Fields:
    """The one object that a file holds."""
    with open(path, "rb") as stream:
        value = parse_json(stream.read(MAX_LINE_BYTES + 1), str(path))
    if not isinstance(value, dict):
        raise FileFormatError(str(path), "must hold one JSON object", value=value)
    return Fields(value, str(path))


def read_json_lines(path: str | os.PathLike[str]) -> Iterator[Fields]:
    """The objects of a file of JSON lines, in order; `Fields.line` counts from 1. Blank lines are passed over."""
    with open(path, "rb") as stream:
        line = 0
        while text := stream.readline(MAX_LINE_BYTES + 1):
            line += 1
            if not text.strip():
                continue
            value = parse_json(text, str(path), line)
            if not isinstance(value, dict):
                raise FileFormatError(str(path), "each line must hold one JSON object", line=line, value=value)
            yield Fields(value, str(path), line)


def canonical_json(value: object) -> str:
    """Text that is equal for equal values on every machine: sorted keys, no spaces, ASCII. A float is a TypeError."""
    _refuse_floats(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _short(name: str | None) -> str | None:
    """A field's name as it may stand in a message: a damaged file can hold one of any length."""
    return name if name is None or len(name) <= MAX_NAME_SHOWN else f"{name[:MAX_NAME_SHOWN]}..."


def _whole_number(text: str) -> int | _Unreadable:
    return int(text) if len(text) <= MAX_DIGITS else _Unreadable(text)


def _fraction(text: str) -> float | _Unreadable:
    value = float(text)
    return value if math.isfinite(value) else _Unreadable(text)


def _refuse_floats(value: object) -> None:
    if isinstance(value, float):
        raise TypeError(f"canonical JSON holds no floats, got {value!r}")
    if isinstance(value, dict):
        for item in value.values():
            _refuse_floats(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _refuse_floats(item)
