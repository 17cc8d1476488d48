"""Public cases about what a price grows with: D02, D03, D04, D07, D13, D22. Each for its kind, not only its numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import GIB, LAWS, Profile, Sharing, allocated_bytes, find_law, observe, price
from pricing.kernel.price import retained_evidence_bytes
from pricing.kernel.rate_laws import LOGICAL, PACKED, WARM
from tests.making import PACKED as PACKED_WORKLOAD
from tests.making import a_reading, a_wave, learned, rate_profile

BRANCHED = Sharing(logical_rows=726, packed_rows=10)
GDN_STATE_BYTES = 4_292_608


# --- D02: first shared batch after an unshared calibration step ------------------------------------------------------


@pytest.mark.invariant("INV-4")
def test_d02_an_unshared_profile_prices_a_shared_batch_by_its_packed_rows() -> None:
    profile, wave = rate_profile(459_782, 16_205), a_wave(16_205, 109_065)
    priced = price(wave, profile, WARM)

    assert priced.logical_charge_bytes == 6_144 * 109_065
    assert priced.binding_term == "all_readings"  # sharing 6.73 is below 8: nothing is clamped
    assert 6.9 * GIB <= priced.allocated.required_bytes <= 8.4 * GIB  # 6.9 GiB were observed
    assert allocated_bytes(wave, profile, LOGICAL) > 51 * GIB  # what the rule before asked for


@pytest.mark.invariant("INV-4")
@given(sharing=st.integers(1, 8), rows=st.integers(64, 50_000), bytes_per_row=st.integers(50_000, 600_000))
def test_d02_within_eight_times_the_known_sharing_only_packed_rows_and_charges_are_priced(
    sharing: int, rows: int, bytes_per_row: int
) -> None:
    priced = price(a_wave(rows, rows * sharing), rate_profile(bytes_per_row, rows), WARM)

    assert priced.compute_bytes == bytes_per_row * rows + 6_144 * rows * sharing


@pytest.mark.parametrize("law", ["packed", "warm"])
def test_d02_full_sharing_costs_less_than_none_so_that_a_split_can_use_it(law: str) -> None:
    profile = rate_profile(459_782, 16_205)
    shared, unshared = a_wave(16_205, 109_065), a_wave(109_065, 109_065)

    assert allocated_bytes(shared, profile, LAWS[law]) < allocated_bytes(unshared, profile, LAWS[law])


# --- D03: many short branches on one prompt --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "low_gib", "high_gib"),
    [(rate_profile(323_000, 7_120), 25.0, 25.2), (rate_profile(323_000, 7_120, BRANCHED), 6.0, 6.1)],
    ids=["ratio-1", "ratio-learned"],
)
def test_d03_between_the_two_opposite_errors(profile: Profile, low_gib: float, high_gib: float) -> None:
    wave = a_wave(7_120, 517_120, 101, segment_state_bytes=GDN_STATE_BYTES)
    required = allocated_bytes(wave, profile, WARM)

    assert low_gib * GIB <= required <= high_gib * GIB
    assert required >= 2.5 * GIB  # observed
    if profile.sharing.packed_rows == profile.sharing.logical_rows:
        assert allocated_bytes(wave, profile, LOGICAL) > 170 * GIB


@pytest.mark.invariant("INV-2")
def test_d03_weak_spot_where_the_logical_charge_does_not_hide_a_missing_segment_term() -> None:
    # Prompt of 64 rows, 101 branches of 20. On the measured slope: 2,084 rows at 323 KB and 101 times 3.9 MB.
    profile = rate_profile(323_000, 2_084, Sharing(logical_rows=8_484, packed_rows=2_084))
    peak_bytes = 323_000 * 2_084 + 101 * 3_900_000
    wave = a_wave(2_084, 8_484, 101, segment_state_bytes=GDN_STATE_BYTES)

    assert allocated_bytes(replace(wave, grad_segments=0), profile, WARM) < peak_bytes
    assert allocated_bytes(wave, profile, WARM) >= peak_bytes
    assert allocated_bytes(wave, profile, WARM) == 1_274_692_215  # 1.1 * (673,132,000 + 52,125,696 + 433,553,408), up


@pytest.mark.invariant("INV-2")
@pytest.mark.parametrize("law", LAWS)
@given(segments=st.integers(0, 4_000), more=st.integers(1, 4_000))
def test_d03_more_segments_never_cost_less_and_a_bound_may_leave_them_out(law: str, segments: int, more: int) -> None:
    profile = rate_profile(323_000, 7_120, BRANCHED)
    few, many, none = (
        allocated_bytes(a_wave(7_120, 517_120, count, segment_state_bytes=GDN_STATE_BYTES), profile, LAWS[law])
        for count in (segments, segments + more, 0)
    )

    assert none <= few <= many
    if law in ("packed", "warm"):
        assert few < many


# --- D04: the charge for logical rows --------------------------------------------------------------------------------


def test_d04_the_charge_covers_what_was_measured_of_duplicate_one_token_requests() -> None:
    priced = {
        duplicates: price(a_wave(1, duplicates), rate_profile(1, 1, Sharing(logical_rows=1_000_000, packed_rows=1)))
        for duplicates in (20_000, 100_000)
    }

    for duplicates, price_ in priced.items():
        assert price_.logical_charge_bytes == 6_144 * duplicates >= 4_616 * duplicates


@pytest.mark.parametrize(("rows", "is_covered"), [(1, False), (63, True), (64, True), (512, True)])
def test_d04_a_caller_of_256_kib_a_request_fits_the_charge_only_of_requests_long_enough(
    rows: int, is_covered: bool
) -> None:
    charge = price(a_wave(rows, rows), rate_profile(1, rows)).logical_charge_bytes

    assert (charge >= 256 * 1_024) == is_covered


def test_d04_sixty_four_rows_bring_384_kib() -> None:
    assert price(a_wave(64, 64), rate_profile(1, 64)).logical_charge_bytes == 384 * 1_024


# --- D07: a price that drops when a wave grows past a gate -----------------------------------------------------------

COLD_RATE, WARM_RATE, WARM_ROWS = 275_000, 247_000, 15_000


def cold_then_warm(cold_rate: int, warm_rate: int, warm_rows: int) -> Profile:
    return learned([a_reading(15_600, 15_600 * cold_rate), a_reading(warm_rows, warm_rows * warm_rate)])


@pytest.mark.invariant("INV-6")
def test_d07_no_drop_at_the_smallest_warm_size() -> None:
    profile = cold_then_warm(COLD_RATE, WARM_RATE, WARM_ROWS)
    at = {rows: price(a_wave(rows, 0), profile, WARM).compute_bytes for rows in (10_000, 14_999, 15_000, 15_001)}

    assert at == {10_000: 2_750_000_000, 14_999: 3_705_000_000, 15_000: 3_705_000_000, 15_001: 3_705_247_000}


@pytest.mark.invariant("INV-1")
@pytest.mark.parametrize("law", LAWS)
def test_d07_price_never_falls_from_one_row_to_thirty_thousand(law: str) -> None:
    profile = cold_then_warm(COLD_RATE, WARM_RATE, WARM_ROWS)
    sizes = sorted({*range(1, 30_001, 61), *range(14_950, 15_050), *range(15_590, 15_610)})
    prices = [allocated_bytes(a_wave(rows), profile, find_law(law)) for rows in sizes]

    assert prices == sorted(prices)


@pytest.mark.invariant("INV-1", "INV-6")
@pytest.mark.parametrize("law", LAWS)
@given(
    rates=st.lists(st.integers(1, 500_000), min_size=2, max_size=5),
    sizes=st.lists(st.integers(1, 40_000), min_size=5, max_size=5),
    rows=st.integers(1, 50_000),
)
def test_d07_no_history_puts_a_gate_into_the_price(law: str, rates: list[int], sizes: list[int], rows: int) -> None:
    profile = learned(a_reading(size, size * rate) for size, rate in zip(sizes, rates, strict=False))
    near = sorted({rows, rows + 1, *sizes, *(size + 1 for size in sizes), *(max(1, size - 1) for size in sizes)})

    for smaller, larger in pairwise(near):
        assert allocated_bytes(a_wave(smaller), profile, LAWS[law]) <= allocated_bytes(
            a_wave(larger), profile, LAWS[law]
        )


# --- D13: one token more must not turn a refusal into an admission ---------------------------------------------------


@pytest.mark.invariant("INV-1", "INV-11")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("learned_rows", [1, 10, 27, 1_000])
def test_d13_beyond_the_window_of_rows_the_learned_rate_still_prices(law: str, learned_rows: int) -> None:
    profile = observe(Profile(), a_reading(learned_rows, learned_rows * 100_000, retained_bytes=learned_rows * 40_000))
    edge = 8 * learned_rows
    inside, outside = a_wave(edge, floor_bytes=10), a_wave(edge + 1, floor_bytes=10)

    assert allocated_bytes(outside, profile, LAWS[law]) >= allocated_bytes(inside, profile, LAWS[law])
    assert allocated_bytes(outside, profile, LAWS[law]) >= 110_000 * (edge + 1)
    assert retained_evidence_bytes(outside, profile, LAWS[law]) >= retained_evidence_bytes(inside, profile, LAWS[law])


@pytest.mark.invariant("INV-2", "INV-11")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("sharing", [Sharing(logical_rows=3, packed_rows=1), Sharing(logical_rows=7, packed_rows=3)])
def test_d13_beyond_the_window_of_sharing_nothing_gets_cheaper(law: str, sharing: Sharing) -> None:
    profile = rate_profile(100_000, 300, sharing, retained=40_000)
    edge = 8 * sharing.logical_rows * 300 // sharing.packed_rows
    waves = [a_wave(300, logical_rows) for logical_rows in range(edge - 3, edge + 4)]

    for figure in (allocated_bytes, retained_evidence_bytes):
        prices = [figure(wave, profile, LAWS[law]) for wave in waves]
        assert prices == sorted(prices)


# --- D22: the plan that ran is not the plan that was priced: what the kernel owes the search --------------------------


@pytest.mark.invariant("INV-1")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("profile", [rate_profile(275_000, 41), cold_then_warm(275, 247, 60)], ids=["one", "warm"])
def test_d22_widths_of_41_82_43_rows_are_priced_in_the_order_of_their_rows(law: str, profile: Profile) -> None:
    by_rows = {rows: allocated_bytes(a_wave(rows, 120), profile, LAWS[law]) for rows in (41, 42, 43, 82)}

    assert by_rows[41] <= by_rows[42] <= by_rows[43] <= by_rows[82]


@pytest.mark.invariant("INV-3")
@pytest.mark.parametrize("law", LAWS)
@given(
    lengths=st.lists(st.integers(64, 3_000), min_size=1, max_size=8),
    shared=st.floats(0, 1),
    segments=st.floats(0, 1),
    rate=st.integers(1, 500_000),
    state=st.sampled_from([0, GDN_STATE_BYTES]),
)
def test_d22_lower_bound_exact_price_and_upper_bound_keep_their_order(
    law: str, lengths: list[int], shared: float, segments: float, rate: int, state: int
) -> None:
    """Full sharing without segments, any layout between, no sharing with two segments a request."""
    profile = cold_then_warm(rate + rate // 8, rate, 500)
    most, least = sum(lengths), max(lengths)
    rows, count = least + int(shared * (most - least)), int(segments * 2 * len(lengths))

    def required(packed_rows: int, grad_segments: int) -> int:
        wave = a_wave(packed_rows, most, grad_segments, segment_state_bytes=state, workload=PACKED_WORKLOAD)
        return allocated_bytes(wave, profile, LAWS[law])

    assert required(least, 0) <= required(rows, count) <= required(most, 2 * len(lengths))


def test_d22_packed_pricing_tells_the_checked_layout_from_the_one_that_ran() -> None:
    profile = rate_profile(100_000, 50)

    assert allocated_bytes(a_wave(42, 120), profile, PACKED) < allocated_bytes(a_wave(82, 120), profile, PACKED)
