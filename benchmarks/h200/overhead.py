"""Overhead of planning, admission and metering: the same waves with and without, interleaved.

    python -m benchmarks.h200.overhead --out overhead.jsonl

Without: the layout of the wave is made and run (forward, loss, backward), nothing else. With: the same items go through
`TrainerRank.forward_micro_batches`. Both build the prefix tree. Medians over pairs of runs in alternating order. A
third run of each pair is the one without, after the allocator's cache was given back to the driver: what a release
costs.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from adapters.trainer_rank import Request, TrainerRank
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.group_rows import group_rows
from adapters.trainer_rank.request import output_bytes
from benchmarks.h200.families import FAMILIES, build
from benchmarks.h200.waves import Lines, common_arguments, policy_gradient, prepared
from pricing.planner.layout import layout_of
from pricing.planner.plan import Batch, PlanRequest


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    parser.add_argument("--family", default="dense", choices=[*FAMILIES])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=3)
    arguments = parser.parse_args()
    device = prepared(arguments)
    lines = Lines(arguments.out, arguments.seconds)
    model = build(arguments.family, device, small=arguments.small)
    rank = TrainerRank(model, memory_bytes=1 << 30 if device.type == "cpu" else None)
    requests = a_wave(np.random.default_rng(arguments.seed), small=arguments.small)

    def bare() -> None:
        facts = model.model_facts()
        batch = Batch(
            [
                [
                    PlanRequest(
                        tokens=request.token_row(),
                        spec=request.spec(facts.vocabulary),
                        output_bytes=output_bytes(request.spec(facts.vocabulary), facts),
                    )
                    for request in requests
                ]
            ]
        )
        for group in group_rows(layout_of(batch, range(len(requests))), batch, device):
            outputs = packed_forward(model, group.rows, [requests[index] for index in group.requests], grads=True)
            policy_gradient(outputs).backward()

    def released() -> None:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        bare()

    def metered() -> None:
        for wave in rank.forward_micro_batches([requests]):
            policy_gradient(wave.outputs).backward()

    pairs: list[tuple[float, float]] = []
    releases: list[float] = []
    for index in range(arguments.warm_up + arguments.pairs):
        if lines.is_over:
            break
        order = (bare, metered, released) if index % 2 else (metered, bare, released)
        seconds = {run: timed(run, device) for run in order}
        model.zero_grad(set_to_none=True)
        line = {
            "pair": index,
            "bare_seconds": seconds[bare],
            "metered_seconds": seconds[metered],
            "released_seconds": seconds[released],
        }
        lines.write(line | {"family": arguments.family, "warm_up": index < arguments.warm_up})
        if index >= arguments.warm_up:
            pairs.append((seconds[bare], seconds[metered]))
            releases.append(seconds[released] - seconds[bare])
    if not pairs:
        print("not reached", flush=True)
        return
    without = statistics.median(bare_seconds for bare_seconds, _ in pairs)
    difference = statistics.median(metered_seconds - bare_seconds for bare_seconds, metered_seconds in pairs)
    rows = sum(len(request.tokens) for request in requests)
    print(
        f"{arguments.family}: {len(requests)} requests of {rows} logical rows; a wave without {without * 1e3:.1f} ms, "
        f"metered and admitted {difference * 1e3:+.2f} ms ({difference / without:+.2%}), over {len(pairs)} pairs; "
        f"after a release of the cache {statistics.median(releases) * 1e3:+.2f} ms",
        flush=True,
    )


def a_wave(generator: np.random.Generator, *, small: bool) -> list[Request]:
    """Eight prompts of 1,024 rows with 8 rollouts of 128 to 256 each: about 20,000 packed rows."""
    unit = 16 if small else 1
    requests = []
    for _ in range(8):
        prompt = generator.integers(0, 200, 1024 // unit)
        for _ in range(8):
            row = np.concatenate([prompt, generator.integers(0, 200, int(generator.integers(128, 256)) // unit)])
            requests.append(Request(tokens=row, targets=np.roll(row, -1)))
    return requests


def timed(run: object, device: torch.device) -> float:
    synchronize(device)
    started = time.perf_counter()
    assert callable(run)
    run()
    synchronize(device)
    return time.perf_counter() - started


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
