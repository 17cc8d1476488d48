"""INV-17: on an unchanged device a plan is admitted, whatever part of its cache comes back at a release."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import contracts
from pricing.planner import budget as budgets
from pricing.planner.budget import Budget, BudgetVerdict

COUNTS = st.integers(0, 1 << 40)


@st.composite
def budgets_and_releases(draw: st.DrawFn) -> tuple[Budget, int]:
    """A budget, and how much of its cache a release gives back: the rest lies in pieces."""
    cache_bytes = draw(COUNTS)
    budget = Budget(
        free_bytes=draw(COUNTS),
        reserve_bytes=draw(COUNTS),
        reusable_cache_bytes=cache_bytes,
        reservable_bytes=draw(st.none() | st.integers(-(1 << 40), 1 << 40)),
        held_back_bytes=draw(st.just(0) | COUNTS),
    )
    return budget, draw(st.integers(0, cache_bytes) | st.just(0) | st.just(cache_bytes))


@pytest.mark.invariant("INV-17")
@given(drawn=budgets_and_releases(), beside=st.integers(-2, 2), required=st.none() | COUNTS)
def test_what_fits_the_plan_is_admitted(drawn: tuple[Budget, int], beside: int, required: int | None) -> None:
    planned, released_bytes = drawn
    required_bytes = max(0, planned.available_bytes + beside) if required is None else required
    admitted, verdict = planned, budgets.judge(required_bytes, planned)
    if verdict is BudgetVerdict.RELEASE:
        admitted = planned.after_release(released_bytes)
        verdict = budgets.judge_after_release(required_bytes, admitted)
    assert contracts.plan_is_admitted(
        required_bytes=required_bytes,
        planned_available_bytes=planned.available_bytes,
        admitted_available_bytes=admitted.available_bytes,
        is_admitted=verdict is BudgetVerdict.RUN,
    )
