"""The head itself, measured: the peak of a wave with few labels and what it lacked are at least the peak with many."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from adapters.torch_memory import PeakMeter, Role, meter_for
from adapters.trainer_rank import Request, head
from adapters.trainer_rank.head import token_numbers, top_k_log_probs
from adapters.trainer_rank.labels import uncopied_bytes, unprojected_bytes
from adapters.trainer_rank.packed_model import ModelFacts
from pricing.kernel.head_rows import chunk_rows, lacking_bytes
from tests.adapters.torch_memory.support import wave_of

CHUNK, VOCABULARY, HIDDEN = 64, 1_024, 8
ROW_BYTES = 512
"""Positions and numbers of a row: some int64 and fp32 figures, no logits."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(head, "HEAD_CHUNK_ROWS", CHUNK)
        yield


def facts_of(dtype: torch.dtype) -> ModelFacts:
    return ModelFacts(name="head", layers=1, hidden=HIDDEN, vocabulary=VOCABULARY, dtype=dtype)


def request_of(rows: int, labelled: int, temperature: float, *, entropy: bool, top_k: int | None) -> Request:
    tokens = np.arange(rows) % VOCABULARY
    labels = np.where(np.arange(rows) < labelled, tokens, -100)
    return Request(
        tokens=tokens,
        targets=None if top_k else labels,
        entropy=entropy and not top_k,
        top_k=top_k,
        temperature=temperature,
    )


def head_of(dtype: torch.dtype, *, capped: bool) -> Callable[[Tensor], Tensor]:
    weight = torch.randn(HIDDEN, VOCABULARY, generator=torch.Generator().manual_seed(0)).to(dtype)
    if capped:
        return lambda hidden: torch.tanh(hidden @ weight / 30.0) * 30.0
    return lambda hidden: hidden @ weight


def peak_bytes(meter: PeakMeter, request: Request, dtype: torch.dtype, *, capped: bool, grads: bool) -> int:
    """Forward and backward of what the request wants, above what was there before."""
    rows = np.arange(len(request.token_row()))
    hidden = torch.randn(len(rows), HIDDEN, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_(grads)
    hidden.grad = torch.zeros_like(hidden) if grads else None
    project = head_of(dtype, capped=capped)
    labels = np.full(0, 0) if request.targets is None else np.asarray(request.targets)
    interval = meter.open(wave_of(max(1, len(rows))), grads=False, role=Role.WAVE)
    with torch.set_grad_enabled(grads):
        if request.top_k:
            numbers: list[Tensor] = [top_k_log_probs(hidden, project, rows, request.top_k, request.temperature)[0]]
        else:
            entropy_rows = rows if request.entropy else None
            found = token_numbers(
                hidden, project, rows, labels, entropy_positions=entropy_rows, temperature=request.temperature
            )
            numbers = [found.log_probs] + ([] if found.entropies is None else [found.entropies])
        if grads:
            torch.cat([each.reshape(-1) for each in numbers]).sum().backward()
    interval.forward_done(numbers)
    return interval.close().peak_delta_bytes


waves = st.fixed_dictionaries(
    {
        "rows": st.integers(1, 2 * CHUNK),
        "few": st.integers(0, 2 * CHUNK),
        "many": st.integers(0, 2 * CHUNK),
        "temperatures": st.sampled_from([(1.0, 1.0), (0.7, 0.7), (1.0, 0.7)]),
        "dtype": st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
        "kind": st.sampled_from(["labels", "entropy", "top k"]),
        "capped": st.booleans(),
        "grads": st.booleans(),
    }
)


def is_covered(drawn: dict[str, object]) -> bool:
    """Whether the peak of a wave and what it lacked are at least the peak of another one of the same rows."""
    rows, dtype, kind = drawn["rows"], drawn["dtype"], drawn["kind"]
    assert isinstance(rows, int) and isinstance(dtype, torch.dtype)
    learned, priced = (
        request_of(
            rows,
            min(rows, drawn[count]),  # type: ignore[call-overload]
            drawn["temperatures"][at],  # type: ignore[index]
            entropy=kind == "entropy",
            top_k=3 if kind == "top k" else None,
        )
        for at, count in enumerate(("few", "many"))
    )
    tempered = 0.7 in drawn["temperatures"]  # type: ignore[operator]
    with meter_for("cpu") as meter:
        own, other = (
            peak_bytes(meter, each, dtype, capped=bool(drawn["capped"]), grads=bool(drawn["grads"]))
            for each in (learned, priced)
        )
    lacked = unprojected_bytes([learned], [np.arange(rows)], facts_of(dtype), packed_rows=rows, tempered=tempered)
    return own + lacked + ROW_BYTES * rows >= other


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(waves)
def test_a_peak_with_few_labels_and_what_it_lacked_are_a_peak_with_many(drawn: dict[str, object]) -> None:
    assert is_covered(drawn)


def test_without_the_addition_it_would_not_hold(meter: PeakMeter) -> None:
    few, many = (request_of(CHUNK, count, 1.0, entropy=False, top_k=None) for count in (1, CHUNK))
    own, other = (peak_bytes(meter, each, torch.float32, capped=False, grads=True) for each in (few, many))
    lacked = unprojected_bytes([few], [np.arange(CHUNK)], facts_of(torch.float32), packed_rows=CHUNK, tempered=False)
    assert own + ROW_BYTES * CHUNK < other // 3
    assert other <= own + lacked < 2 * other


@pytest.mark.parametrize(
    ("rows", "projected", "expected"),
    [(0, 0, 0), (64, 0, 64 * 16), (64, 64, 64 * 4), (64, 1, 63 * 16 + 4), (3, 9, 3 * 4)],
)
def test_what_lacks_to_the_byte(rows: int, projected: int, expected: int) -> None:
    assert lacking_bytes(rows, projected, 16, 4, 1_000) == 1_000 * expected


def test_a_pass_holds_a_chunk_at_most() -> None:
    assert [chunk_rows(rows, CHUNK) for rows in (0, 1, CHUNK, CHUNK + 1)] == [0, 1, CHUNK, CHUNK]
    full = request_of(2 * CHUNK, CHUNK, 1.0, entropy=False, top_k=None)
    facts, rows = facts_of(torch.float32), 2 * CHUNK
    assert unprojected_bytes([full], [np.arange(rows)], facts, packed_rows=rows, tempered=False) == 0


def test_rows_of_other_requests_count_and_a_head_that_nobody_asks_does_not() -> None:
    """Labels on eight rows of a forward of a chunk: others of its signature may have them on a chunk."""
    facts, few = facts_of(torch.float32), request_of(8, 8, 1.0, entropy=False, top_k=None)
    lacked = unprojected_bytes([few], [np.arange(8)], facts, packed_rows=CHUNK, tempered=False)
    assert lacked == (CHUNK - 8) * 16 * VOCABULARY
    hidden = Request(tokens=np.arange(8), hidden_states=True)
    assert unprojected_bytes([hidden], [np.arange(8)], facts, packed_rows=CHUNK, tempered=False) == 0


def test_logits_of_shared_rows_count_once_a_request() -> None:
    logits = Request(tokens=np.arange(8), logits=True)
    rows = [np.arange(8), np.arange(8), np.arange(4, 12)]
    assert uncopied_bytes([logits] * 3, rows, facts_of(torch.bfloat16)) == (24 - 12) * VOCABULARY * 2
    assert uncopied_bytes([logits], rows[:1], facts_of(torch.bfloat16)) == 0
    assert uncopied_bytes([request_of(8, 8, 1.0, entropy=False, top_k=2)], rows[:1], facts_of(torch.float32)) == 0
