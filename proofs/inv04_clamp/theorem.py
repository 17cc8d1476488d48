"""INV-4 on all integers, for every growth k >= 1, and what the rows of the clamp are without any division."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.rate_laws import sharing_rows
from proofs.lemmas import (
    rounding_up_is_the_least_integer_above,
    shared_rows_are_packed_rows_within_reach_and_clamped_beyond,
)
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both, either


@theorem("INV-4", lemmas=(shared_rows_are_packed_rows_within_reach_and_clamped_beyond,))
def the_all_readings_term_is_clamped_exactly_at_growth_times_the_observed_sharing(t: Given) -> None:
    profile, wave, growth = t.profile(retained=False), t.wave(), t.integer("growth", 1)
    t.holds(contracts.clamp_is_exact, wave, profile, growth)


@theorem("INV-4", lemmas=(rounding_up_is_the_least_integer_above,))
def shared_rows_are_the_fewest_that_hold_both_packed_and_logical_rows(t: Given) -> None:
    """rows(s) is the least integer x with x >= P and x * k * s >= L: said without a quotient."""
    sharing, growth = t.sharing("s"), t.integer("growth", 1)
    packed, logical = t.integer("P", 0), t.integer("L", 0)
    rows = sharing_rows(packed, logical, sharing, growth)
    reach, need = growth * sharing.logical_rows, logical * sharing.packed_rows
    t.prove(both(rows >= packed, rows * reach >= need), "it holds both")
    t.prove(either(rows == packed, (rows - 1) * reach < need), "one row fewer does not")
