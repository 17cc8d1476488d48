"""Typed errors. Each message carries the numbers, so that a log line alone tells what was wrong."""

from __future__ import annotations


class PricingError(ValueError):
    """Base of every error this package raises for bad input."""


class QuantityError(PricingError):
    """A number that cannot be a quantity: not an integer, negative, or beyond `MAX_QUANTITY`.

    `field` names the argument, `value` is what was given.
    """

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"{field}: {reason}, got {_shown(value)}")
        self.field = field
        self.value = value
        self.reason = reason


class WaveError(PricingError):
    """Quantities that are each valid but contradict one another in one wave (rows of nothing, for example)."""


class InvalidReadingError(PricingError):
    """A reading that no allocator can have produced (its peak lies under its baseline). Nothing is learned from it."""


class SafetyError(PricingError):
    """A safety factor that is not an exact fraction of at least one."""


class UnknownLawError(PricingError):
    """A law name that this build does not know."""


class UnknownReadingKindError(PricingError):
    """A reading kind that does not exist."""


class ProfileError(PricingError):
    """A profile whose fields contradict one another: no history of readings leads to it."""


class FileFormatError(PricingError):
    """A file that is not in the format it should be in. `line` is 1-based; None for the whole file."""

    def __init__(
        self, path: str, reason: str, *, line: int | None = None, field: str | None = None, value: object = None
    ) -> None:
        where = path if line is None else f"{path}:{line}"
        what = "" if field is None else f" {field}:"
        got = "" if value is None else f", got {_shown(value)}"
        super().__init__(f"{where}:{what} {reason}{got}")
        self.path = path
        self.line = line
        self.field = field
        self.value = value
        self.reason = reason


def _shown(value: object, limit: int = 80) -> str:
    """A short printable form. Huge integers are described, because printing them is refused by Python itself."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
