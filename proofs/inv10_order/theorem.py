"""INV-10 on all integers, field for field. Two neighbouring readings swap; swaps make every permutation."""

from __future__ import annotations

from dataclasses import replace

from pricing import contracts
from pricing.profile import observe
from pricing.quantities import more_sharing
from proofs.lemmas import the_greater_of_sharings_is_transitive
from proofs.solver.proof import Given, theorem


@theorem("INV-10", lemmas=(the_greater_of_sharings_is_transitive,))
def the_kept_sharing_does_not_depend_on_the_order_of_readings(t: Given) -> None:
    """Neither its ratio nor which of two equal pairs is kept."""
    known = t.sharing("known")
    first = t.integer("first.logical", 0), t.integer("first.packed", 1)
    second = t.integer("second.logical", 0), t.integer("second.packed", 1)
    one = more_sharing(more_sharing(known, *first), *second)
    other = more_sharing(more_sharing(known, *second), *first)
    t.prove(one.logical_rows == other.logical_rows)
    t.prove(one.packed_rows == other.packed_rows)


@theorem("INV-10", lemmas=(the_greater_of_sharings_is_transitive,))
def after_the_seed_two_readings_teach_the_same_in_either_order(t: Given) -> None:
    profile, first, second = t.profile(), t.reading("first"), t.reading("second")
    t.holds(contracts.order_does_not_matter, profile, first, second)


@theorem("INV-10")
def observing_a_reading_twice_teaches_what_observing_it_once_did(t: Given) -> None:
    """Idempotent but for the count: after the second time, a third changes the count alone."""
    profile, reading = t.profile(), t.reading()
    t.assume(profile.complete_readings >= 1)
    once = observe(profile, reading)
    twice = observe(once, reading)
    t.prove(replace(twice, complete_readings=once.complete_readings) == once)
