"""Strict reading of JSON text, for every file this package takes. What its values must be, `formats.codec` says.

JSON as Python reads it by default takes the last of two equal keys, NaN, and nests until Python gives up. Each of those
can turn into a wrong price, so each is a `FileFormatError` here, with the file, the line, the field and the value.
Standard library only.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from pricing.formats.place import Findings, Place, shortened
from pricing.kernel.errors import FileFormatError

MAX_LINE_BYTES: Final = 1 << 26
"""Longest line or document read, 64 MiB: a bound on what a wrong file can make a reader hold."""

MAX_DIGITS: Final = 4_000
"""Longest integer turned into a number, just under what Python itself refuses. Longer ones are reported unread."""

MAX_DEPTH: Final = 64
"""Deepest nesting of objects and lists read. Our own formats stay under a dozen; Python gives up at some hundreds."""

TOO_DEEP: Final = f"nests too deep: more than {MAX_DEPTH} levels"

JsonObject = dict[str, object]


class _Unreadable:
    """A number that JSON or this package has no value for: NaN, an infinity, an integer of thousands of digits."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text if len(self.text) <= 40 else f"a number of {len(self.text)} digits"


_NESTED: Final = (dict, list, _Unreadable)


def parse_json(text: bytes | str, file: str, line: int | None = None) -> object:
    """The value of one JSON document. Raises `FileFormatError` for anything that strict JSON is not.

    NaN, infinities and integers beyond `MAX_DIGITS` digits are refused wherever they stand, also in fields that nobody
    reads: a document that holds them was not written by a sound writer.
    """

    def refuse(reason: str, field: str | None = None, value: object = None) -> NoReturn:
        raise FileFormatError(file, reason, line=line, field=None if field is None else shortened(field), value=value)

    def without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
        values = dict(pairs)
        if len(values) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            refuse("stands there twice", next(name for name, count in counts.items() if count > 1))
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


def parse_object(text: bytes | str, file: str) -> JsonObject:
    """The one object that a document holds. Raises `FileFormatError`."""
    value = parse_json(text, file)
    if not isinstance(value, dict):
        raise FileFormatError(file, "must hold one JSON object", value=value)
    return value


def read_json_file(path: str | os.PathLike[str]) -> JsonObject:
    """The one object that a file holds. Raises `FileFormatError` and `OSError`."""
    with open(path, "rb") as stream:
        return parse_object(stream.read(MAX_LINE_BYTES + 1), str(path))


def read_json_lines(
    path: str | os.PathLike[str], findings: Findings | None = None
) -> Iterator[tuple[JsonObject, Place]]:
    """The objects of a file of JSON lines in order, each with its place. Blank lines are passed over."""
    with open(path, "rb") as stream:
        line = 0
        while text := stream.readline(MAX_LINE_BYTES + 1):
            line += 1
            if not text.strip():
                continue
            value = parse_json(text, str(path), line)
            if not isinstance(value, dict):
                raise FileFormatError(str(path), "each line must hold one JSON object", line=line, value=value)
            yield value, Place(str(path), line, findings=findings)


def canonical_json(value: object) -> str:
    """Text that is equal for equal values on every machine: sorted keys, no spaces, ASCII. A float is a TypeError."""
    _refuse_floats(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


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
