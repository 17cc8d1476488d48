"""The width search against its contract, asked width by width by brute force; verdicts where nothing fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.kernel.errors import QuantityError
from pricing.kernel.law import Law
from pricing.kernel.laws import LAWS
from pricing.kernel.price import price, required_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, GIB, MIB, TRUST_GROWTH
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import NO_RECOMPUTE, RecomputeMode
from pricing.planner.batch import Batch, PlanRequest
from pricing.planner.budget import fits
from pricing.planner.curve import WaveShape
from pricing.planner.plan import Setting, Verdict, WavePlan, plan_batch, plan_wave
from tests.planner.naive import (
    grpo,
    items,
    learned,
    naive_wave,
    naive_width,
    only_signature,
    plan_request,
    profile_books,
    training_items,
)

Items = Sequence[Sequence[PlanRequest]]
laws = st.sampled_from(list(LAWS.values()))
budgets = st.one_of(st.integers(-5, 5), st.integers(0, 3_000_000), st.sampled_from([10**7, 10**9]))
settings = st.builds(
    Setting,
    recompute=st.sampled_from([RecomputeMode(granularity="full", method="uniform", num_layers=1), NO_RECOMPUTE]),
    row_multiple=st.sampled_from([1, 1, 64]),
    segment_state_bytes=st.sampled_from([0, 0, 20_000]),
)


@given(items=items, law=laws, setting=settings, budget=budgets, data=st.data())
def test_answer_is_the_largest_width_all_of_whose_smaller_widths_are_feasible(
    items: Items, law: Law, setting: Setting, budget: int, data: st.DataObject
) -> None:
    batch = Batch(items)
    profiles = data.draw(profile_books(batch, setting))
    start = data.draw(st.integers(0, len(batch)))
    plan = plan_wave(batch, start=start, profiles=profiles, available_bytes=budget, setting=setting, law=law)
    expected = naive_width(batch, start, profiles, budget, setting, law)
    if expected:
        assert (plan.width, plan.verdict) in ((expected, Verdict.RUN), (1, Verdict.COLD_START))
    elif start == len(batch):
        assert (plan.width, plan.verdict) == (0, Verdict.EMPTY)
    else:
        assert plan.width == 1 and plan.verdict in (Verdict.SPLIT, Verdict.PROBE, Verdict.REFUSE)


@given(items=items, law=laws, setting=settings, budget=budgets, data=st.data())
def test_what_runs_is_what_was_priced_and_never_over_budget(
    items: Items, law: Law, setting: Setting, budget: int, data: st.DataObject
) -> None:
    batch = Batch(items)
    profiles = data.draw(profile_books(batch, setting))
    for plan in plan_batch(batch, profiles=profiles, available_bytes=budget, setting=setting, law=law).waves:
        requests = [batch.requests[at] for at in plan.requests]
        own = naive_wave(requests, setting)
        if plan.signature in profiles or not plan.signature.shares:
            assert plan.wave == own
        else:  # by a relative's evidence: as at least as many rows, and learned as its own
            assert plan.wave == replace(own, packed_rows=plan.wave.packed_rows, logical_rows=plan.wave.logical_rows)
            assert plan.wave.packed_rows >= own.packed_rows and plan.wave.logical_rows >= own.logical_rows
        assert plan.price == price(plan.wave, plan.profile, law)
        assert plan.layout(batch).packed_rows == own.packed_rows
        assert plan.verdict in (Verdict.PROBE, Verdict.REFUSE) or fits(plan.required_bytes, budget)
        assert plan.runs == (plan.refusal is None)
        assert plan.headroom_bytes == budget - plan.required_bytes


@given(items=items, law=laws, setting=settings, budget=budgets, data=st.data())
def test_every_request_is_in_exactly_one_wave_in_order(
    items: Items, law: Law, setting: Setting, budget: int, data: st.DataObject
) -> None:
    batch = Batch(items)
    profiles = data.draw(profile_books(batch, setting))
    plan = plan_batch(batch, profiles=profiles, available_bytes=budget, setting=setting, law=law)
    requests = [request for wave in plan.waves for request in wave.requests]
    planned = len(batch) - plan.unplanned_items
    assert requests == list(range(batch.first_request[planned]))
    assert [wave.start for wave in plan.waves] == [0, *[wave.next_start for wave in plan.waves]][:-1]
    assert (plan.stopped is not None) == (plan.unplanned_items > 0)


@pytest.mark.invariant("INV-1", "INV-2")
@given(items=items, law=laws, setting=settings, budget=budgets, data=st.data())
def test_within_a_regime_feasibility_is_monotone(
    items: Items, law: Law, setting: Setting, budget: int, data: st.DataObject
) -> None:
    """Every width that the search says fits, or not, agrees with all others of its regime."""
    batch = Batch(items)
    profiles = data.draw(profile_books(batch, setting))
    plan = plan_wave(batch, profiles=profiles, available_bytes=budget, setting=setting, law=law)
    for one in plan.tried:
        for other in plan.tried:
            same = one.signature == other.signature
            same &= one.wave.workload.has_short_request == other.wave.workload.has_short_request
            if same and one.width < other.width:
                assert one.required_bytes <= other.required_bytes
                assert one.fits or not other.fits


@pytest.mark.invariant("INV-14")
@given(items=items, law=laws, budget=budgets, data=st.data())
def test_every_tried_width_replays_from_its_own_record(
    items: Items, law: Law, budget: int, data: st.DataObject
) -> None:
    batch, setting = Batch(items), Setting()
    profiles = data.draw(profile_books(batch, setting))
    plan = plan_wave(batch, profiles=profiles, available_bytes=budget, setting=setting, law=law)
    consulted = dict(plan.consulted)
    for tried in plan.tried:
        profile = consulted[tried.signature]
        assert tried.required_bytes == required_bytes(tried.wave, profile, law)
        trusted = not profile.is_empty and tried.wave.packed_rows <= TRUST_GROWTH * profile.largest_packed_rows
        learned_of = not profile.is_empty or tried.signature.group_count == 0
        assert (tried.trusted, tried.learned) == (trusted, learned_of) or tried.wave.packed_rows == 0
        feasible = fits(tried.required_bytes, budget) and (tried.trusted if tried.learned else tried.width == 1)
        assert tried.fits == feasible


def test_the_search_asks_about_few_widths_and_grows_no_further_than_twice_the_answer() -> None:
    batch = grpo(prompts=64, rollouts=8, prompt=40, completion=40)
    profile = learned(rows=100_000)
    signature = only_signature(batch, Setting())
    plan = plan_wave(batch, profiles={signature: profile}, available_bytes=90_000_000, law=WARM)
    assert 100 < plan.width < 512
    assert len(plan.tried) <= 2 * plan.width.bit_length() + 2
    assert max(tried.width for tried in plan.tried) <= 2 * plan.width


def test_a_short_request_ends_a_regime_and_may_lower_the_price() -> None:
    """From packed to logical pricing the charge goes: the price drops, and the search still takes widths in order."""
    batch = Batch([[plan_request([0, 1, 2])], [plan_request([0, 1, 1])], [plan_request([0, 2])], [plan_request([2])]])
    signature = only_signature(batch, Setting())
    profiles = {signature: learned(rows=1_000, sharing=8)}
    tried = plan_wave(batch, profiles=profiles, available_bytes=10**9, law=WARM).tried
    prices = {each.width: each.required_bytes for each in tried}
    third = plan_wave(Batch(batch.items[:3]), profiles=profiles, available_bytes=10**9, law=WARM).required_bytes
    assert prices[4] < prices[2] < third
    plan = plan_wave(batch, profiles=profiles, available_bytes=third - 1, law=WARM)
    assert plan.width == 2  # width 4 would fit, but width 3 does not


def test_trust_growth_limits_the_rows_and_takes_equality() -> None:
    batch = grpo(prompts=1, rollouts=30, prompt=100, completion=100)
    signature = only_signature(batch, Setting())
    for largest in (50, 100, 125):
        plan = plan_wave(batch, profiles={signature: learned(rows=largest)}, available_bytes=10**12, law=WARM)
        assert plan.width == (8 * largest - 100) // 100
        assert plan.tried[-1].fits or not plan.tried[-1].trusted or plan.tried[-1].width <= plan.width


def test_trust_grows_by_what_was_planned() -> None:
    batch = grpo(prompts=1, rollouts=100, prompt=100, completion=100)
    signature = only_signature(batch, Setting())
    plan = plan_batch(batch, profiles={signature: learned(rows=50)}, available_bytes=10**12, law=WARM)
    assert [wave.width for wave in plan.waves] == [3, 31, 66]
    assert plan.stopped is None


def test_without_a_profile_only_the_narrowest_wave_runs() -> None:
    batch = grpo(prompts=2, rollouts=3, prompt=100, completion=50)
    plan = plan_batch(batch, profiles={}, available_bytes=GIB, law=WARM)
    assert [(wave.width, wave.verdict) for wave in plan.waves] == [(1, Verdict.COLD_START)]
    assert plan.unplanned_items == 5 and plan.stopped is not None and "nothing was learned" in plan.stopped


def test_the_cold_floor_is_asked_for_only_where_nothing_was_learned() -> None:
    batch = grpo(prompts=1, rollouts=2, prompt=100, completion=50)
    setting = Setting(floor_bytes=floor_with_transient)
    cold = plan_wave(batch, profiles={}, available_bytes=GIB, setting=setting, law=WARM)
    assert cold.wave.floor_bytes == 64 * MIB + 10 * 150
    signature = only_signature(batch, setting)
    warm = plan_wave(batch, profiles={signature: learned(rows=1_000)}, available_bytes=GIB, setting=setting, law=WARM)
    assert warm.wave.floor_bytes == 10 * warm.wave.packed_rows
    refused = plan_wave(batch, profiles={}, available_bytes=64 * MIB, setting=setting, law=WARM)
    assert refused.verdict is Verdict.REFUSE and refused.price.binding_term == "cold"


def floor_with_transient(shape: WaveShape, cold: bool) -> int:
    return 10 * shape.packed_rows + (64 * MIB if cold else 0)


def test_a_regime_without_a_profile_ends_the_wave() -> None:
    batch = Batch([[plan_request([0, 1])], [plan_request([0, 2])], [plan_request([0, 1], slot="a")]])
    signature = only_signature(Batch(batch.items[:2]), Setting())
    plan = plan_batch(batch, profiles={signature: learned(rows=1_000)}, available_bytes=GIB, law=WARM)
    assert [(wave.width, wave.verdict) for wave in plan.waves] == [(2, Verdict.RUN), (1, Verdict.COLD_START)]
    assert not plan.waves[0].tried[-1].learned


def test_items_that_ask_for_nothing_run_as_a_wave_of_no_rows() -> None:
    batch = Batch([[plan_request([0], active=False)], [], [plan_request([1], active=False)]])
    plan = plan_batch(batch, profiles={}, available_bytes=0, law=WARM)
    assert [(wave.width, wave.verdict, wave.price.binding_term) for wave in plan.waves] == [
        (3, Verdict.RUN, "nothing_to_run")
    ]


def test_equality_fits_and_a_negative_budget_refuses() -> None:
    batch = grpo(prompts=1, rollouts=1, prompt=100, completion=50)
    signature = only_signature(batch, Setting())
    profiles = {signature: learned(rows=1_000)}
    needed = plan_wave(batch, profiles=profiles, available_bytes=GIB, law=WARM).required_bytes
    assert plan_wave(batch, profiles=profiles, available_bytes=needed, law=WARM).verdict is Verdict.RUN
    assert plan_wave(batch, profiles=profiles, available_bytes=needed - 1, law=WARM).verdict is Verdict.REFUSE
    nothing = Batch([[plan_request([0], active=False)]])
    assert plan_wave(nothing, profiles={}, available_bytes=-1, law=WARM).verdict is Verdict.REFUSE


def test_rank_rows_are_what_is_priced_and_trusted() -> None:
    batch = grpo(prompts=1, rollouts=8, prompt=100, completion=100)
    setting = Setting(rank_rows=lambda shape, requests: -(-shape.packed_rows // 2) if requests else 0)
    signature = only_signature(batch, setting)
    plan = plan_wave(batch, profiles={signature: learned(rows=50)}, available_bytes=GIB, setting=setting, law=WARM)
    assert (plan.width, plan.shape.packed_rows, plan.wave.packed_rows) == (7, 800, 400)
    assert plan.layout(batch).packed_rows == 800


@pytest.mark.parametrize("start", [-1, 3])
def test_start_must_be_an_item(start: int) -> None:
    with pytest.raises(QuantityError, match="start: must be an item of the batch"):
        plan_wave(grpo(1, 2, 10, 10), start=start, profiles={}, available_bytes=0, law=WARM)


# --- liveness --------------------------------------------------------------------------------------------------------


def one_request(rows: int) -> Batch:
    return grpo(prompts=1, rollouts=1, prompt=rows // 2, completion=rows - rows // 2)


def narrow(rows: int, profile: Profile, budget: int, setting: Setting | None = None) -> WavePlan:
    setting = Setting() if setting is None else setting
    batch = one_request(rows)
    profiles = {only_signature(batch, setting): profile}
    return plan_wave(batch, profiles=profiles, available_bytes=budget, setting=setting, law=WARM)


def test_a_young_profile_probes_what_its_learned_term_alone_refuses() -> None:
    seed_only, supported = learned(rows=27, bytes_per_row=10**7, waves=1), learned(rows=27, bytes_per_row=10**7)
    assert narrow(200, seed_only, GIB).verdict is Verdict.PROBE
    assert narrow(200, supported, GIB).verdict is Verdict.REFUSE


def test_a_probe_does_not_change_the_price_and_says_how_far_over_it_is() -> None:
    seed_only = learned(rows=27, bytes_per_row=10**7, waves=1)
    plan = narrow(200, seed_only, GIB)
    assert plan.required_bytes == required_bytes(plan.wave, seed_only, law=WARM) > GIB
    assert plan.headroom_bytes < 0 and plan.refusal is None


def test_a_probe_needs_outputs_floor_and_cold_transient_to_fit() -> None:
    seed_only = learned(rows=27, bytes_per_row=10**7, waves=1)
    setting = Setting(floor_bytes=floor_with_transient)
    enough = required_bytes(one_request_wave(200, setting, cold=True), Profile(), law=WARM)
    assert narrow(200, seed_only, enough, setting).verdict is Verdict.PROBE
    assert narrow(200, seed_only, enough - 1, setting).verdict is Verdict.REFUSE


def one_request_wave(rows: int, setting: Setting, *, cold: bool):  # type: ignore[no-untyped-def]
    plan = plan_wave(one_request(rows), profiles={}, available_bytes=GIB, setting=setting, law=WARM)
    assert plan.verdict is Verdict.COLD_START and cold
    return plan.wave


def test_a_signature_is_probed_once() -> None:
    seed_only = learned(rows=27, bytes_per_row=10**7, waves=1)
    batch = one_request(200)
    signature = only_signature(batch, Setting())
    plan = plan_wave(batch, profiles={signature: seed_only}, available_bytes=GIB, probed={signature}, law=WARM)
    assert plan.verdict is Verdict.REFUSE


def whole_wave(rows: int, bytes_per_row: int) -> Reading:
    return Reading(
        packed_rows=rows, logical_rows=rows, grad_segments=1, output_bytes=0, peak_delta_bytes=rows * bytes_per_row
    )


def test_every_narrowest_wave_beyond_trust_that_fits_is_probed() -> None:
    """27, then 300, then 4,096 rows: each more than 8 times all before it, and the device all but empty."""
    profile = learned(rows=27, bytes_per_row=1_000, waves=2)
    for rows in (300, 4_096, 40_000):
        batch = one_request(rows)
        signature = only_signature(batch, Setting())
        plan = plan_wave(batch, profiles={signature: profile}, available_bytes=GIB, probed={signature}, law=WARM)
        assert (plan.verdict, plan.tried[0].trusted) == (Verdict.PROBE, False)
        assert plan.probe is not None and plan.probe.had_probe
        profile = observe(profile, whole_wave(rows, bytes_per_row=1_000))


@pytest.mark.parametrize(("budget", "rows"), [(110_000_000, 99), (1_106_763, 1), (1_106_762, 0), (0, 0), (-1, 0)])
def test_a_refusal_says_how_many_rows_would_fit_or_that_none_would(budget: int, rows: int) -> None:
    """One row of 1,000,000 B, its charge of 6,144 B and its output of 4 B are priced 1,106,762.8 B, rounded up."""
    refusal = narrow(1_000, learned(rows=1_000, bytes_per_row=10**6), budget).refusal
    assert refusal is not None and refusal.rows_that_fit == rows
    assert ("no wave of this kind fits" in str(refusal)) == (rows == 0)


def test_a_refusal_beyond_trust_says_so() -> None:
    setting = Setting(floor_bytes=lambda shape, cold: GIB if cold else 0)
    refusal = narrow(400, learned(rows=49, bytes_per_row=1_000), GIB // 2, setting).refusal
    assert refusal is not None and refusal.shortfall_bytes == 0
    assert "the price fits, but the rows are more than 8 times the most ever seen" in str(refusal)
    assert "would run once a wave of 50 packed rows was seen" in str(refusal)
    assert "cannot be split" not in str(refusal) and "0.00 MiB more" not in str(refusal)


def test_a_narrowest_wave_beyond_trust_that_fits_runs_alone() -> None:
    """Trust growth narrows waves; it must not make a single large item unrunnable for ever."""
    plan = narrow(400, learned(rows=49, bytes_per_row=1_000), GIB)
    assert (plan.verdict, plan.tried[0].trusted, plan.tried[0].fits) == (Verdict.PROBE, False, False)
    assert narrow(392, learned(rows=49, bytes_per_row=1_000), GIB).verdict is Verdict.RUN


def test_planning_a_batch_stops_behind_a_probe() -> None:
    batch = grpo(prompts=3, rollouts=1, prompt=100, completion=100)
    signature = only_signature(batch, Setting())
    seed_only = learned(rows=27, bytes_per_row=10**7, waves=1)
    plan = plan_batch(batch, profiles={signature: seed_only}, available_bytes=GIB, law=WARM)
    assert [wave.verdict for wave in plan.waves] == [Verdict.PROBE]
    assert plan.unplanned_items == 2 and plan.stopped is not None and "too young" in plan.stopped


_SEVERITY = {Verdict.RUN: 0, Verdict.COLD_START: 0, Verdict.PROBE: 1, Verdict.REFUSE: 2}


@given(
    small=st.integers(1, 700),
    more=st.integers(0, 700),
    largest=st.integers(1, 300),
    rate=st.sampled_from([0, 100, 10_000, 10**6]),
    waves=st.integers(0, 3),
    budget=st.integers(0, 10**8),
)
def test_a_wave_of_fewer_rows_never_gets_a_worse_verdict(
    small: int, more: int, largest: int, rate: int, waves: int, budget: int
) -> None:
    profile = learned(rows=largest, bytes_per_row=rate, waves=waves)
    setting = Setting(floor_bytes=floor_with_transient)
    lesser, greater = narrow(small, profile, budget, setting), narrow(small + more, profile, budget, setting)
    assert _SEVERITY[lesser.verdict] <= _SEVERITY[greater.verdict]


# --- refusals --------------------------------------------------------------------------------------------------------


def test_planning_goes_on_behind_a_refused_item() -> None:
    big = grpo(prompts=1, rollouts=1, prompt=300, completion=300, seed=1)
    batch = Batch([*grpo(1, 2, 50, 50).items, *big.items, *grpo(1, 2, 50, 50, seed=2).items])
    signature = only_signature(batch, Setting())
    profile = learned(rows=500, bytes_per_row=20_000)  # of more a row than the charge for it, as models are
    plan = plan_batch(batch, profiles={signature: profile}, available_bytes=10_000_000, law=WARM)
    assert [(wave.width, wave.runs) for wave in plan.waves] == [(2, True), (1, False), (2, True)]
    assert plan.refused == (plan.waves[1],)


@given(items=training_items, law=laws, budget=st.integers(-10, 2_000_000), rate=st.sampled_from([100, 9_000]))
def test_a_refusal_says_what_would_make_it_fit(items: Items, law: Law, budget: int, rate: int) -> None:
    batch, setting = Batch(items[:1]), Setting()
    profiles = {only_signature(batch, setting): learned(rows=500, bytes_per_row=rate)}
    plan = plan_wave(batch, profiles=profiles, available_bytes=budget, law=law)
    refusal = plan.refusal
    if refusal is None:
        return
    more = budget + refusal.shortfall_bytes
    assert fits(plan.price.required_bytes, more) and not fits(plan.price.required_bytes, more - 1)
    assert 0 <= refusal.rows_that_fit < plan.wave.packed_rows
    text = str(refusal)
    for said in (f"{plan.wave.packed_rows:,} packed rows", plan.price.binding_term, law.name, str(DEFAULT_SAFETY)):
        assert said in text
    assert "none exists" not in text
    assert ("no feasible split found" in text) == (sum(map(batch.is_active, plan.requests)) > 1)


FORWARD_SEEN = observe(
    Profile(),
    Reading(
        packed_rows=200,
        logical_rows=200,
        grad_segments=1,
        output_bytes=0,
        peak_delta_bytes=2_000,
        kind=ReadingKind.FORWARD_ONLY,
    ),
)


@pytest.mark.parametrize("profile", [Profile(), FORWARD_SEEN], ids=["cold", "no complete reading"])
def test_a_wave_that_its_forecast_keeps_out_is_tried_only_where_the_run_survives_it(profile: Profile) -> None:
    """Once for each signature, and only where what is certain (outputs, floor) fits."""
    batch = one_request(200)
    setting = Setting(floor_bytes=floor_with_transient, forecast_bytes=lambda *_: GIB)
    profiles = {only_signature(batch, setting): profile}

    def planned(budget: int, **how: object) -> WavePlan:
        return plan_wave(batch, profiles=profiles, available_bytes=budget, setting=setting, **how, law=WARM)  # type: ignore[arg-type]

    refused = planned(GIB)
    assert refused.verdict is Verdict.REFUSE
    assert refused.refusal is not None and "forecast, without its safety factor: 1.00 GiB" in str(refused.refusal)
    tried = planned(GIB, survives=True)
    assert tried.verdict is Verdict.PROBE and tried.probe is not None and tried.probe.survives
    assert planned(GIB, survives=True, probed=set(profiles)).verdict is Verdict.REFUSE
    certain = required_bytes(tried.probe.cold, Profile(), law=WARM)
    assert planned(certain, survives=True).verdict is Verdict.PROBE
    assert planned(certain - 1, survives=True).verdict is Verdict.REFUSE
    assert planned(2 * GIB, survives=True).verdict is not Verdict.PROBE


def test_a_cold_wave_that_is_not_the_narrowest_never_runs_however_small_its_forecast() -> None:
    batch = Batch([[plan_request(range(seed, seed + 20))] for seed in (0, 100, 200)])
    plan = plan_wave(
        batch,
        profiles={},
        available_bytes=GIB,
        setting=Setting(forecast_bytes=lambda *_: 1),
        survives=True,
        law=WARM,
    )
    assert (plan.width, plan.verdict) == (1, Verdict.COLD_START)
