"""The page of families says what the models do: none wrong, none accepted that dies later, none refused unsaid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.trainer_rank.binding import bind_model
from adapters.trainer_rank.errors import UnsupportedModelError
from tests.adapters.trainer_rank.families import FAMILIES, NOT_BUILT, Family, reason, row_of
from tests.adapters.trainer_rank.sweep import drawn

BY_NAME = {family.name: family for family in FAMILIES}

PAGE = (Path(__file__).parents[3] / "spec/families.md").read_text()
LARGEST_LOG_PROB = 2e-4
"""fp32 rounding of logits in the tens; what is wrong is wrong by hundredths at least."""
LARGEST_GRADIENT = 1e-3


def test_the_page_lists_each_family_once_and_forty_that_run() -> None:
    accepted, refused = (re.findall(r"^\| (.+?) \|", part, re.M)[1:] for part in PAGE.split("## Refused"))
    assert sorted(accepted + refused) == sorted(family.name for family in FAMILIES)
    assert len(accepted) >= 40


def test_every_causal_class_of_transformers_is_on_the_page_or_said_to_be_missing() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    classes = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    assert classes <= {family.model for family in FAMILIES} | set(NOT_BUILT)
    assert all(name in PAGE for name in NOT_BUILT)


@pytest.mark.parametrize("name", ["BloomForCausalLM", "MptForCausalLM", "FalconForCausalLM, alibi"])
def test_alibi_models_ask_for_no_attention_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page says of them: there is nothing that could be exchanged while packed rows run."""
    from transformers.modeling_utils import AttentionInterface

    asked: list[str] = []
    known = AttentionInterface.get_interface

    def noted(interface: AttentionInterface, kind: str, default: Any) -> Any:
        asked.append(kind)
        return known(interface, kind, default)

    monkeypatch.setattr(AttentionInterface, "get_interface", noted)
    tokens = torch.arange(3, 9)[None]
    BY_NAME[name].build()(input_ids=tokens, use_cache=False)
    assert not asked
    BY_NAME["LlamaForCausalLM"].build()(input_ids=tokens, use_cache=False)
    assert asked


@pytest.mark.parametrize("chance", [1e-9, 0.5])
def test_noise_under_a_name_of_its_own_is_refused_however_rare(chance: float) -> None:
    """A chance so small that no number of the check could show it."""
    model = BY_NAME["LlamaForCausalLM"].build()
    layer = model.model.layers[1].mlp
    right = layer.forward
    layer.forward = lambda hidden: right(torch.nn.functional.dropout(hidden, p=chance, training=layer.training))
    with pytest.raises(UnsupportedModelError, match="draws random numbers"):
        bind_model(model)
    bind_model(model.eval())


@pytest.mark.parametrize("name", ["MistralForCausalLM", "GPT2LMHeadModel", "Gemma2ForCausalLM", "GptOssForCausalLM"])
def test_random_models_are_right_or_refused(name: str) -> None:
    """The short form of `sweep.py`, whose figures over all classes are in `spec/evidence`."""
    draws = [drawn(BY_NAME[name], seed) for seed in range(3)]
    assert not [draw for draw in draws if draw.kind in ("wrong", "died")]
    assert any(draw.kind == "exact" for draw in draws)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_runs_packed_as_it_runs_alone_or_is_refused_for_the_reason_on_the_page(family: Family) -> None:
    row = row_of(family)
    if row.refusal is not None:
        assert f"| {family.name} | {reason(row.refusal)} |" in PAGE
        return
    assert re.search(rf"^\| {re.escape(family.name)} \| \d+e-\d+ \| \d+e-\d+ \|$", PAGE, re.M)
    assert row.log_prob < LARGEST_LOG_PROB
    assert row.gradient < LARGEST_GRADIENT
