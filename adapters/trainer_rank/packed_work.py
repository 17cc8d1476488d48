"""Packed execution as the loop's work: requests whose shared prefixes run once, also cut into sub-forwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from adapters.torch_memory import Observation, PeakMeter, Role
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.floors import Floors
from adapters.trainer_rank.group_rows import GroupRows, group_rows
from adapters.trainer_rank.head import IGNORED_TARGET
from adapters.trainer_rank.identity import ModelIdentity
from adapters.trainer_rank.labels import is_tempered, uncopied_bytes, unprojected_bytes
from adapters.trainer_rank.micro_batch import MicroBatch
from adapters.trainer_rank.packed_model import PackedModel
from adapters.trainer_rank.request import Request, RequestOutputs, output_bytes, prepared
from adapters.trainer_rank.rows import no_rows, unshared_rows
from adapters.wave_loop.wave import WaveOwner, WaveStats
from pricing import Signature, Workload
from pricing.planner.layout import Layout, layout_of
from pricing.planner.plan import Batch, PlanRequest, Setting, Verdict, WaveShape
from pricing.planner.setting import no_forecast

if TYPE_CHECKING:
    from adapters.forecast.forecaster import Forecaster

Item = Request | Sequence[Request]


class PackedWork:
    """One call's items: the planner's batch and the requests behind it. See `adapters.wave_loop.Work`.

    learn: takes what each sub-forward of a split showed.
    """

    def __init__(
        self,
        items: Sequence[Item],
        model: PackedModel,
        *,
        device: torch.device,
        topology: str,
        identity: ModelIdentity,
        floors: bool,
        row_multiple: int,
        cold_transient_bytes: int,
        meter: PeakMeter,
        learn: Callable[[Signature, Observation], None],
        forecaster: Forecaster | None = None,
    ) -> None:
        facts = model.model_facts()
        checked = prepared(items, model)
        self.batch = Batch(
            [
                [
                    PlanRequest(
                        tokens=request.token_row(),
                        spec=spec,
                        grads=request.grads,
                        output_bytes=output_bytes(spec, facts),
                        padded_tail_rows=padded_tail_rows(request),
                    )
                    for request, spec in zip(item, item_specs, strict=True)
                ]
                for item, item_specs in zip(checked.requests, checked.specs, strict=True)
            ]
        )
        self.requests = [request for item in checked.requests for request in item]
        self._model = model
        self._device = device
        self._topology = topology
        self._identity = identity
        self._bounds_floors = floors
        self._row_multiple = row_multiple
        self._cold_transient_bytes = cold_transient_bytes
        self._meter = meter
        self._learn = learn
        self._forecaster = forecaster
        self._outputs: dict[int, RequestOutputs] = {}

    @property
    def has_grads(self) -> bool:
        return any(request.grads for request in self.requests)

    @cached_property
    def every_row_is_projected(self) -> bool:
        """Whether all rows go through the head in one pass: every row of every request has a label or another wanted
        number, at one temperature and in one grad mode."""
        active = [request for at, request in enumerate(self.requests) if self.batch.is_active(at)]
        return (
            all(_wants_every_row(request) for request in active)
            and len({(request.temperature, request.grads, request.top_k) for request in active}) == 1
        )

    @cached_property
    def every_row_has_an_entropy(self) -> bool:
        """Whether all requests ask for entropies, so that a wave of any of them makes their buffers."""
        return all(request.entropy for at, request in enumerate(self.requests) if self.batch.is_active(at))

    @cached_property
    def is_tempered(self) -> bool:
        """Whether any request is at another temperature than 1."""
        return is_tempered(request for at, request in enumerate(self.requests) if self.batch.is_active(at))

    def setting(self) -> Setting:
        """Made for each wave: the recompute mode is what the live model says now."""
        facts, identity = self._model.model_facts(), self._identity
        stay = self._bounds_floors and identity.layer_inputs_stay_on_the_device
        words = [self._topology, "tempered" if self.is_tempered else "", identity.live()]
        floors = Floors(
            facts=facts,
            has_head=self._bounds_floors and self.every_row_is_projected,
            has_entropy=self.every_row_has_an_entropy,
            cold_transient_bytes=self._cold_transient_bytes,
            kept_layers=identity.layers_with_a_graph(facts.layers) if stay else 0,
            extra_floor_bytes=getattr(self._model, "wave_floor_bytes", None),
        )
        return Setting(
            topology=", ".join(word for word in words if word),
            recompute=self._model.recompute_mode(),
            row_multiple=self._row_multiple,
            segment_state_bytes=facts.segment_state_bytes,
            floor_bytes=floors.floor_bytes,
            floor_parts=floors.floor_parts,
            checkpoint_retained_bytes=floors.checkpoint_retained_bytes,
            forecast_bytes=no_forecast if self._forecaster is None else self._forecast_bytes,
        )

    def _forecast_bytes(self, shape: WaveShape, requests: Sequence[int], workload: Workload) -> int:
        """What the forecaster says of these requests as one wave."""
        assert self._forecaster is not None

        def forwards() -> list[tuple[GroupRows, list[Request]]]:
            layout = layout_of(self.batch, range(requests[0], requests[-1] + 1), self._row_multiple)
            groups = group_rows(layout, self.batch, torch.device("cpu"))
            return [(group, [self.requests[request] for request in group.requests]) for group in groups]

        asked = [self.requests[request] for request in requests if self.requests[request].token_row().size]
        if not asked:
            return 0  # nothing runs
        return self._forecaster.peak_bytes(shape, workload, asked, forwards)

    def forward(self, stats: WaveStats) -> list[object]:
        """In one go, or as the split's sub-forwards, whose graphs live together."""
        plan = stats.plan
        self._outputs = {request: RequestOutputs() for request in plan.requests}
        if plan.verdict is not Verdict.SPLIT:
            self._outputs |= self._run_layout(plan.layout(self.batch), stats)
            return self._tensors()
        for child, layout in zip(plan.children, plan.child_layouts(self.batch), strict=True):
            interval = self._meter.open(child.wave, grads=child.wave.workload.grads, role=Role.SPLIT_CHILD)
            try:
                part = self._run_layout(layout, stats)
            except BaseException:
                interval.discard()
                raise
            look = interval.forward_done([output.tensors() for output in part.values()])
            stats.children.append(look)
            self._learn(plan.signature, stats.teaching(look))
            self._outputs |= part
        return self._tensors()

    def turn(self, owner: WaveOwner, stats: WaveStats) -> MicroBatch:
        """The wave in the caller's hands. Its outputs are its own from now on."""
        requests = stats.plan.requests
        outputs, self._outputs = self._outputs, {}
        return MicroBatch(
            owner,
            stats,
            requests=[self.requests[request] for request in requests],
            outputs=[outputs[request] if request in outputs else self._without_rows(request) for request in requests],
        )

    def _without_rows(self, request: int) -> RequestOutputs:
        """The outputs of a request in a wave of no rows: nothing ran, and nothing has entries."""
        asked = self.requests[request]
        (outputs,) = packed_forward(self._model, no_rows(self._device), [asked], grads=asked.grads)
        return outputs

    def one_row(self, *, grads: bool) -> torch.Tensor | None:
        """See `HuggingFaceDecoder.one_row`: for a rank without rows, of a model with collectives of its own."""
        sharded: Any = self._model
        loss: torch.Tensor | None = sharded.one_row(unshared_rows([np.zeros(1, np.int64)], self._device), grads=grads)
        return loss

    def drop(self) -> None:
        """Let go of what a forward held that is not handed out."""
        self._outputs = {}

    def _tensors(self) -> list[object]:
        return [output.tensors() for output in self._outputs.values()]

    def _run_layout(self, layout: Layout, stats: WaveStats) -> dict[int, RequestOutputs]:
        outputs: dict[int, RequestOutputs] = {}
        facts = self._model.model_facts()
        for group in group_rows(layout, self.batch, self._device):
            requests = [self.requests[request] for request in group.requests]
            lacking = unprojected_bytes(
                requests,
                group.rows.request_positions,
                facts,
                packed_rows=group.rows.packed_rows,
                tempered=self.is_tempered,
            )
            if stats.plan.wave.evidence is not None:  # of several kinds
                lacking = max(lacking, uncopied_bytes(requests, group.rows.request_positions, facts))
            stats.beyond_bytes = max(stats.beyond_bytes, lacking)
            results = packed_forward(
                self._model, group.rows, requests, grads=group.grads, before_outputs=self._meter.before_outputs
            )
            outputs.update(zip(group.requests, results, strict=True))
        return outputs


def padded_tail_rows(request: Request) -> int:
    """Rows at the request's end that look like padding: one token over and over, none of it with a label of interest.

    Two rows at least: a text may end in any one token.
    """
    if request.targets is None or request.top_k is not None or request.entropy or request.logits:
        return 0
    row = request.token_row()
    ignored = (np.asarray(request.targets).reshape(len(row), -1) == IGNORED_TARGET).all(axis=1) if len(row) else row
    kept = np.flatnonzero(~ignored | (row != row[-1])) if len(row) else row
    tail = len(row) - (int(kept[-1]) + 1 if len(kept) else 0)
    return tail if tail > 1 else 0


def _wants_every_row(request: Request) -> bool:
    """Whether no row of the request is left out of the head's work, which rows without a label of interest are."""
    if request.top_k is not None or request.entropy:
        return True
    return request.targets is not None and not (np.asarray(request.targets) == IGNORED_TARGET).any()
