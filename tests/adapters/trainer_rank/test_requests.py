"""Requests at their edges: empty, wrong, reused, all ignored. Whatever is wrong is said before anything runs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import Request, RequestError, TrainerRank
from adapters.trainer_rank.arguments import as_law, as_safety
from pricing import LAWS
from pricing.kernel.errors import SafetyError, UnknownLawError
from tests.adapters.trainer_rank.support import VOCABULARY, tiny_decoder, tokens
from tests.adapters.trainer_rank.waves import rank_on

EVERYTHING: dict[str, Any] = {"top_k": 3, "logits": True, "hidden_states": True, "entropy": True}
SHAPES = {
    "target_log_probs": (0,),
    "top_k_log_probs": (0, 3),
    "top_k_ids": (0, 3),
    "logits": (0, VOCABULARY),
    "hidden_states": (0, 32),
    "entropy": (0,),
}


def empty(**settings: Any) -> Request:
    return Request(tokens=[], targets=[], **EVERYTHING | settings)


def some(count: int = 5, **settings: Any) -> Request:
    row = tokens(count)
    return Request(tokens=row, targets=np.roll(row, -1), **settings)


# E11: sequences without tokens, and of one ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items",
    [
        [empty()],
        [empty(), empty()],
        [[empty(), some()]],
        [[some(), empty()]],
        [some(), empty()],
        [empty(), some()],
        [[empty(), empty(grads=False)], some(1)],
        [Request(tokens=np.zeros((1, 0), dtype=np.int64), targets=np.zeros((1, 0), dtype=np.int32)), some()],
        [Request(tokens=torch.zeros(0, dtype=torch.long), targets=torch.zeros(0, dtype=torch.long))],
    ],
)
@pytest.mark.parametrize("forward_only", [False, True])
def test_e11_an_empty_sequence_gets_outputs_without_entries(
    items: list[Any], forward_only: bool, meter: PeakMeter
) -> None:
    rank = rank_on(meter, model=tiny_decoder())
    flat = [request for item in items for request in (item if isinstance(item, list) else [item])]
    outputs = []
    if forward_only:
        outputs = rank.dp_rank_forward(items)
    else:
        for wave in rank.forward_micro_batches(items):
            outputs += wave.outputs
            loss = sum(
                tensor.sum() for output in wave.outputs for tensor in output.tensors() if tensor.is_floating_point()
            )
            if isinstance(loss, torch.Tensor) and loss.requires_grad:
                loss.backward()
    assert len(outputs) == len(flat)
    for request, output in zip(flat, outputs, strict=True):
        assert output.target_log_probs is not None
        assert output.target_log_probs.shape == np.shape(request.targets)
        if request.entropy and not len(request.tokens):
            assert {name: tuple(getattr(output, name).shape) for name in SHAPES} == SHAPES


def test_e11_losses_of_nothing_have_a_backward(meter: PeakMeter) -> None:
    rank = rank_on(meter, model=tiny_decoder())
    for items in (
        [empty()],
        [[empty(), Request(tokens=[4], targets=[-100])]],
        [Request(tokens=[4, 5], targets=[-100] * 2)],
    ):
        for wave in rank.forward_micro_batches(items):
            loss = torch.cat([o.target_log_probs for o in wave.outputs if o.target_log_probs is not None]).sum()
            assert loss.item() == 0 and loss.requires_grad
            loss.backward()


@pytest.mark.parametrize("beside", [[], [some(9)], [some(9, grads=False)]], ids=["alone", "beside", "beside no grads"])
def test_a_wave_of_ignored_labels_has_a_backward_that_adds_nothing(beside: list[Request], meter: PeakMeter) -> None:
    model = tiny_decoder()
    rank = rank_on(meter, model=model)
    row = tokens(7)
    ignored = Request(tokens=row, targets=np.full(7, -100))
    for wave in rank.forward_micro_batches([[ignored, *beside]]):
        log_probs = wave.outputs[0].target_log_probs
        assert log_probs is not None and not log_probs.any()
        log_probs.sum().backward()
    assert all(value.grad is None or not value.grad.any() for value in model.parameters())
    assert any(value.grad is not None for value in model.parameters())


# Wrong types, with the position --------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tokens": [1, 2.5, 3]}, r"tokens must be an array of whole numbers, got float64: tokens\[0\] is 1\.0"),
    ({"tokens": np.array([1.0, 2.0])}, r"tokens must be .* got float64"),
    ({"tokens": torch.tensor([1.0, 2.0])}, r"tokens must be .* got"),
    ({"tokens": torch.tensor([1.0], dtype=torch.bfloat16)}, r"tokens must be .* got"),
    ({"tokens": np.array([True, False])}, r"tokens must be .* got bool"),
    ({"tokens": "text"}, r"tokens must be"),
    ({"tokens": ["a", "b"]}, r"tokens must be .* tokens\[0\] is 'a'"),
    ({"tokens": [1, None]}, r"tokens must be .* tokens\[1\] is None"),
    ({"tokens": None}, r"tokens must be .* got NoneType"),
    ({"tokens": {1: 2}}, r"tokens must be"),
    ({"tokens": [[1, 2], [3]]}, r"tokens must be"),
    ({"tokens": 7}, r"tokens must have shape"),
    ({"tokens": [[1, 2], [3, 4]]}, r"tokens must have shape"),
    ({"tokens": [1, 2**70]}, r"tokens must be"),
    ({"tokens": [1, -1]}, r"tokens holds -1 \(at 1\)"),
    ({"tokens": [1, VOCABULARY]}, rf"tokens holds {VOCABULARY} \(at 1\)"),
    ({"tokens": [1, 2], "targets": [1.0, 2.0]}, r"targets must be"),
    ({"tokens": [1, 2], "targets": [1]}, r"targets of shape \(1,\)"),
    ({"tokens": [1, 2], "targets": [1, -1]}, r"targets holds -1"),
    ({"tokens": [], "targets": [1]}, r"targets of shape \(1,\)"),
    ({"tokens": [1], "top_k": 0}, r"top_k must be"),
    ({"tokens": [1], "top_k": 2.0}, r"top_k must be"),
    ({"tokens": [1], "top_k": True}, r"top_k must be"),
    ({"tokens": [1], "logits": "yes"}, r"logits must be True or False"),
    ({"tokens": [1], "entropy": 1}, r"entropy must be True or False"),
    ({"tokens": [1], "grads": None}, r"grads must be True or False"),
    ({"tokens": [1], "temperature": 0}, r"temperature must be a number above 0"),
    ({"tokens": [1], "temperature": float("nan")}, r"temperature must be a number above 0"),
    ({"tokens": [1], "temperature": float("inf")}, r"temperature must be a number above 0"),
    ({"tokens": [1], "temperature": "hot"}, r"temperature must be a number above 0"),
    ({"tokens": [1], "temperature": True}, r"temperature must be a number above 0"),
]


@pytest.mark.parametrize(("wrong", "why"), WRONG, ids=[str(index) for index in range(len(WRONG))])
def test_a_wrong_request_is_named_by_its_position_before_anything_runs(
    wrong: dict[str, Any], why: str, meter: PeakMeter
) -> None:
    model = tiny_decoder()
    rank = rank_on(meter, model=model)
    calls: list[None] = []
    model.layers[0].register_forward_pre_hook(lambda *_: calls.append(None))
    cases: list[tuple[list[Any], str]] = [
        ([some(), Request(**wrong)], "item 1: "),
        ([some(), [some(), some(), Request(**wrong)]], "item 1, request 2: "),
    ]
    for items, where in cases:
        for run in (lambda items: list(rank.forward_micro_batches(items)), rank.dp_rank_forward, rank.plan):
            with pytest.raises(RequestError, match=f"^{where}{why}"):
                run(items)
    assert not calls


@pytest.mark.parametrize("item", [None, 3, "text", {"tokens": [1]}, [some(), None], [[some()]], ["a"]])
def test_what_is_no_request_is_named_too(item: Any, meter: PeakMeter) -> None:
    with pytest.raises(RequestError, match=r"^item 1.* must be a Request"):
        rank_on(meter, model=tiny_decoder()).dp_rank_forward([some(), item])


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])
def test_whole_numbers_of_every_width_are_taken(kind: type, meter: PeakMeter) -> None:
    row: Any = np.array([3, 4, 5], dtype=kind)
    wanted = rank_on(meter, model=tiny_decoder()).dp_rank_forward([Request(tokens=[3, 4, 5], targets=[4, 5, 3])])
    found = rank_on(meter, model=tiny_decoder()).dp_rank_forward([Request(tokens=row, targets=np.roll(row, -1))])
    assert torch.equal(found[0].target_log_probs, wanted[0].target_log_probs)  # type: ignore[arg-type]


# Buffers that the caller uses again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "array", "tensor"])
def test_a_token_buffer_may_be_filled_anew_as_soon_as_the_request_is_made(kind: str, meter: PeakMeter) -> None:
    def buffer() -> Any:
        row = tokens(30)
        return {"list": row.tolist(), "array": row, "tensor": torch.from_numpy(row)}[kind]

    kept, reused = buffer(), buffer()
    wanted = rank_on(meter, model=tiny_decoder()).dp_rank_forward([Request(tokens=kept, targets=kept)] * 2)
    rank = rank_on(meter, model=tiny_decoder())
    items = [Request(tokens=reused, targets=reused) for _ in range(2)]
    found = []
    for wave in rank.forward_micro_batches(items):  # the cold start runs alone, so there are two waves
        for index in range(30):
            reused[index] = 7
        found += [output.target_log_probs.detach() for output in wave.outputs if output.target_log_probs is not None]
        sum(o.target_log_probs.sum() for o in wave.outputs if o.target_log_probs is not None).backward()  # type: ignore[union-attr]
    for mine, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, right.target_log_probs.detach())  # type: ignore[union-attr]


def test_a_requests_own_arrays_cannot_be_written_to() -> None:
    request = some()
    for array in (request.tokens, request.targets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# What a rank is made with ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [*LAWS, *LAWS.values()], ids=str)
def test_a_law_may_be_given_by_name(law: Any, meter: PeakMeter) -> None:
    assert rank_on(meter, model=tiny_decoder(), law=law).law is LAWS[law if isinstance(law, str) else law.name]


@pytest.mark.parametrize("law", ["warmer", "", None, 3, dict, object()])
def test_an_unknown_law_is_refused_with_the_list_when_the_rank_is_made(law: Any, meter: PeakMeter) -> None:
    with pytest.raises(UnknownLawError, match="logical, packed, warm, frontier"):
        TrainerRank(tiny_decoder(), meter=meter, memory_bytes=1 << 29, law=law)
    with pytest.raises(UnknownLawError):
        as_law(law)


@pytest.mark.parametrize("safety", ["11/10", "1.1", Fraction(11, 10), 2, "2", 1.5, 1.25, 1.0])
def test_an_exact_safety_is_taken(safety: Any, meter: PeakMeter) -> None:
    wanted = Fraction(str(safety))
    made = rank_on(meter, model=tiny_decoder(), safety=safety).safety
    assert Fraction(made.numerator, made.denominator) == wanted


@pytest.mark.parametrize(
    ("safety", "why"),
    [
        (1.1, r'write "11/10" or "1\.1", as text'),
        (1.05, r'write "21/20" or "1\.05", as text'),
        (1.333, r'write "1333/1000" or "1\.333", as text'),
        (float("nan"), "is not"),
        (float("inf"), "is not"),
        (0.5, "at least 1"),
        ("9/10", "at least 1"),
        ("eleven tenths", "11/10"),
        (None, "11/10"),
        ([11, 10], "11/10"),
        (True, "exact"),
    ],
)
def test_any_other_safety_is_refused_with_what_to_write(safety: Any, why: str, meter: PeakMeter) -> None:
    with pytest.raises(SafetyError, match=why):
        TrainerRank(tiny_decoder(), meter=meter, memory_bytes=1 << 29, safety=safety)
    with pytest.raises(SafetyError):
        as_safety(safety)
