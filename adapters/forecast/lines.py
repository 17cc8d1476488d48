"""From traced waves to a forecast: one line a phase, in whole bytes, that no traced wave lies above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import nn

from adapters.forecast.fake_run import Routing, Target
from adapters.forecast.shapes import RequestKind, groups_of, many_short, single, with_duplicates
from adapters.forecast.trace import PHASES, Loss, Trace, TracedGroup, sum_of_outputs, trace_wave
from adapters.trainer_rank import head
from pricing.kernel.forecast import Forecast, ForecastLine
from pricing.kernel.quantities import ceil_div

BALANCE = "rows are spread over experts evenly, or all go to the same ones: the dearer of the two"

COLD_TRANSIENT_BYTES = 64 << 20
"""What a process's first wave on CUDA pays once: 2 x 32 MiB of cuBLAS workspace (67,108,864 B on the H200)."""


MOST_SIZES = 5
"""The largest small wave has 16 times the rows of the smallest."""

SETTLED = 128
"""Bytes a row have settled once they rise by less than one part in this."""

MOST_OPERATIONS = 60_000
"""A wave that would take more operations than this (some ten seconds) is not traced itself: the lines price it."""


def forecast_model(
    model: nn.Module,
    kinds: Iterable[RequestKind],
    *,
    target: Target,
    loss: Loss = sum_of_outputs,
    wave: Sequence[TracedGroup] | None = None,
    has_gradients: bool = False,
    transient_bytes: int | None = None,
    gradients_kept_back: bool = False,
) -> Forecast:
    """The forecast of waves that consist of requests of these kinds; exact for `wave`, if that is given and cheap.

    Runs small waves under fake tensors, twice as large each time until the bytes a row settle. transient_bytes: a
    one-time cost on top; by default `COLD_TRANSIENT_BYTES` on CUDA. gradients_kept_back: gradients that the wave makes
    are held free by others and not part of the forecast. Raises `ForecastError` where the model cannot be run without
    values.
    """
    chosen = [kind for kind in kinds if kind.is_active]
    if transient_bytes is None:
        transient_bytes = COLD_TRANSIENT_BYTES if target is Target.CUDA else 0

    def traced(groups: Sequence[TracedGroup], routing: Routing) -> Trace:
        seen = trace_wave(model, groups, target=target, loss=loss, has_gradients=has_gradients, routing=routing)
        if not gradients_kept_back:
            return seen
        return replace(seen, phase_peaks=tuple(max(0, peak - seen.made_gradient_bytes) for peak in seen.phase_peaks))

    # One-sided first: fewer, wider pieces, so that models that loop over experts are run in a fraction of the time.
    base_rows = 2 * head.HEAD_CHUNK_ROWS
    sizes = [traced(groups_of(chosen, single(base_rows)), Routing.ONE_SIDED)]
    while not _has_settled(sizes) and len(sizes) < MOST_SIZES:
        sizes.append(traced(groups_of(chosen, single(base_rows << len(sizes))), Routing.ONE_SIDED))
    others = [
        traced(groups_of(chosen, family(base_rows)), Routing.ONE_SIDED) for family in (many_short, with_duplicates)
    ]
    assumed = any(trace.assumed_routing for trace in sizes)
    even = [traced(groups_of(chosen, single(base_rows << more)), Routing.BALANCED) for more in (0, 1) if assumed]
    own = []
    if wave is not None and _operations(sizes, wave) <= MOST_OPERATIONS:
        own = [traced(wave, routing) for routing in (Routing.ONE_SIDED, *((Routing.BALANCED,) if assumed else ()))]
    lines = [_line(phase, sizes, others, even, own, transient_bytes) for phase in range(len(PHASES))]
    return Forecast(
        lines=tuple(line for line in lines if line.fixed_bytes or line.bytes_per_packed_row),
        assumption=BALANCE if assumed else "",
    )


def _has_settled(sizes: Sequence[Trace]) -> bool:
    """Whether the last doubling cost as much a row as the one before, to 1/128, in every phase that may hold a peak.

    A phase that costs less than half as much a row as the dearest is not waited for.
    """
    if len(sizes) < 3:
        return False
    before, last = (
        [_slope(phase, small, large, large.packed_rows - small.packed_rows) for phase in range(len(PHASES))]
        for small, large in (sizes[-3:-1], sizes[-2:])
    )
    return all(
        SETTLED * now <= (SETTLED + 1) * then for then, now in zip(before, last, strict=True) if 2 * now >= max(last)
    )


def _operations(sizes: Sequence[Trace], wave: Sequence[TracedGroup]) -> int:
    """About how many operations a trace of `wave` takes: those of the largest trace, in proportion to rows."""
    rows = sum(group.rows.packed_rows for group in wave)
    return sizes[-1].operations * max(rows, sizes[-1].packed_rows) // sizes[-1].packed_rows


def _line(
    phase: int,
    sizes: Sequence[Trace],
    others: Sequence[Trace],
    even: Sequence[Trace],
    own: Sequence[Trace],
    transient_bytes: int,
) -> ForecastLine:
    """Slopes from the small waves, one quantity at a time; the fixed part so that every traced wave is covered."""
    first, (short, duplicates) = sizes[0], others
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
        for small, large in (sizes[-2:], *([even] if even else []))
    )
    everything = [*sizes, *others, *even, *own]
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
