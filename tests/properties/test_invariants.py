"""INV-1..14 over reachable profiles and boundary-seeking waves: one property a predicate of `pricing.contracts`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pricing import contracts
from pricing.kernel.law import Law
from pricing.kernel.laws import LAWS
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import Safety, more_sharing
from pricing.kernel.rate_laws import LOGICAL, PACKED, WARM, RateLaw
from pricing.kernel.reading import Reading
from pricing.kernel.requests import RecomputeMode, RequestGroup, RequestSpec, Workload
from pricing.kernel.wave import Wave
from pricing.testing import (
    counts,
    growths,
    histories,
    incomplete_readings,
    reachable_profiles,
    readings,
    request_groups,
    request_specs,
    safeties,
    seeded_profiles,
    waves,
    waves_and_profiles,
    workloads,
)
from pricing.testing.strategies import MAX_BYTES, MAX_ROWS, recompute_modes

laws = st.sampled_from(list(LAWS.values()))
rate_laws = st.sampled_from([LOGICAL, PACKED, WARM])
extras = st.one_of(st.just(1), counts(MAX_ROWS))
cases = waves_and_profiles()
Case = tuple[Wave, Profile]


@pytest.mark.invariant("INV-1")
@given(cases, extras, laws, safeties())
def test_price_never_falls_with_packed_rows(case: Case, extra: int, law: Law, safety: Safety) -> None:
    assert contracts.price_never_falls_with_packed_rows(case[0], extra, case[1], law, safety)


@pytest.mark.invariant("INV-2")
@given(cases, extras, laws, safeties())
def test_price_never_falls_with_logical_rows(case: Case, extra: int, law: Law, safety: Safety) -> None:
    assert contracts.price_never_falls_with_logical_rows(case[0], extra, case[1], law, safety)


@pytest.mark.invariant("INV-2")
@given(cases, extras, laws, safeties())
def test_price_never_falls_with_segments(case: Case, extra: int, law: Law, safety: Safety) -> None:
    assert contracts.price_never_falls_with_segments(case[0], extra, case[1], law, safety)


@pytest.mark.invariant("INV-2")
@given(cases, counts(MAX_BYTES), laws, safeties())
def test_price_never_falls_with_outputs(case: Case, extra: int, law: Law, safety: Safety) -> None:
    assert contracts.price_never_falls_with_outputs(case[0], extra, case[1], law, safety)


@pytest.mark.invariant("INV-2")
@given(cases, counts(MAX_BYTES), laws, safeties())
def test_price_never_falls_with_floor(case: Case, extra: int, law: Law, safety: Safety) -> None:
    assert contracts.price_never_falls_with_floor(case[0], extra, case[1], law, safety)


@pytest.mark.invariant("INV-2")
@given(cases, extras, extras, rate_laws)
def test_charges_are_exact(case: Case, rows: int, segments: int, law: RateLaw) -> None:
    assert contracts.charges_are_exact(case[0], rows, segments, case[1], law)


@pytest.mark.invariant("INV-1", "INV-2")
@given(st.data(), reachable_profiles(), laws, safeties())
def test_price_never_falls_with_everything_at_once(
    data: st.DataObject, profile: Profile, law: Law, safety: Safety
) -> None:
    first, second = data.draw(waves(profile)), data.draw(waves(profile))
    larger = replace(
        first,
        packed_rows=max(first.packed_rows, second.packed_rows),
        logical_rows=max(first.logical_rows, second.logical_rows),
        grad_segments=max(first.grad_segments, second.grad_segments),
        output_bytes=max(first.output_bytes, second.output_bytes),
        floor_bytes=max(first.floor_bytes, second.floor_bytes),
    )
    assert contracts.is_grown(first, larger)
    assert contracts.price_never_falls(first, larger, profile, law, safety)


@pytest.mark.invariant("INV-3")
@given(waves_and_profiles(min_packed_rows=1), extras, extras, counts(1 << 12), laws, safeties())
def test_bounds_enclose_the_price(
    case: Case, fewer: int, more: int, request_count: int, law: Law, safety: Safety
) -> None:
    wave = replace(case[0], grad_segments=min(case[0].grad_segments, 2 * request_count))
    full, unshared = max(1, wave.packed_rows - fewer), wave.packed_rows + more
    assert contracts.bounds_enclose_the_price(wave, full, unshared, request_count, case[1], law, safety)


@pytest.mark.invariant("INV-4")
@given(waves_and_profiles(min_packed_rows=1), growths())
def test_clamp_is_exact(case: Case, growth: int) -> None:
    assert contracts.clamp_is_exact(case[0], case[1], growth)


@pytest.mark.invariant("INV-5")
@given(cases, readings(min_packed_rows=1), readings(min_packed_rows=1), laws, safeties())
def test_more_sharing_never_cheapens(case: Case, first: Reading, second: Reading, law: Law, safety: Safety) -> None:
    wave, profile = case
    sharing = more_sharing(profile.sharing, first.logical_rows, first.packed_rows)
    warm_sharing = profile.warm_sharing
    if warm_sharing is not None:
        warm_sharing = more_sharing(warm_sharing, second.logical_rows, second.packed_rows)
        sharing = more_sharing(sharing, warm_sharing.logical_rows, warm_sharing.packed_rows)
    assume(not profile.is_empty)
    richer = replace(profile, sharing=sharing, warm_sharing=warm_sharing)
    assert contracts.more_sharing_never_cheapens(wave, profile, richer, law, safety)


@pytest.mark.invariant("INV-6")
@given(waves_and_profiles(seeded=True), growths())
def test_warm_floor_holds(case: Case, growth: int) -> None:
    assert contracts.warm_floor_holds(case[0], case[1], growth)


@pytest.mark.invariant("INV-7")
@given(cases, safeties())
def test_warm_fit_never_raises(case: Case, safety: Safety) -> None:
    assert contracts.warm_fit_never_raises(case[0], case[1], safety)


@pytest.mark.invariant("INV-8")
@given(reachable_profiles(), readings(min_packed_rows=1), histories(3), st.data(), growths())
def test_all_readings_term_covers(
    before: Profile, reading: Reading, later: list[Reading], data: st.DataObject, growth: int
) -> None:
    wave = data.draw(waves(before, min_packed_rows=1))
    at_reading = replace(wave, packed_rows=reading.packed_rows)
    assert contracts.all_readings_term_covers(before, reading, later, at_reading, growth)


@pytest.mark.invariant("INV-8")
@given(seeded_profiles(), readings(min_packed_rows=1), histories(4), workloads(), laws, safeties(), st.booleans())
def test_later_reading_stays_covered(
    before: Profile,
    reading: Reading,
    later: list[Reading],
    workload: Workload,
    law: Law,
    safety: Safety,
    recurrent: bool,
) -> None:
    state = 4_292_608 if recurrent else 0
    assert contracts.later_reading_stays_covered(before, reading, later, workload, law, safety, state)


@pytest.mark.invariant("INV-8")
@given(readings())
def test_coverage_is_tight(reading: Reading) -> None:
    assert contracts.coverage_is_tight(reading)


@pytest.mark.invariant("INV-9")
@given(reachable_profiles(), readings())
def test_profile_stays_reachable(profile: Profile, reading: Reading) -> None:
    assert contracts.profile_stays_reachable(profile, reading)


@pytest.mark.invariant("INV-9")
@given(reachable_profiles(), readings())
def test_observing_only_ratchets(profile: Profile, reading: Reading) -> None:
    assert contracts.observing_only_ratchets(profile, reading)


@pytest.mark.invariant("INV-9")
@given(st.lists(incomplete_readings(), max_size=3), readings())
def test_first_complete_reading_is_the_seed(before: list[Reading], reading: Reading) -> None:
    profile = Profile()
    for earlier in before:
        profile = observe(profile, earlier)
    assert contracts.first_complete_reading_is_the_seed(profile, reading)


@pytest.mark.invariant("INV-9")
@given(seeded_profiles(), readings(min_packed_rows=1))
def test_second_complete_reading_makes_the_warm_fit(profile: Profile, reading: Reading) -> None:
    assert contracts.second_complete_reading_makes_the_warm_fit(profile, reading)


@pytest.mark.invariant("INV-9")
@given(reachable_profiles(), incomplete_readings())
def test_incomplete_reading_never_completes(profile: Profile, reading: Reading) -> None:
    assert contracts.incomplete_reading_never_completes(profile, reading)


@pytest.mark.invariant("INV-9")
@given(waves_and_profiles(seeded=True), incomplete_readings(), laws, safeties())
def test_incomplete_reading_never_lowers(case: Case, reading: Reading, law: Law, safety: Safety) -> None:
    assert contracts.incomplete_reading_never_lowers(case[0], case[1], reading, law, safety)


@pytest.mark.invariant("INV-10")
@given(seeded_profiles(), readings(), readings())
def test_order_does_not_matter(profile: Profile, first: Reading, second: Reading) -> None:
    assert contracts.order_does_not_matter(profile, first, second)


@pytest.mark.invariant("INV-11")
@given(cases, laws, safeties())
def test_retained_is_never_above_required(case: Case, law: Law, safety: Safety) -> None:
    assert contracts.retained_is_never_above_required(case[0], case[1], law, safety)


@pytest.mark.invariant("INV-11")
@given(cases, laws, safeties())
def test_retained_is_required_outside_the_windows(case: Case, law: Law, safety: Safety) -> None:
    assert contracts.retained_is_required_outside_the_windows(case[0], case[1], law, safety)


@pytest.mark.invariant("INV-11")
@given(cases, rate_laws, safeties())
def test_retained_is_the_formula_inside_the_windows(case: Case, law: RateLaw, safety: Safety) -> None:
    assert contracts.retained_is_the_formula_inside_the_windows(case[0], case[1], law, safety)


@pytest.mark.invariant("INV-12")
@given(cases, laws, safeties())
def test_safety_is_tight(case: Case, law: Law, safety: Safety) -> None:
    assert contracts.safety_is_tight(case[0], case[1], law, safety)


@pytest.mark.invariant("INV-13")
@given(request_groups(), st.lists(request_specs(), max_size=3), recompute_modes())
def test_inactive_requests_change_nothing(
    groups: list[RequestGroup], others: list[RequestSpec], recompute: RecomputeMode
) -> None:
    inactive = [RequestSpec(input_shape=request.input_shape) for request in others]
    assert contracts.inactive_requests_change_nothing(groups, inactive, recompute, "one rank")


@pytest.mark.invariant("INV-13")
@given(request_groups(), st.sampled_from([1, 62, 63]), st.booleans(), recompute_modes(), reachable_profiles())
def test_short_request_changes_eligibility_not_identity(
    groups: list[RequestGroup], rows: int, batched: bool, recompute: RecomputeMode, profile: Profile
) -> None:
    long = RequestSpec(input_shape=(64,), target_shape=(64,))
    short = RequestSpec(input_shape=(1, rows) if batched else (rows,), target_shape=(rows,))
    groups = [replace(groups[0], requests=(*groups[0].requests, long)), *groups[1:]]
    assert short.is_short
    assert contracts.short_request_changes_eligibility_not_identity(groups, short, recompute, profile)


@pytest.mark.invariant("INV-13")
@given(workloads(), reachable_profiles(), reachable_profiles())
def test_eligibility_asks_facts_only(workload: Workload, first: Profile, second: Profile) -> None:
    assert contracts.eligibility_asks_facts_only(workload, first, second)


@pytest.mark.invariant("INV-14")
@given(cases, laws, safeties())
def test_replay_is_identical(case: Case, law: Law, safety: Safety) -> None:
    assert contracts.replay_is_identical(case[0], case[1], law, safety)


@pytest.mark.invariant("INV-14")
@given(cases, laws, safeties())
def test_parts_add_up(case: Case, law: Law, safety: Safety) -> None:
    assert contracts.parts_add_up(case[0], case[1], law, safety)
