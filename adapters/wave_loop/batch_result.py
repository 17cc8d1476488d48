"""What a call gives back: its waves one by one, or the result of a whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from torch import Tensor

from adapters.wave_loop.call import Skipped
from adapters.wave_loop.failure import OutOfMemory
from adapters.wave_loop.wave import WaveStats, WaveTurn

Turn_co = TypeVar("Turn_co", bound=WaveTurn, covariant=True)


class Waves(Generic[Turn_co]):
    """The waves of one call, an iterator. `skipped`: the items left out so far (`on_refusal="skip"`)."""

    def __init__(self, turns: Iterator[Turn_co], skipped: list[Skipped]) -> None:
        self._turns = turns
        self.skipped = skipped

    def __iter__(self) -> Iterator[Turn_co]:
        return self

    def __next__(self) -> Turn_co:
        return next(self._turns)

    def close(self) -> None:
        """End the call here."""
        close = getattr(self._turns, "close", None)
        if close is not None:
            close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveOutcome:
    """One wave that counted. loss: what the caller's function returned, detached. The rest as in the wave."""

    items: range
    indices: range
    loss: Tensor | None
    stats: WaveStats


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """A batch whose gradients are all there, each item's once.

    waves: those that counted, in order. skipped: refused items that were left out. out_of_memory: the waves of this
    rank that ran out of memory on the way; what they had added was taken back.
    """

    waves: tuple[WaveOutcome, ...]
    skipped: tuple[Skipped, ...]
    out_of_memory: tuple[OutOfMemory, ...]

    @property
    def loss(self) -> Tensor | None:
        """The sum of the waves' losses, on their device; None where there was none."""
        losses = [wave.loss for wave in self.waves if wave.loss is not None]
        return sum(losses[1:], losses[0]) if losses else None
