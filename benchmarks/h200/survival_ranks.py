"""Ranks that survive: python -m benchmarks.h200.survival_ranks --out DIR/survival-ranks.json

One process a rank, over NCCL with a GPU each, or with `--device cpu` over gloo on simulated devices. What it shows,
each with its figures in the JSON log, each checked (the script exits 1 if a check fails):

- matrix: a device that holds a third of what its budget claims, on the last rank alone. Laws, the phase that runs out
  of memory (forward, caller's), and 1, 2 and 4 ranks. Every item is trained once; gradients equal an unlimited run's to
  1e-6, and to the bit those of the same waves on a roomy device; out-of-memory errors stay within INV-18; the second
  epoch, and a restarted process that reads the profile file, have none.
- injections: one to three errors, each any of those that mean out of memory, at any operation of forward, loss,
  backward and what the loop does between them, on any rank. The batch is trained once, or it ends with a typed error
  on every rank and gradients as they were before; ranks agree on every width; nothing is learned that is not true.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.utils._python_dispatch import TorchDispatchMode

from adapters.torch_distributed import DistributedQuorum
from adapters.torch_distributed.errors import RankFailedError
from adapters.torch_memory import Observation, PeakMeter, meter_for
from adapters.trainer_rank import AdmittedOutOfMemoryError, MicroBatch, Request, TrainerRank, WaveRefusedError
from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from pricing import Reading, ReadingKind, Signature
from pricing.contracts.physical import most_failures
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL
from pricing.planner.quorum import SINGLE_PROCESS, Quorum
from pricing.planner.rules import Verdict
from pricing.records.metrics import WaveSummary
from pricing.records.record import Event
from pricing.records.recorder import Recorder

VOCABULARY = 97
ITEMS = 40
PROMPT_ROWS, ROLLOUTS, COMPLETION_ROWS = 24, 2, 8
ROOMY_BYTES = 8 << 30
CLAIMED_ITEMS = 12
"""Items that fit what the budget claims; the device holds a third."""
LAWS = ("warm", "frontier")
PHASES = ("forward", "caller's phase")
TOLERANCE = 1e-6
GROUP_TIMEOUT_S = 120
TYPED = (AdmittedOutOfMemoryError, WaveRefusedError, RankFailedError)

ERRORS: tuple[tuple[type[Exception], str], ...] = (
    (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 20.00 KiB. GPU 0 has a total capacity of 1.00 GiB"),
    (RuntimeError, "HIP out of memory. Tried to allocate 20.00 KiB. GPU 1 has a total capacity of 63.98 GiB"),
    (RuntimeError, "MPS backend out of memory (MPS allocated: 8.89 GB, other allocations: 1.31 GB)"),
    (RuntimeError, "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    (RuntimeError, "CUDA driver error: out of memory"),
    (RuntimeError, "CUDA error (flash_bwd_launch_template.h:61): out of memory"),
    (RuntimeError, "Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"),
    (RuntimeError, "UR backend failed. UR backend returns:39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    (RuntimeError, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    (RuntimeError, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    (RuntimeError, "cuFFT error: CUFFT_ALLOC_FAILED"),
    (RuntimeError, "rocblas_status_memory_error"),
    (
        RuntimeError,
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
    ),
    (RuntimeError, "Triton Error [CUDA]: out of memory"),
)
"""One of each kind that `adapters.torch_memory.out_of_memory.TEXTS` knows."""


# Devices that run out ------------------------------------------------------------------------------------------------


class Trouble(TorchDispatchMode):
    """Operations that run out of memory while it is armed. Views are left alone: they do nothing that could fail."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.armed = False
        self.raised = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.armed or func.is_view:
            return func(*args, **(kwargs or {}))
        self.before()
        result = func(*args, **(kwargs or {}))
        self.after(result)
        return result

    def before(self) -> None:
        """Before an operation."""

    def after(self, result: object) -> None:
        """After an operation."""


class Scarce(Trouble):
    """More than `limit_bytes` cannot be live, as on a device of that size."""

    def __init__(self, meter: PeakMeter, limit_bytes: int) -> None:
        super().__init__()
        self.meter = meter
        self.limit_bytes = limit_bytes

    def after(self, result: object) -> None:
        if self.meter.counter.allocated() > self.limit_bytes:
            self.raised += 1
            size_bytes = sum(each.nbytes for each in _tensors(result))
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size_bytes} bytes.")


class Injected(Trouble):
    """Raises `errors[n]` at the n-th operation."""

    def __init__(self, errors: dict[int, tuple[type[Exception], str]]) -> None:
        super().__init__()
        self.errors = errors
        self.seen = 0

    def before(self) -> None:
        self.seen += 1
        error = self.errors.get(self.seen)
        if error is not None:
            self.raised += 1
            raise error[0](error[1])


class PhaseQuorum:
    """A quorum that arms trouble by where the loop is. Its own collectives are never in trouble: what runs out of
    memory there loses the quorum, which is another matter (`QuorumLostError`).

    phase: "forward" arms from the admission's vote to the next collective, "caller's phase" from `in_caller` on,
    None everywhere else too.
    """

    def __init__(self, inner: Quorum, trouble: Trouble, phase: str | None) -> None:
        self._inner = inner
        self._trouble = trouble
        self._phase = phase

    def all_fit(self, fits: bool) -> bool:
        with self._calling(arms=self._phase == "forward"):
            return self._inner.all_fit(fits)

    def max(self, value: int) -> int:
        with self._calling():
            return self._inner.max(value)

    def min(self, value: int) -> int:
        with self._calling():
            return self._inner.min(value)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """As `DistributedQuorum.guard`, where there is somebody to tell."""
        try:
            yield
        except Exception:
            if hasattr(self._inner, "fail"):
                self.fail()
            raise

    def in_caller(self) -> None:
        """The wave is in the caller's hands."""
        self._trouble.armed = self._phase != "forward"

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("fail", "introduce"):
            return found

        def called(*arguments: Any) -> Any:
            with self._calling():
                return found(*arguments)

        return called

    @contextmanager
    def _calling(self, *, arms: bool = False) -> Iterator[None]:
        self._trouble.armed = False
        yield
        self._trouble.armed = arms or self._phase is None


# What is trained -----------------------------------------------------------------------------------------------------


def decoder(device: torch.device, *, recomputes: bool, lora_rank: int = 0) -> Decoder:
    torch.manual_seed(0)
    config = DecoderConfig(
        vocabulary=VOCABULARY,
        hidden=32,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=8 if device.type == "cpu" else 32,
        feed_forward=48,
        lora_rank=lora_rank,
    )
    return Decoder(config, recompute=ONE_LAYER_FULL if recomputes else NO_RECOMPUTE).to(device).train()


def items_of(rank: int, count: int) -> list[list[Request]]:
    """Groups of one shape, so that a wave's peak is known by its width. Each rank has its own."""
    made = []
    for number in range(count):
        generator = np.random.default_rng((rank, number))
        shared = generator.integers(0, VOCABULARY, PROMPT_ROWS)
        rows = [np.concatenate([shared, generator.integers(0, VOCABULARY, COMPLETION_ROWS)]) for _ in range(ROLLOUTS)]
        made.append([Request(tokens=row, targets=np.roll(row, -1)) for row in rows])
    return made


def a_loss(wave: MicroBatch) -> Tensor:
    """A mean over the batch's tokens: gradients are of the size that a trainer's are."""
    found = [each.target_log_probs.sum() for each in wave.outputs if each.target_log_probs is not None]
    return torch.stack(found).sum() / (ITEMS * ROLLOUTS * (PROMPT_ROWS + COMPLETION_ROWS))


class Noting(TrainerRank):
    """Keeps what it learned and what became of each wave."""

    def __init__(self, model: nn.Module, *, meter: PeakMeter, quorum: Any = SINGLE_PROCESS, **settings: Any) -> None:
        self.learned: list[Reading] = []
        self.told: list[WaveSummary] = []
        device = meter.counter.device
        super().__init__(
            model,
            meter=meter,
            quorum=quorum,
            device=device,
            cold_transient_bytes=0 if device.type == "cpu" else 64 << 20,
            forecast=False,
            recorder=Recorder(metrics=[self.told.append]),
            **settings,
        )

    def learn(self, signature: Signature, look: Observation) -> None:
        if look.reading is not None:
            self.learned.append(look.reading)
        super().learn(signature, look)

    @property
    def failed_rows(self) -> list[int]:
        """Packed rows of the waves that ran out of memory, in order."""
        return [wave.packed_rows for wave in self.told if wave.event is Event.OUT_OF_MEMORY]


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def largest_difference(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    if got.keys() != wanted.keys():
        return float("inf")
    return max((float((got[name] - wanted[name]).abs().max()) for name in wanted), default=0.0)


def are_equal(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return got.keys() == wanted.keys() and all(torch.equal(got[name], wanted[name]) for name in wanted)


class Narrowing:
    """A quorum of one that makes waves as narrow as asked, one after another."""

    def __init__(self) -> None:
        self.widths: list[int] = []

    def all_fit(self, fits: bool) -> bool:
        return fits

    def max(self, value: int) -> int:
        return value

    def min(self, value: int) -> int:
        return min(value, self.widths.pop(0)) if self.widths else value


class Roomy:
    """The same model on a device that holds everything: what is right."""

    def __init__(self, model: Decoder, meter: PeakMeter, items: Sequence[Any]) -> None:
        self.model = model
        self.items = items
        self.quorum = Narrowing()
        memory_bytes = ROOMY_BYTES if meter.counter.device.type == "cpu" else None
        self.rank = Noting(model, meter=meter, quorum=self.quorum, memory_bytes=memory_bytes)
        for _ in range(2):
            model.zero_grad(set_to_none=True)
            self.rank.train_batch(items, a_loss)
        self.gradients = gradients(model)
        self._peaks: dict[int, int] = {}
        model.zero_grad(set_to_none=True)

    def peak_bytes(self, width: int) -> int:
        """The peak of one wave of so many items."""
        if width not in self._peaks:
            (wave,) = self.rank.train_batch(self.items[:width], a_loss).waves
            assert wave.stats.observed_bytes is not None
            self._peaks[width] = wave.stats.observed_bytes
            self.model.zero_grad(set_to_none=True)
        return self._peaks[width]

    def by_waves(self, waves: Sequence[range], before: dict[str, Tensor]) -> dict[str, Tensor]:
        """The gradients of the same waves of the same batch, added to what was there before."""
        self.model.zero_grad(set_to_none=True)
        self.quorum.widths = [len(items) for items in waves]
        ran = [wave.items for wave in self.rank.train_batch(self.items, a_loss).waves]
        assert ran == list(waves), (ran, waves)
        made = gradients(self.model)
        self.model.zero_grad(set_to_none=True)
        return {name: before[name] + value if name in before else value for name, value in made.items()}


def put_before(model: nn.Module) -> dict[str, Tensor]:
    """Gradients that are there before the batch."""
    torch.manual_seed(1)
    for value in model.parameters():
        if value.requires_grad:
            value.grad = torch.randn_like(value) / 100
    return gradients(model)


# The matrix ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of the matrix on one rank."""

    law: str
    phase: str
    ranks: int
    before: bool


def cells(sizes: Sequence[int]) -> list[Cell]:
    """All of them; gradients are there before in every other one."""
    made = [(size, law, phase) for size in sizes for law in LAWS for phase in PHASES]
    return [
        Cell(law=law, phase=phase, ranks=size, before=at % 2 == (at // 4) % 2)
        for at, (size, law, phase) in enumerate(made)
    ]


def run_cell(cell: Cell, quorum: Quorum, index: int, device: torch.device, profiles: Path) -> dict[str, Any]:
    """Two epochs on a device that holds a third on the last rank; or, where `profiles` is there already, one epoch of a
    restarted process. The figures, with `problems` by name."""
    is_restart = profiles.exists()
    items = items_of(index, ITEMS)
    with meter_for(device) as meter:
        roomy = Roomy(decoder(device, recomputes=cell.phase != "forward"), meter, items)
        model = decoder(device, recomputes=cell.phase != "forward")
        before = put_before(model) if cell.before else {}
        model.zero_grad(set_to_none=True)
        gradient_bytes = sum(value.nbytes for value in model.parameters()) * (1 + cell.before)
        claimed_bytes = CLAIMED_ITEMS * roomy.peak_bytes(1)
        held_bytes = meter.counter.allocated() if device.type == "cpu" else torch.cuda.memory_reserved(device)
        memory_bytes = held_bytes + gradient_bytes + claimed_bytes
        if device.type == "cpu":
            memory_bytes = memory_bytes * 100 // 97 + 1  # the reserve
        is_short = index == cell.ranks - 1
        figures: dict[str, Any] = {"cell": asdict(cell), "rank": index, "is_short": is_short, "is_restart": is_restart}
        problems: list[str] = []

        def an_epoch(rank: Noting, name: str) -> None:
            model.zero_grad(set_to_none=True)
            rank.told.clear()
            started = time.monotonic()
            device_of_rank.raised = 0
            if is_short:
                device_of_rank.limit_bytes = meter.counter.allocated() + gradient_bytes + claimed_bytes // 3
            for key, value in model.named_parameters():
                value.grad = before[key].clone() if key in before else None
            with device_of_rank:
                result = rank.train_batch(items, loss_fn)
            device_of_rank.armed = False
            waves = [wave.items for wave in result.waves if wave.items]
            got, failed = gradients(model), rank.failed_rows
            bound = 0
            if failed:
                last = max(at for at, wave in enumerate(rank.told) if wave.event is Event.OUT_OF_MEMORY)
                ran = [wave.packed_rows for wave in rank.told[last:] if wave.event is Event.OBSERVED]
                bound = most_failures(max(failed), max(ran))
            wanted = {key: value + before.get(key, 0.0) for key, value in roomy.gradients.items()}
            figures[name] = {
                "waves": len(waves),
                "out_of_memory": len(failed),
                "out_of_memory_bound": bound,
                "failed_rows": failed,
                "phases": dict(Counter(str(each.phase) for each in result.out_of_memory)),
                "widths": [len(each) for each in waves],
                "largest_difference": largest_difference(got, wanted),
                "gradient_scale": max(float(value.abs().max()) for value in roomy.gradients.values()),
                "bit_identical": are_equal(got, roomy.by_waves(waves, before)),
                "seconds": round(time.monotonic() - started, 2),
            }
            said = figures[name]
            if [item for wave in waves for item in wave] != list(range(ITEMS)):
                problems.append(f"{name}: not every item once")
            if said["largest_difference"] > TOLERANCE:
                problems.append(f"{name}: gradients differ by {said['largest_difference']}")
            if not said["bit_identical"]:
                problems.append(f"{name}: not to the bit what the same waves give")
            expects_failures = name == "first" and is_short
            if bool(failed) != expects_failures or device_of_rank.raised != len(failed):
                problems.append(f"{name}: {device_of_rank.raised} errors, {len(failed)} waves that ran out of memory")
            if failed and set(said["phases"]) != {cell.phase}:
                problems.append(f"{name}: ran out of memory in {said['phases']}")
            if len(failed) > bound:
                problems.append(f"{name}: {len(failed)} errors are more than {bound} (INV-18)")

        device_of_rank = Scarce(meter, 1 << 62)
        watched = PhaseQuorum(quorum, device_of_rank, cell.phase)

        def loss_fn(wave: MicroBatch) -> Tensor:
            watched.in_caller()
            return a_loss(wave)

        rank = Noting(model, meter=meter, quorum=watched, law=cell.law, memory_bytes=memory_bytes, profiles=profiles)
        for name in ("restarted",) if is_restart else ("first", "second"):
            an_epoch(rank, name)
    return figures | {"problems": problems}


# Injections ----------------------------------------------------------------------------------------------------------


def run_injection(seed: int, quorum: Quorum, index: int, ranks: int, device: torch.device) -> dict[str, Any]:
    """One batch with errors at operations drawn from `seed`, on ranks drawn from it."""
    draw = random.Random(f"survival/{seed}")
    law, recomputes, before, is_warm = (
        draw.choice(LAWS), draw.random() < 0.5, draw.random() < 0.5, draw.random() < 0.5
    )  # fmt: skip
    lora_rank, count = draw.choice((0, 0, 4)), draw.randint(3, 8)
    points = [(draw.randrange(ranks), draw.random(), draw.choice(ERRORS)) for _ in range(draw.choice((1, 1, 2, 3)))]
    items = items_of(index, count)
    problems: list[str] = []
    with meter_for(device) as meter:
        roomy = Roomy(decoder(device, recomputes=recomputes, lora_rank=lora_rank), meter, items)
        model = decoder(device, recomputes=recomputes, lora_rank=lora_rank)
        trouble = Injected({})
        watched = PhaseQuorum(quorum, trouble, None)
        memory_bytes = ROOMY_BYTES if device.type == "cpu" else None
        rank = Noting(model, meter=meter, quorum=watched, law=law, memory_bytes=memory_bytes)
        with trouble:
            rank.train_batch(items, a_loss)  # counts the operations
        operations, trouble.armed = trouble.seen, False
        if not is_warm:
            rank = Noting(model, meter=meter, quorum=watched, law=law, memory_bytes=memory_bytes)
        rank.learned.clear()
        rank.told.clear()
        model.zero_grad(set_to_none=True)
        was_there = put_before(model) if before else {}
        kept = {name: value.detach().clone() for name, value in model.named_parameters()}
        mine = {1 + int(share * operations): error for on, share, error in points if on == index}
        trouble.errors, trouble.seen, trouble.raised = mine, 0, 0
        outcome, waves, text, is_whole = "went on", [], "", True
        try:
            with trouble:
                result = rank.train_batch(items, a_loss)
            waves = [wave.items for wave in result.waves if wave.items]
            is_whole = all(wave.stats.plan.verdict is not Verdict.SPLIT for wave in result.waves)
        except Exception as error:
            outcome, text = type(error).__name__, str(error)[:300]
            if not isinstance(error, TYPED):
                problems.append(f"an error that is none of ours: {outcome}: {text}")
        trouble.armed = False
        got, difference, is_identical = gradients(model), 0.0, True
        if outcome == "went on":
            wanted = {key: value + was_there.get(key, 0.0) for key, value in roomy.gradients.items()}
            difference = largest_difference(got, wanted)
            is_identical = not is_whole or are_equal(got, roomy.by_waves(waves, was_there))
            if [item for wave in waves for item in wave] != list(range(count)):
                problems.append("not every item once")
            if difference > TOLERANCE or not is_identical:
                problems.append(f"gradients differ by {difference}, to the bit equal: {is_identical}")
        elif not are_equal(got, was_there):
            problems.append("gradients are not what they were before")
        if any(not torch.equal(value, kept[name]) for name, value in model.named_parameters()):
            problems.append("parameters changed")
        problems += untrue(rank, roomy)
    return {
        "seed": seed,
        "rank": index,
        "law": law,
        "lora_rank": lora_rank,
        "before": before,
        "warm": is_warm,
        "operations": operations,
        "errors": [f"{at}: {error[1].splitlines()[0][:60]}" for at, error in sorted(mine.items())],
        "raised": trouble.raised,
        "outcome": outcome,
        "text": text,
        "out_of_memory": len(rank.failed_rows),
        "waves": len(waves),
        "whole_waves": is_whole,
        "largest_difference": difference,
        "problems": problems,
    }


def untrue(rank: Noting, roomy: Roomy) -> list[str]:
    """What was learned and is not so: complete readings that are not the wave's own peak, and failures that do not say
    more than was available."""
    found = []
    rows = PROMPT_ROWS + ROLLOUTS * COMPLETION_ROWS
    for reading in rank.learned:
        width = reading.packed_rows // rows
        is_whole = reading.packed_rows == width * rows and reading.grad_segments == width * (1 + ROLLOUTS)
        if reading.is_complete and is_whole:  # not of a split, whose parts run one after the other
            truth = roomy.peak_bytes(width)
            if not truth <= reading.peak_delta_bytes * 1.02 <= truth * 1.15:
                found.append(f"a complete reading of {reading.peak_delta_bytes:,} B; the wave's peak is {truth:,}")
        if reading.kind is ReadingKind.OUT_OF_MEMORY:
            available = [
                wave.available_bytes
                for wave in rank.told
                if wave.event is Event.OUT_OF_MEMORY and wave.packed_rows == reading.packed_rows
            ]
            if not available or (reading.footprint_bytes or 0) <= min(available):
                found.append(f"a failure that says {reading.footprint_bytes}, with {available} available")
    failures = sum(1 for reading in rank.learned if reading.kind is ReadingKind.OUT_OF_MEMORY)
    if failures != len(rank.failed_rows):
        found.append(f"{failures} failures learned of, {len(rank.failed_rows)} recorded")
    return found


def disagreements(by_rank: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong between the ranks of one seed."""
    went_on = {outcome["outcome"] == "went on" for outcome in by_rank}
    return [] if len(went_on) == 1 else [f"some went on: {[outcome['outcome'] for outcome in by_rank]}"]


# Processes -----------------------------------------------------------------------------------------------------------


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each)


def main_rank(
    index: int, size: int, port: int, kind: str, folder: str, seeds: Sequence[int], matrix: bool, group_timeout_s: int
) -> None:
    """One rank's cells and seeds, a JSON line each; a barrier after each shows that the ranks are still in step."""
    device = torch.device(f"cuda:{index}" if kind == "cuda" else "cpu")
    if kind == "cuda":
        torch.cuda.set_device(index)
    else:
        torch.set_num_threads(1)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    quorum: Quorum = SINGLE_PROCESS
    if size > 1:
        dist.init_process_group(
            "nccl" if kind == "cuda" else "gloo",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=index,
            world_size=size,
            timeout=timedelta(seconds=group_timeout_s),
            device_id=device if kind == "cuda" else None,
        )
    with Path(folder, f"{size}-ranks-{index}.jsonl").open("a") as log:
        for name, cell in [(f"{cell.law} {cell.phase}", cell) for cell in cells([size])] if matrix else []:
            if size > 1:
                quorum = DistributedQuorum(timeout=timedelta(seconds=group_timeout_s - 5))
            profiles = Path(folder, f"{size} {name} {index}.profiles.json".replace(" ", "-").replace("'", ""))
            print(json.dumps({"matrix": run_cell(cell, quorum, index, device, profiles)}), file=log, flush=True)
            _in_step(size)
        for seed in seeds:
            if size > 1:
                quorum = DistributedQuorum(timeout=timedelta(seconds=group_timeout_s - 5))
            print(json.dumps({"injection": run_injection(seed, quorum, index, size, device)}), file=log, flush=True)
            _in_step(size)
    os._exit(0)  # in order, the threads of the group may abort the process


def _in_step(size: int) -> None:
    if size > 1:
        dist.barrier()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def read_lines(folder: Path, sizes: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
    """Everything the ranks wrote, by part."""
    found: dict[str, list[dict[str, Any]]] = {"matrix": [], "injection": []}
    for size in sizes:
        for index in range(size):
            for line in (folder / f"{size}-ranks-{index}.jsonl").read_text().splitlines():
                for part, value in json.loads(line).items():
                    found[part].append(value | {"ranks": size})
    return found


def problems_of(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Everything that is wrong, in words."""
    problems = [f"{run['cell']} rank {run['rank']}: {text}" for run in found["matrix"] for text in run["problems"]]
    problems += [
        f"seed {run['seed']} of {run['ranks']} ranks, rank {run['rank']}: {text}"
        for run in found["injection"]
        for text in run["problems"]
    ]
    seeds: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for run in found["injection"]:
        seeds.setdefault((run["ranks"], run["seed"]), []).append(run)
    for (size, seed), by_rank in seeds.items():
        problems += [f"seed {seed} of {size} ranks: {text}" for text in disagreements(by_rank)]
        if len(by_rank) != size:
            problems.append(f"seed {seed} of {size} ranks: {len(by_rank)} ranks came to its end")
    return problems


def summary_of(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The figures to quote."""
    short = [run for run in found["matrix"] if run["is_short"] and not run["is_restart"]]
    epochs = [run[name] for run in found["matrix"] for name in ("first", "second", "restarted") if name in run]
    runs = found["injection"]
    seeds = {(run["ranks"], run["seed"]) for run in runs}
    went_on = {(run["ranks"], run["seed"]) for run in runs if run["outcome"] == "went on"}
    return {
        "matrix_runs": len(short),
        "matrix_epochs": len(epochs),
        "items_of_an_epoch": ITEMS,
        "out_of_memory_errors_first_epoch": [run["first"]["out_of_memory"] for run in short],
        "out_of_memory_errors_allowed": [run["first"]["out_of_memory_bound"] for run in short],
        "out_of_memory_errors_later_epochs": sum(
            run[name]["out_of_memory"] for run in found["matrix"] for name in ("second", "restarted") if name in run
        ),
        "largest_gradient_difference": max((epoch["largest_difference"] for epoch in epochs), default=None),
        "bit_identical_epochs": sum(epoch["bit_identical"] for epoch in epochs),
        "injected_batches": len(seeds),
        "injected_batches_by_ranks": dict(sorted(Counter(size for size, _ in seeds).items())),
        "errors_raised": sum(run["raised"] for run in runs),
        "batches_that_went_on": len(went_on),
        "ends": dict(Counter(run["outcome"] for run in runs).most_common()),
        "waves_that_ran_out_of_memory": sum(run["out_of_memory"] for run in runs),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=None, help="default: 1, and one a GPU; 1, 2, 4 on a CPU"
    )
    parser.add_argument("--injections", type=int, default=200, help="batches with injected errors, over all --ranks")
    parser.add_argument("--no-matrix", action="store_true")
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    kind = arguments.device
    sizes = arguments.ranks or ([1, 2, 4] if kind == "cpu" else sorted({1, torch.cuda.device_count()}))
    folder = arguments.out.parent / (arguments.out.stem + "-ranks")
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.iterdir():
        stale.unlink()
    started = time.monotonic()
    for at, size in enumerate(sizes):
        seeds = [arguments.first_seed + seed for seed in range(arguments.injections) if seed % len(sizes) == at]
        for part_seeds in (seeds, []) if not arguments.no_matrix else (seeds,):  # the second time: restarted
            arguments_of_rank = (size, _free_port(), kind, str(folder), part_seeds, not arguments.no_matrix)
            spawn(main_rank, args=(*arguments_of_rank, GROUP_TIMEOUT_S), nprocs=size, join=True)
    found = read_lines(folder, sizes)
    problems = problems_of(found)
    log = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0) if kind == "cuda" else "cpu (simulated devices, gloo)",
        "seconds": round(time.monotonic() - started),
        "problems": problems,
        "summary": summary_of(found),
        "runs": found,
    }
    arguments.out.write_text(json.dumps(log, indent=1) + "\n")
    print(json.dumps({key: log[key] for key in ("device", "seconds", "problems", "summary")}, indent=1))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
