"""A wave that ran out of memory: what is kept of the error, and how its memory is let go."""

from __future__ import annotations

import gc
import traceback
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import torch

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


class BackwardQueue:
    """What autograd still has in hand after a backward that raised.

    PyTorch's engine leaves the tasks that were waiting then in the calling thread's queue, with their gradients and
    graph, until a later backward comes to tasks as old (seen with 2.13). One that is older than all of them goes
    through the queue, and what belongs to no backward any more is dropped on the way.

    is_suspect: whether a wave broke off since it was cleared last.
    """

    def __init__(self) -> None:
        self.is_suspect = False
        with torch.enable_grad():
            self._leaf = torch.zeros((), device="meta", requires_grad=True)  # it takes the CPU's queue, and no memory
            self._oldest = self._leaf * 1

    def clear(self) -> None:
        """Drop it, where there may be anything. In the thread that ran the backward."""
        if not self.is_suspect:
            return
        with suppress(RuntimeError):
            torch.autograd.grad(self._oldest, self._leaf, retain_graph=True)
            self.is_suspect = False
        gc.collect()
