"""Tuples of bands of any length, by their parts: what lies before a key, the band of that key, what lies behind it.

`join` puts one reading into sorted bands: it asks `bisect_left` for the place, compares one key there, and slices.
Bands that all lie before the key, or all behind it, take part in this by their order alone, so any number of them is
one element here: a `Rest`, whose key answers as each of theirs would. Where a rest comes out as the same object, each
of its bands does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pricing.kernel.bands import Anchor, Cover
from proofs.solver.run import same


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """The key of a rest: before each of the keys `later`, behind every other that it meets, equal to none."""

    later: tuple[tuple[Any, Any], ...]

    def __lt__(self, other: object) -> bool:
        return any(same(other, key) for key in self.later)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """One band or more that all lie on the same side of each key that is asked for.

    cover, anchor: those of whichever of its bands a claim is about.
    """

    key: Order
    cover: Cover | None = None
    anchor: Anchor | None = None
