"""Ranks whose model has collectives of its own: all run the same passes in each wave, or none runs it.

A sharded model gathers its parameters in every forward and backward, so a rank that ran one more or fewer than the
others would wait for them for ever. Before each wave the ranks agree on what it is: one forward, with or without a
backward. A rank without rows runs one row, and its backward, before the wave is handed out; that row is not priced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

from adapters.wave_loop.errors import OutOfStepError
from adapters.wave_loop.wave import WaveStats
from adapters.wave_loop.work import Work
from pricing.planner.plan import Verdict
from pricing.planner.quorum import Quorum

_NOTHING, _FORWARD, _BOTH, _SEVERAL = range(4)
_ANY: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Passes:
    """What every rank runs in a wave."""

    is_run: bool
    has_grads: bool


NOT_IN_STEP: Final = Passes(is_run=False, has_grads=False)


def passes_of(work: Work[Any], stats: WaveStats) -> int:
    """What this rank has to run: nothing, one forward, one with its backward, or several forwards."""
    plan = stats.plan
    if plan.wave.packed_rows == 0:
        return _NOTHING
    if plan.verdict is Verdict.SPLIT or plan.signature.group_count != 1:
        return _SEVERAL
    return _BOTH if plan.wave.workload.grads else _FORWARD


def agree_on_passes(quorum: Quorum, passes: int, *, keeps_outputs: bool) -> Passes:
    """Two collectives. Raises `OutOfStepError` on every rank where they cannot run the same."""
    most = quorum.max(passes)
    least = quorum.min(passes if passes != _NOTHING else _ANY)
    if most == _SEVERAL:
        raise OutOfStepError(
            "a wave of a sharded model is one forward on every rank: this one would be cut, or has rows with and "
            "without gradients; give each kind a call of its own, and a smaller item"
        )
    if most != least and most != _NOTHING:
        raise OutOfStepError(
            "a sharded model runs the same on every rank: in this wave some have rows with gradients, some without"
        )
    if most == _BOTH and keeps_outputs:
        raise OutOfStepError(
            "of a sharded model each wave's backward runs before the next wave: use forward_micro_batches"
        )
    return Passes(is_run=most != _NOTHING, has_grads=most == _BOTH)


def one_row(work: Work[Any], *, grads: bool) -> torch.Tensor | None:
    """Forward of a row that nobody asked for; with `grads` its loss of 0, whose backward is owed."""
    run: Any = work
    loss: torch.Tensor | None = run.one_row(grads=grads)
    return loss
