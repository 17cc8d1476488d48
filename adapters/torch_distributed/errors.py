"""Errors of a quorum. Whatever happens on one rank, no rank runs the wave, and each learns why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class QuorumError(RuntimeError):
    """Base of what a quorum raises."""


class RankFailedError(QuorumError):
    """Other ranks reported an error of their own. `ranks` are theirs, in the group's numbering.

    Every rank of the group gets this (or its own error) at the same collective, so the quorum can go on being
    used.
    """

    def __init__(self, ranks: tuple[int, ...]) -> None:
        super().__init__(f"rank {', '.join(map(str, ranks))} failed before this collective; see its own error")
        self.ranks = ranks


class DifferentCallsError(QuorumError):
    """The ranks are in different calls of their callers: one left a call (an error in its loss, a break) and began the
    next, others are still in the old one. Every rank gets this at the same collective, so the quorum can go on being
    used once all begin a new call. `marks`: each rank's call number and start item, by rank.
    """

    def __init__(self, marks: Sequence[tuple[int, int]]) -> None:
        where = ", ".join(f"rank {rank} in its call {call} at item {item}" for rank, (call, item) in enumerate(marks))
        super().__init__(f"the ranks are in different calls: {where}; leave a call on every rank or on none")
        self.marks = tuple(marks)


class DifferentRanksError(QuorumError):
    """The ranks differ in what they must have in common. `differing`: each such fact's values, by rank."""

    def __init__(self, differing: Mapping[str, Sequence[str]]) -> None:
        each = "; ".join(
            f"{name}: " + ", ".join(f"rank {rank} has {value!r}" for rank, value in enumerate(values))
            for name, values in differing.items()
        )
        super().__init__(f"the ranks differ: {each}")
        self.differing = {name: tuple(values) for name, values in differing.items()}


class QuorumMismatchError(QuorumError):
    """The ranks are not in the same collective: they no longer run the same program. The quorum is closed."""


class QuorumLostError(QuorumError):
    """A rank is gone or did not come within the process group's timeout. The quorum is closed."""
