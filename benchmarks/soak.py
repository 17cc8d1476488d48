"""Soak: hundreds of random GRPO waves under a memory cap, planned by the price alone.

    python -m benchmarks.soak --gib 8 --waves 300 --law warm --out soak-warm.jsonl

The process is capped (the allocator refuses more), so that a price that is too low ends in an out-of-memory error,
and a price that is too high in small waves. Each batch is up to 48 groups: a prompt and its rollouts, sizes
log-uniform, one item a group; the planner makes the waves. Lines are flushed one by one, profiles are saved, and a
second call goes on where the first ended (same --out).

Reported at the end: waves, out-of-memory errors, refusals, rows a wave, mean use of the cap (baseline and peak over
cap), and the share of an oracle: rows of each wave that had more items to take, over the rows that would just have
fitted the same budget by an affine fit of this run's own peaks that covers all of them.
"""

from __future__ import annotations

import json
import random
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from adapters.trainer_rank import AdmittedOutOfMemoryError, MicroBatch, Request, TrainerRank, WaveRefusedError
from benchmarks.families import FAMILIES, Family, build
from benchmarks.waves import Lines, common_arguments, policy_gradient, prepared
from pricing import LAWS, Safety
from pricing.quantities import GIB

GROUPS = 48


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=8.0, help="memory cap of this process")
    parser.add_argument("--waves", type=int, default=300)
    parser.add_argument("--law", default="warm", choices=[*LAWS])
    parser.add_argument("--safety", default="11/10")
    parser.add_argument("--family", default="dense", choices=[*FAMILIES])
    arguments = parser.parse_args()
    lines = Lines(arguments.out, arguments.seconds)
    device = prepared(arguments)
    cap_bytes = int(arguments.gib * GIB)
    if device.type == "cuda":
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(cap_bytes / total_bytes, device)
    model = build(arguments.family, device, small=arguments.small, change=_medium)
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-5)
    rank = TrainerRank(
        model,
        memory_bytes=cap_bytes,
        profiles=arguments.out.with_suffix(".profiles.json"),
        law=LAWS[arguments.law],
        safety=Safety.parse(arguments.safety),
        cold_transient_bytes=0 if arguments.small else 64 << 20,
    )
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    waves = sum(line["event"] == "wave" for line in done)
    batch = max((line["batch"] for line in done), default=-1) + 1
    while waves < arguments.waves and not lines.is_over:
        for line in run_batch(rank, optimizer, batch, arguments):
            lines.write(line | {"batch": batch, "law": arguments.law, "gib": arguments.gib})
            waves += line["event"] == "wave"
            if waves >= arguments.waves or lines.is_over:
                break
        batch += 1
    report([json.loads(line) for line in arguments.out.read_text().splitlines()], cap_bytes)


def run_batch(
    rank: TrainerRank, optimizer: torch.optim.Optimizer, batch: int, arguments: Namespace
) -> Iterator[dict[str, Any]]:
    """One batch of groups through the planner; a line for every wave, refusal and out-of-memory error."""
    items = groups(random.Random(f"{arguments.seed}/{batch}"), small=arguments.small)
    while items:
        taken = 0
        started = time.monotonic()
        try:
            for wave in rank.forward_micro_batches(items):
                with wave:
                    policy_gradient(wave.outputs).backward()
                taken = wave.items.stop
                yield wave_line(rank, wave, len(items) - taken, time.monotonic() - started)
                started = time.monotonic()
            break
        except WaveRefusedError as error:
            yield {"event": "refused", "packed_rows": error.plan.wave.packed_rows, "why": str(error)}
            items = items[error.plan.start + 1 :]
        except (AdmittedOutOfMemoryError, torch.OutOfMemoryError) as error:
            yield {"event": "out_of_memory", "why": str(error)[:1000]}
            items = items[taken + 1 :]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def groups(draw: random.Random, *, small: bool) -> list[list[Request]]:
    """Random groups: a prompt of 64 to 4,096 rows, 2 to 16 rollouts of 64 to 2,048 rows that start with it."""
    unit = 8 if small else 1
    generator = np.random.default_rng(draw.getrandbits(32))
    items = []
    for _ in range(draw.randint(1, GROUPS)):
        prompt = generator.integers(0, 200, int(2 ** draw.uniform(6, 12)) // unit)
        longest = draw.uniform(7, 11)
        rollouts = [
            np.concatenate(
                [prompt, generator.integers(0, 200, max(64 // unit, int(2 ** draw.uniform(6, longest)) // unit))]
            )
            for _ in range(draw.randint(2, 16))
        ]
        items.append([Request(tokens=row, targets=np.roll(row, -1)) for row in rollouts])
    return items


def wave_line(rank: TrainerRank, wave: MicroBatch, items_left: int, seconds: float) -> dict[str, Any]:
    stats = wave.stats
    priced = stats.plan.wave
    assert stats.forward is not None
    return {
        "event": "wave",
        "packed_rows": priced.packed_rows,
        "logical_rows": priced.logical_rows,
        "grad_segments": priced.grad_segments,
        "verdict": str(stats.plan.verdict),
        "binding_term": stats.binding_term,
        "predicted_bytes": stats.predicted_bytes,
        "observed_bytes": stats.observed_bytes,
        "available_bytes": stats.plan.available_bytes,
        "baseline_bytes": stats.forward.baseline_bytes,
        "released_cache": stats.admission.released_cache,
        "complete": stats.is_complete,
        "items_left": items_left,
        "seconds": round(seconds, 3),
    }


def report(lines: list[dict[str, Any]], cap_bytes: int) -> None:
    """The table at the end, over every line of the file."""
    waves = [line for line in lines if line["event"] == "wave"]
    seen = [wave for wave in waves if wave["observed_bytes"]]
    print(f"waves {len(waves)}, out of memory {_count(lines, 'out_of_memory')}, refused {_count(lines, 'refused')}")
    if len(seen) < 4:
        return
    rows = np.array([wave["packed_rows"] for wave in seen])
    use = np.array([(wave["baseline_bytes"] + wave["observed_bytes"]) / cap_bytes for wave in seen])
    under = sum(wave["observed_bytes"] > wave["predicted_bytes"] for wave in seen)
    over = np.median([wave["predicted_bytes"] / wave["observed_bytes"] - 1 for wave in seen])
    print(
        f"rows a wave: mean {rows.mean():.0f}, most {rows.max()}; split {_verdicts(waves, 'split')}, probes "
        f"{_verdicts(waves, 'probe')}; use of the cap: mean {use.mean():.1%}, highest {use.max():.1%}; under-priced "
        f"{under}, median over-estimate {over:+.1%}; cache released before {sum(w['released_cache'] for w in waves)}"
    )
    full = [wave for wave in seen if wave["items_left"] > 0]
    if full:
        print(f"share of the oracle's rows, over {len(full)} waves with items left: {oracle_share(seen, full):.1%}")


def oracle_share(seen: list[dict[str, Any]], full: list[dict[str, Any]]) -> float:
    """Rows of the waves `full`, over the rows that just fit by peak = a + b P + d L, fitted to `seen` from above."""
    facts = np.array([[1.0, wave["packed_rows"], wave["logical_rows"]] for wave in seen])
    peaks = np.array([float(wave["observed_bytes"]) for wave in seen])
    fitted, *_ = np.linalg.lstsq(facts, peaks, rcond=None)
    fitted[0] += max(0.0, float((peaks - facts @ fitted).max()))
    best = [
        (wave["available_bytes"] - fitted[0]) / (fitted[1] + fitted[2] * wave["logical_rows"] / wave["packed_rows"])
        for wave in full
    ]
    return float(sum(wave["packed_rows"] for wave in full) / sum(best))


def _count(lines: list[dict[str, Any]], event: str) -> int:
    return sum(line["event"] == event for line in lines)


def _verdicts(waves: list[dict[str, Any]], verdict: str) -> int:
    return sum(wave["verdict"] == verdict for wave in waves)


def _medium(family: Family) -> Family:
    """A model that leaves most of an 8 GiB cap to waves, and is quick."""
    sizes = dict(vocabulary=32_000, hidden=1024, heads=8, kv_heads=4, feed_forward=3072)  # noqa: C408
    return replace(family, config=replace(family.config, **sizes))


if __name__ == "__main__":
    main()
