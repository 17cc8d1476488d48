"""One packed forward: packed rows in, each request's own outputs back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from adapters.trainer_rank.binding import PackedModel
from adapters.trainer_rank.head import full_logits, target_log_probs, top_k_log_probs
from adapters.trainer_rank.request import Request, RequestOutputs, concatenated, target_entries
from adapters.trainer_rank.rows import PackedRows


def packed_forward(
    model: PackedModel, rows: PackedRows, requests: Sequence[Request], *, grads: bool
) -> list[RequestOutputs]:
    """Run the decoder once on `rows` and give every request what it asked for, in order.

    `rows.request_positions` and `requests` belong together. Flat outputs are split into the requests' own, so that
    many small requests cost no buffer each.
    """
    assert len(rows.request_positions) == len(requests)
    with torch.set_grad_enabled(grads):
        hidden_PH = model.packed_hidden_states(rows)
        outputs = [RequestOutputs() for _ in requests]
        _add_target_log_probs(outputs, model, hidden_PH, rows, requests)
        _add_top_k(outputs, model, hidden_PH, rows, requests)
        _add_logits_and_hidden_states(outputs, model, hidden_PH, rows, requests)
    return outputs


def _add_target_log_probs(
    outputs: list[RequestOutputs], model: PackedModel, hidden_PH: Tensor, rows: PackedRows, requests: Sequence[Request]
) -> None:
    chosen = [index for index, request in enumerate(requests) if request.targets is not None]
    if not chosen:
        return
    entries = [target_entries(requests[index], rows.request_positions[index]) for index in chosen]
    flat_E = target_log_probs(
        hidden_PH,
        model.head_logits,
        concatenated([positions for positions, _ in entries]),
        concatenated([targets for _, targets in entries]),
    )
    pieces = torch.split(flat_E, [len(targets) for _, targets in entries])
    for index, piece in zip(chosen, pieces, strict=True):
        shaped = piece.reshape(np.shape(requests[index].targets))
        outputs[index] = replace(outputs[index], target_log_probs=shaped)


def _add_top_k(
    outputs: list[RequestOutputs], model: PackedModel, hidden_PH: Tensor, rows: PackedRows, requests: Sequence[Request]
) -> None:
    for k in sorted({request.top_k for request in requests if request.top_k is not None}):
        chosen = [index for index, request in enumerate(requests) if request.top_k == k]
        lengths = [len(rows.request_positions[index]) for index in chosen]
        positions = concatenated([rows.request_positions[index] for index in chosen])
        values, ids = top_k_log_probs(hidden_PH, model.head_logits, positions, k)
        for index, value, token in zip(chosen, torch.split(values, lengths), torch.split(ids, lengths), strict=True):
            outputs[index] = replace(outputs[index], top_k_log_probs=value, top_k_ids=token)


def _add_logits_and_hidden_states(
    outputs: list[RequestOutputs], model: PackedModel, hidden_PH: Tensor, rows: PackedRows, requests: Sequence[Request]
) -> None:
    for name in ("logits", "hidden_states"):
        chosen = [index for index, request in enumerate(requests) if getattr(request, name)]
        if not chosen:
            continue
        positions = concatenated([rows.request_positions[index] for index in chosen])
        if name == "logits":
            flat = full_logits(hidden_PH, model.head_logits, positions)
        else:
            flat = hidden_PH[torch.from_numpy(positions).to(hidden_PH.device)]
        lengths = [len(rows.request_positions[index]) for index in chosen]
        for index, piece in zip(chosen, torch.split(flat, lengths), strict=True):
            outputs[index] = replace(outputs[index], **{name: piece})
