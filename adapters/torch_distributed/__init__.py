"""Ranks that agree: the planner's quorum over `torch.distributed`."""

from adapters.torch_distributed.errors import (
    DifferentCallsError,
    DifferentRanksError,
    QuorumError,
    QuorumLostError,
    QuorumMismatchError,
    RankFailedError,
)
from adapters.torch_distributed.quorum import DistributedQuorum
from pricing.neighbours import warn_of_foreign_adapters

warn_of_foreign_adapters()

__all__ = [
    "DifferentCallsError",
    "DifferentRanksError",
    "DistributedQuorum",
    "QuorumError",
    "QuorumLostError",
    "QuorumMismatchError",
    "RankFailedError",
]
