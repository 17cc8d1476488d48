"""The check at binding alone catches wrong packed execution: each kind of fault, planted, must refuse its model.

A fault that only some models can show is planted where it shows; the same models bind without it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import peft
import pytest
import torch
from torch import Tensor

from adapters.trainer_rank import attention, hugging_face
from adapters.trainer_rank.attention import FULL_REACH, Reach, ancestry_mask
from adapters.trainer_rank.binding import SKIP_THE_CHECK, bind_model
from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.hugging_face import HuggingFaceDecoder
from adapters.trainer_rank.rows import PackedRows
from tests.adapters.trainer_rank.families import FAMILIES
from tests.adapters.trainer_rank.support import tiny_decoder

Patch = pytest.MonkeyPatch
BY_NAME = {family.name: family for family in FAMILIES}
MAY_ATTEND = attention._may_attend
PACKED_ATTENTION = attention.packed_attention


def built(name: str, **changes: Any) -> Any:
    return BY_NAME[name].build(**changes)


def reaches(changed: Callable[[Reach], Reach]) -> Callable[[Patch], None]:
    """A kernel that masks by another reach than it was asked for."""
    right = ancestry_mask
    return lambda patch: patch.setattr(hugging_face, "ancestry_mask", lambda rows, reach: right(rows, changed(reach)))


window_ignored = reaches(lambda reach: FULL_REACH)
window_one_short = reaches(lambda reach: Reach(window=reach.window - 1) if reach.window else reach)
chunks_as_a_window = reaches(lambda reach: Reach(window=reach.chunk) if reach.chunk else reach)


def window_by_packed_row(patch: Patch) -> None:
    """Counts rows of the packed sequence, where positions along the path are meant."""

    def rule(q_start: Tensor, q_at: Tensor, q_low: Tensor, k_start: Tensor, k_end: Tensor, k_at: Tensor) -> Tensor:
        rows, keys = torch.arange(len(q_at))[:, None], torch.arange(k_at.shape[1])[None, :]
        reach = q_at - q_low
        return MAY_ATTEND(q_start, q_at, 0 * q_low, k_start, k_end, k_at) & (keys >= rows - reach)

    patch.setattr(attention, "_may_attend", rule)


def bare_head(patch: Patch) -> None:
    """Skips what the model does to its logits: scales and soft caps."""
    patch.setattr(HuggingFaceDecoder, "head_logits", lambda bound, hidden: bound._model.get_output_embeddings()(hidden))


def attention_without(name: str) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        def attend(*arguments: Any, **named: Any) -> Tensor:
            return PACKED_ATTENTION(*arguments, **named | {name: None})

        patch.setattr(hugging_face, "packed_attention", attend)

    return plant


def positions_are_packed_rows(patch: Patch) -> None:
    patch.setattr(PackedRows, "positions_P", property(lambda rows: torch.arange(rows.packed_rows)))


def positions_start_anew_in_branches(patch: Patch) -> None:
    def shifted(rows: PackedRows) -> Tensor:
        starts = [first for first, _, _ in rows.segment_spans()]
        return torch.from_numpy(np.arange(rows.packed_rows) - np.array(starts)[rows.segment_ids])

    patch.setattr(PackedRows, "positions_P", property(shifted))


def attends(rule: Callable[..., Tensor]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(attention, "_may_attend", rule)


def siblings_leak(q: Tensor, q_at: Tensor, q_low: Tensor, k: Tensor, k_end: Tensor, k_at: Tensor) -> Tensor:
    return MAY_ATTEND(q, q_at, q_low, k, k_end + 1, k_at)


def children_leak(q: Tensor, q_at: Tensor, q_low: Tensor, k: Tensor, k_end: Tensor, k_at: Tensor) -> Tensor:
    """A row also sees the first rows of the segment walked next."""
    return MAY_ATTEND(q, q_at, q_low, k, k_end, k_at) | ((k == q + 1) & (k_at == q_at + 1))


def later_rows_leak(q: Tensor, q_at: Tensor, q_low: Tensor, k: Tensor, k_end: Tensor, k_at: Tensor) -> Tensor:
    return MAY_ATTEND(q, q_at + 1, q_low, k, k_end, k_at)


def parents_forgotten(q: Tensor, q_at: Tensor, q_low: Tensor, k: Tensor, k_end: Tensor, k_at: Tensor) -> Tensor:
    return MAY_ATTEND(q, q_at, q_low, k, k_end, k_at) & (k == q)


def grandparents_forgotten(q: Tensor, q_at: Tensor, q_low: Tensor, k: Tensor, k_end: Tensor, k_at: Tensor) -> Tensor:
    """A row sees at most two segments: those whose walk begins within three of its own."""
    return MAY_ATTEND(q, q_at, q_low, k, k_end, k_at) & (q - k < 3)


def first_row_forgotten(q: Tensor, q_at: Tensor, q_low: Tensor, k: Tensor, k_end: Tensor, k_at: Tensor) -> Tensor:
    return MAY_ATTEND(q, q_at, q_low, k, k_end, k_at) & ((k_at > 0) | (q_at == 0))


def keys_without_gradient(patch: Patch) -> None:
    def attend(query: Tensor, key: Tensor, *rest: Any, **named: Any) -> Tensor:
        return PACKED_ATTENTION(query, key.detach(), *rest, **named)

    patch.setattr(hugging_face, "packed_attention", attend)


def shared_rows_count_once(patch: Patch) -> None:
    """The gradient of a row that several requests read is that of one of them."""

    def attend(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> Tensor:
        value = value * 1.0
        if value.requires_grad:
            value.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        return PACKED_ATTENTION(query, key, value, *rest, **named)

    patch.setattr(hugging_face, "packed_attention", attend)


def recompute_with_ordinary_attention(patch: Patch) -> None:
    patch.setattr(hugging_face, "_watch_for_recompute", lambda module: None)


FAULTS: list[tuple[str, str, Callable[[Patch], None]]] = [
    ("window ignored", "MistralForCausalLM", window_ignored),
    ("window ignored, mixed layers", "Gemma2ForCausalLM", window_ignored),
    ("chunks ignored", "Llama4ForCausalLM", window_ignored),
    ("chunks as a window", "Llama4ForCausalLM", chunks_as_a_window),
    ("window by packed row", "MistralForCausalLM", window_by_packed_row),
    ("window one short", "MistralForCausalLM", window_one_short),
    ("scale skipped", "GraniteForCausalLM", bare_head),
    ("scale skipped", "CohereForCausalLM", bare_head),
    ("scale skipped", "MiniCPM3ForCausalLM", bare_head),
    ("cap of logits skipped", "Gemma2ForCausalLM", bare_head),
    ("cap of scores dropped", "Gemma2ForCausalLM", attention_without("softcap")),
    ("sinks dropped", "GptOssForCausalLM", attention_without("sinks_H")),
    ("keys without gradient", "LlamaForCausalLM", keys_without_gradient),
    ("gradients of shared rows cut", "LlamaForCausalLM", shared_rows_count_once),
]
FAULTS += [
    (name, model, fault)
    for model in ("LlamaForCausalLM", "GPT2LMHeadModel", "Gemma2ForCausalLM", "Qwen3MoeForCausalLM")
    for name, fault in (
        ("positions are packed rows", positions_are_packed_rows),
        ("positions start anew", positions_start_anew_in_branches),
        ("siblings leak", attends(siblings_leak)),
        ("children leak", attends(children_leak)),
        ("later rows leak", attends(later_rows_leak)),
        ("parents forgotten", attends(parents_forgotten)),
        ("grandparents forgotten", attends(grandparents_forgotten)),
        ("first row forgotten", attends(first_row_forgotten)),
    )
]


@pytest.mark.parametrize(("name", "model", "fault"), FAULTS, ids=[f"{name}-{model}" for name, model, _ in FAULTS])
def test_a_planted_fault_is_refused_at_binding_and_only_there(
    name: str, model: str, fault: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    right = built(model)
    bind_model(right)
    fault(monkeypatch)
    with pytest.raises(UnsupportedModelError, match=r"differ by \S+ where rounding explains"):
        bind_model(right)
    bind_model(right, check=SKIP_THE_CHECK)


BF16_FAULTS = [fault for fault in FAULTS if "gradient" not in fault[0] and fault[1] != "Qwen3MoeForCausalLM"]


@pytest.mark.parametrize(
    ("name", "model", "fault"), BF16_FAULTS, ids=[f"{name}-{model}" for name, model, _ in BF16_FAULTS]
)
def test_it_is_caught_in_bf16_too(name: str, model: str, fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    right = built(model).bfloat16()
    bind_model(right)
    fault(monkeypatch)
    with pytest.raises(UnsupportedModelError, match="differ by"):
        bind_model(right)


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_recompute_under_the_wrong_attention_is_refused(is_reentrant: bool, monkeypatch: Patch) -> None:
    right = built("LlamaForCausalLM")
    right.gradient_checkpointing_enable({"use_reentrant": is_reentrant})
    bind_model(copy.deepcopy(right))
    recompute_with_ordinary_attention(monkeypatch)
    with pytest.raises(UnsupportedModelError):
        bind_model(right)


def test_a_fault_is_caught_under_lora_and_in_eval_mode(monkeypatch: Patch) -> None:
    adapted = peft.get_peft_model(
        built("LlamaForCausalLM"), peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    )
    scored = built("LlamaForCausalLM").eval().requires_grad_(False)
    bind_model(adapted), bind_model(scored)
    attends(siblings_leak)(monkeypatch)
    for model in (adapted, scored):
        with pytest.raises(UnsupportedModelError, match="hidden states part in layer 0 of 2"):
            bind_model(model)


def test_the_first_layer_that_parts_is_named() -> None:
    """Layer 1 alone is wrong: its rows see everything before them, whatever the tree."""
    model = built("LlamaForCausalLM")
    wrong = model.model.layers[1].self_attn
    right = wrong.forward

    def forward(hidden_states: Tensor, *arguments: Any, **named: Any) -> Any:
        mixed = hidden_states + 0.3 * hidden_states.roll(1, dims=1) * (hidden_states.shape[1] > 30)
        return right(mixed, *arguments, **named)

    wrong.forward = forward
    with pytest.raises(UnsupportedModelError, match="hidden states part in layer 1 of 2"):
        bind_model(model)


def test_what_only_the_head_gets_wrong_is_said_to_be_there(monkeypatch: Patch) -> None:
    bare_head(monkeypatch)
    with pytest.raises(UnsupportedModelError, match="hidden states agree in all 2 layers"):
        bind_model(built("GraniteForCausalLM"))


def test_a_packed_model_of_the_callers_own_is_checked_against_its_requests_alone(monkeypatch: Patch) -> None:
    model = tiny_decoder()
    assert bind_model(model) is model
    attends(siblings_leak)(monkeypatch)
    with pytest.raises(UnsupportedModelError, match="layer 0 of 2"):
        bind_model(model)


def test_a_window_that_cannot_be_shortened_is_refused(monkeypatch: Patch) -> None:
    """The check could not see the window, so the model is not accepted however right it may be."""
    monkeypatch.setattr(hugging_face, "_long_reaches", lambda owners, size: [])
    with pytest.raises(UnsupportedModelError, match="a sliding window of 4096 rows cannot be shortened"):
        bind_model(built("MistralForCausalLM", sliding_window=4096))
    assert FULL_REACH.size is None
