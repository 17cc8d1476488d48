"""Values that the laws fix, worked out by hand beside each: a change of any of them is a change of the laws."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing import (
    GIB,
    LAWS,
    NO_RECOMPUTE,
    Profile,
    RecurrentGeometry,
    Safety,
    Sharing,
    Wave,
    Workload,
    allocated_bytes,
    price,
    segment_state_bytes,
)
from pricing.kernel.price import retained_evidence_bytes
from pricing.kernel.rate_laws import PACKED, WARM
from tests.making import PACKED as PACKED_WORKLOAD
from tests.making import a_reading, a_wave, learned, rate_profile

SHARED_8 = Sharing(logical_rows=8, packed_rows=1)
SHARED_2 = Sharing(logical_rows=2, packed_rows=1)
BRANCHED = Sharing(logical_rows=517_120, packed_rows=7_120)
GDN_STATE_BYTES = 4_292_608


@pytest.mark.invariant("INV-12", "INV-4")
@pytest.mark.parametrize(
    ("profile", "wave", "expected_bytes", "expected_gib"),
    [
        # 1.1 * (459,782 * 16,205 + 6,144 * 109,065): 109,065 / 8 rows are fewer than 16,205, so nothing is clamped.
        (rate_profile(459_782, 20_000), a_wave(16_205, 109_065), 8_932_948_937, "8.32"),
        # 1.1 * (323,500 * 16,384 + 6,144 * 131,072)
        (rate_profile(323_500, 16_384, SHARED_8), a_wave(16_384, 131_072), 6_716_083_405, "6.25"),
        # 1.1 * (323,000 * ceil(517,120 / 8) + 6,144 * 517,120 + 101 * 4,292,608)
        (
            rate_profile(323_000, 7_120),
            a_wave(7_120, 517_120, 101, segment_state_bytes=GDN_STATE_BYTES),
            26_938_404_557,
            "25.09",
        ),
        # the same with the sharing learned: 1.1 * (323,000 * 7,120 + 6,144 * 517,120 + 101 * 4,292,608)
        (
            rate_profile(323_000, 7_120, BRANCHED),
            a_wave(7_120, 517_120, 101, segment_state_bytes=GDN_STATE_BYTES),
            6_501_548_557,
            "6.06",
        ),
    ],
    ids=["production", "controlled", "branches-first", "branches-learned"],
)
@pytest.mark.parametrize("law", ["packed", "warm"])
def test_conformance_prices(law: str, profile: Profile, wave: Wave, expected_bytes: int, expected_gib: str) -> None:
    required = allocated_bytes(wave, profile, LAWS[law])

    assert required == expected_bytes
    assert f"{required / GIB:.2f}" == expected_gib


@pytest.mark.invariant("INV-1")
@pytest.mark.parametrize("bytes_per_row", [1, 24_575, 100_000])
@pytest.mark.parametrize("sharing", [Sharing(logical_rows=1, packed_rows=1), SHARED_2, BRANCHED], ids=str)
@pytest.mark.parametrize("law", LAWS)
def test_cost_never_falls_as_packed_rows_grow(law: str, sharing: Sharing, bytes_per_row: int) -> None:
    profile = rate_profile(bytes_per_row, 1_000, sharing)
    logical_rows = 64_000
    edge_rows = -(-logical_rows * sharing.packed_rows // (8 * sharing.logical_rows))
    sweep = [*range(1, 2_000, 7), *range(max(1, edge_rows - 50), edge_rows + 50), 8_000, 8_001, 64_000, 64_001]

    prices = [allocated_bytes(a_wave(rows, logical_rows), profile, LAWS[law]) for rows in sorted(sweep)]

    assert prices == sorted(prices)


PROFILE_AT_2 = rate_profile(1_000, 500, SHARED_2, retained=400)
WAVE_AT_16 = a_wave(100, 1_600, output_bytes=500)


def test_a_packed_signature_at_ratio_2() -> None:
    # rows max(100, 1,600 / 16) = 100; 1.1 * (500 + 1,000 * 100 + 6,144 * 1,600)
    priced = price(WAVE_AT_16, PROFILE_AT_2, PACKED)

    assert priced.allocated.required_bytes == 10_923_990
    assert priced.logical_charge_bytes == 9_830_400
    assert priced.packed_priced


@pytest.mark.parametrize(
    "workload",
    [
        replace(PACKED_WORKLOAD, grad_modes=(False,)),
        replace(PACKED_WORKLOAD, grad_modes=(False, True)),
        replace(PACKED_WORKLOAD, request_mixes=("logits",)),
        replace(PACKED_WORKLOAD, request_mixes=("target:(4,)",)),
        replace(PACKED_WORKLOAD, recompute=NO_RECOMPUTE),
        replace(PACKED_WORKLOAD, shortest_single_target_rows=63),
    ],
    ids=["without-gradients", "mixed", "dense-output", "wide-labels", "other-recompute", "short"],
)
@pytest.mark.parametrize("law", ["logical", "packed", "warm"])
def test_other_signatures_at_ratio_2_extrapolate_by_sharing(law: str, workload: Workload) -> None:
    # rows max(100, 1,600 / 2) = 800; 1.1 * (500 + 1,000 * 800), no charge
    priced = price(replace(WAVE_AT_16, workload=workload), PROFILE_AT_2, LAWS[law])

    assert priced.allocated.required_bytes == 880_550
    assert priced.logical_charge_bytes == priced.segment_charge_bytes == 0


@pytest.mark.invariant("INV-11")
@pytest.mark.parametrize(
    ("wave", "expected"),
    [
        # 1.1 * (500 + 400 * 100 + 6,144 * 1,600)
        (WAVE_AT_16, 10_857_990),
        # the checkpoint floor holds it up: 1.1 * (500 + 9,900,000)
        (replace(WAVE_AT_16, checkpoint_retained_bytes=9_900_000), 10_890_550),
        # never above required
        (replace(WAVE_AT_16, checkpoint_retained_bytes=99_000_000), 10_923_990),
        # packed rows at the window's edge, 8 * 500, and beyond: 1.1 * 4,000 * (400 + 6,144), then required
        (a_wave(4_000), 28_793_600),
        (a_wave(4_001), allocated_bytes(a_wave(4_001), PROFILE_AT_2, PACKED)),
        # sharing at the window's edge, 8 * 2 * 100, and beyond
        (a_wave(100, 1_601), allocated_bytes(a_wave(100, 1_601), PROFILE_AT_2, PACKED)),
    ],
    ids=["inside", "checkpoint-floor", "capped", "rows-edge", "rows-beyond", "sharing-beyond"],
)
def test_retained_bytes(wave: Wave, expected: int) -> None:
    assert retained_evidence_bytes(wave, PROFILE_AT_2, PACKED) == expected


def test_retained_bytes_without_packed_pricing_follow_sharing() -> None:
    # 1.1 * (500 + 400 * 1,600 / 2)
    wave = replace(WAVE_AT_16, workload=replace(PACKED_WORKLOAD, grad_modes=(False,)))

    assert retained_evidence_bytes(wave, PROFILE_AT_2, PACKED) == 352_550


def test_never_seen_retained_bytes_are_not_zero() -> None:
    unseen, seen_none = rate_profile(1_000, 500), learned([a_reading(500, 500_000, retained_bytes=0)])

    assert retained_evidence_bytes(a_wave(100), unseen, law=WARM) == allocated_bytes(a_wave(100), unseen, law=WARM)
    assert retained_evidence_bytes(a_wave(100), seen_none, law=WARM) == 675_840  # 1.1 * 6,144 * 100: the charge alone


@pytest.mark.invariant("INV-4", "INV-5")
@pytest.mark.parametrize(
    ("logical_rows", "rows", "binding"),
    [(1_600, 100, "all_readings"), (1_601, 101, "all_readings_clamped"), (16_000, 1_000, "all_readings_clamped")],
)
def test_the_clamp_prices_sharing_beyond_eight_times_as_eight_times(logical_rows: int, rows: int, binding: str) -> None:
    priced = price(a_wave(100, logical_rows), PROFILE_AT_2, PACKED)

    assert priced.terms[0].rows == rows
    assert priced.binding_term == binding
    assert priced.compute_bytes == 1_000 * rows + 6_144 * logical_rows


def test_segments_are_charged_one_by_one() -> None:
    prices = [
        allocated_bytes(a_wave(100, 1_600, segments, segment_state_bytes=GDN_STATE_BYTES), PROFILE_AT_2, PACKED)
        for segments in range(3)
    ]

    # 1.1 * 4,292,608 = 4,721,868.8 a segment, rounded up at the end only
    assert prices == [10_923_440, 15_645_309, 20_367_178]


@pytest.mark.parametrize(
    ("tensor_parallel", "dtype_bytes", "expected"),
    [(1, 2, GDN_STATE_BYTES), (2, 2, 2_146_304), (8, 2, 536_576), (3, 2, 1_430_870)],
)
def test_state_of_a_segment(tensor_parallel: int, dtype_bytes: int, expected: int) -> None:
    # (2 / TP) * (4 * 32 * 128 * 128 + 2 * (2 * 16 * 128 + 32 * 128) * 3), rounded up
    geometry = RecurrentGeometry(
        value_heads=32,
        key_heads=16,
        key_dim=128,
        value_dim=128,
        conv_kernel=4,
        tensor_parallel=tensor_parallel,
        dtype_bytes=dtype_bytes,
    )

    assert segment_state_bytes(geometry) == expected


def test_an_attention_model_has_no_state() -> None:
    geometry = RecurrentGeometry(value_heads=0, key_heads=0, key_dim=0, value_dim=0, conv_kernel=1)

    assert segment_state_bytes(geometry) == 0


@pytest.mark.invariant("INV-12")
@pytest.mark.parametrize(
    ("text", "expected"), [("11/10", 110_000), ("1.1", 110_000), ("51/50", 102_000), ("1", 100_000)]
)
def test_safety_is_read_exactly(text: str, expected: int) -> None:
    assert allocated_bytes(a_wave(100, 0), rate_profile(1_000, 100), safety=Safety.parse(text), law=WARM) == expected


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("profile", [Profile(), PROFILE_AT_2], ids=["cold", "learned"])
def test_nothing_to_run_costs_its_outputs(profile: Profile, law: str) -> None:
    priced = price(a_wave(0, 0, output_bytes=77, floor_bytes=1_000), profile, LAWS[law])

    assert (priced.allocated.required_bytes, priced.allocated.retained_bytes, priced.binding_term) == (
        77,
        77,
        "nothing_to_run",
    )


@pytest.mark.parametrize("law", LAWS)
def test_a_cold_price_is_outputs_and_floor(law: str) -> None:
    priced = price(a_wave(10, 10, output_bytes=100, floor_bytes=900), Profile(), LAWS[law])

    assert (priced.allocated.required_bytes, priced.binding_term) == (1_100, "cold")


@pytest.mark.parametrize(
    ("profile", "wave", "binding"),
    [
        (rate_profile(10, 100), a_wave(10, 0, floor_bytes=100), "floor"),  # equal: the first in the laws' order
        (rate_profile(10, 100), a_wave(10, 0, floor_bytes=99), "all_readings"),
        (learned([a_reading(100, 1_000), a_reading(100, 1_000)]), a_wave(100, 0), "all_readings"),  # equal too
        (learned([a_reading(100, 1_001), a_reading(100, 1_000)]), a_wave(100, 0), "warm"),
        (learned([a_reading(100, 9_000), a_reading(100, 1_000)]), a_wave(50, 0), "warm_floor"),
        (learned([a_reading(100, 9_000), a_reading(100, 1_000)]), a_wave(50, 1_000), "warm_clamped"),
        (learned([a_reading(100, 9_000), a_reading(100, 1_000)]), a_wave(50, 800), "warm_clamped"),  # equals the floor
    ],
)
def test_binding_terms(profile: Profile, wave: Wave, binding: str) -> None:
    assert price(wave, profile, law=WARM).binding_term == binding


def test_of_equal_sharing_ratios_the_pair_with_fewer_packed_rows_is_kept() -> None:
    smaller, larger = a_reading(100, 100_000, logical_rows=400), a_reading(200, 100_000, logical_rows=800)
    for readings in ([smaller, larger], [larger, smaller]):
        profile = learned([a_reading(50, 1_000), *readings])
        assert profile.sharing == profile.warm_sharing == Sharing(logical_rows=400, packed_rows=100)
