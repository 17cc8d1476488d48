"""Errors of a quorum. Whatever happens on one rank, no rank runs the wave, and each learns why."""

from __future__ import annotations


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


class QuorumMismatchError(QuorumError):
    """The ranks are not in the same collective: they no longer run the same program. The quorum is closed."""


class QuorumLostError(QuorumError):
    """A rank is gone or did not come within the process group's timeout. The quorum is closed."""
