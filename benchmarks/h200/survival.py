"""Survival: batches that must be trained whole on a device whose prices are too low on purpose.

    python -m benchmarks.h200.survival --family moe --gib 24 --safety 51/50 --waves 150 --out survival-moe.jsonl

Footprint evidence is withheld: the counter tells the allocated peak where the allocator's reserved peak is asked for,
so a wave seems to need from the driver what it allocates, and the allocator of this process is capped: waves run out of
memory. What an error itself tells (reserved, and asked for) is not withheld. `train_batch` must take every batch to its
end: a line a wave that counted and a line for each that ran out of memory, in order of batches. The groups are those of
`benchmarks.h200.soak`.
"""

from __future__ import annotations

import random
import time
from typing import Any

import torch

from adapters.torch_memory import PeakMeter
from adapters.torch_memory.counter import AcceleratorCounter
from adapters.trainer_rank import BatchResult, MicroBatch, TrainerRank
from benchmarks.h200.families import FAMILIES
from benchmarks.h200.soak import HUGGING_FACE, group, longer, model_of
from benchmarks.h200.waves import Lines, common_arguments, policy_gradient, prepared
from pricing import LAWS
from pricing.kernel.quantities import GIB


class Blind(AcceleratorCounter):
    """Sees no fragmentation: the reserved peak of a wave is told as its allocated peak."""

    def reserved_peak(self) -> int:
        return self.peaks()[0]


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=24.0, help="memory cap of this process")
    parser.add_argument("--waves", type=int, default=150)
    parser.add_argument("--law", default="frontier", choices=[*LAWS])
    parser.add_argument("--safety", default="51/50")
    parser.add_argument("--family", default="moe", choices=[*FAMILIES, HUGGING_FACE])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--groups", type=int, default=120, help="items of a batch; more under a high cap")
    arguments = parser.parse_args()
    lines = Lines(arguments.out, arguments.seconds)
    device = prepared(arguments)
    cap_bytes = int(arguments.gib * GIB)
    if device.type == "cuda":
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total_bytes), device)
    model = model_of(arguments, device)
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-5)
    rank = TrainerRank(
        model,
        memory_bytes=cap_bytes,
        profiles=arguments.out.with_suffix(".profiles.json"),
        law=arguments.law,
        safety=arguments.safety,
        forecast=False,
        meter=PeakMeter(Blind(device)) if device.type == "cuda" else None,
    )
    groups = int(arguments.groups * longer(cap_bytes, arguments.hidden))
    waves = failures = batch = 0
    while waves < arguments.waves and not lines.is_over:
        items = [
            group(random.Random(f"{arguments.seed}/{batch}/{number}"), small=arguments.small)
            for number in range(groups // (16 if arguments.small else 1))
        ]
        started = time.monotonic()
        result = rank.train_batch(items, a_loss, on_refusal="skip")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for line in lines_of(result):
            lines.write(line | {"batch": batch, "law": arguments.law, "safety": arguments.safety, "gib": arguments.gib})
        waves += len(result.waves)
        failures += len(result.out_of_memory)
        items_run = sum(len(wave.items) for wave in result.waves)
        print(
            f"batch {batch}: {len(items)} items, {items_run} run once, {len(result.skipped)} refused, "
            f"{len(result.waves)} waves, {len(result.out_of_memory)} ran out of memory, "
            f"{time.monotonic() - started:.1f} s",
            flush=True,
        )
        assert items_run + len(result.skipped) == len(items), "every item once"
        batch += 1
    print(f"{batch} batches, {waves} waves, {failures} ran out of memory and were run again")


def a_loss(wave: MicroBatch) -> torch.Tensor:
    return policy_gradient(wave.outputs)


def lines_of(result: BatchResult) -> list[dict[str, Any]]:
    """What came of one batch, a line a wave. Peaks above the wave's baseline."""
    made: list[dict[str, Any]] = [
        {"event": "out_of_memory", "phase": str(failure.phase), "requested_bytes": failure.requested_bytes}
        for failure in result.out_of_memory
    ]
    made += [{"event": "refused", "item": skipped.item} for skipped in result.skipped]
    for wave in result.waves:
        stats = wave.stats
        made.append(
            {
                "event": "wave",
                "packed_rows": stats.plan.wave.packed_rows,
                "logical_rows": stats.plan.wave.logical_rows,
                "binding_term": stats.binding_term,
                "predicted_bytes": stats.predicted_bytes,
                "observed_bytes": stats.observed_bytes,
                "available_bytes": stats.plan.available_bytes,
                "released_cache": stats.admission.released_cache,
            }
        )
    return made


if __name__ == "__main__":
    main()
