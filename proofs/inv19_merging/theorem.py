"""INV-19 on all integers, field for field. Bands are joined by the functions that `proofs/frontier` is about."""

from __future__ import annotations

from pricing.kernel.merge import _larger, _smaller, merge, merge_sharing
from pricing.kernel.profile import Evidence
from pricing.kernel.quantities import UNSHARED, more_sharing
from proofs.inv10_order.theorem import is_equal
from proofs.lemmas import (
    the_greater_of_sharings_is_transitive,
    the_kept_sharing_does_not_depend_on_the_order_of_two_readings,
)
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both


@theorem("INV-19", lemmas=(the_greater_of_sharings_is_transitive,))
def the_sharing_of_two_profiles_merges_the_same_in_either_order(t: Given) -> None:
    one, other = t.sharing("one"), t.sharing("other")
    rows = one.logical_rows, one.packed_rows, other.logical_rows, other.packed_rows
    t.use(the_kept_sharing_does_not_depend_on_the_order_of_two_readings, UNSHARED, *rows)
    t.assume(is_equal(more_sharing(UNSHARED, *rows[:2]), one))  # a ratio of 1 is kept as 1/1
    t.assume(is_equal(more_sharing(UNSHARED, *rows[2:]), other))
    t.prove(is_equal(merge_sharing(one, other), merge_sharing(other, one)))


@theorem("INV-19")
def a_sharing_merged_with_itself_stays(t: Given) -> None:
    one = t.sharing("one")
    t.prove(is_equal(merge_sharing(one, one), one))


@theorem("INV-19")
def rates_and_floors_merge_the_same_in_any_order_and_grouping(t: Given) -> None:
    """Known or not: a maximum or a minimum of what is known."""
    one, other, third = (t.choose(None, t.integer(name, 0)) for name in ("one", "other", "third"))
    for join in (_larger, _smaller):
        t.prove(is_equal(join(one, other), join(other, one)))
        t.prove(is_equal(join(join(one, other), third), join(one, join(other, third))))
        t.prove(is_equal(join(one, one), one))
        t.prove(is_equal(join(join(one, other), other), join(one, other)))


@theorem("INV-19")
def a_merged_profile_is_above_both(t: Given) -> None:
    """Nothing that either knows is forgotten: no rate falls by a merge, and no size."""
    one, other = t.profile("one", retained=False, warm="none"), t.profile("other", retained=False, warm="none")
    merged = merge(one, other)
    for known in (one, other):
        t.prove(
            both(
                merged.peak_bytes_per_row >= known.peak_bytes_per_row,
                merged.largest_packed_rows >= known.largest_packed_rows,
            )
        )
        t.prove(merged.complete_readings >= known.complete_readings)


@theorem("INV-19")
def counts_and_sizes_merge_the_same_in_either_order(t: Given) -> None:
    one, other = t.profile("one", retained=False, warm="none"), t.profile("other", retained=False, warm="none")
    there, back = merge(one, other), merge(other, one)
    for field in Evidence.__slots__:
        if field not in ("sharing", "frontier"):
            t.prove(is_equal(getattr(there, field), getattr(back, field)), field)
