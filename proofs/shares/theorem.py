"""A reading learned at the rows of its least-represented kind covers every wave of its kinds, in proportion."""

from __future__ import annotations

from pricing.kernel.quantities import ceil_div
from pricing.kernel.shares import times_down, times_up
from proofs.lemmas import a_rate_through_fewer_rows_covers, one_scale_keeps_proportions
from proofs.solver.proof import Given, theorem


@theorem("shares", lemmas=(one_scale_keeps_proportions, a_rate_through_fewer_rows_covers))
def the_rate_of_a_mixed_wave_covers_every_kind_in_proportion(t: Given) -> None:
    """For any one kind: n rows were read, n' are to be priced, and c is the scale of its class.

    Learned at p <= c*n rows and priced at P' >= c*n' rows, the price is at least compute * n'/n. By assumption SHARES a
    wave needs at most the largest of these over its kinds.
    """
    rows, other = t.integer("rows", 1), t.integer("other_rows", 0)
    up, down = t.integer("numerator", 1), t.integer("denominator", 1)
    compute, taught, priced = t.integer("compute", 0), t.integer("taught_rows", 1), t.integer("priced_rows", 0)
    t.assume(taught <= times_down(rows, up, down))
    t.assume(priced >= times_up(other, up, down))
    rate = ceil_div(compute, taught)
    t.use(one_scale_keeps_proportions, rows, other, taught, priced, up, down)
    t.use(a_rate_through_fewer_rows_covers, rate, compute, taught, priced * rows, other)
    t.prove(rate * (priced * rows) >= compute * other)
