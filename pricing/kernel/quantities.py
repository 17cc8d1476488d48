"""Quantities: the integers that everything else is made of, the constants, and the few operations on them.

Everything here is exact. A price must never fall as a wave grows and must never lie under the peak it was learned
from; a double does both (it drops low bits as rows grow and truncates). So there is no floating point in the law
modules, and only `+ - * //` with positive divisors: this stays within 64 bits at real sizes and is what the solvers in
`proofs/` decide quickly.

The functions below are written so that they can be read three ways: by Python on integers, by the solver harness on
symbolic terms, and by the reader. They branch on nothing but their arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import gcd
from typing import Final

from pricing.kernel.errors import QuantityError, SafetyError

MIB: Final = 1 << 20
GIB: Final = 1 << 30

MAX_QUANTITY: Final = (1 << 63) - 1
"""Largest quantity taken from outside: what a signed 64-bit counter of a device can say. Larger input is an error."""

TRUST_GROWTH: Final = 8
"""How far beyond the observed sharing (and the observed packed rows) the laws extrapolate. Source: the packed-pricing
change to OpenPipe ART, whose evidence covers sharing 1 to 8 on a profile learned at 1."""

LOGICAL_ROW_BYTES: Final = 12 * 512
"""Charge for head and caller memory of one logical row: twelve 512 B allocator blocks. Source: a duplicate one-token
request was measured on an H200 to cost nine blocks and 8 B (4,616 B) at the head's peak and 3,080 B live into backward,
with the same slope at 20,000 and 100,000 duplicates."""

SHORT_REQUEST_ROWS: Final = 64
"""An active single-target request below this many rows is short. 64 * 6,144 B = 384 KiB of charge covers a caller's
constants per request; a shorter request does not bring enough charge with it."""

RESERVE_NUMERATOR: Final = 3
RESERVE_DENOMINATOR: Final = 100
"""Share of device memory kept physically free for libraries that allocate outside the framework's allocator."""


def maximum(left: int, right: int) -> int:
    """The larger of two integers."""
    return left if left >= right else right


def minimum(left: int, right: int) -> int:
    """The smaller of two integers."""
    return left if left <= right else right


def ceil_div(numerator: int, denominator: int) -> int:
    """Least integer that is at least numerator / denominator; `denominator` >= 1."""
    return (numerator + denominator - 1) // denominator


def require_count(field: str, value: int) -> None:
    """Check that `value` is an integer in [0, MAX_QUANTITY]. Raises `QuantityError` naming `field`.

    NumPy integers are refused too: they wrap around silently, which a price must never do.
    """
    require_integer(field, value)
    if value < 0:
        raise QuantityError(field, value, "must be at least 0")


def require_integer(field: str, value: int) -> None:
    """Check that `value` is a Python integer of at most 63 bits, of either sign. Raises `QuantityError`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise QuantityError(field, value, f"must be a Python int, not {type(value).__name__}")
    if value > MAX_QUANTITY or value < -MAX_QUANTITY:
        raise QuantityError(field, value, f"must lie within +-{MAX_QUANTITY} (2**63 - 1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """A sharing ratio, kept as the pair of the reading that set it: `logical_rows` / `packed_rows`, at least 1."""

    logical_rows: int
    packed_rows: int

    def __post_init__(self) -> None:
        require_count("sharing.logical_rows", self.logical_rows)
        require_count("sharing.packed_rows", self.packed_rows)
        if not 1 <= self.packed_rows <= self.logical_rows:
            raise QuantityError(
                "sharing",
                (self.logical_rows, self.packed_rows),
                "must be a pair with logical_rows >= packed_rows >= 1",
            )

    def __str__(self) -> str:
        return f"{self.logical_rows}/{self.packed_rows}"


UNSHARED: Final = Sharing(logical_rows=1, packed_rows=1)


def is_more_sharing(candidate_logical: int, candidate_packed: int, than: Sharing) -> bool:
    """Whether candidate_logical / candidate_packed is above `than`, or equal with fewer packed rows.

    Cross-multiplied, so exact. The second half only fixes which of two equal pairs is kept, so that the kept pair does
    not depend on the order of readings.
    """
    left = candidate_logical * than.packed_rows
    right = than.logical_rows * candidate_packed
    return left > right or (left == right and candidate_packed < than.packed_rows)


def more_sharing(sharing: Sharing, logical_rows: int, packed_rows: int) -> Sharing:
    """The larger of `sharing` and logical_rows / packed_rows (`packed_rows` >= 1). Never below 1."""
    if is_more_sharing(logical_rows, packed_rows, sharing):
        return Sharing(logical_rows=logical_rows, packed_rows=packed_rows)
    return sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """The safety factor sigma: an exact fraction of at least 1, kept in lowest terms."""

    numerator: int
    denominator: int

    def __post_init__(self) -> None:
        for field, value in (("numerator", self.numerator), ("denominator", self.denominator)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise SafetyError(f"safety {field} must be a Python int, got {value!r}")
        if not 1 <= self.denominator <= self.numerator:
            raise SafetyError(f"safety must be a fraction of at least 1, got {self.numerator}/{self.denominator}")
        if max(self.numerator, self.denominator) > MAX_QUANTITY:
            raise SafetyError("safety must be a fraction of integers below 2**63")
        divisor = gcd(self.numerator, self.denominator)
        object.__setattr__(self, "numerator", self.numerator // divisor)
        object.__setattr__(self, "denominator", self.denominator // divisor)

    @classmethod
    def parse(cls, value: str | int | Fraction | Decimal | Safety) -> Safety:
        """Read a factor exactly: "11/10", "1.1", 2, Fraction(11, 10), Decimal("1.1").

        A float is refused: 1.1 as a double is 2476979795053773/2**51, not 11/10. Raises `SafetyError`.
        """
        if isinstance(value, Safety):
            return value
        if isinstance(value, (bool, float)) or not isinstance(value, (str, int, Fraction, Decimal)):
            raise SafetyError(f'safety must be exact: write "11/10" or "1.1" (text), got {value!r}')
        if isinstance(value, str) and not re.fullmatch(r"\s*\d{1,19}(?:\s*/\s*\d{1,19}|\.\d{1,18})?\s*", value):
            raise SafetyError(f'safety must be a fraction or a decimal such as "11/10" or "1.1", got {value[:80]!r}')
        try:
            ratio = Fraction(value.replace(" ", "") if isinstance(value, str) else value)
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            raise SafetyError(f"safety is not a fraction: {value!r}") from error
        return cls(numerator=ratio.numerator, denominator=ratio.denominator)

    def __str__(self) -> str:
        return f"{self.numerator}/{self.denominator}"


DEFAULT_SAFETY: Final = Safety(numerator=11, denominator=10)
"""sigma = 11/10, the margin of the source documents."""


def with_safety(numerator: int, denominator: int, byte_count: int) -> int:
    """ceil(numerator / denominator * byte_count): the safety factor, rounded up so that no byte of margin is lost."""
    return ceil_div(numerator * byte_count, denominator)
