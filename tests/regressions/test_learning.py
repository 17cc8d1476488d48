"""Public cases about what a reading may teach: D01, D05, D06, D08, D09, D11, A01, A04. Each for its kind."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import (
    GIB,
    LAWS,
    InvalidReadingError,
    Law,
    Profile,
    Reading,
    ReadingKind,
    Safety,
    Workload,
    allocated_bytes,
    observe,
    price,
)
from pricing.kernel.price import retained_evidence_bytes
from pricing.kernel.rate_laws import LOGICAL, PACKED, WARM
from pricing.kernel.requests import ONE_LAYER_FULL
from tests.making import a_reading, a_wave, learned

INCOMPLETE = (ReadingKind.FORWARD_ONLY, ReadingKind.SPLIT_CHILD, ReadingKind.INTERRUPTED)

SCORING = Workload(grad_modes=(False,), request_mixes=("target:single",), recompute=ONE_LAYER_FULL)


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


TINY, LONG = scoring_call(27, 473_835_924), scoring_call(103_960, 22_200_000_000)


@pytest.mark.invariant("INV-12")
@pytest.mark.parametrize("order", [(TINY, LONG), (LONG, TINY)], ids=["tiny-first", "long-first"])
@pytest.mark.parametrize("law", [LOGICAL, PACKED], ids=["logical", "packed"])
def test_d01_rates_through_the_origin_keep_the_tiny_calls_rate_in_either_order(
    order: tuple[Reading, ...], law: Law
) -> None:
    """What these laws do and must not hide: the rule that refused, rounded up where it truncated."""
    required = allocated_bytes(a_wave(20_000, output_bytes=80_000, workload=SCORING), learned(order), law)

    truncated = int(Fraction(11, 10) * (Fraction(473_835_924, 27) * 20_000 + 80_000))
    assert truncated == 386_088_618_666
    assert truncated < required <= truncated + 11 * 20_000 // 10 + 2  # one byte a row, and roundings


def test_d01_the_long_call_alone_prices_what_it_measured() -> None:
    profile = learned([scoring_call(103_960, 103_960 * 57_344)])

    assert allocated_bytes(a_wave(20_000, output_bytes=80_000, workload=SCORING), profile) == 1_261_656_000


@pytest.mark.parametrize("rows", [17_063, 20_000, 21_489])
def test_d01_as_the_seed_the_tiny_call_is_forgotten_at_the_first_real_one(rows: int) -> None:
    required = allocated_bytes(a_wave(rows, workload=SCORING), learned([TINY, LONG]), WARM)

    assert required <= Fraction(11, 10) * (22_200_000_000 + 103_960)  # the long call, and one byte a row
    assert required < 68_000_000_000  # what was available


@pytest.mark.invariant("INV-10")
@pytest.mark.parametrize("rows", [17_063, 20_000, 21_489])
@pytest.mark.parametrize("law", LAWS)
def test_d01_after_a_seed_of_its_own_the_answer_does_not_depend_on_order(rows: int, law: str) -> None:
    seed = scoring_call(6_273, 6_273 * 213_700)
    prices = {
        allocated_bytes(a_wave(rows, workload=SCORING), learned([seed, *order]), LAWS[law])
        for order in permutations((TINY, LONG))
    }

    assert len(prices) == 1


# --- D05: a small cold first wave overprices the rest of the run -----------------------------------------------------


@pytest.mark.invariant("INV-7")
def test_d05_the_seed_prices_nothing_once_a_warm_wave_was_seen() -> None:
    later = [a_reading(rows, rate * rows) for rows, rate in ((16_000, 206_000), (21_000, 247_000), (30_000, 230_000))]
    profile = learned([a_reading(15_600, 275_000 * 15_600), *later])

    assert price(a_wave(30_000, 0), profile, WARM).compute_bytes == 247_000 * 30_000
    assert allocated_bytes(a_wave(30_000, 0), profile, WARM) == 11 * 247_000 * 30_000 // 10
    assert price(a_wave(30_000, 0), profile, PACKED).compute_bytes == 275_000 * 30_000


@pytest.mark.invariant("INV-9")
def test_d05_the_first_reading_is_never_warm() -> None:
    profile = learned([a_reading(15_600, 275_000 * 15_600)])

    assert not profile.has_warm_fit
    assert price(a_wave(30_000, 0), profile, WARM).binding_term == "all_readings"


def test_d05_a_higher_static_floor_is_reported_as_what_binds_so_that_no_success_is_claimed() -> None:
    cold = learned([a_reading(15_600, 275_000 * 15_600)])
    warm = observe(cold, a_reading(15_600, 210_000 * 15_600))
    wave = a_wave(15_600, 0, floor_bytes=5_000_000_000)
    before, after = price(wave, cold, WARM), price(wave, warm, WARM)

    assert before.binding_term == after.binding_term == "floor"
    assert before.required_bytes == after.required_bytes


@pytest.mark.invariant("INV-8")
@pytest.mark.parametrize("law", LAWS)
@given(
    seed_rate=st.integers(1, 600_000),
    later=st.lists(st.tuples(st.integers(1, 40_000), st.integers(1, 600_000)), min_size=1, max_size=6),
)
def test_d05_whatever_was_observed_after_the_seed_is_never_underpriced(
    law: str, seed_rate: int, later: list[tuple[int, int]]
) -> None:
    readings = [a_reading(rows, rate * rows) for rows, rate in later]
    profile = learned([a_reading(15_600, 15_600 * seed_rate), *readings])

    for reading in readings:
        assert allocated_bytes(a_wave(reading.packed_rows), profile, LAWS[law]) >= reading.peak_delta_bytes


# --- D06: the peak counter was reset inside the wave -----------------------------------------------------------------


@pytest.mark.invariant("INV-9")
@pytest.mark.parametrize("kind", INCOMPLETE)
def test_d06_a_reading_that_missed_part_of_its_wave_makes_no_warm_fit_and_lowers_nothing(kind: ReadingKind) -> None:
    """Baseline 60 GiB, forward peak 80, backward peak 100: a reset in between leaves 85, or 70."""
    seed, true_peak = a_reading(10_000, 40 * GIB), 40 * GIB
    for seen in (25 * GIB, 10 * GIB):
        profile = learned([seed, a_reading(10_000, seen, kind)])
        assert not profile.has_warm_fit
        assert allocated_bytes(a_wave(10_000, 0), profile, WARM) >= true_peak


@pytest.mark.invariant("INV-7", "INV-9")
@pytest.mark.parametrize("kind", INCOMPLETE)
def test_d06_a_nested_forward_in_every_wave_leaves_pricing_as_without_the_warm_fit(kind: ReadingKind) -> None:
    readings = [a_reading(10_000, 40 * GIB)] + [a_reading(8_000 + rows, 20 * GIB, kind) for rows in range(20)]
    profile = learned(readings)

    for rows in (1, 8_000, 10_000, 90_000):
        assert price(a_wave(rows), profile, WARM).terms == price(a_wave(rows), profile, PACKED).terms


@pytest.mark.invariant("INV-8")
@pytest.mark.parametrize("kind", INCOMPLETE)
def test_d06_and_yet_raises_what_is_known(kind: ReadingKind) -> None:
    warm = learned([a_reading(10_000, 40 * GIB), a_reading(10_000, 20 * GIB)])
    raised = observe(warm, a_reading(10_000, 30 * GIB, kind))

    assert allocated_bytes(a_wave(10_000, 0), raised, WARM) >= 30 * GIB
    assert raised.warm_packed_rows == warm.warm_packed_rows


def test_d06_a_forward_without_gradients_that_ends_its_wave_saw_it_whole() -> None:
    seed = a_reading(100, 1_000_000)
    closing = a_reading(100, 500_000, ReadingKind.FORWARD_ONLY, grads=False, closes_wave=True)

    assert learned([seed, closing]).has_warm_fit
    for still_open in (
        a_reading(100, 500_000, ReadingKind.FORWARD_ONLY, grads=False),
        a_reading(100, 500_000, ReadingKind.FORWARD_ONLY, closes_wave=True),
    ):
        assert not learned([seed, still_open]).has_warm_fit


# --- D08: a high reading between the seed and the first whole warm wave ----------------------------------------------

ROWS = 15_600


@pytest.mark.invariant("INV-10")
@pytest.mark.parametrize("kind", INCOMPLETE)
def test_d08_a_rate_seen_before_the_warm_fit_is_not_lost(kind: ReadingKind) -> None:
    seed, high, whole = (
        a_reading(ROWS, 275_000 * ROWS),
        a_reading(ROWS, 260_000 * ROWS, kind),
        a_reading(ROWS, 210_000 * ROWS),
    )
    profiles = {learned([seed, *order]) for order in permutations((high, whole))}

    assert [profile.warm_bytes_per_row for profile in profiles] == [260_000]


@pytest.mark.invariant("INV-7")
@pytest.mark.parametrize("kind", INCOMPLETE)
def test_d08_without_a_whole_wave_the_price_stays_the_cold_one(kind: ReadingKind) -> None:
    cold = learned([a_reading(ROWS, 275_000 * ROWS)])
    pending = observe(cold, a_reading(ROWS, 260_000 * ROWS, kind))

    for rows in (1, ROWS, 100_000):
        assert allocated_bytes(a_wave(rows), pending, WARM) == allocated_bytes(a_wave(rows), cold, WARM)


@pytest.mark.invariant("INV-10")
@given(
    later=st.lists(
        st.tuples(st.integers(1, 30_000), st.integers(0, 10**10), st.sampled_from(list(ReadingKind))),
        min_size=2,
        max_size=4,
    )
)
def test_d08_after_the_seed_every_order_leaves_the_same_profile(later: list[tuple[int, int, ReadingKind]]) -> None:
    readings = [a_reading(rows, delta, kind, logical_rows=3 * rows) for rows, delta, kind in later]
    seed = a_reading(ROWS, 275_000 * ROWS)

    assert len({repr(learned([seed, *order])) for order in permutations(readings)}) == 1


# --- D09: profiled in the forward, out of memory in the caller's backward --------------------------------------------


@pytest.mark.invariant("INV-8")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("last", [ReadingKind.WHOLE_WAVE, ReadingKind.INTERRUPTED])
def test_d09_the_callers_peak_counts_as_soon_as_it_is_known_and_the_forwards_is_kept(
    last: ReadingKind, law: str
) -> None:
    seed = a_reading(9_000, 9_000 * 50_000)
    forward = a_reading(10_000, 2 * GIB, ReadingKind.FORWARD_ONLY)
    before = learned([seed, forward])
    after = observe(before, a_reading(10_000, 5 * GIB, last))

    assert allocated_bytes(a_wave(10_000), before, LAWS[law]) >= 2 * GIB
    assert allocated_bytes(a_wave(10_000), after, LAWS[law]) >= 5 * GIB


@pytest.mark.parametrize("law", LAWS)
def test_d09_a_caller_that_raised_leaves_the_forwards_peak(law: str) -> None:
    profile = learned(
        [a_reading(10_000, 2 * GIB, ReadingKind.FORWARD_ONLY), a_reading(10_000, 0, ReadingKind.INTERRUPTED)]
    )

    assert allocated_bytes(a_wave(10_000), profile, LAWS[law]) >= 2 * GIB


# --- D11: a share retained after the forward, applied to the backward's peak ------------------------------------------


def forward_then_backward(rows: int = 1 << 15) -> Profile:
    return learned(
        [
            a_reading(rows, 60 * GIB, ReadingKind.FORWARD_ONLY, retained_bytes=30 * GIB),
            a_reading(rows, 100 * GIB),
        ]
    )


@pytest.mark.invariant("INV-11", "INV-12")
def test_d11_two_halves_cost_a_peak_and_a_retained_half() -> None:
    profile, half = forward_then_backward(), a_wave(1 << 14, 0)
    together = allocated_bytes(half, profile) + retained_evidence_bytes(half, profile)

    assert Fraction(together, GIB) == Fraction(715, 10)  # 1.1 * (100 / 2 + 30 / 2): fits 75 GiB
    assert Fraction(11, 10) * (50 + Fraction(30, 60) * 100 / 2) == Fraction(825, 10)  # the rule before: did not


@pytest.mark.invariant("INV-11")
def test_d11_a_peak_alone_never_raises_what_is_retained() -> None:
    before = forward_then_backward()
    after = observe(before, a_reading(1 << 15, 300 * GIB))

    assert after.retained_bytes_per_row == before.retained_bytes_per_row
    assert retained_evidence_bytes(a_wave(1 << 14, 0), after) == retained_evidence_bytes(a_wave(1 << 14, 0), before)


def test_d11_outputs_are_charged_on_their_own_and_not_learned_into_the_rates() -> None:
    plain = learned([a_reading(1_000, 10_000_000, retained_bytes=4_000_000)])
    with_outputs = learned([a_reading(1_000, 10_700_000, retained_bytes=4_700_000, output_bytes=700_000)])

    assert with_outputs == plain
    wave, heavy = a_wave(500, 0), a_wave(500, 0, output_bytes=600_000)
    assert retained_evidence_bytes(heavy, plain) - retained_evidence_bytes(wave, plain) == 660_000
    assert allocated_bytes(heavy, plain) - allocated_bytes(wave, plain) == 660_000


# --- A01: a fixed cost read as a rate --------------------------------------------------------------------------------

HIDDEN = 4_096


def chunk_bytes(tokens: int) -> int:
    """10.03 B an element and a fixed part: 74.16 B at 128 tokens, 42.08 at 256, 26.07 at 512 (hidden 4,096)."""
    return int(Fraction(1_003, 100) * HIDDEN * tokens + Fraction(2_004, 1_000) * HIDDEN * HIDDEN)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("probes", [(128,), (128, 256), (128, 128, 256), (128, 128, 256, 512)])
def test_a01_probes_give_an_upper_bound_for_everything_larger(law: str, probes: tuple[int, ...]) -> None:
    profile = learned(a_reading(tokens, chunk_bytes(tokens)) for tokens in probes)

    for tokens in (512, 1_024, 8_192, 100_000):
        assert allocated_bytes(a_wave(tokens, 0), profile, LAWS[law]) >= chunk_bytes(tokens)


def test_a01_one_probe_is_labelled_as_the_bound_it_is() -> None:
    priced = price(a_wave(8_192, 0), learned([a_reading(128, chunk_bytes(128))]))

    assert priced.binding_term == "all_readings"
    assert f"{priced.compute_bytes / (8_192 * HIDDEN):.2f}" == "74.16"


def test_a01_the_bound_falls_once_larger_waves_follow_the_first() -> None:
    probes = [a_reading(tokens, chunk_bytes(tokens)) for tokens in (128, 2_048, 4_096)]
    bounds = [
        price(a_wave(8_192, 0), learned(probes[:count]), WARM).compute_bytes / (8_192 * HIDDEN) for count in (1, 2, 3)
    ]

    assert [f"{bound:.2f}" for bound in bounds] == ["74.16", "14.04", "14.04"]


# --- A04: what a reset does to baselines -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("baseline_bytes", "peak_bytes"),
    [(int(30.37 * GIB), int(6.867 * GIB)), (1, 0), (1 << 62, (1 << 62) - 1)],
)
def test_a04_a_peak_under_its_baseline_is_refused_and_teaches_nothing(baseline_bytes: int, peak_bytes: int) -> None:
    with pytest.raises(InvalidReadingError, match=f"{baseline_bytes - peak_bytes} B under"):
        a_reading(10, peak_bytes - baseline_bytes)


def test_a04_a_wave_that_ends_lower_than_it_began_is_legal_if_its_peak_is_not() -> None:
    mb = 10**6
    reading = a_reading(10, (2_171 - 312) * mb, retained_bytes=(159 - 312) * mb)

    assert reading.peak_delta_bytes == 1_859 * mb
    assert reading.retained_compute_bytes == 0
    assert observe(Profile(), reading).peak_bytes_per_row == 185_900_000


def test_a04_a_peak_at_its_baseline_is_a_reading_of_nothing() -> None:
    assert a_reading(10, 0).compute_bytes == 0


@pytest.mark.parametrize("safety", ["1", "11/10"])
def test_a04_a_seed_that_read_less_than_a_later_wave_does_not_hold_its_price_down(safety: str) -> None:
    profile = learned([a_reading(10, 0), a_reading(10, 1_000)])

    assert allocated_bytes(a_wave(10, 0), profile, safety=Safety.parse(safety)) >= 1_000


# --- what the cases have in common -----------------------------------------------------------------------------------


@pytest.mark.invariant("INV-5")
@pytest.mark.parametrize("law", ["packed", "warm"])
@pytest.mark.parametrize("sharing", [1, 2, 8])
def test_learning_more_sharing_never_cheapens_a_plan_within_the_older_reach(law: str, sharing: int) -> None:
    before = learned([a_reading(1_000, 10**8, logical_rows=1_000 * sharing)] * 2)
    more_sharing = observe(before, a_reading(1_000, 10**8, logical_rows=100_000))

    for logical_rows in (1_000, 8_000 * sharing - 1, 8_000 * sharing):
        wave = a_wave(1_000, logical_rows)
        assert allocated_bytes(wave, more_sharing, LAWS[law]) >= allocated_bytes(wave, before, LAWS[law])


@pytest.mark.invariant("INV-14")
@pytest.mark.parametrize("law", LAWS)
def test_the_same_readings_in_another_process_give_the_same_bytes(law: str) -> None:
    """Hash seeds, module state and the order of sets must not reach a price."""
    code = (
        "from pricing import LAWS, price\n"
        "from tests.making import a_reading, a_wave, learned\n"
        "sizes = range(500, 9_000, 777)\n"
        "profile = learned(a_reading(rows, 10**9 + 97 * rows, logical_rows=3 * rows) for rows in sizes)\n"
        f"print(price(a_wave(5_000, 41_234, 17, segment_state_bytes=4_292_608), profile, LAWS[{law!r}]))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(said) == 1
