"""Waves: one micro-batch that runs forward, the caller's loss and backward as a unit, described by its quantities."""

from __future__ import annotations

from dataclasses import dataclass

from pricing.kernel.errors import QuantityError, WaveError
from pricing.kernel.quantities import ceil_div, require_count
from pricing.kernel.requests import Workload
from pricing.kernel.shares import EvidenceRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What a wave asks of the device (laws, section 1). All integers of at least 0; 0 packed rows means nothing to run.

    packed_rows (P): rows the model executes, padding included; it may exceed logical_rows by padding.
    logical_rows (L): sum of the input lengths of active requests.
    grad_segments (S): prefix-tree segments in gradient groups.
    output_bytes (O): bytes of the requested outputs.
    floor_bytes (F): largest analytic lower bound on compute bytes that applies; never falls as P, L, S grow.
    checkpoint_retained_bytes (C): bytes of saved layer inputs, a floor under what is retained.
    segment_state_bytes (G): state bytes of one segment in one recurrent layer; 0 for attention models.
    forecast_bytes: the peak that a forecast says, outputs included (`pricing.kernel.forecast`); 0 where there is none.
    It prices until a complete reading was seen, and does not fall as P, L, S grow.
    evidence: the rows that a reading of this wave counts for, where it is of several kinds (`pricing.kernel.shares`);
    None where these are its own. No price depends on it.
    """

    packed_rows: int
    logical_rows: int
    grad_segments: int
    output_bytes: int
    workload: Workload
    floor_bytes: int = 0
    checkpoint_retained_bytes: int = 0
    segment_state_bytes: int = 0
    forecast_bytes: int = 0
    evidence: EvidenceRows | None = None

    def __post_init__(self) -> None:
        require_count("packed_rows", self.packed_rows)
        require_count("logical_rows", self.logical_rows)
        require_count("grad_segments", self.grad_segments)
        require_count("output_bytes", self.output_bytes)
        require_count("floor_bytes", self.floor_bytes)
        require_count("checkpoint_retained_bytes", self.checkpoint_retained_bytes)
        require_count("segment_state_bytes", self.segment_state_bytes)
        require_count("forecast_bytes", self.forecast_bytes)
        require_rows_to_run(self)

    @property
    def evidence_rows(self) -> EvidenceRows:
        """The rows that a reading of this wave counts for."""
        if self.evidence is not None:
            return self.evidence
        return EvidenceRows(
            packed_rows=self.packed_rows, logical_rows=self.logical_rows, grad_segments=self.grad_segments
        )


def require_rows_to_run(wave: Wave) -> None:
    """Check that a wave of 0 packed rows has no logical rows and no segments. Raises `WaveError`."""
    if wave.packed_rows == 0 and (wave.logical_rows > 0 or wave.grad_segments > 0):
        raise WaveError(
            "a wave of 0 packed rows has nothing to run, yet it has "
            f"{wave.logical_rows} logical rows and {wave.grad_segments} segments"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentGeometry:
    """One recurrent (gated delta net) layer, as its state is laid out on one tensor-parallel rank.

    `dtype_bytes` is the element size of the convolution history; the recurrent state itself is fp32.
    """

    value_heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    tensor_parallel: int = 1
    dtype_bytes: int = 2

    def __post_init__(self) -> None:
        for field in ("value_heads", "key_heads", "key_dim", "value_dim", "dtype_bytes"):
            require_count(field, getattr(self, field))
        for field in ("conv_kernel", "tensor_parallel"):
            require_count(field, getattr(self, field))
            if getattr(self, field) < 1:
                raise QuantityError(field, getattr(self, field), "must be at least 1")


def segment_state_bytes(geometry: RecurrentGeometry) -> int:
    """Bytes one segment holds in one recurrent layer: initial and final fp32 state, convolution history twice.

    One layer's states are live at a time under one-layer full recompute (assumption SEGMENT). Rounded up.
    """
    state = 4 * geometry.value_heads * geometry.key_dim * geometry.value_dim
    channels = 2 * geometry.key_heads * geometry.key_dim + geometry.value_heads * geometry.value_dim
    history = geometry.dtype_bytes * channels * (geometry.conv_kernel - 1)
    return ceil_div(2 * (state + history), geometry.tensor_parallel)
