"""Evidence traces and files of readings: JSON lines, read strictly.

A **trace** holds the waves of one run, one line a wave, in the order in which they ran (`spec/evidence/README.md` says
how they were recorded). Every line is a gradient wave of single-target requests under one-layer full recompute. A line
may carry more than what is read here (labels, seconds, figures of the allocator).

A file of **readings** is what `pricing learn` takes: one line a reading, by the fields of `Reading`, with an optional
`signature` object. A trace is understood there too: each of its waves is two readings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from pricing.formats.profile_file import signature_from_json
from pricing.formats.strict_json import Fields, read_json_lines
from pricing.kernel.errors import FileFormatError
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import Signature, Workload
from pricing.kernel.wave import Wave


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWave:
    """One recorded wave. The figures of bytes are above the wave's baseline and include its outputs.

    footprint_bytes: peak reserved above the baseline, of a wave that began with a released cache; None of another.

    `index` is the wave's position in its file, from 0.
    """

    index: int
    wave: Wave
    peak_bytes: int
    forward_peak_bytes: int
    retained_bytes: int
    footprint_bytes: int | None = None

    @property
    def readings(self) -> tuple[Reading, Reading]:
        """What a trainer would have learned from it: the forward's return, then the whole wave."""
        return (
            Reading.of(
                self.wave,
                peak_delta_bytes=self.forward_peak_bytes,
                retained_bytes=self.retained_bytes,
                kind=ReadingKind.FORWARD_ONLY,
            ),
            Reading.of(self.wave, peak_delta_bytes=self.peak_bytes, footprint_bytes=self.footprint_bytes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedReading:
    """A reading and the memory signature that it teaches; None where the file names none."""

    reading: Reading
    signature: Signature | None = None


def read_trace(path: str | os.PathLike[str]) -> tuple[TraceWave, ...]:
    """The waves of a trace in file order. Raises `FileFormatError` (a trace of no wave too) and `OSError`."""
    waves = tuple(_trace_wave(fields, index) for index, fields in enumerate(read_json_lines(path)))
    if not waves:
        raise FileFormatError(str(path), "holds no wave")
    return waves


def read_readings(path: str | os.PathLike[str]) -> tuple[SignedReading, ...]:
    """The readings of a file in file order, two for each line that is a wave of a trace.

    Raises `FileFormatError` (a file of no reading too) and `OSError`.
    """
    readings = tuple(_readings_of_lines(read_json_lines(path)))
    if not readings:
        raise FileFormatError(str(path), "holds no reading")
    return readings


def _readings_of_lines(lines: Iterator[Fields]) -> Iterator[SignedReading]:
    for index, fields in enumerate(lines):
        if fields.has("peak_delta_bytes") or not fields.has("peak_bytes"):
            yield _signed_reading(fields)
        else:
            yield from (SignedReading(reading=reading) for reading in _trace_wave(fields, index).readings)


def _trace_wave(fields: Fields, index: int) -> TraceWave:
    kind = fields.choice("kind", ReadingKind.parse, ReadingKind.WHOLE_WAVE)
    if kind is not ReadingKind.WHOLE_WAVE:
        raise fields.error("kind", "must be whole_wave: a trace is scored against whole peaks", str(kind))
    wave = _recorded_wave(fields)
    peak_bytes = fields.count("peak_bytes")
    if peak_bytes == 0:
        raise fields.error("peak_bytes", "must be at least 1: prices are scored as fractions of it", peak_bytes)
    return TraceWave(
        index=index,
        wave=wave,
        peak_bytes=peak_bytes,
        forward_peak_bytes=fields.count("forward_peak_bytes"),
        retained_bytes=fields.count("retained_bytes"),
        footprint_bytes=_footprint_bytes(fields, peak_bytes),
    )


def _footprint_bytes(fields: Fields, peak_bytes: int) -> int | None:
    """Reserved peak above the allocated baseline, where the cache was released right before the wave."""
    if not fields.has("reserved_peak_bytes") or not fields.flag("cache_released", False):
        return None
    reserved, baseline = fields.count("reserved_peak_bytes"), fields.count("baseline_bytes")
    if reserved - baseline < peak_bytes:
        raise fields.error(
            "reserved_peak_bytes", f"must be at least baseline_bytes + peak_bytes ({baseline + peak_bytes})", reserved
        )
    return reserved - baseline


def _recorded_wave(fields: Fields) -> Wave:
    packed_rows, logical_rows = fields.count("packed_rows"), fields.count("logical_rows")
    grad_segments, output_bytes = fields.count("grad_segments"), fields.count("output_bytes")
    segment_state_bytes = fields.count("segment_state_bytes")
    shortest_rows = fields.count("shortest_request")
    return fields.build(
        lambda: Wave(
            packed_rows=packed_rows,
            logical_rows=logical_rows,
            grad_segments=grad_segments,
            output_bytes=output_bytes,
            segment_state_bytes=segment_state_bytes,
            workload=Workload.training(shortest_rows=shortest_rows),
        )
    )


def _signed_reading(fields: Fields) -> SignedReading:
    signature = fields.optional_member("signature")
    packed_rows, logical_rows = fields.count("packed_rows"), fields.count("logical_rows")
    grad_segments, output_bytes = fields.count("grad_segments"), fields.count("output_bytes")
    peak_delta_bytes, retained_bytes = fields.integer("peak_delta_bytes"), fields.optional_integer("retained_bytes")
    footprint_bytes = fields.optional_count("footprint_bytes")
    grads, closes_wave = fields.flag("grads", True), fields.flag("closes_wave", False)
    kind = fields.choice("kind", ReadingKind.parse, ReadingKind.WHOLE_WAVE)
    fields.finish()
    reading = fields.build(
        lambda: Reading(
            packed_rows=packed_rows,
            logical_rows=logical_rows,
            grad_segments=grad_segments,
            output_bytes=output_bytes,
            peak_delta_bytes=peak_delta_bytes,
            retained_bytes=retained_bytes,
            grads=grads,
            kind=kind,
            closes_wave=closes_wave,
            footprint_bytes=footprint_bytes,
        )
    )
    return SignedReading(reading=reading, signature=None if signature is None else signature_from_json(signature))
