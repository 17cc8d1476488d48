"""Where a value of a file stands, and the errors that say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from pricing.kernel.errors import FileFormatError, PricingError, QuantityError

T = TypeVar("T")

MAX_NAME_SHOWN: Final = 120
"""Longest field name, or path of names, that a message repeats: a damaged file can hold one of any length."""

MAX_UNKNOWN_LISTED: Final = 20
"""How many unknown fields are named; the rest are counted."""

MAX_UNKNOWN_CHARS: Final = 80
"""Of an unknown field's own name, how much is kept."""


class MissingFieldError(FileFormatError):
    """A field that a file of this format must have and this one has not. `field` is its path."""


@dataclass(slots=True)
class Findings:
    """What a reader came across and accepted: unknown fields (the first few by path, all by count), and remarks."""

    unknown: list[str] = field(default_factory=list)
    unknown_count: int = 0
    remarks: list[str] = field(default_factory=list)

    def add_unknown(self, path: str) -> None:
        self.unknown_count += 1
        if len(self.unknown) < MAX_UNKNOWN_LISTED:
            self.unknown.append(path)


class Place(NamedTuple):
    """Where a value stands: file, line (from 1; None for a file of one document) and path, such as `tried[3].wave`.

    findings: takes note of fields that nobody knows, where a later build may have written them or others use the file
    too. None: such a field is an error, because a misspelt one must not read as its default.
    """

    file: str
    line: int | None = None
    path: str = ""
    findings: Findings | None = None

    def member(self, name: str) -> Place:
        """The place of a field of the object here."""
        return Place(self.file, self.line, f"{self.path}.{name}" if self.path else name, self.findings)

    def item(self, at: int) -> Place:
        """The place of an item of the list here."""
        return Place(self.file, self.line, f"{self.path}[{at}]", self.findings)

    def error(self, reason: str, value: object = None) -> FileFormatError:
        """The error that blames the value here."""
        return FileFormatError(self.file, reason, line=self.line, field=shortened(self.path) or None, value=value)

    def missing(self, reason: str = "is missing") -> MissingFieldError:
        """The error for a value that should be here."""
        return MissingFieldError(self.file, reason, line=self.line, field=shortened(self.path))

    def unknown(self, name: str, value: object) -> None:
        """Take note of a field of the object here that is not in the format, or raise `FileFormatError`."""
        if self.findings is None:
            raise self.member(name).error("is not a field of this format", value)
        self.findings.add_unknown(self.member(name[:MAX_UNKNOWN_CHARS]).path)

    def wrong(self, rule: str, value: object) -> FileFormatError:
        """The error for a value of another type than the rule says."""
        return self.error(f"{rule}, got null" if value is None else rule, value)

    def build(self, make: Callable[[], T]) -> T:
        """`make()`, with a `PricingError` of its own retold as an error of the object here."""
        try:
            return make()
        except FileFormatError:
            raise
        except QuantityError as error:
            raise self._named(error.field).error(error.reason, error.value) from None
        except PricingError as error:
            raise self.error(str(error)) from None

    def _named(self, field: str) -> Place:
        """The place of a field that the object here names: some call themselves as their own field is called."""
        own = self.path.rpartition(".")[2]
        if field == own:
            return self
        return self.member(field.removeprefix(f"{own}."))


def shortened(name: str) -> str:
    """A field's name, or path, as it may stand in a message."""
    return name if len(name) <= MAX_NAME_SHOWN else f"{name[:MAX_NAME_SHOWN]}..."
