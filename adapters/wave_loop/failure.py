"""A wave that ran out of memory: what is kept of the error, and how its memory is let go."""

from __future__ import annotations

import gc
import traceback
from dataclasses import dataclass
from enum import StrEnum

from adapters.torch_memory.out_of_memory import requested_bytes


class Phase(StrEnum):
    """Where in a wave."""

    FORWARD = "forward"
    CALLER = "caller's phase"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """One wave that ran out of memory, without anything of the device. `requested_bytes`: what the allocation that
    failed had asked for, where the error says so. `text`: its first line."""

    phase: Phase
    text: str
    requested_bytes: int | None

    @classmethod
    def of(cls, error: BaseException, phase: Phase) -> OutOfMemory:
        lines = str(error).splitlines()
        return cls(
            phase=phase,
            text=f"{type(error).__name__}: {lines[0] if lines else ''}",
            requested_bytes=requested_bytes(error),
        )


def let_go(error: BaseException) -> None:
    """Let go of what the frames of an error hold: activations, graphs, losses. The error is of no use afterwards."""
    waiting, seen = [error], set[int]()
    while waiting:
        inner = waiting.pop()
        if id(inner) in seen:
            continue
        seen.add(id(inner))
        traceback.clear_frames(inner.__traceback__)
        inner.__traceback__ = None
        waiting.extend(other for other in (inner.__cause__, inner.__context__) if other is not None)
        if isinstance(inner, BaseExceptionGroup):
            waiting.extend(inner.exceptions)
    gc.collect()  # what only cycles still hold
