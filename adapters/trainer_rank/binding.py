"""Binding a model: what it must be, how it is bound, and the check without which nothing is accepted.

A model takes part by having the four methods of `PackedModel`. Hugging Face causal decoders (also under peft) are
bound by `bind_model`; nothing is imported from `transformers` until such a model is seen.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from adapters.trainer_rank.check import check_packed_execution
from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.hugging_face import HuggingFaceDecoder
from adapters.trainer_rank.packed_model import ModelFacts, PackedModel
from adapters.trainer_rank.sharding import is_sharded_whole, reshard

__all__ = [
    "CHECKS",
    "CHECK_AT_BINDING",
    "SKIP_THE_CHECK",
    "HuggingFaceDecoder",
    "ModelFacts",
    "PackedModel",
    "bind_model",
]

CHECK_AT_BINDING = "at-binding"
SKIP_THE_CHECK = "skip-the-check-at-binding"
CHECKS = (CHECK_AT_BINDING, SKIP_THE_CHECK)


def bind_model(model: nn.Module | PackedModel, *, check: str = CHECK_AT_BINDING) -> PackedModel:
    """The `PackedModel` of a model: itself, or its Hugging Face binding, checked on this very model.

    The check runs a small tree of requests packed, and each of them on its own through the model's ordinary forward,
    and compares log-probabilities and, where the model trains, a gradient (`check.check_packed_execution`). Only
    `check="skip-the-check-at-binding"` leaves it out; a `PackedModel` that is no `nn.Module` has no parameters that
    tell its device, and answers for itself.

    Raises `UnsupportedModelError` with one sentence that says why; of wrappers and sharded models it says what to pass
    instead.
    """
    if check not in CHECKS:
        raise UnsupportedModelError(f"check must be one of {', '.join(map(repr, CHECKS))}, got {check!r}")
    if isinstance(model, nn.Module):
        _require_whole_and_bare(model)
    bound = _bound(model)
    if check == CHECK_AT_BINDING and isinstance(model, nn.Module):
        check_packed_execution(bound, model)
        reshard(model)
    return bound


def _bound(model: nn.Module | PackedModel) -> PackedModel:
    if isinstance(model, PackedModel) and not (isinstance(model, nn.Module) and is_sharded_whole(model)):
        return model
    transformers = sys.modules.get("transformers")
    if transformers is not None:
        base_model = getattr(model, "get_base_model", None)  # peft's wrapper has one
        inner: Any = model if base_model is None else base_model()
        if isinstance(inner, transformers.PreTrainedModel):
            return _hugging_face(model, inner)
    if isinstance(model, nn.Module) and is_sharded_whole(model):
        raise UnsupportedModelError(_SHARDED.format(what=f"{type(model).__name__} is no Hugging Face decoder"))
    raise UnsupportedModelError(
        f"{type(model).__name__} is neither a PackedModel (packed_hidden_states, head_logits, recompute_mode, "
        f"model_facts) nor a Hugging Face decoder{_inside(model)}"
    )


def _hugging_face(model: nn.Module, inner: Any) -> HuggingFaceDecoder:
    """Raises `UnsupportedModelError` for whatever goes wrong: a model that is put together in a way of its own."""
    try:
        decoder = HuggingFaceDecoder(model, inner)
        decoder.model_facts()
    except (UnsupportedModelError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0][:200]
        raise UnsupportedModelError(
            f"{type(inner).__name__} cannot run shared rows: it is not put together as a decoder and a head "
            f"({type(error).__name__}: {first_line})"
        ) from error
    return decoder


_SHARDED = (
    "{what}, and models sharded that way are not supported: every forward of one gathers its parameters from all "
    "ranks, while packed waves differ in number and kind from rank to rank: pass a Hugging Face decoder with "
    "fully_shard (FSDP2) on its layers and on the whole model, or a model with all its parameters on each rank"
)


def _require_whole_and_bare(model: nn.Module) -> None:
    """Refuse wrappers that communicate in forward or backward, a model compiled whole, and sharded parameters.

    By class names, along each class's own line: nothing distributed is imported to say that a model is not so.
    """
    sharded = is_sharded_whole(model)
    for path, module in model.named_modules():
        where = f"{path} is" if path else "the model is"
        classes = {kind.__name__ for kind in type(module).__mro__}
        if "FullyShardedDataParallel" in classes:
            raise UnsupportedModelError(_SHARDED.format(what=f"{where} wrapped in FullyShardedDataParallel"))
        if "FSDPModule" in classes and not sharded:
            raise UnsupportedModelError(_SHARDED.format(what=f"{where} sharded by fully_shard (FSDP2)"))
        if "DistributedDataParallel" in classes:
            raise UnsupportedModelError(
                f"{where} wrapped in DistributedDataParallel, which reduces gradients in every backward, while ranks "
                "have unequal numbers of waves: pass what it wraps (.module), and reduce gradients over ranks yourself "
                "after the last wave, before the optimizer steps"
            )
    if type(model).__name__ == "OptimizedModule":
        raise UnsupportedModelError(
            "the model is compiled whole by torch.compile, and packed waves do not go through its compiled forward: "
            "pass what it wraps (._orig_mod); its layers may be compiled, each in place (layer.compile())"
        )
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "full_tensor") and not sharded:
            raise UnsupportedModelError(_SHARDED.format(what=f"the parameter {name} is a DTensor"))


def _inside(model: object) -> str:
    """What to pass instead of a wrapper."""
    for name in ("module", "_orig_mod"):
        if isinstance(getattr(model, name, None), nn.Module):
            return f": pass what it wraps (.{name})"
    return ""
