"""INV-12 on all integers, for every exact factor of at least 1."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.quantities import with_safety
from proofs.lemmas import a_lower_ratio_rounds_up_no_higher, rounding_up_is_the_least_integer_above
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both


@theorem("INV-12", lemmas=(rounding_up_is_the_least_integer_above,))
def required_bytes_are_the_least_integer_above_sigma_times_outputs_and_compute(t: Given) -> None:
    t.holds(contracts.safety_is_tight, t.wave(), t.profile(), t.law(), t.safety())


@theorem("INV-12", lemmas=(rounding_up_is_the_least_integer_above,))
def a_larger_safety_factor_never_prices_lower(t: Given) -> None:
    small, large, count = t.safety("small"), t.safety("large"), t.integer("bytes", 0)
    t.assume(small.numerator * large.denominator <= large.numerator * small.denominator)
    fewer = with_safety(small.numerator, small.denominator, count)
    more = with_safety(large.numerator, large.denominator, count)
    t.prove(both(fewer >= count, more >= count), "neither takes margin away")
    terms = (small.numerator, small.denominator, large.numerator, large.denominator)
    t.use(a_lower_ratio_rounds_up_no_higher, *terms, count)
    t.prove(fewer <= more)
