"""Learned at its own total, a mixed wave says too little of one in other proportions."""

from __future__ import annotations

from pricing.kernel.quantities import ceil_div
from pricing.kernel.shares import times_up
from proofs.solver.proof import Given, refuted


@refuted("shares")
def a_rate_through_all_rows_covers_every_kind(t: Given) -> None:
    """False: a kind with 1 row of a total of 1,000 then taught a thousandth of what a row of it takes."""
    rows, other, total = t.integer("rows", 1), t.integer("other_rows", 0), t.integer("total_rows", 1)
    up, down = t.integer("numerator", 1), t.integer("denominator", 1)
    compute, priced = t.integer("compute", 0), t.integer("priced_rows", 0)
    t.assume(total >= times_up(rows, up, down))
    t.assume(priced >= times_up(other, up, down))
    t.prove(ceil_div(compute, total) * (priced * rows) >= compute * other)
