"""Readings: what a finished (or broken-off) wave says about memory, and how much it may be believed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pricing.kernel.errors import InvalidReadingError, UnknownReadingKindError
from pricing.kernel.quantities import ceil_div, maximum, minimum, require_count, require_integer
from pricing.kernel.wave import Wave


class ReadingKind(StrEnum):
    """Where a reading comes from (laws, section 2)."""

    WHOLE_WAVE = "whole_wave"
    """Forward, the caller's loss and backward inside the wave; counter reset by nobody else; backward seen to run."""

    FORWARD_ONLY = "forward_only"
    """The forward's return. Complete only without gradients and where the wave gives no further reading."""

    SPLIT_CHILD = "split_child"
    """One sub-forward of a split wave."""

    INTERRUPTED = "interrupted"
    """The wave's own peak may have been missed: the caller raised or broke off, a nested forward ran, the counter fell
    below the forward's peak, backward was not seen, or a gradient wave computed nothing."""

    OUT_OF_MEMORY = "out_of_memory"
    """The wave ran out of memory. Its footprint is what it would at least have needed, by
    `out_of_memory_footprint_bytes`; its peak is only as far as it got."""

    @classmethod
    def parse(cls, name: str) -> ReadingKind:
        """The kind called `name`. Raises `UnknownReadingKindError` listing the known ones."""
        try:
            return cls(name)
        except ValueError:
            raise UnknownReadingKindError(f"unknown reading kind {name!r}; known: {', '.join(cls)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of the allocator over one wave.

    peak_delta_bytes: peak allocated minus baseline allocated; negative is no reading at all (`InvalidReadingError`).
    footprint_bytes: peak reserved minus baseline allocated, of a wave that began with a released cache: what it took of
    the device, blocks that could not be reused included. None where the wave began otherwise, or nobody looked; never
    below the peak, and never missing from an out-of-memory reading (`InvalidReadingError`).
    retained_bytes: allocated after the forward minus baseline, or None where nobody looked; may be negative when the
    wave freed memory that was there before it. All three include the outputs.
    grads: whether the wave ran with gradients. closes_wave: the wave gives no further reading (only asked of a
    forward_only reading; not knowing is False, which can only raise prices).
    """

    packed_rows: int
    logical_rows: int
    grad_segments: int
    output_bytes: int
    peak_delta_bytes: int
    retained_bytes: int | None = None
    grads: bool = True
    kind: ReadingKind = ReadingKind.WHOLE_WAVE
    closes_wave: bool = False
    footprint_bytes: int | None = None

    def __post_init__(self) -> None:
        require_count("packed_rows", self.packed_rows)
        require_count("logical_rows", self.logical_rows)
        require_count("grad_segments", self.grad_segments)
        require_count("output_bytes", self.output_bytes)
        require_integer("peak_delta_bytes", self.peak_delta_bytes)
        if self.retained_bytes is not None:
            require_integer("retained_bytes", self.retained_bytes)
        require_peak_above_baseline(self.peak_delta_bytes)
        if self.footprint_bytes is not None:
            require_integer("footprint_bytes", self.footprint_bytes)
            require_footprint_above_peak(self.footprint_bytes, self.peak_delta_bytes)
        elif self.kind is ReadingKind.OUT_OF_MEMORY:
            raise InvalidReadingError("an out-of-memory reading must say what it would have needed: no footprint_bytes")

    @classmethod
    def of(
        cls,
        wave: Wave,
        *,
        peak_delta_bytes: int,
        footprint_bytes: int | None = None,
        retained_bytes: int | None = None,
        grads: bool = True,
        kind: ReadingKind = ReadingKind.WHOLE_WAVE,
        closes_wave: bool = False,
    ) -> Reading:
        """A reading of `wave`: of the rows and segments that it is evidence for, and of its outputs."""
        rows = wave.evidence_rows
        return cls(
            packed_rows=rows.packed_rows,
            logical_rows=rows.logical_rows,
            grad_segments=rows.grad_segments,
            output_bytes=wave.output_bytes,
            peak_delta_bytes=peak_delta_bytes,
            footprint_bytes=footprint_bytes,
            retained_bytes=retained_bytes,
            grads=grads,
            kind=kind,
            closes_wave=closes_wave,
        )

    @property
    def of_footprint(self) -> Reading | None:
        """The same reading with the footprint in the place of the peak; None where there is no footprint.

        What was retained is taken to hold its share of the footprint, as of the peak: retained * footprint / peak.
        """
        footprint, retained = self.footprint_bytes, self.retained_bytes
        if footprint is None:
            return None
        return Reading(
            packed_rows=self.packed_rows,
            logical_rows=self.logical_rows,
            grad_segments=self.grad_segments,
            output_bytes=self.output_bytes,
            peak_delta_bytes=footprint,
            footprint_bytes=footprint,
            retained_bytes=None if retained is None else scaled_up(retained, footprint, self.peak_delta_bytes),
            grads=self.grads,
            kind=self.kind,
            closes_wave=self.closes_wave,
        )

    @property
    def is_complete(self) -> bool:
        """Whether this reading saw the wave's whole peak: only such evidence may lower a price."""
        if self.kind is ReadingKind.WHOLE_WAVE:
            return True
        return self.kind is ReadingKind.FORWARD_ONLY and not self.grads and self.closes_wave

    @property
    def compute_bytes(self) -> int:
        """Peak above baseline without the outputs, at least 0."""
        return maximum(0, self.peak_delta_bytes - self.output_bytes)

    @property
    def retained_compute_bytes(self) -> int | None:
        """What stays after the forward without the outputs: at least 0, at most the peak; None where nobody looked."""
        if self.retained_bytes is None:
            return None
        return maximum(0, minimum(self.retained_bytes, self.peak_delta_bytes) - self.output_bytes)

    @property
    def peak_bytes_per_row(self) -> int:
        """Compute bytes per packed row, rounded up (at most one byte a row too many). Needs packed_rows >= 1."""
        return ceil_div(self.compute_bytes, self.packed_rows)


def require_peak_above_baseline(peak_delta_bytes: int) -> None:
    """Check that a peak does not lie under its baseline. Raises `InvalidReadingError`."""
    if peak_delta_bytes < 0:
        raise InvalidReadingError(
            f"peak lies {-peak_delta_bytes} B under its baseline: the counter was reset or belongs to another device; "
            "nothing was learned"
        )


def require_footprint_above_peak(footprint_bytes: int, peak_delta_bytes: int) -> None:
    """Check that what was reserved is at least what was allocated. Raises `InvalidReadingError`."""
    if footprint_bytes < peak_delta_bytes:
        raise InvalidReadingError(
            f"footprint of {footprint_bytes} B lies under the peak of {peak_delta_bytes} B: an allocator "
            "reserves what it hands out; nothing was learned"
        )


def scaled_up(retained_bytes: int, footprint_bytes: int, peak_bytes: int) -> int:
    """retained * footprint / peak, rounded up, of what the peak holds of it; what is not above 0 stays as it is."""
    if retained_bytes <= 0 or peak_bytes == 0:
        return minimum(0, retained_bytes)
    return ceil_div(minimum(retained_bytes, peak_bytes) * footprint_bytes, peak_bytes)


OUT_OF_MEMORY_RAISE_NUMERATOR: Final = 17
OUT_OF_MEMORY_RAISE_DENOMINATOR: Final = 16
"""A wave that ran out of memory needed more than what was available; it is taken to have needed 1/16 more at least, so
that each error moves the price by a known share (INV-18). Smaller steps would repeat an error more often, larger ones
give away more of a device that lacked a few bytes."""


def out_of_memory_footprint_bytes(*, available_bytes: int, reserved_bytes: int, requested_bytes: int) -> int:
    """The footprint of a wave that ran out of memory: what it at least needed, or 17/16 of what it could have.

    available_bytes: what the wave was admitted against. reserved_bytes: what the allocator had reserved when it failed,
    above what was in use when the wave opened. requested_bytes: what it then asked for. Always above `available_bytes`.
    """
    raised = ceil_div(OUT_OF_MEMORY_RAISE_NUMERATOR * maximum(0, available_bytes), OUT_OF_MEMORY_RAISE_DENOMINATOR)
    return maximum(maximum(1, raised), reserved_bytes + requested_bytes)
