"""Runs a function on several real gloo ranks, each its own process, and never waits longer than a deadline.

The processes come from a fork server that imported PyTorch once, so a group of four starts in well under a second.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from adapters.torch_distributed import DistributedQuorum

GROUP_TIMEOUT_S = 20
DEADLINE_S = 60

Scenario = Callable[[DistributedQuorum], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one rank ended. `error` is the type's name, or "hung" or "died"; `value` what the scenario returned."""

    value: Any = None
    error: str | None = None
    text: str = ""
    elapsed_s: float = 0.0


def run_ranks(size: int, scenario: Scenario, *, group_timeout_s: int = GROUP_TIMEOUT_S) -> list[Outcome]:
    """`scenario(quorum)` on `size` ranks at once; every rank's outcome, by rank. `scenario` is a module's function."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.adapters.torch_distributed.ranks"])
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        pipes = [context.Pipe() for _ in range(size)]
        processes = [
            context.Process(
                target=_run_rank, args=(rank, size, store, group_timeout_s, scenario, pipes[rank][1]), daemon=True
            )
            for rank in range(size)
        ]
        for process, (_, writer) in zip(processes, pipes, strict=True):
            process.start()
            writer.close()  # so that a dead rank ends its pipe
        deadline = time.monotonic() + DEADLINE_S
        outcomes = [_outcome(reader, deadline) for reader, _ in pipes]
        for reader, _ in pipes:
            reader.close()  # every rank is done: they may leave
        for process in processes:
            process.join(timeout=max(0.1, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
    return outcomes


def _outcome(reader: Connection, deadline: float) -> Outcome:
    if not reader.poll(max(0.0, deadline - time.monotonic())):
        return Outcome(error="hung")
    try:
        outcome: Outcome = reader.recv()
    except EOFError:
        return Outcome(error="died")
    return outcome


def _run_rank(rank: int, size: int, store: str, group_timeout_s: int, scenario: Scenario, results: Connection) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, size),  # type: ignore[attr-defined]
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=group_timeout_s),
    )
    started = time.monotonic()
    try:
        value = scenario(DistributedQuorum())
        outcome = Outcome(value=value, elapsed_s=time.monotonic() - started)
    except Exception as error:
        elapsed_s = time.monotonic() - started
        outcome = Outcome(error=type(error).__name__, text=str(error), elapsed_s=elapsed_s)
    results.send(outcome)
    if outcome.error is None:
        with suppress(EOFError):
            results.recv()  # nobody leaves while a peer may still be talking to it: until the pipe is closed
    os._exit(0)  # in order, gloo's threads may abort the process
