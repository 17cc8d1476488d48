"""What the meter knows of one interval while it is open: figures, flaws, and what they amount to.

Arithmetic only: a measurement reads no counter and takes no lock. `PeakMeter` owns it, feeds it and asks it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from enum import Enum

import torch

from adapters.torch_memory.backward import BackwardWatch
from adapters.torch_memory.trust import Flaw, Refusal
from pricing import Reading, ReadingKind, Wave


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one look at an interval says. `reading` is None exactly where `refusal` says why nothing may be
    learned.

    Bytes; `peak_bytes` and `baseline_bytes` as the counter showed them (0 where it could not be read). `freed_bytes`:
    what of the baseline was let go inside the interval. The peak may have come after that, so the reading adds it.
    `retained_bytes` is allocated minus baseline at the forward's return, None at close: a later peak says
    nothing about it. `footprint_bytes`: reserved peak minus baseline plus what was freed, None where the interval did
    not start clean.
    """

    reading: Reading | None
    flaws: tuple[Flaw, ...]
    refusal: Refusal | None
    baseline_bytes: int
    peak_bytes: int
    retained_bytes: int | None
    freed_bytes: int = 0
    footprint_bytes: int | None = None

    @property
    def peak_delta_bytes(self) -> int:
        """Peak minus baseline plus what was freed; negative only where the observation is refused for it."""
        return self.peak_bytes - self.baseline_bytes + self.freed_bytes


class Stage(Enum):
    """Where an interval is in its life."""

    FORWARD = "in its forward"
    CALLER = "in the caller's phase"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Held:
    """A storage that an interval reported as output, by whoever holds it now."""

    storage: weakref.ref[torch.UntypedStorage]
    size_bytes: int

    @property
    def is_alive(self) -> bool:
        return self.storage() is not None


@dataclass(slots=True, kw_only=True)
class Measurement:
    """One interval's state. Figures are bytes.

    delta_bytes, reserved_delta_bytes: highest allocated and reserved peak above the baseline of any look; None before
    the first. is_clean: nothing that could be given back lay idle at the baseline. live_before_step_bytes: while an
    optimizer steps before backward has run. earlier_outputs: outputs of past intervals that were alive at the baseline.
    dropped_bytes: how far live bytes lay under the baseline at the end. flaws: a set that keeps its order. sealed: the
    closing observation, where an optimizer step took it before the close.
    """

    thread: int
    stage: Stage = Stage.FORWARD
    baseline_bytes: int = 0
    is_clean: bool = False
    delta_bytes: int | None = None
    reserved_delta_bytes: int | None = None
    live_before_step_bytes: int | None = None
    earlier_outputs: tuple[Held, ...] = ()
    dropped_bytes: int = 0
    flaws: dict[Flaw, None] = field(default_factory=dict)
    refusal: Refusal | None = None
    watch: BackwardWatch | None = None
    sealed: Observation | None = None

    @property
    def backward_has_run(self) -> bool:
        """Whether there was a backward to see, and it was seen."""
        return self.watch is not None and self.watch.has_run

    @property
    def awaits_backward(self) -> bool:
        """Whether there is a backward to see that was not seen yet."""
        return self.watch is not None and not self.watch.has_run

    def flaw(self, flaw: Flaw) -> None:
        """Note why the reading may miss the peak. Once counts."""
        self.flaws[flaw] = None

    def bank(self, peak_bytes: int) -> None:
        """Keep an allocated peak that was seen."""
        self.delta_bytes = _highest(self.delta_bytes, peak_bytes - self.baseline_bytes)

    def bank_reserved(self, peak_bytes: int) -> None:
        """Keep a reserved peak that was seen."""
        self.reserved_delta_bytes = _highest(self.reserved_delta_bytes, peak_bytes - self.baseline_bytes)

    def move_baseline(self, grown_bytes: int) -> None:
        """Cut what an optimizer step left behind out of what follows. Its scratch stays in the cache: the start is no
        clean one any more."""
        self.baseline_bytes += grown_bytes
        self.is_clean = False

    @property
    def freed_bytes(self) -> int:
        """What of the baseline is known to have died inside: outputs of earlier waves, or else the net drop.

        `outputs = wave.outputs` in a loop lets the last wave's outputs go in the middle of this one.
        """
        outputs_bytes = sum(output.size_bytes for output in self.earlier_outputs if not output.is_alive)
        return max(outputs_bytes, self.dropped_bytes)

    @property
    def footprint_bytes(self) -> int | None:
        """Reserved peak above the baseline, with what was freed inside (the wave may have filled it); None without a
        clean start.

        A start with idle cache has none. What the reserved peak then shows is too high by stale blocks that the wave
        did not use, and too low where it was cut out of stale blocks that fitted it better than fresh segments would:
        neither a bound from above nor one from below.
        """
        if not self.is_clean or self.reserved_delta_bytes is None:
            return None
        return max(self.reserved_delta_bytes, self.delta_bytes or 0) + self.freed_bytes

    def closing_kind(self) -> ReadingKind:
        """The kind of the closing reading, from the flaws."""
        return ReadingKind.INTERRUPTED if self.flaws else ReadingKind.WHOLE_WAVE

    def observe(
        self,
        wave: Wave,
        kind: ReadingKind,
        *,
        grads: bool,
        retained_bytes: int | None = None,
        closes_wave: bool = False,
    ) -> Observation:
        """The present figures as an observation, with a reading unless something forbids one."""
        delta_bytes, freed_bytes = self.delta_bytes or 0, self.freed_bytes
        refusal = self.refusal
        if refusal is None and delta_bytes < 0:
            refusal = Refusal.PEAK_BELOW_BASELINE
        reading = None
        if refusal is None:
            reading = Reading(
                packed_rows=wave.evidence_rows.packed_rows,
                logical_rows=wave.evidence_rows.logical_rows,
                grad_segments=wave.evidence_rows.grad_segments,
                output_bytes=wave.output_bytes,
                peak_delta_bytes=delta_bytes + freed_bytes,
                retained_bytes=retained_bytes,
                grads=grads,
                kind=kind,
                closes_wave=closes_wave,
            )
        return Observation(
            reading=reading,
            flaws=tuple(self.flaws),
            refusal=refusal,
            baseline_bytes=self.baseline_bytes,
            peak_bytes=self.baseline_bytes + delta_bytes,
            retained_bytes=retained_bytes,
            freed_bytes=freed_bytes,
            footprint_bytes=None if refusal is not None else self.footprint_bytes,
        )


def _highest(known_bytes: int | None, seen_bytes: int) -> int:
    return seen_bytes if known_bytes is None else max(known_bytes, seen_bytes)
