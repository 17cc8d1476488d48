"""Ranks that agree: threads for ranks, a real barrier, every collective counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pricing.kernel.profile import Profile
from pricing.kernel.quantities import GIB
from pricing.kernel.rate_laws import WARM
from pricing.kernel.requests import Signature
from pricing.planner.batch import Batch
from pricing.planner.plan import Setting, Verdict, WavePlan, plan_wave
from pricing.planner.quorum import UNBOUNDED_WIDTH, PeerPlanningError, Quorum, SingleProcess
from tests.planner.naive import grpo, learned, only_signature

ANSWER_SECONDS = 20


class Ranks:
    """`count` ranks of one process. A rank that misses a collective breaks the barrier, and the test."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count)
        self._values: dict[int, Any] = {}
        self.calls: list[list[str]] = [[] for _ in range(count)]

    def gather(self, rank: int, name: str, value: Any) -> list[Any]:
        self.calls[rank].append(name)
        self._values[rank] = name, value
        self._barrier.wait(ANSWER_SECONDS)
        gathered = list(self._values.values())
        self._barrier.wait(ANSWER_SECONDS)
        assert {other for other, _ in gathered} == {name}, "ranks met in different collectives"
        return [value for _, value in gathered]

    def run(self, act: Callable[[int, Quorum], WavePlan]) -> list[WavePlan | Exception]:
        """What `act` returns or raises on every rank."""
        results: list[Any] = [None] * len(self.calls)

        def rank(number: int) -> None:
            try:
                results[number] = act(number, ThreadQuorum(self, number))
            except Exception as error:
                results[number] = error

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(self.calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class ThreadQuorum:
    def __init__(self, ranks: Ranks, rank: int) -> None:
        self._ranks, self._rank = ranks, rank

    def all_fit(self, fits: bool) -> bool:
        return all(self._ranks.gather(self._rank, "all_fit", fits))

    def max(self, value: int) -> int:
        assert -(1 << 63) <= value < 1 << 63
        return max(int(value) for value in self._ranks.gather(self._rank, "max", value))

    def min(self, value: int) -> int:
        assert -(1 << 63) <= value < 1 << 63
        return min(int(value) for value in self._ranks.gather(self._rank, "min", value))


PROFILE = learned(rows=5_000, bytes_per_row=10_000)
SMALL = grpo(prompts=2, rollouts=8, prompt=100, completion=100)


def plan_ranks(
    batches: Sequence[Batch],
    budgets: Sequence[int],
    *,
    starts: Sequence[int] | None = None,
    settings: Sequence[Setting | Callable[[], Setting]] | None = None,
    profiles: Sequence[Mapping[Signature, Profile]] | None = None,
) -> tuple[list[Any], list[list[str]]]:
    """One wave on every rank; plans or errors, and the collectives each rank made."""
    ranks = Ranks(len(batches))

    def act(rank: int, quorum: Quorum) -> WavePlan:
        known = {only_signature(SMALL, Setting()): PROFILE} if profiles is None else profiles[rank]
        return plan_wave(
            batches[rank],
            start=0 if starts is None else starts[rank],
            profiles=known,
            available_bytes=budgets[rank],
            setting=None if settings is None else settings[rank],
            quorum=quorum,
            law=WARM,
        )

    plans = ranks.run(act)
    assert all(calls == ranks.calls[0] for calls in ranks.calls), ranks.calls
    return plans, ranks.calls


def test_ranks_run_the_least_width() -> None:
    plans, calls = plan_ranks([SMALL, SMALL, SMALL], [GIB, 10_000_000, 20_000_000])
    alone = [
        plan_wave(SMALL, profiles={only_signature(SMALL, Setting()): PROFILE}, available_bytes=10_000_000, law=WARM)
    ]
    assert [plan.width for plan in plans] == [alone[0].width] * 3
    assert all(plan.verdict is Verdict.RUN and plan.agreed_width == alone[0].width for plan in plans)
    assert calls[0] == ["min", "all_fit"]


def test_a_rank_with_nothing_left_narrows_nobody() -> None:
    plans, calls = plan_ranks([SMALL, SMALL], [GIB, 0], starts=[0, len(SMALL)])
    assert [(plan.width, plan.verdict) for plan in plans] == [(16, Verdict.RUN), (0, Verdict.EMPTY)]
    assert plans[0].agreed_width == UNBOUNDED_WIDTH and calls[0] == ["min", "all_fit"]


def test_ranks_with_fewer_items_run_what_they_have() -> None:
    plans, _ = plan_ranks([SMALL, SMALL], [GIB, GIB], starts=[0, 13])
    assert [plan.width for plan in plans] == [16, 3]


def test_a_cold_rank_makes_every_rank_start_narrow() -> None:
    known = {only_signature(SMALL, Setting()): PROFILE}
    plans, _ = plan_ranks([SMALL, SMALL], [GIB, GIB], profiles=[known, {}])
    assert [(plan.width, plan.verdict) for plan in plans] == [(1, Verdict.RUN), (1, Verdict.COLD_START)]


def test_one_rank_that_must_refuse_refuses_for_all() -> None:
    plans, calls = plan_ranks([SMALL, SMALL], [GIB, 100])
    assert [(plan.width, plan.verdict) for plan in plans] == [(1, Verdict.REFUSE)] * 2
    assert [plan.refused_elsewhere for plan in plans] == [True, False]
    assert plans[0].refusal is None and plans[1].refusal is not None
    assert calls[0] == ["min", "max", "all_fit"]


def test_a_rank_that_splits_tells_the_others_how_often() -> None:
    whole = grpo(prompts=2, rollouts=4, prompt=100, completion=400, whole=True)
    known = {only_signature(whole, Setting()): learned(rows=2_000, bytes_per_row=90_000)}
    plans, _ = plan_ranks([whole, whole], [GIB, 120_000_000], profiles=[known, known])
    assert [(plan.width, plan.verdict) for plan in plans] == [(1, Verdict.RUN), (1, Verdict.SPLIT)]
    assert plans[0].subforwards == plans[1].subforwards == len(plans[1].children) > 1


class PlanningBroke(Exception):
    pass


def broken(*_: object) -> int:
    raise PlanningBroke("no floor today")


def broken_when_split(shape: Any, cold: bool) -> int:
    if shape.logical_rows < 500:
        raise PlanningBroke("no floor for a piece")
    return 0


def test_an_error_on_one_rank_reaches_all_as_an_error() -> None:
    plans, calls = plan_ranks([SMALL] * 3, [GIB] * 3, settings=[Setting(), Setting(floor_bytes=broken), Setting()])
    assert [type(plan) for plan in plans] == [PeerPlanningError, PlanningBroke, PeerPlanningError]
    assert calls[0] == ["min"]


def unreadable_model() -> Setting:
    raise PlanningBroke("the decoder says nothing of recompute")


def test_a_model_that_cannot_be_read_reaches_all_as_an_error() -> None:
    plans, calls = plan_ranks([SMALL] * 2, [GIB] * 2, settings=[Setting, unreadable_model])
    assert [type(plan) for plan in plans] == [PeerPlanningError, PlanningBroke]
    assert calls[0] == ["min"]


def test_a_bad_argument_on_one_rank_reaches_all_as_an_error() -> None:
    plans, _ = plan_ranks([SMALL, SMALL], [GIB, GIB], starts=[0, 99])
    assert isinstance(plans[0], PeerPlanningError) and "start" in str(plans[1])


def test_an_error_while_splitting_reaches_all_as_an_error() -> None:
    whole = grpo(prompts=1, rollouts=2, prompt=100, completion=300, whole=True)
    known = {only_signature(whole, Setting()): learned(rows=2_000, bytes_per_row=90_000)}
    settings = [Setting(floor_bytes=broken_when_split), Setting()]
    plans, calls = plan_ranks([whole, whole], [1_000_000, GIB], settings=settings, profiles=[known, known])
    assert [type(plan) for plan in plans] == [PlanningBroke, PeerPlanningError]
    assert calls[0] == ["min", "max"]


@pytest.mark.parametrize("value", [0, 7, 1 << 62])
def test_a_single_process_agrees_with_itself(value: int) -> None:
    quorum = SingleProcess()
    assert (quorum.min(value), quorum.max(value)) == (value, value)
    assert quorum.all_fit(True) and not quorum.all_fit(False)


def test_an_error_at_the_agreed_width_reaches_all_as_a_vote_against() -> None:
    """A narrower rank asks for a width that this rank never priced, and pricing it raises here."""
    asked: list[int] = []

    def breaks_when_asked_again(shape: Any, cold: bool) -> int:
        if shape.output_bytes == 0:
            return 0  # asked of the rows that were seen, not of a width
        if asked and shape.logical_rows < asked[-1]:
            raise PlanningBroke("no floor at this width")
        asked.append(shape.logical_rows)
        return 0

    settings = [Setting(floor_bytes=breaks_when_asked_again), Setting()]
    plans, calls = plan_ranks([SMALL, SMALL], [GIB, 10_000_000], settings=settings)
    assert isinstance(plans[0], PlanningBroke)
    assert plans[1].verdict is Verdict.REFUSE and plans[1].refused_elsewhere
    assert calls[0] == ["min", "all_fit"]
