"""Contracts of merging profiles: `merge` is the least profile that knows what either knows."""

from __future__ import annotations

from pricing.kernel.merge import merge
from pricing.kernel.profile import Profile, broken_invariant, observe
from pricing.kernel.reading import Reading


def merging_does_not_depend_on_order(one: Profile, other: Profile) -> bool:
    """INV-19: commutative."""
    return merge(one, other) == merge(other, one)


def merging_does_not_depend_on_grouping(one: Profile, other: Profile, third: Profile) -> bool:
    """INV-19: associative."""
    return merge(merge(one, other), third) == merge(one, merge(other, third))


def merging_again_changes_nothing(one: Profile, other: Profile) -> bool:
    """INV-19: idempotent, also where one side is in the other already; an empty profile adds nothing."""
    both = merge(one, other)
    return (
        merge(one, one) == one
        and merge(both, one) == both
        and merge(both, other) == both
        and merge(one, Profile()) == one
    )


def what_grew_from_a_profile_absorbs_it(profile: Profile, reading: Reading) -> bool:
    """INV-19: what was learned on top of a profile already holds it, so a process that saves alone loses nothing."""
    grown = observe(profile, reading)
    return merge(grown, profile) == grown


def merged_profile_is_reachable(one: Profile, other: Profile) -> bool:
    """INV-19: what comes out satisfies the invariant that every profile built by `observe` does."""
    both = merge(one, other)
    return broken_invariant(both) is None and broken_invariant(both.footprint) is None


def merging_keeps_the_seed_out(one: Profile, other: Profile) -> bool:
    """INV-19: a warm fit appears only where one of the two had it: two seeds make none."""
    return merge(one, other).has_warm_fit == (one.has_warm_fit or other.has_warm_fit)
