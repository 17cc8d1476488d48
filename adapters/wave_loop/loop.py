"""`WaveLoop`: plans waves, checks them against the device, lets them run, measures, learns, and agrees across ranks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from adapters.torch_memory import BudgetSampler, Interval, Observation, PeakMeter, Role
from adapters.torch_memory.counter import allocator_figures, figure
from adapters.torch_memory.gradients import GradientAccount
from adapters.wave_loop.errors import AdmissionError, AdmittedOutOfMemoryError, WaveRefusedError
from adapters.wave_loop.profile_store import ProfileStore
from adapters.wave_loop.wave import WaveStats, WaveTurn
from adapters.wave_loop.work import Work
from pricing import Law, Profile, Safety, Signature, observe, required_bytes
from pricing.planner.budget import Budget
from pricing.planner.plan import Verdict, WavePlan, plan_wave
from pricing.planner.quorum import Quorum
from pricing.planner.split import split_key
from pricing.records.recorder import Handoff, Recorder, Ticket

_log = logging.getLogger(__name__)

FLOOR_IS_WRONG = "a complete reading lies under the static floor: it is no lower bound here and takes no part"
"""Said once a signature in the log, and in the record of every wave priced without its floor."""

ADMISSION_TRIES = 3
"""How often a wave is planned anew because memory shrank between planning and execution."""

Turn = TypeVar("Turn", bound=WaveTurn)


@dataclass(slots=True)
class _Open:
    """A wave that runs: its measurement, its record, and how often the device had run out of memory before it."""

    interval: Interval | None
    ticket: Ticket | None
    failures_before: int


class WaveLoop:
    """One rank's loop. A subclass says what a call's items are and what a wave of them runs (`Work`).

    parameters: those whose gradients backward makes. Everything else as in `TrainerRank`. Use one thread.
    """

    def __init__(
        self,
        *,
        device: torch.device,
        meter: PeakMeter,
        sampler: BudgetSampler,
        profiles: ProfileStore,
        law: Law,
        safety: Safety,
        quorum: Quorum,
        recorder: Recorder | None,
        parameters: list[torch.nn.Parameter],
    ) -> None:
        self.device = device
        self.meter = meter
        self.sampler = sampler
        self.profiles = profiles
        self.law = law
        self.safety = safety
        self.recorder = Recorder() if recorder is None else recorder
        self._quorum = quorum
        self._gradients = GradientAccount(parameters)
        self._probed: set[Signature] = set()
        self._named_floors: set[Signature] = set()
        self._open_waves: dict[WaveTurn, _Open] = {}

    # Calls -----------------------------------------------------------------------------------------------------------

    def _waves(self, make_work: Callable[[], Work[Turn]], role: Role) -> Iterator[Turn]:
        """The call's waves, in order, each run forward. A wave's turn ends when the caller asks for the next one."""
        with self._guard():
            work = make_work()
        start = 0
        try:
            while self._quorum.max(len(work.batch) - start) > 0:
                wave = self._run(work, self._admit(work, start), role)
                start = wave.items.stop
                completed = False
                try:
                    yield wave
                    completed = True
                finally:
                    self.end_wave(wave, None, completed=completed)
                    del wave  # our last reference, before the next wave's budget is read
        finally:
            self.profiles.save()

    def _first_plan(self, make_work: Callable[[], Work[Any]]) -> WavePlan:
        """What the first wave would be now; nothing runs."""
        with self._guard():
            work = make_work()
            budget = self._budget(work)
        return self._plan(work, 0, budget)

    def end_wave(self, wave: WaveTurn, error: BaseException | None, *, completed: bool) -> None:
        """End a wave's turn: measure, learn, let go of its outputs. Called by the loop and by `with wave:`; once
        counts.

        Raises `AdmittedOutOfMemoryError` where `error` is an out-of-memory error.
        """
        open_wave = self._open_waves.pop(wave, None)
        if open_wave is None or open_wave.interval is None:
            return
        stats = wave.stats
        wave.release()
        if isinstance(error, torch.OutOfMemoryError) or self._device_failures() > open_wave.failures_before:
            open_wave.interval.discard()
            self.recorder.out_of_memory(open_wave.ticket)
            if isinstance(error, torch.OutOfMemoryError):
                raise AdmittedOutOfMemoryError(stats.plan, stats.admission, "caller's phase") from error
            return
        stats.closing = open_wave.interval.close(completed=completed)
        self.learn(stats.plan.signature, stats.closing)
        self._note_split(stats)
        note = str(stats.closing.refusal or (FLOOR_IS_WRONG if stats.plan.floor_is_wrong else ""))
        self.recorder.observed(open_wave.ticket, stats.closing.reading, note=note)

    # Planning and admission ------------------------------------------------------------------------------------------

    def _admit(self, work: Work[Any], start: int) -> WaveStats:
        """The next wave, planned on a fresh sample and checked against another one right before it runs."""
        for _ in range(ADMISSION_TRIES):
            with self._guard():
                budget = self._budget(work)
            plan = self._plan(work, start, budget)
            if not plan.runs:
                self.recorder.refused(plan, batch=work.batch, budget=budget)
                raise WaveRefusedError(plan, budget)
            with self._guard():
                admission = self.sampler.admit(self._demand_bytes(plan) + self._unmade_gradient_bytes(work))
            if self._quorum.all_fit(admission.runs or plan.verdict is Verdict.EMPTY):
                return WaveStats(plan=plan, budget=budget, admission=admission)
        raise AdmissionError(plan, admission, ADMISSION_TRIES)

    def _budget(self, work: Work[Any]) -> Budget:
        """A fresh sample, with what the gradients will take kept back."""
        budget = self.sampler.budget()
        return replace(budget, held_back_bytes=self._unmade_gradient_bytes(work))

    def _unmade_gradient_bytes(self, work: Work[Any]) -> int:
        """Bytes of the parameters' gradients that the next backward has to make and will leave.

        They stay until `zero_grad()`, so most waves pay nothing for them and their prices know nothing of them: the
        first wave after it pays for all.
        """
        return self._gradients.held_back_bytes() if work.has_grads else 0

    def _plan(self, work: Work[Any], start: int, budget: Budget) -> WavePlan:
        return plan_wave(
            work.batch,
            start=start,
            profiles=self.profiles,
            available_bytes=budget.available_bytes,
            setting=work.setting,  # made inside, so that its error reaches every rank
            law=self.law,
            safety=self.safety,
            quorum=self._quorum,
            probed=self._probed,
            measured_splits=self.profiles.splits,
        )

    def _demand_bytes(self, plan: WavePlan) -> int:
        """What must be there for this plan to run. A probe runs as a cold start: its learned price is the doubt."""
        if plan.verdict is Verdict.PROBE and plan.probe is not None:
            cold_bytes = required_bytes(plan.probe.cold, Profile(), self.law, self.safety)
            return max(cold_bytes, plan.required_bytes) if plan.headroom_bytes >= 0 else cold_bytes
        return 0 if plan.verdict is Verdict.EMPTY else plan.required_bytes

    def _guard(self) -> AbstractContextManager[None]:
        """Around work of this rank alone that the others wait for: what it raises is an error on every rank."""
        guard: Callable[[], AbstractContextManager[None]] = getattr(self._quorum, "guard", nullcontext)
        return guard()

    # Running ---------------------------------------------------------------------------------------------------------

    def _run(self, work: Work[Turn], stats: WaveStats, role: Role) -> Turn:
        """Run an admitted wave forward, measured. What it raises reaches the other ranks as `RankFailedError`."""
        plan = stats.plan
        if plan.verdict is Verdict.PROBE:
            self._probed.add(plan.signature)
        if plan.floor_is_wrong and plan.signature not in self._named_floors:
            self._named_floors.add(plan.signature)
            _log.warning("%s (%s)", FLOOR_IS_WRONG, plan.signature.topology)
        opened = self._open(stats, role)
        with self._giving_up(opened, stats):
            with self._guard():
                if opened.interval is not None:
                    outputs = work.forward(stats)
                    opened.ticket = self._ticket(work, stats)  # while the device still works
                    stats.forward = opened.interval.forward_done(outputs)
                    del outputs
            self._quorum.all_fit(True)  # every rank's forward ran: no caller waits for a rank that failed
        if stats.forward is not None:
            self.learn(plan.signature, stats.forward)
        wave = work.turn(self, stats)
        if role is Role.WAVE and opened.interval is not None:
            self._open_waves[wave] = opened
        else:
            self._note_split(stats)
            self.recorder.observed(opened.ticket, None if stats.forward is None else stats.forward.reading)
        return wave

    def _open(self, stats: WaveStats, role: Role) -> _Open:
        """Start the wave's measurement; a wave of no rows has none."""
        wave = stats.plan.wave
        failures_before = self._device_failures()
        interval = None
        if wave.packed_rows > 0:
            interval = self.meter.open(wave, grads=wave.workload.grads, role=role, gradients=self._gradients)
        return _Open(interval, None, failures_before)

    @contextmanager
    def _giving_up(self, opened: _Open, stats: WaveStats) -> Iterator[None]:
        """End a wave's measurement if its forward raises; an out-of-memory error becomes the typed one."""
        try:
            yield
        except BaseException as error:
            ticket = opened.ticket if opened.ticket is not None else self._ticket(None, stats)
            interval = opened.interval if opened.interval is not None and opened.interval.is_open else None
            if isinstance(error, torch.OutOfMemoryError):
                if interval is not None:
                    interval.discard()
                self.recorder.out_of_memory(ticket)
                raise AdmittedOutOfMemoryError(stats.plan, stats.admission, "forward") from error
            if interval is not None:
                self.learn(stats.plan.signature, interval.close(completed=False))
            self.recorder.abandoned(ticket)
            raise

    def _ticket(self, work: Work[Any] | None, stats: WaveStats) -> Ticket | None:
        """The wave's record so far."""
        handoff = Handoff(budget=stats.admission.samples[0].budget, required_bytes=stats.admission.required_bytes)
        batch = None if work is None else work.batch
        return self.recorder.admitted(stats.plan, batch=batch, budget=stats.budget, handoff=handoff)

    # Learning --------------------------------------------------------------------------------------------------------

    def learn(self, signature: Signature, look: Observation) -> None:
        """Take in what one look at a wave says."""
        if look.reading is not None:
            self.profiles.put(signature, observe(self.profiles.get(signature, Profile()), look.reading))

    def _note_split(self, stats: WaveStats) -> None:
        """An identical split will cost at least what this one was seen to."""
        observed = stats.observed_bytes
        if stats.plan.verdict is Verdict.SPLIT and observed is not None:
            self.profiles.note_split(split_key(stats.plan.signature, stats.plan.children), observed)

    def _device_failures(self) -> int:
        """How often the device ran out of memory so far, also where the caller caught it; 0 where nobody counts."""
        if self.device.type != "cuda":
            return 0
        return figure(allocator_figures(self.device), "num_ooms")
