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

from pricing.formats.codec import Natural, decode
from pricing.formats.place import Findings, Place
from pricing.formats.profile_file import SignatureField
from pricing.formats.strict_json import JsonObject, read_json_lines
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
    waves = tuple(_trace_wave(*line, index) for index, line in enumerate(read_json_lines(path)))
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


def _readings_of_lines(lines: Iterator[tuple[JsonObject, Place]]) -> Iterator[SignedReading]:
    for index, (line, place) in enumerate(lines):
        if line.get("peak_delta_bytes") is not None or line.get("peak_bytes") is None:
            yield _signed_reading(line, place)
        else:
            yield from (SignedReading(reading=reading) for reading in _trace_wave(line, place, index).readings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WaveLine:
    """What is read of a line of a trace."""

    kind: ReadingKind = ReadingKind.WHOLE_WAVE
    packed_rows: Natural
    logical_rows: Natural
    grad_segments: Natural
    output_bytes: Natural
    segment_state_bytes: Natural
    shortest_request: Natural
    peak_bytes: Natural
    forward_peak_bytes: Natural
    retained_bytes: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class _FootprintOfLine:
    """What a line that has a reserved peak says of it."""

    cache_released: bool = False
    reserved_peak_bytes: Natural
    baseline_bytes: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadingLine:
    """A line that is one reading: the fields of `Reading`, and whose it is."""

    packed_rows: Natural
    logical_rows: Natural
    grad_segments: Natural
    output_bytes: Natural
    peak_delta_bytes: int
    retained_bytes: int | None = None
    footprint_bytes: Natural | None = None
    grads: bool = True
    kind: ReadingKind = ReadingKind.WHOLE_WAVE
    closes_wave: bool = False
    signature: SignatureField | None = None


def _trace_wave(line: JsonObject, place: Place, index: int) -> TraceWave:
    open_place = Place(place.file, place.line, findings=Findings())  # labels, seconds, figures of the allocator
    read = decode(_WaveLine, line, open_place)
    if read.kind is not ReadingKind.WHOLE_WAVE:
        raise place.member("kind").error("must be whole_wave: a trace is scored against whole peaks", str(read.kind))
    if read.peak_bytes == 0:
        raise place.member("peak_bytes").error("must be at least 1: prices are scored as fractions of it", 0)
    return TraceWave(
        index=index,
        wave=place.build(lambda: _recorded_wave(read)),
        peak_bytes=read.peak_bytes,
        forward_peak_bytes=read.forward_peak_bytes,
        retained_bytes=read.retained_bytes,
        footprint_bytes=_footprint_bytes(line, read.peak_bytes, open_place),
    )


def _footprint_bytes(line: JsonObject, peak_bytes: int, place: Place) -> int | None:
    """Reserved peak above the allocated baseline, where the cache was released right before the wave."""
    if line.get("reserved_peak_bytes") is None or line.get("cache_released", False) is False:
        return None
    read = decode(_FootprintOfLine, line, place)
    least = read.baseline_bytes + peak_bytes
    if read.reserved_peak_bytes < least:
        raise place.member("reserved_peak_bytes").error(
            f"must be at least baseline_bytes + peak_bytes ({least})", read.reserved_peak_bytes
        )
    return read.reserved_peak_bytes - read.baseline_bytes


def _recorded_wave(read: _WaveLine) -> Wave:
    return Wave(
        packed_rows=read.packed_rows,
        logical_rows=read.logical_rows,
        grad_segments=read.grad_segments,
        output_bytes=read.output_bytes,
        segment_state_bytes=read.segment_state_bytes,
        workload=Workload.training(shortest_rows=read.shortest_request),
    )


def _signed_reading(line: JsonObject, place: Place) -> SignedReading:
    read = decode(_ReadingLine, line, place)
    reading = place.build(
        lambda: Reading(
            packed_rows=read.packed_rows,
            logical_rows=read.logical_rows,
            grad_segments=read.grad_segments,
            output_bytes=read.output_bytes,
            peak_delta_bytes=read.peak_delta_bytes,
            retained_bytes=read.retained_bytes,
            grads=read.grads,
            kind=read.kind,
            closes_wave=read.closes_wave,
            footprint_bytes=read.footprint_bytes,
        )
    )
    return SignedReading(reading=reading, signature=read.signature)
