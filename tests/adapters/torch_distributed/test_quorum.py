"""The quorum over real gloo processes: agreement, errors that reach everyone, and that nothing ever hangs."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest

from adapters.torch_distributed import (
    DistributedQuorum,
    QuorumError,
    QuorumLostError,
    QuorumMismatchError,
    RankFailedError,
)
from adapters.torch_memory import BudgetSampleError
from pricing import Profile, Reading, RequestSpec, observe
from pricing.planner.plan import Batch, PlanRequest, Setting, WavePlan, plan_wave
from pricing.planner.quorum import PeerPlanningError
from tests.adapters.torch_distributed.ranks import GROUP_TIMEOUT_S, Outcome, run_ranks

SIZES = [2, 4]
GIVEN = (3, -7, 2**62, -(2**63))  # by rank


def _values(outcomes: list[Outcome]) -> list[Any]:
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes), outcomes
    return [outcome.value for outcome in outcomes]


def _errors(outcomes: list[Outcome]) -> list[str | None]:
    return [outcome.error for outcome in outcomes]


# Agreement -----------------------------------------------------------------------------------------------------------


def _agreements(quorum: DistributedQuorum) -> list[int | bool]:
    return [
        quorum.max(GIVEN[quorum.rank]),
        quorum.min(GIVEN[quorum.rank]),
        quorum.all_fit(True),
        quorum.all_fit(quorum.rank != quorum.size - 1),
        quorum.max(2**63 - 1),
    ]


@pytest.mark.parametrize("size", SIZES)
def test_every_rank_gets_the_same_exact_answers(size: int) -> None:
    given = GIVEN[:size]
    expected = [max(given), min(given), True, False, 2**63 - 1]
    assert _values(run_ranks(size, _agreements)) == [expected] * size


# Planning over the quorum --------------------------------------------------------------------------------------------

COLD_BYTES_PER_ROW = 10


def _floor_bytes(shape: Any, _cold: bool) -> int:
    return COLD_BYTES_PER_ROW * int(shape.packed_rows)


def _failing_floor(_shape: Any, _cold: bool) -> int:
    raise ArithmeticError("this rank cannot price")


def _batch(items: int, rows: int) -> Batch:
    """Items of one request each, `rows` long, sharing nothing."""
    spec = RequestSpec(input_shape=(rows,), target_shape=(rows,))
    return Batch(
        [[PlanRequest(tokens=[1_000 * item + row for row in range(rows)], spec=spec)] for item in range(items)]
    )


def _plan(quorum: DistributedQuorum, *, items: int = 3, available_bytes: int = 10**9, fails: bool = False) -> WavePlan:
    setting = Setting(floor_bytes=_failing_floor if fails else _floor_bytes)
    return plan_wave(
        _batch(items, rows=100), profiles={}, available_bytes=available_bytes, setting=setting, quorum=quorum
    )


def _shown(plan: WavePlan) -> tuple[str, int, bool]:
    return plan.verdict.value, plan.width, plan.refused_elsewhere


def _own_demand_against_own_budget(quorum: DistributedQuorum) -> list[tuple[str, int, bool]]:
    """Three waves: all fit; the last rank has no work left; the last rank's budget is 1 B too small."""
    is_last = quorum.rank == quorum.size - 1
    needed_bytes = _plan(quorum, items=3).required_bytes
    return [
        _shown(_plan(quorum, items=3)),
        _shown(_plan(quorum, items=0 if is_last else 3)),
        _shown(_plan(quorum, available_bytes=needed_bytes - 1 if is_last else needed_bytes)),
    ]


@pytest.mark.parametrize("size", SIZES)
def test_ranks_with_work_without_and_one_that_refuses(size: int) -> None:
    values = _values(run_ranks(size, _own_demand_against_own_budget))
    cold = ("cold_start", 1, False)
    for fitting in values[:-1]:
        assert fitting[:2] == [cold, cold], "an empty rank narrows nobody"
        assert fitting[2] == ("refuse", 1, True), "refused because another rank cannot"
    assert values[-1][0] == cold
    assert values[-1][1][0] == "empty"
    assert values[-1][2] == ("refuse", 1, False)


def _widths_over_many_waves(quorum: DistributedQuorum) -> list[tuple[int, int]]:
    """Twenty waves, each rank with its own random number of items and its own random budget: (agreed, run) a wave."""
    signature = _plan(quorum).signature
    seen = Reading(packed_rows=100, logical_rows=100, grad_segments=1, output_bytes=0, peak_delta_bytes=100_000)
    profiles = {signature: observe(Profile(), seen)}
    dice = random.Random(quorum.rank)
    widths = []
    for _ in range(20):
        plan = plan_wave(
            _batch(dice.randrange(2, 9), rows=100),
            profiles=profiles,
            available_bytes=dice.randrange(900_000, 10_000_000),
            setting=Setting(floor_bytes=_floor_bytes),
            quorum=quorum,
        )
        widths.append((plan.agreed_width, plan.width))
    return widths


@pytest.mark.parametrize("size", SIZES)
def test_all_ranks_run_the_same_width_in_every_wave(size: int) -> None:
    """Unless a rank has fewer items left than were agreed on."""
    by_rank = _values(run_ranks(size, _widths_over_many_waves))
    agreed = [[agreed_width for agreed_width, _ in widths] for widths in by_rank]
    assert all(widths == agreed[0] for widths in agreed)
    assert len(set(agreed[0])) > 1, "the budgets made a difference"
    for widths in by_rank:
        assert all(width <= agreed_width or agreed_width == 0 for agreed_width, width in widths)


def _one_rank_raises_while_planning(quorum: DistributedQuorum) -> tuple[str, int]:
    """The quorum stays usable: all ranks made the same calls. They agree again afterwards."""
    try:
        _plan(quorum, fails=quorum.rank == 0)
    except (ArithmeticError, PeerPlanningError) as error:
        return type(error).__name__, quorum.max(quorum.rank)
    return "planned", -1


@pytest.mark.parametrize("size", SIZES)
def test_a_rank_that_raises_while_planning_is_an_error_everywhere(size: int) -> None:
    values = _values(run_ranks(size, _one_rank_raises_while_planning))
    assert values == [("ArithmeticError", size - 1)] + [("PeerPlanningError", size - 1)] * (size - 1)


def _one_rank_cannot_sample(quorum: DistributedQuorum) -> tuple[str, tuple[int, ...], bool]:
    """A failed budget sample on rank 1, under the guard. Then another wave, in which all is well."""
    try:
        with quorum.guard():
            if quorum.rank == 1:
                raise BudgetSampleError("the driver did not answer")
        _plan(quorum)
    except BudgetSampleError:
        return "sample", (), quorum.all_fit(True)
    except RankFailedError as error:
        return "peer", error.ranks, quorum.all_fit(True)
    return "planned", (), False


@pytest.mark.parametrize("size", SIZES)
def test_a_failed_sample_on_one_rank_is_an_error_everywhere(size: int) -> None:
    values = _values(run_ranks(size, _one_rank_cannot_sample))
    expected: list[tuple[str, tuple[int, ...], bool]] = [("peer", (1,), True)] * size
    expected[1] = ("sample", (), True)
    assert values == expected


# What must not be agreed on ------------------------------------------------------------------------------------------


def _different_calls(quorum: DistributedQuorum) -> list[str]:
    """Rank 0 asks for a maximum while the others ask for a minimum. Afterwards the quorum is closed on all."""
    seen = []
    for _ in range(2):
        try:
            quorum.max(1) if quorum.rank == 0 else quorum.min(1)
        except QuorumError as error:
            seen.append(type(error).__name__)
    quorum.fail()  # tells nobody, hangs on nobody
    return seen


@pytest.mark.parametrize("size", SIZES)
def test_ranks_in_different_calls_are_told_so(size: int) -> None:
    values = _values(run_ranks(size, _different_calls))
    assert values == [[QuorumMismatchError.__name__, QuorumLostError.__name__]] * size


def _too_large(quorum: DistributedQuorum) -> int:
    return quorum.max(2**63 if quorum.rank == 0 else 1)


def test_a_value_beyond_64_bits_is_an_error_everywhere() -> None:
    outcomes = run_ranks(2, _too_large)
    assert _errors(outcomes) == [QuorumError.__name__, RankFailedError.__name__]
    assert str(2**63) in outcomes[0].text


# Ranks that go away --------------------------------------------------------------------------------------------------


def _killed_mid_wave(quorum: DistributedQuorum) -> int:
    """The last rank is killed between planning a wave and the next one."""
    _plan(quorum)
    if quorum.rank == quorum.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return _plan(quorum).width


SHORT_TIMEOUT_S = 4


def _never_comes(quorum: DistributedQuorum) -> int:
    """The last rank is alive but stuck in its wave for longer than the group waits."""
    _plan(quorum)
    if quorum.rank == quorum.size - 1:
        time.sleep(2 * SHORT_TIMEOUT_S)
        return 0
    return _plan(quorum).width


@pytest.mark.parametrize("size", SIZES)
def test_a_rank_killed_mid_wave_ends_the_others_with_an_error(size: int) -> None:
    outcomes = run_ranks(size, _killed_mid_wave)
    assert _errors(outcomes) == [QuorumLostError.__name__] * (size - 1) + ["died"]
    assert all(outcome.elapsed_s < GROUP_TIMEOUT_S for outcome in outcomes[:-1])
    assert all(f"of {size} lost its peers" in outcome.text for outcome in outcomes[:-1])


def test_a_rank_that_never_comes_ends_the_others_within_the_timeout() -> None:
    outcomes = run_ranks(2, _never_comes, group_timeout_s=SHORT_TIMEOUT_S)
    assert outcomes[0].error == QuorumLostError.__name__
    assert SHORT_TIMEOUT_S - 1 < outcomes[0].elapsed_s < SHORT_TIMEOUT_S + 3
