"""Forecasts in a profile file: what a trainer prices first waves by before it learned anything.

    "forecasts": [{"of": {name: text, ...}, "assumption": "...", "lines": [{"phase": ..., "fixed_bytes": ...}, ...]}]

They are no readings and stand beside them: they raise no rate and are in no profile. Each says itself what it is of, so
the file's environment is none of its business.
"""

from __future__ import annotations

from collections.abc import Mapping

from pricing.formats.strict_json import Fields
from pricing.kernel.forecast import Forecast, ForecastLine, ForecastOf


def forecasts_to_json(forecasts: Mapping[ForecastOf, Forecast]) -> list[dict[str, object]]:
    """As JSON values, in the order of what they are of; equal for equal forecasts."""
    return [
        {
            "of": dict(of),
            "assumption": forecast.assumption,
            "lines": [
                {
                    "phase": line.phase,
                    "fixed_bytes": line.fixed_bytes,
                    "bytes_per_packed_row": line.bytes_per_packed_row,
                    "bytes_per_logical_row": line.bytes_per_logical_row,
                    "bytes_per_segment": line.bytes_per_segment,
                }
                for line in forecast.lines
            ],
        }
        for of, forecast in sorted(forecasts.items(), key=lambda entry: entry[0])
    ]


def forecasts_from_json(fields: Fields) -> dict[ForecastOf, Forecast]:
    """The document's `forecasts`; none where it has no such field. Raises `FileFormatError`."""
    forecasts: dict[ForecastOf, Forecast] = {}
    for entry in fields.members("forecasts") if fields.has("forecasts") else ():
        facts = entry.member("of")
        of = tuple(sorted((name, facts.text(name)) for name in facts.unknown))
        if of in forecasts:
            raise entry.error("of", "stands there twice")
        lines = tuple(_line(line) for line in entry.members("lines"))
        if not lines:
            raise entry.error("lines", "a forecast has one at least")
        forecasts[of] = Forecast(lines=lines, assumption=entry.text("assumption"))
        entry.finish()
    return forecasts


def _line(fields: Fields) -> ForecastLine:
    line = ForecastLine(
        phase=fields.text("phase"),
        fixed_bytes=fields.count("fixed_bytes"),
        bytes_per_packed_row=fields.count("bytes_per_packed_row"),
        bytes_per_logical_row=fields.count("bytes_per_logical_row"),
        bytes_per_segment=fields.count("bytes_per_segment"),
    )
    fields.finish()
    return line
