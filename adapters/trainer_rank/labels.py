"""Labels: how much more the head would have taken, had every row of a wave been projected, all in one pass.

The head projects the rows that something is wanted of, a chunk at a time. So until a pass fills a chunk, its workspace
(some buffers of chunk x vocabulary) depends on how many labels are of interest (`-100` are not) and at how many
temperatures they are wanted, and waves of one signature differ in both: on a decoder of 4,096 tokens a wave with one
label in a hundred of interest took 1.2 MB, where the same rows with one in two took 4.4. Neither is a share of rows,
for beyond a chunk neither costs anything. A wave therefore teaches what it would have taken with every row projected in
one pass: its own peak and the workspace that it lacked of that. Waves that fill a chunk teach their own peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

import adapters.trainer_rank.head as head
from adapters.trainer_rank.head import IGNORED_TARGET
from adapters.trainer_rank.packed_model import ModelFacts
from adapters.trainer_rank.request import Request, target_entries
from adapters.trainer_rank.rows import Ints
from pricing.kernel.head_rows import chunk_rows, lacking_bytes

FP32_BYTES = 4


def is_tempered(requests: Iterable[Request]) -> bool:
    """Whether any request wants its numbers at another temperature than 1: that takes a buffer more in exact numbers.
    Part of the signature."""
    return any(request.temperature != 1.0 for request in requests)


def unprojected_bytes(
    requests: Sequence[Request],
    positions: Sequence[Ints],
    facts: ModelFacts,
    *,
    packed_rows: int,
    tempered: bool,
) -> int:
    """An upper bound on what the head lacked of its workspace in one forward of `requests`, whose rows are at
    `positions` of `packed_rows`. tempered: whether others of the call are at a temperature, which share the signature.

    All packed rows count, not those of the requests that want something of the head alone: how much these share differs
    from wave to wave, and shares are of logical rows.
    """
    most = 0
    lacks_buffer = tempered and not is_tempered(requests)
    buffer_bytes = max(FP32_BYTES, facts.dtype_bytes) if lacks_buffer else 0
    dear = tempered or any(request.entropy for request in requests)
    each_bytes = logit_bytes(facts.dtype_bytes, is_tempered=dear)
    for k in {None, *(request.top_k for request in requests)}:
        fullest = _fullest_pass(requests, positions, k)
        if fullest is None:
            continue
        rows = chunk_rows(packed_rows, head.HEAD_CHUNK_ROWS)
        most = max(most, lacking_bytes(rows, fullest, each_bytes, buffer_bytes, facts.vocabulary))
    return most


def uncopied_bytes(requests: Sequence[Request], positions: Sequence[Ints], facts: ModelFacts) -> int:
    """What one forward of rows of several kinds lacked where requests share rows that logits are wanted of.

    Logits are made once a distinct row, then copied to the requests that share it. Distinct rows of a kind are no share
    of the wave, its logical rows are: so it teaches as if no two of its requests shared any. (Of one kind all packed
    rows are distinct rows, which the laws price.)
    """
    rows = [found for request, found in zip(requests, positions, strict=True) if request.logits]
    if not rows:
        return 0
    every = np.concatenate(rows)
    return (len(every) - len(np.unique(every))) * facts.vocabulary * facts.dtype_bytes


def logit_bytes(dtype_bytes: int, *, is_tempered: bool) -> int:
    """The most that a chunk's workspace takes a logit: the logits, what the model does to them (two buffers: a soft
    cap), and in exact numbers the logits over temperature and one buffer of the same size. With entropies or a
    temperature one more.

    Worked out from the code of `head`: 16 B in fp32 and 14 B in bf16. Of a plain head in bf16 10 B were measured
    (`spec/evidence/h200-head`).
    """
    exact_bytes = max(FP32_BYTES, dtype_bytes)
    own_bytes = 0 if exact_bytes == dtype_bytes else dtype_bytes
    return own_bytes + 2 * dtype_bytes + (3 if is_tempered else 2) * exact_bytes


def _fullest_pass(requests: Sequence[Request], positions: Sequence[Ints], k: int | None) -> int | None:
    """Rows of the fullest pass there was, a chunk at most; None where nobody wanted any. k: of the passes that take the
    `k` likeliest tokens; None: of those that look at labels and entropies."""
    wanted: dict[float, list[Ints]] = {}
    for request, rows in zip(requests, positions, strict=True):
        if k is None and (request.targets is not None or request.entropy):
            wanted.setdefault(request.temperature, []).append(_labelled(request, rows))
        elif k is not None and request.top_k == k:
            wanted.setdefault(request.temperature, []).append(rows)
    return max((_chunk_rows(rows) for rows in wanted.values()), default=None)


def _labelled(request: Request, rows: Ints) -> Ints:
    if request.entropy:
        return rows
    positions, targets = target_entries(request, rows)
    kept: Ints = positions[targets != IGNORED_TARGET]
    return kept


def _chunk_rows(rows: Iterable[Ints]) -> int:
    """Distinct rows, a chunk at most."""
    found = list(rows)
    return chunk_rows(len(np.unique(np.concatenate(found))), head.HEAD_CHUNK_ROWS) if found else 0
