"""Any `transformers.Trainer`, TRL's among them, with the batches of its training steps run as waves sized by memory.

trainer = SFTTrainer(model, args=SFTConfig(per_device_train_batch_size=64), ...)
waves = in_waves(trainer, profiles="profiles.json")
trainer.train()
"""

from adapters.hf_trainer.errors import UnslicableBatchError, UnsupportedTrainerError
from adapters.hf_trainer.in_waves import in_waves
from adapters.hf_trainer.runner import PricedRunner
from adapters.hf_trainer.step import WaveRunner, WaveStep
from pricing.neighbours import warn_of_foreign_adapters

warn_of_foreign_adapters()

__all__ = [
    "PricedRunner",
    "UnslicableBatchError",
    "UnsupportedTrainerError",
    "WaveRunner",
    "WaveStep",
    "in_waves",
]
