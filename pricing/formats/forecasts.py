"""Forecasts in a profile file: what a trainer prices first waves by before it learned anything.

    "forecasts": [{"of": {name: text, ...}, "assumption": "...", "lines": [{"phase": ..., "fixed_bytes": ...}, ...]}]

They are no readings and stand beside them: they raise no rate and are in no profile. Each says itself what it is of, so
the file's environment is none of its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pricing.formats.codec import Natural, encode
from pricing.formats.place import Place
from pricing.kernel.forecast import Forecast, ForecastLine, ForecastOf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One phase of a forecast. Every figure must be there: one left out would read as 0, and price too little."""

    phase: str
    fixed_bytes: Natural
    bytes_per_packed_row: Natural
    bytes_per_logical_row: Natural
    bytes_per_segment: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastEntry:
    """A forecast and what it is of."""

    of: Mapping[str, str]
    assumption: str
    lines: tuple[_Line, ...]


def forecasts_to_json(forecasts: Mapping[ForecastOf, Forecast]) -> list[object]:
    """As JSON values, in the order of what they are of; equal for equal forecasts."""
    return [
        encode(
            ForecastEntry(
                of=dict(of),
                assumption=forecast.assumption,
                lines=tuple(
                    _Line(
                        phase=line.phase,
                        fixed_bytes=line.fixed_bytes,
                        bytes_per_packed_row=line.bytes_per_packed_row,
                        bytes_per_logical_row=line.bytes_per_logical_row,
                        bytes_per_segment=line.bytes_per_segment,
                    )
                    for line in forecast.lines
                ),
            )
        )
        for of, forecast in sorted(forecasts.items(), key=lambda entry: entry[0])
    ]


def forecasts_of(entries: tuple[ForecastEntry, ...], place: Place) -> dict[ForecastOf, Forecast]:
    """The forecasts of a document, whose entries stand at `place`. Raises `FileFormatError`."""
    forecasts: dict[ForecastOf, Forecast] = {}
    for at, entry in enumerate(entries):
        of = tuple(sorted(entry.of.items()))
        if of in forecasts:
            raise place.item(at).member("of").error("stands there twice")
        if not entry.lines:
            raise place.item(at).member("lines").error("a forecast has one at least")
        forecasts[of] = Forecast(lines=tuple(map(_kernel_line, entry.lines)), assumption=entry.assumption)
    return forecasts


def _kernel_line(line: _Line) -> ForecastLine:
    return ForecastLine(
        phase=line.phase,
        fixed_bytes=line.fixed_bytes,
        bytes_per_packed_row=line.bytes_per_packed_row,
        bytes_per_logical_row=line.bytes_per_logical_row,
        bytes_per_segment=line.bytes_per_segment,
    )
