"""A trainer's rank: prefix-shared waves that are priced, checked against the device, measured and learned from.

rank = TrainerRank(model, profiles="profiles.json")
for wave in rank.forward_micro_batches(requests):
    loss = my_loss(wave.outputs)
    loss.backward()
"""

from adapters.trainer_rank.attention import ancestry_mask, packed_attention
from adapters.trainer_rank.binding import HuggingFaceDecoder, ModelFacts, PackedModel, bind_model
from adapters.trainer_rank.errors import RequestError, UnsupportedModelError
from adapters.trainer_rank.rank import TrainerRank
from adapters.trainer_rank.request import Request, RequestOutputs, auxiliary_loss
from adapters.trainer_rank.rows import PackedRows
from adapters.trainer_rank.wave import MicroBatch
from adapters.wave_loop.batch_result import BatchResult, Waves
from adapters.wave_loop.call import Skipped
from adapters.wave_loop.errors import (
    AdmissionError,
    AdmittedOutOfMemoryError,
    OutOfMemoryRefusedError,
    OutputsRefusedError,
    WaveOverError,
    WaveRefusedError,
)
from adapters.wave_loop.failure import OutOfMemory
from adapters.wave_loop.profile_store import ProfileStore
from adapters.wave_loop.wave import WaveStats
from pricing.neighbours import warn_of_foreign_adapters

warn_of_foreign_adapters()

__all__ = [
    "AdmissionError",
    "AdmittedOutOfMemoryError",
    "BatchResult",
    "HuggingFaceDecoder",
    "MicroBatch",
    "ModelFacts",
    "OutOfMemory",
    "OutOfMemoryRefusedError",
    "OutputsRefusedError",
    "PackedModel",
    "PackedRows",
    "ProfileStore",
    "Request",
    "RequestError",
    "RequestOutputs",
    "Skipped",
    "TrainerRank",
    "UnsupportedModelError",
    "WaveOverError",
    "WaveRefusedError",
    "WaveStats",
    "Waves",
    "ancestry_mask",
    "auxiliary_loss",
    "bind_model",
    "packed_attention",
]
