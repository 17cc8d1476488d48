"""Shared by the GPU benchmarks: wave shapes, callers, and one measured wave as a line of an evidence trace.

A wave's line has the fields that `evidence.trace` reads: rows, logical rows, segments, output bytes, the shortest
request, and the peak, forward peak and retained bytes above the wave's baseline. A two-level tree stands for what a
planner would pack: prompts, each with the branches that continue it.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adapters.torch_memory.counter import AcceleratorCounter, MemoryCounter
from adapters.torch_memory.cpu_counter import StorageCounter
from adapters.trainer_rank.decoder import Decoder
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.request import Request, RequestOutputs, output_bytes
from adapters.trainer_rank.rows import PackedRows, branched_rows

Caller = Callable[[Sequence[RequestOutputs]], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveShape:
    """A wave by its lengths: (prompt rows, branch rows) of each family; one without branches is one request."""

    label: str
    families: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def packed_rows(self) -> int:
        return sum(prompt + sum(branches) for prompt, branches in self.families)

    def rows(self, vocabulary: int, generator: np.random.Generator, device: torch.device) -> PackedRows:
        """Random tokens in this shape."""
        return branched_rows(
            [
                (
                    generator.integers(0, vocabulary, prompt),
                    [generator.integers(0, vocabulary, size) for size in branches],
                )
                for prompt, branches in self.families
            ],
            device,
        )


def single(rows: int, label: str | None = None) -> WaveShape:
    """One request that shares nothing."""
    return WaveShape(label=label or f"single-{rows}", families=((rows, ()),))


def controlled(packed_rows: int, suffix_rows: int, sharing: int) -> WaveShape:
    """About `sharing` logical rows a packed row at `packed_rows`: one prompt, as many suffixes as come nearest.

    Sharing 1 is four equal requests.
    """
    label = f"controlled-{sharing}"
    if sharing == 1:
        return WaveShape(label=label, families=tuple((packed_rows // 4, ()) for _ in range(4)))
    most = packed_rows // suffix_rows
    logical_rows = {count: count * (packed_rows - (count - 1) * suffix_rows) for count in range(2, most)}
    best = min(logical_rows, key=lambda count: abs(logical_rows[count] - sharing * packed_rows))
    prompt_rows = packed_rows - best * suffix_rows
    return WaveShape(label=label, families=((prompt_rows, (suffix_rows,) * best),))


def branches(prompt_rows: int, count: int, branch_rows: int) -> WaveShape:
    """Many short branches on one prompt."""
    return WaveShape(label=f"branches-{count}", families=((prompt_rows, (branch_rows,) * count),))


def rollouts(draw: random.Random, packed_rows: int, *, per_prompt: int = 8) -> WaveShape:
    """Prompts of 256 to 2,048 rows with `per_prompt` completions of 64 to 1,024 each, up to `packed_rows`."""
    families: list[tuple[int, tuple[int, ...]]] = []
    left = packed_rows
    while left > 0:
        scale = min(1.0, packed_rows / 8192)
        prompt = max(64, int(draw.randint(256, 2048) * scale))
        completions = tuple(max(16, int(draw.randint(64, 1024) * scale)) for _ in range(per_prompt))
        families.append((prompt, completions))
        left -= prompt + sum(completions)
    return WaveShape(label="grpo", families=tuple(families))


def policy_gradient(outputs: Sequence[RequestOutputs]) -> Tensor:
    """A CISPO-like loss: clipped, detached importance weights times advantage times log-probability, per request."""
    losses = []
    for index, output in enumerate(outputs):
        log_probs = output.target_log_probs
        assert log_probs is not None
        weights = (log_probs.detach() * 0.01).exp().clamp(max=2.0)
        losses.append(-(weights * (1.0 if index % 2 else -1.0) * log_probs).sum())
    return torch.stack(losses).sum() / len(losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingCaller:
    """A loss that keeps `saved_bytes` per request alive into backward, whatever the request's length."""

    saved_bytes: int

    def __call__(self, outputs: Sequence[RequestOutputs]) -> Tensor:
        losses = []
        for output in outputs:
            log_probs = output.target_log_probs
            assert log_probs is not None
            weights = torch.ones(self.saved_bytes // 4, dtype=torch.float32, device=log_probs.device)
            losses.append((log_probs.sum() * weights).mean())  # the product's backward needs `weights`
        return torch.stack(losses).sum()


class WaveRunner:
    """Runs measured waves on one model. Owns the device's peak counter for as long as it is entered."""

    def __init__(self, model: Decoder, device: torch.device, *, family: str) -> None:
        self.model = model
        self.device = device
        self.family = family
        self.counter: MemoryCounter = AcceleratorCounter(device) if device.type == "cuda" else StorageCounter()
        self.generator = np.random.default_rng(0)
        self.waves = 0

    def __enter__(self) -> WaveRunner:
        self.counter.claim(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.counter.release(self)

    def run(
        self,
        shape: WaveShape,
        caller: Caller = policy_gradient,
        *,
        release_cache: bool = False,
        asked: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One wave, forward to backward; its trace line. The adapters' gradients are dropped afterwards.

        asked: what every request asks for beside its labels.

        `release_cache` gives the allocator's idle segments back first, so that the reserved peak is this wave's own.
        """
        rows = shape.rows(self.model.config.vocabulary, self.generator, self.device)
        requests = [
            Request(tokens=rows.token_ids[own], targets=np.roll(rows.token_ids[own], -1), **(asked or {}))
            for own in rows.request_positions
        ]
        facts = self.model.model_facts()
        counter = self.counter
        counter.synchronize()
        if release_cache and self.device.type == "cuda":
            torch.cuda.empty_cache()
        before = self._allocator()
        baseline = counter.allocated()
        counter.reset(self)
        started = time.monotonic()
        outputs = packed_forward(self.model, rows, requests, grads=True)
        counter.synchronize()
        forward_peak, retained = counter.peaks()[0], counter.allocated()
        caller(outputs).backward()
        counter.synchronize()
        peak = counter.peaks()[0]
        seconds = time.monotonic() - started
        del outputs
        self.model.zero_grad(set_to_none=True)
        line = {
            "wave": self.waves,
            "family": self.family,
            "layers": self.model.config.layers,
            "label": shape.label,
            "kind": "whole_wave",
            "packed_rows": rows.packed_rows,
            "logical_rows": rows.logical_rows,
            "grad_segments": rows.segment_count,
            "requests": len(requests),
            "shortest_request": min(len(own) for own in rows.request_positions),
            "output_bytes": sum(output_bytes(request.spec(facts.vocabulary), facts) for request in requests),
            "segment_state_bytes": facts.segment_state_bytes,
            "forward_peak_bytes": forward_peak - baseline,
            "retained_bytes": retained - baseline,
            "peak_bytes": peak - baseline,
            "seconds": round(seconds, 3),
            "baseline_bytes": baseline,
        }
        if before:
            after = self._allocator()
            line |= {
                "reserved_baseline_bytes": before["reserved_bytes.all.current"],
                "reserved_peak_bytes": after["reserved_bytes.all.peak"],
                "inactive_split_baseline_bytes": before["inactive_split_bytes.all.current"],
                "inactive_split_peak_bytes": after["inactive_split_bytes.all.peak"],
                "allocator_retries": after["num_alloc_retries"] - before["num_alloc_retries"],
                "cache_released": release_cache,
            }
        self.waves += 1
        return line

    def _allocator(self) -> dict[str, int]:
        """The caching allocator's own figures; empty on a CPU."""
        return dict(torch.cuda.memory_stats(self.device)) if self.device.type == "cuda" else {}


@dataclass(slots=True)
class Lines:
    """A JSON-lines file, flushed line by line, and a clock that says when to stop."""

    path: Path
    seconds: float
    started: float = field(default_factory=time.monotonic)

    def write(self, line: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self.started > self.seconds


def common_arguments(description: str) -> argparse.ArgumentParser:
    """The options all GPU benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True, help="JSON-lines file, appended to and flushed line by line")
    parser.add_argument("--seconds", type=float, default=600.0, help="stop starting new waves after this long")
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def prepared(arguments: argparse.Namespace) -> torch.device:
    """Seeds set and the device as named, with its index."""
    torch.manual_seed(arguments.seed)
    device = torch.device(arguments.device)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    return device


def shuffled_repeats(shapes: Sequence[WaveShape], repeats: int, draw: random.Random) -> Iterator[WaveShape]:
    """Each shape `repeats` times, every round in an order of its own."""
    for _ in range(repeats):
        order = list(shapes)
        draw.shuffle(order)
        yield from order
