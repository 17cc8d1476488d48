"""What a model's memory depends on, beside rows: read once for the profile file, and looked at again before each wave.

`ModelIdentity.facts` goes into the profile file's environment, one entry a field, so that a file of another model is
refused by the name of what differs. Layers of a stack are one entry: `parameter layers.#.up.weight` says which of them
have which shape, dtype and gradient. `ModelIdentity.live` says in a few words how the model differs *now* from what it
was at the start, and under which settings it runs; it becomes part of the memory signature.

The look before a wave costs one pass over the parameters' flags (some 50 ns each). That parameters or modules were
added is told by torch itself, which calls back wherever one is registered; only then everything is read anew.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils.checkpoint import checkpoint

NO_MEMORY: Final = re.compile(
    r"^(_name_or_path|name_or_path|transformers_version|model_type|architectures|torch_dtype|dtype|return_dict"
    r"|.*_token_id|.*_token_ids|.*initializer.*|id2label|label2id|problem_type|output_attentions|use_cache|auto_map"
    r"|_attn_implementation_autoset|_commit_hash|tokenizer_class|task_specific_params|finetuning_task|chunk_size.*"
    r"|bos_.*|eos_.*|rope_theta|rms_norm_eps|layer_norm_eps.*|.*_epsilon)$"
)
"""Fields of a configuration that no byte depends on: a checkpoint of another name is not another model."""

MOST_TEXT_CHARS: Final = 400
"""Longest value kept in words; a longer one keeps its beginning and a digest."""

_registered = 0


def _note_registration(*_: object) -> None:
    global _registered
    _registered += 1


# Process-wide, like the hooks: a count of registrations anywhere is cheap, and too many looks are no mistake.
register_module_parameter_registration_hook(_note_registration)
register_module_buffer_registration_hook(_note_registration)
register_module_module_registration_hook(_note_registration)


class ModelIdentity:
    """The identity of one model in this process. An object that is no `nn.Module` has none."""

    def __init__(self, model: object) -> None:
        self._model = model if isinstance(model, nn.Module) else None
        self._now = self.facts = self._read()

    def live(self) -> str:
        """How the model runs now: empty for what it was at the start, in ordinary surroundings."""
        self._look()
        changed = [] if self._now == self.facts else [f"changed to {_digest(sorted(self._now.items()))}"]
        return ", ".join([*changed, *self._execution, *surroundings()])

    @property
    def layer_inputs_stay_on_the_device(self) -> bool:
        """Whether every layer's input is kept where the layer runs until backward, as far as can be seen.

        Not so for compiled layers (the compiler decides what is kept), layers recomputed by something other than
        torch's own checkpoint (selective, offloading), and where saved tensors go through hooks.
        """
        self._look()
        return not self._execution and not saved_tensors_are_hooked()

    def layers_with_a_graph(self, layers: int) -> int:
        """How many of the layers certainly keep their input for backward: those above the first that trains.

        With frozen layers below, nothing of these is kept; the first that trains may keep less than its input.
        """
        self._look()
        if self._model is None or len(self._layers) != layers:
            return layers
        inside = {id(value) for layer in self._layers for value in layer.parameters()}
        first = next(iter(self._parameters), None)
        if first is not None and id(first) not in inside and first.requires_grad:
            return layers  # the embedding trains, so that the first layer's input carries gradients
        for at, layer in enumerate(self._layers):
            if any(value.requires_grad for value in layer.parameters()):
                return layers - at - 1
        return 0

    def _look(self) -> None:
        """Read everything anew if anything that can change without a registration did, or anything was registered."""
        if self._model is not None and (self._registrations != _registered or self._flags() != self._seen):
            self._now = self._read()

    def _flags(self) -> tuple[list[bool], list[torch.dtype], list[object]]:
        """What changes in place: gradients, dtypes, compilation and checkpointing."""
        settings: list[object] = [layer.__dict__.get(name) for layer in self._layers for name in _SETTINGS]
        return [value.requires_grad for value in self._parameters], [v.dtype for v in self._parameters], settings

    def _read(self) -> dict[str, str]:
        self._registrations = _registered
        model = self._model
        self._parameters: list[nn.Parameter] = [] if model is None else list(model.parameters())
        self._layers = [] if model is None else decoder_layers(model)
        self._execution: list[str] = [] if model is None else execution_words(model, self._layers)
        self._seen = self._flags()
        if model is None:
            return {}
        trained = (
            (name, value, "trained" if value.requires_grad else "frozen") for name, value in model.named_parameters()
        )
        buffers = ((name, value, "") for name, value in model.named_buffers())
        return configuration_facts(model) | tensor_facts("parameter", trained) | tensor_facts("buffer", buffers)


_SETTINGS: Final = ("gradient_checkpointing", "_gradient_checkpointing_func", "_compiled_call_impl")


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The modules of the longest list in the model: its decoder layers."""
    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=[])


# --- facts -----------------------------------------------------------------------------------------------------------


def configuration_facts(model: nn.Module) -> dict[str, str]:
    """Every field of the model's configuration that memory may depend on, nested ones by dotted names."""
    config: Any = getattr(model, "config", None)
    fields: Mapping[str, Any] = {}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    elif isinstance(config, Mapping):
        fields = config
    elif callable(getattr(config, "to_dict", None)):
        fields = {**config.to_dict(), "_attn_implementation": getattr(config, "_attn_implementation", None)}
    return {f"config.{name}": text for name, text in _flattened(fields)}


def _flattened(fields: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in fields.items():
        if NO_MEMORY.match(str(name)) or value is None:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", text) for inner, text in _flattened(value))
        else:
            yield str(name), _short(str(value))


def tensor_facts(what: str, tensors: Iterable[tuple[str, torch.Tensor, str]]) -> dict[str, str]:
    """Shape, dtype and gradient of every tensor, those of one stack of layers under one name with `#` for the index."""
    families: dict[str, dict[str, list[str]]] = {}
    for name, tensor, mode in tensors:
        indices = re.findall(r"(?<=\.)\d+(?=\.|$)", name)
        family = re.sub(r"(?<=\.)\d+(?=\.|$)", "#", name)
        text = f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} {mode}".rstrip()
        families.setdefault(family, {}).setdefault(text, []).append(".".join(indices))
    return {
        f"{what} {family}": _short(
            "; ".join(f"{text} x{len(at)}{_which(at)}" if at != [""] else text for text, at in kinds.items())
        )
        for family, kinds in families.items()
    }


def _which(indices: list[str]) -> str:
    """Which layers, where a name of one index says so."""
    if not all(index.isdigit() for index in indices):
        return f" ({_digest(indices)})"
    return f" ({number_ranges([int(index) for index in indices])})"


def number_ranges(numbers: Iterable[int]) -> str:
    """Whole numbers as text: `0-3, 7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _short(text: str) -> str:
    return text if len(text) <= MOST_TEXT_CHARS else f"{text[:MOST_TEXT_CHARS]}... {_digest(text)}"


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


# --- how it runs -----------------------------------------------------------------------------------------------------


def execution_words(model: nn.Module, layers: Iterable[nn.Module]) -> list[str]:
    """How the model's modules run, where that is out of the ordinary: compiled, checkpointed in ways of their own."""
    words = ["compiled"] if model_is_compiled(model, layers) else []
    return words + sorted({word for layer in layers for word in [checkpoint_words(layer)] if word})


def model_is_compiled(model: nn.Module, layers: Iterable[nn.Module]) -> bool:
    """Whether the model or a layer runs compiled, in place or as `torch.compile`'s wrapper."""
    return any(
        getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule"
        for module in (model, *layers)
    )


def checkpoint_words(layer: nn.Module) -> str:
    """How a layer recomputes, where it is not torch's own checkpoint with nothing but `use_reentrant`."""
    if type(layer).__name__ == "OffloadWrapper":
        return "offloaded to the host"
    if type(layer).__name__ == "CheckpointWrapper":
        return _call_words(getattr(layer, "checkpoint_fn", checkpoint))
    if not getattr(layer, "gradient_checkpointing", False):
        return ""
    return _call_words(getattr(layer, "_gradient_checkpointing_func", checkpoint))


def _call_words(function: Any) -> str:
    settings: dict[str, object] = {}
    while isinstance(function, functools.partial):
        settings = {**function.keywords, **settings}
        function = function.func
    own = function is not checkpoint
    told = [f"{name}={_named(value)}" for name, value in sorted(settings.items()) if name == "context_fn"]
    if not own and not told:
        return ""
    return f"recomputed by {_named(function)}" + (f" ({', '.join(told)})" if told else "")


def _named(value: object) -> str:
    if isinstance(value, functools.partial):
        value = value.func
    return str(getattr(value, "__qualname__", value))


def saved_tensors_are_hooked() -> bool:
    """Whether whatever backward needs goes through hooks now, as under `torch.autograd.graph.save_on_cpu`."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is not None and top(False) is not None


def surroundings() -> list[str]:
    """What the calling code has set around the model: autocast, and hooks on saved tensors."""
    words = []
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            words.append(f"autocast {device} {str(torch.get_autocast_dtype(device)).removeprefix('torch.')}")
    if saved_tensors_are_hooked():
        words.append("saved tensors hooked")
    return words
