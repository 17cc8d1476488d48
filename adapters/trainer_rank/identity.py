"""What a model's memory depends on, beside rows: read once for the profile file, and looked at again before each wave.

`ModelIdentity.facts` goes into the profile file's environment, one entry a field, so that a file of another model is
refused by the name of what differs, be it in the configuration or in the modules themselves. Layers of a stack are one
entry: `parameter layers.#.up.weight` says which of them have which shape, dtype and gradient. `ModelIdentity.live`
says in a few words how the model differs *now* from what it was at the start, and under which settings it runs; it
becomes part of the memory signature. What differs is named there, and said once in the log.

The look before a wave is a pass over what can change in place: gradients and dtypes of parameters, the modules there
are, their settings (plain attributes such as a router's `top_k`), and the configuration; some tenths of a millisecond.
Only where any of it did, or torch calls back that something was registered, everything is read anew.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
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

MOST_VALUES: Final = 4
"""A plain attribute that took more values than these is no setting: it counts, or keeps what was computed last."""

MOST_NAMED: Final = 3
"""How many differences a signature names; the log and the digest have all."""

_log = logging.getLogger(__name__)
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

    def __init__(self, model: object, beside: Callable[[], Mapping[str, str]] = dict) -> None:
        """beside: what its waves depend on too and the model does not hold; looked at before every wave."""
        self._model = model if isinstance(model, nn.Module) else None
        self._beside = beside
        self._said: set[str] = set()
        self._values: dict[str, set[str]] = {}  # that each setting took
        self._no_settings: set[str] = set()
        self._read()
        self._then, self._settings_then, self._beside_then = self._now, self._settings_now, dict(beside())
        kept = {name: text for name, text in self._settings_now.items() if "._" not in name and " _" not in name}
        self.facts = self._now | kept

    def live(self) -> str:
        """How the model runs now: empty for what it was at the start, in ordinary surroundings."""
        self._look()
        drops_nothing = bool(self._dropping) and not any(module.training for module in self._dropping)
        words = ["dropout off"] if drops_nothing else []
        return ", ".join([*self._changed(), *self._execution, *words, *surroundings()])

    def differences(self) -> list[str]:
        """What differs from the start, a sentence each: `config.hidden_act: was silu, now relu`."""
        self._look()
        settings_then = {
            name: text for name, text in self._settings_then.items() if len(self._values[name]) <= MOST_VALUES
        }
        beside = _differences(self._beside_then, self._beside())
        return _differences(self._then, self._now) + _differences(settings_then, self._settings_now) + beside

    def _changed(self) -> list[str]:
        beside = self._beside()
        if (self._now, self._settings_now, beside) == (self._then, self._settings_then, self._beside_then):
            return []
        differences = self.differences()
        if not differences:
            return []
        digest = _digest([sorted(facts.items()) for facts in (self._now, self._settings_now, beside)])
        if digest not in self._said:
            self._said.add(digest)
            _log.warning(
                "the model is not what it was at the start, so its waves have profiles of their own (%s): %s",
                digest,
                "; ".join(differences),
            )
        names = [difference.partition(":")[0] for difference in differences]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return [f"changed to {digest} ({'; '.join(names[:MOST_NAMED])}{more})"]

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
            self._read()

    def _flags(self) -> list[object]:
        """What changes in place: gradients, dtypes, compilation, checkpointing, modules, their settings, the
        configuration."""
        seen: list[object] = [layer.__dict__.get(name) for layer in self._layers for name in _SETTINGS]
        for value in self._parameters:
            seen.append(value.requires_grad)
            seen.append(value.dtype)
        for attributes, plain in self._looked_at:
            seen.append(len(attributes))
            values = map(attributes.get, plain)
            seen += [value if type(value) in _PLAIN else id(value) for value in values]  # tensors do not compare
            seen += map(id, attributes["_modules"].values())  # what is held here keeps its id
            seen += map(id, attributes["_parameters"].values())
            seen.append(len(attributes["_buffers"]))
        seen.append(_frozen(getattr(self._model, "config", None)))
        return seen

    def _plain_attributes(self, module: nn.Module) -> list[str]:
        return [
            name for name, value in module.__dict__.items() if type(value) in _PLAIN and name not in self._no_settings
        ]

    def _read(self) -> None:
        self._registrations = _registered
        model = self._model
        self._parameters: list[nn.Parameter] = [] if model is None else list(model.parameters())
        modules = [] if model is None else list(model.modules())
        self._held = [[*module._modules.values(), *module._parameters.values()] for module in modules]
        self._looked_at = [(module.__dict__, self._plain_attributes(module)) for module in modules]
        self._dropping = [module for module in modules if drops(module)]
        self._layers = [] if model is None else decoder_layers(model)
        self._execution: list[str] = [] if model is None else execution_words(model, self._layers)
        self._seen = self._flags()
        self._now: dict[str, str] = {}
        self._settings_now: dict[str, str] = {}
        if model is None:
            return
        trained = (
            (name, value, "trained" if value.requires_grad else "frozen") for name, value in model.named_parameters()
        )
        buffers = ((name, value, "") for name, value in model.named_buffers())
        self._now = configuration_facts(model) | tensor_facts("parameter", trained) | tensor_facts("buffer", buffers)
        self._settings_now = {}
        for name, text in module_settings(model).items():
            values = self._values.setdefault(name, set())
            values.add(text)
            if len(values) <= MOST_VALUES:
                self._settings_now[name] = text
            else:
                self._no_settings.add(name.rpartition(".")[2])


_SETTINGS: Final = ("gradient_checkpointing", "_gradient_checkpointing_func", "_compiled_call_impl")
_PLAIN: Final = (bool, int, float, str)
_READ_ELSEWHERE: Final = ("training", "gradient_checkpointing")
"""Settings of modules that the recompute mode holds, where all modules agree."""


def _differences(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"{name}: was {then.get(name, 'not there')}, now {now.get(name, 'not there')}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]


def _frozen(value: object) -> object:
    """A configuration as a value that later changes of it do not reach. What is no plain data counts as itself."""
    if isinstance(value, Mapping):
        return [(key, _frozen(inner)) for key, inner in value.items()]
    if isinstance(value, (list, tuple, set)):
        return [_frozen(inner) for inner in value]
    if isinstance(value, (*_PLAIN, torch.dtype, type(None))):
        return value
    if callable(getattr(value, "to_dict", None)):
        return _frozen(vars(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, _frozen(getattr(value, field.name))) for field in dataclasses.fields(value)]
    return id(value)


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
        fields = config.to_dict()
    attention = getattr(config, "_attn_implementation", None)
    if attention is not None:
        fields = {**fields, "_attn_implementation": attention}
    return {f"config.{name}": text for name, text in _flattened(fields)}


def _flattened(fields: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in fields.items():
        if NO_MEMORY.match(str(name)) or value is None:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", text) for inner, text in _flattened(value))
        else:
            yield str(name), _short(str(value))


def module_settings(model: nn.Module) -> dict[str, str]:
    """The class and the plain attributes of every module (a router's `top_k`, a dropout's `p`), those of one stack of
    layers as in `tensor_facts`, and how many modules a list holds; whether they train only where they do not agree."""
    families: dict[str, dict[str, list[str]]] = {}
    modes = {module.training for module in model.modules()}
    for path, module in model.named_modules():
        counted = {"modules": len(module)} if isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)) else {}
        for name, value in ({"class": type(module).__name__} | counted | module.__dict__).items():
            if type(value) not in _PLAIN or NO_MEMORY.match(name):
                continue
            if name in _READ_ELSEWHERE and not (name == "training" and len(modes) > 1):
                continue
            family, at = _family(f"{path}.{name}" if path else name)
            families.setdefault(f"setting {family}", {}).setdefault(_short(str(value)), []).append(at)
    return {family: _in_words(kinds) for family, kinds in families.items()}


def drops(module: nn.Module) -> bool:
    """Whether the module drops something out while it trains: then backward keeps what was dropped, and does not where
    the model is in eval mode."""
    return any(
        type(value) in (int, float) and value > 0
        for name, value in module.__dict__.items()
        if "drop" in name or (name == "p" and "Dropout" in type(module).__name__)
    )


def _family(name: str) -> tuple[str, str]:
    """A name with `#` for the numbers of layers in it, and these numbers."""
    indices = re.findall(r"(?<=\.)\d+(?=\.|$)", name)
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "#", name), ".".join(indices)


def _in_words(kinds: Mapping[str, list[str]]) -> str:
    return _short("; ".join(f"{text} x{len(at)}{_which(at)}" if at != [""] else text for text, at in kinds.items()))


def tensor_facts(what: str, tensors: Iterable[tuple[str, torch.Tensor, str]]) -> dict[str, str]:
    """Shape, dtype and gradient of every tensor, those of one stack of layers under one name with `#` for the index."""
    families: dict[str, dict[str, list[str]]] = {}
    for name, tensor, mode in tensors:
        family, at = _family(name)
        text = f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} {mode}".rstrip()
        families.setdefault(family, {}).setdefault(text, []).append(at)
    return {f"{what} {family}": _in_words(kinds) for family, kinds in families.items()}


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


_ATTENTION_KERNELS: Final[dict[str, Callable[[], bool]]] = {
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "memory-efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    "math": torch.backends.cuda.math_sdp_enabled,
}
"""Kernels of torch's attention that may be turned off, for a stretch or for good; what is left takes other memory."""


def surroundings() -> list[str]:
    """What the calling code has set around the model: autocast, hooks on saved tensors, kernels that are off."""
    words = []
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            words.append(f"autocast {device} {str(torch.get_autocast_dtype(device)).removeprefix('torch.')}")
    if saved_tensors_are_hooked():
        words.append("saved tensors hooked")
    if torch.are_deterministic_algorithms_enabled():
        words.append("deterministic algorithms")
    without = [name for name, is_enabled in _ATTENTION_KERNELS.items() if not is_enabled()]
    if without:
        words.append(f"attention without {', '.join(without)}")
    return words
