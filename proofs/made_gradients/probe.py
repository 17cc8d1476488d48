"""What neither price covers: gradients beyond those held back, and waves that made a part of what others make."""

from __future__ import annotations

from pricing.kernel.quantities import maximum
from proofs.made_gradients.theorem import moments
from proofs.solver.proof import Given, refuted


@refuted("device")
def more_gradients_than_are_held_back_are_covered(t: Given) -> None:
    """False: a parameter that trains and is in nobody's account."""
    seen = moments(t, gradients_do_not_depend_on_rows=False)
    peak = maximum(seen.other[0] + seen.made[0], seen.other[1] + seen.made[1])
    t.prove(peak <= maximum(*seen.other) + seen.all_made)


@refuted("device")
def a_part_of_the_gradients_covers_all_of_them(t: Given) -> None:
    """False: why a reading counts as whole only where the wave found none of the gradients and made each of them."""
    seen = moments(t)
    part = (t.integer("part_first", 0), t.integer("part_second", 0))
    for at in range(len(part)):
        t.assume(part[at] <= seen.made[at])
    peak = maximum(seen.read[0] + part[0], seen.read[1] + part[1])
    other = maximum(seen.other[0] + seen.made[0], seen.other[1] + seen.made[1])
    t.prove(seen.rows * other <= seen.other_rows * peak)
