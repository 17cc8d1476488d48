"""Forecasts: what a wave is expected to need before anything was measured. An evidence class of its own.

A forecast comes from running the model on no device and counting what it would allocate. It is no reading: it raises
no rate, makes no bound and is in no band. It prices where no complete reading of a signature was seen, is named in the
price, and is left out from the first complete reading on.

    peak(P, L, S) = max over lines of (fixed + a * P + b * L + c * S)         outputs included

A line is one phase of a wave (a stretch of forward or backward whose live bytes grow in step with its rows). Lines
have no negative coefficients, so a forecast never falls as a wave grows (INV-1, INV-2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pricing.kernel.quantities import Safety, maximum, require_count, with_safety

FORECAST_SAFETY: Final = Safety(numerator=11, denominator=10)
"""Safety factor of forecasts, whatever that of learned prices is. Source: of 293 waves of this project's own models on
the H200 none peaked more than 3.8 % above its forecast (`spec/evidence/forecast`, which also says where it does not
hold: another program's head). What kernels take inside themselves is not all traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastLine:
    """One phase's peak above the wave's baseline, outputs included: whole bytes, rounded up."""

    phase: str
    fixed_bytes: int
    bytes_per_packed_row: int
    bytes_per_logical_row: int = 0
    bytes_per_segment: int = 0

    def __post_init__(self) -> None:
        require_count("fixed_bytes", self.fixed_bytes)
        require_count("bytes_per_packed_row", self.bytes_per_packed_row)
        require_count("bytes_per_logical_row", self.bytes_per_logical_row)
        require_count("bytes_per_segment", self.bytes_per_segment)

    def peak_bytes(self, packed_rows: int, logical_rows: int, grad_segments: int) -> int:
        """The phase's peak for a wave of this size."""
        return (
            self.fixed_bytes
            + self.bytes_per_packed_row * packed_rows
            + self.bytes_per_logical_row * logical_rows
            + self.bytes_per_segment * grad_segments
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What was forecast of one memory signature. `NO_FORECAST` has no lines and prices nothing.

    lines: the phases, in the order in which they run. assumption: what had to be assumed, in words ("" for nothing:
    every shape followed from the model and its rows).
    """

    lines: tuple[ForecastLine, ...] = ()
    assumption: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.lines

    def line(self, packed_rows: int, logical_rows: int, grad_segments: int) -> ForecastLine:
        """The phase that holds the wave's peak, of equal ones the first. Needs a forecast that is not empty."""
        return max(self.lines, key=lambda line: line.peak_bytes(packed_rows, logical_rows, grad_segments))


NO_FORECAST: Final = Forecast()

ForecastOf = tuple[tuple[str, str], ...]
"""What a forecast is of, by name and sorted: the model's facts, how it runs, what its requests ask for. Texts only."""


def merge_forecasts(
    one: Mapping[ForecastOf, Forecast], other: Mapping[ForecastOf, Forecast]
) -> dict[ForecastOf, Forecast]:
    """What either has. Of two forecasts of the same, every line of both: a price is the dearest of them."""
    merged = {**one, **other}
    for key in one.keys() & other.keys():
        mine, theirs = one[key], other[key]
        if mine == theirs:
            continue
        merged[key] = Forecast(
            lines=tuple(sorted({*mine.lines, *theirs.lines}, key=_ordered)),
            assumption=mine.assumption if mine.assumption >= theirs.assumption else theirs.assumption,
        )
    return merged


def _ordered(line: ForecastLine) -> tuple[str, int, int, int, int]:
    return (
        line.phase,
        line.fixed_bytes,
        line.bytes_per_packed_row,
        line.bytes_per_logical_row,
        line.bytes_per_segment,
    )


def forecast_peak_bytes(forecast: Forecast, packed_rows: int, logical_rows: int, grad_segments: int) -> int:
    """Peak above the wave's baseline that is forecast, outputs included and before the safety factor; 0 for none."""
    peak = 0
    for line in forecast.lines:
        peak = maximum(peak, line.peak_bytes(packed_rows, logical_rows, grad_segments))
    return peak


def with_forecast(required: int, forecast_bytes: int, complete_readings: int) -> int:
    """A price, raised to what was forecast until a complete reading was seen; from then on the laws price alone.

    Readings that are not complete raise prices as before: a forecast lowers none.
    """
    if forecast_bytes == 0 or complete_readings > 0:
        return required
    return maximum(required, with_safety(FORECAST_SAFETY.numerator, FORECAST_SAFETY.denominator, forecast_bytes))
