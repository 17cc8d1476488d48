"""What a model needs before it ran anywhere: its fixed bytes, its forecast waves, and the most rows that fit a device.

The figures come from a forecast (`pricing.kernel.forecast`); prices are those that a first wave of the same rows is
held to. Fixed bytes are what stays on the device between waves: parameters, their gradients, the optimizer's states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pricing.kernel.errors import QuantityError
from pricing.kernel.forecast import Forecast, ForecastOf, forecast_peak_bytes
from pricing.kernel.law import Law
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import Price, price
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import DEFAULT_SAFETY, SHORT_REQUEST_ROWS, Safety, require_count
from pricing.kernel.requests import RecomputeMode, Workload
from pricing.kernel.wave import Wave
from pricing.planner.budget import fits, reserve_of

LABEL_OUTPUT_BYTES = 4
"""A log-probability in fp32, kept for each row of each request."""

MOST_ROWS = 1 << 32
"""Where the search for the most rows ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNeeds:
    """One model under one way of training it. All sizes in bytes.

    parameters, trainable: how many. gradient_bytes: of all trainable parameters. optimizer_bytes: states of
    `optimizer`, which it makes at its first step. optimizer_step_bytes: what each of its steps takes beside for a
    moment, when no wave runs. forecast: of waves that train on single-target log-probabilities,
    gradients of parameters left out (they are counted here). forecast_of: what it is of, as a profile file says it.
    """

    name: str
    parameters: int
    trainable: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer: str
    optimizer_bytes: int
    recompute: RecomputeMode
    forecast: Forecast
    segment_state_bytes: int = 0
    optimizer_step_bytes: int = 0
    forecast_of: ForecastOf = ()

    @property
    def fixed_bytes(self) -> int:
        """What stays on the device between waves."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastWave:
    """One wave of requests that share nothing. peak_bytes: the forecast; price: what is held for it, with its factors.

    phase: the stretch of the wave that holds its peak."""

    rows: int
    requests: int
    peak_bytes: int
    phase: str
    price: Price


def available_on(needs: ModelNeeds, gpu_bytes: int) -> int:
    """What a device of `gpu_bytes` has left for a wave: without fixed bytes and the reserve of 3 %. May be negative."""
    require_count("gpu_bytes", gpu_bytes)
    return gpu_bytes - reserve_of(gpu_bytes) - needs.fixed_bytes


def forecast_wave(
    needs: ModelNeeds,
    rows: int,
    *,
    shortest_rows: int = SHORT_REQUEST_ROWS,
    law: Law = DEFAULT_LAW,
    safety: Safety = DEFAULT_SAFETY,
) -> ForecastWave:
    """A first wave of `rows` rows in requests of `shortest_rows` (the last one longer). Raises `QuantityError`."""
    require_count("rows", rows)
    require_count("shortest_rows", shortest_rows)
    if shortest_rows < 1:
        raise QuantityError("shortest_rows", shortest_rows, "must be at least 1")
    requests = max(1, rows // shortest_rows) if rows else 0
    wave = Wave(
        packed_rows=rows,
        logical_rows=rows,
        grad_segments=requests,
        output_bytes=LABEL_OUTPUT_BYTES * rows,
        segment_state_bytes=needs.segment_state_bytes,
        forecast_bytes=forecast_peak_bytes(needs.forecast, rows, rows, requests),
        workload=replace(
            Workload.training(shortest_rows=min(rows, shortest_rows) if rows else None), recompute=needs.recompute
        ),
    )
    return ForecastWave(
        rows=rows,
        requests=requests,
        peak_bytes=wave.forecast_bytes,
        phase=needs.forecast.line(rows, rows, requests).phase,
        price=price(wave, Profile(), law, safety),
    )


def most_forecast_rows(
    needs: ModelNeeds,
    available_bytes: int,
    *,
    shortest_rows: int = SHORT_REQUEST_ROWS,
    law: Law = DEFAULT_LAW,
    safety: Safety = DEFAULT_SAFETY,
) -> ForecastWave:
    """The widest wave whose price fits `available_bytes`; of 0 rows where none does. Prices never fall with rows."""

    def runs(rows: int) -> bool:
        wave = forecast_wave(needs, rows, shortest_rows=shortest_rows, law=law, safety=safety)
        return fits(wave.price.required_bytes, available_bytes)

    low, high = 0, MOST_ROWS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return forecast_wave(needs, low, shortest_rows=shortest_rows, law=law, safety=safety)


def usual_rows(most: int) -> tuple[int, ...]:
    """Row counts to show where none were asked for: 1,024 and on, each four times the last, to twice the most."""
    rows = 1_024
    shown: list[int] = []
    while rows <= max(2 * most, 4_096) and len(shown) < 8:
        shown.append(rows)
        rows *= 4
    return tuple(shown)
