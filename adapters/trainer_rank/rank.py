"""`TrainerRank`: plans waves, checks them against the device, runs them with shared prefixes, and learns from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import nn

from adapters.torch_memory import (
    BudgetSampler,
    Interval,
    Observation,
    PeakMeter,
    Role,
    meter_for,
)
from adapters.torch_memory.counter import allocator_figures, figure
from adapters.torch_memory.trust import environment_facts
from adapters.trainer_rank.arguments import as_law, as_safety
from adapters.trainer_rank.binding import CHECK_AT_BINDING, PackedModel, bind_model
from adapters.trainer_rank.errors import (
    AdmissionError,
    AdmittedOutOfMemoryError,
    UnsupportedModelError,
    WaveRefusedError,
)
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.floors import COLD_TRANSIENT_BYTES, Floors
from adapters.trainer_rank.head import HEAD_CHUNK_ROWS
from adapters.trainer_rank.layouts import group_rows
from adapters.trainer_rank.memory import budget_sampler
from adapters.trainer_rank.profile_store import ProfileStore
from adapters.trainer_rank.request import Request, RequestOutputs, output_bytes, prepared
from adapters.trainer_rank.wave import MicroBatch, WaveStats
from pricing import DEFAULT_LAW, DEFAULT_SAFETY, Law, Profile, Safety, Signature, observe, required_bytes
from pricing.planner.budget import Budget
from pricing.planner.layout import Layout
from pricing.planner.plan import Batch, PlanRequest, Setting, Verdict, WavePlan, plan_wave
from pricing.planner.quorum import SINGLE_PROCESS, Quorum
from pricing.planner.split import SplitKey, split_key
from pricing.records.record import DecisionRecord
from pricing.records.recorder import Handoff, Recorder

ADMISSION_TRIES = 3
"""How often a wave is planned anew because memory shrank between planning and execution."""

Item = Request | Sequence[Request]


@dataclass(slots=True)
class _Work:
    """One call's items: the planner's batch and the requests behind it."""

    batch: Batch
    requests: list[Request]

    @classmethod
    def of(cls, items: Sequence[Item], model: PackedModel) -> _Work:
        facts = model.model_facts()
        checked = prepared(items, model)
        batch = Batch(
            [
                [
                    PlanRequest(
                        tokens=request.token_row(),
                        spec=spec,
                        grads=request.grads,
                        output_bytes=output_bytes(spec, facts),
                    )
                    for request, spec in zip(item, item_specs, strict=True)
                ]
                for item, item_specs in zip(checked.requests, checked.specs, strict=True)
            ]
        )
        return cls(batch, [request for item in checked.requests for request in item])

    @property
    def wants_head(self) -> bool:
        return any(request.wants_head for request in self.requests)

    @property
    def has_grads(self) -> bool:
        return any(request.grads for request in self.requests)


@dataclass(slots=True)
class _Open:
    """A wave that runs: its measurement, its record, and how often the device had run out of memory before it."""

    interval: Interval | None
    ticket: DecisionRecord | None
    failures_before: int


class TrainerRank:
    """One rank's trainer: give it a model and requests, get measured, memory-safe waves.

    model: a `PackedModel` or a Hugging Face causal decoder (also under peft), on one device, replicated over ranks.
    memory_bytes: use at most this much of the device; on a CPU the size of the device it stands for (needed there).
    law, safety: a law or its name; a factor of at least 1 that is exact ("11/10", Fraction(11, 10)).
    check: packed execution is compared with the model's own forward before it is trusted, see `bind_model`.
    profiles: file of what was learned (None: in memory). It is read now and saved after each call.
    topology: names the parallel layout; waves of different topologies teach one another nothing.
    quorum: agreement across data-parallel ranks (`adapters.torch_distributed.DistributedQuorum`). Every rank must make
    the same calls; the caller's own collectives (gradient reduction) stay the caller's business.
    recorder: takes a decision record of every wave. meter, sampler: for tests.

    Use one thread. The device's peak counter belongs to this process's meter: nobody else may reset it.
    """

    def __init__(
        self,
        model: nn.Module | PackedModel,
        *,
        memory_bytes: int | None = None,
        profiles: str | Path | None = None,
        law: Law | str = DEFAULT_LAW,
        safety: Safety | Fraction | Decimal | str | float = DEFAULT_SAFETY,
        check: str = CHECK_AT_BINDING,
        topology: str = "single",
        row_multiple: int = 1,
        quorum: Quorum = SINGLE_PROCESS,
        recorder: Recorder | None = None,
        cold_transient_bytes: int = COLD_TRANSIENT_BYTES,
        device: torch.device | str | None = None,
        meter: PeakMeter | None = None,
        sampler: BudgetSampler | None = None,
    ) -> None:
        self.law = as_law(law)
        self.safety = as_safety(safety)
        self._model = bind_model(model, check=check)
        self._parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
        self.device = _device_of(model) if device is None else torch.device(device)
        self.meter = meter_for(self.device) if meter is None else meter
        self.sampler = budget_sampler(self.device, self.meter, memory_bytes) if sampler is None else sampler
        self.recorder = Recorder() if recorder is None else recorder
        self.profiles = ProfileStore(profiles, self._environment())
        self._topology = f"{self._model.model_facts().name}, {topology}"
        self._row_multiple = row_multiple
        self._quorum = quorum
        self._cold_transient_bytes = cold_transient_bytes
        self._probed: set[Signature] = set()
        self._measured_splits: dict[SplitKey, int] = {}
        self._open_waves: dict[MicroBatch, _Open] = {}

    def forward_micro_batches(self, items: Sequence[Item]) -> Iterator[MicroBatch]:
        """Plan, admit and run `items` forward as waves, in order; the loop body is each wave's loss and backward.

            for wave in rank.forward_micro_batches(items):
                loss = my_loss(wave.outputs)
                loss.backward()

        An item is a request, or several that must run in one wave. A wave's turn ends when the loop goes on: then it is
        measured, learned from, and lets go of its outputs. Gradients of several waves add up as usual; step whenever
        you like (the measurement of the wave at hand ends at the step). Gradients that `zero_grad()` let go are kept
        free beside the price of the wave that makes them again.

        With several ranks, a rank that has no items left gets waves without requests until every rank is done. What
        planning, admission or a forward raises on one rank is an error on every rank (`RankFailedError` on the others),
        before any of them gets the wave. What the loop's body raises is not passed on: leave the loop on every rank, or
        on none.

        Which waves can lower later prices: those that run whole. That is, every output that carries gradients has its
        backward run before the loop goes on, nothing else of this meter runs in between, and nobody resets the
        device's peak counter. (Outputs of earlier waves may be let go in it: their bytes are added to what it reads.)
        A body that defers backward, raises, breaks off, runs another forward or leaves a request out of its loss can
        only raise later prices: give a request of no interest (advantage 0) the weight 0. The first complete wave of a
        signature never lowers anything: it pays one-time costs.

        Callers that are not supported, and how they fail: (1) a loss that keeps or needs more than 6,144 B per logical
        row on top of the outputs (assumption HEAD), or more than 384 KiB of constants a request (assumption SHORT), may
        run out of memory under a packed price until a wave has taught its rate; (2) a foreign reset of the peak counter
        that is overtaken before the next look is not noticed; (3) memory that libraries take past the allocator is
        covered by the 3 % reserve only.

        Raises `WaveRefusedError` before anything of the refused item runs, `AdmissionError`, `BudgetSampleError` (a
        sample that fails is an error on every rank), `AdmittedOutOfMemoryError` (in the caller's phase: inside
        `with wave:`). After any of them, and after a break, the rank can be used again.
        """
        with self._guard():
            work = _Work.of(items, self._model)
        start = 0
        try:
            while self._quorum.max(len(work.batch) - start) > 0:
                wave = self._run(work, self._admit(work, start), Role.WAVE)
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

    def dp_rank_forward(self, items: Sequence[Item]) -> list[RequestOutputs]:
        """Run `items` forward now, in as many waves as the budget asks for; every request's outputs, in caller order.

        Outputs of earlier waves stay alive while later ones run, and count against the budget. What is measured ends at
        each forward's return: complete evidence for requests without gradients; with gradients it can only raise later
        prices, because the caller's backward is not seen. Raises as `forward_micro_batches` does.
        """
        with self._guard():
            work = _Work.of(items, self._model)
        outputs: list[RequestOutputs] = []
        start = 0
        try:
            while self._quorum.max(len(work.batch) - start) > 0:
                wave = self._run(work, self._admit(work, start), Role.FORWARD)
                outputs.extend(wave.outputs)
                start = wave.items.stop
        finally:
            self.profiles.save()
        return outputs

    def plan(self, items: Sequence[Item]) -> WavePlan:
        """What the first wave of `items` would be now, and at which price; nothing runs. Collective like the others."""
        with self._guard():
            work = _Work.of(items, self._model)
            budget = self._budget(work)
        return self._plan(work, 0, budget)

    def end_wave(self, wave: MicroBatch, error: BaseException | None, *, completed: bool) -> None:
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
        self._learn(stats.plan.signature, stats.closing)
        self._note_split(stats)
        self.recorder.observed(open_wave.ticket, stats.closing.reading, note=str(stats.closing.refusal or ""))

    # Planning and admission ------------------------------------------------------------------------------------------

    def _admit(self, work: _Work, start: int) -> WaveStats:
        """The next wave, planned on a fresh sample and checked against another one right before it runs."""
        for _ in range(ADMISSION_TRIES):
            with self._guard():
                budget = self._budget(work)
            plan = self._plan(work, start, budget)
            if not plan.runs:
                self.recorder.refused(plan, batch=work.batch, budget=budget)
                raise WaveRefusedError(plan)
            with self._guard():
                admission = self.sampler.admit(self._demand_bytes(plan) + self._unmade_gradient_bytes(work))
            if self._quorum.all_fit(admission.runs or plan.verdict is Verdict.EMPTY):
                return WaveStats(plan=plan, budget=budget, admission=admission)
        raise AdmissionError(plan, admission, ADMISSION_TRIES)

    def _budget(self, work: _Work) -> Budget:
        """A fresh sample, with what the gradients will take kept back."""
        budget = self.sampler.budget()
        return replace(budget, reserve_bytes=budget.reserve_bytes + self._unmade_gradient_bytes(work))

    def _unmade_gradient_bytes(self, work: _Work) -> int:
        """Bytes of the parameters' gradients that the next backward has to make.

        They stay until `zero_grad()`, so most waves pay nothing for them and their prices know nothing of them: the
        first wave after it pays for all.
        """
        if not work.has_grads:
            return 0
        return sum(value.nbytes for value in self._parameters if value.requires_grad and value.grad is None)

    def _plan(self, work: _Work, start: int, budget: Budget) -> WavePlan:
        return plan_wave(
            work.batch,
            start=start,
            profiles=self.profiles,
            available_bytes=budget.available_bytes,
            setting=partial(self._setting, work),  # made inside, so that its error reaches every rank
            law=self.law,
            safety=self.safety,
            quorum=self._quorum,
            probed=self._probed,
            measured_splits=self._measured_splits,
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

    def _setting(self, work: _Work) -> Setting:
        """Made for each wave: the recompute mode is what the live model says now."""
        facts = self._model.model_facts()
        floors = Floors(facts=facts, has_head=work.wants_head, cold_transient_bytes=self._cold_transient_bytes)
        return Setting(
            topology=self._topology,
            recompute=self._model.recompute_mode(),
            row_multiple=self._row_multiple,
            segment_state_bytes=facts.segment_state_bytes,
            floor_bytes=floors.floor_bytes,
            checkpoint_retained_bytes=floors.checkpoint_retained_bytes,
        )

    # Running ---------------------------------------------------------------------------------------------------------

    def _run(self, work: _Work, stats: WaveStats, role: Role) -> MicroBatch:
        """Run an admitted wave forward, measured. What it raises reaches the other ranks as `RankFailedError`."""
        plan = stats.plan
        if plan.verdict is Verdict.PROBE:
            self._probed.add(plan.signature)
        outputs = {request: RequestOutputs() for request in plan.requests}
        opened = self._open(stats, role)
        with self._giving_up(opened, stats):
            with self._guard():
                if opened.interval is not None:
                    outputs |= self._forward(work, stats)
                    opened.ticket = self._ticket(work, stats)  # while the device still works
                    stats.forward = opened.interval.forward_done([output.tensors() for output in outputs.values()])
            self._quorum.all_fit(True)  # every rank's forward ran: no caller waits for a rank that failed
        if stats.forward is not None:
            self._learn(plan.signature, stats.forward)
        wave = MicroBatch(
            self,
            stats,
            items=range(plan.start, plan.next_start),
            indices=plan.requests,
            requests=[work.requests[request] for request in plan.requests],
            outputs=list(outputs.values()),
        )
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
        interval = self.meter.open(wave, grads=wave.workload.grads, role=role) if wave.packed_rows > 0 else None
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
                self._learn(stats.plan.signature, interval.close(completed=False))
            self.recorder.abandoned(ticket)
            raise

    def _ticket(self, work: _Work | None, stats: WaveStats) -> DecisionRecord | None:
        """The wave's record so far."""
        handoff = Handoff(budget=stats.admission.samples[0].budget, required_bytes=stats.admission.required_bytes)
        batch = None if work is None else work.batch
        return self.recorder.admitted(stats.plan, batch=batch, budget=stats.budget, handoff=handoff)

    def _forward(self, work: _Work, stats: WaveStats) -> dict[int, RequestOutputs]:
        """The outputs of one wave by request: in one go, or as its split's sub-forwards, whose graphs live together."""
        plan = stats.plan
        if plan.verdict is not Verdict.SPLIT:
            return self._run_layout(work, plan.layout(work.batch))
        outputs: dict[int, RequestOutputs] = {}
        for child, layout in zip(plan.children, plan.child_layouts(work.batch), strict=True):
            interval = self.meter.open(child.wave, grads=child.wave.workload.grads, role=Role.SPLIT_CHILD)
            try:
                part = self._run_layout(work, layout)
            except BaseException:
                interval.discard()
                raise
            look = interval.forward_done([output.tensors() for output in part.values()])
            stats.children.append(look)
            self._learn(plan.signature, look)
            outputs |= part
        return outputs

    def _run_layout(self, work: _Work, layout: Layout) -> dict[int, RequestOutputs]:
        outputs: dict[int, RequestOutputs] = {}
        for group in group_rows(layout, work.batch, self.device):
            requests = [work.requests[request] for request in group.requests]
            results = packed_forward(self._model, group.rows, requests, grads=group.grads)
            outputs.update(zip(group.requests, results, strict=True))
        return outputs

    # Learning --------------------------------------------------------------------------------------------------------

    def _learn(self, signature: Signature, look: Observation) -> None:
        if look.reading is not None:
            self.profiles.put(signature, observe(self.profiles.get(signature, Profile()), look.reading))

    def _note_split(self, stats: WaveStats) -> None:
        """An identical split will cost at least what this one was seen to."""
        observed = stats.observed_bytes
        if stats.plan.verdict is Verdict.SPLIT and observed is not None:
            key = split_key(stats.plan.children)
            self._measured_splits[key] = max(observed, self._measured_splits.get(key, 0))

    def _device_failures(self) -> int:
        """How often the device ran out of memory so far, also where the caller caught it; 0 where nobody counts."""
        if self.device.type != "cuda":
            return 0
        return figure(allocator_figures(self.device), "num_ooms")

    def _environment(self) -> dict[str, str]:
        """What a profile depends on beside its signature."""
        facts = self._model.model_facts()
        return environment_facts(self.device) | {
            "model": facts.name,
            "layers": str(facts.layers),
            "hidden": str(facts.hidden),
            "vocabulary": str(facts.vocabulary),
            "dtype": str(facts.dtype),
            "segment_state_bytes": str(facts.segment_state_bytes),
            "head_chunk_rows": str(HEAD_CHUNK_ROWS),
        }


def _device_of(model: nn.Module | PackedModel) -> torch.device:
    """Where the model's parameters lie. Raises `UnsupportedModelError` for a model spread over devices."""
    devices = {parameter.device for parameter in cast(nn.Module, model).parameters()}
    if len(devices) != 1:
        raise UnsupportedModelError(f"the model lies on {len(devices)} devices; one is needed")
    return devices.pop()
