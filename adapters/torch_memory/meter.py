"""The peak meter: one owner per device that hands out interval tokens and turns their peaks into readings.

    interval = meter.open(wave, grads=True)
    learn(interval.forward_done(outputs))      # forward_only: kept whatever the caller does next
    ...                                        # the caller's loss and backward
    learn(interval.close())                    # whole_wave, or interrupted with the flaws named

Intervals compose. Before a reset the peak is banked for every open interval, so an interval's peak is the
maximum of the counter over all its stretches, in whatever order intervals open and close. A peak figure that
fell without a reset of ours is somebody else's reset. See `trust` for what each of them does to a reading.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from adapters.torch_memory.backward import BackwardWatch, tensors_in
from adapters.torch_memory.counter import AcceleratorCounter, MemoryCounter
from adapters.torch_memory.cpu_counter import StorageCounter
from adapters.torch_memory.errors import MeterMisuseError
from adapters.torch_memory.trust import Flaw, Refusal
from pricing import Reading, ReadingKind, Wave


class Role(StrEnum):
    """What an interval measures; decides which readings it gives."""

    WAVE = "wave"
    """Forward and the caller's phase: a forward_only reading at the forward's return, a whole_wave one at
    close."""

    FORWARD = "forward"
    """A forward whose outputs are handed back: ends at its return with a forward_only reading."""

    SPLIT_CHILD = "split_child"
    """One sub-forward of a split wave: ends at its return. Opened inside the interval of the whole wave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one look at an interval says. `reading` is None exactly where `refusal` says why nothing may be
    learned.

    Bytes; `peak_bytes` and `baseline_bytes` as the counter showed them (0 where it could not be read). `freed_bytes`:
    what of the baseline was let go inside the interval. The peak may have come after that, so the reading adds it.
    `retained_bytes` is allocated minus baseline at the forward's return, None at close: a later peak says
    nothing about it.
    """

    reading: Reading | None
    flaws: tuple[Flaw, ...]
    refusal: Refusal | None
    baseline_bytes: int
    peak_bytes: int
    retained_bytes: int | None
    freed_bytes: int = 0

    @property
    def peak_delta_bytes(self) -> int:
        """Peak minus baseline plus what was freed; negative only where the observation is refused for it."""
        return self.peak_bytes - self.baseline_bytes + self.freed_bytes


class _Stage(Enum):
    FORWARD = "in its forward"
    CALLER = "in the caller's phase"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class _Output:
    """A storage that an interval reported as output, by whoever holds it now."""

    storage: weakref.ref[torch.UntypedStorage]
    size_bytes: int

    @property
    def is_alive(self) -> bool:
        return self.storage() is not None


class Interval:
    """A token for one measured stretch of one device, made by `PeakMeter.open`."""

    def __init__(self, meter: PeakMeter, wave: Wave, *, grads: bool, role: Role) -> None:
        self.wave = wave
        self.grads = grads
        self.role = role
        self.baseline_bytes = 0
        self._meter = meter
        self._stage = _Stage.FORWARD
        self._thread = threading.get_ident()
        self._delta_bytes: int | None = None  # highest peak above baseline of any look; None before the first
        self._live_before_step_bytes: int | None = None  # while an optimizer steps before backward has run
        self._earlier_outputs: tuple[_Output, ...] = ()  # alive at the baseline
        self._dropped_bytes = 0  # how far live bytes lay under the baseline at the end
        self._flaws: dict[Flaw, None] = {}  # a set that keeps its order
        self._refusal: Refusal | None = None
        self._watch: BackwardWatch | None = None
        self._sealed: Observation | None = None

    @property
    def is_open(self) -> bool:
        """Whether the interval still awaits its close."""
        return self._stage is not _Stage.CLOSED

    @property
    def is_in_forward(self) -> bool:
        """Whether the forward's return was not reported yet."""
        return self._stage is _Stage.FORWARD

    @property
    def is_sealed(self) -> bool:
        """Whether an optimizer step took the closing reading: what happens later is not part of the wave."""
        return self._sealed is not None

    def forward_done(self, outputs: object) -> Observation:
        """Report the forward's return. `outputs`: tensors in nested tuples, lists, dicts; their graphs are watched.

        Ends an interval of role FORWARD or SPLIT_CHILD. Raises `MeterMisuseError` if it was reported before.
        """
        return self._meter._forward_done(self, outputs)

    def close(self, *, completed: bool = True) -> Observation:
        """End the interval. Raises `MeterMisuseError` if it was closed before.

        completed: False when the forward or the loop body raised or broke off, or the iterator was closed.
        """
        return self._meter._close(self, completed=completed)

    def discard(self) -> None:
        """End the interval, in any stage, and learn nothing from it: an out-of-memory error after admission."""
        self._meter._discard(self)

    def _require(self, *stages: _Stage) -> None:
        if self._stage not in stages:
            wanted = " or ".join(stage.value for stage in stages)
            raise MeterMisuseError(f"this {self.role} interval is {self._stage.value}; it had to be {wanted}")


class PeakMeter:
    """The one owner of a device's peak counter, for use from one thread. A context manager.

    Raises `OwnershipError` while another meter owns the device. `resets` counts the meter's own resets,
    `foreign_resets` those it caught others at.
    """

    def __init__(self, counter: MemoryCounter) -> None:
        self.counter = counter
        self.resets = 0
        self.foreign_resets = 0
        self._intervals: list[Interval] = []  # open ones, oldest first
        self._outputs: list[_Output] = []  # of past intervals, as far as they are alive
        self._seen_peaks: tuple[int, ...] = ()  # of the counter, since its last reset that we know of
        self._lock = threading.RLock()  # backward hooks run in autograd's threads
        self._is_closed = False
        counter.claim(self)
        self._step_hooks = (
            register_optimizer_step_pre_hook(self._before_optimizer_step),
            register_optimizer_step_post_hook(self._after_optimizer_step),
        )

    def open(self, wave: Wave, *, grads: bool, role: Role = Role.WAVE) -> Interval:
        """Start an interval for `wave`: synchronize, take the baseline, reset the peak.

        Waves of an untrusted environment get an interval too; its observations are refusals. Raises
        `MeterMisuseError` on a closed meter.
        """
        if self._is_closed:
            raise MeterMisuseError("this meter gave its device back")
        interval = Interval(self, wave, grads=grads, role=role)
        with self._lock:
            if self._settle(interval):
                self._start(interval)
            self._intervals.append(interval)
        return interval

    def close(self) -> None:
        """Give the device back. Raises `MeterMisuseError` while intervals are open."""
        with self._lock:
            if self._is_closed:
                return
            if self._intervals:
                raise MeterMisuseError(f"{len(self._intervals)} intervals are still open")
            for hook in self._step_hooks:
                hook.remove()
            self.counter.release(self)
            self._is_closed = True

    def __enter__(self) -> PeakMeter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:  # their owners never got to close them; the error matters more
            for interval in tuple(self._intervals):
                interval.discard()
        self.close()

    # What intervals ask of their meter --------------------------------------------------------------------

    def _forward_done(self, interval: Interval, outputs: object) -> Observation:
        interval._require(_Stage.FORWARD)
        with self._lock:
            self._check_thread(interval)
            if interval.role is Role.WAVE and interval.grads:
                # Before the device is waited for: it hides the host's walk over the graph.
                interval._watch = BackwardWatch(tensors_in(outputs), self._look_during_backward)
            retained_bytes = None
            if self._settle(interval):
                self._look()
                retained_bytes = self.counter.allocated() - interval.baseline_bytes
            self._outputs += self._storages(tensors_in(outputs))
            observation = self._observe(interval, _forward_kind(interval), retained_bytes)
            if interval.role is not Role.WAVE:
                self._retire(interval)
                return observation
            interval._stage = _Stage.CALLER
        return observation

    def _close(self, interval: Interval, *, completed: bool) -> Observation:
        interval._require(_Stage.FORWARD, _Stage.CALLER)
        with self._lock:
            try:
                if interval._sealed is not None:
                    return interval._sealed
                if not completed or interval._stage is _Stage.FORWARD:
                    interval._flaws[Flaw.BROKE_OFF] = None
                self._check_thread(interval)
                return self._seal(interval)
            finally:
                self._retire(interval)

    def _discard(self, interval: Interval) -> None:
        interval._require(_Stage.FORWARD, _Stage.CALLER)
        with self._lock:
            interval._refusal = Refusal.DISCARDED
            self._retire(interval)

    # Inside the lock --------------------------------------------------------------------------------------

    def _settle(self, interval: Interval) -> bool:
        """Make the counter's figures final. False, with the refusal noted, where they cannot be believed."""
        interval._refusal = interval._refusal or self.counter.refusal()
        if interval._refusal is not None:
            return False
        self.counter.synchronize()
        return True

    def _start(self, interval: Interval) -> None:
        """Bank what the open intervals saw, then reset the counter for the new one."""
        self._look()
        for outer in self._intervals:
            outer._flaws[Flaw.NESTED_INTERVAL] = None
            if outer._thread != interval._thread:
                interval._flaws[Flaw.OVERLAPPED] = None
        interval.baseline_bytes = self.counter.allocated()
        self._outputs = [output for output in self._outputs if output.is_alive]
        interval._earlier_outputs = tuple(self._outputs)
        self._reset()
        if self.counter.allocated() != interval.baseline_bytes or self._seen_peaks[0] != interval.baseline_bytes:
            interval._refusal = Refusal.RESET_CHANGED_LIVE_BYTES

    def _reset(self) -> None:
        self.counter.reset(self)
        self.resets += 1
        self._seen_peaks = self.counter.peaks()

    def _look(self, *, besides: Collection[Interval] = ()) -> None:
        """Read the peaks, bank them for the open intervals `besides` some, and notice a reset that was not ours."""
        if not self._seen_peaks:
            return  # nothing was reset yet: the peak belongs to the whole history of the process
        peaks = self.counter.peaks()
        if any(now < seen for now, seen in zip(peaks, self._seen_peaks, strict=True)):
            self.foreign_resets += 1
            for interval in self._intervals:
                interval._flaws[Flaw.FOREIGN_RESET] = None
        self._seen_peaks = peaks
        for interval in self._intervals:
            if interval in besides:
                continue
            delta_bytes = peaks[0] - interval.baseline_bytes
            if interval._delta_bytes is None or delta_bytes > interval._delta_bytes:
                interval._delta_bytes = delta_bytes

    def _seal(self, interval: Interval) -> Observation:
        """Take the closing reading of a wave."""
        if self._settle(interval):
            self._look()
            interval._dropped_bytes = max(0, interval.baseline_bytes - self.counter.allocated())
        if interval._watch is not None and not interval._watch.has_run:
            interval._flaws[Flaw.BACKWARD_NOT_SEEN] = None
        if interval.grads and (interval._delta_bytes or 0) <= interval.wave.output_bytes:
            interval._flaws[Flaw.ZERO_COMPUTE] = None
        kind = ReadingKind.INTERRUPTED if interval._flaws else ReadingKind.WHOLE_WAVE
        return self._observe(interval, kind, retained_bytes=None)

    def _observe(self, interval: Interval, kind: ReadingKind, retained_bytes: int | None) -> Observation:
        """The interval's present figures as an observation, with a reading unless something forbids one."""
        delta_bytes = interval._delta_bytes or 0
        freed_bytes = self._freed_bytes(interval)
        refusal = interval._refusal
        if refusal is None and delta_bytes < 0:
            refusal = Refusal.PEAK_BELOW_BASELINE
        reading = None
        if refusal is None:
            wave = interval.wave
            reading = Reading(
                packed_rows=wave.evidence_rows.packed_rows,
                logical_rows=wave.evidence_rows.logical_rows,
                grad_segments=wave.evidence_rows.grad_segments,
                output_bytes=wave.output_bytes,
                peak_delta_bytes=delta_bytes + freed_bytes,
                retained_bytes=retained_bytes,
                grads=interval.grads,
                kind=kind,
                closes_wave=kind is ReadingKind.FORWARD_ONLY and interval.role is Role.FORWARD and not interval.grads,
            )
        return Observation(
            reading=reading,
            flaws=tuple(interval._flaws),
            refusal=refusal,
            baseline_bytes=interval.baseline_bytes,
            peak_bytes=interval.baseline_bytes + delta_bytes,
            retained_bytes=retained_bytes,
            freed_bytes=freed_bytes,
        )

    def _freed_bytes(self, interval: Interval) -> int:
        """What of the baseline is known to have died inside: outputs of earlier waves, or else the net drop.

        `outputs = wave.outputs` in a loop lets the last wave's outputs go in the middle of this one.
        """
        outputs_bytes = sum(output.size_bytes for output in interval._earlier_outputs if not output.is_alive)
        return max(outputs_bytes, interval._dropped_bytes)

    def _storages(self, tensors: Iterable[torch.Tensor]) -> list[_Output]:
        """The storages of `tensors` on this device, each once."""
        storages: dict[int, torch.UntypedStorage] = {}
        for tensor in tensors:
            if tensor.device == self.counter.device and tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                storages[id(storage)] = storage
        return [_Output(weakref.ref(storage), storage.nbytes()) for storage in storages.values()]

    def _check_thread(self, interval: Interval) -> None:
        if threading.get_ident() != interval._thread:
            interval._flaws[Flaw.CROSSED_THREADS] = None

    def _retire(self, interval: Interval) -> None:
        """Take the interval out. Those that opened after it and are still open have outlived it."""
        position = self._intervals.index(interval)
        for younger in self._intervals[position + 1 :]:
            younger._flaws[Flaw.OVERLAPPED] = None
        del self._intervals[position]
        interval._stage = _Stage.CLOSED
        if interval._watch is not None:
            interval._watch.remove()

    # Hooks ------------------------------------------------------------------------------------------------

    def _look_during_backward(self) -> None:
        """A look in mid-air, so that a later foreign reset has less to hide behind. Peaks are host-side: no wait."""
        with self._lock:
            if self.counter.refusal() is None:
                self._look()

    def _before_optimizer_step(self, _optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """The first optimizer step after backward ends a wave's measured part: optimizer state is no cost of a wave.

        A step before that (a critic's, say) must not end it, or the backward to come would never be measured. It is
        cut out: the peak before it is banked, the state it leaves behind moves the baseline.
        """
        with self._lock:
            for interval in self._intervals:
                if interval._stage is not _Stage.CALLER or interval._sealed is not None:
                    continue
                if interval._watch is None or interval._watch.has_run:
                    interval._sealed = self._seal(interval)
                elif self._settle(interval):
                    self._look()
                    interval._live_before_step_bytes = self.counter.allocated()

    def _after_optimizer_step(self, _optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        with self._lock:
            stepped = [interval for interval in self._intervals if interval._live_before_step_bytes is not None]
            ran_inside = [interval for interval in stepped if interval._watch is not None and interval._watch.has_run]
            for interval in stepped:
                before_bytes, interval._live_before_step_bytes = interval._live_before_step_bytes, None
                interval._flaws[Flaw.STEP_BEFORE_BACKWARD] = None
                # A step that ran backward itself (a closure) is measured whole: its peak is the wave's.
                if not ran_inside and self._settle(interval):
                    assert before_bytes is not None
                    interval.baseline_bytes += self.counter.allocated() - before_bytes
            if stepped and not ran_inside and self.counter.refusal() is None:
                self._look(besides=stepped)
                self._reset()


def _forward_kind(interval: Interval) -> ReadingKind:
    """The kind of the reading at the forward's return. A split child stays one: it is incomplete either
    way."""
    if interval.role is Role.SPLIT_CHILD:
        return ReadingKind.SPLIT_CHILD
    return ReadingKind.INTERRUPTED if interval._flaws else ReadingKind.FORWARD_ONLY


_meters: dict[torch.device, PeakMeter] = {}
_meters_lock = threading.Lock()


def meter_for(device: torch.device | str) -> PeakMeter:
    """The process's meter of `device`, made on the first call (or after the last one was closed).

    On "cpu" that starts the storage counter in the calling thread, where it stays until the meter is closed.
    """
    device = torch.device(device)
    counter: MemoryCounter = StorageCounter() if device.type == "cpu" else AcceleratorCounter(device)
    with _meters_lock:
        meter = _meters.get(counter.device)
        if meter is None or meter._is_closed:
            meter = PeakMeter(counter)
            _meters[counter.device] = meter
        return meter
