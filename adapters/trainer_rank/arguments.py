"""What a `TrainerRank` is made with, checked when it is made and not at the first wave."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import cast

from pricing import Law, Safety
from pricing.kernel.errors import SafetyError, UnknownLawError
from pricing.kernel.laws import LAWS, find_law

_LAW_MEMBERS = tuple(name for name in vars(Law) if not name.startswith("_"))


def as_law(law: object) -> Law:
    """A law, or the one of that name. Raises `UnknownLawError` with the names there are."""
    if isinstance(law, str):
        return find_law(law)
    if not isinstance(law, type) and all(hasattr(law, member) for member in _LAW_MEMBERS):
        return cast(Law, law)
    raise UnknownLawError(f"law must be a law or the name of one ({', '.join(LAWS)}), got {law!r}")


def as_safety(safety: object) -> Safety:
    """The safety factor that is meant. Raises `SafetyError` with what to write instead.

    A float is taken where it is exactly the number that it prints as (1.5); 1.1 is not: the double is a little more.
    """
    if isinstance(safety, float):
        written = Fraction(repr(safety)) if safety == safety and abs(safety) != float("inf") else None
        if written is None or written != Fraction(safety):
            meant = "" if written is None else f': write "{written}" or "{safety!r}", as text'
            raise SafetyError(f"safety must be exact, and the float {safety!r} is not{meant}")
        return Safety.parse(written)
    if not isinstance(safety, (Safety, Fraction, Decimal, str, int)):
        raise SafetyError(f'safety must be a factor such as "11/10", got {safety!r}')
    return Safety.parse(safety)
