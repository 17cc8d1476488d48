"""The budget's arithmetic at its edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.kernel.errors import QuantityError
from pricing.planner.budget import Budget, BudgetVerdict, fits, judge, reserve_of

amounts = st.integers(0, 1 << 40)


def test_reserve_is_three_percent_rounded_up() -> None:
    assert [reserve_of(total) for total in (0, 1, 33, 34, 100, 150_754_820_096)] == [0, 1, 1, 2, 3, 4_522_644_603]


@pytest.mark.parametrize(
    ("required", "free", "reserve", "cache", "verdict"),
    [
        (70, 100, 30, 0, BudgetVerdict.RUN),
        (71, 100, 30, 0, BudgetVerdict.REFUSE),
        (71, 100, 30, 1, BudgetVerdict.RELEASE),
        (0, 30, 30, 0, BudgetVerdict.RUN),
        (0, 29, 30, 0, BudgetVerdict.REFUSE),
        (0, 29, 30, 1, BudgetVerdict.RELEASE),
        (0, 0, 0, 0, BudgetVerdict.RUN),
        (0, -1, 0, 0, BudgetVerdict.REFUSE),
    ],
)
def test_verdicts(required: int, free: int, reserve: int, cache: int, verdict: BudgetVerdict) -> None:
    budget = Budget(free_bytes=free, reserve_bytes=reserve, reusable_cache_bytes=cache)
    assert judge(required, budget) is verdict


@given(required=amounts, free=st.integers(-(1 << 40), 1 << 40), reserve=amounts, cache=amounts)
def test_a_wave_runs_only_within_what_there_is(required: int, free: int, reserve: int, cache: int) -> None:
    budget = Budget(free_bytes=free, reserve_bytes=reserve, reusable_cache_bytes=cache)
    verdict, served = judge(required, budget), judge(required, budget, cache_serves=True)
    assert (verdict is BudgetVerdict.REFUSE) == (served is BudgetVerdict.REFUSE)
    assert (verdict is BudgetVerdict.REFUSE) != fits(required, free - reserve + cache)
    assert (verdict is BudgetVerdict.RUN) == fits(required, free - reserve)
    assert served is not BudgetVerdict.RELEASE


def test_a_release_is_judged_again_on_what_the_driver_then_shows() -> None:
    """Idle bytes do not all come back: what the second sample shows decides, and it may be less."""
    before = Budget(free_bytes=10, reserve_bytes=5, reusable_cache_bytes=55)
    assert judge(40, before) is BudgetVerdict.RELEASE
    assert judge(40, Budget(free_bytes=50, reserve_bytes=5, reusable_cache_bytes=12)) is BudgetVerdict.RUN
    assert judge(40, Budget(free_bytes=20, reserve_bytes=5, reusable_cache_bytes=12)) is BudgetVerdict.REFUSE


@pytest.mark.parametrize("field", ["free_bytes", "reserve_bytes", "reusable_cache_bytes"])
def test_figures_are_integers(field: str) -> None:
    figures = {"free_bytes": 1, "reserve_bytes": 1, "reusable_cache_bytes": 1} | {field: 1.5}
    with pytest.raises(QuantityError, match=field):
        Budget(**figures)  # type: ignore[arg-type]
    with pytest.raises(QuantityError, match="required_bytes"):
        judge(-1, Budget(free_bytes=1, reserve_bytes=0))
