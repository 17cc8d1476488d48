"""What a model needs, from its configuration alone: built on no device, run on none.

`needs_of` is what `pricing forecast` asks; it is looked up by name there, so that `pricing` needs no torch.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from adapters.forecast.errors import ForecastError
from adapters.forecast.fake_run import Target
from adapters.forecast.identity import forecast_of
from adapters.forecast.lines import COLD_TRANSIENT_BYTES, forecast_model
from adapters.forecast.optimizer_states import optimizer_needs
from adapters.forecast.shapes import TRAINING
from adapters.forecast.trace import facts_without_values
from pricing.kernel.errors import PricingError
from pricing.planner.model_needs import ModelNeeds


def needs_of(
    model: str, *, lora_rank: int = 0, optimizer: str = "adamw", recompute: bool = True, on_cuda: bool = True
) -> ModelNeeds:
    """The needs of `model`: a Hugging Face configuration (a `.json` file, or a folder with a `config.json`), or
    `package.module:function`, which makes a decoder and is called where tensors have no memory.

    lora_rank: adapters on every linear layer but the head, and nothing else trained; 0: every parameter is.
    recompute: activations of a layer at a time; of a model that a function made, it is the function's business.
    optimizer: a name of `adapters.forecast.optimizer_states`.

    Raises `ForecastError` for what cannot be built or run without values, `ModuleNotFoundError` naming what is missing.
    """
    is_file = model.endswith(".json") or Path(model).is_dir()
    built = _from_config(Path(model), recompute) if is_file else _from_import(model)
    if lora_rank:
        built = _with_lora(built, lora_rank)
    built.train()
    trainable = [value for value in built.parameters() if value.requires_grad]
    target = Target.CUDA if on_cuda else Target.CPU
    states = optimizer_needs(trainable, optimizer, target=target)
    facts, recompute_mode = facts_without_values(built)
    return ModelNeeds(
        name=facts.name,
        parameters=sum(value.numel() for value in built.parameters()),
        trainable=sum(value.numel() for value in trainable),
        parameter_bytes=_bytes(built.parameters()) + _bytes(built.buffers()),
        gradient_bytes=_bytes(trainable),
        optimizer=optimizer,
        optimizer_bytes=states.state_bytes,
        optimizer_step_bytes=states.step_bytes,
        recompute=recompute_mode,
        forecast=forecast_model(built, [TRAINING], target=target, gradients_kept_back=True),
        segment_state_bytes=facts.segment_state_bytes,
        forecast_of=forecast_of(
            built, recompute_mode, [TRAINING], target, COLD_TRANSIENT_BYTES if target is Target.CUDA else 0
        ),
    )


def _from_config(path: Path, recompute: bool) -> nn.Module:
    import transformers

    path = path / "config.json" if path.is_dir() else path
    fields = _json_object(path)
    kind = fields.pop("model_type", None)
    if not isinstance(kind, str):
        raise ForecastError(f"{path} names no model_type, which says what to build")
    try:
        config = transformers.AutoConfig.for_model(kind, **fields)
        dtype = config.dtype if isinstance(config.dtype, torch.dtype) else torch.bfloat16
        with torch.device("meta"):
            build: Any = transformers.AutoModelForCausalLM
            model: Any = build.from_config(config, dtype=dtype)
    except Exception as error:  # whatever a configuration can be wrong in
        raise ForecastError(f"{path}: no causal decoder can be built of it: {_said(error)}") from error
    if recompute:
        enable = getattr(model, "activation_checkpointing_enable", None)  # its newer name
        (enable or model.gradient_checkpointing_enable)()
    built: nn.Module = model
    return built


def _from_import(path: str) -> nn.Module:
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise ForecastError(f"{path!r} is neither a .json file, nor a folder, nor package.module:function")
    try:
        make = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ForecastError(f"{path}: there is no module {error.name}") from error
    except AttributeError as error:
        raise ForecastError(f"{path}: {module_name} has no {name}") from error
    try:
        with torch.device("meta"):
            model = make()
    except PricingError:
        raise
    except Exception as error:  # somebody's own code
        raise ForecastError(f"{path} makes no model where tensors have no memory: {_said(error)}") from error
    if not isinstance(model, nn.Module):
        raise ForecastError(f"{path} makes a {type(model).__name__}, not a torch.nn.Module")
    return model


def _with_lora(model: nn.Module, rank: int) -> nn.Module:
    import peft

    try:
        with torch.device("meta"):
            config = peft.LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM")
            wrapped: Any = peft.get_peft_model(model, config)
    except Exception as error:  # layers that peft does not know
        raise ForecastError(f"no adapters of rank {rank} can be put on it: {_said(error)}") from error
    wrapped.enable_input_require_grads()
    built: nn.Module = wrapped
    return built


def _json_object(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ForecastError(f"{path} is no JSON: {_said(error)}") from error
    if not isinstance(fields, dict):
        raise ForecastError(f"{path} holds no JSON object")
    return fields


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
