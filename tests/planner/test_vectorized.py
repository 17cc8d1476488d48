"""Prices in arrays are the scalar code's bytes, also where int64 ends."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import vectorized
from pricing.kernel.errors import QuantityError, WaveError
from pricing.kernel.law import Law
from pricing.kernel.laws import LAWS
from pricing.kernel.price import required_bytes
from pricing.kernel.profile import Evidence, Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, MAX_QUANTITY, Safety
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import Workload
from pricing.kernel.wave import Wave
from pricing.testing import reachable_profiles, safeties, workloads
from pricing.vectorized import BLOCK_CANDIDATES, required_bytes_array
from tests.planner.naive import learned

laws = st.sampled_from(list(LAWS.values()))
TRAINING = Workload.training(shortest_rows=100)
QUANTITIES = ("packed_rows", "logical_rows", "grad_segments", "output_bytes", "floor_bytes")


def scalar_prices(
    columns: dict[str, list[int]],
    workload: Workload,
    profile: Profile,
    law: Law,
    safety: Safety,
    segment_state_bytes: int,
) -> list[int]:
    return [
        required_bytes(
            Wave(**dict(zip(columns, values, strict=True)), segment_state_bytes=segment_state_bytes, workload=workload),
            profile,
            law,
            safety,
        )
        for values in zip(*columns.values(), strict=True)
    ]


@st.composite
def candidate_columns(draw: st.DrawFn, largest: int) -> dict[str, list[int]]:
    """Candidates, some of them with nothing to run."""
    count = draw(st.integers(0, 6))
    columns: dict[str, list[int]] = {name: [] for name in QUANTITIES}
    for _ in range(count):
        rows = draw(st.integers(0, largest))
        for name, value in {
            "packed_rows": rows,
            "logical_rows": draw(st.integers(0, largest)) if rows else 0,
            "grad_segments": draw(st.integers(0, 1_000)) if rows else 0,
            "output_bytes": draw(st.integers(0, largest)),
            "floor_bytes": draw(st.integers(0, largest)),
        }.items():
            columns[name].append(value)
    return columns


@pytest.mark.invariant("INV-14")
@given(
    columns=candidate_columns(10**6),
    workload=workloads(),
    profile=reachable_profiles(),
    law=laws,
    safety=safeties(),
    state=st.integers(0, 10**7),
)
def test_equals_the_scalar_code(
    columns: dict[str, list[int]], workload: Workload, profile: Profile, law: Law, safety: Safety, state: int
) -> None:
    check_equal(columns, workload, profile, law, safety, state)


@given(
    columns=candidate_columns(MAX_QUANTITY),
    profile=reachable_profiles(),
    law=laws,
    safety=safeties(),
    state=st.sampled_from([0, 1, MAX_QUANTITY]),
)
def test_equals_the_scalar_code_beyond_int64(
    columns: dict[str, list[int]], profile: Profile, law: Law, safety: Safety, state: int
) -> None:
    check_equal(columns, TRAINING, profile, law, safety, state)


def check_equal(
    columns: dict[str, list[int]], workload: Workload, profile: Profile, law: Law, safety: Safety, state: int
) -> None:
    arrays = {name: numpy.array(values, dtype=numpy.int64) for name, values in columns.items()}
    expected = scalar_prices(columns, workload, profile, law, safety, state)
    priced = required_bytes_array(
        **arrays, workload=workload, profile=profile, law=law, safety=safety, segment_state_bytes=state
    )
    assert priced.tolist() == expected
    assert (priced.dtype == numpy.int64) == all(value <= MAX_QUANTITY for value in expected)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_overflow_edge_is_exact_on_both_sides(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest rows whose every intermediate fits int64 go through arrays, one more falls back, neither wraps."""
    profile = learned(rows=1_000, sharing=3, bytes_per_row=1_000_003)
    scalars: list[int] = []
    original = vectorized._price_scalars

    def counted(*args: Any) -> Any:
        scalars.append(1)
        return original(*args)

    monkeypatch.setattr(vectorized, "_price_scalars", counted)

    def price_of(rows: int) -> tuple[int, int, bool]:
        before = len(scalars)
        arguments: dict[str, Any] = {"packed_rows": [rows], "logical_rows": [rows], "grad_segments": [1]}
        priced = required_bytes_array(
            **arguments, output_bytes=0, workload=TRAINING, profile=profile, law=law, segment_state_bytes=5
        )
        columns = {name: [int(value)] for name, (value,) in arguments.items()} | {"output_bytes": [0]}
        (scalar,) = scalar_prices(columns, TRAINING, profile, law, DEFAULT_SAFETY, 5)
        return int(priced[0]), scalar, len(scalars) > before

    low, high = 1, 1 << 62
    while high - low > 1:
        rows = (low + high) // 2
        priced, expected, fell_back = price_of(rows)
        assert priced == expected
        low, high = (low, rows) if fell_back else (rows, high)
    assert low > 1 << 30, "every shipped law is priced in arrays"
    assert not price_of(low)[2] and price_of(high)[2]
    if law.name != "frontier":  # whose intermediates are a product of rows larger than its price
        assert 10 * price_of(low)[0] <= MAX_QUANTITY < 2 * 11 * price_of(high)[0]


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_many_blocks_of_candidates_by_a_rich_profile(law: Law) -> None:
    draw = numpy.random.default_rng(1)
    count = 2 * BLOCK_CANDIDATES + 17
    packed = draw.integers(0, 100_000, count)
    arguments: dict[str, Any] = {
        "packed_rows": packed,
        "logical_rows": packed * draw.integers(1, 30, count),
        "grad_segments": numpy.minimum(packed, draw.integers(0, 100, count)),
        "output_bytes": draw.integers(0, 10**6, count),
    }
    profile = Profile()
    for rows in range(500, 60_000, 2_500):
        for grown in (rows, rows + rows % 700):
            reading = Reading(
                packed_rows=grown,
                logical_rows=grown * (1 + rows % 9),
                grad_segments=rows % 13,
                output_bytes=0,
                peak_delta_bytes=10**9 + grown * (300_000 + rows % 11 * 9_000),
            )
            profile = observe(profile, reading)
    priced = required_bytes_array(
        **arguments, workload=TRAINING, profile=profile, segment_state_bytes=4_292_608, law=law
    )
    columns = {name: values.tolist() for name, values in arguments.items()}
    assert priced.tolist() == scalar_prices(columns, TRAINING, profile, law, DEFAULT_SAFETY, 4_292_608)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_warm_fit_reaches_by_its_own_sharing(law: Law) -> None:
    """An incomplete reading of sharing 50 stretches the all-readings term, not the warm one."""
    whole: dict[str, Any] = {"packed_rows": 100, "logical_rows": 100, "grad_segments": 1, "output_bytes": 0}
    profile = observe(Profile(), Reading(**whole, peak_delta_bytes=2_000_000))
    profile = observe(profile, Reading(**whole, peak_delta_bytes=100_000))
    shared = Reading(**(whole | {"logical_rows": 5_000}), peak_delta_bytes=100_000, kind=ReadingKind.SPLIT_CHILD)
    check_equal(one_candidate(100, 8_000), TRAINING, observe(profile, shared), law, DEFAULT_SAFETY, 0)
    if law is WARM:
        allocated = 11 * (1_000 * 1_000 + 6_144 * 8_000) // 10
        assert scalar_prices(one_candidate(100, 8_000), TRAINING, observe(profile, shared), law, DEFAULT_SAFETY, 0) == [
            -(-4 * allocated // 3)  # no footprint was read yet
        ]


def one_candidate(packed_rows: int, logical_rows: int, output_bytes: int = 0) -> dict[str, list[int]]:
    values = (packed_rows, logical_rows, 1, output_bytes, 0)
    return dict(zip(QUANTITIES, ([value] for value in values), strict=True))


@pytest.mark.parametrize("safety", ["11/10", "51/50", "1001/1000", "9223372036854775807/4611686018427387904"])
def test_rounding_up_does_not_wrap_where_the_product_still_fits(safety: str) -> None:
    """Beside the last product that fits int64 there is no room for the denominator that a ceiling adds."""
    sigma = Safety.parse(safety)
    last = MAX_QUANTITY // sigma.numerator
    for output in (last - 1, last, last + 1, max(0, (MAX_QUANTITY - sigma.denominator + 1) // sigma.numerator)):
        check_equal(one_candidate(1, 1, output), TRAINING, Profile(), WARM, sigma, 0)


def test_ints_broadcast_and_empty_input_is_empty() -> None:
    profile = learned(rows=1_000)
    arguments: dict[str, Any] = {"workload": TRAINING, "profile": profile, "grad_segments": 0, "output_bytes": 8}
    priced = required_bytes_array(packed_rows=[1, 2, 3], logical_rows=[4, 4, 4], **arguments)
    assert priced.shape == (3,)
    assert required_bytes_array(packed_rows=[], logical_rows=[], **arguments).shape == (0,)


class SteppedLaw:
    """A law that no twin knows."""

    name = "stepped"
    summary = "rows rounded up to a thousand"

    def ineligibility(self, profile: Evidence, workload: Workload) -> tuple[()]:
        return ()

    def compute_bytes(self, wave: Wave, profile: Evidence, packed_priced: bool) -> int:
        return 1_000 * -(-wave.packed_rows // 1_000)

    def breakdown(self, wave: Wave, profile: Evidence, packed_priced: bool) -> Any:
        raise NotImplementedError

    def kept_bytes(self, wave: Wave, profile: Evidence, packed_priced: bool) -> None:
        return None


def test_a_law_without_a_twin_is_priced_by_the_scalar_code() -> None:
    priced = required_bytes_array(
        packed_rows=[1, 1_000, 1_001],
        logical_rows=[1, 1, 1],
        grad_segments=0,
        output_bytes=0,
        workload=TRAINING,
        profile=learned(rows=10),
        law=SteppedLaw(),
    )
    assert priced.tolist() == [1_100, 1_100, 2_200]  # no cache: `learned` reads footprints as large as the peaks


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("packed_rows", [-1]),
        ("logical_rows", [1.5]),
        ("grad_segments", [True]),
        ("logical_rows", [5, True]),
        ("output_bytes", [1 << 63]),
        ("floor_bytes", [[1]]),
        ("packed_rows", ["1"]),
        ("packed_rows", [None]),
    ],
)
def test_what_is_no_count_is_refused(field: str, value: Any) -> None:
    arguments: dict[str, Any] = {name: [1] for name in QUANTITIES} | {field: value}
    with pytest.raises(QuantityError, match=field):
        required_bytes_array(**arguments, workload=TRAINING, profile=learned(rows=10))


def test_rows_of_nothing_are_refused() -> None:
    with pytest.raises(WaveError, match="nothing to run"):
        required_bytes_array(
            packed_rows=[1, 0],
            logical_rows=[1, 1],
            grad_segments=0,
            output_bytes=0,
            workload=TRAINING,
            profile=learned(rows=10),
        )


def test_an_empty_profile_prices_cold() -> None:
    arguments: dict[str, Any] = {"packed_rows": [5, 0], "logical_rows": [5, 0], "grad_segments": 0}
    priced = required_bytes_array(
        **arguments, output_bytes=[10, 7], floor_bytes=100, workload=TRAINING, profile=Profile()
    )
    assert priced.tolist() == [162, 7]  # ceil(4 / 3 * 121): no footprint was read yet


def test_a_reading_of_the_largest_counter_is_priced_without_wrapping() -> None:
    reading = Reading(
        packed_rows=1, logical_rows=MAX_QUANTITY, grad_segments=0, output_bytes=0, peak_delta_bytes=MAX_QUANTITY
    )
    profile = observe(Profile(), reading)
    columns = {
        "packed_rows": [1, 3],
        "logical_rows": [1, MAX_QUANTITY],
        "grad_segments": [0, 0],
        "output_bytes": [0, 9],
    }
    check_equal(columns | {"floor_bytes": [0, 0]}, TRAINING, profile, LAWS["warm"], DEFAULT_SAFETY, 0)
