"""The random records reach every verdict, event and law: the properties above are about all of them."""

from __future__ import annotations

import pytest
from hypothesis import Phase, find, settings

from pricing.kernel.laws import LAWS
from pricing.planner.plan import Verdict
from pricing.records.record import DecisionRecord, Event
from tests.records.making import planned_records, priced_records

LOOK = settings(max_examples=3_000, derandomize=True, database=None, phases=[Phase.generate])


@pytest.mark.parametrize("verdict", list(Verdict))
def test_random_plans_reach_every_verdict(verdict: Verdict) -> None:
    assert find(planned_records(), lambda record: record.verdict == verdict, settings=LOOK).verdict == verdict


@pytest.mark.parametrize("event", list(Event))
def test_random_plans_reach_every_event(event: Event) -> None:
    assert find(planned_records(), lambda record: record.event is event, settings=LOOK).event is event


@pytest.mark.parametrize("law", sorted(LAWS))
def test_random_records_reach_every_law_with_something_learned(law: str) -> None:
    def learned(record: DecisionRecord) -> bool:
        return record.law == law and bool(record.price.terms)

    assert find(priced_records(), learned, settings=LOOK).law == law
    assert find(planned_records(), learned, settings=LOOK).law == law
