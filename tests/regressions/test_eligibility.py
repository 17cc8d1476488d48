"""Public cases about who is priced by packed rows, and who teaches whom: D04, D14, D16. Each for its kind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import (
    LAWS,
    Ineligible,
    RecomputeMode,
    RequestGroup,
    RequestSpec,
    Sharing,
    allocated_bytes,
    ineligibility,
    observe,
    price,
    signature_of,
    workload_of,
)
from pricing.kernel.price import retained_evidence_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.rate_laws import LOGICAL, WARM
from pricing.kernel.requests import ONE_LAYER_FULL
from tests.making import PACKED as PACKED_WORKLOAD
from tests.making import a_reading, a_wave, learned, rate_profile

PROFILE = rate_profile(323_000, 10_000)


def single_target(shape: tuple[int, ...]) -> RequestSpec:
    return RequestSpec(input_shape=shape, target_shape=shape)


def batch(*requests: RequestSpec, grads: bool = True) -> list[RequestGroup]:
    return [RequestGroup(requests=requests, grads=grads)]


def reasons(groups: list[RequestGroup], mode: RecomputeMode = ONE_LAYER_FULL) -> tuple[Ineligible, ...]:
    return ineligibility(PROFILE, workload_of(groups, mode))


# --- D04: the gate at 64 rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("leading", [(), (1,)], ids=["(N,)", "(1, N)"])
@pytest.mark.parametrize(("rows", "is_packed"), [(1, False), (63, False), (64, True), (65, True)])
def test_d04_short_requests_are_priced_by_logical_rows(leading: tuple[int, ...], rows: int, is_packed: bool) -> None:
    said = reasons(batch(single_target((*leading, rows))))

    assert said == (() if is_packed else (Ineligible.SHORT_REQUEST,))


def test_d04_one_short_active_request_switches_the_whole_batch_and_an_inactive_one_does_not() -> None:
    long, short = single_target((4_096,)), single_target((63,))
    inactive = RequestSpec(input_shape=(3,))

    assert reasons(batch(long, long)) == ()
    assert reasons(batch(long, short)) == (Ineligible.SHORT_REQUEST,)
    assert reasons([*batch(long), *batch(short)]) == (Ineligible.SHORT_REQUEST,)
    assert reasons(batch(long, inactive)) == ()


@pytest.mark.invariant("INV-13")
def test_d04_the_flag_is_no_part_of_the_identity_so_no_profile_starts_cold() -> None:
    signatures = {
        signature_of(batch(*requests), ONE_LAYER_FULL, topology="one")
        for requests in (
            [single_target((64,))],
            [single_target((63,))],
            [single_target((1, 63)), single_target((4_096,))],
        )
    }

    assert len(signatures) == 1


@pytest.mark.invariant("INV-13")
def test_d04_after_calibrating_on_64_rows_a_63_row_batch_and_a_mixed_one_reuse_the_profile_and_price_by_sharing() -> (
    None
):
    profile = learned([a_reading(64, 64 * 100_000)])
    for requests, packed_rows, logical_rows in (
        ([single_target((63,))] * 3, 63, 189),
        ([single_target((63,)), single_target((64,))], 64, 127),
    ):
        wave = replace(a_wave(packed_rows, logical_rows), workload=workload_of(batch(*requests), ONE_LAYER_FULL))
        priced = price(wave, profile, WARM)

        assert priced.ineligible == (Ineligible.SHORT_REQUEST,)
        assert priced.compute_bytes == 100_000 * logical_rows  # sharing 1 is all that was seen
        assert priced.allocated.required_bytes == allocated_bytes(wave, profile, LOGICAL)


def test_d04_many_duplicates_of_one_token_fall_back_to_sharing_whose_limit_is_known() -> None:
    """The fallback is not sound for heavy callers where sharing is high: 0.5 GB here, 26 GB for 256 KiB a request."""
    branched = rate_profile(323_000, 7_120, Sharing(logical_rows=726, packed_rows=10))
    wave = replace(a_wave(1, 100_000), workload=replace(PACKED_WORKLOAD, shortest_single_target_rows=1))
    priced = price(wave, branched, WARM)

    assert priced.compute_bytes == 323_000 * 1_378  # ceil(100,000 / 72.6)
    assert priced.allocated.required_bytes < 100_000 * 256 * 1_024


@pytest.mark.parametrize(
    ("input_shape", "target_shape", "mix"),
    [
        ((100,), (100,), "target:single"),
        ((1, 100), (1, 100), "target:single"),
        ((1, 100), (1, 100, 4), "target:(4,)"),
        ((100,), (100, 4), "target:(4,)"),
        ((1, 100), (100, 4), "target:(4,)"),
        ((1, 100), (100,), "target:single"),
    ],
)
def test_d04_labels_are_told_by_the_shape_they_have_beside_the_input(
    input_shape: tuple[int, ...], target_shape: tuple[int, ...], mix: str
) -> None:
    workload = workload_of(batch(RequestSpec(input_shape=input_shape, target_shape=target_shape)), ONE_LAYER_FULL)

    assert workload.request_mixes == (mix,)
    assert (not ineligibility(PROFILE, workload)) == (mix == "target:single")


@given(rate=st.integers(0, 10**9), rows=st.integers(1, 10**6))
def test_d04_no_learned_figure_takes_part(rate: int, rows: int) -> None:
    """A floor on the rate once did, and switched the charge off where sharing was highest."""
    assert ineligibility(rate_profile(rate, rows), PACKED_WORKLOAD) == ()


# --- D14: inactive requests ------------------------------------------------------------------------------------------


INACTIVE = [RequestSpec(input_shape=(8_001,)), RequestSpec(input_shape=(1, 5)), RequestSpec(input_shape=())]


@pytest.mark.invariant("INV-13")
@pytest.mark.parametrize("inactive", INACTIVE, ids=str)
@pytest.mark.parametrize("active_rows", [8, 64, 4_096])
def test_d14_inactive_requests_change_no_fact_that_pricing_or_learning_reads(
    inactive: RequestSpec, active_rows: int
) -> None:
    active = single_target((active_rows,))
    alone = batch(active)
    for crowded in (batch(active, inactive), batch(inactive, active), [*alone, *batch(inactive, grads=False)]):
        assert workload_of(crowded, ONE_LAYER_FULL) == workload_of(alone, ONE_LAYER_FULL)
        assert signature_of(crowded, ONE_LAYER_FULL, topology="t") == signature_of(alone, ONE_LAYER_FULL, topology="t")
        assert sum(request.logical_rows for group in crowded for request in group.active) == active_rows


@pytest.mark.invariant("INV-13")
@pytest.mark.parametrize("law", LAWS)
def test_d14_eight_tokens_of_work_cost_the_same_beside_8001_inactive_ones(law: str) -> None:
    profile = rate_profile(1_250, 8)
    groups = batch(single_target((8,)), RequestSpec(input_shape=(8_001,)))
    logical_rows = sum(request.logical_rows for group in groups for request in group.active)
    wave = replace(a_wave(8, logical_rows), workload=workload_of(groups, ONE_LAYER_FULL))

    assert allocated_bytes(wave, profile, LAWS[law]) == 11_000


def test_d14_a_batch_of_inactive_requests_is_nothing() -> None:
    groups = batch(*INACTIVE)

    assert workload_of(groups, ONE_LAYER_FULL).grad_modes == ()
    assert signature_of(groups, ONE_LAYER_FULL, topology="t").group_count == 0


# --- D16: the recompute mode -----------------------------------------------------------------------------------------

OTHER_MODES = [
    RecomputeMode(granularity="selective"),
    RecomputeMode(granularity="none"),
    RecomputeMode(granularity="full", method="block", num_layers=1),
    RecomputeMode(granularity="full", method="uniform", num_layers=2),
    RecomputeMode(granularity="full", method="uniform"),
    RecomputeMode(granularity="full", method="uniform", num_layers=0),
    RecomputeMode(granularity="full"),
    replace(ONE_LAYER_FULL, training=False),
]


@pytest.mark.parametrize("mode", OTHER_MODES, ids=str)
def test_d16_only_live_one_layer_full_recompute_is_priced_by_packed_rows(mode: RecomputeMode) -> None:
    groups = batch(single_target((19_221,)), single_target((19_222,)))

    assert reasons(groups, ONE_LAYER_FULL) == ()
    assert reasons(groups, mode) == (Ineligible.RECOMPUTE,)


@pytest.mark.parametrize("mode", OTHER_MODES, ids=str)
@pytest.mark.parametrize("law", LAWS)
def test_d16_another_mode_never_leaves_the_price_unchanged_silently(mode: RecomputeMode, law: str) -> None:
    """It has a profile of its own, so it starts cold; and where one is forced on it, the price names the reason."""
    groups = batch(single_target((32_710,)))
    assert signature_of(groups, mode, topology="t") != signature_of(groups, ONE_LAYER_FULL, topology="t")

    wave = replace(a_wave(32_710, 38_443), workload=workload_of(groups, mode))
    packed = replace(wave, workload=workload_of(groups, ONE_LAYER_FULL))
    assert price(wave, Profile(), LAWS[law]).binding_term == "cold"
    if law != "logical":
        assert Ineligible.RECOMPUTE in price(wave, PROFILE, LAWS[law]).ineligible
        assert price(packed, PROFILE, LAWS[law]).ineligible == ()
        assert allocated_bytes(wave, PROFILE, LAWS[law]) != allocated_bytes(packed, PROFILE, LAWS[law])


@pytest.mark.invariant("INV-11")
@pytest.mark.parametrize("law", LAWS)
@given(checkpoint=st.integers(0, 10**10), retained=st.integers(0, 10**10))
def test_d16_a_profile_may_raise_the_floor_of_retained_bytes_and_never_lower_it(
    law: str, checkpoint: int, retained: int
) -> None:
    profile = observe(Profile(), a_reading(10_000, 10**10, retained_bytes=retained))
    wave = a_wave(10_000, checkpoint_retained_bytes=checkpoint)
    kept, required = retained_evidence_bytes(wave, profile, LAWS[law]), allocated_bytes(wave, profile, LAWS[law])

    assert min(required, -(-11 * checkpoint // 10)) <= kept <= required
