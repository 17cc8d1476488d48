"""What a wave that ran out of memory teaches, where its interval cannot say it."""

from __future__ import annotations

from adapters.wave_loop.wave import WaveStats
from pricing import Reading, ReadingKind
from pricing.kernel.quantities import ceil_div


def out_of_memory_reading(stats: WaveStats, requested_bytes: int | None) -> Reading:
    """The wave needed more than it was admitted against."""
    wave = stats.plan.wave
    seen_bytes = 0 if stats.forward is None or stats.forward.reading is None else stats.forward.peak_delta_bytes
    return Reading(
        packed_rows=wave.packed_rows,
        logical_rows=wave.logical_rows,
        grad_segments=wave.grad_segments,
        output_bytes=wave.output_bytes,
        peak_delta_bytes=max(seen_bytes, ceil_div(17 * stats.plan.available_bytes, 16)),
        grads=wave.workload.grads,
        kind=ReadingKind.INTERRUPTED,
    )
