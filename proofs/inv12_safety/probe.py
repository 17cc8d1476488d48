"""The margin is neither rounded down nor more than rounding."""

from __future__ import annotations

from pricing.kernel.quantities import with_safety
from proofs.solver.proof import Given, refuted


@refuted("INV-12")
def the_safety_factor_may_be_rounded_down(t: Given) -> None:
    safety, count = t.safety(), t.integer("bytes", 0)
    price = with_safety(safety.numerator, safety.denominator, count)
    t.prove(price * safety.denominator <= safety.numerator * count)


@refuted("INV-12")
def the_safety_factor_always_adds_a_byte(t: Given) -> None:
    safety, count = t.safety(), t.integer("bytes", 1)
    t.prove(with_safety(safety.numerator, safety.denominator, count) > count)
