"""Hugging Face causal decoders on packed rows, by the model's own code.

Four things make it exact. The attention function is exchanged while packed rows run, and at no other time. The masks
are asked of the model's own mask code: what it says about positions holds along each row's path. Logits come from the
model's own forward, given hidden states in the decoder's place, so that scales, caps and exchanged heads count. And
`check` compares all of it with the model's ordinary forward before anything is accepted.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from adapters.trainer_rank.attention import FULL_REACH, Reach, ancestry_mask, packed_attention
from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.packed_model import ModelFacts
from adapters.trainer_rank.recompute import recompute_mode_of
from adapters.trainer_rank.refusals import require_equal_shared_rows
from adapters.trainer_rank.routing import RouterFacts
from adapters.trainer_rank.rows import PADDING_SEGMENT, PackedRows
from adapters.trainer_rank.sharding import is_sharded_whole
from pricing.kernel.requests import RecomputeMode

ATTENTION_NAME = "packed_ancestry"
"""Name under which the ancestry attention is registered with `transformers`."""

_IDLE_ARGUMENTS = frozenset(
    (
        *("position_ids", "position_embeddings", "sliding_window", "is_causal", "dropout", "kernel_options"),
        *("use_cache", "cache", "cache_position", "past_key_values", "return_dict", "logits_to_keep"),
        "num_items_in_batch",
    )
)
"""Arguments of attention functions that say nothing which the mask, the positions or the refusals do not say."""


class PackedMask:
    """What layers get as their attention mask while packed rows run. Code that computes with it cannot be bound.

    Models make masks that no layer uses, so what is wrong with one is said where it is used: `refusal`.
    """

    def __init__(self, rows: PackedRows, reach: Reach, refusal: str | None = None) -> None:
        self.rows = rows
        self.reach = reach
        self.refusal = refusal

    @cached_property
    def block_mask(self) -> BlockMask:
        return ancestry_mask(self.rows, self.reach)


@dataclass(slots=True)
class _Scope:
    """One packed forward: its rows, the masks made so far, and what attention used of them."""

    rows: PackedRows
    ordinary_attention: frozenset[str] = frozenset()
    masks: dict[Reach, PackedMask] = field(default_factory=dict)
    used: set[Reach] = field(default_factory=set)
    attention_calls: int = 0

    def mask(self, reach: Reach) -> PackedMask:
        if reach not in self.masks:
            self.masks[reach] = PackedMask(self.rows, reach)
        return self.masks[reach]


class _Active(threading.local):
    """The packed forward of this thread, and the attention implementations that recomputed layers exchanged."""

    scope: _Scope | None = None

    def __init__(self) -> None:
        self.exchanged: list[tuple[Any, str | None]] = []


_ACTIVE = _Active()


class HuggingFaceDecoder:
    """A Hugging Face causal decoder, bound without changing what its ordinary forward, `generate` or saving do.

    outer: the model as the caller has it, perhaps wrapped by peft; every packed forward goes through its `__call__`.
    Raises `UnsupportedModelError` where shared rows would not equal unshared ones, in one sentence.
    """

    def __init__(self, outer: nn.Module, model: Any) -> None:
        self._outer = outer
        self._model = model
        self._config = model.config.get_text_config(decoder=True)
        require_equal_shared_rows(outer, model, self._config)
        self._decoder = _called_decoder(outer, model)
        self._is_sharded = is_sharded_whole(outer)
        self._parent, self._name = _place_of(model, self._decoder)
        self.layers = _decoder_layers(self._decoder, self._config)
        self._configs = _configs_of(model)
        self._output_type: Any = None
        self.last_reaches: frozenset[Reach] = frozenset()
        self.last_attention_calls = 0
        _register_attention()
        for module in self._decoder.modules():
            if module is not self._decoder and "attention_mask" in _parameters(module.forward):
                _watch_for_recompute(module)

    # What `PackedModel` asks for -------------------------------------------------------------------------------------

    def packed_hidden_states(self, rows: PackedRows) -> Tensor:
        hidden: Tensor = self._run(rows).last_hidden_state
        return self._in_step(hidden[0])

    def _in_step(self, hidden_PH: Tensor) -> Tensor:
        """Of a sharded model: tie the head to the graph, so that backward reaches it on every rank, whatever a wave
        asks for. Ranks whose gradients are of other parameters would wait for one another."""
        if not self._is_sharded or not torch.is_grad_enabled():
            return hidden_PH
        return hidden_PH + 0 * self.head_logits(hidden_PH[:1].detach()).sum()

    def one_row(self, rows: PackedRows, *, grads: bool) -> Tensor | None:
        """Run rows that nobody asked for, so that this rank's collectives are those of the others. With `grads` a loss
        of 0, whose backward is to be run."""
        with torch.set_grad_enabled(grads):
            hidden_PH = self.packed_hidden_states(rows)
        return 0 * hidden_PH.sum() if grads else None

    def head_logits(self, hidden_CH: Tensor) -> Tensor:
        """Through the model's own forward: whatever it does to logits, and whatever head it has by now."""
        logits: Tensor = self._after_decoder(self._output_type(last_hidden_state=hidden_CH[None])).logits
        return logits[0]

    def recompute_mode(self) -> RecomputeMode:
        """Read from the layers themselves: the flag of each and whether each is training."""
        return recompute_mode_of(self.layers)

    def model_facts(self) -> ModelFacts:
        config = self._config
        return ModelFacts(
            name=type(self._model).__name__,
            layers=len(self.layers),
            hidden=config.hidden_size,
            vocabulary=_vocabulary(self._model, config),
            dtype=self._model.dtype,
            positions=_position_table_rows(self._decoder, config),
        )

    # What the auxiliary loss asks for --------------------------------------------------------------------------------

    def router_facts(self) -> RouterFacts | None:
        """Experts and choices a row, where the model's own forward has a load-balancing loss to compute."""
        experts = _first_number(self._model, self._config, "num_experts", "num_local_experts", "n_routed_experts")
        top = _first_number(self._model, self._config, "num_experts_per_tok", "top_k", "num_experts_per_token")
        if experts is None or top is None or "output_router_logits" not in _parameters(self._model.forward):
            return None
        return RouterFacts(experts=experts, top=top)

    def packed_routed_states(self, rows: PackedRows) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Hidden states [P, H] and every routed layer's gate logits [P, experts]."""
        out = self._run(rows, output_router_logits=True)
        gates = tuple(gate.reshape(rows.packed_rows, -1) for gate in out.router_logits or () if gate is not None)
        return self._in_step(out.last_hidden_state[0]), gates

    def own_auxiliary_loss(self, gates: tuple[Tensor, ...], rows: PackedRows) -> Tensor | None:
        """What the model's own code makes of `gates`; None where it makes nothing."""
        hidden = torch.zeros(1, rows.packed_rows, self._config.hidden_size, dtype=self.model_facts().dtype)
        out = self._output_type(last_hidden_state=hidden.to(rows.device), router_logits=gates)
        keep = torch.from_numpy(rows.segment_ids != PADDING_SEGMENT)[None].to(rows.device)
        loss = self._after_decoder(out, output_router_logits=True, attention_mask=keep).aux_loss
        return loss if isinstance(loss, Tensor) else None

    # What the check asks for -----------------------------------------------------------------------------------------

    def ordinary_logits(self, tokens_N: Tensor, kept_rows: Tensor) -> Tensor:
        """Logits of some rows by the model's ordinary forward of one request: [kept, V]."""
        if "logits_to_keep" in _parameters(self._model.forward):
            return self._logits(self._outer(input_ids=tokens_N[None], use_cache=False, logits_to_keep=kept_rows))
        return self._logits(self._outer(input_ids=tokens_N[None], use_cache=False))[kept_rows]

    def input_embeddings(self) -> nn.Module:
        embeddings: nn.Module = self._model.get_input_embeddings()
        return embeddings

    @contextmanager
    def reaches_at_most(self, size: int) -> Iterator[None]:
        """While inside, every window and chunk longer than `size` is `size`, for ordinary and packed runs alike."""
        with _changed(_long_reaches([*self._configs, *self._model.modules()], size)):
            yield

    # ------------------------------------------------------------------------------------------------------------------

    def _logits(self, out: Any) -> Tensor:
        logits: Tensor = out.logits[0]
        return logits

    def _run(self, rows: PackedRows, **asked: bool) -> Any:
        """The decoder on packed rows, inside the outer model's `__call__` (its hooks gather sharded parameters)."""
        scope = _Scope(rows, frozenset(str(config._attn_implementation_internal) for config in self._configs))

        def decoder_alone(*_: Any, **__: Any) -> Any:
            return self._decoder(
                input_ids=rows.tokens_P[None],
                # A mask of ones: without one, transformers takes falling positions for sequences of its own packing.
                attention_mask=torch.ones(1, rows.packed_rows, dtype=torch.long, device=rows.device),
                position_ids=rows.positions_P[None],
                use_cache=False,
                **asked,
            )

        with _packed(scope, self._configs), _forward_of(self._model, decoder_alone):
            out = self._outer(input_ids=rows.tokens_P[None])
        self._output_type = type(out)
        self.last_reaches, self.last_attention_calls = frozenset(scope.used), scope.attention_calls
        return out

    def _after_decoder(self, decoder_output: Any, **arguments: Any) -> Any:
        """The model's own forward with `decoder_output` in its decoder's place."""
        rows = decoder_output.last_hidden_state.shape[1]
        tokens = torch.zeros(1, rows, dtype=torch.long, device=decoder_output.last_hidden_state.device)
        places = self._parent._modules
        places[self._name] = _Given(decoder_output)
        try:
            return self._model.forward(input_ids=tokens, use_cache=False, **arguments)
        finally:
            places[self._name] = self._decoder


class _Given(nn.Module):
    """Stands in the decoder's place and answers with what it was given."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, *_: Any, **__: Any) -> Any:
        return self.output


# Exchanging the attention implementation -----------------------------------------------------------------------------


@contextmanager
def _packed(scope: _Scope, configs: list[Any]) -> Iterator[None]:
    """Packed attention in every part of the model, until the forward is over."""
    before = _ACTIVE.scope
    _ACTIVE.scope = scope
    try:
        with _changed([(config, "_attn_implementation_internal", ATTENTION_NAME) for config in configs]):
            yield
    finally:
        _ACTIVE.scope = before


def _watch_for_recompute(module: nn.Module) -> None:
    """Have the module ask for packed attention whenever it is given a packed mask: layers run again in backward."""
    if _enter not in module._forward_pre_hooks.values():
        module.register_forward_pre_hook(_enter, with_kwargs=True)
        module.register_forward_hook(_leave, with_kwargs=True, always_call=True)


def _enter(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    config = getattr(module, "config", None)
    if config is None or not _has_packed_mask(arguments, named):
        return
    _ACTIVE.exchanged.append((config, config._attn_implementation_internal))
    config._attn_implementation_internal = ATTENTION_NAME


def _leave(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], _: Any) -> None:
    if getattr(module, "config", None) is None or not _has_packed_mask(arguments, named):
        return
    config, name = _ACTIVE.exchanged.pop()
    config._attn_implementation_internal = name


def _has_packed_mask(arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    return any(isinstance(value, PackedMask) for value in (*arguments, *named.values()))


def _register_attention() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(ATTENTION_NAME, _attention)
    AttentionMaskInterface.register(ATTENTION_NAME, _mask)


def _mask(*, mask_function: Callable[..., Any], q_length: int, kv_length: int, device: Any, **named: Any) -> PackedMask:
    """The mask function `transformers` calls: asked what it allows by position, it allows that along every path."""
    scope = _ACTIVE.scope
    assert scope is not None
    if not q_length == kv_length == scope.rows.packed_rows:
        raise UnsupportedModelError(f"it masks {q_length} rows by {kv_length} where {scope.rows.packed_rows} run")
    config = named.get("config")
    sizes = {
        int(size)
        for size in (
            named.get("local_size"),
            getattr(config, "sliding_window", None),
            getattr(config, "attention_chunk_size", None),
        )
        if size
    }
    reaches = [FULL_REACH, *(Reach(window=size) for size in sizes), *(Reach(chunk=size) for size in sizes)]
    for reach in reaches:
        if _allows_what(mask_function, reach, sizes, device):
            return scope.mask(reach)
    if _is_bidirectional(mask_function, device):
        return PackedMask(scope.rows, FULL_REACH, "its rows see later rows (bidirectional attention)")
    return PackedMask(
        scope.rows, FULL_REACH, "its attention mask is neither full, nor a sliding window, nor chunks of positions"
    )


def _allows_what(function: Callable[..., Any], reach: Reach, sizes: set[int], device: Any) -> bool:
    """Whether `function` of positions allows what `reach` allows, at every position around the edges of `sizes`."""
    probes = {0, 1, 2, 3, 7}
    for size in sizes:
        probes |= {max(0, times * size + step) for times in (1, 2, 3) for step in (-2, -1, 0, 1, 2)}
    probed = np.array(sorted(probes))
    positions = torch.from_numpy(probed).to(device)
    query, key = positions[:, None], positions[None, :]
    lowest = torch.from_numpy(reach.lowest_positions(probed)).to(device)[:, None]
    try:
        allowed = torch.as_tensor(function(positions.new_zeros(()), positions.new_zeros(()), query, key), device=device)
    except (IndexError, RuntimeError):  # it looks things up by packed row
        return False
    return torch.equal(allowed.expand(len(positions), len(positions)), (key <= query) & (key >= lowest))


def _is_bidirectional(function: Callable[..., Any], device: Any) -> bool:
    zero, one = torch.tensor(0, device=device), torch.tensor(1, device=device)
    try:
        return bool(function(zero, zero, zero, one))
    except (IndexError, RuntimeError):
        return False


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **named: Any,
) -> tuple[Tensor, None]:
    """The attention function `transformers` calls: [1, H, P, D] in, ([1, P, H, D], no weights) out."""
    if not isinstance(attention_mask, PackedMask):
        raise UnsupportedModelError(f"{type(module).__name__} makes an attention mask of its own")
    if attention_mask.refusal is not None:
        raise UnsupportedModelError(attention_mask.refusal)
    packed_rows = attention_mask.rows.packed_rows
    if not query.shape[2] == key.shape[2] == packed_rows:
        raise UnsupportedModelError(
            f"{type(module).__name__} attends from {query.shape[2]} rows to {key.shape[2]} where {packed_rows} run"
        )
    if named.get("is_causal") is False or getattr(module, "is_causal", True) is False:
        raise UnsupportedModelError(f"{type(module).__name__} is not causal")
    if named.get("dropout"):
        raise UnsupportedModelError(f"{type(module).__name__} drops out attention weights")
    for name, given in named.items():
        if given is not None and given is not False and name not in _IDLE_ARGUMENTS and not name.startswith("output_"):
            raise UnsupportedModelError(f"{type(module).__name__} gives its attention {name}, which is not known here")
    if _ACTIVE.scope is not None:
        if softcap is not None and "sdpa" in _ACTIVE.scope.ordinary_attention:
            raise UnsupportedModelError(
                "its attention caps scores, which sdpa, its attention implementation here, leaves out: load the model "
                'with attn_implementation="eager"'
            )
        _ACTIVE.scope.attention_calls += 1
        _ACTIVE.scope.used.add(attention_mask.reach)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = packed_attention(query, key, value, attention_mask.block_mask, scale, softcap=softcap, sinks_H=s_aux)
    return out.transpose(1, 2).contiguous(), None


# Looking at the model -------------------------------------------------------------------------------------------------


def _called_decoder(outer: nn.Module, model: Any) -> Any:
    """The module that the model's forward calls for its hidden states: seen in a forward of two tokens."""
    base = model.base_model
    inside = ("model", "decoder", "transformer", "language_model")
    candidates = [getattr(owner, name, None) for owner in {base, model} for name in inside]
    candidates = [module for module in (base, *candidates) if module is not None and module is not model]
    if not candidates:
        raise UnsupportedModelError(f"{type(model).__name__} has no decoder apart from its head")
    called: list[nn.Module] = []
    handles = [
        module.register_forward_pre_hook(lambda seen, _: called.append(seen))
        for module in candidates
        if isinstance(module, nn.Module)
    ]
    device = next(model.parameters()).device
    try:
        with torch.no_grad():
            outer(input_ids=torch.tensor([[0, 1]], device=device), use_cache=False)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise UnsupportedModelError(
            f"{type(model).__name__}'s ordinary forward of two tokens raised {type(error).__name__}: {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    if not called:
        raise UnsupportedModelError(f"{type(model).__name__}'s forward does not call its decoder")
    parameters = _parameters(called[0].forward)
    for name in ("input_ids", "position_ids", "attention_mask"):
        if name not in parameters:
            raise UnsupportedModelError(f"{type(called[0]).__name__} takes no {name}, so rows cannot be placed")
    return called[0]


def _place_of(model: nn.Module, decoder: nn.Module) -> tuple[nn.Module, str]:
    """The module that holds the decoder, and under which name."""
    for module in model.modules():
        for name, child in module._modules.items():
            if child is decoder:
                return module, name
    raise UnsupportedModelError(f"{type(model).__name__} does not hold its decoder as a submodule")


def _decoder_layers(decoder: nn.Module, config: Any) -> list[nn.Module]:
    count = getattr(config, "num_hidden_layers", None)
    for module in decoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)
    listed = "does not say how many layers it has" if count is None else f"has no list of its {count} layers"
    raise UnsupportedModelError(f"{type(decoder).__name__} {listed}")


def _configs_of(model: nn.Module) -> list[Any]:
    """Every configuration object that some part of the model looks its attention implementation up in."""
    found: dict[int, Any] = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            found[id(config)] = config
    return list(found.values())


def _vocabulary(model: Any, config: Any) -> int:
    """Tokens that may be given and asked for, by the tables the model has now."""
    sizes = [
        size
        for module, name in (
            (model.get_input_embeddings(), "num_embeddings"),
            (model.get_output_embeddings(), "out_features"),
        )
        if isinstance(size := getattr(module, name, None), int)
    ]
    return min(sizes, default=int(config.vocab_size))


def _position_table_rows(decoder: nn.Module, config: Any) -> int | None:
    """Positions that a table of positions has rows for; None where the model computes them."""
    longest = getattr(config, "max_position_embeddings", None)
    if longest is None:
        return None
    for name, table in (*decoder.named_parameters(), *decoder.named_buffers()):
        places = [part for part in name.split(".") if "pos" in part or part == "wpe"]
        if places and table.dim() == 2 and 0 <= table.shape[0] - longest <= 8:
            return int(longest)
    return None


def _first_number(model: Any, config: Any, *names: str) -> int | None:
    for name in names:
        for owner in (model, config):
            value = getattr(owner, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _long_reaches(owners: list[Any], size: int) -> list[tuple[Any, str, int]]:
    found = []
    for owner in owners:
        for name in ("sliding_window", "attention_chunk_size"):
            value = vars(owner).get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > size:
                found.append((owner, name, size))
    return found


def _parameters(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


@contextmanager
def _changed(attributes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Attributes set to other values, and set back."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in attributes]
    try:
        for owner, name, value in attributes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


@contextmanager
def _forward_of(model: nn.Module, function: Callable[..., Any]) -> Iterator[None]:
    """`function` in the place of the model's forward; a forward that somebody else put there comes back."""
    before = model.__dict__.get("forward")
    model.__dict__["forward"] = function
    try:
        yield
    finally:
        if before is None:
            del model.__dict__["forward"]
        else:
            model.__dict__["forward"] = before
