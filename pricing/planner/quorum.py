"""Agreement across ranks: what the planner asks of a process group, and the single process that is the default.

Each rank judges its own demand against its own budget. For every wave, whatever their inputs, all ranks make the same
collectives in the same order: one `min` (the width); one `max` (how the narrowest wave runs) exactly if the agreed
width is 0; one `all_fit` (the vote). A rank whose planning raises takes part in the collective it owes with a value
that no healthy rank sends, and raises its own error afterwards; the others raise `PeerPlanningError`.
"""

from __future__ import annotations

from typing import Final, Protocol

from pricing.kernel.errors import PricingError

UNBOUNDED_WIDTH: Final = 1 << 62
"""Width proposed by a rank that can run all it has left, or has nothing left: it narrows nobody."""

FAILED_WIDTH: Final = -1
"""Width proposed by a rank whose planning raised."""

REFUSED_STATUS: Final = 1 << 61
FAILED_STATUS: Final = 1 << 62
"""What a rank sends instead of its number of sub-forwards when it must refuse, and when its planning raised."""


class PeerPlanningError(PricingError):
    """Planning raised on another rank, so no rank may run this wave. Not a `refusal`: that is a plan."""


class Quorum(Protocol):
    """Collectives over the ranks that must run a wave together. Integers fit a signed 64-bit tensor."""

    def all_fit(self, fits: bool) -> bool:
        """Whether every rank said True."""
        ...

    def max(self, value: int) -> int:
        """The largest value of any rank."""
        ...

    def min(self, value: int) -> int:
        """The smallest value of any rank."""
        ...


class SingleProcess:
    """One rank: it agrees with itself."""

    def all_fit(self, fits: bool) -> bool:
        return fits

    def max(self, value: int) -> int:
        return value

    def min(self, value: int) -> int:
        return value


SINGLE_PROCESS: Final = SingleProcess()
