"""From traced waves to a forecast: one line a phase, in whole bytes, that no traced wave lies above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from adapters.forecast.fake_run import Routing, Target
from adapters.forecast.shapes import BASE_ROWS, RequestKind, groups_of, many_short, single, with_duplicates
from adapters.forecast.trace import PHASES, Loss, Trace, TracedGroup, sum_of_outputs, trace_wave
from pricing.kernel.forecast import Forecast, ForecastLine
from pricing.kernel.quantities import ceil_div

BALANCE = "rows are spread over experts evenly, or all go to the same ones: the dearer of the two"

COLD_TRANSIENT_BYTES = 64 << 20
"""What a process's first wave on CUDA pays once: 2 x 32 MiB of cuBLAS workspace (67,108,864 B on the H200)."""


def forecast_model(
    model: nn.Module,
    kinds: Iterable[RequestKind],
    *,
    target: Target,
    loss: Loss = sum_of_outputs,
    wave: Sequence[TracedGroup] | None = None,
    has_gradients: bool = False,
    transient_bytes: int | None = None,
) -> Forecast:
    """The forecast of waves that consist of requests of these kinds; exact for `wave`, if that is given.

    Runs four small waves (and `wave`) under fake tensors. transient_bytes: one-time cost on top; by default
    `COLD_TRANSIENT_BYTES` on CUDA. Raises `ForecastError` where the model cannot be run without values.
    """
    chosen = [kind for kind in kinds if kind.is_active]
    if transient_bytes is None:
        transient_bytes = COLD_TRANSIENT_BYTES if target is Target.CUDA else 0

    def traced(groups: Sequence[TracedGroup], routing: Routing) -> Trace:
        return trace_wave(model, groups, target=target, loss=loss, has_gradients=has_gradients, routing=routing)

    # One-sided first: fewer, wider pieces, so that models that loop over experts are run in a fraction of the time.
    families = (single(BASE_ROWS), single(2 * BASE_ROWS), many_short(BASE_ROWS), with_duplicates(BASE_ROWS))
    base = [traced(groups_of(chosen, family), Routing.ONE_SIDED) for family in families]
    assumed = any(trace.assumed_routing for trace in base)
    even = [traced(groups_of(chosen, family), Routing.BALANCED) for family in families[:2]] if assumed else []
    own = [] if wave is None else [traced(wave, Routing.ONE_SIDED)]
    if assumed and wave is not None:
        own.append(traced(wave, Routing.BALANCED))
    lines = [_line(phase, base, even, own, transient_bytes) for phase in range(len(PHASES))]
    return Forecast(
        lines=tuple(line for line in lines if line.fixed_bytes or line.bytes_per_packed_row),
        assumption=BALANCE if assumed else "",
    )


def _line(
    phase: int, base: Sequence[Trace], even: Sequence[Trace], own: Sequence[Trace], transient_bytes: int
) -> ForecastLine:
    """Slopes from the base waves, one quantity at a time; the fixed part so that every traced wave is covered."""
    first, double, short, duplicates = base
    per_segment = _slope(phase, first, short, short.grad_segments - first.grad_segments)
    per_logical_row = _slope(
        phase,
        first,
        duplicates,
        duplicates.logical_rows - first.logical_rows,
        per_segment * (duplicates.grad_segments - first.grad_segments),
    )
    per_packed_row = max(
        _slope(
            phase,
            small,
            large,
            large.packed_rows - small.packed_rows,
            per_logical_row * (large.logical_rows - small.logical_rows),
        )
        for small, large in ([base[:2], even] if even else [base[:2]])
    )
    everything = [*base, *even, *own]
    fixed = max(
        trace.phase_peaks[phase]
        - per_packed_row * trace.packed_rows
        - per_logical_row * trace.logical_rows
        - per_segment * trace.grad_segments
        for trace in everything
    )
    is_idle = all(trace.phase_peaks[phase] == 0 for trace in everything)
    return ForecastLine(
        phase=PHASES[phase],
        fixed_bytes=0 if is_idle else max(0, fixed) + transient_bytes,
        bytes_per_packed_row=per_packed_row,
        bytes_per_logical_row=per_logical_row,
        bytes_per_segment=per_segment,
    )


def _slope(phase: int, small: Trace, large: Trace, more: int, explained_bytes: int = 0) -> int:
    """Whole bytes for each of `more` in which two waves differ, rounded up; 0 where nothing is added."""
    more_bytes = large.phase_peaks[phase] - small.phase_peaks[phase] - explained_bytes
    return ceil_div(more_bytes, more) if more > 0 and more_bytes > 0 else 0
