"""E11 in the planner: an item without rows at the front stops nothing."""

from __future__ import annotations

import pytest

from pricing import Profile, Reading, RequestSpec, observe
from pricing.planner.plan import Batch, PlanRequest, Verdict, plan_batch, plan_wave


def request(rows: int) -> PlanRequest:
    return PlanRequest(
        tokens=list(range(rows)), spec=RequestSpec(input_shape=(rows,), target_shape=(rows,)), output_bytes=4 * rows
    )


@pytest.mark.parametrize("empties", [1, 3])
def test_e11_planning_goes_on_behind_items_without_rows(empties: int) -> None:
    batch = Batch([[request(0)] for _ in range(empties)] + [[request(100)], [request(120)]])
    plan = plan_batch(batch, profiles={}, available_bytes=1 << 30)
    assert [wave.wave.packed_rows for wave in plan.waves] == [0] * (len(plan.waves) - 1) + [100]
    assert plan.waves[-1].verdict is Verdict.COLD_START
    assert plan.unplanned_items == 1 and plan.stopped is not None


def test_e11_with_a_profile_the_whole_batch_is_planned() -> None:
    batch = Batch([[request(0)], [request(100)], [request(0)], [request(120)]])
    signature = plan_wave(batch, start=1, profiles={}, available_bytes=1 << 30).signature
    reading = Reading(packed_rows=100, logical_rows=100, grad_segments=1, output_bytes=400, peak_delta_bytes=1_000_000)
    profiles = {signature: observe(observe(Profile(), reading), reading)}
    plan = plan_batch(batch, profiles=profiles, available_bytes=1 << 30)
    assert plan.unplanned_items == 0 and plan.stopped is None
    assert sum(wave.wave.packed_rows for wave in plan.waves) >= 120
