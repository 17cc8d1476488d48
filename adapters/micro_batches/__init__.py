"""Micro-batches sized by memory for any training loop: the model, the loss and how a batch is built stay the caller's.

batches = MicroBatches(model, profiles="profiles.json")
for micro in batches.split(sequences, rows=len):
    with micro:
        loss(micro.items).backward()
optimizer.step()
"""

from adapters.micro_batches.micro import Micro
from adapters.micro_batches.micro_batches import MicroBatches
from adapters.wave_loop.batch_result import BatchResult, Waves
from adapters.wave_loop.errors import (
    AdmissionError,
    AdmittedOutOfMemoryError,
    OutOfMemoryRefusedError,
    WaveRefusedError,
)
from pricing.neighbours import warn_of_foreign_adapters

warn_of_foreign_adapters()

__all__ = [
    "AdmissionError",
    "AdmittedOutOfMemoryError",
    "BatchResult",
    "Micro",
    "MicroBatches",
    "OutOfMemoryRefusedError",
    "WaveRefusedError",
    "Waves",
]
