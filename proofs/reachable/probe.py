"""The invariant neither excludes what can be reached nor says what cannot be kept."""

from __future__ import annotations

from proofs.solver.proof import Given, refuted


@refuted("reachable")
def no_profile_has_a_warm_fit(t: Given) -> None:
    t.profile(warm="fit")
    t.prove(False)


@refuted("reachable")
def the_warm_rate_always_equals_the_all_readings_rate(t: Given) -> None:
    profile = t.profile(retained=True, warm="fit")
    assert profile.warm_bytes_per_row is not None, "a warm fit has a rate"
    t.prove(profile.warm_bytes_per_row == profile.peak_bytes_per_row)


@refuted("reachable")
def the_seed_is_always_seen(t: Given) -> None:
    t.prove(t.profile(retained=False, warm="none").complete_readings >= 1)
