"""Devices that hold a third of what the budget claims, and errors injected anywhere: the short form of
`benchmarks.h200.survival_ranks`, whose runs are in `spec/evidence/survival`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.torch_distributed import DistributedQuorum
from adapters.torch_memory.out_of_memory import TEXTS
from benchmarks.h200.survival_ranks import ERRORS, Cell, cells, disagreements, run_cell, run_injection
from pricing.planner.quorum import SINGLE_PROCESS
from tests.adapters.torch_distributed.ranks import run_ranks
from tests.adapters.trainer_rank.support import CPU

PATIENT: dict[str, Any] = {"group_timeout_s": 120, "deadline_s": 400}
"""Seconds each take on a machine with nothing else to do; on a busy one nobody is to be called dead."""

SEEDS_OF_ONE, SEEDS_OF_TWO = range(8), range(8, 12)


def chosen(ranks: int) -> list[Cell]:
    """Two of four: both laws, both phases, with and without gradients there before."""
    made = cells([ranks])
    return [made[0], made[3]] if ranks == 1 else [made[1], made[2]]


@pytest.mark.parametrize("number", [0, 1])
def test_a_device_that_holds_a_third_trains_every_item(number: int, tmp_path: Path) -> None:
    cell = chosen(1)[number]
    for _ in ("two epochs", "restarted"):
        figures = run_cell(cell, SINGLE_PROCESS, 0, CPU, tmp_path / "profiles.json")
        assert figures["problems"] == []
    assert figures["is_restart"]


def cells_of_a_rank(folder: str, quorum: DistributedQuorum) -> list[dict[str, Any]]:
    return [
        run_cell(cell, quorum, quorum.rank, CPU, Path(folder, f"{number}-{quorum.rank}.json"))
        for number, cell in enumerate(chosen(2))
    ]


def test_one_rank_of_two_holds_a_third_and_both_go_on(tmp_path: Path) -> None:
    for name in ("first", "restarted"):
        outcomes = run_ranks(2, partial(cells_of_a_rank, str(tmp_path)), **PATIENT)
        assert [outcome.error for outcome in outcomes] == [None, None], outcomes
        for runs in zip(*(outcome.value for outcome in outcomes), strict=True):
            assert [run["problems"] for run in runs] == [[], []]
            assert runs[0][name]["out_of_memory"] == 0, "only the last rank is short of memory"


@pytest.mark.parametrize("seed", SEEDS_OF_ONE)
def test_errors_anywhere_lose_and_repeat_no_gradient(seed: int) -> None:
    outcome = run_injection(seed, SINGLE_PROCESS, 0, 1, CPU)
    assert outcome["problems"] == [], outcome


def seeds_of_a_rank(quorum: DistributedQuorum) -> list[dict[str, Any]]:
    return [run_injection(seed, quorum, quorum.rank, 2, CPU) for seed in SEEDS_OF_TWO]


def test_errors_on_any_rank_end_on_every_rank_alike() -> None:
    outcomes = run_ranks(2, seeds_of_a_rank, **PATIENT)
    assert [outcome.error for outcome in outcomes] == [None, None], outcomes
    for by_rank in zip(*(outcome.value for outcome in outcomes), strict=True):
        assert [run["problems"] for run in by_rank] == [[], []], by_rank
        assert disagreements(by_rank) == []
    assert any(run["raised"] for outcome in outcomes for run in outcome.value)


@pytest.mark.parametrize("text", TEXTS)
def test_every_kind_of_out_of_memory_is_injected(text: str) -> None:
    alternatives = [pattern for pattern in (text,) if any(re.search(pattern, error[1]) for error in ERRORS)]
    assert alternatives, f"no error of the list is {text}"
    assert torch.OutOfMemoryError in {kind for kind, _ in ERRORS}
