"""`WaveLoop`: plans waves, checks them against the device, lets them run, measures, learns, and agrees across ranks."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, TypeVar

import torch

from adapters.torch_memory import BudgetSampler, Interval, Observation, PeakMeter, Role
from adapters.torch_memory.counter import allocator_figures, figure
from adapters.torch_memory.errors import BudgetSampleError
from adapters.torch_memory.gradients import GradientAccount
from adapters.torch_memory.out_of_memory import is_out_of_memory
from adapters.wave_loop.batch_result import BatchResult, WaveOutcome, Waves
from adapters.wave_loop.call import ON_REFUSAL, Call, OnRefusal, Skipped
from adapters.wave_loop.errors import (
    CANNOT_BE_TAKEN_BACK,
    HOW_TO_GO_ON,
    AdmissionError,
    AdmittedOutOfMemoryError,
    OutOfMemoryRefusedError,
    OutputsRefusedError,
    RefusalChoiceError,
    WaveRefusedError,
)
from adapters.wave_loop.failure import BackwardQueue, OutOfMemory, Phase, let_go
from adapters.wave_loop.gradients import COPY_DENOMINATOR, GradientKeeper
from adapters.wave_loop.holdings import Holdings
from adapters.wave_loop.in_step import NOT_IN_STEP, Passes, agree_on_passes, one_row, passes_of
from adapters.wave_loop.profile_store import ProfileStore
from adapters.wave_loop.random_state import RandomState
from adapters.wave_loop.wave import WaveStats, WaveTurn
from adapters.wave_loop.work import Work
from pricing import Law, Profile, Safety, Signature, observe, required_bytes
from pricing.kernel.made_gradients import TOGETHER, apart, is_together, may_price_together, together
from pricing.kernel.profile import needs_footprint
from pricing.planner.budget import Budget
from pricing.planner.plan import Verdict, WavePlan, plan_wave
from pricing.planner.quorum import Quorum
from pricing.planner.rules import probe_bytes
from pricing.planner.setting import Setting
from pricing.planner.split import split_key
from pricing.records.recorder import Handoff, Recorder, Ticket

_log = logging.getLogger(__name__)

FLOOR_IS_WRONG = "a complete reading lies under the static floor: it is no lower bound here and takes no part"
"""Said once a signature in the log, and in the record of every wave priced without its floor."""

ADMISSION_TRIES = 3
"""How often a wave is planned anew because memory shrank between planning and execution."""

OUT_OF_MEMORY_TRIES = 64
"""How many waves in a row may run out of memory. Each raises the price by 1/16 at least (INV-18), so they end earlier
where a wave of 1/48 of what the budget claims still runs."""

_log = logging.getLogger(__name__)


def _version() -> str:
    """This distribution's version; "source" in a checkout that is not installed."""
    try:
        return metadata.version("packed-pricing")
    except metadata.PackageNotFoundError:
        return "source"


Turn = TypeVar("Turn", bound=WaveTurn)


@dataclass(slots=True)
class _Open:
    """A wave that runs: its measurement, its record, how often the device had run out of memory before it, and torch's
    random state then. owed: a loss whose backward this rank runs for the others' sake."""

    interval: Interval | None
    ticket: Ticket | None
    failures_before: int
    random: RandomState
    owed: torch.Tensor | None = None


class WaveLoop:
    """One rank's loop. A subclass says what a call's items are and what a wave of them runs (`Work`).

    parameters: those whose gradients backward makes. keeps_in_step: the model has collectives of its own, so that every
    rank must run each wave, forward and backward (`adapters.wave_loop.in_step`). Everything else as in `TrainerRank`.
    Use one thread.
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
        keeps_in_step: bool = False,
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
        self._keeps_in_step = keeps_in_step
        self._probed: set[Signature] = set()
        self._lost_probes: set[Signature] = set()
        self._named_floors: set[Signature] = set()
        self._open_waves: dict[WaveTurn, _Open] = {}
        self._introduced = False
        self._began_bytes: int | None = None
        self._backward_queue = BackwardQueue()
        self._save_errors = 0

    # Calls -----------------------------------------------------------------------------------------------------------

    def _begin(self, make_work: Callable[[], Work[Turn]], on_refusal: OnRefusal) -> Call[Turn]:
        """Start a call: from here on the ranks are told apart by it."""
        self._backward_queue.clear()
        begin_call = getattr(self._quorum, "begin_call", None)
        number = 0 if begin_call is None else begin_call()
        self._mark(number, 0)
        self._introduce()
        with self._guard():
            if on_refusal not in ON_REFUSAL:
                raise RefusalChoiceError(f"on_refusal must be one of {', '.join(ON_REFUSAL)}, got {on_refusal!r}")
            return Call(work=make_work(), on_refusal=on_refusal, number=number)

    def _waves(self, make_work: Callable[[], Work[Turn]], role: Role, on_refusal: OnRefusal = "raise") -> Waves[Turn]:
        """The call's waves, in order, each run forward. A wave's turn ends when the caller asks for the next one.

        Of role FORWARD all outputs are kept, so those that can never fit together are refused before anything runs.
        """
        skipped: list[Skipped] = []
        return Waves(self._turns(make_work, role, on_refusal, skipped), skipped)

    def _turns(
        self, make_work: Callable[[], Work[Turn]], role: Role, on_refusal: OnRefusal, skipped: list[Skipped]
    ) -> Iterator[Turn]:
        call = self._begin(make_work, on_refusal)
        call.skipped = skipped
        if role is Role.FORWARD:
            with self._guard():
                self._require_room_for_outputs(call.work)
        try:
            while (wave := self._next(call, role)) is not None:
                completed = False
                try:
                    yield wave
                    completed = True
                finally:
                    self.end_wave(wave, None, completed=completed)
                    del wave  # our last reference, before the next wave's budget is read
        finally:
            self._save()

    def _train(
        self,
        make_work: Callable[[], Work[Turn]],
        step: Callable[[Turn], torch.Tensor | None],
        *,
        on_refusal: OnRefusal,
        parameters: Iterable[torch.nn.Parameter],
        step_empty: bool = False,
    ) -> BatchResult:
        """Run a whole batch. `step` runs a wave's loss and backward and returns the loss.

        step_empty: call it for the waves without requests too, which a rank gets that has no items left: where the
        step has collectives of its own, every rank must make them.

        When it returns, gradients are what they were before plus each item's exactly once; when it raises, what they
        were before.
        """
        call = self._begin(make_work, on_refusal)
        call.survives = True
        with self._guard():
            copy_at_most_bytes = self.sampler.sample().total_bytes // COPY_DENOMINATOR
        keeper = GradientKeeper([*self._gradients.parameters, *parameters], copy_at_most_bytes=copy_at_most_bytes)
        random = RandomState(self.device)
        outcomes: list[WaveOutcome] = []
        try:
            keeper.begin(aside=True)
            while (wave := self._next(call, Role.WAVE, keeper)) is not None:
                failure, loss = self._step(wave, step, step_empty)
                if failure is None:
                    plan = wave.stats.plan
                    items = range(plan.start, plan.next_start)
                    outcomes.append(WaveOutcome(items=items, indices=plan.requests, loss=loss, stats=wave.stats))
                    call.tries = 0
                else:
                    first = self._take_back(call, wave, failure, keeper, random)
                    outcomes = [outcome for outcome in outcomes if outcome.items.stop <= first]
                del wave, loss
            keeper.finish()
        except BaseException:
            keeper.roll_back()
            raise
        finally:
            self._save()
        return BatchResult(waves=tuple(outcomes), skipped=tuple(call.skipped), out_of_memory=tuple(call.failures))

    def _step(
        self, wave: Turn, step: Callable[[Turn], torch.Tensor | None], step_empty: bool
    ) -> tuple[OutOfMemory | None, torch.Tensor | None]:
        """One wave's loss and backward. An error that is not out of memory reaches the other ranks."""
        if not wave.stats.plan.requests and not step_empty:
            self.end_wave(wave, None, completed=True)
            return None, None
        with self._telling():
            try:
                loss = step(wave)
                failure = self._end(wave, None, completed=True)
            except Exception as error:
                failure = self._end(wave, error, completed=False)
                if failure is None:
                    raise
                let_go(error)
            except BaseException:  # an interrupt: the wave is over all the same, and the rank can be used again
                self._end(wave, None, completed=False)
                raise
            if failure is None:
                return None, None if loss is None else loss.detach()
            self._backward_queue.clear()  # now that the error is gone too: else the next plan has less
            return failure, None

    def _take_back(
        self, call: Call[Any], wave: Turn, failure: OutOfMemory, keeper: GradientKeeper, random: RandomState
    ) -> int:
        """After a wave that ran out of memory in the caller's phase: gradients and random state as they were, and the
        call set back. Returns the first item to run again."""
        with self._guard():
            if keeper.undo_wave():
                first = wave.stats.plan.start
                assert wave.random is not None
                wave.random.restore()
            elif keeper.start_anew():
                first = 0
                random.restore()
            else:
                raise AdmittedOutOfMemoryError(
                    wave.stats.plan, wave.stats.admission, failure.phase, CANNOT_BE_TAKEN_BACK
                )
            call.back_to(first)
            self._count(call, wave.stats, failure)
        return first

    def _count(self, call: Call[Any], stats: WaveStats, failure: OutOfMemory | None) -> None:
        """Note a wave that ran out of memory, here or (None) on another rank. Raises after too many in a row."""
        call.tries += 1
        if failure is not None:
            call.failures.append(failure)
            call.failed = stats
        if call.tries > OUT_OF_MEMORY_TRIES:
            phase = "forward of another rank" if failure is None else failure.phase
            raise AdmittedOutOfMemoryError(
                stats.plan, stats.admission, phase, f"the {call.tries}th wave in a row; it is not tried again"
            )

    def _next(self, call: Call[Turn], role: Role, keeper: GradientKeeper | None = None) -> Turn | None:
        """The next wave, admitted and run forward; None once every rank is done.

        Waves that run out of memory in the forward of any rank are planned anew on all; nothing was handed out.
        """
        while True:
            self._mark(call.number, call.start)
            if self._quorum.max(call.left) <= 0:
                return None
            if keeper is not None:
                with self._guard():
                    keeper.before_wave()
            stats = self._admit(call)
            wave = None if stats is None else self._run(call, stats, role)
            if wave is not None:
                call.start = wave.stats.plan.next_start
                if role is not Role.WAVE or keeper is None:
                    call.tries = 0
                return wave

    def _first_plan(self, make_work: Callable[[], Work[Any]]) -> WavePlan:
        """What the first wave would be now; nothing runs."""
        call = self._begin(make_work, "raise")
        with self._guard():
            budget = self._budget(call.work)
        plan, _ = self._planned(call, budget)
        return plan

    def end_wave(self, wave: WaveTurn, error: BaseException | None, *, completed: bool) -> None:
        """End a wave's turn: measure, learn, let go of its outputs. Called by the loop and by `with wave:`; once
        counts.

        Raises `AdmittedOutOfMemoryError` where `error` is an out-of-memory error.
        """
        failure = self._end(wave, error, completed=completed)
        if failure is not None and error is not None:
            raise AdmittedOutOfMemoryError(
                wave.stats.plan, wave.stats.admission, failure.phase, HOW_TO_GO_ON
            ) from error

    def _end(self, wave: WaveTurn, error: BaseException | None, *, completed: bool) -> OutOfMemory | None:
        """End a wave's turn once; says whether it ran out of memory. What the device counted without an error here was
        caught by the caller, who knows what became of the gradients: it is learned from, and no failure."""
        opened = self._open_waves.pop(wave, None)
        if opened is None:
            return None
        stats = wave.stats
        wave.release()
        self._backward_queue.is_suspect |= not completed
        if opened.interval is None:  # no rows: nothing was measured, and what runs out of memory is the caller's
            return OutOfMemory.of(error, Phase.CALLER) if error is not None and is_out_of_memory(error) else None
        caught = error is None and self._device_failures() > opened.failures_before
        if is_out_of_memory(error) or caught:
            failure = OutOfMemory.of(error or torch.OutOfMemoryError("caught by the caller"), Phase.CALLER)
            self._learn_out_of_memory(opened, stats, failure, error)
            return None if caught else failure
        stats.closing = opened.interval.close(completed=completed)
        self.learn(stats.plan.signature, stats.teaching(stats.closing))
        self._note_split(stats)
        self.recorder.observed(opened.ticket, stats.reading_of(stats.closing), note=self._note(stats))
        return None

    def _note(self, stats: WaveStats) -> str:
        """What the record of a wave that ran says beside its figures."""
        assert stats.closing is not None
        return str(stats.closing.refusal or (FLOOR_IS_WRONG if stats.plan.floor_is_wrong else ""))

    # Agreement -------------------------------------------------------------------------------------------------------

    def _guard(self) -> AbstractContextManager[None]:
        """Around work of this rank alone that the others wait for: what it raises is an error on every rank."""
        guard: Callable[[], AbstractContextManager[None]] = getattr(self._quorum, "guard", nullcontext)
        return guard()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Around the caller's own work: what it raises is an error on every rank, as in `_guard`. Here the caller may
        have made calls of its own (of this rank too) before it raised."""
        try:
            yield
        except Exception:
            fail = getattr(self._quorum, "fail", None)
            if fail is not None:
                fail()
            raise

    def _mark(self, number: int, item: int) -> None:
        """Say where this rank is: ranks in different calls are told so instead of agreeing."""
        at = getattr(self._quorum, "at", None)
        if at is not None:
            at(number, item)

    def _introduce(self) -> None:
        """Once: what ranks must have in common to agree on anything."""
        introduce = getattr(self._quorum, "introduce", None)
        if introduce is not None and not self._introduced:
            introduce(
                {
                    "packed-pricing": _version(),
                    "torch": torch.__version__,
                    "law": self.law.name,
                    "safety": str(self.safety),
                }
            )
            self._introduced = True

    # Planning and admission ------------------------------------------------------------------------------------------

    def _admit(self, call: Call[Any]) -> WaveStats | None:
        """The next wave, planned on a fresh sample and checked against another one right before it runs.

        Where the check fails, it is planned anew from what the device showed then, never from the figure that was
        wrong. None where an item was refused and left out instead, here or elsewhere.
        """
        work = call.work
        most_bytes: int | None = None
        for _ in range(ADMISSION_TRIES):
            with self._guard():
                budget = self._budget(work, most_bytes)
            plan, budget = self._planned(call, budget)
            if not plan.runs:
                self._refuse(call, plan, budget)
                return None
            gradient_bytes = self._unmade_gradient_bytes(work)
            kept_bytes = 0 if is_together(plan.signature) else gradient_bytes
            with self._guard():
                admission = self.sampler.admit(self._demand_bytes(plan) + kept_bytes)
            if self._quorum.all_fit(admission.runs or plan.verdict is Verdict.EMPTY):
                return WaveStats(
                    plan=plan,
                    budget=budget,
                    admission=admission,
                    after_out_of_memory=call.tries,
                    gradient_bytes=gradient_bytes,
                )
            if not admission.runs:
                most_bytes = admission.held_against_bytes
        raise AdmissionError(plan, admission, ADMISSION_TRIES)

    def _planned(self, call: Call[Any], budget: Budget) -> tuple[WavePlan, Budget]:
        """The next wave and what it was planned against. One that is refused is planned anew where gradients are part
        of the price instead of held back beside it (`pricing.kernel.made_gradients`); all ranks do so, or none.

        Only to run as one wave: it is no ground to try anything on.
        """
        plan = self._plan(call.work, call.start, budget, survives=call.survives)
        if plan.runs:
            return plan, budget
        profile = self.profiles.get(together(plan.signature), Profile())
        counts = plan.refusal is not None and call.work.has_grads and may_price_together(profile)
        if self._quorum.max(int(counts)) == 0:
            return plan, budget
        budget_here = replace(budget, held_back_bytes=0) if counts else budget
        again = self._plan(call.work, call.start, budget_here, with_gradients=counts)
        runs = again.verdict in (Verdict.RUN, Verdict.EMPTY) if counts else again.runs
        return (again, budget_here) if self._quorum.all_fit(runs) else (plan, budget)

    def _refuse(self, call: Call[Any], plan: WavePlan, budget: Budget) -> None:
        """Raise, or leave the item out where it is this rank's and the caller wants that."""
        self.recorder.refused(plan, batch=call.work.batch, budget=budget)
        if call.on_refusal == "skip":
            if plan.refusal is not None:
                call.skip(plan)
            return
        holdings = self.holdings(call.work)
        if call.failed is not None and plan.refusal is not None:
            raise OutOfMemoryRefusedError(plan, holdings, call.failures, call.failed)
        raise WaveRefusedError(plan, holdings, call.failures, budget)

    def _require_room_for_outputs(self, work: Work[Any]) -> None:
        """For outputs that are all kept. Raises `OutputsRefusedError` where they alone can never fit together."""
        available_bytes = self._budget(work).available_bytes
        output_bytes = sum(work.batch.output_bytes)
        if output_bytes > max(0, available_bytes):
            raise OutputsRefusedError(output_bytes, available_bytes, self.holdings(work))

    def holdings(self, work: Work[Any] | None = None) -> Holdings:
        """Whose the memory in use is, as far as it is known."""
        outputs_bytes = self.meter.live_output_bytes
        gradient_bytes = self._gradients.present_bytes
        outside_bytes = self.sampler.sample().in_use_bytes - outputs_bytes - gradient_bytes
        return Holdings(
            outputs_bytes=outputs_bytes,
            gradient_bytes=gradient_bytes,
            unmade_gradient_bytes=0 if work is None else self._unmade_gradient_bytes(work),
            grown_bytes=max(0, outside_bytes - (outside_bytes if self._began_bytes is None else self._began_bytes)),
        )

    def _note_beginning(self) -> None:
        """Keep what was in use beside outputs and gradients before the first wave."""
        if self._began_bytes is None:
            gradient_bytes = self._gradients.present_bytes
            self._began_bytes = self.sampler.sample().in_use_bytes - self.meter.live_output_bytes - gradient_bytes

    def _budget(self, work: Work[Any], most_bytes: int | None = None) -> Budget:
        """A fresh sample, with what the gradients will take kept back. At most `most_bytes` count as available to the
        wave and its gradients together."""
        self._note_beginning()
        budget = self.sampler.budget()
        if most_bytes is not None and budget.available_bytes > most_bytes:
            beyond_bytes = budget.available_bytes - most_bytes
            budget = replace(budget, reserve_bytes=budget.reserve_bytes + beyond_bytes)
        return replace(budget, held_back_bytes=self._unmade_gradient_bytes(work))

    def _unmade_gradient_bytes(self, work: Work[Any]) -> int:
        """Bytes of the parameters' gradients that the next backward has to make and will leave.

        They stay until `zero_grad()`, so most waves pay nothing for them and their prices know nothing of them: the
        first wave after it pays for all.
        """
        return self._gradients.held_back_bytes() if work.has_grads else 0

    def _plan(
        self, work: Work[Any], start: int, budget: Budget, *, survives: bool = False, with_gradients: bool = False
    ) -> WavePlan:
        """with_gradients: priced together with the gradients it makes."""

        def setting() -> Setting:
            asked = work.setting()
            return replace(asked, topology=asked.topology + TOGETHER) if with_gradients else asked

        return plan_wave(
            work.batch,
            start=start,
            profiles=self.profiles,
            available_bytes=budget.available_bytes,
            setting=setting,  # made inside, so that its error reaches every rank
            law=self.law,
            safety=self.safety,
            quorum=self._quorum,
            probed=self._probed,
            lost=self._lost_probes,
            survives=survives,
            measured_splits=self.profiles.splits,
        )

    def _demand_bytes(self, plan: WavePlan) -> int:
        """What must be there for this plan to run. A probe runs as a cold start: its learned price is the doubt."""
        if plan.verdict is Verdict.PROBE and plan.probe is not None:
            cold_bytes = required_bytes(plan.probe.cold, Profile(), self.law, self.safety)
            if plan.headroom_bytes >= 0:
                return max(cold_bytes, plan.required_bytes)
            witnessed = plan.probe.witnessed_bytes
            held_bytes = probe_bytes(cold_bytes, witnessed)
            return held_bytes if held_bytes <= plan.available_bytes else cold_bytes
        return 0 if plan.verdict is Verdict.EMPTY else plan.required_bytes

    # Running ---------------------------------------------------------------------------------------------------------

    def _run(self, call: Call[Turn], stats: WaveStats, role: Role) -> Turn | None:
        """Run an admitted wave forward, measured. What it raises reaches the other ranks as `RankFailedError`.

        None where it ran out of memory, here or on another rank: then nothing of it is left, and it is to be planned
        anew.
        """
        work, plan = call.work, stats.plan
        if plan.verdict is Verdict.PROBE:
            self._probed.add(plan.signature)
        if plan.floor_is_wrong and plan.signature not in self._named_floors:
            self._named_floors.add(plan.signature)
            _log.warning("%s (%s)", FLOOR_IS_WRONG, plan.signature.topology)
        in_step = NOT_IN_STEP
        if self._keeps_in_step:
            in_step = agree_on_passes(self._quorum, passes_of(work, stats), keeps_outputs=role is not Role.WAVE)
        with self._guard():
            opened = self._open(stats, role)
        with self._giving_up(opened, stats):
            with self._guard():
                failure, wave = self._forward(work, stats, opened, in_step)
            has_failed = self._quorum.max(int(failure is not None)) > 0  # nobody waits for a rank that failed
        if has_failed:
            work.drop()
            if wave is not None:
                wave.release()
                self._drop(opened, stats)
            opened.random.restore()
            with self._guard():
                self._count(call, stats, failure)
            return None
        assert wave is not None
        if opened.owed is not None:  # while the others run theirs, which the caller asks for
            opened.owed.backward()
            opened.owed = None
        if stats.forward is not None:
            self.learn(plan.signature, stats.teaching(stats.forward))
        wave.random = opened.random
        if role is Role.WAVE:
            self._open_waves[wave] = opened
        else:
            self._note_split(stats)
            self.recorder.observed(opened.ticket, None if stats.forward is None else stats.reading_of(stats.forward))
        return wave

    def _forward(
        self, work: Work[Turn], stats: WaveStats, opened: _Open, in_step: Passes
    ) -> tuple[OutOfMemory | None, Turn | None]:
        """Run the wave forward, look at it, and make its turn; out of memory is learned from and handed back."""
        try:
            if opened.interval is None and in_step.is_run:
                opened.owed = one_row(work, grads=in_step.has_grads)
            if opened.interval is not None:
                outputs = work.forward(stats)
                opened.ticket = self._ticket(work, stats)  # while the device still works
                if outputs is not None:
                    stats.forward = opened.interval.forward_done(outputs)
                else:
                    opened.interval.forward_left_to_caller(self._gradients.parameters)
            return None, work.turn(self, stats)
        except Exception as error:
            if not is_out_of_memory(error) or self._keeps_in_step:
                raise  # in step, the others wait inside the forward: nobody can take it back
            failure = OutOfMemory.of(error, Phase.FORWARD)
            work.drop()
            if opened.ticket is None:
                opened.ticket = self._ticket(work, stats)
            self._learn_out_of_memory(opened, stats, failure, error)
            let_go(error)
        gc.collect()  # as in `_step`
        with suppress(BudgetSampleError):
            self.sampler.source.release_cache()  # what the wave left is in pieces; the next one starts clean
        return failure, None

    def _drop(self, opened: _Open, stats: WaveStats) -> None:
        """Give up a wave that ran here and not elsewhere. What its forward showed is true."""
        if opened.interval is None:
            return
        if stats.forward is not None:
            self.learn(stats.plan.signature, stats.teaching(stats.forward))
        if opened.interval.is_open:
            opened.interval.discard()
        self.recorder.abandoned(opened.ticket, note="another rank ran out of memory in its forward")

    def _open(self, stats: WaveStats, role: Role) -> _Open:
        """Start the wave's measurement; a wave of no rows has none."""
        wave, random = stats.plan.wave, RandomState(self.device)
        failures_before = self._device_failures()
        interval = None
        if wave.packed_rows > 0:
            profile = self.profiles.get(stats.plan.signature, Profile())
            interval = self.meter.open(
                wave,
                grads=wave.workload.grads,
                role=role,
                clean=needs_footprint(profile, wave),  # a release costs time: only where its footprint teaches
                gradients=self._gradients,
            )
        return _Open(interval, None, failures_before, random)

    @contextmanager
    def _giving_up(self, opened: _Open, stats: WaveStats) -> Iterator[None]:
        """End a wave's measurement if its forward raises, here or on another rank."""
        try:
            yield
        except BaseException:
            ticket = opened.ticket if opened.ticket is not None else self._ticket(None, stats)
            if opened.interval is not None and opened.interval.is_open:
                self.learn(stats.plan.signature, stats.teaching(opened.interval.close(completed=False)))
            self.recorder.abandoned(ticket)
            raise

    def _ticket(self, work: Work[Any] | None, stats: WaveStats) -> Ticket | None:
        """The wave's record so far."""
        handoff = Handoff(budget=stats.admission.samples[0].budget, required_bytes=stats.admission.required_bytes)
        batch = None if work is None else work.batch
        return self.recorder.admitted(
            stats.plan,
            batch=batch,
            budget=stats.budget,
            handoff=handoff,
            after_out_of_memory=stats.after_out_of_memory,
        )

    # Learning --------------------------------------------------------------------------------------------------------

    def learn(self, signature: Signature, look: Observation) -> None:
        """Take in what one look at a wave says, of its rows and of its rows together with the gradients it made."""
        for known, reading in (
            (apart(signature), look.reading),
            (together(signature), look.reading_with_gradients),
        ):
            if reading is not None:
                self.profiles.put(known, observe(self.profiles.get(known, Profile()), reading))

    def _learn_out_of_memory(
        self, opened: _Open, stats: WaveStats, failure: OutOfMemory, error: BaseException | None
    ) -> None:
        """Take in that an admitted wave ran out of memory: no wave as large is admitted into as little again.

        Not where an optimizer had stepped inside the wave: what came after that is not the wave's.
        """
        interval = opened.interval
        if interval is None:  # no rows: what ran out is not the wave's
            return
        is_sealed = interval.is_sealed
        if interval.is_open:
            together_bytes = stats.budget.available_bytes + stats.budget.held_back_bytes
            look = interval.out_of_memory(
                error,
                available_bytes=max(0, together_bytes - stats.gradient_bytes),
                together_bytes=max(0, together_bytes),
            )
            self.learn(stats.plan.signature, stats.teaching(look))
        if not is_sealed:
            self._probed.add(stats.plan.signature)
            self._lost_probes.add(stats.plan.signature)
            self._save()  # a run that is killed for this must not repeat it
        if stats.plan.verdict is Verdict.SPLIT:
            key = split_key(stats.plan.signature, stats.plan.children)
            self.profiles.note_split(key, stats.plan.available_bytes + 1)
        self.recorder.out_of_memory(opened.ticket, requested_bytes=failure.requested_bytes, note=str(failure.phase))

    def _save(self) -> None:
        """Keep what was learned. What goes wrong is said once, counted, and tried again at the next call."""
        try:
            self.profiles.save()
        except Exception as error:
            self._save_errors += 1
            if self._save_errors == 1:
                _log.error("what was learned could not be saved (said once; tried again each call): %s", error)

    @property
    def save_failures(self) -> int:
        """How often what was learned could not be saved."""
        return self._save_errors + self.profiles.failures

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
