"""`pricing.planner.quorum.Quorum` over a `torch.distributed` process group (gloo or NCCL).

Every call is one all-gather of one fixed row of integers a rank, whatever is asked and whatever went wrong:
(position in the sequence of collectives, operation, whether the rank failed, value, number of the caller's call, start
item in it). So a rank that failed pairs with whatever collective its peers are in, ranks that ran apart are told so
instead of agreeing on nonsense, and the reduction is exact: it happens in Python, on every rank, over the same rows.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist

from adapters.torch_distributed.errors import (
    DifferentCallsError,
    DifferentRanksError,
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


_ROW_INTEGERS = 6
_FACTS_BYTES = 1 << 12
_TEXT_CHARS = 64


class _Operation(IntEnum):
    ALL_FIT = 0
    MAX = 1
    MIN = 2
    INTRODUCE = 3


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

    Memory: two integer tensors of 48 B a rank, allocated here once, so that no call allocates on the device
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
        self._row = torch.zeros(_ROW_INTEGERS, dtype=torch.int64, device=self._device)
        self._rows = torch.zeros(_ROW_INTEGERS * self.size, dtype=torch.int64, device=self._device)
        self._timeout_s = timeout.total_seconds()
        self._calls = 0
        self._marked = (0, 0)
        self._highest_call = 0
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

    def begin_call(self) -> int:
        """Number a call of the caller's: above every number that any rank was seen with."""
        self._highest_call += 1
        return self._highest_call

    def at(self, call: int, item: int) -> None:
        """Say that what follows belongs to the call of this number, at this item of it.

        A rank whose caller left a call early (an error in its loss, a break) and began the next one must not agree with
        peers that are still in the old one: every rank then gets `DifferentCallsError` at that collective, and the next
        call of all ranks is one call again.
        """
        self._marked = (call, item)

    def introduce(self, facts: Mapping[str, str]) -> None:
        """Once a caller, on every rank: check that ranks have `facts` and time-outs in common.

        Raises `DifferentRanksError` with each that differs, on every rank alike; the quorum can go on being used.
        """
        told = {name: _short(value) for name, value in facts.items()} | {"quorum timeout": f"{self._timeout_s:g} s"}
        text = json.dumps(told, sort_keys=True).encode()
        if len(text) > _FACTS_BYTES:
            self.fail()
            raise QuorumError(f"{len(facts)} facts take {len(text)} B; at most {_FACTS_BYTES} B are told")
        text = text.ljust(_FACTS_BYTES)
        self._agree(_Operation.INTRODUCE, 0, min)  # a rank that failed, or that is elsewhere, is told before
        mine = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(self._device)
        all_texts = torch.empty(_FACTS_BYTES * self.size, dtype=torch.uint8, device=self._device)
        try:
            self._await(_all_gather(all_texts, mine, group=self._group, async_op=True))
            rows = all_texts.view(self.size, _FACTS_BYTES).cpu().tolist()
        except RuntimeError as error:
            raise self._close(self._lost(error)) from error
        known = [json.loads(bytes(row).decode(errors="replace")) for row in rows]
        names = sorted({name for row in known for name in row})
        differing = {name: [row.get(name, "unknown") for row in known] for name in names}
        differing = {name: values for name, values in differing.items() if len(set(values)) > 1}
        if differing:
            raise DifferentRanksError(differing)

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
        failed = tuple(rank for rank, (_, _, has_failed, *_) in enumerate(rows) if has_failed)
        self._highest_call = max(self._highest_call, *(call for *_, call, _ in rows))
        if failed:
            raise RankFailedError(failed)
        marks = [(call, item) for *_, call, item in rows]
        if len({call for call, _ in marks}) > 1:
            raise DifferentCallsError(marks)
        calls = [(position, _Operation(asked).name) for position, asked, *_ in rows]
        if len(set(calls)) > 1:
            raise self._close(QuorumMismatchError(f"the ranks are in different calls (number, operation): {calls}"))
        return reduce([given for _, _, _, given, *_ in rows])

    def _gather(self, operation: _Operation, value: int, *, has_failed: bool) -> list[list[int]]:
        """Everybody's row, by rank. The only place that communicates."""
        if self._closed_by is not None:
            raise QuorumLostError("this quorum was closed by an earlier error") from self._closed_by
        self._calls += 1
        try:
            self._row.copy_(torch.tensor([self._calls, operation, has_failed, value, *self._marked]))
            self._await(_all_gather(self._rows, self._row, group=self._group, async_op=True))
            rows: list[list[int]] = self._rows.view(self.size, _ROW_INTEGERS).tolist()
        except RuntimeError as error:
            raise self._close(self._lost(error)) from error
        return rows

    def _lost(self, error: Exception) -> QuorumLostError:
        call, item = self._marked
        return QuorumLostError(
            f"rank {self.rank} of {self.size} lost its peers in collective {self._calls} (call {call}, item {item}; "
            f"it waits {self._timeout_s:g} s on an accelerator, the group's own time-out with gloo): {error}"
        )

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


def _short(text: str) -> str:
    """A long text by its beginning and its digest, so that no difference is lost."""
    if len(text) <= _TEXT_CHARS:
        return text
    return f"{text[:_TEXT_CHARS]} ... {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _device_of(group: dist.ProcessGroup | None) -> torch.device:
    """Where a group of this backend communicates from."""
    if "gloo" in dist.get_backend(group):
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None, "a process group that is not gloo needs an accelerator"
    return torch.device(accelerator.type, torch.accelerator.current_device_index())
