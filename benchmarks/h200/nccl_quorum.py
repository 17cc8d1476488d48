"""Ranks that agree on real devices, one process a GPU: python -m benchmarks.h200.nccl_quorum --out
DIR/nccl_quorum.json

What it shows, each a part of the JSON log, each checked (the script exits 1 if a check fails):

- memory: NCCL's own buffers lie outside the allocator; the budget's driver figure sees them.
- latency: one quorum call, all ranks ready, in microseconds.
- waves: each rank its own requests against its own budget, the last GPU prefilled; the same agreed width on every
  rank in every wave, no peak above its price, the quorum's share of wave time.
- refusing, empty, raising, failed_sample: one rank is told what the others are told.
- killed: a rank that dies mid-wave ends the others with an error within the group's timeout.

`--device cpu` runs all of it over gloo on small sizes, on simulated devices.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, spawn

from adapters.torch_distributed import DistributedQuorum, QuorumLostError, RankFailedError
from adapters.torch_memory import (
    BudgetSampleError,
    BudgetSampler,
    PeakMeter,
    SimulatedMemory,
    StorageCounter,
    meter_for,
    sampler_for,
)
from pricing import GIB, Profile, RequestSpec, observe
from pricing.planner.plan import Batch, PlanRequest, Setting, WavePlan, WaveShape, plan_wave
from pricing.planner.quorum import PeerPlanningError, Quorum

GROUP_TIMEOUT_S = 60
KILLED_TIMEOUT_S = 15
FLOAT_BYTES = 4
INPUT_WIDTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large everything is: `hidden` floats an activation row, rows and items a batch, bytes of the
    prefill."""

    hidden: int
    item_rows: int
    items: int
    prefill_bytes: int
    workspace_bytes: int = 0  # of libraries, paid by the first wave
    simulated_bytes: int = 0  # what a CPU stands for

    def floor_bytes(self, shape: WaveShape, cold: bool) -> int:
        """One saved activation a row; a cold wave also pays its backward and library workspaces."""
        row_bytes = self.hidden * FLOAT_BYTES
        return shape.packed_rows * row_bytes * (4 if cold else 1) + (
            256 << 20 if cold and not self.simulated_bytes else 0
        )


GPU = Sizes(hidden=16_384, item_rows=4_096, items=320, prefill_bytes=40 * GIB, workspace_bytes=256 << 20)
CPU = Sizes(hidden=256, item_rows=64, items=32, prefill_bytes=1 << 20, simulated_bytes=6 << 20)


@dataclass(slots=True)
class TimedQuorum:
    """A quorum that remembers how long each call took on this rank, waiting for peers included."""

    inner: Quorum
    seconds: list[float] = field(default_factory=list)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - started)

    def all_fit(self, fits: bool) -> bool:
        with self._timed():
            return self.inner.all_fit(fits)

    def max(self, value: int) -> int:
        with self._timed():
            return self.inner.max(value)

    def min(self, value: int) -> int:
        with self._timed():
            return self.inner.min(value)


class Rank:
    """One rank: its device, meter, budget, net and what it learned."""

    def __init__(self, sizes: Sizes, device: torch.device, quorum: DistributedQuorum, meter: PeakMeter) -> None:
        self.sizes = sizes
        self.device = device
        self.quorum = quorum
        self.meter = meter
        self.sampler = _sampler(sizes, device, meter)
        self.profiles: dict[Any, Profile] = {}
        self.first = torch.randn(INPUT_WIDTH, sizes.hidden, device=device, requires_grad=True)
        self.second = torch.randn(sizes.hidden, 1, device=device, requires_grad=True)

    def batch(self, items: int, dice: random.Random) -> Batch:
        """Items of one request each, of different lengths, sharing nothing."""
        lengths = [dice.randrange(self.sizes.item_rows // 2, self.sizes.item_rows) for _ in range(items)]
        return Batch([[_request(number, rows)] for number, rows in enumerate(lengths)])

    def plan(
        self,
        batch: Batch,
        *,
        start: int = 0,
        quorum: Quorum | None = None,
        available_bytes: int | None = None,
        floor_bytes: Callable[[WaveShape, bool], int] | None = None,
    ) -> WavePlan:
        """The next wave, judged against a fresh budget of this rank unless `available_bytes` is given."""
        if available_bytes is None:
            with self.quorum.guard():
                available_bytes = self.sampler.budget().available_bytes
        return plan_wave(
            batch,
            start=start,
            profiles=self.profiles,
            available_bytes=available_bytes,
            setting=Setting(floor_bytes=floor_bytes or self.sizes.floor_bytes),
            quorum=quorum or self.quorum,
        )

    def run(self, plan: WavePlan) -> int:
        """The wave's forward, loss and backward; its peak above baseline in bytes. What it taught is kept."""
        inputs = torch.ones(plan.wave.packed_rows, INPUT_WIDTH, device=self.device)
        interval = self.meter.open(plan.wave, grads=True)
        outputs = torch.relu(inputs @ self.first) @ self.second
        seen = [interval.forward_done(outputs)]
        torch.autograd.backward(outputs.sum())
        seen.append(interval.close())
        profile = self.profiles.get(plan.signature, Profile())
        for observation in seen:
            if observation.reading is not None:
                profile = observe(profile, observation.reading)
        self.profiles[plan.signature] = profile
        assert seen[-1].flaws == (), seen[-1]
        return seen[-1].peak_delta_bytes


def _request(number: int, rows: int) -> PlanRequest:
    spec = RequestSpec(input_shape=(rows,), target_shape=(rows,))
    return PlanRequest(
        tokens=torch.arange(number << 20, (number << 20) + rows), spec=spec, output_bytes=rows * FLOAT_BYTES
    )


def _sampler(sizes: Sizes, device: torch.device, meter: PeakMeter) -> BudgetSampler:
    if device.type == "cpu":
        assert isinstance(meter.counter, StorageCounter)
        return BudgetSampler(SimulatedMemory(meter.counter, sizes.simulated_bytes))
    return sampler_for(device)


# Parts: each returns what this rank saw
# --------------------------------------------------------------------------------


def measure_latency(rank: Rank, calls: int) -> dict[str, float]:
    """Microseconds a call with every rank ready: each call is behind another one, so nobody is late."""
    for _ in range(20):
        rank.quorum.max(0)
    timed = TimedQuorum(rank.quorum)
    for number in range(calls):
        timed.max(number)
    micros = sorted(1e6 * second for second in timed.seconds)
    return {
        "calls": calls,
        "median_us": statistics.median(micros),
        "p99_us": micros[int(0.99 * (len(micros) - 1))],
        "max_us": micros[-1],
    }


def run_waves(rank: Rank, waves: int) -> list[dict[str, Any]]:
    """`waves` waves over endless batches of this rank's own. One record a wave."""
    dice = random.Random(rank.quorum.rank)
    records: list[dict[str, Any]] = []
    batch, start = rank.batch(rank.sizes.items, dice), 0
    while len(records) < waves:
        timed = TimedQuorum(rank.quorum)
        started = time.perf_counter()
        plan = rank.plan(batch, start=start, quorum=timed)
        with rank.quorum.guard():
            admission = rank.sampler.admit(plan.required_bytes)
        runs = timed.all_fit(plan.runs and admission.runs)
        peak_bytes = rank.run(plan) if runs else 0
        rank.meter.counter.synchronize()
        wave_s = time.perf_counter() - started
        records.append(
            {
                "verdict": plan.verdict.value,
                "agreed_width": plan.agreed_width,
                "width": plan.width,
                "packed_rows": plan.wave.packed_rows,
                "required_bytes": plan.required_bytes,
                "available_bytes": plan.available_bytes,
                "peak_bytes": peak_bytes,
                "ran": runs,
                "released_cache": admission.released_cache,
                "wave_s": wave_s,
                "quorum_s": sum(timed.seconds),
                "quorum_calls": len(timed.seconds),
            }
        )
        start = plan.next_start
        everyone_done = rank.quorum.max(len(batch) - start) == 0
        if everyone_done:
            batch, start = rank.batch(rank.sizes.items, dice), 0
    return records


def refuse_on_last(rank: Rank) -> list[Any]:
    """The last rank's budget is one byte short of its narrowest wave, which cannot be split either."""
    batch = rank.batch(1, random.Random(0))
    needed_bytes = rank.plan(batch).required_bytes
    plan = rank.plan(batch, available_bytes=needed_bytes - (1 if _is_last(rank) else 0))
    return [plan.verdict.value, plan.refused_elsewhere]


def empty_on_last(rank: Rank) -> list[Any]:
    """The last rank has no items left."""
    plan = rank.plan(rank.batch(0 if _is_last(rank) else 2, random.Random(0)))
    return [plan.verdict.value, plan.runs]


def raise_on_last(rank: Rank) -> list[Any]:
    """The last rank's floor raises while it plans; then all agree again."""

    def floor_bytes(shape: WaveShape, cold: bool) -> int:
        raise ArithmeticError("this rank cannot price")

    try:
        rank.plan(rank.batch(1, random.Random(0)), floor_bytes=floor_bytes if _is_last(rank) else None)
    except (ArithmeticError, PeerPlanningError) as error:
        return [type(error).__name__, rank.quorum.all_fit(True)]
    return ["planned", False]


def fail_sample_on_last(rank: Rank) -> list[Any]:
    """The last rank cannot read its device; then all agree again."""
    try:
        with rank.quorum.guard():
            if _is_last(rank):
                raise BudgetSampleError("the driver did not answer")
        rank.plan(rank.batch(1, random.Random(0)))
    except (BudgetSampleError, RankFailedError) as error:
        return [type(error).__name__, rank.quorum.all_fit(True)]
    return ["planned", False]


def _is_last(rank: Rank) -> bool:
    return rank.quorum.rank == rank.quorum.size - 1


# Processes
# -------------------------------------------------------------------------------------------------------------


def _join_group(index: int, size: int, port: int, kind: str, timeout_s: int) -> torch.device:
    if kind == "cuda":
        torch.cuda.set_device(index)
    else:
        torch.set_num_threads(1)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    device = torch.device(f"cuda:{index}" if kind == "cuda" else "cpu")
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=index,
        world_size=size,
        timeout=timedelta(seconds=timeout_s),
        device_id=device if kind == "cuda" else None,
    )
    return device


def main_rank(index: int, size: int, port: int, kind: str, waves: int, folder: str) -> None:
    """One rank of the main run. Writes its parts to `folder`."""
    sizes = GPU if kind == "cuda" else CPU
    log: dict[str, Any] = {}
    if kind == "cuda":
        torch.cuda.set_device(index)
        torch.zeros(1, device="cuda")  # the context, which is not NCCL's
        before = sampler_for(f"cuda:{index}").sample()
    device = _join_group(index, size, port, kind, GROUP_TIMEOUT_S)
    with meter_for(device) as meter:
        quorum = DistributedQuorum()
        quorum.max(0)
        if kind == "cuda":
            after = sampler_for(device).sample()
            log["memory"] = {
                "driver_free_fell_bytes": before.free_bytes - after.free_bytes,
                "allocator_reserved_rose_bytes": after.reserved_bytes - before.reserved_bytes,
                "total_bytes": after.total_bytes,
            }
        rank = Rank(sizes, device, quorum, meter)
        prefill = torch.empty(sizes.prefill_bytes if _is_last(rank) else 0, dtype=torch.uint8, device=device)
        log["latency"] = measure_latency(rank, calls=1_000 if kind == "cuda" else 100)
        log["waves"] = run_waves(rank, waves)
        del prefill
        rank.profiles.clear()
        parts: list[Callable[[Rank], list[Any]]] = [refuse_on_last, empty_on_last, raise_on_last, fail_sample_on_last]
        log |= {part.__name__: part(rank) for part in parts}
    Path(folder, f"rank{index}.json").write_text(json.dumps(log))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # the log is written: gloo's threads may outlive the group, and an ordinary exit then aborts


def killed_rank(index: int, size: int, port: int, kind: str, folder: str) -> None:
    """The last rank dies in its first wave; what the others see, and after how long."""
    device = _join_group(index, size, port, kind, KILLED_TIMEOUT_S)
    with meter_for(device) as meter:
        quorum = DistributedQuorum(timeout=timedelta(seconds=KILLED_TIMEOUT_S - 5))  # before NCCL's watchdog
        rank = Rank(GPU if kind == "cuda" else CPU, device, quorum, meter)
        plan = rank.plan(rank.batch(1, random.Random(index)))
        rank.run(plan)
        if _is_last(rank):
            os._exit(0)
        started, seen = time.monotonic(), "no error"
        try:
            rank.plan(rank.batch(1, random.Random(index)))
        except QuorumLostError as error:
            seen = str(error)[:500]
        # Written inside: leaving the meter would wait for a device on which the collective still spins.
        log = {"killed": {"error": seen, "elapsed_s": time.monotonic() - started}}
        Path(folder, f"killed{index}.json").write_text(json.dumps(log))
        os._exit(0)  # the group cannot be taken down in order any more


# Checks
# ----------------------------------------------------------------------------------------------------------------


def failed_checks(ranks: list[dict[str, Any]], killed: list[dict[str, Any]], kind: str) -> list[str]:
    """Every statement of the module's docstring that the logs do not bear out."""
    others = len(ranks) - 1
    waves = [rank["waves"] for rank in ranks]
    agreed = [[wave["agreed_width"] for wave in of_rank] for of_rank in waves]
    checks = {
        "same agreed width on every rank in every wave": all(widths == agreed[0] for widths in agreed),
        "more than one width was agreed on": len(set(agreed[0])) > 1,
        "every wave ran": all(wave["ran"] for of_rank in waves for wave in of_rank),
        "no peak above its price after the first wave": all(
            wave["peak_bytes"] <= wave["required_bytes"] for of_rank in waves for wave in of_rank[1:]
        ),
        "the prefilled rank has less": min(wave["available_bytes"] for wave in waves[0][2:])
        > max(wave["available_bytes"] for wave in waves[-1][2:]),
        "refused": [rank["refuse_on_last"] for rank in ranks] == [["refuse", True]] * others + [["refuse", False]],
        "empty": [rank["empty_on_last"][0] for rank in ranks] == ["cold_start"] * others + ["empty"],
        "raised": [rank["raise_on_last"] for rank in ranks]
        == [["PeerPlanningError", True]] * others + [["ArithmeticError", True]],
        "failed sample": [rank["fail_sample_on_last"] for rank in ranks]
        == [["RankFailedError", True]] * others + [["BudgetSampleError", True]],
        "killed": len(killed) == others
        and all(
            log["killed"]["error"] != "no error" and log["killed"]["elapsed_s"] < KILLED_TIMEOUT_S + 10
            for log in killed
        ),
    }
    if kind == "cuda":
        checks["the budget sees NCCL's memory and the allocator does not"] = all(
            rank["memory"]["driver_free_fell_bytes"] > rank["memory"]["allocator_reserved_rose_bytes"] for rank in ranks
        )
    return [name for name, holds in checks.items() if not holds]


def summary_of(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures to quote: medians over waves, worst over ranks."""
    shares = [sum(w["quorum_s"] for w in r["waves"]) / sum(w["wave_s"] for w in r["waves"]) for r in ranks]
    return {
        "waves": len(ranks[0]["waves"]),
        "agreed_widths": [wave["agreed_width"] for wave in ranks[0]["waves"]],
        "quorum_share_of_wave_time": max(shares),
        "quorum_ms_per_wave_median": max(
            1e3 * statistics.median(wave["quorum_s"] for wave in rank["waves"]) for rank in ranks
        ),
        "quorum_call_median_us": max(rank["latency"]["median_us"] for rank in ranks),
        "nccl_bytes": [rank["memory"]["driver_free_fell_bytes"] for rank in ranks if "memory" in rank],
    }


def _spawn(worker: Callable[..., None], size: int, arguments: tuple[Any, ...]) -> None:
    spawn(worker, args=(size, _free_port(), *arguments), nprocs=size, join=True)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--ranks", type=int, default=None, help="default: one a GPU, 2 on a CPU")
    parser.add_argument("--waves", type=int, default=40)
    parser.add_argument("--killed-only", action="store_true", help="repeat that part; keep the other parts' logs")
    arguments = parser.parse_args()
    kind = arguments.device
    size = arguments.ranks or (torch.cuda.device_count() if kind == "cuda" else 2)
    folder = arguments.out.parent / (arguments.out.stem + "-ranks")
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("killed*.json" if arguments.killed_only else "*.json"):
        stale.unlink()
    if not arguments.killed_only:
        _spawn(main_rank, size, (kind, arguments.waves, str(folder)))
    try:
        _spawn(killed_rank, size, (kind, str(folder)))
    except ProcessExitedException as error:
        print(error, file=sys.stderr)  # its log is missing, and the check says so; the other parts are kept
    ranks = [json.loads((folder / f"rank{index}.json").read_text()) for index in range(size)]
    killed = [json.loads(path.read_text()) for path in sorted(folder.glob("killed*.json"))]
    failed = failed_checks(ranks, killed, kind)
    log = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0) if kind == "cuda" else "cpu (simulated devices, gloo)",
        "failed_checks": failed,
        "summary": summary_of(ranks),
        "killed": killed,
        "ranks": ranks,
    }
    arguments.out.write_text(json.dumps(log, indent=1) + "\n")
    print(json.dumps({key: log[key] for key in ("device", "failed_checks", "summary", "killed")}, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
