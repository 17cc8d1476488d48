"""Symbolic integers: what the kernel's own functions run on instead of ints, so that what is proven is what ships.

An `Integer` is a solver term of mathematical (unbounded) integer sort, a `Truth` a Boolean one. The kernel's `+ - * //`
and comparisons build terms. Where Python asks for the truth of a `Truth` (an `if`, `and`, `not`), the run forks (see
`run.py`). Whatever could leave exact integers raises `InexactError`: true division, `float()`, hashing, indexing. So a
float that slips into a law stops its proof.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol, TypeAlias

import z3

Term: TypeAlias = Any
"""A z3 expression (z3 ships no types)."""


class InexactError(TypeError):
    """Code under proof asked a symbolic integer for something other than exact integer arithmetic."""


class Brancher(Protocol):
    """What symbolic values need of the run they belong to."""

    def fork(self, condition: Term) -> bool: ...

    def quotient(self, numerator: Term, denominator: Term) -> Term: ...

    def multiplied(self, left: Term, right: Term, product: Term) -> None: ...

    def printed(self) -> None: ...


_active: list[Brancher] = []


def activate(run: Brancher) -> None:
    """Make `run` the one that forks and divisions go to."""
    _active.append(run)


def deactivate(run: Brancher) -> None:
    assert _active and _active[-1] is run, "runs end in the reverse of the order they began in"
    _active.pop()


def active_run() -> Brancher:
    if not _active:
        raise InexactError("a symbolic value outlived the run it belongs to")
    return _active[-1]


def _forbidden(what: str) -> Callable[..., NoReturn]:
    def refuse(*_: object) -> NoReturn:
        raise InexactError(f"a law asked a symbolic integer for {what}; only + - * // and comparisons are exact")

    return refuse


class Truth:
    """A symbolic Boolean. Asking for its Python truth forks the run; `&`, `|`, `~` and `==` do not."""

    __slots__ = ("term",)

    def __init__(self, term: Term) -> None:
        self.term = term

    def __bool__(self) -> bool:
        return active_run().fork(self.term)

    def __and__(self, other: Truth | bool) -> Truth:
        return Truth(z3.And(self.term, truth_term(other)))

    def __or__(self, other: Truth | bool) -> Truth:
        return Truth(z3.Or(self.term, truth_term(other)))

    def __invert__(self) -> Truth:
        return Truth(z3.Not(self.term))

    __rand__ = __and__
    __ror__ = __or__

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.term == truth_term(other))

    def __ne__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.term != truth_term(other))

    __hash__ = _forbidden("a hash")

    def __repr__(self) -> str:
        active_run().printed()
        return "<symbolic>"


class Integer:
    """A symbolic integer, unbounded as Python's are."""

    __slots__ = ("term",)

    def __init__(self, term: Term) -> None:
        self.term = term

    def __add__(self, other: Integer | int) -> Integer:
        return Integer(self.term + integer_term(other))

    def __radd__(self, other: int) -> Integer:
        return Integer(integer_term(other) + self.term)

    def __sub__(self, other: Integer | int) -> Integer:
        return Integer(self.term - integer_term(other))

    def __rsub__(self, other: int) -> Integer:
        return Integer(integer_term(other) - self.term)

    def __mul__(self, other: Integer | int) -> Integer:
        return _product(self.term, integer_term(other))

    def __rmul__(self, other: int) -> Integer:
        return _product(integer_term(other), self.term)

    def __neg__(self) -> Integer:
        return Integer(-self.term)

    def __floordiv__(self, other: Integer | int) -> Integer:
        return Integer(active_run().quotient(self.term, integer_term(other)))

    def __rfloordiv__(self, other: int) -> Integer:
        return Integer(active_run().quotient(integer_term(other), self.term))

    def __lt__(self, other: Integer | int) -> Truth:
        return Truth(self.term < integer_term(other))

    def __le__(self, other: Integer | int) -> Truth:
        return Truth(self.term <= integer_term(other))

    def __gt__(self, other: Integer | int) -> Truth:
        return Truth(self.term > integer_term(other))

    def __ge__(self, other: Integer | int) -> Truth:
        return Truth(self.term >= integer_term(other))

    def __eq__(self, other: object) -> Truth | bool:  # type: ignore[override]
        return False if other is None else Truth(self.term == integer_term(other))

    def __ne__(self, other: object) -> Truth | bool:  # type: ignore[override]
        return True if other is None else Truth(self.term != integer_term(other))

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __repr__(self) -> str:
        # An error message may print a symbolic value. A path that goes on afterwards could compare the text of two
        # different terms of equal value, so the run checks that only raising paths print.
        active_run().printed()
        return "<symbolic>"

    __truediv__ = _forbidden("true division")
    __rtruediv__ = _forbidden("true division")
    __mod__ = _forbidden("a remainder")
    __rmod__ = _forbidden("a remainder")
    __pow__ = _forbidden("a power")
    __float__ = _forbidden("a float")
    __int__ = _forbidden("a machine value")
    __index__ = _forbidden("an index")
    __hash__ = _forbidden("a hash")


def _product(left: Term, right: Term) -> Integer:
    product = left * right
    if not (z3.is_int_value(left) or z3.is_int_value(right)):
        active_run().multiplied(left, right, product)
    return Integer(product)


def integer_term(value: object) -> Term:
    """The solver term of an int or an `Integer`; anything else (a bool, a float) is refused."""
    if isinstance(value, Integer):
        return value.term
    if isinstance(value, int) and not isinstance(value, bool):
        return z3.IntVal(value)
    raise InexactError(f"a law mixed a symbolic integer with {value!r} of type {type(value).__name__}")


def truth_term(value: object) -> Term:
    """The solver term of a bool or a `Truth`."""
    if isinstance(value, Truth):
        return value.term
    if isinstance(value, bool):
        return z3.BoolVal(value)
    raise InexactError(f"expected a truth value, got {value!r} of type {type(value).__name__}")


# --- connectives that read the same on bools and on Truths, and never fork -------------------------------------------


def both(*claims: bool) -> bool:
    """Conjunction. (Typed for ints, as the theorems are; a `Truth` goes in and comes out where values are symbolic.)"""
    joined: Any = all(claims) if not _any_symbolic(claims) else Truth(z3.And(*map(truth_term, claims)))
    return joined  # type: ignore[no-any-return]


def either(*claims: bool) -> bool:
    """Disjunction."""
    joined: Any = any(claims) if not _any_symbolic(claims) else Truth(z3.Or(*map(truth_term, claims)))
    return joined  # type: ignore[no-any-return]


def negation(claim: bool) -> bool:
    opposite: Any = ~claim if isinstance(claim, Truth) else not claim
    return opposite  # type: ignore[no-any-return]


def implies(premise: bool, conclusion: bool) -> bool:
    return either(negation(premise), conclusion)


def _any_symbolic(claims: tuple[object, ...]) -> bool:
    return any(isinstance(claim, Truth) for claim in claims)
