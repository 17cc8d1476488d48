"""`pricing.planner.quorum.Quorum` over a `torch.distributed` process group (gloo or NCCL).

Every call is one all-gather of one fixed row of integers a rank, whatever is asked and whatever went wrong:
(position in the sequence of calls, operation, whether the rank failed, value). So a rank that failed pairs
with whatever collective its peers are in, ranks that ran apart are told so instead of agreeing on nonsense,
and the reduction is exact: it happens in Python, on every rank, over the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist

from adapters.torch_distributed.errors import (
    QuorumError,
    QuorumLostError,
    QuorumMismatchError,
    RankFailedError,
)

_INT64_LIMIT = 1 << 63

DEFAULT_TIMEOUT = timedelta(minutes=9)
"""A minute below torch's own for NCCL, so that the error comes before the watchdog ends the process."""

# Torch 2.13 renamed it.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class _Operation(IntEnum):
    ALL_FIT = 0
    MAX = 1
    MIN = 2


class DistributedQuorum:
    """Agreement among the ranks of `group` (default: all). Each brings its own demand, judged against its own
    budget.

    All ranks make the same calls in the same order. A rank without work still takes part, with a value that
    narrows nobody. A rank whose own work raised calls `fail` (or did that work under `guard`): its peers get
    `RankFailedError` at the call they are in or enter next.

    Time: with gloo a dead peer raises at once or within the group's timeout. With NCCL nobody notices a dead peer:
    the collective spins on the device. So the call polls it and raises `QuorumLostError` after `timeout`. The
    collective goes on spinning: end the process (without waiting for the device) or let NCCL's watchdog end it, which
    happens after the group's own timeout. Whatever synchronizes the device before that waits with it.

    Memory: two integer tensors of 32 B a rank, allocated here once, so that no call allocates on the device
    inside a wave. NCCL's own buffers lie outside the allocator: only a budget sample taken after the first
    call sees them.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        device: torch.device | str | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        """`device`: where the group communicates from; by default the CPU for gloo, else the current accelerator.
        `timeout`: how long a call waits for its peers on an accelerator; choose it below the group's own."""
        self._group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        if self.rank < 0:
            raise QuorumError("this process is not in the group")
        self._device = _device_of(group) if device is None else torch.device(device)
        self._row = torch.zeros(4, dtype=torch.int64, device=self._device)
        self._rows = torch.zeros(4 * self.size, dtype=torch.int64, device=self._device)
        self._timeout_s = timeout.total_seconds()
        self._calls = 0
        self._closed_by: QuorumError | None = None

    def all_fit(self, fits: bool) -> bool:
        """Whether every rank said True. The errors of this and of `max` and `min` are this package's."""
        return self._agree(_Operation.ALL_FIT, int(fits), min) == 1

    def max(self, value: int) -> int:
        """The largest value of any rank. Values are signed 64-bit."""
        return self._agree(_Operation.MAX, value, max)

    def min(self, value: int) -> int:
        """The smallest value of any rank."""
        return self._agree(_Operation.MIN, value, min)

    def fail(self) -> None:
        """Take part in the one call this rank owes, as a rank that failed. The caller then raises its own
        error.

        Does nothing on a closed quorum: there is nobody left to tell.
        """
        if self._closed_by is None:
            self._gather(_Operation.ALL_FIT, 0, has_failed=True)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """For work of this rank alone that peers wait for, such as a budget sample: if it raises, peers are
        told.

        Never around calls of this quorum, nor around the planner: they tell the peers themselves.
        """
        calls = self._calls
        try:
            yield
        except Exception:
            assert self._calls == calls, "a quorum call was made inside its own guard"
            self.fail()
            raise

    def _agree(self, operation: _Operation, value: int, reduce: Callable[[Sequence[int]], int]) -> int:
        if not -_INT64_LIMIT <= value < _INT64_LIMIT:
            self.fail()
            raise QuorumError(f"{value} does not fit a signed 64-bit integer")
        rows = self._gather(operation, value, has_failed=False)
        failed = tuple(rank for rank, (_, _, has_failed, _) in enumerate(rows) if has_failed)
        if failed:
            raise RankFailedError(failed)
        calls = [(position, _Operation(asked).name) for position, asked, _, _ in rows]
        if len(set(calls)) > 1:
            raise self._close(QuorumMismatchError(f"the ranks are in different calls (number, operation): {calls}"))
        return reduce([given for _, _, _, given in rows])

    def _gather(self, operation: _Operation, value: int, *, has_failed: bool) -> list[list[int]]:
        """Everybody's row, by rank. The only place that communicates."""
        if self._closed_by is not None:
            raise QuorumLostError("this quorum was closed by an earlier error") from self._closed_by
        self._calls += 1
        try:
            self._row.copy_(torch.tensor([self._calls, operation, has_failed, value]))
            self._await(_all_gather(self._rows, self._row, group=self._group, async_op=True))
            rows: list[list[int]] = self._rows.view(self.size, 4).tolist()
        except RuntimeError as error:
            raise self._close(
                QuorumLostError(f"rank {self.rank} of {self.size} lost its peers in call {self._calls}: {error}")
            ) from error
        return rows

    def _await(self, work: dist.Work) -> None:
        """Until the collective is done. Raises `RuntimeError` where it cannot be, as the group itself does."""
        if self._device.type != "cpu":
            deadline = time.monotonic() + self._timeout_s
            while not work.is_completed():
                if time.monotonic() > deadline:
                    raise RuntimeError(f"no answer within {self._timeout_s:g} s")
        work.wait()

    def _close(self, error: QuorumError) -> QuorumError:
        self._closed_by = error
        return error


def _device_of(group: dist.ProcessGroup | None) -> torch.device:
    """Where a group of this backend communicates from."""
    if "gloo" in dist.get_backend(group):
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None, "a process group that is not gloo needs an accelerator"
    return torch.device(accelerator.type, torch.accelerator.current_device_index())
