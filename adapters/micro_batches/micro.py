"""A micro-batch as its caller sees it: the items, and what was predicted and observed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from adapters.wave_loop.wave import WaveOwner, WaveStats, WaveTurn

T = TypeVar("T")


class Micro(WaveTurn, Generic[T]):
    """One wave of the caller's own items, until the loop goes on. See `WaveTurn`.

    items: the items themselves, in the caller's order. indices: their positions in the call's items. Both are empty
    where this rank has nothing left and others have.
    """

    def __init__(self, owner: WaveOwner, stats: WaveStats, items: Sequence[T]) -> None:
        super().__init__(owner, stats)
        self.indices = range(stats.plan.start, stats.plan.next_start)
        self.items = tuple(items[at] for at in self.indices)

    @property
    def rows(self) -> int:
        """Rows that it was priced for: added up, or padded."""
        return self.stats.plan.wave.packed_rows
