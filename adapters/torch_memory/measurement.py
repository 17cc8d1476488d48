"""What the meter knows of one interval while it is open: figures, flaws, and what they amount to.

Arithmetic only: a measurement reads no counter and takes no lock. `PeakMeter` owns it, feeds it and asks it.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import torch

from adapters.torch_memory.backward import AccumulationWatch, BackwardWatch
from adapters.torch_memory.gradients import GradientWatch
from adapters.torch_memory.trust import Flaw, Unlearnable
from pricing import Reading, ReadingKind, Wave
from pricing.kernel.reading import out_of_memory_footprint_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one look at an interval says. `reading` is None exactly where `refusal` says why nothing may be
    learned.

    Bytes; `peak_bytes` and `baseline_bytes` as the counter showed them (0 where it could not be read). `freed_bytes`:
    what of the baseline was let go inside the interval. The peak may have come after that, so the reading adds it.
    `retained_bytes` is allocated minus baseline at the forward's return, None at close: a later peak says
    nothing about it. `left_bytes`: what of the peak was gradients (and states of an optimizer that stepped inside
    backward) that the interval made and left behind: they are held back once, and no cost of its rows, so the
    reading is without. `reading_with_gradients`: the same with them, of a wave that had gradients to make; complete
    only where it found none of them and made and left every one (`pricing.kernel.made_gradients`).

    bare_bytes: the highest that was seen less the outputs that may have been there by then, where somebody said when
    outputs were made (0 elsewhere): so much its rows took for certain. bare_footprint_bytes: the same of what was
    reserved, None without a footprint.
    """

    reading: Reading | None
    flaws: tuple[Flaw, ...]
    refusal: Unlearnable | None
    baseline_bytes: int
    peak_bytes: int
    retained_bytes: int | None
    freed_bytes: int = 0
    left_bytes: int = 0
    bare_bytes: int = 0
    bare_footprint_bytes: int | None = None
    reading_with_gradients: Reading | None = None

    @property
    def footprint_bytes(self) -> int | None:
        """Reserved peak minus baseline plus what was freed, less what was left; of a wave that ran out of memory what
        it would at least have needed. None where the interval did not start clean, or nothing may be learned."""
        return None if self.reading is None else self.reading.footprint_bytes

    @property
    def peak_delta_bytes(self) -> int:
        """Peak minus baseline plus what was freed, less what was left; negative only where it is refused for that."""
        return self.peak_bytes - self.baseline_bytes + self.freed_bytes - self.left_bytes


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


@dataclass(frozen=True, slots=True)
class Made:
    """Something that a wave made to stay: a gradient, or (without a storage) what a step inside backward left."""

    size_bytes: int
    storage: weakref.ref[torch.UntypedStorage] | None = None

    @property
    def stayed_bytes(self) -> int:
        return self.size_bytes if self.storage is None or self.storage() is not None else 0


@dataclass(slots=True)
class PeakTrack:
    """A peak above the baseline, with how many things had been made to stay before each of its rises.

    Let g(t) be what had been made by the moment t and stayed to the end. What the rows cost is the highest of
    peak(t) - g(t). A rise seen by one look came after the look before, so no less than what had been made by then is in
    it: `highest(before)` takes just that off each rise. Where the peak did not rise, the moment lies under an earlier
    rise, and more had been made. So the result is never too low, and too high by what was made between two looks.
    """

    peak_bytes: int | None = None
    rises: list[tuple[int, int]] = field(default_factory=list)
    made_before: int = 0

    def bank(self, seen_bytes: int, made: int) -> None:
        """A look at the peak above the baseline, when `made` things had been made."""
        if self.peak_bytes is None or seen_bytes > self.peak_bytes:
            self.peak_bytes = seen_bytes
            self.rises.append((self.made_before, seen_bytes))
        self.made_before = made

    def without(self, stayed_before: Sequence[int]) -> int:
        """The highest rise less what had been made to stay before it. `stayed_before[n]`: of the first n things."""
        return max((seen_bytes - stayed_before[made] for made, seen_bytes in self.rises), default=0)


@dataclass(slots=True, kw_only=True)
class Measurement:
    """One interval's state. Figures are bytes.

    allocated, reserved: the peaks above the baseline; after_backward: as they stood when backward had run, with
    live_after_backward_bytes. made: what the wave made to stay, in order (made_storages: by identity). gradients: its
    look at the parameters' gradients. is_clean: nothing that could be given back lay idle at the baseline.
    live_before_step_bytes: while an optimizer steps before backward has run. earlier_outputs: what was alive at the
    baseline of past intervals' outputs and of gradients. dropped_bytes: how far live bytes lay under the baseline at
    the end. left_over_bytes: of a wave whose forward the caller runs (is_the_callers), what the caller may still have
    held of the one before when this one began. bare_bytes, bare_reserved_bytes: the peaks less the outputs made before
    them; outputs_bytes: of outputs that were announced. flaws: a set that keeps its order. sealed: the closing
    observation, where an optimizer step took it before the close.
    """

    thread: int
    stage: Stage = Stage.FORWARD
    baseline_bytes: int = 0
    is_clean: bool = False
    allocated: PeakTrack = field(default_factory=PeakTrack)
    reserved: PeakTrack = field(default_factory=PeakTrack)
    made: list[Made] = field(default_factory=list)
    made_storages: dict[int, weakref.ref[torch.UntypedStorage]] = field(default_factory=dict)
    unseen_made_bytes: int = 0
    gradients: GradientWatch | None = None
    live_after_backward_bytes: int | None = None
    after_backward: tuple[PeakTrack, PeakTrack] | None = None
    live_before_step_bytes: int | None = None
    earlier_outputs: tuple[Held, ...] = ()
    dropped_bytes: int = 0
    is_the_callers: bool = False
    left_over_bytes: int = 0
    outputs_bytes: int = 0
    bare_bytes: int = 0
    bare_reserved_bytes: int = 0
    flaws: dict[Flaw, None] = field(default_factory=dict)
    refusal: Unlearnable | None = None
    watch: BackwardWatch | AccumulationWatch | None = None
    sealed: Observation | None = None

    @property
    def backward_has_run(self) -> bool:
        """Whether there was a backward to see, and it was seen."""
        return self.watch is not None and self.watch.has_run

    @property
    def awaits_backward(self) -> bool:
        """Whether there is a backward to see that was not seen yet."""
        return self.watch is not None and not self.watch.has_run

    def is_new(self, held: Held) -> bool:
        """Whether a storage is asked about for the first time: gradients may be cut from one buffer."""
        storage = held.storage()
        known = self.made_storages.get(id(storage))
        self.made_storages[id(storage)] = held.storage
        return known is None or known() is not storage

    def flaw(self, flaw: Flaw) -> None:
        """Note why the reading may miss the peak. Once counts."""
        self.flaws[flaw] = None

    def bank(self, peak_bytes: int) -> None:
        """Keep an allocated peak that was seen."""
        self.allocated.bank(peak_bytes - self.baseline_bytes, len(self.made))

    def bank_reserved(self, peak_bytes: int) -> None:
        """Keep a reserved peak that was seen."""
        self.reserved.bank(peak_bytes - self.baseline_bytes, len(self.made))

    def outputs_follow(self, size_bytes: int, copied_bytes: int) -> None:
        """Note, after a look, that outputs of `size_bytes` are made next, of which `copied_bytes` are there in another
        form.

        Let a(t) be allocated bytes and o(t) what of it is outputs. The rows' cost is the highest a(t) - o(t). Up to now
        o was at most what was announced before, so the peak less that is no more than it.
        """
        there_bytes = self.outputs_bytes + min(copied_bytes, size_bytes)
        self.bare_bytes = max(self.bare_bytes, (self.allocated.peak_bytes or 0) - there_bytes)
        self.bare_reserved_bytes = max(self.bare_reserved_bytes, (self.reserved.peak_bytes or 0) - there_bytes)
        self.outputs_bytes += size_bytes

    def backward_ended(self, live_bytes: int) -> None:
        """Keep the peaks as they stand when backward has run."""
        self.live_after_backward_bytes = live_bytes
        self.after_backward = (_copy(self.allocated), _copy(self.reserved))

    def cut_after_backward(self) -> None:
        """Forget the peaks that came after backward: a step of an optimizer that PyTorch does not know."""
        if self.after_backward is not None:
            self.allocated, self.reserved = self.after_backward

    def move_baseline(self, grown_bytes: int, releasable_bytes: int) -> None:
        """Cut what an optimizer step left behind out of what follows. Where its scratch stays in the cache, the start
        is no clean one any more."""
        self.baseline_bytes += grown_bytes
        self.is_clean = self.is_clean and releasable_bytes == 0

    @property
    def freed_bytes(self) -> int:
        """What of the baseline is known to have died inside: outputs of earlier waves, or else the net drop.

        `outputs = wave.outputs` in a loop lets the last wave's outputs go in the middle of this one. Where nobody
        reports outputs (`outputs = model(...)` in the caller's own loop) all that was left over of the wave before
        counts: it may have been let go before the peak, and a reading too high by it is safe.
        """
        outputs_bytes = sum(output.size_bytes for output in self.earlier_outputs if not output.is_alive)
        return max(outputs_bytes, self.dropped_bytes, self.left_over_bytes)

    @property
    def footprint_bytes(self) -> int | None:
        """Reserved peak above the baseline, with what was freed inside (the wave may have filled it); None without a
        clean start.

        A start with idle cache has none. What the reserved peak then shows is too high by stale blocks that the wave
        did not use, and too low where it was cut out of stale blocks that fitted it better than fresh segments would:
        neither a bound from above nor one from below.
        """
        if not self.is_clean or self.reserved.peak_bytes is None:
            return None
        stayed = self._stayed_before()
        return max(0, self.reserved.without(stayed), self.allocated.without(stayed)) + self.freed_bytes

    @property
    def footprint_with_gradients_bytes(self) -> int | None:
        """The same with what was made and left; None without a clean start."""
        if not self.is_clean or self.reserved.peak_bytes is None:
            return None
        return max(0, self.reserved.peak_bytes, self.allocated.peak_bytes or 0) + self.freed_bytes

    @property
    def had_gradients_to_make(self) -> bool:
        """Whether a reading with gradients says anything: not where all were there, nor where some that were there died
        inside, which would count them twice."""
        return self.gradients is not None and not (
            self.gradients.found_all or (self.gradients.found_some and self.freed_bytes > 0)
        )

    @property
    def stayed_bytes(self) -> int:
        """How much of what was made to stay is still there."""
        return sum(made.stayed_bytes for made in self.made)

    def _stayed_before(self) -> list[int]:
        """How much of the first n things made is still there, for every n."""
        return list(itertools.accumulate((made.stayed_bytes for made in self.made), initial=0))

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
        delta_bytes, freed_bytes = self.allocated.peak_bytes or 0, self.freed_bytes
        compute_bytes = self.allocated.without(self._stayed_before())
        refusal = self.refusal
        if refusal is None and delta_bytes < 0:
            refusal = Unlearnable.PEAK_BELOW_BASELINE
        reading = None
        if refusal is None:
            reading = Reading.of(
                wave,
                peak_delta_bytes=max(0, compute_bytes) + freed_bytes,
                footprint_bytes=self.footprint_bytes,
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
            left_bytes=0 if refusal is not None else delta_bytes - max(0, compute_bytes),
            reading_with_gradients=None
            if reading is None or not self.had_gradients_to_make
            else self._reading_with_gradients(wave, kind, retained_bytes),
            bare_bytes=self.bare_bytes + freed_bytes,
            bare_footprint_bytes=(
                None
                if reading is None or reading.footprint_bytes is None
                else max(self.bare_bytes, self.bare_reserved_bytes) + freed_bytes
            ),
        )

    def _reading_with_gradients(self, wave: Wave, kind: ReadingKind, retained_bytes: int | None) -> Reading:
        """Whole only where every gradient was made and left; any other reading can only raise."""
        assert self.gradients is not None
        if kind is ReadingKind.WHOLE_WAVE and not self.gradients.made_all:
            kind = ReadingKind.INTERRUPTED
        return Reading.of(
            wave,
            peak_delta_bytes=max(0, self.allocated.peak_bytes or 0) + self.freed_bytes,
            footprint_bytes=self.footprint_with_gradients_bytes,
            retained_bytes=retained_bytes,
            grads=True,
            kind=kind,
        )

    def observe_out_of_memory(
        self,
        wave: Wave,
        *,
        grads: bool,
        available_bytes: int,
        reserved_bytes: int,
        requested_bytes: int,
        together_bytes: int = 0,
    ) -> Observation:
        """The wave ran out of memory: what it at least needed, and its peak as far as it got.

        Also where the figures of the counter are refused: that what was available did not do is known without them.
        available_bytes: what it was admitted against; together_bytes: with what it was to make of gradients.
        reserved_bytes: reserved when it failed, above the baseline.
        """
        delta_bytes = self.allocated.peak_bytes or 0
        is_believed = self.refusal is None and delta_bytes >= 0
        compute_bytes = self.allocated.without(self._stayed_before()) if is_believed else 0
        freed_bytes = self.freed_bytes if is_believed else 0
        peak_delta_bytes = max(0, compute_bytes) + freed_bytes
        footprint_bytes = out_of_memory_footprint_bytes(
            available_bytes=available_bytes,
            reserved_bytes=max(peak_delta_bytes, reserved_bytes) if is_believed else 0,
            requested_bytes=requested_bytes,
        )
        return Observation(
            reading=Reading.of(
                wave,
                peak_delta_bytes=peak_delta_bytes,
                footprint_bytes=footprint_bytes,
                grads=grads,
                kind=ReadingKind.OUT_OF_MEMORY,
            ),
            flaws=tuple(self.flaws),
            refusal=None,
            baseline_bytes=self.baseline_bytes if is_believed else 0,
            peak_bytes=self.baseline_bytes + delta_bytes if is_believed else 0,
            retained_bytes=None,
            freed_bytes=freed_bytes,
            left_bytes=delta_bytes - max(0, compute_bytes) if is_believed else 0,
            reading_with_gradients=Reading.of(
                wave,
                peak_delta_bytes=peak_delta_bytes,
                footprint_bytes=out_of_memory_footprint_bytes(
                    available_bytes=together_bytes,
                    reserved_bytes=max(peak_delta_bytes, reserved_bytes) if is_believed else 0,
                    requested_bytes=requested_bytes,
                ),
                grads=grads,
                kind=ReadingKind.OUT_OF_MEMORY,
            )
            if grads
            else None,
        )


def _copy(track: PeakTrack) -> PeakTrack:
    return PeakTrack(track.peak_bytes, list(track.rises), track.made_before)
