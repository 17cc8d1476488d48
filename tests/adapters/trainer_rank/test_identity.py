"""What a profile's waves have in common: the model, how it runs, and what changes while it runs (E10), and floors
that are none (E04)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from adapters.micro_batches import MicroBatches
from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import Request, TrainerRank, head
from adapters.trainer_rank.identity import ModelIdentity, number_ranges
from pricing.kernel.quantities import GIB
from pricing.planner.plan import Verdict
from tests.adapters.trainer_rank.support import tokens

transformers = pytest.importorskip("transformers")


def llama(**settings: Any) -> nn.Module:
    torch.manual_seed(0)
    fields = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    } | settings
    model: nn.Module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields)).train()
    return model


def mixture(**settings: Any) -> nn.Module:
    torch.manual_seed(0)
    fields = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_experts": 8,
        "num_experts_per_tok": 1,
        "head_dim": 8,
    } | settings
    model: nn.Module = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**fields)).train()
    return model


def rank_of(model: nn.Module, meter: PeakMeter, **settings: Any) -> TrainerRank:
    unasked: dict[str, Any] = {"check": "skip-the-check-at-binding", "forecast": False}
    return TrainerRank(model, memory_bytes=2 * GIB, meter=meter, **(unasked | settings))


def items(count: int = 2, rows: int = 70) -> list[Request]:
    return [Request(tokens=tokens(rows, seed), targets=tokens(rows, 50 + seed)) for seed in range(count)]


def train(rank: TrainerRank, requests: list[Request] | None = None) -> list[Any]:
    waves = []
    for wave in rank.forward_micro_batches(items() if requests is None else requests):
        losses = [output.target_log_probs for output in wave.outputs if output.target_log_probs is not None]
        torch.cat(losses).sum().backward()
        waves.append(wave)
    return waves


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "there", "here", "said"),
    [
        (llama, {"intermediate_size": 32}, {"intermediate_size": 4096}, "intermediate_size: file 32, here 4096"),
        (llama, {"num_attention_heads": 4}, {"num_attention_heads": 8}, "num_attention_heads: file 4, here 8"),
        (llama, {"mlp_bias": False}, {"mlp_bias": True}, "mlp_bias: file False, here True"),
        (mixture, {"num_experts_per_tok": 1}, {"num_experts_per_tok": 8}, "num_experts_per_tok: file 1, here 8"),
        (mixture, {"num_experts": 8}, {"num_experts": 16}, "num_experts: file 8, here 16"),
    ],
)
def test_a_profile_of_another_model_is_refused_by_the_name_of_what_differs(
    make: Callable[..., nn.Module],
    there: dict[str, int],
    here: dict[str, int],
    said: str,
    meter: PeakMeter,
    tmp_path: Path,
) -> None:
    """E10: same class, layers, hidden size and vocabulary, and memory that differs."""
    path = tmp_path / "profiles.json"
    train(rank_of(make(**there), meter, profiles=path))

    same, other = rank_of(make(**there), meter, profiles=path), rank_of(make(**here), meter, profiles=path)

    assert same.profiles.refusal is None and same.profiles.started_warm
    assert other.profiles.refusal is not None and said in other.profiles.refusal
    assert not other.profiles.started_warm


class Plain(nn.Module):
    """A model without a configuration: its heads are an attribute, its weights have the same shapes whatever it is."""

    def __init__(self, heads: int, activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, heads)
        self.activation = activation()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.0))


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (Plain(64), "setting attention.num_heads: file 4, here 64"),
        (Plain(4, nn.GELU), "setting activation.class: file ReLU, here GELU"),
    ],
)
def test_a_model_without_a_configuration_is_told_apart_by_its_modules(
    here: Plain, said: str, meter: PeakMeter, tmp_path: Path
) -> None:
    path = tmp_path / "profiles.json"
    settings: dict[str, Any] = {"memory_bytes": 2 * GIB, "meter": meter, "profiles": path}
    first = MicroBatches(Plain(4), **settings)
    for micro in first.split([[1, 2, 3]] * 4, padded=True):
        with micro:
            first._model.body(torch.ones(3, 64)).sum().backward()  # type: ignore[operator]
    first.profiles.save()
    same, other = (MicroBatches(model, **settings) for model in (Plain(4), here))
    assert same.profiles.refusal is None and same.profiles.started_warm
    assert other.profiles.refusal is not None and said in other.profiles.refusal


def routed_to_four(model: Any) -> None:
    model.model.layers[1].mlp.gate.top_k = 4


def without_an_activation(model: Any) -> None:
    model.model.layers[0].mlp.act_fn = nn.Identity()


@pytest.mark.parametrize(
    ("make", "edit", "said"),
    [
        (mixture, routed_to_four, "setting model.layers.#.mlp.gate.top_k: file 1"),
        (llama, without_an_activation, "setting model.layers.#.mlp.act_fn.class: file SiLU"),
    ],
)
def test_a_model_that_was_edited_before_the_start_is_not_the_one_of_the_file(
    make: Callable[..., nn.Module], edit: Callable[[Any], None], said: str, meter: PeakMeter, tmp_path: Path
) -> None:
    """Its configuration and the shapes of its parameters are the same."""
    path = tmp_path / "profiles.json"
    train(rank_of(make(), meter, profiles=path))
    model = make()
    edit(model)
    refusal = rank_of(model, meter, profiles=path).profiles.refusal
    assert refusal is not None and said in refusal


def frozen_below(model: nn.Module) -> None:
    model.model.layers[0].requires_grad_(False)  # type: ignore[union-attr,index]


def in_half(model: nn.Module) -> None:
    model.to(torch.bfloat16)


def with_a_bias(model: nn.Module) -> None:
    model.model.norm.register_parameter("bias", nn.Parameter(torch.zeros(32)))  # type: ignore[union-attr]


def with_a_buffer(model: nn.Module) -> None:
    model.model.norm.register_buffer("mask", torch.zeros(9, 9))  # type: ignore[union-attr]


def resized(model: nn.Module) -> None:
    model.resize_token_embeddings(129)  # type: ignore[operator]


def low_rank(model: nn.Module) -> None:
    peft = pytest.importorskip("peft")
    peft.inject_adapter_in_model(peft.LoraConfig(r=4, target_modules=["q_proj"]), model)


CHANGES = [frozen_below, in_half, with_a_bias, with_a_buffer, resized, low_rank]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_the_model_changes_the_file_and_the_signature(
    change: Callable[[nn.Module], None], meter: PeakMeter, tmp_path: Path
) -> None:
    """At the next start the file is refused; in the running process the next wave has an identity of its own."""
    path, model = tmp_path / "profiles.json", llama()
    rank = rank_of(model, meter, profiles=path)
    before = rank.plan(items()).signature
    train(rank)
    assert rank.plan(items()).signature == before

    change(model)

    after = rank.plan(items())
    assert after.signature != before and after.verdict is Verdict.COLD_START
    assert rank_of(model, meter, profiles=path).profiles.refusal is not None


def test_a_model_that_is_what_it_was_has_the_identity_that_it_had(meter: PeakMeter) -> None:
    model = llama()
    rank = rank_of(model, meter)
    before = rank.plan(items()).signature
    model.requires_grad_(False)
    assert rank.plan(items()).signature != before
    model.requires_grad_(True)
    nn.Linear(2, 2)  # another model, registered elsewhere
    assert rank.plan(items()).signature == before


def test_a_name_is_no_memory(tmp_path: Path) -> None:
    one: Any = llama()
    other: Any = llama()
    other.config._name_or_path = "checkpoint-500"
    assert ModelIdentity(one).facts == ModelIdentity(other).facts
    assert all(isinstance(value, str) for value in ModelIdentity(one).facts.values())
    json.dumps(ModelIdentity(one).facts)


@pytest.mark.parametrize("make", [llama, mixture])
def test_the_same_model_from_a_checkpoint_is_the_same(
    make: Callable[..., Any], meter: PeakMeter, tmp_path: Path
) -> None:
    """Also one that trains, recomputes and was trained when it was saved."""
    model = make()
    facts = ModelIdentity(model).facts
    train(rank_of(model, meter), items(1))
    model.gradient_checkpointing_enable()
    model.eval()
    assert ModelIdentity(model).facts == facts
    model.save_pretrained(tmp_path)
    assert ModelIdentity(type(model).from_pretrained(tmp_path)).facts == facts


def test_the_look_before_a_wave_is_short() -> None:
    identity = ModelIdentity(llama(num_hidden_layers=24))
    identity.live()
    seconds = []
    for _ in range(50):
        started = time.perf_counter()
        identity.live()
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.002


# --- edits of a running model ----------------------------------------------------------------------------------------


def other_attention(model: Any) -> None:
    model.config._attn_implementation = "eager"


def longer_configuration(model: Any) -> None:
    model.config.intermediate_size = 96


def nested_configuration(model: Any) -> None:
    model.config.rope_parameters["factor"] = 2.0


def recomputing_some_layers(model: Any) -> None:
    model.gradient_checkpointing_enable()
    model.model.layers[0].gradient_checkpointing = False


def one_layer_in_eval_mode(model: Any) -> None:
    model.model.layers[1].eval()


def all_frozen(model: Any) -> None:
    model.model.requires_grad_(False)


def fewer_layers(model: Any) -> None:
    del model.model.layers[2]


def a_layer_twice(model: Any) -> None:
    model.model.layers.append(model.model.layers[0])


def other_feed_forward(model: Any) -> None:
    model.model.layers[0].mlp = nn.Sequential(nn.Linear(32, 500), nn.ReLU(), nn.Linear(500, 32))


def without_a_weight(model: Any) -> None:
    model.model.layers[0].mlp.up_proj.weight = None


def with_an_adapter(model: Any) -> None:
    low_rank(model)


def in_another_dtype(model: Any) -> None:
    model.model.layers[0].to(torch.bfloat16)


def other_activation(model: Any) -> None:
    model.model.layers[1].mlp.act_fn = nn.Identity()


EDITS: list[tuple[Callable[[Any], None], str]] = [
    (other_attention, "config._attn_implementation: was sdpa, now eager"),
    (longer_configuration, "config.intermediate_size: was 48, now 96"),
    (nested_configuration, "config.rope_parameters.factor: was not there, now 2.0"),
    (one_layer_in_eval_mode, "setting model.layers.#.training: was not there, now"),
    (all_frozen, "parameter model.layers.#.mlp.up_proj.weight: was [48, 32] float32 trained x3 (0-2), now"),
    (fewer_layers, "parameter model.layers.#.mlp.up_proj.weight: was [48, 32] float32 trained x3 (0-2), now"),
    (other_feed_forward, "parameter model.layers.#.mlp.#.weight: was not there, now"),
    (without_a_weight, "trained x3 (0-2), now [48, 32] float32 trained x2 (1-2)"),
    (with_an_adapter, "lora_A.default.weight: was not there, now"),
    (other_activation, "setting model.layers.#.mlp.act_fn.class: was SiLU"),
    (in_another_dtype, "bfloat16 trained x1 (0)"),
]


@pytest.mark.parametrize(("edit", "said"), EDITS, ids=lambda value: getattr(value, "__name__", ""))
def test_an_edit_of_a_running_model_is_noticed_at_the_next_wave_and_named(
    edit: Callable[[Any], None], said: str, meter: PeakMeter, caplog: pytest.LogCaptureFixture
) -> None:
    model = llama()
    rank = rank_of(model, meter)
    (wave,) = train(rank, items(1))
    before = wave.stats.plan.signature
    assert rank.plan(items()).signature == before

    edit(model)
    with caplog.at_level("WARNING"):
        after = rank.plan(items())
        again = rank.plan(items())

    assert after.verdict is Verdict.COLD_START and after.signature != before
    assert again.signature == after.signature
    (record,) = [record for record in caplog.records if "not what it was at the start" in record.getMessage()]
    assert said in record.getMessage()
    named = after.signature.topology.partition("changed to ")[2]
    assert named and any(difference.partition(":")[0] in named for difference in rank._identity.differences())


@pytest.mark.parametrize("edit", [recomputing_some_layers, a_layer_twice], ids=lambda edit: edit.__name__)
def test_an_edit_that_the_recompute_mode_or_the_layers_hold_is_noticed(
    edit: Callable[[Any], None], meter: PeakMeter
) -> None:
    model = llama()
    rank = rank_of(model, meter)
    before = rank.plan(items()).signature
    edit(model)
    assert rank.plan(items()).signature != before


def test_an_edit_between_two_waves_of_one_call_is_noticed_at_the_next(meter: PeakMeter) -> None:
    """A device that holds one item a wave: the edit inside the loop's body is what the next wave is planned with."""
    model: Any = llama()
    rank = rank_of(model, meter)
    seen = []
    for wave in rank.forward_micro_batches([items(1), items(1)]):
        (output,) = wave.outputs
        assert output.target_log_probs is not None
        output.target_log_probs.sum().backward()
        seen.append(wave.stats.plan)
        model.config.mlp_bias = True
    assert [plan.verdict for plan in seen] == [Verdict.COLD_START] * 2
    assert seen[0].signature != seen[1].signature and "config.mlp_bias" in seen[1].signature.topology


def test_a_head_of_other_chunks_is_noticed_in_a_running_process_and_in_the_file(
    meter: PeakMeter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """However often it changes: it is no counter. What the head needs follows at once, in floors too."""
    path, model = tmp_path / "profiles.json", llama(vocab_size=997)
    rank = rank_of(model, meter, profiles=path, cold_transient_bytes=0)
    train(rank)
    before, wave_floor = rank.plan(items()).signature, rank.plan(items()).wave.floor_bytes
    seen = [before]
    with caplog.at_level("WARNING"):
        for rows in (8, 16, 32, 64, 128, 256):
            monkeypatch.setattr(head, "HEAD_CHUNK_ROWS", rows)
            plan = rank.plan(items())
            assert plan.verdict is Verdict.COLD_START and "head_chunk_rows" in plan.signature.topology
            seen.append(plan.signature)
            if rows == 8:
                assert plan.wave.floor_bytes < wave_floor
    assert len(set(seen)) == 7
    assert "head_chunk_rows: was 512, now 8" in caplog.text
    refusal = rank_of(model, meter, profiles=path).profiles.refusal
    assert refusal is not None and "head_chunk_rows: file 512, here 256" in refusal
    monkeypatch.setattr(head, "HEAD_CHUNK_ROWS", 512)
    assert rank.plan(items()).signature == before


def test_attention_kernels_that_are_off_are_part_of_the_signature(meter: PeakMeter) -> None:
    rank = rank_of(llama(), meter)
    before = rank.plan(items()).signature
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        inside = rank.plan(items()).signature
    assert inside.topology.endswith("attention without flash, memory-efficient, cudnn")
    assert rank.plan(items()).signature == before != inside


def test_an_edit_that_is_undone_ends_its_identity(meter: PeakMeter) -> None:
    model: Any = llama()
    rank = rank_of(model, meter)
    before = rank.plan(items()).signature
    model.config.mlp_bias = True
    assert rank.plan(items()).signature != before
    model.config.mlp_bias = False
    assert rank.plan(items()).signature == before


def test_a_router_that_takes_more_experts_is_noticed(meter: PeakMeter) -> None:
    """A plain attribute of a module, which its configuration was copied into."""
    model: Any = mixture()
    rank = rank_of(model, meter)
    before = rank.plan(items()).signature
    model.model.layers[1].mlp.gate.top_k = 4
    after = rank.plan(items()).signature
    assert after != before and "setting model.layers.#.mlp.gate.top_k" in after.topology


def test_an_attribute_that_counts_is_no_setting(meter: PeakMeter) -> None:
    """A module that numbers its calls: after a few waves its identity is what it was at the start, and stays it."""
    model: Any = llama()
    model.model.calls = 0
    model.model.register_forward_pre_hook(lambda module, _: setattr(module, "calls", module.calls + 1))
    rank = rank_of(model, meter)
    before = rank.plan(items()).signature
    signatures = [wave.stats.plan.signature for _ in range(9) for wave in train(rank)]
    assert len(set(signatures)) <= 5 and set(signatures[5:]) == {before}


def test_a_model_that_is_told_to_train_or_not_is_no_other_one(meter: PeakMeter) -> None:
    model = llama()
    rank = rank_of(model, meter)
    before = rank.plan(items()).signature
    model.eval()
    assert rank.plan(items()).signature.topology == before.topology
    model.train()
    assert rank.plan(items()).signature == before


# --- surroundings ----------------------------------------------------------------------------------------------------


def test_autocast_and_hooks_on_saved_tensors_are_part_of_the_signature(meter: PeakMeter) -> None:
    rank = rank_of(llama(), meter)
    contexts: list[AbstractContextManager[Any]] = [
        nullcontext(),
        torch.autocast("cpu", torch.bfloat16),
        torch.autocast("cpu", torch.float16),
        torch.autograd.graph.save_on_cpu(),
    ]
    signatures = set()
    for context in contexts:
        with context:
            signatures.add(rank.plan(items()).signature)
    assert len(signatures) == 4


def checkpointed(model: nn.Module, layers: set[int]) -> nn.Module:
    model.gradient_checkpointing_enable()  # type: ignore[operator]
    for at, layer in enumerate(model.model.layers):  # type: ignore[arg-type,union-attr]
        layer.gradient_checkpointing = at in layers
    return model


def test_which_layers_recompute_is_part_of_the_signature(meter: PeakMeter) -> None:
    chosen: list[set[int]] = [set(), {0}, {1}, {0, 1}, {0, 1, 2}]
    model = llama()
    rank = rank_of(model, meter)
    signatures = []
    for layers in chosen:
        checkpointed(model, layers)
        signatures.append(rank.plan(items()).signature)
    assert len(set(signatures)) == len(chosen)
    assert signatures[3].recompute.method == "layers 0-1 of 3"
    assert number_ranges([7, 0, 2, 1, 3]) == "0-3, 7"


# --- floors ----------------------------------------------------------------------------------------------------------


def selective(model: nn.Module) -> AbstractContextManager[Any]:
    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return nullcontext(), nullcontext()

    model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": contexts})  # type: ignore[operator]
    return nullcontext()


def foreign(model: nn.Module) -> AbstractContextManager[Any]:
    model.gradient_checkpointing_enable()  # type: ignore[operator]
    for layer in model.model.layers:  # type: ignore[union-attr]
        layer._gradient_checkpointing_func = lambda function, *arguments: function(*arguments)
    return nullcontext()


def compiled(model: nn.Module) -> AbstractContextManager[Any]:
    for layer in model.model.layers:  # type: ignore[union-attr]
        layer.compile(backend="eager")
    return nullcontext()


def on_the_host(model: nn.Module) -> AbstractContextManager[Any]:
    return torch.autograd.graph.save_on_cpu()


@pytest.mark.parametrize("setting", [selective, foreign, compiled, on_the_host], ids=lambda setting: setting.__name__)
def test_a_floor_that_is_no_lower_bound_takes_no_part(
    setting: Callable[[nn.Module], AbstractContextManager[Any]], meter: PeakMeter
) -> None:
    """E04: what a hook, a checkpoint of its own or a compiler may keep elsewhere is no lower bound."""
    model = llama(hidden_size=512)
    rank = rank_of(model, meter, cold_transient_bytes=0)
    kept = 3 * 70 * 512 * 4
    assert rank.plan(items()[:1]).wave.checkpoint_retained_bytes == kept
    with setting(model):
        plan = rank.plan(items()[:1])
    assert plan.wave.checkpoint_retained_bytes == 0
    assert plan.wave.floor_bytes < kept


def test_the_setting_drops_the_floors(meter: PeakMeter) -> None:
    plan = rank_of(llama(), meter, cold_transient_bytes=0, floors=False).plan(items()[:1])
    assert (plan.wave.floor_bytes, plan.wave.checkpoint_retained_bytes) == (0, 0)


def test_frozen_layers_below_keep_nothing(meter: PeakMeter) -> None:
    model = llama()
    model.model.embed_tokens.requires_grad_(False)  # type: ignore[union-attr]
    frozen_below(model)
    plan = rank_of(model, meter, cold_transient_bytes=0).plan(items()[:1])
    assert plan.wave.checkpoint_retained_bytes == 1 * 70 * 32 * 4


def test_labels_of_no_interest_take_no_part_in_the_head(meter: PeakMeter) -> None:
    rank = rank_of(llama(), meter, cold_transient_bytes=0)
    (request, *_) = items()
    labels = tokens(70, 50)
    labels[:68] = -100
    masked = Request(tokens=request.tokens, targets=labels)
    unmasked_plan, masked_plan = rank.plan([request]), rank.plan([masked])
    assert unmasked_plan.wave.floor_bytes - masked_plan.wave.floor_bytes == 70 * 97 * 8


def test_a_complete_reading_under_the_floor_is_named_and_ends_it(
    meter: PeakMeter, caplog: pytest.LogCaptureFixture
) -> None:
    """E04: far more is claimed to be kept than is. The wave is cold by the floor, then priced by what it took."""
    model = llama()
    rank = rank_of(model, meter, cold_transient_bytes=0)
    rank._model.wave_floor_bytes = lambda rows: rows * 10_000_000  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="floor"):
        train(rank, items(1, 400))
    (first,) = train(rank, items(1))
    assert first.stats.plan.verdict is Verdict.COLD_START and first.stats.plan.wave.floor_bytes == 700_000_000
    with caplog.at_level("WARNING"):
        waves = [*train(rank, items(1)), *train(rank, items(1, 400))]
    assert [wave.stats.plan.wave.floor_bytes for wave in waves] == [0, 0]
    assert all(wave.stats.plan.floor_is_wrong for wave in waves)
    assert len([record for record in caplog.records if "under the static floor" in record.message]) == 1
