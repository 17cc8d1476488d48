"""What RL trainers need of the head: temperature, entropy, the load-balancing loss; their gradients, in fp64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import Request, RequestError, TrainerRank, auxiliary_loss
from adapters.trainer_rank.binding import bind_model
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.head import HEAD_CHUNK_ROWS, token_numbers, top_k_log_probs
from adapters.trainer_rank.request import output_bytes
from adapters.trainer_rank.routing import RouterFacts, load_balancing_loss
from adapters.trainer_rank.rows import PackedRows, unshared_rows
from pricing.kernel.requests import SINGLE_TARGET, mix_key
from tests.adapters.trainer_rank.families import FAMILIES, VOCABULARY, a_tree, labels
from tests.adapters.trainer_rank.support import CPU, tiny_decoder

BY_NAME = {family.name: family for family in FAMILIES}
EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


def plain_numbers(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """All log-probabilities and the entropies, as they are written down."""
    log_probs = (logits / temperature).log_softmax(dim=-1)
    return log_probs, -(log_probs.exp() * log_probs).sum(dim=-1)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.5])
def test_the_chunked_head_equals_the_plain_one_in_numbers_and_gradients(temperature: float) -> None:
    torch.manual_seed(0)
    rows = 2 * HEAD_CHUNK_ROWS + 17
    hidden = torch.randn(rows, 8, dtype=torch.float64, requires_grad=True)
    head = torch.nn.Linear(8, VOCABULARY, dtype=torch.float64)
    draw = np.random.default_rng(0)
    positions, targets = draw.integers(0, rows, 3_000), draw.integers(0, VOCABULARY, 3_000)
    targets[:400] = -100
    uncertain = draw.integers(0, rows, 900)
    numbers = token_numbers(hidden, head, positions, targets, entropy_positions=uncertain, temperature=temperature)
    assert numbers.entropies is not None
    log_probs, entropies = plain_numbers(head(hidden), temperature)
    wanted = log_probs[torch.from_numpy(positions), torch.from_numpy(np.maximum(targets, 0))]
    wanted = wanted * torch.from_numpy(targets >= 0)
    torch.testing.assert_close(numbers.log_probs, wanted, **EXACT)
    torch.testing.assert_close(numbers.entropies, entropies[torch.from_numpy(uncertain)], **EXACT)
    weights, more = torch.randn(3_000, dtype=torch.float64), torch.randn(900, dtype=torch.float64)
    asked = [hidden, head.weight, head.bias]
    got = torch.autograd.grad((numbers.log_probs * weights).sum() + (numbers.entropies * more).sum(), asked)
    plain = (wanted * weights).sum() + (entropies[torch.from_numpy(uncertain)] * more).sum()
    for found, right in zip(got, torch.autograd.grad(plain, asked), strict=True):
        torch.testing.assert_close(found, right, **EXACT)


def test_entropy_alone_and_log_probabilities_alone_have_gradients_too() -> None:
    hidden = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    head = torch.nn.Linear(4, 11, dtype=torch.float64)
    nothing, rows = np.zeros(0, dtype=np.int64), np.arange(9)
    only = token_numbers(hidden, head, nothing, nothing, entropy_positions=rows, temperature=0.7).entropies
    assert only is not None
    _, plain = plain_numbers(head(hidden), 0.7)
    torch.testing.assert_close(
        torch.autograd.grad(only.sum(), hidden), torch.autograd.grad(plain.sum(), hidden), **EXACT
    )


def test_tokens_that_cannot_be_have_no_part_in_an_entropy() -> None:
    """Logits of -inf: 0 log 0 is 0, in the number and in its gradient."""
    logits = torch.randn(5, 7, dtype=torch.float64)
    logits[:, 3] = -torch.inf
    hidden = logits.clone().requires_grad_()
    rows = np.arange(5)
    numbers = token_numbers(hidden, lambda x: x, rows, rows % 3, entropy_positions=rows)
    assert numbers.entropies is not None
    keep = [0, 1, 2, 4, 5, 6]
    torch.testing.assert_close(numbers.entropies, plain_numbers(logits[:, keep], 1.0)[1], **EXACT)
    (numbers.entropies.sum() + numbers.log_probs.sum()).backward()
    assert hidden.grad is not None and hidden.grad.isfinite().all()


def test_likeliest_tokens_are_at_the_temperature_and_logits_are_not() -> None:
    model = tiny_decoder()
    row = np.arange(10)
    (output,) = packed_forward(
        model, unshared_rows([row], CPU), [Request(tokens=row, top_k=3, logits=True, temperature=0.5)], grads=False
    )
    assert output.logits is not None and output.top_k_log_probs is not None
    wanted = (output.logits / 0.5).log_softmax(dim=-1).topk(3)
    torch.testing.assert_close(output.top_k_log_probs, wanted.values)
    values, _ = top_k_log_probs(torch.zeros(4, 32), model.head_logits, np.zeros(0, dtype=np.int64), 3)
    assert values.shape == (0, 3)


# Through a model, shared ----------------------------------------------------------------------------------------------


def tempered_requests(rows: PackedRows, temperatures: list[float]) -> list[Request]:
    return [
        Request(tokens=rows.token_ids[own], targets=wanted, entropy=True, temperature=temperature)
        for own, wanted, temperature in zip(rows.request_positions, labels(rows), temperatures, strict=True)
    ]


@pytest.mark.parametrize("temperatures", [[0.7] * 7, [0.7, 1.0, 1.3, 0.7, 0.7, 2.0, 1.0]], ids=["one", "several"])
@pytest.mark.parametrize("part", ["log_probs", "entropy", "both"])
def test_shared_rows_give_the_gradients_of_a_plain_unshared_run(temperatures: list[float], part: str) -> None:
    """GPT-2 in fp64 all through; recomputed, with requests at different temperatures on the same rows."""
    model = BY_NAME["GPT2LMHeadModel"].build().double()
    rows = a_tree()

    def loss_of(log_probs: Tensor, entropies: Tensor) -> Tensor:
        weights = torch.linspace(-1, 1, len(log_probs), dtype=torch.float64)
        parts = {"log_probs": log_probs * weights, "entropy": entropies * weights.flip(0)}
        return parts[part].sum() if part in parts else sum(parts.values()).sum()  # type: ignore[union-attr]

    found, certain = [], []
    for own, wanted, temperature in zip(rows.request_positions, labels(rows), temperatures, strict=True):
        logits = model(input_ids=torch.from_numpy(rows.token_ids[own])[None]).logits[0]
        log_probs, entropies = plain_numbers(logits, temperature)
        found.append(log_probs.gather(1, wanted[:, None])[:, 0])
        certain.append(entropies)
    plain = torch.autograd.grad(loss_of(torch.cat(found), torch.cat(certain)), list(model.parameters()))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    outputs = packed_forward(bind_model(model), rows, tempered_requests(rows, temperatures), grads=True)
    shared = torch.cat([output.target_log_probs for output in outputs if output.target_log_probs is not None])
    entropy = torch.cat([output.entropy for output in outputs if output.entropy is not None])
    torch.testing.assert_close(shared, torch.cat(found), **EXACT)
    torch.testing.assert_close(entropy, torch.cat(certain), **EXACT)
    got = torch.autograd.grad(loss_of(shared, entropy), list(model.parameters()))
    for (name, _), mine, right in zip(model.named_parameters(), got, plain, strict=True):
        torch.testing.assert_close(mine, right, **EXACT, msg=name)


# The load-balancing loss ----------------------------------------------------------------------------------------------


def written_out(gates: list[Tensor], top: int) -> Tensor:
    """Switch's loss over all layers' rows, expert by expert."""
    scores = torch.cat(gates)
    probabilities = scores.softmax(dim=-1)
    chosen = probabilities.topk(top, dim=-1).indices
    total = torch.zeros((), dtype=scores.dtype)
    for expert in range(scores.shape[1]):
        share = (chosen == expert).to(scores.dtype).sum() / len(scores)
        total = total + share * probabilities[:, expert].mean()
    return total * scores.shape[1]


ROUTED = ["MixtralForCausalLM", "Qwen3MoeForCausalLM", "Qwen2MoeForCausalLM", "OlmoeForCausalLM", "GptOssForCausalLM"]


@pytest.mark.parametrize("name", ROUTED)
def test_the_auxiliary_loss_is_the_models_own_over_packed_rows_each_once(name: str) -> None:
    model = BY_NAME[name].build(experts_implementation="eager")
    bound: Any = bind_model(model)
    rows = a_tree()
    requests = [Request(tokens=rows.token_ids[own], auxiliary_loss=True) for own in rows.request_positions]
    outputs = packed_forward(bound, rows, requests, grads=True)
    got = auxiliary_loss(outputs)
    assert got is not None and got.requires_grad
    # Every packed row once, its gates from the ordinary forward of a request that owns it.
    gates: list[Tensor] = []
    seen = np.zeros(rows.packed_rows, dtype=bool)
    for own in rows.request_positions:
        out = model(input_ids=torch.from_numpy(rows.token_ids[own])[None], output_router_logits=True)
        fresh = torch.from_numpy(np.flatnonzero(~seen[own]))
        seen[own] = True
        parts = [gate.reshape(len(own), -1)[fresh] for gate in out.router_logits]
        gates = parts if not gates else [torch.cat(pair) for pair in zip(gates, parts, strict=True)]
    assert seen.all()
    facts = bound.router_facts()
    torch.testing.assert_close(got, written_out(gates, facts.top), rtol=1e-5, atol=1e-5)
    # One request alone: exactly what its own forward calls aux_loss.
    alone = unshared_rows([rows.token_ids[:20]], CPU)
    (output,) = packed_forward(bound, alone, [Request(tokens=rows.token_ids[:20], auxiliary_loss=True)], grads=False)
    own_loss = model(input_ids=torch.from_numpy(rows.token_ids[:20])[None], output_router_logits=True).aux_loss
    torch.testing.assert_close(output.auxiliary_loss, own_loss.detach(), rtol=1e-5, atol=1e-6)


def in_fp64_all_through(model: Any) -> Any:
    """Norms and routers compute in fp32 whatever the model's dtype; here they do not."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "MixtralRMSNorm":
                norm = torch.nn.RMSNorm(child.weight.shape, eps=1e-6)
                norm.weight = child.weight
                setattr(module, name, norm)
        if type(module).__name__ == "MixtralTopKRouter":
            module.forward = partial(routed_in_fp64, module)
    return model.double()


def routed_in_fp64(router: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits = torch.nn.functional.linear(hidden.reshape(-1, router.hidden_dim), router.weight)
    values, indices = logits.softmax(dim=-1).topk(router.top_k, dim=-1)
    return logits, values / values.sum(dim=-1, keepdim=True), indices


@pytest.mark.parametrize("recompute", [False, True])
def test_its_gradients_are_those_of_the_loss_written_out(recompute: bool) -> None:
    model = in_fp64_all_through(BY_NAME["MixtralForCausalLM"].build(experts_implementation="eager"))
    bound: Any = bind_model(model)
    rows = a_tree()
    out_gates: list[Tensor] = []
    seen = np.zeros(rows.packed_rows, dtype=bool)
    for own in rows.request_positions:
        out = model(input_ids=torch.from_numpy(rows.token_ids[own])[None], output_router_logits=True)
        fresh = torch.from_numpy(np.flatnonzero(~seen[own]))
        seen[own] = True
        parts = [gate.reshape(len(own), -1)[fresh] for gate in out.router_logits]
        out_gates = parts if not out_gates else [torch.cat(pair) for pair in zip(out_gates, parts, strict=True)]
    asked = [value for name, value in model.named_parameters() if "lm_head" not in name]
    plain = torch.autograd.grad(written_out(out_gates, 2), asked, allow_unused=True)
    if recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    requests = [Request(tokens=rows.token_ids[own], auxiliary_loss=True) for own in rows.request_positions]
    loss = auxiliary_loss(packed_forward(bound, rows, requests, grads=True))
    assert loss is not None
    got = torch.autograd.grad(loss, asked, allow_unused=True)
    for mine, right in zip(got, plain, strict=True):
        assert (mine is None) == (right is None)
        if mine is not None:
            torch.testing.assert_close(mine, right, **EXACT)


def test_padding_rows_are_no_rows_to_the_routers() -> None:
    torch.manual_seed(0)
    rows = unshared_rows([np.arange(6)], CPU)
    padded = PackedRows(
        token_ids=np.append(rows.token_ids, [0, 0]),
        position_ids=np.append(rows.position_ids, [0, 0]),
        segment_ids=np.append(rows.segment_ids, [-1, -1]),
        segment_parents=rows.segment_parents,
        request_positions=rows.request_positions,
        device=CPU,
    )
    gates = [torch.randn(8, 4, dtype=torch.float64) for _ in range(3)]
    facts = RouterFacts(experts=4, top=2)
    wanted = written_out([gate[:6] for gate in gates], 2)
    torch.testing.assert_close(load_balancing_loss(tuple(gates), facts, padded), wanted, **EXACT)


def test_a_waves_loss_counts_each_forward_once_by_its_rows(meter: PeakMeter) -> None:
    model = BY_NAME["MixtralForCausalLM"].build(experts_implementation="eager")
    rank = TrainerRank(model, meter=meter, memory_bytes=512 << 20)
    row = list(range(3, 43))
    items = [[Request(tokens=row[:end], targets=row[:end], auxiliary_loss=True) for end in (40, 40, 30)]]
    for wave in rank.forward_micro_batches(items):
        losses = {id(output.auxiliary_loss) for output in wave.outputs}
        assert len(losses) == 1
        loss = auxiliary_loss(wave.outputs)
        assert loss is not None
        (loss + sum(o.target_log_probs.sum() for o in wave.outputs if o.target_log_probs is not None)).backward()
    assert wave.stats.is_complete
    own = model(input_ids=torch.tensor([row]), output_router_logits=True).aux_loss
    assert own is not None and loss is not None
    torch.testing.assert_close(loss.detach(), own.detach(), rtol=1e-5, atol=1e-6)


def test_a_model_without_such_a_loss_says_so_before_anything_runs(meter: PeakMeter) -> None:
    rank = TrainerRank(BY_NAME["LlamaForCausalLM"].build(), meter=meter, memory_bytes=512 << 20)
    with pytest.raises(RequestError, match="item 0: LlamaForCausalLM has no load-balancing loss"):
        rank.dp_rank_forward([Request(tokens=[4, 5], auxiliary_loss=True)])


# Prices ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "more"),
    [({"entropy": True}, 4 * 100), ({"auxiliary_loss": True}, 4), ({"temperature": 0.7}, 0)],
)
def test_output_bytes_count_what_is_asked_for_and_only_temperature_keeps_the_kind(
    settings: dict[str, Any], more: int
) -> None:
    facts = tiny_decoder().model_facts()
    tokens = [1] * 100
    plain, asked = (Request(tokens=tokens, targets=tokens, **extra).spec(facts.vocabulary) for extra in ({}, settings))
    assert output_bytes(asked, facts) - output_bytes(plain, facts) == more
    assert (mix_key(asked) == SINGLE_TARGET) == (more == 0)


def test_outputs_take_the_bytes_they_are_priced_with() -> None:
    model = tiny_decoder()
    row = np.arange(60)
    request = Request(tokens=row, targets=row, entropy=True, top_k=4, temperature=0.9)
    (output,) = packed_forward(model, unshared_rows([row], CPU), [request], grads=False)
    facts = model.model_facts()
    assert sum(tensor.nbytes for tensor in output.tensors()) == output_bytes(request.spec(facts.vocabulary), facts)


def test_entropy_keeps_no_vocabulary_wide_buffer_into_backward() -> None:
    """What a policy-gradient loss with an entropy bonus keeps is a few numbers a row: the head is recomputed."""
    kept: dict[bool, int] = {}
    hidden = torch.randn(4 * HEAD_CHUNK_ROWS, 8, requires_grad=True)
    head = torch.nn.Linear(8, 4_096)
    rows = np.arange(len(hidden))
    for entropy in (False, True):
        total = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.nbytes
            return tensor

        keep: Callable[[Tensor], Tensor] = pack
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            token_numbers(hidden, head, rows, rows % 7, entropy_positions=rows if entropy else None)
        kept[entropy] = total
    logits_bytes = len(hidden) * 4_096 * 4
    assert kept[True] < logits_bytes // 50
    assert kept[True] - kept[False] <= 64 * len(hidden)
