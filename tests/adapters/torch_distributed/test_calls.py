"""Ranks in different calls are told so, and ranks that differ in what they must have in common are told in what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from adapters.torch_distributed import DifferentCallsError, DifferentRanksError, DistributedQuorum, RankFailedError
from tests.adapters.torch_distributed.ranks import run_ranks

FACTS = {"packed-pricing": "0.2.0", "torch": "2.13.0", "law": "warm", "safety": "11/10"}


def values_of(size: int, scenario: Any) -> list[Any]:
    outcomes = run_ranks(size, scenario)
    assert [outcome.error for outcome in outcomes] == [None] * size, outcomes
    return [outcome.value for outcome in outcomes]


def one_leaves_early(quorum: DistributedQuorum) -> list[Any]:
    """A call of three waves; the last rank's caller catches an error after the first and begins its next call."""
    seen: list[Any] = []
    leaves = quorum.rank == quorum.size - 1
    call = quorum.begin_call()
    try:
        for item in (0, 4) if leaves else (0, 4, 8):
            quorum.at(call, item)
            if leaves and item == 4:
                call = quorum.begin_call()
                quorum.at(call, 0)
            seen.append(quorum.max(item))
    except DifferentCallsError as error:
        seen.append((error.marks, str(error)))
    for _ in range(2):  # all begin the next ones together, and agree
        quorum.at(quorum.begin_call(), 0)
        seen.append(quorum.min(quorum.rank))
    return seen


@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_that_began_its_next_call_does_not_pair_with_the_others_old_one(size: int) -> None:
    marks = ((1, 4),) * (size - 1) + ((2, 0),)
    for agreed, told, *after in values_of(size, one_leaves_early):
        assert agreed == 0
        assert told[0] == marks
        assert f"rank 0 in its call 1 at item 4, {'rank 1 in' if size > 2 else 'rank 1 in its call 2'}" in told[1]
        assert f"rank {size - 1} in its call 2 at item 0" in told[1]
        assert after == [0, 0]


def a_nested_call(quorum: DistributedQuorum) -> list[int]:
    outer = quorum.begin_call()
    quorum.at(outer, 0)
    seen = [quorum.max(1)]
    quorum.at(quorum.begin_call(), 0)
    seen.append(quorum.max(2))
    quorum.at(outer, 3)
    seen.append(quorum.max(3))
    return seen


def test_a_call_inside_a_wave_goes_back_to_the_outer_one() -> None:
    assert values_of(2, a_nested_call) == [[1, 2, 3]] * 2


def items_of_their_own(quorum: DistributedQuorum) -> int:
    """After a wave that ran out of memory on one rank, start items differ in one and the same call."""
    quorum.at(quorum.begin_call(), 3 * quorum.rank)
    return quorum.max(quorum.rank)


def test_start_items_may_differ_within_a_call() -> None:
    assert values_of(2, items_of_their_own) == [1, 1]


@pytest.mark.parametrize("name", [*FACTS, "quorum timeout"])
def test_what_ranks_differ_in_is_named_with_each_ranks_value(name: str) -> None:
    for text, differing, agreed in values_of(2, _INTRODUCTIONS[name]):
        assert list(differing) == [name]
        assert len(set(differing[name])) == 2
        assert f"{name}: rank 0 has {differing[name][0]!r}, rank 1 has {differing[name][1]!r}" in text
        assert agreed == 1


def _introduce(quorum: DistributedQuorum, name: str) -> Any:
    facts = dict(FACTS)
    if name == "quorum timeout":
        quorum = DistributedQuorum(timeout=timedelta(seconds=60 + quorum.rank))
    elif quorum.rank == 1:
        facts[name] += "x"
    try:
        quorum.introduce(facts)
    except DifferentRanksError as error:
        return str(error), error.differing, quorum.max(quorum.rank)
    return None


def differing_version(quorum: DistributedQuorum) -> Any:
    return _introduce(quorum, "packed-pricing")


def differing_torch(quorum: DistributedQuorum) -> Any:
    return _introduce(quorum, "torch")


def differing_law(quorum: DistributedQuorum) -> Any:
    return _introduce(quorum, "law")


def differing_safety(quorum: DistributedQuorum) -> Any:
    return _introduce(quorum, "safety")


def differing_timeout(quorum: DistributedQuorum) -> Any:
    return _introduce(quorum, "quorum timeout")


_INTRODUCTIONS = {
    "packed-pricing": differing_version,
    "torch": differing_torch,
    "law": differing_law,
    "safety": differing_safety,
    "quorum timeout": differing_timeout,
}


def alike(quorum: DistributedQuorum) -> int:
    quorum.introduce(FACTS)
    quorum.introduce({**FACTS, "long": "name" * 1_000})
    return quorum.max(quorum.rank)


def test_ranks_that_are_alike_go_on_whatever_the_facts_length() -> None:
    assert values_of(2, alike) == [1, 1]


def one_fails_before(quorum: DistributedQuorum) -> str:
    if quorum.rank == 1:
        quorum.fail()
        return "failed"
    try:
        quorum.introduce(FACTS)
    except RankFailedError as error:
        return str(error.ranks)
    return "no error"


def test_a_rank_that_fails_before_its_introduction_is_noticed() -> None:
    assert values_of(2, one_fails_before) == ["(1,)", "failed"]
