"""Forecasts in prices: they raise cold prices, never fall as a wave grows, and end with the first complete reading."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import LAWS, Law, Profile, Reading, ReadingKind, Wave, Workload, allocated_bytes, observe, price
from pricing.kernel.errors import QuantityError
from pricing.kernel.forecast import FORECAST_SAFETY, NO_FORECAST, Forecast, ForecastLine, forecast_peak_bytes
from pricing.kernel.quantities import Safety, with_safety

WAVE = Wave(
    packed_rows=1_000,
    logical_rows=4_000,
    grad_segments=3,
    output_bytes=16_000,
    floor_bytes=1_000_000,
    workload=Workload.training(shortest_rows=100),
)

LAW = pytest.mark.parametrize("law", LAWS.values(), ids=str)
BYTES = st.integers(0, 1 << 40)
ROWS = st.integers(1, 1 << 20)


def reading(**changes: object) -> Reading:
    fields: dict[str, object] = {"packed_rows": 1_000, "logical_rows": 1_000, "grad_segments": 1, "output_bytes": 4_000}
    return Reading(**fields | {"peak_delta_bytes": 5_000_000} | changes)  # type: ignore[arg-type]


@LAW
def test_a_cold_wave_costs_its_forecast_and_says_so(law: Law) -> None:
    wave = replace(WAVE, forecast_bytes=9_000_001)
    priced = price(wave, Profile(), law, Safety.parse("51/50"))
    assert priced.allocated.required_bytes == allocated_bytes(wave, Profile(), law, Safety.parse("51/50")) == 9_900_002
    assert (priced.binding_term, priced.safety, priced.compute_bytes) == ("forecast", FORECAST_SAFETY, 8_984_001)


@LAW
def test_a_forecast_below_the_floor_changes_nothing(law: Law) -> None:
    assert price(replace(WAVE, forecast_bytes=1_000), Profile(), law) == price(WAVE, Profile(), law)
    assert price(WAVE, Profile(), law).binding_term == "cold"


@LAW
@given(forecast_bytes=BYTES, peak_bytes=BYTES)
def test_it_ends_with_the_first_complete_reading_and_not_before(law: Law, forecast_bytes: int, peak_bytes: int) -> None:
    wave = replace(WAVE, forecast_bytes=forecast_bytes)
    incomplete = observe(Profile(), reading(peak_delta_bytes=peak_bytes, kind=ReadingKind.INTERRUPTED))
    forecast = with_safety(FORECAST_SAFETY.numerator, FORECAST_SAFETY.denominator, forecast_bytes)
    assert allocated_bytes(wave, incomplete, law) == max(allocated_bytes(WAVE, incomplete, law), forecast)
    complete = observe(incomplete, reading(peak_delta_bytes=peak_bytes))
    assert price(wave, complete, law) == price(WAVE, complete, law)


@st.composite
def forecasts(draw: st.DrawFn) -> Forecast:
    lines = draw(st.lists(st.tuples(BYTES, *[st.integers(0, 1 << 20)] * 3), min_size=1, max_size=4))
    return Forecast(
        lines=tuple(
            ForecastLine(
                phase=str(number),
                fixed_bytes=fixed,
                bytes_per_packed_row=packed,
                bytes_per_logical_row=logical,
                bytes_per_segment=segment,
            )
            for number, (fixed, packed, logical, segment) in enumerate(lines)
        )
    )


@pytest.mark.invariant("INV-1", "INV-2")
@given(forecast=forecasts(), small=st.tuples(ROWS, ROWS, ROWS), more=st.tuples(*[st.integers(0, 1 << 20)] * 3))
def test_a_forecast_never_falls_as_a_wave_grows(
    forecast: Forecast, small: tuple[int, int, int], more: tuple[int, int, int]
) -> None:
    def required(packed: int, logical: int, segments: int) -> int:
        wave = replace(WAVE, packed_rows=packed, logical_rows=logical, grad_segments=segments)
        return allocated_bytes(
            replace(wave, forecast_bytes=forecast_peak_bytes(forecast, packed, logical, segments)), Profile()
        )

    large = tuple(size + extra for size, extra in zip(small, more, strict=True))
    assert required(*small) <= required(*large)
    line = forecast.line(*small)
    assert line.peak_bytes(*small) == forecast_peak_bytes(forecast, *small)


def test_nothing_is_forecast_of_nothing() -> None:
    assert NO_FORECAST.is_empty
    assert forecast_peak_bytes(NO_FORECAST, 10, 10, 1) == 0
    empty = replace(WAVE, packed_rows=0, logical_rows=0, grad_segments=0, forecast_bytes=77)
    assert allocated_bytes(empty, Profile()) == price(empty, Profile()).required_bytes == WAVE.output_bytes
    with pytest.raises(QuantityError, match="bytes_per_packed_row"):
        ForecastLine(phase="x", fixed_bytes=0, bytes_per_packed_row=-1)
