"""A tiny policy-gradient run, planned and measured: python -m adapters.trainer_rank.demo

A small decoder with random weights, prompts with 8 rollouts each, a clipped policy-gradient loss. The first call starts
cold and learns; the second is a new `TrainerRank` on the saved profiles and starts warm. The same script runs on a GPU
(`--device cuda`), where the budget is the device's own instead of the size that the CPU stands for.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from adapters.torch_memory import meter_for
from adapters.trainer_rank import MicroBatch, Request, RequestOutputs, TrainerRank
from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from pricing import DEFAULT_LAW, LAWS
from pricing.kernel.quantities import MIB

ROLLOUTS = 8
VOCABULARY = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--law", default=DEFAULT_LAW.name, choices=[*LAWS])
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--memory-mib", type=int, default=120, help="size of the device that a CPU stands for")
    parser.add_argument("--profiles", type=Path, help="keep what is learned there (default: gone at the end)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        profiles = arguments.profiles or Path(folder) / "profiles.json"
        for number in (1, 2):
            run(number, arguments, profiles)


def run(number: int, arguments: argparse.Namespace, profiles: Path) -> None:
    """One training step over all prompts, as a new process would do it."""
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    with device:
        model = Decoder(_config(device)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    with meter_for(device) as meter:
        rank = TrainerRank(
            model,
            meter=meter,
            memory_bytes=arguments.memory_mib * MIB if device.type == "cpu" else None,
            profiles=profiles,
            law=LAWS[arguments.law],
        )
        start = "warm" if rank.profiles.started_warm else f"cold ({rank.profiles.refusal or 'nothing learned yet'})"
        print(f"\nrun {number}: starts {start}, law {arguments.law}")
        print(
            f"{'items':>9} {'packed':>7} {'logical':>8} {'sharing':>8} {'predicted':>11} {'observed':>11} "
            f"{'over':>7}  binding term"
        )
        started = time.monotonic()
        items = prompts(arguments.prompts)
        waves = []
        for wave in rank.forward_micro_batches(items):
            torch.autograd.backward(policy_loss(wave) / len(items))
            waves.append(wave)
        optimizer.step()
    for wave in waves:
        print(row(wave))
    kept = f"kept in {profiles}" if arguments.profiles else "kept for the next run of this demo only"
    print(f"{len(waves)} waves in {time.monotonic() - started:.1f} s; what they taught is {kept}")


def prompts(count: int) -> list[list[Request]]:
    """GRPO-shaped items: a prompt of 32 to 192 tokens, 8 rollouts of 32 to 96 that share it."""
    draw = random.Random(0)
    generator = np.random.default_rng(0)
    items = []
    for _ in range(count):
        prompt = generator.integers(0, VOCABULARY, draw.randint(32, 192))
        rows = [
            np.concatenate([prompt, generator.integers(0, VOCABULARY, draw.randint(32, 96))]) for _ in range(ROLLOUTS)
        ]
        items.append([Request(tokens=row, targets=next_tokens(row, len(prompt))) for row in rows])
    return items


def next_tokens(
    row: np.ndarray[tuple[int], np.dtype[np.int64]], prompt_rows: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Each token's label is the one after it; the prompt's own tokens and the last one are of no interest."""
    labels = np.roll(row, -1)
    labels[: prompt_rows - 1] = -100
    labels[-1] = -100
    return labels


def policy_loss(wave: MicroBatch) -> Tensor:
    """Clipped importance weights times advantage times log-probability; advantages are drawn, for want of a reward."""
    losses = []
    for index, output in zip(wave.indices, wave.outputs, strict=True):
        advantage = random.Random(index).gauss(0.0, 1.0)
        losses.append(-advantage * _weighted(output).mean())
    return torch.stack(losses).mean()


def _weighted(output: RequestOutputs) -> Tensor:
    log_probs = output.target_log_probs
    assert log_probs is not None
    return (log_probs.detach() * 0.01).exp().clamp(max=2.0) * log_probs


def row(wave: MicroBatch) -> str:
    """One wave's line of the table."""
    stats, priced = wave.stats, wave.stats.plan.wave
    observed = "-" if stats.observed_bytes is None else f"{stats.observed_bytes / MIB:7.1f} MiB"
    over = "-" if stats.over_estimate is None else f"{stats.over_estimate:+.0%}"
    return (
        f"{wave.items.start:4d}-{wave.items.stop - 1:<4d} {priced.packed_rows:7d} {priced.logical_rows:8d} "
        f"{priced.logical_rows / priced.packed_rows:8.2f} {stats.predicted_bytes / MIB:7.1f} MiB {observed} {over:>7}  "
        f"{stats.binding_term}{'' if stats.is_complete else ' (incomplete reading)'}"
    )


def _config(device: torch.device) -> DecoderConfig:
    is_gpu = device.type == "cuda"
    return DecoderConfig(
        vocabulary=VOCABULARY,
        hidden=1024 if is_gpu else 256,
        layers=8 if is_gpu else 4,
        heads=8,
        kv_heads=4,
        head_dim=128 if is_gpu else 32,
        feed_forward=3072 if is_gpu else 512,
        dtype=torch.bfloat16 if is_gpu else torch.float32,
    )


if __name__ == "__main__":
    main()
