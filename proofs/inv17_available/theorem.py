"""INV-17 on all integers: any budget, whatever part of the cache comes back at a release."""

from __future__ import annotations

from pricing.planner.budget import Budget, BudgetVerdict, judge, judge_after_release
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both, negation


def a_budget(t: Given) -> Budget:
    """Any sample of a device, with or without a limit of the process's own."""
    counts = ("reserve_bytes", "reusable_cache_bytes", "held_back_bytes")
    fields = {name: t.integer(name, 0) for name in counts}
    free, reservable = t.integer("free_bytes"), t.choose(None, t.integer("reservable_bytes"))
    return t.valid(lambda: Budget(free_bytes=free, reservable_bytes=reservable, **fields))


@theorem("INV-17")
def what_is_available_is_the_same_before_and_after_a_release(t: Given) -> None:
    planned, released = a_budget(t), t.integer("released", 0)
    t.assume(released <= planned.reusable_cache_bytes)
    t.prove(planned.after_release(released).available_bytes == planned.available_bytes)


@theorem("INV-17")
def what_fits_a_plan_is_admitted_on_a_device_that_did_not_change(t: Given) -> None:
    """At once or after a release of any part of the cache; and what does not fit is refused both times."""
    planned, required, released = a_budget(t), t.integer("required", 0), t.integer("released", 0)
    t.assume(released <= planned.reusable_cache_bytes)
    admitted, verdict = planned, judge(required, planned)
    if verdict is BudgetVerdict.RELEASE:
        admitted = planned.after_release(released)
        verdict = judge_after_release(required, admitted)
    is_admitted = verdict is BudgetVerdict.RUN
    fits = both(planned.available_bytes >= 0, required <= planned.available_bytes)
    t.prove(planned.available_bytes == admitted.available_bytes, "one figure")
    t.prove(fits if is_admitted else negation(fits), "admitted exactly where it fits")
