"""The shipped width search against its contract, for every division into regimes and every monotone feasibility.

The search asks a curve where a regime ends and a predicate whether a width is feasible, and nothing else. All curves of
up to `MOST_WIDTHS` widths and all predicates that are monotone within each regime (what INV-1 to INV-3 give) are tried;
galloping doubles, so this covers every way in which it can pass or meet the end of a regime up to four doublings.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from pricing.planner.width_search import widest_feasible
from proofs.solver.proof import checked

MOST_WIDTHS: Final = 9


class Regimes:
    """Stands for a curve: widths 1 to `limit`, `ends` the last width of each regime."""

    def __init__(self, ends: tuple[int, ...]) -> None:
        self.ends = ends
        self.limit = ends[-1] if ends else 0

    def reaches(self, width: int) -> bool:
        return width <= self.limit

    def last_width_of_regime(self, first: int, wanted: int) -> int:
        return min(wanted, next(end for end in self.ends if end >= first))


def divisions(limit: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut widths 1 to `limit` into regimes, by the last width of each."""
    for cuts in product((False, True), repeat=max(0, limit - 1)):
        yield (*(place + 1 for place, cut in enumerate(cuts) if cut), *((limit,) if limit else ()))


def feasibilities(ends: tuple[int, ...]) -> Iterator[frozenset[int]]:
    """Every set of feasible widths that, within each regime, is all up to some width."""
    starts = (0, *ends)[: len(ends)]
    for most in product(*(range(end - start + 1) for start, end in zip(starts, ends, strict=True))):
        yield frozenset(
            width for start, count in zip(starts, most, strict=True) for width in range(start + 1, start + count + 1)
        )


@checked("planner")
def the_width_search_finds_the_largest_width_all_of_whose_smaller_widths_are_feasible() -> str:
    count = 0
    for limit in range(MOST_WIDTHS + 1):
        for ends in divisions(limit):
            for feasible in feasibilities(ends):
                curve: Any = Regimes(ends)
                expected = next((width for width in range(limit) if width + 1 not in feasible), limit)
                found = widest_feasible(curve, feasible.__contains__)
                assert found == expected, f"regimes ending at {ends}, feasible {sorted(feasible)}: {found}"
                count += 1
    return f"{count} searches"
