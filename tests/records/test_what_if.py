"""What another law or safety factor would have decided, on examples worked out by hand."""

from __future__ import annotations

import pytest

from pricing import Profile, RequestSpec, Safety, Sharing, find_law
from pricing.planner.plan import Batch, PlanRequest, Verdict, WavePlan, plan_wave
from pricing.planner.quorum import SingleProcess
from pricing.records.recorder import record_of_plan, record_of_price
from pricing.records.replay import Answer, replay, what_if
from tests.making import a_wave, rate_profile, without_cache

ROWS = 1_000
PROFILE = without_cache(rate_profile(1_000_000, 8 * ROWS, Sharing(logical_rows=2, packed_rows=1)))
"""A megabyte a packed row, twofold sharing seen."""


def four_pairs() -> Batch:
    """Four items of two requests of 1,000 rows each, all on one prompt of 800 rows."""
    spec = RequestSpec(input_shape=(ROWS,), target_shape=(ROWS,))
    items = [
        [PlanRequest(tokens=[0] * 800 + [1 + 2 * item + request] * 200, spec=spec) for request in range(2)]
        for item in range(4)
    ]
    return Batch(items)


def planned(available_bytes: int, law: str, safety: str = "1") -> WavePlan:
    batch = four_pairs()
    signature = plan_wave(batch, profiles={}, available_bytes=0).signature
    return plan_wave(
        batch,
        profiles={signature: PROFILE},
        available_bytes=available_bytes,
        law=find_law(law),
        safety=Safety.parse(safety),
    )


def test_a_law_that_sees_no_packed_rows_would_have_run_narrower() -> None:
    """Packed: 800 + 8 x 200 = 2,400 rows, 2.40 GB + 49 MB of charge. Logical: 8,000 / 2 = 4,000 rows, 4.0 GB; the
    widest that fits 3.5 GB of those tried is 3 items (3,000 rows) if it was tried, or fewer."""
    plan = planned(3_500_000_000, "packed")
    assert (plan.verdict, plan.width) == (Verdict.RUN, 4)
    record = record_of_plan(plan)
    answer = what_if(record, find_law("logical"), record.safety)
    assert answer.answer is Answer.RUNS_NARROWER
    assert answer.required_bytes == 4_000_000_000 and answer.headroom_bytes == -500_000_000
    tried = {step.width: step.wave.logical_rows * 500_000 for step in plan.tried}
    assert answer.widest == max(width for width, price in tried.items() if price <= 3_500_000_000)


def test_a_refused_wave_runs_under_a_law_that_prices_it_lower() -> None:
    """One item: logical max(1,200, 2,000 / 2) rows, 1.2 GB; packed the same rows and 12 MB of charge."""
    plan = planned(1_205_000_000, "packed")
    refused = record_of_plan(plan)
    assert plan.required_bytes == 1_200_000_000 + 2_000 * 6_144
    assert plan.verdict is not Verdict.RUN
    answer = what_if(refused, find_law("logical"), refused.safety)
    assert (answer.answer, answer.required_bytes, answer.widest) == (Answer.RUNS, 1_200_000_000, 1)


def test_nothing_recorded_fits_under_a_much_larger_safety() -> None:
    record = record_of_price(a_wave(1_000), PROFILE, available_bytes=1_100_000_000, safety=Safety.parse(1))
    assert record.verdict == "run"
    answer = what_if(record, find_law("warm"), Safety.parse(2))
    assert (answer.answer, answer.widest) == (Answer.REFUSED, None)
    assert answer.required_bytes == 2 * record.required_bytes


@pytest.mark.parametrize("law", ["logical", "packed", "warm", "frontier"])
def test_a_rank_that_could_have_run_is_told_apart_from_one_that_refuses(law: str) -> None:
    class OtherRankRefuses(SingleProcess):
        def all_fit(self, fits: bool) -> bool:
            return False

    batch = four_pairs()
    signature = plan_wave(batch, profiles={}, available_bytes=0).signature
    plan = plan_wave(
        batch,
        profiles={signature: PROFILE},
        available_bytes=1 << 40,
        law=find_law(law),
        quorum=OtherRankRefuses(),
    )
    record = record_of_plan(plan)
    assert record.verdict == "refuse" and record.refused_elsewhere
    assert replay(record).is_equal
    assert what_if(record, find_law(law), record.safety).answer is Answer.RUNS


def test_the_empty_profile_prices_cold_under_every_law() -> None:
    record = record_of_price(a_wave(1_000, floor_bytes=77), Profile(), available_bytes=1_000, safety=Safety.parse(1))
    for law in ("logical", "packed", "warm", "frontier"):
        answer = what_if(record, find_law(law), record.safety)
        assert (answer.binding_term, answer.required_bytes) == ("cold", 103)  # ceil(4 / 3 * 77)
