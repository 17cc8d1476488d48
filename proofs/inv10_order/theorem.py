"""INV-10 on all integers, field for field. Two neighbouring readings swap; swaps make every permutation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pricing.kernel.profile import Evidence, Profile, _retained_rate, observe
from pricing.kernel.quantities import UNSHARED, Sharing, more_sharing
from pricing.kernel.reading import Reading
from proofs.lemmas import (
    tell_sharing,
    the_greater_of_sharings_is_transitive,
    the_kept_sharing_does_not_depend_on_the_order_of_two_readings,
)
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both


def is_equal(one: Any, other: Any) -> bool:
    """Equality of two field values, as the dataclasses' own `==` decides it, but without a fork for each."""
    if isinstance(one, Sharing) and isinstance(other, Sharing):
        return both(one.logical_rows == other.logical_rows, one.packed_rows == other.packed_rows)
    equal: bool = one == other
    return equal


@theorem("INV-10", lemmas=(the_greater_of_sharings_is_transitive,))
def the_kept_sharing_does_not_depend_on_the_order_of_readings(t: Given) -> None:
    """Neither its ratio nor which of two equal pairs is kept."""
    known = t.sharing("known")
    first = t.integer("first.logical", 0), t.integer("first.packed", 1)
    second = t.integer("second.logical", 0), t.integer("second.packed", 1)
    t.use(the_kept_sharing_does_not_depend_on_the_order_of_two_readings, known, *first, *second)
    one = more_sharing(more_sharing(known, *first), *second)
    other = more_sharing(more_sharing(known, *second), *first)
    t.prove(is_equal(one, other))


@theorem("INV-10", slow=True)
def after_the_seed_two_peaks_teach_the_same_in_either_order(t: Given) -> None:
    """`contracts.order_does_not_matter`, its equality taken field by field, for readings without retained bytes."""
    first, second = t.reading("first", retained=False), t.reading("second", retained=False)
    prove_that_order_does_not_matter(t, t.profile(retained=False), first, second)


@theorem("INV-10", slow=True)
def with_a_warm_fit_two_peaks_teach_the_same_in_either_order(t: Given) -> None:
    """The quick part."""
    first, second = t.reading("first", retained=False), t.reading("second", retained=False)
    prove_that_order_does_not_matter(t, t.profile(retained=False, warm="fit"), first, second)


@theorem("INV-10")
def retained_bytes_decide_the_retained_rate_and_nothing_else(t: Given) -> None:
    """So the two theorems around this one are together about all fields of all readings."""
    profile, reading = t.profile(), t.reading(retained=True)
    without, bare = replace(profile, retained_bytes_per_row=None), replace(reading, retained_bytes=None)
    t.assume(reading.packed_rows >= 1)
    tell_sharing(t, profile, reading)
    one, other = observe(profile, reading), observe(without, bare)
    t.prove(is_equal(one.retained_bytes_per_row, _retained_rate(profile.retained_bytes_per_row, reading)))
    for field in Evidence.__slots__:
        if field not in ("retained_bytes_per_row", "frontier"):
            t.prove(is_equal(getattr(one, field), getattr(other, field)), field)


@theorem("INV-10")
def the_retained_rate_does_not_depend_on_the_order_of_readings(t: Given) -> None:
    known = t.choose(None, t.integer("R", 0))
    first, second = t.reading("first", complete=True), t.reading("second", complete=True)
    t.assume(first.packed_rows >= 1)
    t.assume(second.packed_rows >= 1)
    one = _retained_rate(_retained_rate(known, first), second)
    t.prove(is_equal(one, _retained_rate(_retained_rate(known, second), first)))


def prove_that_order_does_not_matter(t: Given, profile: Profile, first: Reading, second: Reading) -> None:
    t.assume(profile.complete_readings >= 1)
    t.assume(first.packed_rows >= 1)
    t.assume(second.packed_rows >= 1)
    rows = first.logical_rows, first.packed_rows, second.logical_rows, second.packed_rows
    for known in (profile.sharing, profile.warm_sharing or UNSHARED):
        t.use(the_kept_sharing_does_not_depend_on_the_order_of_two_readings, known, *rows)
    tell_sharing(t, profile, first, second)
    once, other_once = observe(profile, first), observe(profile, second)
    tell_sharing(t, once, second)
    tell_sharing(t, other_once, first)
    one, other = observe(once, second), observe(other_once, first)
    for field in Evidence.__slots__:
        t.prove(is_equal(getattr(one, field), getattr(other, field)), field)


@theorem("INV-10", slow=True)
def a_reading_without_rows_teaches_nothing_in_either_place(t: Given) -> None:
    profile, empty, other = t.profile(), t.reading("empty", retained=False), t.reading("other", retained=False)
    t.assume(empty.packed_rows == 0)
    tell_sharing(t, profile, other)
    t.prove(observe(profile, empty) is profile, "before")
    after = observe(profile, other)
    t.prove(observe(after, empty) is after, "after")


@theorem("INV-10", slow=True)
def observing_a_reading_twice_teaches_what_observing_it_once_did(t: Given) -> None:
    """Idempotent but for the count of complete readings."""
    profile, reading = t.profile(retained=False), t.reading(retained=False)
    t.assume(profile.complete_readings >= 1)
    t.assume(reading.packed_rows >= 1)
    tell_sharing(t, profile, reading)
    once = observe(profile, reading)
    tell_sharing(t, once, reading)
    twice = observe(once, reading)
    unchanged = replace(twice, complete_readings=once.complete_readings)
    for field in Evidence.__slots__:
        t.prove(is_equal(getattr(unchanged, field), getattr(once, field)), field)
