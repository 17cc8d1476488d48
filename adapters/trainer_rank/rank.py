"""`TrainerRank`: plans waves, checks them against the device, runs them with shared prefixes, and learns from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

import adapters.trainer_rank.head as head
from adapters.torch_memory import BudgetSampler, PeakMeter, Role, meter_for
from adapters.torch_memory.trust import environment_facts
from adapters.trainer_rank.arguments import as_law, as_safety
from adapters.trainer_rank.binding import CHECK_AT_BINDING, PackedModel, bind_model
from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.floors import COLD_TRANSIENT_BYTES
from adapters.trainer_rank.identity import ModelIdentity
from adapters.trainer_rank.micro_batch import MicroBatch
from adapters.trainer_rank.packed_work import Item, PackedWork
from adapters.trainer_rank.request import RequestOutputs
from adapters.trainer_rank.sharding import is_sharded_whole, reshard, sharding_facts, shards_of
from adapters.wave_loop.batch_result import BatchResult, Waves
from adapters.wave_loop.call import Call, OnRefusal
from adapters.wave_loop.gradients import GradientKeeper
from adapters.wave_loop.loop import WaveLoop
from adapters.wave_loop.memory import budget_sampler
from adapters.wave_loop.profile_store import ProfileStore
from pricing import DEFAULT_LAW, DEFAULT_SAFETY, Law, Safety
from pricing.kernel.forecast import Forecast, ForecastOf
from pricing.planner.plan import WavePlan
from pricing.planner.quorum import SINGLE_PROCESS, Quorum
from pricing.records.recorder import Recorder

if TYPE_CHECKING:
    from adapters.forecast.forecaster import Forecaster


class TrainerRank(WaveLoop):
    """One rank's trainer: give it a model and requests, get measured, memory-safe waves.

    model: a `PackedModel` or a Hugging Face causal decoder (also under peft), on one device, replicated over ranks.
    memory_bytes: use at most this much of the device; on a CPU the size of the device it stands for (needed there).
    law, safety: a law or its name; a factor of at least 1 that is exact ("11/10", Fraction(11, 10)).
    check: packed execution is compared with the model's own forward before it is trusted, see `bind_model`.
    profiles: file of what was learned (None: in memory). It is read now and saved after each call. It may begin from a
    forecast (`pricing forecast -o FILE`).
    cold_transient_bytes: what libraries take at a first wave, held while nothing was learned (None: 64 MiB; on a CPU
    nothing).
    topology: names the parallel layout; waves of different topologies teach one another nothing.
    quorum: agreement across data-parallel ranks (`adapters.torch_distributed.DistributedQuorum`). Every rank must make
    the same calls; the caller's own collectives (gradient reduction) stay the caller's business.
    forecast: whether the first wave of a kind is priced by running the model without values (`adapters.forecast`),
    beside its static floor. forecast_loss: the caller's loss of a wave's outputs, where that needs more than their sum.
    floors: False where layer inputs do not stay on the device and nothing shows it (an offloading checkpoint of your
    own); `save_on_cpu`, selective or foreign checkpoints and compiled layers are noticed without it.
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
        cold_transient_bytes: int | None = None,
        forecast: bool = True,
        forecast_loss: Callable[[Sequence[RequestOutputs]], torch.Tensor] | None = None,
        floors: bool = True,
        device: torch.device | str | None = None,
        meter: PeakMeter | None = None,
        sampler: BudgetSampler | None = None,
    ) -> None:
        chosen_law, chosen_safety = as_law(law), as_safety(safety)
        self._model = bind_model(model, check=check)
        sharded = isinstance(model, nn.Module) and is_sharded_whole(model)
        if sharded and quorum is SINGLE_PROCESS and isinstance(model, nn.Module) and shards_of(model) > 1:
            raise UnsupportedModelError(
                f"the model is sharded over {shards_of(model)} ranks, which must agree on every wave: pass a quorum"
            )
        self._identity = ModelIdentity(model, lambda: head_facts() | sharding_facts(model))
        device = _device_of(model) if device is None else torch.device(device)
        meter = meter_for(device) if meter is None else meter
        super().__init__(
            device=device,
            meter=meter,
            sampler=budget_sampler(device, meter, memory_bytes) if sampler is None else sampler,
            profiles=ProfileStore(profiles, _environment(self._model, self._identity, device)),
            law=chosen_law,
            safety=chosen_safety,
            quorum=quorum,
            recorder=recorder,
            parameters=list(model.parameters()) if isinstance(model, nn.Module) else [],
            keeps_in_step=sharded,
        )
        self._module = model
        self._topology = f"{self._model.model_facts().name}, {topology}"
        self._row_multiple = row_multiple
        if cold_transient_bytes is None:  # a CPU has no library handles on a device
            cold_transient_bytes = 0 if device.type == "cpu" else COLD_TRANSIENT_BYTES
        self._cold_transient_bytes = cold_transient_bytes
        given = self.profiles.forecasts
        self._forecaster = (
            _forecaster(model, device, forecast_loss, cold_transient_bytes, given) if forecast and not sharded else None
        )
        self._floors = floors

    def forward_micro_batches(self, items: Sequence[Item], *, on_refusal: OnRefusal = "raise") -> Waves[MicroBatch]:
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

        A forward that runs out of memory is planned anew and run narrower: the caller notices nothing but a line in the
        record. In the caller's phase gradients of part of the wave may be there already, which only `train_batch` can
        take back: here it is an `AdmittedOutOfMemoryError`, learned from, so that no wave as large is planned again.

        on_refusal: "skip" leaves out an item that cannot run and goes on; the iterator's `skipped` names it.

        Raises `WaveRefusedError` before anything of the refused item runs, `AdmissionError`, `BudgetSampleError` (a
        sample that fails is an error on every rank), `AdmittedOutOfMemoryError` (in the caller's phase: inside
        `with wave:`). After any of them, and after a break, the rank can be used again.
        """
        return self._waves(partial(self._work, items), Role.WAVE, on_refusal)

    def train_batch(
        self,
        items: Sequence[Item],
        loss_fn: Callable[[MicroBatch], torch.Tensor],
        *,
        on_refusal: OnRefusal = "raise",
        parameters: Iterable[torch.nn.Parameter] = (),
    ) -> BatchResult:
        """Forward, loss and backward of `items` as waves, whatever runs out of memory on the way.

            result = rank.train_batch(items, lambda wave: my_loss(wave.outputs))
            optimizer.step()

        When it returns, `.grad` holds what was there before plus each item's gradient exactly once. Where a wave runs
        out of memory, what it had added is taken back and it is planned anew, narrower; where that cannot be told apart
        (full gradients that it added to), the whole batch runs again. When it raises, `.grad` is as it was before.

        loss_fn: from a wave to its share of the batch's loss, a scalar; backward is run here. It is called once a try,
        so side effects of its own (counters, metrics) may be seen for tries that did not count: take figures from the
        result, which has the waves that counted and their losses. Random numbers: a wave that is run again starts from
        torch's random state of its first try, so dropout draws the same masks where the width is the same.

        parameters: others beside the model's that backward reaches (a value head). Gradients that are there when it is
        called are set aside until it returns, so accumulation over several calls holds two sets of gradients;
        after `zero_grad(set_to_none=True)` it costs nothing. No optimizer may step inside `loss_fn`.

        Raises as `forward_micro_batches` does, and `OutOfMemoryRefusedError` where what failed can be made no narrower.
        """

        if self._keeps_in_step:
            raise UnsupportedModelError(
                "of a sharded model no wave that ran out of memory can be taken back, since the other ranks wait "
                "inside it for this one: use forward_micro_batches"
            )

        def step(wave: MicroBatch) -> torch.Tensor:
            loss = loss_fn(wave)
            loss.backward()
            return loss

        return self._train(partial(self._work, items), step, on_refusal=on_refusal, parameters=parameters)

    def dp_rank_forward(self, items: Sequence[Item]) -> list[RequestOutputs]:
        """Run `items` forward now, in as many waves as the budget asks for; every request's outputs, in caller order.

        Outputs of earlier waves stay alive while later ones run, and count against the budget. What is measured ends at
        each forward's return: complete evidence for requests without gradients; with gradients it can only raise later
        prices, because the caller's backward is not seen. Raises as `forward_micro_batches` does, and
        `OutputsRefusedError` before anything runs where the outputs alone can never fit together.
        """
        outputs: list[RequestOutputs] = []
        for wave in self._waves(partial(self._work, items), Role.FORWARD):
            outputs.extend(wave.outputs)
        return outputs

    def plan(self, items: Sequence[Item]) -> WavePlan:
        """What the first wave of `items` would be now, and at which price; nothing runs. Collective like the others."""
        return self._first_plan(partial(self._work, items))

    def _next(self, call: Call[Any], role: Role, keeper: GradientKeeper | None = None) -> Any:
        reshard(self._module)
        return super()._next(call, role, keeper)

    def _work(self, items: Sequence[Item]) -> PackedWork:
        return PackedWork(
            items,
            self._model,
            device=self.device,
            topology=self._topology,
            identity=self._identity,
            floors=self._floors,
            row_multiple=self._row_multiple,
            cold_transient_bytes=self._cold_transient_bytes,
            meter=self.meter,
            learn=self.learn,
            forecaster=self._forecaster,
        )


def _forecaster(
    model: nn.Module | PackedModel,
    device: torch.device,
    loss: Callable[[Sequence[RequestOutputs]], torch.Tensor] | None,
    transient_bytes: int,
    given: Mapping[ForecastOf, Forecast],
) -> Forecaster | None:
    """The forecaster of a module; None for a packed model that is none: what it holds cannot be copied."""
    from adapters.forecast.forecaster import Forecaster  # imports this package's own modules

    if not isinstance(model, nn.Module):
        return None
    losses = {} if loss is None else {"loss": loss}
    return Forecaster(model, device, transient_bytes=transient_bytes, given=given, **losses)


def _environment(model: PackedModel, identity: ModelIdentity, device: torch.device) -> dict[str, str]:
    """What a profile depends on beside its signature."""
    facts = model.model_facts()
    return (
        identity.facts
        | environment_facts(device)
        | {
            "model": facts.name,
            "layers": str(facts.layers),
            "hidden": str(facts.hidden),
            "vocabulary": str(facts.vocabulary),
            "dtype": str(facts.dtype),
            "segment_state_bytes": str(facts.segment_state_bytes),
        }
        | head_facts()
    )


def head_facts() -> dict[str, str]:
    """What the head's workspace depends on; like a model's settings it may be changed in a running process."""
    return {"head_chunk_rows": str(head.HEAD_CHUNK_ROWS)}


def _device_of(model: nn.Module | PackedModel) -> torch.device:
    """Where the model's parameters lie. Raises `UnsupportedModelError` for a model spread over devices."""
    devices = {parameter.device for parameter in cast(nn.Module, model).parameters()}
    if len(devices) != 1:
        raise UnsupportedModelError(f"the model lies on {len(devices)} devices; one is needed")
    return devices.pop()
