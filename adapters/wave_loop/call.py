"""One call of the loop: where it is, what it left out, and how often it ran out of memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar, get_args

from adapters.wave_loop.failure import OutOfMemory
from adapters.wave_loop.wave import WaveStats, WaveTurn
from adapters.wave_loop.work import Work
from pricing.planner.plan import WavePlan

OnRefusal = Literal["raise", "skip"]
ON_REFUSAL: Final[tuple[str, ...]] = get_args(OnRefusal)

Turn = TypeVar("Turn", bound=WaveTurn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """An item that was refused and left out. `plan` says why (`plan.refusal`)."""

    item: int
    plan: WavePlan


@dataclass(slots=True, kw_only=True)
class Call(Generic[Turn]):
    """The state of one call. number: what ranks tell calls apart by.

    failures: waves that ran out of memory, here or (None) on another rank.

    tries: such waves since the last one that ran. failed: the last one of this rank.

    survives: whether what a wave did can be taken back, wherever it runs out of memory.
    """

    work: Work[Turn]
    number: int = 0
    on_refusal: OnRefusal = "raise"
    start: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    failures: list[OutOfMemory] = field(default_factory=list)
    tries: int = 0
    failed: WaveStats | None = None
    survives: bool = False

    @property
    def left(self) -> int:
        """Items that did not run yet."""
        return len(self.work.batch) - self.start

    def skip(self, plan: WavePlan) -> None:
        """Leave the item at hand out."""
        self.skipped.append(Skipped(item=self.start, plan=plan))
        self.start += 1

    def back_to(self, item: int) -> None:
        """Run from `item` on again."""
        self.start = item
        self.skipped = [skipped for skipped in self.skipped if skipped.item < item]
