"""One call that makes a trainer run its batches as waves."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch.distributed as dist

from adapters.hf_trainer.runner import PricedRunner
from adapters.hf_trainer.step import WaveStep
from adapters.micro_batches import MicroBatches
from adapters.torch_distributed import DistributedQuorum
from adapters.torch_memory import BudgetSampler, PeakMeter
from pricing import DEFAULT_LAW, DEFAULT_SAFETY, Law, Safety
from pricing.planner.quorum import SINGLE_PROCESS, Quorum
from pricing.records.recorder import Recorder


def in_waves(
    trainer: Any,
    *,
    memory_bytes: int | None = None,
    profiles: str | Path | None = None,
    law: Law | str = DEFAULT_LAW,
    safety: Safety | Fraction | Decimal | str | float = DEFAULT_SAFETY,
    recorder: Recorder | None = None,
    quorum: Quorum | None = None,
    meter: PeakMeter | None = None,
    sampler: BudgetSampler | None = None,
) -> WaveStep:
    """Make `trainer` (any `transformers.Trainer`) run each batch of a training step as waves sized by memory.

    `per_device_train_batch_size` then says what a step trains on, and no longer what must fit. Loss and gradients are
    those of the unsplit batch: how this trainer's loss adds up is known for Trainer, SFT, DPO and GRPO, checked on two
    items of the first batch, and refused in a sentence where no rule holds. Evaluation is untouched.

    The trainer's own forward and backward run inside the waves, so gradient checkpointing, LoRA, bf16 and accumulation
    are as they were. With several processes (DDP) ranks agree on every wave, gradients are reduced once a step, and an
    out-of-memory error of one rank, which the others cannot know of inside their collectives, ends the run.

    quorum: by default over a gloo group of its own. The other arguments as in `MicroBatches`. Returns what to undo it
    with (`undo`), whose `runner.results` tells what ran. Raises `UnsupportedTrainerError`.
    """
    if quorum is None:
        several = trainer.accelerator.num_processes > 1
        quorum = DistributedQuorum(dist.new_group(backend="gloo")) if several else SINGLE_PROCESS
    batches = MicroBatches(
        trainer.accelerator.unwrap_model(trainer.model),
        memory_bytes=memory_bytes,
        profiles=profiles,
        law=law,
        safety=safety,
        recorder=recorder,
        quorum=quorum,
        meter=meter,
        sampler=sampler,
    )
    return WaveStep(trainer, PricedRunner(batches), quorum=quorum)
