"""What `TrainerRank` asks of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from adapters.trainer_rank.rows import PackedRows
from pricing.kernel.requests import RecomputeMode


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Shapes that price a model's memory. `segment_state_bytes` is G of the laws (0: attention only).

    positions: how many positions the model has a table for (None: it computes them); longer requests are refused.
    """

    name: str
    layers: int
    hidden: int
    vocabulary: int
    dtype: torch.dtype
    segment_state_bytes: int = 0
    positions: int | None = None

    @property
    def dtype_bytes(self) -> int:
        return self.dtype.itemsize


@runtime_checkable
class PackedModel(Protocol):
    """A decoder that can run packed rows."""

    def packed_hidden_states(self, rows: PackedRows) -> Tensor:
        """Hidden states [P, H] after the last norm. Row i depends on rows of its own segment and its ancestors only."""

    def head_logits(self, hidden_CH: Tensor) -> Tensor:
        """Logits [C, V] of hidden states [C, H]."""

    def recompute_mode(self) -> RecomputeMode:
        """The activation recompute as it would run now; asked anew at every price."""

    def model_facts(self) -> ModelFacts:
        """Shapes for the static floor and the profile's identity."""
