"""The simplest model that OpenPipe ART's `TrainerRank` accepts, and what its runtime needs to run one.

The model is Megatron core's `GPTModel` with core's own ("local") layers and ART's flex attention: no
Transformer Engine, no Megatron Bridge. ART's planner, prefix-tree packing, block masks, chunked head and
trainer run as shipped. Not to be had here, and stood in for:

- `art.megatron.lora` and `art.megatron.train` import Megatron Bridge (not installable as pinned) and
Transformer Engine (its PyTorch part is built from source). Of the two, a forward uses five names;
`_stand_in_for_adapters` and `_stand_in_for_training` give those. - `art.dev` and `art.preprocessing.pack`
import an HTTP client stack. They give names for annotations only.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from tests.art.original import load_trainer_rank

_BARE = ("art.megatron.gdn", "art.megatron.model_support", "art.preprocessing", "art.utils")
"""Packages whose `__init__` imports far more than the modules used below them."""

_NAMES_ONLY = ("art.dev", "art.preprocessing.pack")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of the model. Positions are learned, so that packed rows keep the position of their request."""

    hidden: int = 2048
    layers: int = 12
    heads: int = 16
    query_groups: int = 4
    ffn: int = 6144
    vocabulary: int = 65_536
    longest_request: int = 8_192


def load_execution() -> dict[str, str]:
    """Load what a forward needs, with the stand-ins. Returns why each module that is stood in for cannot be
    imported.
    """
    load_trainer_rank()
    for name in _BARE:
        _put(name, ModuleType(name), path=True)
    missing = {name: _why_not(name) for name in (*_NAMES_ONLY, "art.megatron.lora", "art.megatron.train")}
    for name in _NAMES_ONLY:
        _put(name, _NamesOnly(name))
    _put("art.megatron.lora", _stand_in_for_adapters())
    _put("art.megatron.train", _stand_in_for_training())
    missing |= _prefer_available_attention()
    # As ART sets it where its context parallelism is used: past the limit attention would run uncompiled, and dense.
    torch._dynamo.config.recompile_limit = 256
    return missing


def _prefer_available_attention() -> dict[str, str]:
    """ART's flex attention through FlashAttention 4 where that is installed, else through Triton, its own other
    backend.
    """
    if importlib.util.find_spec("flash_attn") is not None:
        return {}
    compiled: Any = importlib.import_module("art.megatron.flex_attn.compiled")
    compiled._FORCED_FLEX_BACKEND = "TRITON"
    compiled._FORCED_FLEX_KERNEL_OPTIONS = {"BACKEND": "TRITON"}
    return {"flash_attn.cute": "not installed: ART's flex attention runs through Triton"}


def _why_not(name: str) -> str:
    """The error that importing `name` ends in; "importable" if none. What it half-imported is forgotten."""
    before = set(sys.modules)
    try:
        importlib.import_module(name)
        return "importable (stood in for all the same, so that every run is alike)"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        for added in set(sys.modules) - before:
            if added.startswith("art."):
                del sys.modules[added]


def _put(name: str, module: ModuleType, *, path: bool = False) -> None:
    if path:
        root = sys.modules["art"].__path__[0]
        module.__path__ = [os.path.join(root, *name.split(".")[1:])]
    parent, _, leaf = name.rpartition(".")
    sys.modules[name] = module
    setattr(importlib.import_module(parent), leaf, module)


class _NamesOnly(ModuleType):
    """A module that answers every name with a class of that name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _stand_in_for_adapters() -> ModuleType:
    made = ModuleType("art.megatron.lora")
    module: Any = made  # attributes are set that no module type has

    @contextlib.contextmanager
    def no_adapter(slot: object) -> Iterator[None]:
        yield

    module.use_lora_slot = no_adapter
    module.LoRA = type("LoRA", (torch.nn.Module,), {})
    module.LoRASlotRef = dataclass(frozen=True)(
        type("LoRASlotRef", (), {"__annotations__": {"kind": str, "name": "str | None"}})
    )
    return made


def _stand_in_for_training() -> ModuleType:
    made = ModuleType("art.megatron.train")
    module: Any = made
    module._infer_parallel_topology = lambda model: SimpleNamespace(dp=1, tp=1, cp=1, pp=1, sp=False)
    module._placeholder_attention_mask = lambda device: torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=device)
    return made


def start_single_process() -> None:
    """Megatron's process groups for one process, once."""
    from megatron.core import parallel_state, tensor_parallel

    if dist.is_initialized():
        return
    store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)  # type: ignore[attr-defined]
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", store=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    if torch.cuda.is_available():
        tensor_parallel.model_parallel_cuda_manual_seed(7)


def stop_single_process() -> None:
    """Take those process groups down again: a rank on the CPU must not meet a GPU's."""
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def trainer_rank(shape: ModelShape) -> Any:
    """ART's `TrainerRank` over a model of that shape, on the GPU in bfloat16 with one-layer full recompute.

    Without a GPU: on the CPU in float32 without recompute (Megatron's recompute keeps CUDA random states),
    attention by explicit mask.
    """
    start_single_process()
    model, config = _model(shape)
    handler = SimpleNamespace(
        build_gdn_execution_spec=False,
        is_moe=False,
        get_forward_kwargs=lambda model, attention_bias: {"extra_block_kwargs": {"attention_bias": attention_bias}},
        build_prefix_tree_model_state=lambda context: {},
    )
    runtime = SimpleNamespace(provider=config, model=[model], model_support_handler=handler, optimizer=None)
    return load_trainer_rank().TrainerRank(runtime)


def _model(shape: ModelShape) -> tuple[Any, Any]:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    on_gpu = torch.cuda.is_available()
    config = TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_query_groups=shape.query_groups,
        ffn_hidden_size=shape.ffn,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        normalization="RMSNorm",
        attention_dropout=0.0,
        hidden_dropout=0.0,
        bf16=on_gpu,
        params_dtype=torch.bfloat16 if on_gpu else torch.float32,
        pipeline_dtype=torch.bfloat16 if on_gpu else torch.float32,
        use_cpu_initialization=not on_gpu,
        gradient_accumulation_fusion=False,
        recompute_granularity="full" if on_gpu else None,
        recompute_method="uniform" if on_gpu else None,
        recompute_num_layers=1 if on_gpu else None,
    )
    layer = get_gpt_layer_local_spec(normalization="RMSNorm")
    layer.submodules.self_attention.submodules.core_attention = _attention()
    model = GPTModel(
        config=config,
        transformer_layer_spec=layer,
        vocab_size=shape.vocabulary,
        max_sequence_length=shape.longest_request,
        position_embedding_type="learned_absolute",
        share_embeddings_and_output_weights=False,
    )
    model.train().to(
        config.params_dtype
    )  # core's plain norms are made in float32, as a trainer's wrapper would cast them
    for name, parameter in model.named_parameters():  # adapters train few weights; here positions and norms do
        parameter.requires_grad_("position" in name or "norm" in name)
    return (model.cuda() if on_gpu else model), config


def _attention() -> type:
    from art.megatron.flex_attn.attention import FlexDotProductAttention

    return FlexDotProductAttention if torch.cuda.is_available() else _masked(FlexDotProductAttention)


def _masked(base: type) -> type:
    """ART's attention module with its kernel replaced: flex attention has no backward on the CPU."""
    from torch.nn.attention.flex_attention import create_mask

    class Masked(torch.nn.Module):
        def forward(
            self, q: Any, k: Any, v: Any, *, block_mask: Any, scale: float, enable_gqa: bool, softmax_offset: Any
        ) -> Any:
            seen = create_mask(block_mask.mask_mod, 1, 1, q.shape[2], k.shape[2], device="cpu")
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=seen, scale=scale, enable_gqa=enable_gqa
            )

    class MaskedAttention(base):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.flex_attention = Masked()

    return MaskedAttention
