"""Soak: hundreds of random GRPO waves under a memory cap, planned by the price alone.

    python -m benchmarks.h200.soak --gib 8 --waves 300 --law warm --out soak-warm.jsonl

The process is capped (the allocator refuses more), so that a price that is too low ends in an out-of-memory error, and
a price that is too high in small waves. A queue of groups (a prompt and its rollouts, sizes log-uniform, one item a
group) is kept longer than any wave can take, so that the budget alone ends each wave. Lines are flushed one by one,
profiles are saved, and a second call goes on where the first ended (same --out).

Families are those of `benchmarks.h200.families`, with few narrow layers so that waves are quick, and `hf_moe`: a
Hugging Face Qwen3-MoE decoder under full fine-tuning with AdamW (gradients, states made at the first step). Expandable
segments are torch's own setting (`--expandable`). `--gib 0` sets no cap: the whole device.

Reported at the end: waves, out-of-memory errors, refusals, rows a wave, mean use of the cap (allocated and reserved),
and the share of an oracle: rows of each wave that had more items to take, over the rows that would just have fitted
the same budget by an affine fit of this run's own peaks (or footprints, where the allocator tells them) that covers all
of them.
"""

from __future__ import annotations

import json
import random
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from adapters.trainer_rank import MicroBatch, Request, TrainerRank, WaveRefusedError
from benchmarks.h200.families import FAMILIES, Family, build
from benchmarks.h200.waves import Lines, common_arguments, policy_gradient, prepared
from pricing import DEFAULT_LAW, LAWS, Safety
from pricing.kernel.quantities import GIB

HUGGING_FACE = "hf_moe"

QUEUE = 320
"""Groups in a full queue: several waves at 8 GiB."""

SETTLED_WAVES = 10

LEAST = 120
"""The queue is filled again when a wave left it shorter than this."""

FULL_GIB = 8
"""The cap that `QUEUE` and `LEAST` are for at hidden 1,024; `longer` says how they grow."""


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=8.0, help="memory cap of this process; 0: none")
    parser.add_argument("--waves", type=int, default=300)
    parser.add_argument("--law", default=DEFAULT_LAW.name, choices=[*LAWS])
    parser.add_argument("--safety", default="11/10")
    parser.add_argument("--family", default="dense", choices=[*FAMILIES, HUGGING_FACE])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--expandable", action="store_true", help="the allocator's expandable segments")
    arguments = parser.parse_args()
    lines = Lines(arguments.out, arguments.seconds)
    device = prepared(arguments)
    cap_bytes = int(arguments.gib * GIB)
    if device.type == "cuda":
        if arguments.expandable:
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        cap_bytes = min(cap_bytes, total_bytes) or total_bytes
        if cap_bytes < total_bytes:
            torch.cuda.set_per_process_memory_fraction(cap_bytes / total_bytes, device)
    arguments.longer = longer(cap_bytes, arguments.hidden)
    model = model_of(arguments, device)
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=1e-5)
    rank = TrainerRank(
        model,
        memory_bytes=cap_bytes if arguments.gib or device.type == "cpu" else None,
        profiles=arguments.out.with_suffix(".profiles.json"),
        law=LAWS[arguments.law],
        safety=Safety.parse(arguments.safety),
        cold_transient_bytes=0 if arguments.small else 64 << 20,
        forecast=False,
    )
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    soak = Soak(rank, optimizer, arguments, first_group=max((line["next_group"] for line in done), default=0))
    waves = sum(line["event"] == "wave" for line in done)
    settings = {
        "law": arguments.law,
        "gib": cap_bytes / GIB,
        "safety": arguments.safety,
        "family": arguments.family,
        "expandable": arguments.expandable,
    }
    for line in soak.lines():
        lines.write(line | settings)
        waves += line["event"] == "wave"
        if waves >= arguments.waves or lines.is_over:
            break
    report([json.loads(line) for line in arguments.out.read_text().splitlines()], cap_bytes)


def longer(cap_bytes: int, hidden: int) -> float:
    """How many times the queue for `FULL_GIB` and hidden 1,024, which holds two waves and more, suits this cap."""
    return max(1.0, cap_bytes / GIB / FULL_GIB * 1024 / hidden / 2)


def model_of(arguments: Namespace, device: torch.device) -> nn.Module:
    if arguments.family == HUGGING_FACE:
        return hugging_face_moe(device, arguments)
    return build(arguments.family, device, small=arguments.small, change=partial(_medium, arguments))


def hugging_face_moe(device: torch.device, arguments: Namespace) -> nn.Module:
    """Qwen3-MoE from its configuration, random weights, every parameter trained, one-layer recompute."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    small = arguments.small
    config = Qwen3MoeConfig(
        vocab_size=211 if small else 16_000,
        hidden_size=32 if small else arguments.hidden,
        intermediate_size=48 if small else 3 * arguments.hidden,
        moe_intermediate_size=16 if small else 512,
        num_experts=4 if small else 32,
        num_experts_per_tok=2 if small else 4,
        num_hidden_layers=2 if small else arguments.layers,
        num_attention_heads=4 if small else arguments.hidden // 128,
        num_key_value_heads=2 if small else max(1, arguments.hidden // 256),
        head_dim=8 if small else 128,  # type: ignore[call-arg]
        max_position_embeddings=1 << 17,
    )
    with device:
        model: nn.Module = Qwen3MoeForCausalLM(config).to(
            torch.float32 if small else torch.bfloat16  # type: ignore[arg-type]
        )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # type: ignore[operator]
    return model.train()


class Soak:
    """The endless run: group `number` is the same in every run of the same seed."""

    def __init__(
        self, rank: TrainerRank, optimizer: torch.optim.Optimizer, arguments: Namespace, *, first_group: int
    ) -> None:
        self._rank = rank
        self._optimizer = optimizer
        self._seed = arguments.seed
        self._small = arguments.small
        self._longer = arguments.longer
        self._next_group = first_group
        self._queue: list[list[Request]] = []

    def lines(self) -> Iterator[dict[str, Any]]:
        """A line for every wave, refusal and out-of-memory error; an optimizer step at each refill."""
        scale = 16 if self._small else 1 / self._longer
        while True:
            while len(self._queue) < QUEUE / scale:
                number = self._next_group + len(self._queue)
                self._queue.append(group(random.Random(f"{self._seed}/{number}"), small=self._small))
            yield from self._until_short(LEAST / scale)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)

    def _until_short(self, least: float) -> Iterator[dict[str, Any]]:
        taken = 0
        started = time.monotonic()
        try:
            for wave in self._rank.forward_micro_batches(self._queue):
                with wave:
                    policy_gradient(wave.outputs).backward()
                taken = wave.items.stop
                yield self._numbered(wave_line(wave, len(self._queue) - taken, time.monotonic() - started), taken)
                if len(self._queue) - taken < least:
                    break
                started = time.monotonic()
        except WaveRefusedError as error:
            taken = error.plan.start + 1
            facts = {"event": "refused", "packed_rows": error.plan.wave.packed_rows, "why": str(error)}
            yield self._numbered(facts, taken)
        except torch.OutOfMemoryError as error:
            taken += 1
            yield self._numbered({"event": "out_of_memory", "why": str(error)[:1000]}, taken)
        self._next_group += taken
        del self._queue[:taken]

    def _numbered(self, line: dict[str, Any], taken: int) -> dict[str, Any]:
        return line | {"next_group": self._next_group + taken}


def group(draw: random.Random, *, small: bool) -> list[Request]:
    """A prompt of 64 to 2,048 rows and 2 to 12 rollouts that start with it, of 64 to 1,024 rows each."""
    unit = 8 if small else 1
    generator = np.random.default_rng(draw.getrandbits(32))
    prompt = generator.integers(0, 200, int(2 ** draw.uniform(6, 11)) // unit)
    longest = draw.uniform(7, 10)
    rows = [
        np.concatenate([prompt, generator.integers(0, 200, int(2 ** draw.uniform(6, longest)) // unit)])
        for _ in range(draw.randint(2, 12))
    ]
    return [Request(tokens=row, targets=np.roll(row, -1)) for row in rows]


def wave_line(wave: MicroBatch, items_left: int, seconds: float) -> dict[str, Any]:
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
        "quantity": str(stats.plan.price.quantity),
        "footprint_bytes": None if stats.closing is None else stats.closing.footprint_bytes,
        "complete": stats.is_complete,
        "items_left": items_left,
        "seconds": round(seconds, 3),
    } | allocator_facts()


def allocator_facts() -> dict[str, int]:
    """The caching allocator's figures of the wave that just ended (its meter reset the peaks at its start)."""
    if not torch.cuda.is_available():
        return {}
    stats = torch.cuda.memory_stats()
    return {
        "reserved_peak_bytes": stats["reserved_bytes.all.peak"],
        "allocator_retries": stats["num_alloc_retries"],
        "device_failures": stats["num_ooms"],
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
    later = seen[SETTLED_WAVES:]
    if later:
        used = np.mean([(wave["baseline_bytes"] + wave["observed_bytes"]) / cap_bytes for wave in later])
        rows_later = np.mean([wave["packed_rows"] for wave in later])
        seconds = np.mean([wave["seconds"] for wave in later])
        print(
            f"from wave {SETTLED_WAVES + 1} on: use of the cap {used:.1%}, rows a wave {rows_later:.0f}, share of the "
            f"oracle's rows {oracle_share(seen, later):.1%}, seconds a wave {seconds:.2f}"
        )


def oracle_share(seen: list[dict[str, Any]], full: list[dict[str, Any]]) -> float:
    """Rows of the waves `full`, over the rows that just fit by peak = a + b P + d L, fitted to `seen` from above.

    Peaks are footprints where the line has one. The oracle needs no safety factor: it knows every peak. A law at 11/10
    cannot reach more than 10/11.
    """
    facts = np.array([[1.0, wave["packed_rows"], wave["logical_rows"]] for wave in seen])
    peaks = np.array([float(wave.get("footprint_bytes") or wave["observed_bytes"]) for wave in seen])
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


def _medium(arguments: Namespace, family: Family) -> Family:
    """A model that leaves most of an 8 GiB cap to waves, and is quick."""
    hidden = arguments.hidden
    config = replace(
        family.config,
        vocabulary=16_000,
        hidden=hidden,
        layers=arguments.layers,
        heads=hidden // 128,
        kv_heads=max(1, hidden // 256),
        feed_forward=3 * hidden,
    )
    return replace(family, config=config)


if __name__ == "__main__":
    main()
