"""Public cases under the frontier law: A01, D01, D05 and their kin. One dear reading must not price everything."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import GIB, Profile, Reading, ReadingKind, Safety, Workload, allocated_bytes, observe, price
from pricing.kernel.frontier import FRONTIER
from pricing.kernel.price import retained_evidence_bytes
from pricing.kernel.profile import observe_all
from pricing.kernel.quantities import ceil_div
from pricing.kernel.rate_laws import PACKED, WARM
from pricing.kernel.requests import ONE_LAYER_FULL
from tests.making import a_reading, a_wave, learned

NO_MARGIN = Safety(numerator=1, denominator=1)
SCORING = Workload(grad_modes=(False,), request_mixes=("target:single",), recompute=ONE_LAYER_FULL)
SEED = a_reading(1_000, 9_000_000_000)
GDN_STATE_BYTES = 4_292_608


# --- D01: a tiny warm-up refuses all later scoring work --------------------------------------------------------------


def scoring_call(packed_rows: int, compute_bytes: int) -> Reading:
    """A scoring call without gradients, outputs of 4 B a row: its forward's reading is complete."""
    return a_reading(
        packed_rows,
        compute_bytes + 4 * packed_rows,
        ReadingKind.FORWARD_ONLY,
        output_bytes=4 * packed_rows,
        grads=False,
        closes_wave=True,
    )


def on_the_line(packed_rows: int) -> int:
    """The line through the case's two calls: 468 MB and 209,197 B a row."""
    return 468_000_000 + 209_197 * packed_rows


TINY, LONG = scoring_call(27, 473_835_924), scoring_call(103_960, 22_200_000_000)


@pytest.mark.invariant("INV-10")
@pytest.mark.parametrize("rows", [17_063, 20_000, 21_489])
def test_d01_anything_smaller_than_a_call_that_fitted_costs_no_more_than_it(rows: int) -> None:
    """After a seed of its own, in either order. 68 GB are available, and the law before asked for 414.8 GB."""
    wave = a_wave(rows, output_bytes=4 * rows, workload=SCORING)
    prices = {allocated_bytes(wave, learned([SEED, *order]), FRONTIER) for order in ([TINY, LONG], [LONG, TINY])}

    assert len(prices) == 1
    assert on_the_line(rows) <= prices.pop() <= ceil_div(11 * (22_200_000_000 + 103_960 + 4 * rows), 10)
    assert allocated_bytes(wave, learned([SEED, TINY, LONG]), WARM) > 300_000_000_000


def test_d01_a_call_of_middle_size_sharpens_the_price_further() -> None:
    wave = a_wave(20_000, workload=SCORING)
    profile = learned([SEED, TINY, LONG, scoring_call(6_273, on_the_line(6_273))])

    assert on_the_line(20_000) <= allocated_bytes(wave, profile, FRONTIER) <= 6_500_000_000


def test_d01_a_tiny_call_still_costs_what_it_costs() -> None:
    required = allocated_bytes(a_wave(27, workload=SCORING), learned([SEED, TINY, LONG]), FRONTIER, NO_MARGIN)
    assert 473_835_924 <= required < 473_835_924 + 27


# --- A01: a fixed cost read as a per-token rate ----------------------------------------------------------------------


def head_probe(tokens: int) -> Reading:
    """The fit of the case at hidden 4,096: 10.03 + 2.004 * 4,096 / t bytes an element, t * 4,096 elements."""
    return a_reading(tokens, (1_003 * tokens * 4_096 + 200_4 * 4_096 * 4_096 // 10) // 100)


def bytes_an_element(profile: Profile, tokens: int) -> float:
    return allocated_bytes(a_wave(tokens), profile, FRONTIER, NO_MARGIN) / (tokens * 4_096)


def test_a01_the_bound_nears_the_truth_as_larger_waves_are_seen() -> None:
    sizes = [128, 256, 512, 1_024, 2_048, 4_096, 8_192]
    bounds = [
        bytes_an_element(learned([SEED, *map(head_probe, sizes[:seen])]), 8_192) for seen in range(1, len(sizes) + 1)
    ]

    assert 74.0 < bounds[0] < 74.3  # one size: an upper bound only
    assert bounds == sorted(bounds, reverse=True)
    assert 11.0 < bounds[-1] < 11.1
    assert bytes_an_element(learned([SEED, *map(head_probe, sizes)]), 128) == pytest.approx(bounds[0], rel=1e-3)


def test_a01_under_the_warm_law_one_small_probe_prices_every_wave() -> None:
    profile = learned([SEED, *map(head_probe, (128, 8_192))])
    assert allocated_bytes(a_wave(8_192), profile, WARM) > 6 * allocated_bytes(a_wave(8_192), profile, FRONTIER)


# --- D05: a small cold first wave overprices the rest of the run -----------------------------------------------------


@given(st.lists(st.tuples(st.integers(12_000, 40_000), st.integers(206, 247)), min_size=1, max_size=12))
def test_d05_the_seeds_one_time_costs_stay_out_and_later_peaks_are_covered(waves: list[tuple[int, int]]) -> None:
    readings = [a_reading(rows, 1_000 * rate * rows) for rows, rate in waves]
    profile = learned([a_reading(15_600, 275_000 * 15_600), *readings])

    dearest = max(rate for _, rate in waves)
    highest = max(reading.peak_delta_bytes for reading in readings)
    model = allocated_bytes(a_wave(30_000), profile, FRONTIER, NO_MARGIN) - 6_144 * 30_000
    assert model <= max(1_000 * dearest * 30_000, highest)
    for reading in readings:
        wave = a_wave(reading.packed_rows, reading.logical_rows, 1)
        assert allocated_bytes(wave, profile, FRONTIER, NO_MARGIN) >= reading.peak_delta_bytes


def test_d05_a_higher_static_floor_is_named_so_that_no_gain_is_claimed() -> None:
    profile = learned([SEED, a_reading(15_000, 247_000 * 15_000)])
    floored = price(a_wave(30_000, floor_bytes=20_000_000_000), profile, FRONTIER)

    assert floored.binding_term == "floor"
    assert floored.compute_bytes == 20_000_000_000


# --- kin -------------------------------------------------------------------------------------------------------------


@pytest.mark.invariant("INV-8", "INV-10")
@pytest.mark.parametrize("kind", [ReadingKind.FORWARD_ONLY, ReadingKind.SPLIT_CHILD, ReadingKind.INTERRUPTED])
def test_d08_a_high_incomplete_reading_counts_in_every_order(kind: ReadingKind) -> None:
    seen = [a_reading(10_000, 260_000 * 10_000, kind), a_reading(10_000, 210_000 * 10_000), a_reading(9_000, 10**9)]
    profiles = {learned([SEED, *order]) for order in permutations(seen)}

    assert len(profiles) == 1
    assert allocated_bytes(a_wave(10_000, segments=1), profiles.pop(), FRONTIER, NO_MARGIN) == 2_600_000_000


def test_d08_with_only_incomplete_readings_the_warm_laws_price_stands() -> None:
    profile = learned([SEED, a_reading(10_000, 10**9, ReadingKind.SPLIT_CHILD)])
    assert price(a_wave(5_000), profile, FRONTIER).terms == price(a_wave(5_000), profile, WARM).terms


def test_d02_logical_rows_like_those_of_the_evidence_are_not_charged_again() -> None:
    """1,503 MB of charge for 244,690 logical rows were a tenth of a 53,151-row wave's price, for nothing."""
    profile = learned([SEED, a_reading(16_205, 459_782 * 16_205, logical_rows=109_065)])
    shared = a_wave(2 * 16_205, 2 * 109_065, 1)

    assert allocated_bytes(shared, profile, FRONTIER, NO_MARGIN) == 2 * 459_782 * 16_205
    assert price(shared, profile, FRONTIER).logical_charge_bytes == 0
    assert price(a_wave(2 * 16_205, 2 * 109_065 + 10, 1), profile, FRONTIER).logical_charge_bytes == 10 * 6_144


def test_d03_branches_cost_their_charges_until_seen_and_their_peak_afterwards() -> None:
    branched = a_wave(7_120, 517_120, 101, segment_state_bytes=GDN_STATE_BYTES)
    unshared = learned([SEED, a_reading(7_120, 323_000 * 7_120)])
    seen = observe(
        unshared,
        Reading(
            packed_rows=7_120,
            logical_rows=517_120,
            grad_segments=101,
            output_bytes=0,
            peak_delta_bytes=378_000 * 7_120,
        ),
    )

    assert 2.5 * GIB <= allocated_bytes(branched, unshared, FRONTIER) <= 25.2 * GIB
    assert allocated_bytes(branched, seen, FRONTIER, NO_MARGIN) <= 1.2 * 378_000 * 7_120
    assert allocated_bytes(branched, seen, FRONTIER) >= 2.5 * GIB
    more = a_wave(7_120, 517_120, 121, segment_state_bytes=GDN_STATE_BYTES)
    assert allocated_bytes(more, seen, FRONTIER, NO_MARGIN) - allocated_bytes(branched, seen, FRONTIER, NO_MARGIN) in (
        range(19 * GDN_STATE_BYTES, 20 * GDN_STATE_BYTES + 1)
    )


@pytest.mark.invariant("INV-1")
def test_d07_d13_no_size_is_cheaper_than_a_smaller_one() -> None:
    profile = learned([SEED, a_reading(10, 10**6), a_reading(15_000, 247_000 * 15_000), a_reading(700, 10**9)])
    prices = [
        allocated_bytes(a_wave(rows, 30_000), profile, FRONTIER) for rows in (*range(1, 200), *range(200, 60_000, 97))
    ]

    assert prices == sorted(prices)


def test_waves_smaller_than_the_evidence_are_covered_where_the_other_laws_are_not() -> None:
    """The fixed workspace of a head: 2.8 GB at 7,119 rows, 2.4 GB at 2,151. B*P goes through the origin."""
    profile = learned([SEED, a_reading(7_119, 2_820_800_000)])
    cheap = observe_all(Profile(), [a_reading(7_119, 2_820_800_000)] * 2)

    assert allocated_bytes(a_wave(2_151), profile, FRONTIER) >= 2_373_100_000
    assert allocated_bytes(a_wave(2_151), cheap, WARM) < 2_373_100_000
    assert allocated_bytes(a_wave(2_151), cheap, PACKED) < 2_373_100_000


@pytest.mark.invariant("INV-9")
def test_an_interrupted_reading_lowers_no_retained_price() -> None:
    """Its peak, which caps what it says was retained, may be that of a counter that was reset in between."""
    forward = a_reading(1_000, 10**9, ReadingKind.FORWARD_ONLY, retained_bytes=400_000_000)
    profile = learned([SEED, forward, a_reading(1_000, 10**9)])
    interrupted = a_reading(2_000, 1_000, ReadingKind.INTERRUPTED, retained_bytes=400_000_000)
    wave = a_wave(2_000, 1_000)

    assert retained_evidence_bytes(wave, profile, FRONTIER, NO_MARGIN) == 2 * 400_000_000
    assert retained_evidence_bytes(wave, observe(profile, interrupted), FRONTIER, NO_MARGIN) == 2 * 400_000_000


@pytest.mark.invariant("INV-1")
@pytest.mark.parametrize("rows", [64, 500, 20_000])
def test_d01_padding_of_a_tiny_call_is_scaled_by_nobody(rows: int) -> None:
    """One token padded to 64 rows: a call of whole rows is no 64 times as dense. Kin of the case, without gradients."""
    padded = a_reading(64, 500_000_000, logical_rows=1, grads=False)
    profile = learned([SEED, padded, padded])
    wave = a_wave(rows, logical_rows=rows, workload=SCORING)
    scaled = ceil_div(500_000_000 * rows, 64)

    assert scaled <= allocated_bytes(wave, profile, FRONTIER, NO_MARGIN) <= scaled + rows
    assert allocated_bytes(wave, profile, FRONTIER) <= allocated_bytes(wave, profile, WARM) * 11 // 10
