"""ART's own planner over whole batches: with the original's pricing and with the bound kernel's."""

from __future__ import annotations

import random

from pricing.kernel.quantities import GIB, MIB
from tests.art.original import Geometry
from tests.art.planning_runs import Machine, Scenario, make_batch, random_scenario

RUNS = 80


def test_the_bound_planner_picks_the_waves_of_the_original_under_the_same_law() -> None:
    splits = refusals = waves = 0
    for seed in range(RUNS):
        scenario = random_scenario(seed)
        original, bound = scenario.run(None), scenario.run("warm")
        assert bound.choices == original.choices, f"seed {seed}"
        waves += len(original.waves)
        splits += any(wave.subforwards > 1 for wave in original.waves)
        refusals += original.refusal is not None
    assert waves > RUNS and splits >= 3 and refusals >= 3


def test_the_frontier_law_admits_wider_waves_and_none_above_the_budget() -> None:
    scenario = Scenario(
        items=make_batch(random.Random(3), prompts=16, rollouts=16, prompt=(512, 512), completion=(64, 512)),
        machine=Machine(row_bytes=275_200, fixed_bytes=800 * MIB, cold_bytes=2 * GIB, caller_percent=110),
        budget_bytes=8 * GIB,
        geometry=Geometry(hidden=4096, layers=8, ffn=12_288, heads=32, channels=128),
    )
    runs = {law: scenario.run(law) for law in (None, "logical", "packed", "warm", "frontier")}
    waves = {law: len(outcome.waves) for law, outcome in runs.items()}
    assert all(outcome.refusal is None for outcome in runs.values())
    assert waves["frontier"] < waves["warm"] == waves[None] <= waves["packed"] <= waves["logical"]
    assert all(
        wave.peak_bytes <= wave.required_bytes <= scenario.budget_bytes
        for outcome in runs.values()
        for wave in outcome.waves[1:]
        if not wave.cold
    )
