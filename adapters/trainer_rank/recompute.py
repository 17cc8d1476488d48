"""Activation recompute as decoder layers say it themselves: the flag of each, and whether each is training."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from adapters.trainer_rank.identity import number_ranges
from pricing.kernel.requests import NO_RECOMPUTE, RecomputeMode


def recompute_mode_of(layers: Sequence[nn.Module]) -> RecomputeMode:
    """The mode as it would run now. Layers without a flag are not recomputed, nor are layers in eval mode among others
    that train."""
    flags = [bool(getattr(layer, "gradient_checkpointing", False)) for layer in layers]
    if not any(flags):
        return NO_RECOMPUTE
    training = any(layer.training for layer in layers)
    if training:
        flags = [flag and layer.training for flag, layer in zip(flags, layers, strict=True)]
    if not any(flags):
        return NO_RECOMPUTE
    if all(flags):
        return RecomputeMode(granularity="full", method="uniform", num_layers=1, training=training)
    which = number_ranges(at for at, flag in enumerate(flags) if flag)
    return RecomputeMode(granularity="full", method=f"layers {which} of {len(layers)}", num_layers=1, training=training)
