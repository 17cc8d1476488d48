"""200 training steps in micro-batches on a device that holds a third of what a whole batch needs.

    python -m benchmarks.any_trainer.run_sft --shape packed --out spec/evidence/any-trainer/packed.json

Supervised fine-tuning of a tiny Hugging Face decoder on a CPU that really runs out (`LimitedCounter`): materialised
logits, AdamW, 64 sequences a step, lengths from `spec/evidence/any-trainer/lengths.txt`. Its size is a third of the
live bytes that the unsplit batch takes at its peak when it is packed, of the steps' batches the one of median rows. One
padded tensor [64, longest] would take several times as much, and a third of that would hold most batches sorted by
length. Padded batches run sorted by length, packed ones as they come.

Reported: out-of-memory errors; use of the device (live bytes at a wave's peak, weights and optimizer in, over its size)
from wave 11 on, over all waves and over those that left items behind (a batch's last wave is as small as what is left);
and at every twentieth step the gradients beside those of the unsplit batch at the same weights.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adapters.micro_batches import MicroBatches
from adapters.torch_memory import PeakMeter, meter_for
from adapters.torch_memory.testing import LimitedCounter
from benchmarks.any_trainer.sft import LOSSES, lengths, llama, packed_loss, sequences

SETTLED_WAVES = 10
VOCABULARY = 96
MODEL = {"hidden": 32, "layers": 2, "vocabulary": VOCABULARY}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=LOSSES, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--compare-every", type=int, default=20)
    parser.add_argument("--law", default="frontier")
    parser.add_argument("--safety", default="51/50")
    parser.add_argument("--shorten", type=int, default=1, help="lengths are divided by it: the short form of the tests")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    figures = run(chosen)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(figures).replace('{"step"', '\n{"step"') + "\n")
    print(json.dumps({name: value for name, value in figures.items() if name != "waves"}, indent=1))
    return figures


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """The whole run; its figures."""
    sizes = [max(4, size // chosen.shorten) for size in lengths()[: chosen.steps * chosen.batch]]
    batches = [sizes[at : at + chosen.batch] for at in range(0, len(sizes), chosen.batch)]
    if chosen.shape == "padded":
        batches = [sorted(own) for own in batches]
    needed_bytes = unsplit_bytes(batches)
    waves: list[dict[str, Any]] = []
    apart: list[float] = []
    started = time.monotonic()
    counter = LimitedCounter(needed_bytes // 3)
    errors = 0
    with PeakMeter(counter) as meter:
        model = llama(**MODEL)
        counter.track(model.parameters())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        ours = MicroBatches(model, meter=meter, memory_bytes=counter.limit_bytes, law=chosen.law, safety=chosen.safety)
        for step, own in enumerate(batches):
            items = sequences(own, VOCABULARY, seed=step)
            tokens = sum(own)
            before = copy.deepcopy(model.state_dict()) if step % chosen.compare_every == 0 else None
            optimizer.zero_grad()
            try:
                for micro in ours.split(items, padded=chosen.shape == "padded"):
                    with micro:
                        (LOSSES[chosen.shape](model, micro.items) / tokens).backward()
                    waves.append(line(micro, step, len(items), counter.limit_bytes))
            except torch.OutOfMemoryError:
                errors += 1
                raise
            if before is not None:
                apart.append(difference(before, items, tokens, chosen.shape, model))
            optimizer.step()
    later = waves[SETTLED_WAVES:]
    full = [wave for wave in later if wave["items_left"]]
    return {
        "shape": chosen.shape,
        "law": chosen.law,
        "safety": chosen.safety,
        "steps": len(batches),
        "sequences_a_step": chosen.batch,
        "rows_a_step": statistics.mean(sum(own) for own in batches),
        "needed_bytes": needed_bytes,
        "device_bytes": counter.limit_bytes,
        "waves_run": len(waves),
        "out_of_memory": counter.raised + errors,
        "mean_use_percent": mean_percent(wave["use"] for wave in later),
        "mean_use_of_full_waves_percent": mean_percent(wave["use"] for wave in full),
        "under_priced": sum(wave["observed_bytes"] > wave["predicted_bytes"] for wave in later),
        "compared_steps": len(apart),
        "largest_gradient_difference": max(apart),
        "seconds": round(time.monotonic() - started, 1),
        "waves": waves,
    }


def mean_percent(shares: Any) -> float | None:
    known = list(shares)
    return round(100 * statistics.mean(known), 2) if known else None


def line(micro: Any, step: int, items: int, limit_bytes: int) -> dict[str, Any]:
    """One wave."""
    stats = micro.stats
    assert stats.closing is not None and stats.observed_bytes is not None
    return {
        "step": step,
        "items": len(micro.items),
        "items_left": items - micro.indices.stop,
        "rows": micro.rows,
        "predicted_bytes": stats.predicted_bytes,
        "observed_bytes": stats.observed_bytes,
        "use": round(stats.closing.peak_bytes / limit_bytes, 4),
    }


def unsplit_bytes(batches: Sequence[Sequence[int]]) -> int:
    """Live bytes at the peak of the unsplit batch of median rows, packed: weights, gradients, optimizer and all."""
    own = sorted(batches, key=sum)[len(batches) // 2]
    items = sequences(own, VOCABULARY, seed=0)
    with meter_for("cpu") as meter:
        model = llama(**MODEL)
        meter.counter.track(model.parameters())  # type: ignore[attr-defined]
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
        for part in (items[:1], items):  # the states are there after the first step
            packed_loss(model, part).backward()
            optimizer.step()
            optimizer.zero_grad()
        return meter.counter.peaks()[0]


def difference(before: dict[str, Tensor], items: Any, tokens: int, shape: str, ours: Any) -> float:
    """The largest difference of any gradient from the unsplit batch's at the same weights, by its largest entry.

    In a model of its own and never on the device: it would not fit.
    """
    with torch.utils._python_dispatch._disable_current_modes():
        model = llama(**MODEL)
        model.load_state_dict(before)
        (LOSSES[shape](model, items) / tokens).backward()
        gradients = dict(model.named_parameters())
        return max(
            float((value.grad - gradients[name].grad).abs().max() / gradients[name].grad.abs().max())
            for name, value in ours.named_parameters()
        )


if __name__ == "__main__":
    main()
