"""What cannot run shared rows exactly, refused by name before anything runs.

A row that several requests share is computed once. So nothing may make it depend on the request it is computed for:
no state passed along rows, no noise drawn anew, no table that changes with the longest request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from adapters.trainer_rank.errors import UnsupportedModelError

ATTENTION_KINDS = frozenset(("full_attention", "sliding_attention", "chunked_attention", "attention"))
"""Layer kinds that a mask alone can run packed."""

_RECURRENT = ("linear", "mamba", "recurrent", "conv", "ssm", "delta", "lstm")

LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")

DRAWS_THAT_CHANGE_NOTHING = frozenset(("PhimoeTopKRouter",))
"""Modules that draw numbers even where their noise is set to 0, and every draw then comes to the same: sparsemixer
chooses among the experts within its jitter of the best, and at 0 that is the best alone."""

_NOISE = ("dropout", "pdrop", "layerdrop", "jitter", "drop_path")
_NOT_OF_THE_DECODER = ("classifier_dropout", "classifier_dropout_prob", "summary_first_dropout", "sequence_classifier")


def require_equal_shared_rows(outer: nn.Module, model: Any, config: Any) -> None:
    """Raises `UnsupportedModelError` with the one thing for which a shared row would not equal an unshared one."""
    for reason in _reasons(outer, model, config):
        raise UnsupportedModelError(f"{type(model).__name__} cannot run shared rows: {reason}")


def _reasons(outer: nn.Module, model: Any, config: Any) -> Iterator[str]:
    for name, adapter in getattr(outer, "peft_config", {}).items():
        if getattr(adapter, "is_prompt_learning", False):
            kind = getattr(adapter.peft_type, "value", adapter.peft_type)
            yield f"the adapter {name!r} is {kind}, whose virtual tokens shared rows would not see"
    if getattr(config, "is_encoder_decoder", False):
        yield "it is an encoder-decoder"
    if model.get_output_embeddings() is None:
        yield "it has no head"
    kinds = sorted({str(kind) for kind in getattr(config, "layer_types", None) or ()} - ATTENTION_KINDS)
    if any(part in kind for kind in kinds for part in _RECURRENT):
        yield f"layers of kind {', '.join(kinds)} pass a state from row to row, which a mask cannot branch"
    if kinds:
        yield f"layers of kind {', '.join(kinds)} are not attention by a mask over positions"
    if getattr(model, "_is_stateful", False):
        yield "its layers pass a state from row to row, which a mask cannot branch"
    if not getattr(config, "is_causal", True):
        yield "its rows see later rows (is_causal = False)"
    for module in model.modules():
        if hasattr(module, "create_position_ids_from_input_ids"):
            yield f"{type(module).__name__} counts positions over the tokens that are no padding, not from 0"
    for kind in _rope_kinds(model, config):
        yield f"its rotary positions are {kind}: a row's numbers depend on the longest request beside it"
    yield from _noises(model, config)


def _rope_kinds(model: nn.Module, config: Any) -> Iterator[str]:
    parameters = getattr(config, "rope_parameters", None) or {}
    told: list[Any] = [getattr(module, "rope_type", None) for module in model.modules()]
    told += [table.get("rope_type") for table in (parameters, *parameters.values()) if isinstance(table, dict)]
    kinds: set[object] = set()
    for kind in told:
        kinds |= set(kind.values()) if isinstance(kind, dict) else {kind}
    yield from (kind for kind in LENGTH_DEPENDENT_ROPE if kind in kinds)


def _noises(model: nn.Module, config: Any) -> Iterator[str]:
    """Everything that draws numbers in training, by the name its owner gives it, whether or not it trains now."""
    for name, value in sorted(vars(config).items()):
        if name not in _NOT_OF_THE_DECODER and _is_noise(name, value):
            yield f"{name} = {value} draws anew for every row it computes: set it to 0"
    for path, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            yield f"{path or type(module).__name__} drops out with p = {module.p}: set it to 0"
        for name, value in vars(module).items():
            if _is_noise(name, value):
                yield f"{path}.{name} = {value} draws anew for every row it computes: set it to 0"


def _is_noise(name: str, value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and value > 0 and any(part in name for part in _NOISE)
