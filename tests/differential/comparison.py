"""What a comparison of answers adds up to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(slots=True)
class Comparison:
    """Answers compared so far: how many, which differ, how many could not be compared.

    `decided` counts, by reason, answers that are told apart by a definition in the laws and on which nothing hangs.

    `place` names the case at hand (file and line); every difference is remembered with it.
    """

    place: str = ""
    compared: int = 0
    skipped: int = 0
    differences: list[str] = field(default_factory=list)
    decided: Counter[str] = field(default_factory=Counter)

    def equal(self, what: str, ours: object, theirs: object) -> None:
        """One answer that must be the same."""
        self.holds(what, ours == theirs, f"ours {ours!r}, theirs {theirs!r}")

    def within(self, what: str, ours: int, low: Fraction | int, high: Fraction | int) -> None:
        """One answer that must lie in [low, high]."""
        detail = f"ours {ours} is outside [{float(low):.3f}, {float(high):.3f}]"
        self.holds(what, low <= ours <= high, detail)

    def holds(self, what: str, is_so: bool, detail: str) -> None:
        """One answer that was judged by the caller."""
        self.compared += 1
        if not is_so:
            self.differences.append(f"{self.place}: {what}: {detail}")

    def skip(self, what: str) -> None:
        """One answer that this build cannot compare."""
        self.skipped += 1

    def decide(self, reason: str) -> None:
        """One answer that is not this build's, and which of the two is right by definition."""
        self.compared += 1
        self.decided[reason] += 1

    def summary(self) -> str:
        text = f"{self.compared} compared, {len(self.differences)} differ, {self.skipped} skipped"
        decided = (f"; {count} decided: {reason}" for reason, count in sorted(self.decided.items()))
        return text + "".join(decided)
