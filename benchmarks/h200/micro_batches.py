"""Soak of a loop without shared prefixes: padded or packed waves of a Hugging Face decoder under a memory cap.

    python -m benchmarks.h200.micro_batches --shape packed --gib 16 --waves 100 --out packed.jsonl

Fine-tuning as in `benchmarks.any_trainer`: the model's own forward, logits of all rows at once, AdamW on every
parameter, lengths of 64 to 4,096. A queue of sequences is kept longer than any wave can take, so that the budget alone
ends each wave; padded waves take it in stretches sorted by length. The process is capped, so that a price that is too
low ends in an out-of-memory error and one that is too high in small waves. Packed rows attend through torch's
variable-length attention on a GPU.

Reported at the end: waves, out-of-memory errors, under-priced waves, and from wave 11 on the use of the cap (allocated
and, on a GPU, reserved at the peak).
"""

from __future__ import annotations

import random
import statistics
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from adapters.micro_batches import Micro, MicroBatches
from benchmarks.any_trainer.sft import LOSSES, Sequence_, lengths, llama
from benchmarks.h200.soak import SETTLED_WAVES, allocator_facts
from benchmarks.h200.waves import Lines, common_arguments, prepared
from pricing import LAWS
from pricing.kernel.quantities import GIB

QUEUE = 512
"""Sequences in a full queue, 264,000 rows: several waves."""

LEAST = 192
"""The queue is filled again when a wave left it shorter than this."""

FULL_GIB = 16
"""The cap that `QUEUE` and `LEAST` are for; both grow with a larger one."""


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=LOSSES, required=True)
    parser.add_argument("--gib", type=float, default=16.0, help="memory cap of this process; 0: none")
    parser.add_argument("--waves", type=int, default=100)
    parser.add_argument("--law", default="frontier", choices=[*LAWS])
    parser.add_argument("--safety", default="51/50")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--no-recompute", action="store_true", help="keep every activation")
    arguments = parser.parse_args()
    lines = Lines(arguments.out, arguments.seconds)
    device = prepared(arguments)
    cap_bytes = int(arguments.gib * GIB)
    if device.type == "cuda":
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        cap_bytes = min(cap_bytes, total_bytes) or total_bytes
        if cap_bytes < total_bytes:
            torch.cuda.set_per_process_memory_fraction(cap_bytes / total_bytes, device)
    arguments.longer = max(1.0, cap_bytes / GIB / FULL_GIB)
    model = model_of(arguments, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batches = MicroBatches(
        model,
        memory_bytes=cap_bytes if arguments.gib or device.type == "cpu" else None,
        profiles=arguments.out.with_suffix(".profiles.json"),
        law=arguments.law,
        safety=arguments.safety,
        device=device,
    )
    written: list[dict[str, Any]] = []
    for line in soak(batches, model, optimizer, arguments, device):
        lines.write(line | {"shape": arguments.shape, "law": arguments.law, "gib": cap_bytes / GIB})
        written.append(line)
        if sum(each["event"] == "wave" for each in written) >= arguments.waves or lines.is_over:
            break
    report(written, cap_bytes)


def model_of(arguments: Namespace, device: torch.device) -> Any:
    small = arguments.small
    model = llama(
        hidden=32 if small else arguments.hidden,
        layers=2 if small else arguments.layers,
        heads=4 if small else arguments.hidden // 128,
        vocabulary=96 if small else arguments.vocabulary,
        dtype=torch.float32 if small else torch.bfloat16,
    ).to(device)
    if not arguments.no_recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def soak(
    batches: MicroBatches, model: Any, optimizer: torch.optim.Optimizer, arguments: Namespace, device: torch.device
) -> Iterator[dict[str, Any]]:
    """A line for every wave and every out-of-memory error; an optimizer step at each refill. Never ends."""
    scale = 16 if arguments.small else 1 / arguments.longer
    draw = random.Random(arguments.seed)
    sizes, vocabulary = lengths(), 96 if arguments.small else arguments.vocabulary
    is_padded = arguments.shape == "padded"
    queue: list[Sequence_] = []
    while True:
        while len(queue) < QUEUE / scale:
            queue.append(draw.choices(range(vocabulary), k=max(4, draw.choice(sizes) // max(1, int(scale)))))
        if is_padded:
            queue.sort(key=len, reverse=draw.random() < 0.5)  # by turns long waves and short ones come last
        taken = 0
        started = time.monotonic()
        try:
            for micro in batches.split(queue, padded=is_padded):
                with micro:
                    (LOSSES[arguments.shape](model, micro.items, device) / 10_000).backward()
                taken = micro.indices.stop
                yield wave_line(micro, len(queue) - taken, time.monotonic() - started)
                if len(queue) - taken < LEAST / scale:
                    break
                started = time.monotonic()
        except torch.OutOfMemoryError as error:
            taken += 1
            yield {"event": "out_of_memory", "why": str(error)[:1000]} | allocator_facts()
        del queue[:taken]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def wave_line(micro: Micro[Sequence_], items_left: int, seconds: float) -> dict[str, Any]:
    stats = micro.stats
    assert stats.closing is not None
    return {
        "event": "wave",
        "items": len(micro.items),
        "packed_rows": micro.rows,
        "logical_rows": stats.plan.wave.logical_rows,
        "verdict": str(stats.plan.verdict),
        "binding_term": stats.binding_term,
        "quantity": str(stats.plan.price.quantity),
        "predicted_bytes": stats.predicted_bytes,
        "observed_bytes": stats.observed_bytes,
        "footprint_bytes": stats.closing.footprint_bytes,
        "available_bytes": stats.plan.available_bytes,
        "peak_bytes": stats.closing.peak_bytes,
        "complete": stats.is_complete,
        "items_left": items_left,
        "seconds": round(seconds, 3),
    } | allocator_facts()


def report(lines: Sequence[dict[str, Any]], cap_bytes: int) -> None:
    """The figures at the end."""
    waves = [line for line in lines if line["event"] == "wave"]
    failures = len(lines) - len(waves)
    under = sum((wave["observed_bytes"] or 0) > wave["predicted_bytes"] for wave in waves if wave["complete"])
    print(f"waves {len(waves)}, out of memory {failures}, under-priced {under} (the cold start among them)")
    later = waves[SETTLED_WAVES:]
    for name in ("peak_bytes", "reserved_peak_bytes"):
        uses = [wave[name] / cap_bytes for wave in later if wave.get(name)]
        if uses:
            print(f"from wave {SETTLED_WAVES + 1} on, {name} over the cap: mean {statistics.mean(uses):.1%}")
    if later:
        rows = statistics.mean(wave["packed_rows"] for wave in later)
        print(f"rows a wave {rows:,.0f}, seconds a wave {statistics.mean(wave['seconds'] for wave in later):.2f}")


if __name__ == "__main__":
    main()
