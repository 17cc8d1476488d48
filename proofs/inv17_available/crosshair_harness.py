"""INV-17 by CrossHair: a plan, a release of some of the cache, admission."""

from __future__ import annotations

from pricing import contracts
from pricing.planner.budget import Budget, BudgetVerdict, judge, judge_after_release


def a_plan_is_admitted_after_any_release(free: int, reserve: int, cache: int, released: int, required: int) -> bool:
    """
    pre: 0 <= free <= 10**12 and 0 <= reserve <= 10**12 and 0 <= released <= cache <= 10**12 and 0 <= required <= 10**12
    post: _
    """
    return is_admitted_as_planned(
        Budget(free_bytes=free, reserve_bytes=reserve, reusable_cache_bytes=cache), released, required
    )


def and_where_the_process_may_take_only_so_much(free: int, reservable: int, cache: int, required: int) -> bool:
    """
    pre: 0 <= free <= 10**12 and -10**12 <= reservable <= 10**12 and 0 <= cache <= 10**12 and 0 <= required <= 10**12
    post: _
    """
    planned = Budget(free_bytes=free, reserve_bytes=0, reusable_cache_bytes=cache, reservable_bytes=reservable)
    return is_admitted_as_planned(planned, cache, required)


def is_admitted_as_planned(planned: Budget, released: int, required: int) -> bool:
    """INV-17 of one budget, price and release."""
    admitted, verdict = planned, judge(required, planned)
    if verdict is BudgetVerdict.RELEASE:
        admitted = planned.after_release(released)
        verdict = judge_after_release(required, admitted)
    return contracts.plan_is_admitted(
        required_bytes=required,
        planned_available_bytes=planned.available_bytes,
        admitted_available_bytes=admitted.available_bytes,
        is_admitted=verdict is BudgetVerdict.RUN,
    )
