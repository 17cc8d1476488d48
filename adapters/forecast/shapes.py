"""The waves that a forecast runs: small ones of a given kind, that differ in one quantity at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch

from adapters.forecast.trace import TracedGroup
from adapters.trainer_rank.request import Request
from adapters.trainer_rank.rows import PackedRows, branched_rows

CPU = torch.device("cpu")

SHORT_ROWS = 64
"""The shortest request that the laws charge for: a request's constants are then spread over this many rows."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RequestKind:
    """What a request asks for, without its tokens. labels: how many a token; 0 for none."""

    grads: bool = True
    labels: int = 1
    top_k: int = 0
    logits: bool = False
    hidden_states: bool = False
    entropy: bool = False
    auxiliary_loss: bool = False
    temperature: float = 1.0

    @classmethod
    def of(cls, request: Request) -> RequestKind:
        rows = int(np.prod(np.shape(request.tokens)))
        labels = 0 if request.targets is None else int(np.prod(np.shape(request.targets)))
        return cls(
            grads=request.grads,
            labels=-(-labels // max(1, rows)),
            top_k=request.top_k or 0,
            logits=request.logits,
            hidden_states=request.hidden_states,
            entropy=request.entropy,
            auxiliary_loss=request.auxiliary_loss,
            temperature=float(request.temperature),
        )

    def request(self, rows: int) -> Request:
        """One of `rows` tokens, all 0: no value is ever looked at."""
        shape = (rows,) if self.labels == 1 else (rows, self.labels)
        return Request(
            tokens=np.zeros(rows, dtype=np.int64),
            targets=np.zeros(shape, dtype=np.int64) if self.labels else None,
            top_k=self.top_k or None,
            logits=self.logits,
            hidden_states=self.hidden_states,
            entropy=self.entropy,
            auxiliary_loss=self.auxiliary_loss,
            temperature=self.temperature,
            grads=self.grads,
        )

    @property
    def is_active(self) -> bool:
        wants = (self.labels, self.top_k, self.logits, self.hidden_states, self.entropy, self.auxiliary_loss)
        return any(bool(wanted) for wanted in wants)


TRAINING = RequestKind()
"""Gradients of single-target log-probabilities."""

Families = Sequence[tuple[int, Sequence[int]]]


def single(rows: int) -> Families:
    """One request that shares nothing."""
    return [(rows, ())]


def many_short(rows: int) -> Families:
    """The same rows in requests of `SHORT_ROWS`: more segments."""
    return [(SHORT_ROWS, ())] * (rows // SHORT_ROWS)


def with_duplicates(rows: int) -> Families:
    """The same rows, and requests of `SHORT_ROWS` that own the first of them once more: more logical rows."""
    return [(SHORT_ROWS, (rows - SHORT_ROWS, *[0] * (rows // SHORT_ROWS - 1)))]


def groups_of(kinds: Iterable[RequestKind], families: Families) -> list[TracedGroup]:
    """A wave in which the requests of every kind have these families; kinds of one grad mode share no rows here."""
    ordered = sorted(set(kinds))
    groups = []
    for grads, members in groupby(ordered, key=lambda kind: kind.grads):
        chosen = list(members)
        rows = _rows(families, len(chosen))
        each = len(rows.request_positions) // len(chosen)
        requests = [
            chosen[index // each].request(len(positions)) for index, positions in enumerate(rows.request_positions)
        ]
        groups.append(TracedGroup(rows=rows, requests=requests, grads=grads))
    return groups


def _rows(families: Families, copies: int) -> PackedRows:
    none = [
        (np.zeros(prompt, dtype=np.int64), [np.zeros(size, dtype=np.int64) for size in branches])
        for prompt, branches in families
    ]
    return branched_rows(none * copies, CPU)
