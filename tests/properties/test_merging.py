"""INV-19: merging profiles is a join: what two processes learned, in any order, as often as they like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import Profile, Reading, contracts, observe
from pricing.kernel.merge import merge
from pricing.testing import reachable_profiles, readings, seeded_profiles

pytestmark = pytest.mark.invariant("INV-19")

profiles = st.one_of(reachable_profiles(), seeded_profiles(), st.just(Profile()))


@given(profiles, profiles)
def test_order_does_not_matter(one: Profile, other: Profile) -> None:
    assert contracts.merging_does_not_depend_on_order(one, other)


@given(profiles, profiles, profiles)
def test_grouping_does_not_matter(one: Profile, other: Profile, third: Profile) -> None:
    assert contracts.merging_does_not_depend_on_grouping(one, other, third)


@given(profiles, profiles)
def test_merging_again_changes_nothing(one: Profile, other: Profile) -> None:
    assert contracts.merging_again_changes_nothing(one, other)


@given(profiles, readings())
def test_what_grew_from_a_profile_absorbs_it(profile: Profile, reading: Reading) -> None:
    assert contracts.what_grew_from_a_profile_absorbs_it(profile, reading)


@given(profiles, profiles)
def test_a_merged_profile_is_reachable(one: Profile, other: Profile) -> None:
    assert contracts.merged_profile_is_reachable(one, other)


@given(profiles, profiles)
def test_two_seeds_make_no_warm_fit(one: Profile, other: Profile) -> None:
    assert contracts.merging_keeps_the_seed_out(one, other)


@given(profiles, st.lists(readings(), max_size=4), st.lists(readings(), max_size=4))
def test_two_processes_after_a_common_start_know_what_one_would(
    start: Profile, ours: list[Reading], theirs: list[Reading]
) -> None:
    """From a profile with a warm fit on, merging two histories is one history: nothing is lost, nothing invented."""
    if start.complete_readings < 2:
        return
    one, other, together = start, start, start
    for reading in ours:
        one, together = observe(one, reading), observe(together, reading)
    for reading in theirs:
        other, together = observe(other, reading), observe(together, reading)
    merged = merge(one, other)
    for field in Profile.__dataclass_fields__:
        if field not in ("complete_readings", "footprint"):
            assert getattr(merged, field) == getattr(together, field), field
