"""The shipped width search against its contract, for every division into regimes and every monotone feasibility.

The search asks a curve where a regime ends and a predicate whether a width is feasible, and nothing else. All curves of
up to `MOST_WIDTHS` widths and all predicates that are monotone within each regime (what INV-1 to INV-3 give) are tried;
galloping doubles, so this covers every way in which it can pass or meet the end of a regime up to four doublings.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from pricing.planner import split
from pricing.planner.split import DENSE_RUNGS, Ladder, rung_sizes
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


MOST_REQUESTS: Final = 40


def _bounds(_: object) -> Any:
    return SimpleNamespace(lower_bound_bytes=lambda subforwards: 1000 + subforwards)


@checked("planner")
def the_ladder_climbs_every_rung_up_to_the_first_that_fits() -> str:
    """The shipped `climb`, for each number of requests and each rung that may be the first to fit, or none. With
    `the_shipped_rung_fits_exactly_where_its_cost_does_pruned_or_not`: no rung that would fit is passed over."""
    climbs = 0
    for active in range(MOST_REQUESTS + 1):
        sizes = list(rung_sizes(active))
        assert sizes == sorted(set(sizes)) and sizes[-1:] == ([active] if active > 1 else []), f"{active}: {sizes}"
        assert sizes[: DENSE_RUNGS - 1] == list(range(2, min(active, DENSE_RUNGS) + 1)), f"{active}: {sizes}"
        for first in (*sizes, None):
            asked: list[tuple[int, int]] = []

            def rung(size: int, bound: int, asked: list[tuple[int, int]] = asked, first: int | None = first) -> Any:
                asked.append((size, bound))
                return SimpleNamespace(fits=size == first or (first is not None and size > first))

            # As many requests that hold nothing stand between the others: they are none.
            ladder: Any = SimpleNamespace(
                requests=range(2 * active), batch=SimpleNamespace(is_active=lambda request: request % 2), rung=rung
            )
            with patch.object(split, "RungBounds", _bounds):
                tried = Ladder.climb(ladder)
            expected = sizes if first is None else sizes[: sizes.index(first) + 1]
            assert asked == [(size, 1000 + size) for size in expected], f"{active} requests, {first} fits: {asked}"
            assert [one.fits for one in tried] == [size == first for size in expected]
            climbs += 1
    return f"{climbs} climbs"
