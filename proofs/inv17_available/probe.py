"""Where INV-17 does not hold: a device that changed, and a budget that counts what does not come back."""

from __future__ import annotations

from pricing.planner.budget import BudgetVerdict, judge, judge_after_release
from proofs.inv17_available.theorem import a_budget
from proofs.solver.proof import Given, refuted


@refuted("INV-17")
def a_plan_is_admitted_on_a_device_that_lost_memory_since(t: Given) -> None:
    """False, and not promised: another process took what was free."""
    planned, required, lost = a_budget(t), t.integer("required", 0), t.integer("lost", 1)
    changed = t.valid(lambda: type(planned)(free_bytes=planned.free_bytes - lost, reserve_bytes=planned.reserve_bytes))
    t.assume(planned.reusable_cache_bytes == 0)
    t.assume(judge(required, planned) is BudgetVerdict.RUN)
    t.prove(judge_after_release(required, changed) is BudgetVerdict.RUN)


@refuted("INV-17")
def what_is_physically_free_is_all_that_is_available(t: Given) -> None:
    """False: a plan that counted only this would refuse what a release makes room for."""
    planned = a_budget(t)
    t.prove(planned.available_bytes == planned.physical_bytes)
