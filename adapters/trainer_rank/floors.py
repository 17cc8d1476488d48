"""F and C for plain PyTorch decoders: bytes that a wave needs whatever was learned.

A floor that is no lower bound refuses what would run, so each part is there only where it is one: layer inputs where
they stay on the device until backward and only of layers that have a graph (`identity.ModelIdentity`), the head's
workspace only where every row goes through the head at once. What cannot be seen shows in a complete reading under the
floor; the planner then drops the floor of that signature (`pricing.planner.judge`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import adapters.trainer_rank.head as head
from adapters.trainer_rank.packed_model import ModelFacts
from pricing.kernel.quantities import MIB
from pricing.planner.plan import WaveShape

COLD_TRANSIENT_BYTES = 64 * MIB
"""Added to F while nothing was learned: library handles and workspaces of a first wave."""

FP32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """The static floors of one model. Neither falls as a wave grows.

    has_head: whether every row of every request is projected, all in one pass: one temperature, no label left out.
    has_entropy: whether every request asks for entropies as well; counts only where `has_head` does.
    kept_layers: how many layers certainly keep their input on the device until backward (None: all of them).
    extra_floor_bytes: a further lower bound that the model itself brings, asked with a wave's packed rows: a mixture of
    experts with padded dispatch may name what its worst routing needs.
    """

    facts: ModelFacts
    has_head: bool
    has_entropy: bool = False
    cold_transient_bytes: int = COLD_TRANSIENT_BYTES
    kept_layers: int | None = None
    extra_floor_bytes: Callable[[int], int] | None = None

    def checkpoint_retained_bytes(self, shape: WaveShape) -> int:
        """C: the saved input of every layer, [rows with gradients, hidden] each."""
        layers = self.facts.layers if self.kept_layers is None else self.kept_layers
        return shape.rows_with_gradients * layers * self.facts.hidden * self.facts.dtype_bytes

    def floor_bytes(self, shape: WaveShape, cold: bool) -> int:
        """F: saved layer inputs and one chunk of the head, or what the model says if that is more.

        While cold, the first wave's transient comes on top.
        """
        return sum(size for _, size in self.floor_parts(shape, cold))

    def floor_parts(self, shape: WaveShape, cold: bool) -> tuple[tuple[str, int], ...]:
        """The parts of F by name, in bytes."""
        parts = [
            ("saved layer inputs", self.checkpoint_retained_bytes(shape)),
            ("one chunk of the head", self._head_workspace_bytes(shape)),
        ]
        if self.extra_floor_bytes is not None:
            beyond = self.extra_floor_bytes(shape.packed_rows) - sum(size for _, size in parts)
            parts.append(("what the model says beyond these", max(0, beyond)))
        if cold:
            parts.append(("transient of a first wave", self.cold_transient_bytes))
        return tuple(part for part in parts if part[1])

    def _head_workspace_bytes(self, shape: WaveShape) -> int:
        """One chunk's logits, and in backward the fp32 buffer that their gradient is made in.

        Entropies take two fp32 buffers beside the logits, forward and backward alike: the probabilities and what is
        summed of them. On an H200 512 rows of 151,936 bf16 logits held 10 bytes a logit at the peak, 12 with entropies
        (`spec/evidence/h200-head`): lower bounds of 6 and 10.
        """
        if not self.has_head:
            return 0
        buffers = 2 if self.has_entropy else bool(shape.grad_segments)
        bytes_per_logit = self.facts.dtype_bytes + FP32_BYTES * buffers
        return min(shape.shared_rows, head.HEAD_CHUNK_ROWS) * self.facts.vocabulary * bytes_per_logit
