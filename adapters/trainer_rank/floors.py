"""F and C for plain PyTorch decoders: bytes that a wave needs whatever was learned."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.trainer_rank.head import HEAD_CHUNK_ROWS
from adapters.trainer_rank.packed_model import ModelFacts
from pricing.kernel.quantities import MIB
from pricing.planner.plan import WaveShape

COLD_TRANSIENT_BYTES = 64 * MIB
"""Added to F while nothing was learned: library handles and workspaces of a first wave."""

FP32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """The static floors of one model. Neither falls as a wave grows.

    has_head: whether any request wants something of the head (log-probabilities, top-k or logits).
    """

    facts: ModelFacts
    has_head: bool
    cold_transient_bytes: int = COLD_TRANSIENT_BYTES

    def checkpoint_retained_bytes(self, shape: WaveShape) -> int:
        """C: the saved input of every layer, [P, hidden] each. Without gradients nothing is saved."""
        if shape.grad_segments == 0:
            return 0
        return shape.packed_rows * self.facts.layers * self.facts.hidden * self.facts.dtype_bytes

    def floor_bytes(self, shape: WaveShape, cold: bool) -> int:
        """F: saved layer inputs and one chunk of the head; while cold, the first wave's transient on top."""
        transient_bytes = self.cold_transient_bytes if cold else 0
        return self.checkpoint_retained_bytes(shape) + self._head_workspace_bytes(shape) + transient_bytes

    def _head_workspace_bytes(self, shape: WaveShape) -> int:
        """One chunk's logits, and in backward the fp32 buffer that their gradient is made in."""
        if not self.has_head:
            return 0
        bytes_per_logit = self.facts.dtype_bytes + (FP32_BYTES if shape.grad_segments else 0)
        return min(shape.packed_rows, HEAD_CHUNK_ROWS) * self.facts.vocabulary * bytes_per_logit
