"""What is known of the trainers of `transformers` and TRL: rows an item, what a slice counts for, what is refused.

By class name along the MRO, so that neither package is imported and subclasses are known by what they extend. What a
subclass changed is found by the check on two items (`adapters.hf_trainer.weights`).
"""

from __future__ import annotations

from typing import Any

from adapters.hf_trainer.errors import UnsupportedTrainerError
from adapters.hf_trainer.weights import Share, Weighting, shifted_tokens, unshifted_tokens

GRPO_SHARES = {
    "grpo": Share.ITEMS,
    "sapo": Share.ITEMS,
    "dr_grpo": Share.ITEMS,
    "luspo": Share.ITEMS,
    "bnpo": Share.TOKENS,
    "cispo": Share.WHOLE,
    "dapo": Share.WHOLE,
    "vespo": Share.WHOLE,
}
"""GRPOTrainer's `loss_type` -> what its loss is divided by (TRL 1.16)."""


def is_a(trainer: Any, name: str) -> bool:
    """Whether the trainer's class or one of its bases is called `name`."""
    return any(base.__name__ == name for base in type(trainer).__mro__)


def rows_per_item(trainer: Any) -> int:
    """Rows of the batch that belong together: a preference pair is two."""
    return 2 if is_a(trainer, "DPOTrainer") else 1


def known_weighting(trainer: Any, num_items_in_batch: Any) -> Weighting | None:
    """What a slice's loss counts for by what is known of this trainer; None where nothing is."""
    if is_a(trainer, "DPOTrainer"):
        return Weighting(share=Share.ITEMS, tokens=shifted_tokens)
    if is_a(trainer, "GRPOTrainer"):
        share = GRPO_SHARES.get(str(getattr(trainer, "loss_type", "")))
        return None if share is None else Weighting(share=share, tokens=unshifted_tokens)
    if is_a(trainer, "SFTTrainer"):
        return Weighting(share=Share.TOKENS if num_items_in_batch is None else Share.WHOLE, tokens=shifted_tokens)
    if num_items_in_batch is not None and getattr(trainer, "model_accepts_loss_kwargs", False):
        return Weighting(share=Share.WHOLE, tokens=shifted_tokens)
    return None


def require_supported(trainer: Any) -> None:
    """Refuse by name what cannot run as waves. Raises `UnsupportedTrainerError`."""
    accelerator = trainer.accelerator
    backend = str(getattr(accelerator.distributed_type, "value", accelerator.distributed_type)).lower()
    config = getattr(accelerator.unwrap_model(trainer.model), "config", None)
    refused = {
        "DeepSpeed and Megatron own backward themselves": backend in ("deepspeed", "megatron_lm"),
        "nn.DataParallel (n_gpu > 1) splits batches itself: start one process a GPU": trainer.args.n_gpu > 1,
        "a LOMO optimizer steps inside backward": "lomo" in str(trainer.args.optim).lower(),
        "a router's auxiliary loss (output_router_logits) is a mean over the whole micro-batch": bool(
            getattr(trainer, "aux_loss_enabled", False) or getattr(config, "output_router_logits", False)
        ),
        "an entropy bonus is a mean over the whole micro-batch": bool(
            getattr(trainer, "_entropy_bonus_enabled", False)
        ),
        "top_entropy_quantile < 1 takes a quantile over the whole micro-batch": (
            getattr(trainer, "top_entropy_quantile", 1.0) < 1.0
        ),
        "padding_free joins all sequences in one row": bool(getattr(trainer, "padding_free", False)),
    }
    reasons = [reason for reason, applies in refused.items() if applies]
    if reasons:
        raise UnsupportedTrainerError(f"{type(trainer).__name__} cannot run as waves: {'; '.join(reasons)}")
