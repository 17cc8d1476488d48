"""The split ladder: rungs cost what their children say, pruning never discards a rung that fits, cuts are balanced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.kernel.law import Law
from pricing.kernel.laws import LAWS
from pricing.kernel.price import required_bytes, retained_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import DEFAULT_SAFETY, ceil_div
from pricing.kernel.rate_laws import WARM
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, Workload, workload_of
from pricing.kernel.wave import Wave
from pricing.planner import split
from pricing.planner.batch import Batch, PlanRequest
from pricing.planner.curve import gather
from pricing.planner.plan import Setting, Verdict, plan_wave
from pricing.planner.split import Ladder, RungBounds, rung_sizes, split_key
from pricing.testing import reachable_profiles
from tests.planner.naive import grpo, items, learned, naive_wave, only_signature, spec_groups, training_items
from tests.planner.test_width_search import laws

Items = Sequence[Sequence[PlanRequest]]
ladder_settings = st.builds(
    Setting,
    recompute=st.sampled_from([ONE_LAYER_FULL, NO_RECOMPUTE]),
    row_multiple=st.sampled_from([1, 64]),
    segment_state_bytes=st.sampled_from([0, 20_000]),
    checkpoint_retained_bytes=st.sampled_from([lambda shape: 0, lambda shape: 500 * shape.packed_rows]),
)
ladder_profiles = st.builds(
    learned,
    rows=st.sampled_from([10, 60, 200, 1_000]),
    sharing=st.sampled_from([1, 2, 5]),
    bytes_per_row=st.sampled_from([100, 1_000, 9_000]),
    waves=st.integers(0, 3),
    retained=st.booleans(),
)


def ladder_of(batch: Batch, profile: Profile, setting: Setting, law: Law, budget: int = 0) -> Ladder:
    return Ladder(
        batch=batch,
        requests=range(len(batch.requests)),
        workload=workload_of(spec_groups(batch.requests), setting.recompute),
        profile=profile,
        setting=setting,
        law=law,
        safety=DEFAULT_SAFETY,
        available_bytes=budget,
        measured_splits={},
        signature=only_signature(batch, Setting()),
    )


def all_cuts(ordered: Sequence[int], parts: int) -> Iterator[list[list[int]]]:
    """Every way to cut a sequence into `parts` contiguous parts that are not empty."""
    for places in combinations(range(1, len(ordered)), parts - 1):
        edges = [0, *places, len(ordered)]
        yield [list(ordered[low:high]) for low, high in pairwise(edges)]


@given(items=items, profile=ladder_profiles, setting=ladder_settings, law=laws)
def test_pruning_never_discards_a_rung_that_fits(items: Items, profile: Profile, setting: Setting, law: Law) -> None:
    """A rung's bound lies at or under its cost as cut, and under the cost of every other contiguous cut."""
    requests = [request for item in items for request in item if request.spec.is_active][:7]
    batch = Batch([requests])
    ladder = ladder_of(batch, profile, setting, law)
    bounds = RungBounds(ladder)
    ordered = batch.depth_first(range(len(requests)))
    for subforwards in range(2, len(requests) + 1):
        bound = bounds.lower_bound_bytes(subforwards)
        rung = replace(ladder, available_bytes=bound).rung(subforwards, bound)
        assert rung.cost_bytes is not None and bound <= rung.cost_bytes and len(rung.children) == subforwards
        for parts in all_cuts(ordered, subforwards):
            children = [ladder.child(part) for part in parts]
            retained = sum(child.retained_bytes for child in children)
            assert bound <= retained + max(child.required_bytes - child.retained_bytes for child in children)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_pruning_knows_that_a_rank_holds_a_part_of_the_rows(ranks: int, law: Law) -> None:
    setting = Setting(rank_rows=lambda shape, requests: ceil_div(shape.packed_rows, ranks))
    batch = Batch([[request for item in grpo(8, 1, 300, 100).items for request in item]])
    ladder = ladder_of(batch, learned(rows=1_000, bytes_per_row=90_000), setting, law)
    bounds = RungBounds(ladder)
    for subforwards in range(2, 9):
        bound = bounds.lower_bound_bytes(subforwards)
        cost = ladder.rung(subforwards, 0).cost_bytes
        assert cost is not None and bound <= cost


@given(items=training_items, profile=ladder_profiles, setting=ladder_settings, law=laws, budget=st.integers(0, 10**7))
def test_the_ladder_finds_what_brute_force_over_its_rungs_finds(
    items: Items, profile: Profile, setting: Setting, law: Law, budget: int
) -> None:
    batch = Batch([[request for item in items for request in item]])
    ladder = ladder_of(batch, profile, setting, law, budget)
    fitting = []
    for subforwards in rung_sizes(len(batch.requests)):
        rung = ladder.rung(subforwards, 0)
        assert rung.cost_bytes is not None
        if rung.cost_bytes <= budget:
            fitting.append(subforwards)
    tried = ladder.climb()
    assert [rung.subforwards for rung in tried if rung.fits] == fitting[:1]
    assert all(rung.lower_bound_bytes > budget for rung in tried if rung.pruned)


@given(items=training_items, profile=ladder_profiles, setting=ladder_settings, law=laws, budget=st.integers(0, 10**7))
def test_a_rung_costs_its_children_and_they_hold_every_request_once(
    items: Items, profile: Profile, setting: Setting, law: Law, budget: int
) -> None:
    batch = Batch([[request for item in items for request in item]])
    for rung in ladder_of(batch, profile, setting, law, budget).climb():
        if rung.cost_bytes is None:
            continue
        peaks = []
        for child in rung.children:
            bare = replace(setting, checkpoint_retained_bytes=lambda shape: 0)
            wave = naive_wave([batch.requests[at] for at in child.requests], bare)
            kept = setting.checkpoint_retained_bytes(gather(batch, child.requests, setting.row_multiple).shape)
            workload = child.wave.workload
            assert child.wave == replace(wave, checkpoint_retained_bytes=kept, workload=workload)
            assert child.required_bytes == required_bytes(child.wave, profile, law)
            assert child.retained_bytes == retained_bytes(child.wave, profile, law)
            others = sum(other.retained_bytes for other in rung.children if other is not child)
            peaks.append(child.required_bytes + others)
        assert rung.cost_bytes == max(peaks)
        ordered = batch.depth_first(range(len(batch.requests)))
        assert [at for child in rung.children for at in child.requests] == ordered


@given(items=training_items, parts=st.integers(1, 6), multiple=st.sampled_from([1, 64]))
def test_a_cut_has_the_least_largest_part_of_all_contiguous_cuts(items: Items, parts: int, multiple: int) -> None:
    requests = [request for item in items for request in item][:7]
    batch = Batch([requests])
    ordered = batch.depth_first(range(len(requests)))
    parts = min(parts, len(requests))

    def largest(cuts: list[list[int]]) -> int:
        return max(gather(batch, part, multiple).packed_rows for part in cuts)

    found = split.cut(batch, ordered, parts, multiple)
    assert [request for part in found for request in part] == ordered and len(found) == parts
    fewest = min(largest(cuts) for count in range(1, parts + 1) for cuts in all_cuts(ordered, count))
    assert largest(found) == fewest


@pytest.mark.invariant("INV-11")
@given(profile=reachable_profiles(), law=st.sampled_from(list(LAWS.values())), data=st.data())
def test_retained_lower_bound_is_one_for_every_layout(profile: Profile, law: Law, data: st.DataObject) -> None:
    """Layouts of one wave: more rows than at full sharing, any segments. Retained at full sharing may be above some."""
    if profile.is_empty:
        return
    rows = data.draw(st.integers(1, 2_000))
    logical = data.draw(st.integers(rows, 100 * rows))
    full = Wave(
        packed_rows=rows,
        logical_rows=logical,
        grad_segments=data.draw(st.integers(0, 20)),
        output_bytes=data.draw(st.integers(0, 10**6)),
        floor_bytes=data.draw(st.sampled_from([0, 10**7])),
        checkpoint_retained_bytes=data.draw(st.sampled_from([0, 10**6])),
        segment_state_bytes=data.draw(st.sampled_from([0, 10**5])),
        workload=Workload.training(shortest_rows=data.draw(st.sampled_from([20, 100]))),
    )
    bound = split.retained_lower_bound_bytes(full, profile, law, DEFAULT_SAFETY)
    for _ in range(4):
        layout = replace(
            full,
            packed_rows=data.draw(st.integers(rows, logical)),
            grad_segments=data.draw(st.integers(0, 40)),
        )
        assert bound <= retained_bytes(layout, profile, law)


def test_retained_at_full_sharing_is_no_lower_bound() -> None:
    """The window crossing: fully shared, the wave lies outside the sharing window and counts as keeping everything."""
    profile = learned(rows=1_000, sharing=1)
    full = Wave(
        packed_rows=100,
        logical_rows=900,
        grad_segments=1,
        output_bytes=0,
        workload=Workload.training(shortest_rows=100),
    )
    layout = replace(full, packed_rows=113)
    assert retained_bytes(full, profile, law=WARM) > retained_bytes(layout, profile, law=WARM)
    assert split.retained_lower_bound_bytes(full, profile, LAWS["warm"], DEFAULT_SAFETY) <= retained_bytes(
        layout,
        profile,
        law=WARM,
    )


def test_rung_sizes_climb_one_by_one_then_faster_and_end_at_one_request_a_child() -> None:
    assert list(rung_sizes(0)) == list(rung_sizes(1)) == []
    assert list(rung_sizes(5)) == [2, 3, 4, 5]
    sizes = list(rung_sizes(1_000))
    assert sizes[:16] == [*range(2, 17), 18] and sizes[-1] == 1_000
    assert len(sizes) < 70
    assert all(low < high <= low + max(1, low // 8) for low, high in pairwise(sizes))


def test_an_identical_split_costs_at_least_its_measured_peak() -> None:
    batch = grpo(prompts=1, rollouts=6, prompt=100, completion=400, whole=True)
    signature = only_signature(batch, Setting())
    arguments = {"profiles": {signature: learned(rows=2_000, bytes_per_row=90_000)}, "available_bytes": 160_000_000}
    plan = plan_wave(batch, **arguments, law=WARM)  # type: ignore[arg-type]
    assert plan.verdict is Verdict.SPLIT and plan.rungs[-1].measured_bytes is None
    measured = {split_key(signature, plan.children[::-1]): 160_000_001}  # in any order of the parts
    elsewhere = {split_key(replace(signature, recompute=NO_RECOMPUTE), plan.children): 160_000_001}
    assert plan_wave(batch, measured_splits=elsewhere, **arguments, law=WARM) == plan  # type: ignore[arg-type]
    again = plan_wave(batch, measured_splits=measured, **arguments, law=WARM)  # type: ignore[arg-type]
    held = again.rungs[len(plan.rungs) - 1]
    assert (held.measured_bytes, held.cost_bytes, held.fits) == (160_000_001, 160_000_001, False)
    assert again.subforwards > plan.subforwards


def test_a_split_says_how_it_is_cut() -> None:
    batch = grpo(prompts=1, rollouts=4, prompt=100, completion=400, whole=True)
    signature = only_signature(batch, Setting())
    profile = learned(rows=2_000, bytes_per_row=90_000)
    plan = plan_wave(batch, profiles={signature: profile}, available_bytes=120_000_000, law=WARM)
    assert (plan.width, plan.verdict, plan.subforwards) == (1, Verdict.SPLIT, len(plan.children))
    cost, whole = plan.rungs[-1].cost_bytes, plan.price
    assert cost is not None and whole is not None
    assert plan.required_bytes == cost <= 120_000_000 < whole.required_bytes
    layouts = plan.child_layouts(batch)
    assert [layout.packed_rows for layout in layouts] == [child.wave.packed_rows for child in plan.children]


def test_a_cold_wave_is_split_only_by_its_floor() -> None:
    """Children of a cold wave are priced cold: what they retain is unknown, so they cost their sum."""
    batch = grpo(prompts=1, rollouts=3, prompt=0, completion=100, whole=True)
    setting = Setting(floor_bytes=lambda shape, cold: 1_000 * shape.packed_rows)
    plan = plan_wave(batch, profiles={}, available_bytes=200_000, setting=setting, law=WARM)
    assert plan.verdict is Verdict.REFUSE
    assert [(rung.subforwards, rung.pruned or rung.cost_bytes) for rung in plan.rungs] == [(2, 441_761), (3, True)]
    over = plan_wave(batch, profiles={}, available_bytes=441_759, setting=setting, law=WARM)
    assert [(rung.subforwards, rung.cost_bytes) for rung in over.rungs] == [
        (2, 441_761),
        (3, 441_762),
    ]  # each rounded up


def test_a_thousand_requests_are_refused_in_good_time() -> None:
    batch = grpo(prompts=1, rollouts=1_000, prompt=100, completion=70, whole=True)
    profile = learned(rows=70_000, bytes_per_row=10_000)
    plan = plan_wave(batch, profiles={only_signature(batch, Setting()): profile}, available_bytes=200_000_000, law=WARM)
    assert plan.verdict is Verdict.REFUSE and len(plan.rungs) < 70
    assert plan.refusal is not None and "no feasible split found" in str(plan.refusal)
