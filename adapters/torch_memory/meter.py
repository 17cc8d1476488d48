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
import time
import weakref
from collections.abc import Collection, Iterable
from enum import StrEnum
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from adapters.torch_memory.backward import AccumulationWatch, BackwardWatch, tensors_in
from adapters.torch_memory.counter import AcceleratorCounter, MemoryCounter
from adapters.torch_memory.cpu_counter import StorageCounter
from adapters.torch_memory.errors import MeterMisuseError
from adapters.torch_memory.gradients import GradientAccount, local_tensor
from adapters.torch_memory.measurement import Held, Made, Measurement, Observation, Stage
from adapters.torch_memory.out_of_memory import requested_bytes
from adapters.torch_memory.trust import Flaw, Unlearnable
from pricing import ReadingKind, Wave

GRADIENT_LOOKS = 32
"""How often the peak is looked at while gradients are made: a reading is too high by at most one part of them."""

STATE_SHARE = 8
"""What stays after backward counts as an optimizer's states from 1/8 of the gradients on (8-bit states take 1/2)."""


class Role(StrEnum):
    """What an interval measures; decides which readings it gives."""

    WAVE = "wave"
    """Forward and the caller's phase: a forward_only reading at the forward's return, a whole_wave one at
    close."""

    FORWARD = "forward"
    """A forward whose outputs are handed back: ends at its return with a forward_only reading."""

    SPLIT_CHILD = "split_child"
    """One sub-forward of a split wave: ends at its return. Opened inside the interval of the whole wave."""


class Interval:
    """A token for one measured stretch of one device, made by `PeakMeter.open`."""

    def __init__(self, meter: PeakMeter, measured: Measurement, wave: Wave, *, grads: bool, role: Role) -> None:
        self.wave = wave
        self.grads = grads
        self.role = role
        self._meter = meter
        self._measured = measured

    @property
    def baseline_bytes(self) -> int:
        """Live bytes at the open (moved by optimizer steps that are cut out)."""
        return self._measured.baseline_bytes

    @property
    def is_open(self) -> bool:
        """Whether the interval still awaits its close."""
        return self._measured.stage is not Stage.CLOSED

    @property
    def is_in_forward(self) -> bool:
        """Whether the forward's return was not reported yet."""
        return self._measured.stage is Stage.FORWARD

    @property
    def is_sealed(self) -> bool:
        """Whether an optimizer step took the closing reading: what happens later is not part of the wave."""
        return self._measured.sealed is not None

    @property
    def started_clean(self) -> bool:
        """Whether nothing that could be given back to the driver lay idle at the open: only then is there a footprint
        to read."""
        return self._measured.is_clean

    def forward_done(self, outputs: object) -> Observation:
        """Report the forward's return. `outputs`: tensors in nested tuples, lists, dicts; their graphs are watched.

        Ends an interval of role FORWARD or SPLIT_CHILD. Raises `MeterMisuseError` if it was reported before.
        """
        return self._meter._forward_done(self, outputs)

    def forward_left_to_caller(self, parameters: Iterable[torch.Tensor]) -> None:
        """Say that the caller runs the forward too, inside the interval (role WAVE): nobody will report its return.

        parameters: those that the wave's backward reaches; that backward has run is seen by them. There is no reading
        of the forward, so nothing is learned of what it retains. Raises `MeterMisuseError` if it was reported before.
        """
        self._meter._forward_left_to_caller(self, parameters)

    def close(self, *, completed: bool = True) -> Observation:
        """End the interval. Raises `MeterMisuseError` if it was closed before.

        completed: False when the forward or the loop body raised or broke off, or the iterator was closed.
        """
        return self._meter._close(self, completed=completed)

    def out_of_memory(
        self, error: BaseException | None = None, *, available_bytes: int = 0, together_bytes: int = 0
    ) -> Observation:
        """End the interval, in any stage, because the device ran out of memory in it. The reading says what the wave at
        least needed: what the allocator had reserved and then asked for, or 17/16 of `available_bytes`, what it was
        admitted against; `together_bytes`, with what it was to make of gradients. Ask before the cache is released.
        Where an optimizer step had ended the wave already, what ran out was not the wave: its closing observation comes
        back.
        """
        return self._meter._out_of_memory(self, error, available_bytes, together_bytes)

    def discard(self) -> None:
        """End the interval, in any stage, and learn nothing from it."""
        self._meter._discard(self)

    def _require(self, *stages: Stage) -> Measurement:
        if self._measured.stage not in stages:
            wanted = " or ".join(stage.value for stage in stages)
            raise MeterMisuseError(f"this {self.role} interval is {self._measured.stage.value}; it had to be {wanted}")
        return self._measured


class PeakMeter:
    """The one owner of a device's peak counter, for use from one thread. A context manager.

    Raises `OwnershipError` while another meter owns the device. `resets` counts the meter's own resets,
    `foreign_resets` those it caught others at. `releases` counts the caches it gave back for clean starts,
    `release_seconds` what they took on the host (a release waits for the device, and the wave that follows pays
    for fresh segments on top).
    """

    def __init__(self, counter: MemoryCounter) -> None:
        self.counter = counter
        self.resets = 0
        self.foreign_resets = 0
        self.releases = 0
        self.release_seconds = 0.0
        self._intervals: list[Interval] = []  # open ones, oldest first
        self._outputs: list[Held] = []  # of past intervals, as far as they are alive
        self._seen_peaks: tuple[int, ...] = ()  # of the counter, since its last reset that we know of
        self._lock = threading.RLock()  # backward hooks run in autograd's threads
        self._is_closed = False
        self._held_bytes = 0  # what callers that run the forward too still hold of all their waves
        self._left_over_bytes = 0  # of that, what may be the last wave's
        self._kept_much = False  # whether the last wave kept about as much as an optimizer's states take
        counter.claim(self)
        self._step_hooks = (
            register_optimizer_step_pre_hook(self._before_optimizer_step),
            register_optimizer_step_post_hook(self._after_optimizer_step),
        )

    def open(
        self,
        wave: Wave,
        *,
        grads: bool,
        role: Role = Role.WAVE,
        clean: bool = False,
        gradients: GradientAccount | None = None,
    ) -> Interval:
        """Start an interval for `wave`: synchronize, take the baseline, reset the peak.

        clean: start from a released cache, so that the wave's footprint can be read. The cache is given back to the
        driver unless there is nothing in it to give. Without it the footprint is read where the start happens to be
        clean. Not while another interval is open: its footprint would be spoilt.

        gradients: the account of the parameters whose gradients the wave's backward makes (role WAVE): what
        it leaves is taken off the reading, what it lets go is added.

        Waves of an untrusted environment get an interval too; its observations are refusals. Raises
        `MeterMisuseError` on a closed meter.
        """
        if self._is_closed:
            raise MeterMisuseError("this meter gave its device back")
        measured = Measurement(thread=threading.get_ident())
        interval = Interval(self, measured, wave, grads=grads, role=role)
        with self._lock:
            if self._settle(measured):
                if clean and not self._intervals:
                    self._release()
                if gradients is not None and grads and role is Role.WAVE:
                    measured.gradients = gradients.watch(lambda grad: self._gradient_made(measured, grad))
                self._start(measured)
            self._intervals.append(interval)
        return interval

    def before_outputs(self, size_bytes: int, *, copied_bytes: int = 0) -> None:
        """Say inside a forward that outputs of `size_bytes` are made next: what came before is without them.

        copied_bytes: what is there by now only to become these outputs (the logits of distinct rows, before requests
        that share rows get their own): no wave has more of it than of outputs. A look of the host, without a wait.
        """
        with self._lock:
            inside = [interval._measured for interval in self._intervals if interval.is_in_forward]
            if not inside or self.counter.refusal() is not None:
                return
            self._look_at_all()
            for measured in inside:
                if measured.refusal is None:
                    measured.outputs_follow(size_bytes, copied_bytes)

    @property
    def live_output_bytes(self) -> int:
        """What outputs that intervals reported still hold, each storage once."""
        with self._lock:
            self._outputs = [output for output in self._outputs if output.is_alive]
            return sum({id(output.storage()): output.size_bytes for output in self._outputs}.values())

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
        measured = interval._require(Stage.FORWARD)
        with self._lock:
            self._check_thread(measured)
            if interval.role is Role.WAVE and interval.grads:
                # Before the device is waited for: it hides the host's walk over the graph.
                measured.watch = BackwardWatch(tensors_in(outputs), self._look_during_backward)
            retained_bytes = None
            if self._settle(measured):
                self._look_at_all()
                retained_bytes = self.counter.allocated() - measured.baseline_bytes
            self._outputs += self._storages(tensors_in(outputs))
            kind = _forward_kind(interval.role, measured)
            observation = measured.observe(
                interval.wave,
                kind,
                grads=interval.grads,
                retained_bytes=retained_bytes,
                closes_wave=kind is ReadingKind.FORWARD_ONLY and interval.role is Role.FORWARD and not interval.grads,
            )
            if interval.role is not Role.WAVE:
                self._retire(interval)
                return observation
            measured.stage = Stage.CALLER
        return observation

    def _forward_left_to_caller(self, interval: Interval, parameters: Iterable[torch.Tensor]) -> None:
        measured = interval._require(Stage.FORWARD)
        if interval.role is not Role.WAVE:
            raise MeterMisuseError(f"the forward of a {interval.role} interval is its own, not its caller's")
        with self._lock:
            self._check_thread(measured)
            if interval.grads:
                measured.watch = AccumulationWatch(parameters, self._look_during_backward)
            measured.left_over_bytes = self._left_over_bytes
            measured.is_the_callers = True
            measured.stage = Stage.CALLER

    def _close(self, interval: Interval, *, completed: bool) -> Observation:
        measured = interval._require(Stage.FORWARD, Stage.CALLER)
        with self._lock:
            try:
                if measured.sealed is not None:
                    return measured.sealed
                if not completed or measured.stage is Stage.FORWARD:
                    measured.flaw(Flaw.BROKE_OFF)
                self._check_thread(measured)
                return self._seal(interval)
            finally:
                self._retire(interval)

    def _out_of_memory(
        self, interval: Interval, error: BaseException | None, available_bytes: int, together_bytes: int
    ) -> Observation:
        measured = interval._require(Stage.FORWARD, Stage.CALLER)
        with self._lock:
            try:
                if measured.sealed is not None:
                    return measured.sealed
                reserved_bytes = 0
                if self._settle(measured):
                    self._look_at_all()
                    reserved_bytes = max(0, self.counter.reserved() - measured.baseline_bytes)
                return measured.observe_out_of_memory(
                    interval.wave,
                    grads=interval.grads,
                    available_bytes=available_bytes,
                    reserved_bytes=reserved_bytes,
                    requested_bytes=requested_bytes(error) or 0,
                    together_bytes=together_bytes,
                )
            finally:
                self._retire(interval)

    def _discard(self, interval: Interval) -> None:
        measured = interval._require(Stage.FORWARD, Stage.CALLER)
        with self._lock:
            measured.refusal = Unlearnable.DISCARDED
            self._retire(interval)

    # Inside the lock --------------------------------------------------------------------------------------

    def _settle(self, measured: Measurement) -> bool:
        """Make the counter's figures final. False, with the refusal noted, where they cannot be believed."""
        measured.refusal = measured.refusal or self.counter.refusal()
        if measured.refusal is not None:
            return False
        self.counter.synchronize()
        return True

    def _release(self) -> None:
        """Give idle cache back to the driver, if there is any."""
        if self.counter.releasable() == 0:
            return
        started = time.perf_counter()
        self.counter.release_cache()
        self.releases += 1
        self.release_seconds += time.perf_counter() - started

    def _start(self, measured: Measurement) -> None:
        """Bank what the open intervals saw, then reset the counter for the new one."""
        self._look_at_all()
        for outer in self._intervals:
            outer._measured.flaw(Flaw.NESTED_INTERVAL)
            if outer._measured.thread != measured.thread:
                measured.flaw(Flaw.OVERLAPPED)
        measured.baseline_bytes = self.counter.allocated()
        measured.is_clean = self.counter.releasable() == 0
        self._outputs = [output for output in self._outputs if output.is_alive]
        measured.earlier_outputs = tuple(self._outputs)
        if measured.gradients is not None:
            measured.earlier_outputs += tuple(
                self._storages(local_tensor(grad) for grad in measured.gradients.existing)
            )
            measured.gradients.existing.clear()
        self._reset()
        if self.counter.allocated() != measured.baseline_bytes or self._seen_peaks[0] != measured.baseline_bytes:
            measured.refusal = Unlearnable.RESET_CHANGED_LIVE_BYTES

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
                interval._measured.flaw(Flaw.FOREIGN_RESET)
        self._seen_peaks = peaks
        for interval in self._intervals:
            if interval not in besides:
                interval._measured.bank(peaks[0])

    def _look_at_all(self) -> None:
        """Like `_look`, with the reserved peak, which the same reset clears and which nobody needs in mid-air."""
        self._look()
        clean = [interval._measured for interval in self._intervals if interval._measured.is_clean]
        if clean and self._seen_peaks:
            reserved_peak_bytes = self.counter.reserved_peak()
            for measured in clean:
                measured.bank_reserved(reserved_peak_bytes)

    def _seal(self, interval: Interval) -> Observation:
        """Take the closing reading of a wave."""
        measured = interval._measured
        if self._settle(measured):
            self._look_at_all()
            self._cut_a_foreign_step(measured)
            measured.dropped_bytes = max(0, measured.baseline_bytes - self.counter.allocated())
            if measured.is_the_callers:
                self._note_left_over(measured)
        if measured.awaits_backward:
            measured.flaw(Flaw.BACKWARD_NOT_SEEN)
        if measured.gradients is not None and measured.backward_has_run:
            measured.gradients.settle()
        if interval.grads and (measured.allocated.peak_bytes or 0) <= interval.wave.output_bytes:
            measured.flaw(Flaw.ZERO_COMPUTE)
        return measured.observe(interval.wave, measured.closing_kind(), grads=interval.grads)

    def _note_left_over(self, measured: Measurement) -> None:
        """What the caller holds of this wave, to be added to the reading of the next one: it may be let go in there.

        What was held before may have been let go in this one and made anew, so the sum over all waves is kept; no wave
        leaves more than it had at its peak.
        """
        grown_bytes = self.counter.allocated() - measured.baseline_bytes - measured.stayed_bytes
        self._held_bytes = max(0, self._held_bytes + grown_bytes)
        self._left_over_bytes = min(self._held_bytes, max(0, measured.allocated.peak_bytes or 0))

    def _storages(self, tensors: Iterable[torch.Tensor]) -> list[Held]:
        """The storages of `tensors` on this device, each once."""
        storages: dict[int, torch.UntypedStorage] = {}
        for tensor in tensors:
            if tensor.device == self.counter.device and tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                storages[id(storage)] = storage
        return [Held(weakref.ref(storage), storage.nbytes()) for storage in storages.values()]

    def _check_thread(self, measured: Measurement) -> None:
        if threading.get_ident() != measured.thread:
            measured.flaw(Flaw.CROSSED_THREADS)

    def _retire(self, interval: Interval) -> None:
        """Take the interval out. Those that opened after it and are still open have outlived it."""
        position = self._intervals.index(interval)
        for younger in self._intervals[position + 1 :]:
            younger._measured.flaw(Flaw.OVERLAPPED)
        del self._intervals[position]
        measured = interval._measured
        measured.stage = Stage.CLOSED
        if measured.watch is not None:
            measured.watch.remove()
        if measured.gradients is not None:
            measured.gradients.remove()

    # Hooks ------------------------------------------------------------------------------------------------

    def _look_during_backward(self) -> None:
        """A look in mid-air, so that a later foreign reset has less to hide behind. Peaks are host-side: no wait."""
        with self._lock:
            if self.counter.refusal() is None:
                self._look()
                for interval in self._intervals:
                    measured = interval._measured
                    if measured.gradients is not None and measured.backward_has_run:
                        measured.backward_ended(self.counter.allocated())

    def _gradient_made(self, measured: Measurement, grad: torch.Tensor) -> None:
        """A gradient that was not there before; a buffer that several are cut from counts once. Looked at after every
        part of them, so that what was made by the time of the peak is known to that part."""
        with self._lock:
            storages = [held for held in self._storages([local_tensor(grad)]) if measured.is_new(held)]
            measured.made += [Made(held.size_bytes, held.storage) for held in storages]
            measured.unseen_made_bytes += sum(held.size_bytes for held in storages)
            assert measured.gradients is not None
            if measured.unseen_made_bytes * GRADIENT_LOOKS >= measured.gradients.unmade_bytes:
                measured.unseen_made_bytes = 0
                if measured.refusal is None and self.counter.refusal() is None:
                    self._look_at_all()

    def _cut_a_foreign_step(self, measured: Measurement) -> None:
        """Notice, by what stays, an optimizer that is no `torch.optim.Optimizer` and stepped after backward: its states
        are no cost of the wave's rows. The peak is then the one at backward's end.

        States are of the parameters' order of size and are made once. A caller that keeps so much of every wave is no
        optimizer: from its second wave in a row on nothing is cut.
        """
        if measured.gradients is None or measured.live_after_backward_bytes is None:
            return
        stayed_bytes = self.counter.allocated() - measured.live_after_backward_bytes
        is_large = stayed_bytes > 0 and stayed_bytes * STATE_SHARE >= measured.gradients.unmade_bytes
        if is_large and not self._kept_much:
            measured.cut_after_backward()
        self._kept_much = is_large

    def _before_optimizer_step(self, _optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """The first optimizer step after backward ends a wave's measured part: optimizer state is no cost of a wave.

        A step before that (a critic's, say) must not end it, or the backward to come would never be measured. It is
        cut out: the peak before it is banked, the state it leaves behind moves the baseline.
        """
        with self._lock:
            for interval in self._intervals:
                measured = interval._measured
                if measured.stage is not Stage.CALLER or measured.sealed is not None:
                    continue
                if torch._C._current_graph_task_id() != -1:
                    # Fused into backward, a parameter at a time: part of the wave, its states aside. Also the last one,
                    # by when every watched node has run.
                    self._look_at_all()
                    measured.live_before_step_bytes = self.counter.allocated()
                    continue
                if not measured.awaits_backward:
                    measured.sealed = self._seal(interval)
                elif self._settle(measured):
                    self._look_at_all()
                    measured.live_before_step_bytes = self.counter.allocated()

    def _after_optimizer_step(self, _optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        with self._lock:
            if torch._C._current_graph_task_id() != -1:
                self._after_fused_step()
                return
            stepped = [
                interval for interval in self._intervals if interval._measured.live_before_step_bytes is not None
            ]
            ran_inside = any(interval._measured.backward_has_run for interval in stepped)
            for interval in stepped:
                measured = interval._measured
                before_bytes, measured.live_before_step_bytes = measured.live_before_step_bytes, None
                measured.flaw(Flaw.STEP_BEFORE_BACKWARD)
                # A step that ran backward itself (a closure) is measured whole: its peak is the wave's.
                if not ran_inside and self._settle(measured):
                    assert before_bytes is not None
                    measured.move_baseline(self.counter.allocated() - before_bytes, self.counter.releasable())
            if stepped and not ran_inside and self.counter.refusal() is None:
                self._look(besides=stepped)
                self._reset()

    def _after_fused_step(self) -> None:
        """What a step inside backward left (the optimizer's states, made at the first one) was made to stay."""
        for interval in self._intervals:
            measured = interval._measured
            before_bytes, measured.live_before_step_bytes = measured.live_before_step_bytes, None
            if before_bytes is not None:
                left_bytes = self.counter.allocated() - before_bytes
                if left_bytes > 0:
                    measured.made.append(Made(left_bytes))


def _forward_kind(role: Role, measured: Measurement) -> ReadingKind:
    """The kind of the reading at the forward's return. A split child stays one: it is incomplete either
    way."""
    if role is Role.SPLIT_CHILD:
        return ReadingKind.SPLIT_CHILD
    return ReadingKind.INTERRUPTED if measured.flaws else ReadingKind.FORWARD_ONLY


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


def close_process_meters() -> None:
    """Close the meters that `meter_for` made, so that other code may own the counters. The next call makes new ones."""
    with _meters_lock:
        for meter in _meters.values():
            if not meter._is_closed:
                meter.close()
        _meters.clear()
