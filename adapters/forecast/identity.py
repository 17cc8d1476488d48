"""What a forecast is of, in words: it is used for nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from adapters.forecast.fake_run import Target
from adapters.forecast.shapes import RequestKind
from adapters.trainer_rank import attention, head
from adapters.trainer_rank.identity import ModelIdentity, decoder_layers, execution_words, surroundings
from pricing.kernel.forecast import ForecastOf
from pricing.kernel.requests import RecomputeMode


def forecast_of(
    model: nn.Module, recompute: RecomputeMode, kinds: Iterable[RequestKind], target: Target, transient_bytes: int
) -> ForecastOf:
    """The model as it is and runs now (shapes, types, what trains, how its layers run), what is asked of it, and the
    code that was run: torch and the sizes of our own pieces. Values and devices are no part of it."""
    facts = dict(ModelIdentity(model).facts)
    running = (*execution_words(model, decoder_layers(model)), *surroundings())
    facts |= {
        "model": type(getattr(model, "base_model", model)).__name__,
        "running": ", ".join(running),
        "recompute": str(recompute),
        "requests": "; ".join(sorted(str(kind) for kind in kinds if kind.is_active)),
        "target": str(target),
        "transient_bytes": str(transient_bytes),
        "torch": torch.__version__,
        "head_chunk_rows": str(head.HEAD_CHUNK_ROWS),
        "query_rows": str(attention._QUERY_ROWS),
        "training": str(model.training),
    }
    return tuple(sorted(facts.items()))
