"""What a comparison of answers adds up to."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(slots=True)
class Comparison:
    """Answers compared so far: how many, which differ, how many could not be compared.

    `place` names the case at hand (file and line); every difference is remembered with it.
    """

    place: str = ""
    compared: int = 0
    skipped: int = 0
    differences: list[str] = field(default_factory=list)

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

    def summary(self) -> str:
        return f"{self.compared} compared, {len(self.differences)} differ, {self.skipped} skipped"
