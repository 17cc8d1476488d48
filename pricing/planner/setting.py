"""The setting of a plan: what model, parallel layout and recompute mode contribute to a wave, beside its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pricing.kernel.errors import QuantityError
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import require_count
from pricing.kernel.requests import ONE_LAYER_FULL, RecomputeMode, Signature, Workload
from pricing.kernel.shares import LOGICAL, PACKED, Share, evidence_rows, rows_under
from pricing.kernel.wave import Wave
from pricing.planner.curve import WaveShape

ForecastBytes = Callable[[WaveShape, Sequence[int], Workload], int]
FloorBytes = Callable[[WaveShape, bool], int]
FloorParts = Callable[[WaveShape, bool], tuple[tuple[str, int], ...]]
ShapeBytes = Callable[[WaveShape], int]
RankRows = Callable[[WaveShape, Sequence[int]], int]


def no_floor(shape: WaveShape, cold: bool) -> int:
    """F where nothing is known of the model: 0."""
    return 0


def no_parts(shape: WaveShape, cold: bool) -> tuple[tuple[str, int], ...]:
    """What F consists of where nobody says."""
    return ()


def nothing_kept(shape: WaveShape) -> int:
    """C where nothing is known of the model: 0."""
    return 0


def no_forecast(shape: WaveShape, requests: Sequence[int], workload: Workload) -> int:
    """Nothing is forecast: 0."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Make one for each wave: the recompute mode is what the live model says now.

    topology: any fixed text that names model and parallel layout; part of the memory signature.
    row_multiple: each group's rows are rounded up to it (the least common multiple of what parallelism and kernels
    need). segment_state_bytes (G): see `pricing.kernel.wave.segment_state_bytes`.
    floor_bytes(shape, cold) (F): largest analytic lower bound on compute bytes; `cold` is whether nothing was learned
    yet, and then it includes the cold transient. floor_parts(shape, cold): the same, part by part.
    checkpoint_retained_bytes(shape) (C): saved layer inputs.
    floor_is_certain: keep F also where a complete reading lies under it (what somebody states, not what is estimated).
    rank_rows(shape, requests): under context parallelism, rows of the busiest rank for these requests; what is priced
    is what that rank holds. The two functions above then see those rows as the shape's packed rows.

    forecast_bytes(shape, requests, workload): the peak that is forecast of these requests, 0 for none. Asked only until
    a complete reading of their signature was seen, with the narrowest wave first.

    None of the functions may fall as a wave grows: the width search relies on it.
    """

    topology: str = ""
    recompute: RecomputeMode = ONE_LAYER_FULL
    row_multiple: int = 1
    segment_state_bytes: int = 0
    floor_bytes: FloorBytes = no_floor
    floor_parts: FloorParts = no_parts
    floor_is_certain: bool = False
    checkpoint_retained_bytes: ShapeBytes = nothing_kept
    rank_rows: RankRows | None = None
    forecast_bytes: ForecastBytes = no_forecast

    def __post_init__(self) -> None:
        require_count("row_multiple", self.row_multiple)
        if self.row_multiple < 1:
            raise QuantityError("row_multiple", self.row_multiple, "must be at least 1")
        require_count("segment_state_bytes", self.segment_state_bytes)

    def wave(
        self,
        shape: WaveShape,
        requests: Sequence[int],
        workload: Workload,
        *,
        cold: bool,
        forecast: bool = False,
        shares: tuple[Share, ...] = (),
        floors: bool = True,
    ) -> Wave:
        """The wave to price for requests of this shape, by evidence of waves of these `shares` (its own or others).

        floors: False where F and C turned out to be no lower bounds.
        """
        if self.rank_rows is not None:
            shape = replace(shape, packed_rows=self.rank_rows(shape, requests))
        kinds = shape.kinds
        return Wave(
            packed_rows=rows_under(kinds.packed, PACKED, shape.packed_rows, shares),
            logical_rows=rows_under(kinds.logical, LOGICAL, shape.logical_rows, shares),
            evidence=evidence_rows(shape.packed_rows, shape.logical_rows, shape.grad_segments, kinds),
            grad_segments=shape.grad_segments,
            output_bytes=shape.output_bytes,
            floor_bytes=self.floor_bytes(shape, cold) if floors else 0,
            checkpoint_retained_bytes=self.checkpoint_retained_bytes(shape) if floors else 0,
            segment_state_bytes=self.segment_state_bytes,
            forecast_bytes=self.forecast_bytes(shape, requests, workload) if forecast else 0,
            workload=workload,
        )

    def floor_is_contradicted(self, signature: Signature, profile: Profile) -> bool:
        """Whether a complete reading shows that F is no lower bound: at the most rows ever seen it lies above every
        reading's rate.

        Asked of signatures of one grad mode, where rows tell F. The cold transient, which is none, is left out.
        """
        rows = profile.largest_packed_rows
        if self.floor_is_certain or profile.complete_readings == 0 or rows == 0 or len(signature.grad_modes) > 1:
            return False
        seen = WaveShape(
            packed_rows=rows,
            shared_rows=rows,
            unshared_rows=rows,
            logical_rows=rows,
            grad_segments=1 if True in signature.grad_modes else 0,
            segments=1,
            output_bytes=0,
        )
        return self.floor_bytes(seen, False) > profile.peak_bytes_per_row * rows
