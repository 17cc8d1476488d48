"""Readings: what a finished (or broken-off) wave says about memory, and how much it may be believed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pricing.kernel.errors import InvalidReadingError, UnknownReadingKindError
from pricing.kernel.quantities import ceil_div, maximum, minimum, require_count, require_integer


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

    @classmethod
    def parse(cls, name: str) -> ReadingKind:
        """The kind called `name`. Raises `UnknownReadingKindError` listing the known ones."""
        try:
            return cls(name)
        except ValueError:
            raise UnknownReadingKindError(f"unknown reading kind {name!r}; known: {', '.join(cls)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of the peak counter over one wave.

    peak_delta_bytes: peak allocated minus baseline allocated; negative is no reading at all (`InvalidReadingError`).
    retained_bytes: allocated after the forward minus baseline, or None where nobody looked; may be negative when the
    wave freed memory that was there before it. Both include the outputs.
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

    def __post_init__(self) -> None:
        require_count("packed_rows", self.packed_rows)
        require_count("logical_rows", self.logical_rows)
        require_count("grad_segments", self.grad_segments)
        require_count("output_bytes", self.output_bytes)
        require_integer("peak_delta_bytes", self.peak_delta_bytes)
        if self.retained_bytes is not None:
            require_integer("retained_bytes", self.retained_bytes)
        require_peak_above_baseline(self.peak_delta_bytes)

    @classmethod
    def from_peak(
        cls,
        *,
        packed_rows: int,
        logical_rows: int,
        grad_segments: int,
        output_bytes: int,
        baseline_bytes: int,
        peak_bytes: int,
        retained_bytes: int | None = None,
        grads: bool = True,
        kind: ReadingKind = ReadingKind.WHOLE_WAVE,
        closes_wave: bool = False,
    ) -> Reading:
        """A reading from the counter's own two figures. Raises `InvalidReadingError` if peak < baseline."""
        require_count("baseline_bytes", baseline_bytes)
        require_count("peak_bytes", peak_bytes)
        if peak_bytes < baseline_bytes:
            raise InvalidReadingError(
                f"peak of {peak_bytes} B lies under its baseline of {baseline_bytes} B: the counter was reset or "
                "belongs to another device; nothing was learned"
            )
        return cls(
            packed_rows=packed_rows,
            logical_rows=logical_rows,
            grad_segments=grad_segments,
            output_bytes=output_bytes,
            peak_delta_bytes=peak_bytes - baseline_bytes,
            retained_bytes=retained_bytes,
            grads=grads,
            kind=kind,
            closes_wave=closes_wave,
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
