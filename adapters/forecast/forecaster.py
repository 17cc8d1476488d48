"""The forecaster of one trainer: what its own model needs for waves of a kind that nothing was learned of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import torch
from torch import nn

from adapters.forecast.errors import ForecastError
from adapters.forecast.fake_run import Target
from adapters.forecast.identity import forecast_of
from adapters.forecast.lines import COLD_TRANSIENT_BYTES, forecast_model
from adapters.forecast.shapes import RequestKind
from adapters.forecast.trace import Loss, TracedGroup, sum_of_outputs
from adapters.trainer_rank.group_rows import GroupRows
from adapters.trainer_rank.identity import surroundings
from adapters.trainer_rank.request import Request
from pricing.kernel.forecast import NO_FORECAST, Forecast, ForecastOf, forecast_peak_bytes
from pricing.kernel.requests import Workload
from pricing.planner.plan import WaveShape

_log = logging.getLogger(__name__)

NONE_GIVEN: Final[Mapping[ForecastOf, Forecast]] = MappingProxyType({})

MakeGroups = Callable[[], Sequence[tuple[GroupRows, Sequence[Request]]]]


class Forecaster:
    """Forecasts by workload, made when the first wave of one is planned, and kept.

    model: the live module; it is never run, only a copy without values is. loss: the caller's, where it needs more than
    the sum of the outputs. Gradients that a wave makes are not part of it: the loop keeps them free beside its price.
    transient_bytes: what a first wave on CUDA pays once. given: forecasts that are there already (a profile file's),
    used where one is of this model, of these requests and of no loss but the sum. `refusals` says of which workloads
    nothing could be forecast, and why: those start from the static floor, as without a forecaster.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        *,
        loss: Loss = sum_of_outputs,
        transient_bytes: int = COLD_TRANSIENT_BYTES,
        given: Mapping[ForecastOf, Forecast] = NONE_GIVEN,
    ) -> None:
        self._model = model
        self._target = Target.CUDA if device.type == "cuda" else Target.CPU
        self._loss = loss
        self._transient_bytes = transient_bytes if self._target is Target.CUDA else 0
        self._given = given if loss is sum_of_outputs else NONE_GIVEN
        self._known: dict[tuple[Workload, tuple[RequestKind, ...], tuple[bool, ...], tuple[str, ...]], Forecast] = {}
        self.refusals: list[str] = []

    def peak_bytes(self, shape: WaveShape, workload: Workload, requests: Sequence[Request], groups: MakeGroups) -> int:
        """The peak that is forecast of a wave of `requests`, outputs included; 0 where it cannot be told.

        groups: makes the wave's own forwards; asked where nothing was forecast of this workload yet.
        """
        kinds = tuple(sorted({RequestKind.of(request) for request in requests}))
        trained = tuple(value.requires_grad for value in self._model.parameters())  # layers may be unfrozen
        key = replace(workload, shortest_single_target_rows=None), kinds, trained, tuple(surroundings())
        if key not in self._known:
            self._known[key] = self._given_forecast(workload, kinds) or self._forecast(kinds, groups)
        return forecast_peak_bytes(self._known[key], shape.packed_rows, shape.logical_rows, shape.grad_segments)

    def _given_forecast(self, workload: Workload, kinds: tuple[RequestKind, ...]) -> Forecast | None:
        """One that was made elsewhere, of this very model as it runs now; such a one saves the trace."""
        if not self._given:
            return None
        of = forecast_of(self._model, workload.recompute, kinds, self._target, self._transient_bytes)
        return self._given.get(of)

    def _forecast(self, kinds: tuple[RequestKind, ...], groups: MakeGroups) -> Forecast:
        try:
            wave = [
                TracedGroup(rows=replace(group.rows, device=torch.device("cpu")), requests=requests, grads=group.grads)
                for group, requests in groups()
            ]
            return forecast_model(
                self._model,
                kinds,
                target=self._target,
                loss=self._loss,
                wave=wave,
                transient_bytes=self._transient_bytes,
                gradients_kept_back=True,
            )
        except ForecastError as error:
            self.refusals.append(str(error))
            _log.warning("no forecast, the static floor prices the first wave: %s", error)
            return NO_FORECAST
