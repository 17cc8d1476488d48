"""The bound rank's answers against the original's own pricing code, within the laws' interval."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pricing.evidence.trace import read_trace
from pricing.kernel.law import BindingTerm
from tests.art.differential import Answer, Pair, compare, recorded_history

TRACES = sorted((Path(__file__).parents[2] / "spec" / "evidence" / "h200").glob("*.jsonl"))
HISTORIES = 2_400


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    return [answer for given in compare(range(HISTORIES)).values() for answer in given]


def test_no_answer_over_2400_random_histories_leaves_the_interval(answers: list[Answer]) -> None:
    assert [answer for answer in answers if not answer.is_inside] == []
    assert len(answers) > 12 * HISTORIES


def test_the_random_histories_reach_every_binding_term(answers: list[Answer]) -> None:
    reached = Counter(answer.binding_term for answer in answers)
    expected = set(BindingTerm) - {BindingTerm.NOTHING_TO_RUN, BindingTerm.FORECAST}  # ART forecasts nothing
    assert set(reached) == expected
    assert min(reached.values()) >= 50


def test_most_answers_are_the_same_to_a_millionth(answers: list[Answer]) -> None:
    """The interval is wide where a rate is: this says how close the answers are where figures are of real size."""
    real = [answer for answer in answers if answer.original_bytes > 1 << 30]
    close = [answer for answer in real if answer.difference_bytes <= answer.original_bytes * 1e-6]
    assert len(close) > 0.7 * len(real)


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.stem)
def test_recorded_histories_stay_inside_the_interval(trace: Path) -> None:
    history = recorded_history(read_trace(trace))
    given = Pair(history.geometry).ask(history)
    assert len(given) == 2 * len(read_trace(trace))
    assert [answer for answer in given if not answer.is_inside] == []


@pytest.mark.parametrize("law", ["logical", "packed", "frontier"])
def test_another_law_leaves_the_interval(law: str) -> None:
    """The comparison can fail: a law that is not the original's is caught within the first hundred histories."""
    given = [answer for answers in compare(range(100), law).values() for answer in answers]
    assert sum(not answer.is_inside for answer in given) > 10
