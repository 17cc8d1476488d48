"""INV-18 on all integers, for the rate laws: every error moves the price, of the wave and of narrower ones.

Of the frontier law it is in `any_number_footprints`.

n errors under one budget leave at most (16/17)**n of the packed rows that were first tried (`contracts.most_failures`),
by the last theorem n times; the device runs some width, so the errors end there.
"""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.price import evidence_bytes
from proofs.inv08_coverage.theorem import COVERING, is_remembered
from proofs.inv16_out_of_memory.theorem import failed_reading
from proofs.lemmas import a_product_never_falls_as_a_factor_grows
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both, implies


@theorem("INV-18")
def a_failure_is_at_least_a_sixteenth_above_what_was_available(t: Given) -> None:
    figures = t.integer("available"), t.integer("reserved"), t.integer("requested")
    t.holds(contracts.failure_is_above_what_was_available, *figures)


@theorem("INV-18", lemmas=COVERING)
def a_wave_that_fitted_and_failed_costs_a_sixteenth_more(t: Given) -> None:
    """From what it is remembered to need (INV-16): 17/16 of what was available, and so of its old price."""
    footprints, failed = t.footprints(retained=False), failed_reading(t)
    available, priced = t.integer("available", 0), t.integer("priced", 0)
    wave = t.wave(
        packed_rows=failed.packed_rows,
        logical_rows=failed.logical_rows,
        grad_segments=failed.grad_segments,
        output_bytes=failed.output_bytes,
    )
    t.assume(both(is_remembered(footprints, failed), priced <= available))
    t.assume(16 * failed.peak_delta_bytes >= 17 * available)
    after = t.merged(evidence_bytes, wave, footprints, t.law(), t.safety())
    t.prove(16 * after >= 17 * available)
    t.prove(16 * after >= 17 * priced)


@theorem("INV-18", lemmas=COVERING)
def what_is_admitted_after_a_failure_has_at_most_sixteen_seventeenths_of_its_rows(t: Given) -> None:
    """A narrower wave with no less than its rows' share of the outputs, whatever else it has."""
    footprints, failed, narrower = t.footprints(retained=False), failed_reading(t), t.wave("narrower")
    available, rows, fewer = t.integer("available", 1), failed.packed_rows, narrower.packed_rows
    t.assume(is_remembered(footprints, failed))
    t.assume(16 * failed.peak_delta_bytes >= 17 * available)
    t.assume(both(fewer >= 1, fewer <= rows))
    t.assume(narrower.output_bytes * rows >= failed.output_bytes * fewer)
    price = t.merged(evidence_bytes, narrower, footprints, t.law(), t.safety())
    rate = failed.peak_bytes_per_row
    never_falls = a_product_never_falls_as_a_factor_grows
    t.prove(price >= narrower.output_bytes + rate * fewer, "its rows at the failed wave's rate")
    # price * rows >= (O' + rate*fewer) * rows >= O*fewer + compute*fewer >= footprint * fewer
    t.use(never_falls, rows, narrower.output_bytes + rate * fewer, price)
    t.use(never_falls, fewer, failed.compute_bytes, rate * rows)
    t.use(never_falls, fewer, failed.peak_delta_bytes, failed.output_bytes + failed.compute_bytes)
    t.prove(price * rows >= failed.peak_delta_bytes * fewer, "in proportion")
    t.use(never_falls, rows, price, available)
    t.use(never_falls, fewer, 17 * available, 16 * failed.peak_delta_bytes)
    t.use(never_falls, available, 16 * rows + 1, 17 * fewer)
    t.prove(implies(price <= available, 17 * fewer <= 16 * rows))
