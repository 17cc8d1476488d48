"""One packed forward: packed rows in, each request's own outputs back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from adapters.trainer_rank.errors import UnsupportedModelError
from adapters.trainer_rank.head import full_logits, token_numbers, top_k_log_probs
from adapters.trainer_rank.packed_model import PackedModel
from adapters.trainer_rank.request import Request, RequestOutputs, concatenated, target_entries
from adapters.trainer_rank.routing import RoutedModel, load_balancing_loss
from adapters.trainer_rank.rows import PackedRows


class BeforeOutputs(Protocol):
    """Told before outputs are made, as `PeakMeter.before_outputs` is."""

    def __call__(self, size_bytes: int, *, copied_bytes: int = 0) -> None: ...


def nobody_asks(size_bytes: int, *, copied_bytes: int = 0) -> None:
    """For callers that do not measure."""


def packed_forward(
    model: PackedModel,
    rows: PackedRows,
    requests: Sequence[Request],
    *,
    grads: bool,
    before_outputs: BeforeOutputs = nobody_asks,
) -> list[RequestOutputs]:
    """Run the decoder once on `rows` and give every request what it asked for, in order.

    `rows.request_positions` and `requests` belong together. Flat outputs are split into the requests' own, so that
    many small requests cost no buffer each. Without rows nothing runs, and every output has no entries.
    """
    assert len(rows.request_positions) == len(requests)
    with torch.set_grad_enabled(grads):
        outputs = [RequestOutputs() for _ in requests]
        hidden_PH = _hidden_states(outputs, model, rows, requests)
        for temperature in sorted({request.temperature for request in requests}):
            _add_token_numbers(outputs, model, hidden_PH, rows, requests, temperature, before_outputs)
            _add_top_k(outputs, model, hidden_PH, rows, requests, temperature, before_outputs)
        _add_logits_and_hidden_states(outputs, model, hidden_PH, rows, requests, before_outputs)
    return outputs


def _hidden_states(
    outputs: list[RequestOutputs], model: PackedModel, rows: PackedRows, requests: Sequence[Request]
) -> Tensor:
    if not rows.packed_rows:
        facts = model.model_facts()
        nothing = torch.zeros(0, facts.hidden, dtype=facts.dtype, device=rows.device)
        return nothing.requires_grad_(torch.is_grad_enabled())
    chosen = [index for index, request in enumerate(requests) if request.auxiliary_loss]
    if not chosen:
        return model.packed_hidden_states(rows)
    assert isinstance(model, RoutedModel)  # `prepared` refuses the others before anything runs
    routers = model.router_facts()
    assert routers is not None
    hidden_PH, gates = model.packed_routed_states(rows)
    loss = load_balancing_loss(gates, routers, rows)
    if hidden_PH.requires_grad and not loss.requires_grad:
        raise UnsupportedModelError(
            "reentrant recompute gives the auxiliary loss no gradient: gradient_checkpointing_enable"
            '(gradient_checkpointing_kwargs={"use_reentrant": False})'
        )
    for index in chosen:
        outputs[index] = replace(outputs[index], auxiliary_loss=loss, auxiliary_rows=rows.packed_rows)
    return hidden_PH


def _add_token_numbers(
    outputs: list[RequestOutputs],
    model: PackedModel,
    hidden_PH: Tensor,
    rows: PackedRows,
    requests: Sequence[Request],
    temperature: float,
    before_outputs: BeforeOutputs,
) -> None:
    at = [index for index, request in enumerate(requests) if request.temperature == temperature]
    labelled = [index for index in at if requests[index].targets is not None]
    uncertain = [index for index in at if requests[index].entropy]
    if not labelled and not uncertain:
        return
    entries = [target_entries(requests[index], rows.request_positions[index]) for index in labelled]
    entropy_rows = [rows.request_positions[index] for index in uncertain]
    positions_E = concatenated([positions for positions, _ in entries])
    entropy_positions = concatenated(entropy_rows)
    number_bytes = torch.promote_types(hidden_PH.dtype, torch.float32).itemsize
    before_outputs(number_bytes * len(positions_E))  # a buffer of their size is there from the first
    numbers = token_numbers(
        hidden_PH,
        model.head_logits,
        positions_E,
        concatenated([targets for _, targets in entries]),
        entropy_positions=entropy_positions if uncertain else None,
        temperature=temperature,
        before_entropies=partial(_before_copies, before_outputs, number_bytes * len(entropy_positions)),
    )
    for index, piece in zip(
        labelled, torch.split(numbers.log_probs, [len(targets) for _, targets in entries]), strict=True
    ):
        shaped = piece.reshape(np.shape(requests[index].targets))
        outputs[index] = replace(outputs[index], target_log_probs=shaped)
    if numbers.entropies is not None:
        pieces = torch.split(numbers.entropies, [len(positions) for positions in entropy_rows])
        for index, piece in zip(uncertain, pieces, strict=True):
            outputs[index] = replace(outputs[index], entropy=piece)


def _add_top_k(
    outputs: list[RequestOutputs],
    model: PackedModel,
    hidden_PH: Tensor,
    rows: PackedRows,
    requests: Sequence[Request],
    temperature: float,
    before_outputs: BeforeOutputs,
) -> None:
    at = [index for index, request in enumerate(requests) if request.temperature == temperature]
    number_bytes = torch.promote_types(hidden_PH.dtype, torch.float32).itemsize + torch.int64.itemsize
    for k in sorted({k for index in at if (k := requests[index].top_k) is not None}):
        chosen = [index for index in at if requests[index].top_k == k]
        lengths = [len(rows.request_positions[index]) for index in chosen]
        positions = concatenated([rows.request_positions[index] for index in chosen])
        size_bytes = number_bytes * k * len(positions)
        values, ids = top_k_log_probs(
            hidden_PH,
            model.head_logits,
            positions,
            k,
            temperature,
            before_copies=partial(_before_copies, before_outputs, size_bytes),
        )
        for index, value, token in zip(chosen, torch.split(values, lengths), torch.split(ids, lengths), strict=True):
            outputs[index] = replace(outputs[index], top_k_log_probs=value, top_k_ids=token)


def _add_logits_and_hidden_states(
    outputs: list[RequestOutputs],
    model: PackedModel,
    hidden_PH: Tensor,
    rows: PackedRows,
    requests: Sequence[Request],
    before_outputs: BeforeOutputs,
) -> None:
    for name in ("logits", "hidden_states"):
        chosen = [index for index, request in enumerate(requests) if getattr(request, name)]
        if not chosen:
            continue
        positions = concatenated([rows.request_positions[index] for index in chosen])
        if name == "logits":
            vocabulary = model.model_facts().vocabulary
            flat = full_logits(
                hidden_PH,
                model.head_logits,
                positions,
                vocabulary,
                before_copies=partial(
                    _before_copies, before_outputs, len(positions) * vocabulary * hidden_PH.dtype.itemsize
                ),
            )
        else:
            before_outputs(len(positions) * hidden_PH.shape[1] * hidden_PH.dtype.itemsize)
            flat = hidden_PH[torch.from_numpy(positions).to(hidden_PH.device)]
        lengths = [len(rows.request_positions[index]) for index in chosen]
        for index, piece in zip(chosen, torch.split(flat, lengths), strict=True):
            mine = outputs[index]
            outputs[index] = replace(mine, logits=piece) if name == "logits" else replace(mine, hidden_states=piece)


def _before_copies(before_outputs: BeforeOutputs, size_bytes: int, copied_bytes: int) -> None:
    before_outputs(size_bytes, copied_bytes=copied_bytes)
