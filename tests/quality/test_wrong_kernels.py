"""Every wrong kernel is caught by the contract it names, and the right kernel by none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from pricing import contracts
from pricing.kernel.errors import PricingError
from pricing.kernel.price import required_bytes
from pricing.kernel.profile import Profile, observe_all
from pricing.kernel.quantities import DEFAULT_SAFETY, more_sharing
from pricing.kernel.rate_laws import LOGICAL, PACKED, WARM
from pricing.kernel.requests import ONE_LAYER_FULL, RequestSpec
from pricing.planner import budget as budgets
from pricing.testing import (
    counts,
    growths,
    histories,
    incomplete_readings,
    reachable_profiles,
    readings,
    request_groups,
    seeded_profiles,
    waves,
    waves_and_profiles,
    workloads,
)
from pricing.testing import (
    safeties as factors,
)
from tests.properties import test_available, test_physical
from tests.quality.wrong_kernels import WRONG_KERNELS, WrongKernel, installed

SEARCH = settings(
    max_examples=30_000,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
rate_laws = st.sampled_from([LOGICAL, PACKED, WARM])
safeties = st.just(DEFAULT_SAFETY)
any_safeties = factors()
"""For what the default factor hides: 11/10 of a price is more than the 17/16 that a failure raises it by."""
extras = st.one_of(st.just(1), counts(1 << 22))
MOST_BYTES = 1 << 58
"""More than a device has, with room for a raise below what a quantity may be."""
seeded_cases = waves_and_profiles(min_packed_rows=1, seeded=True)
any_cases = waves_and_profiles()
inactive = st.lists(st.just(RequestSpec(input_shape=(8,))), min_size=1, max_size=2)
with_single = request_groups().map(
    lambda groups: [
        replace(groups[0], requests=(RequestSpec(input_shape=(64,), target_shape=(64,)),)),
        *groups[1:],
    ]
)


def _at_reading(parts: Any) -> bool:
    before, reading, later, wave = parts
    return contracts.all_readings_term_covers(before, reading, later, replace(wave, packed_rows=reading.packed_rows))


def _bounds_enclose(parts: Any) -> bool:
    (wave, profile), fewer, more, requests, law = parts
    exact = replace(wave, grad_segments=min(wave.grad_segments, 2 * requests))
    full, unshared = max(1, exact.packed_rows - fewer), exact.packed_rows + more
    return contracts.bounds_enclose_the_price(exact, full, unshared, requests, profile, law)


def _more_sharing_never_cheapens(parts: Any) -> bool:
    (wave, profile), reading, law = parts
    sharing = more_sharing(profile.sharing, reading.logical_rows, reading.packed_rows)
    richer = replace(profile, sharing=sharing)
    return contracts.more_sharing_never_cheapens(wave, profile, richer, law)


def _is_failed_again(parts: Any) -> bool:
    before, failed, later, wave, law, safety = parts
    profile = observe_all(Profile(), before)
    return contracts.failed_wave_is_never_admitted_again(
        profile, failed, later, test_physical.as_large(wave, failed), law, safety
    )


def _each_failure_raises(parts: Any) -> bool:
    (wave, profile), room, law, safety = parts
    available = min(MOST_BYTES, required_bytes(wave, profile, law, safety) + room)
    return contracts.each_failure_raises_the_price(profile, wave, available, law, safety)


def _narrower_stays_dear(parts: Any) -> bool:
    (wave, profile), room, share, law, safety = parts
    narrower = test_physical.in_proportion(wave, max(1, wave.packed_rows * share // 100))
    available = min(MOST_BYTES, required_bytes(wave, profile, law, safety) + room)
    return contracts.narrower_waves_stay_dear(profile, wave, narrower, available, law, safety)


def _plan_is_admitted(parts: Any) -> bool:
    (planned, released), beside = parts
    required = max(0, planned.available_bytes + beside)
    admitted, verdict = planned, budgets.judge(required, planned)
    if verdict is budgets.BudgetVerdict.RELEASE:
        admitted = planned.after_release(released)
        verdict = budgets.judge_after_release(required, admitted)
    return contracts.plan_is_admitted(
        required_bytes=required,
        planned_available_bytes=planned.available_bytes,
        admitted_available_bytes=admitted.available_bytes,
        is_admitted=verdict is budgets.BudgetVerdict.RUN,
    )


# How to call each predicate that a wrong kernel names: arguments, and how they are spread over its parameters.
PROBES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], bool]]] = {
    "price_never_falls_with_packed_rows": (
        st.tuples(seeded_cases, extras, rate_laws),
        lambda a: contracts.price_never_falls_with_packed_rows(a[0][0], a[1], a[0][1], a[2]),
    ),
    "bounds_enclose_the_price": (
        st.tuples(seeded_cases, extras, extras, counts(1 << 12), rate_laws),
        _bounds_enclose,
    ),
    "more_sharing_never_cheapens": (
        st.tuples(seeded_cases, readings(min_packed_rows=1), rate_laws),
        _more_sharing_never_cheapens,
    ),
    "replay_is_identical": (
        st.tuples(any_cases, rate_laws),
        lambda a: contracts.replay_is_identical(a[0][0], a[0][1], a[1]),
    ),
    "parts_add_up": (st.tuples(any_cases, rate_laws), lambda a: contracts.parts_add_up(a[0][0], a[0][1], a[1])),
    "warm_fit_never_raises": (seeded_cases, lambda a: contracts.warm_fit_never_raises(*a)),
    "clamp_is_exact": (
        st.tuples(waves_and_profiles(min_packed_rows=1), growths()),
        lambda a: contracts.clamp_is_exact(a[0][0], a[0][1], a[1]),
    ),
    "safety_is_tight": (st.tuples(any_cases, rate_laws), lambda a: contracts.safety_is_tight(a[0][0], a[0][1], a[1])),
    "warm_floor_holds": (
        st.tuples(seeded_cases, growths()),
        lambda a: contracts.warm_floor_holds(a[0][0], a[0][1], a[1]),
    ),
    "charges_are_exact": (
        st.tuples(seeded_cases, st.sampled_from([0, 1]), extras, rate_laws),
        lambda a: contracts.charges_are_exact(a[0][0], a[1], a[2], a[0][1], a[3]),
    ),
    "retained_is_never_above_required": (
        st.tuples(any_cases, rate_laws),
        lambda a: contracts.retained_is_never_above_required(a[0][0], a[0][1], a[1]),
    ),
    "retained_is_the_formula_inside_the_windows": (
        st.tuples(seeded_cases, rate_laws),
        lambda a: contracts.retained_is_the_formula_inside_the_windows(a[0][0], a[0][1], a[1]),
    ),
    "retained_is_required_outside_the_windows": (
        st.tuples(seeded_cases, rate_laws),
        lambda a: contracts.retained_is_required_outside_the_windows(a[0][0], a[0][1], a[1]),
    ),
    "eligibility_asks_facts_only": (
        st.tuples(workloads(), reachable_profiles(), reachable_profiles()),
        lambda a: contracts.eligibility_asks_facts_only(*a),
    ),
    "short_request_changes_eligibility_not_identity": (
        st.tuples(with_single, reachable_profiles()),
        lambda a: contracts.short_request_changes_eligibility_not_identity(
            a[0], RequestSpec(input_shape=(63,), target_shape=(63,)), ONE_LAYER_FULL, a[1]
        ),
    ),
    "second_complete_reading_makes_the_warm_fit": (
        st.tuples(seeded_profiles(), readings(min_packed_rows=1)),
        lambda a: contracts.second_complete_reading_makes_the_warm_fit(*a),
    ),
    "first_complete_reading_is_the_seed": (
        st.tuples(reachable_profiles(2), readings()),
        lambda a: contracts.first_complete_reading_is_the_seed(*a),
    ),
    "observing_only_ratchets": (
        st.tuples(seeded_profiles(), readings()),
        lambda a: contracts.observing_only_ratchets(*a),
    ),
    "all_readings_term_covers": (
        st.tuples(
            reachable_profiles(2),
            readings(min_packed_rows=1),
            histories(1),
            waves(observe_all(Profile(), []), min_packed_rows=1),
        ),
        _at_reading,
    ),
    "later_reading_stays_covered": (
        st.tuples(seeded_profiles(), readings(min_packed_rows=1), histories(2), workloads(), rate_laws),
        lambda a: contracts.later_reading_stays_covered(*a),
    ),
    "incomplete_reading_never_completes": (
        st.tuples(seeded_profiles(), incomplete_readings() | readings()),
        lambda a: contracts.incomplete_reading_never_completes(*a),
    ),
    "order_does_not_matter": (
        st.tuples(seeded_profiles(), readings(), readings()),
        lambda a: contracts.order_does_not_matter(*a),
    ),
    "merging_does_not_depend_on_order": (
        st.tuples(reachable_profiles(), reachable_profiles()),
        lambda a: contracts.merging_does_not_depend_on_order(*a),
    ),
    "merging_again_changes_nothing": (
        st.tuples(reachable_profiles(), reachable_profiles()),
        lambda a: contracts.merging_again_changes_nothing(*a),
    ),
    "what_grew_from_a_profile_absorbs_it": (
        st.tuples(seeded_profiles(), readings()),
        lambda a: contracts.what_grew_from_a_profile_absorbs_it(*a),
    ),
    "complete_reading_is_a_witness": (
        st.tuples(reachable_profiles(), readings(min_packed_rows=1), waves(Profile(), min_packed_rows=1)),
        lambda a: contracts.complete_reading_is_a_witness(*a),
    ),
    "only_a_doubled_price_is_doubted": (
        st.tuples(counts(1 << 20), counts(1 << 20)),
        lambda a: contracts.only_a_doubled_price_is_doubted(*a),
    ),
    "witnesses_merge_in_any_order": (
        st.tuples(reachable_profiles(), reachable_profiles()),
        lambda a: contracts.witnesses_merge_in_any_order(*a),
    ),
    "witnessed_never_falls": (
        st.tuples(waves_and_profiles(min_packed_rows=1, seeded=True), extras, rate_laws),
        lambda a: contracts.witnessed_never_falls(
            a[0][0], replace(a[0][0], packed_rows=a[0][0].packed_rows + a[1]), a[0][1], a[2]
        ),
    ),
    "coverage_is_tight": (readings(), contracts.coverage_is_tight),
    "profile_stays_reachable": (
        st.tuples(reachable_profiles(1), readings()),
        lambda a: contracts.profile_stays_reachable(*a),
    ),
    "required_is_the_higher_price": (
        st.tuples(any_cases, rate_laws),
        lambda a: contracts.required_is_the_higher_price(a[0][0], a[0][1], a[1]),
    ),
    "footprint_is_priced_as_what_is_allocated": (
        st.tuples(any_cases, rate_laws),
        lambda a: contracts.footprint_is_priced_as_what_is_allocated(a[0][0], a[0][1], a[1]),
    ),
    "a_footprint_teaches_both": (
        st.tuples(reachable_profiles(), readings()),
        lambda a: contracts.a_footprint_teaches_both(*a),
    ),
    "failed_wave_is_never_admitted_again": (
        st.tuples(
            st.one_of(st.just([]), histories(2)),
            test_physical.failures,
            histories(3),
            waves(Profile(), min_packed_rows=1),
            st.one_of(st.just(WARM), rate_laws),
            any_safeties,
        ),
        _is_failed_again,
    ),
    "failure_is_above_what_was_available": (
        st.tuples(counts(1 << 40), counts(1 << 40), counts(1 << 40)),
        lambda a: contracts.failure_is_above_what_was_available(*a),
    ),
    "each_failure_raises_the_price": (
        st.tuples(any_cases, counts(1 << 36), rate_laws, any_safeties),
        _each_failure_raises,
    ),
    "narrower_waves_stay_dear": (
        st.tuples(any_cases, counts(1 << 36), test_physical.shares, rate_laws, any_safeties),
        _narrower_stays_dear,
    ),
    "plan_is_admitted": (st.tuples(test_available.budgets_and_releases(), st.integers(-2, 2)), _plan_is_admitted),
    "inactive_requests_change_nothing": (
        st.tuples(request_groups(), inactive),
        lambda a: contracts.inactive_requests_change_nothing(a[0], a[1], ONE_LAYER_FULL),
    ),
}


def _finds_a_violation(predicate: str, max_examples: int = SEARCH.max_examples) -> bool:
    arguments, holds = PROBES[predicate]

    def violated(drawn: object) -> bool:
        try:
            return not holds(drawn)
        except PricingError:  # the kernel itself refused what the wrong function made
            return True

    try:
        find(arguments, violated, settings=settings(SEARCH, max_examples=max_examples))
    except NoSuchExample:
        return False
    except PricingError:  # likewise, while the history was still being observed
        return True
    return True


@pytest.mark.parametrize("kernel", WRONG_KERNELS, ids=lambda kernel: kernel.name)
def test_wrong_kernel_is_caught_by_the_contract_it_names(kernel: WrongKernel) -> None:
    with installed(kernel):
        assert _finds_a_violation(kernel.caught_by), f"{kernel.caught_by} does not see that {kernel.mistake}"


@pytest.mark.parametrize("predicate", PROBES)
def test_right_kernel_is_caught_by_no_contract(predicate: str) -> None:
    assert not _finds_a_violation(predicate, max_examples=150)


def test_wrong_kernels_name_existing_contracts() -> None:
    stated = {predicate.__name__ for invariant in contracts.INVARIANTS.values() for predicate in invariant.predicates}
    assert {kernel.caught_by for kernel in WRONG_KERNELS} <= stated
    assert len({kernel.name for kernel in WRONG_KERNELS}) == len(WRONG_KERNELS) >= 20


def test_patches_are_undone() -> None:
    before = [getattr(owner, name) for kernel in WRONG_KERNELS for owner, name in kernel.patches]
    for kernel in WRONG_KERNELS:
        with installed(kernel):
            pass
    after = [getattr(owner, name) for kernel in WRONG_KERNELS for owner, name in kernel.patches]
    assert all(left is right for left, right in zip(before, after, strict=True))
