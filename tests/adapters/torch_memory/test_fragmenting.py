"""Random histories on a fragmenting device: the short form of `fragmenting`, and what its full run said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pricing import LAWS
from tests.adapters.torch_memory.fragmenting import Tally, broken_promises, obeys, run_histories

RECORDED = Path(__file__).resolve().parents[3] / "spec" / "evidence" / "fragmenting.json"


@pytest.mark.invariant("INV-16", "INV-17", "INV-18")
@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_no_admitted_wave_fails_where_assumptions_hold_and_failures_end_where_they_do_not(law: object) -> None:
    kinds = run_histories(law, 16)  # type: ignore[arg-type]
    assert {kind: broken_promises(tally) for kind, tally in kinds.items()} == {"honest": [], "scarce": []}
    assert kinds["honest"].obeying > 0 and kinds["scarce"].failures > 0


def test_the_recorded_full_run_broke_no_promise() -> None:
    laws = json.loads(RECORDED.read_text())["laws"]
    assert laws.keys() == LAWS.keys()
    for kinds in laws.values():
        tallies = [Tally(**figures) for figures in kinds.values()]
        assert [broken_promises(tally) for tally in tallies] == [[], []]
        assert sum(tally.histories for tally in tallies) >= 1_000
        assert min(tally.waves for tally in tallies) > 5_000 and sum(tally.failures for tally in tallies) > 100


def test_a_machine_that_outgrows_its_rows_does_not_obey() -> None:
    grows = {1: (10, 10), 2: (20, 20)}
    assert obeys(grows, (1, 2)) and obeys(grows | {2: (22, 22)}, (1, 2))
    assert not obeys(grows | {2: (22, 23)}, (1, 2)) and not obeys(grows | {2: (9, 9)}, (1, 2))
