"""What lies on a boundary of the planner's own rules, and what a default means. Each was once off by one unseen."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from pricing import GIB, Profile, QuantityError, RequestSpec, Wave
from pricing.kernel.forecast import Forecast, ForecastLine
from pricing.kernel.laws import DEFAULT_LAW, LAWS
from pricing.kernel.price import evidence_bytes, price, required_bytes
from pricing.kernel.quantities import DEFAULT_SAFETY, MAX_QUANTITY
from pricing.kernel.requests import NO_RECOMPUTE, SINGLE_TARGET, Workload, mix_key
from pricing.planner.batch import Batch, PlanRequest, without_padding
from pricing.planner.budget import Budget
from pricing.planner.curve import Curve, WaveShape, gather
from pricing.planner.layout import layout_of
from pricing.planner.model_needs import ModelNeeds, forecast_wave, most_forecast_rows, usual_rows
from pricing.planner.most_rows import most_rows
from pricing.planner.plan import Verdict, plan_wave
from pricing.planner.prefix_tree import build_tree
from pricing.planner.quorum import SingleProcess
from pricing.planner.refusal import Refusal, _rows_that_fit
from pricing.planner.rules import is_trusted, probe_bytes
from pricing.planner.setting import Setting
from pricing.planner.split import RungBounds, _cut_at, _retained_lower_bound, cut, split_cost_bytes
from tests.making import a_reading, a_wave, learned
from tests.planner.naive import grpo, only_signature
from tests.planner.test_split import ladder_of

SPEC = RequestSpec(input_shape=(100,), target_shape=(100,))
SHAPE = WaveShape(
    packed_rows=100,
    shared_rows=90,
    unshared_rows=200,
    logical_rows=190,
    grad_segments=2,
    segments=3,
    output_bytes=0,
)


def a_batch(count: int = 3, rows: int = 100) -> Batch:
    spec = RequestSpec(input_shape=(rows,), target_shape=(rows,))
    return Batch([[PlanRequest(tokens=[item] * rows, spec=spec)] for item in range(count)])


def test_rows_with_gradients_are_never_more_than_all_rows() -> None:
    assert replace(SHAPE, grad_rows=40).rows_with_gradients == 40
    assert replace(SHAPE, grad_rows=140).rows_with_gradients == 100
    assert SHAPE.rows_with_gradients == 100
    assert replace(SHAPE, grad_segments=0).rows_with_gradients == 0


def test_a_wave_without_rows_is_always_trusted_and_one_row_is_not() -> None:
    assert is_trusted(0, Profile(), learned=False)
    assert not is_trusted(1, Profile(), learned=False)
    assert not is_trusted(1, Profile(), learned=True)
    seen = learned([a_reading(10, 10_000)])
    assert is_trusted(80, seen, learned=True) and not is_trusted(81, seen, learned=True)


def test_a_curve_reaches_its_last_width_and_no_further() -> None:
    curve = Curve(a_batch(3), 0)
    assert [curve.reaches(width) for width in (1, 2, 3, 4)] == [True, True, True, False]
    assert curve.last_width_of_regime(1, 2) == 2


def test_a_regime_s_last_width_is_the_one_before_the_next_or_the_most_that_is_asked_for() -> None:
    short = RequestSpec(input_shape=(9,), target_shape=(9,))
    items = [[PlanRequest(tokens=[item] * 100, spec=SPEC)] for item in range(4)]
    items.append([PlanRequest(tokens=[7] * 9, spec=short)])
    curve = Curve(Batch(items), 0)
    assert [curve.last_width_of_regime(1, at_most) for at_most in (2, 4, 5)] == [2, 4, 4]
    assert curve.last_width_of_regime(5, 5) == 5


@pytest.mark.parametrize("output_bytes", [-1, MAX_QUANTITY + 1, True, 1.0, "1"])
def test_outputs_that_are_no_count_are_refused(output_bytes: Any) -> None:
    with pytest.raises(QuantityError, match="output_bytes"):
        Batch([[PlanRequest(tokens=[1] * 100, spec=SPEC, output_bytes=output_bytes)]])


@pytest.mark.parametrize("output_bytes", [0, 1, MAX_QUANTITY])
def test_outputs_that_are_a_count_are_taken_as_they_are(output_bytes: int) -> None:
    batch = Batch([[PlanRequest(tokens=[1] * 100, spec=SPEC, output_bytes=output_bytes)]])
    assert batch.output_bytes == [output_bytes]


def test_nothing_or_everything_of_the_cache_may_be_released_and_no_more() -> None:
    budget = Budget(free_bytes=10, reserve_bytes=1, reusable_cache_bytes=5)
    assert budget.after_release(0) == budget
    assert budget.after_release(5).free_bytes == 15
    for released_bytes in (-1, 6):
        with pytest.raises(AssertionError):
            budget.after_release(released_bytes)


def test_a_layout_adds_no_padding_unless_it_is_told_to() -> None:
    batch = a_batch(1, rows=101)
    assert layout_of(batch, [0]).packed_rows == 101
    assert layout_of(batch, [0], 2).packed_rows == 102


def test_a_request_that_asks_for_nothing_has_no_positions() -> None:
    nothing = RequestSpec(input_shape=(100,))
    batch = Batch([[PlanRequest(tokens=[1] * 100, spec=SPEC), PlanRequest(tokens=[2] * 100, spec=nothing)]])
    layout = layout_of(batch, [0, 1])
    assert [len(layout.request_positions[at]) for at in (0, 1)] == [100, 0]


# --- the setting -----------------------------------------------------------------------------------------------------


def floor_of(shape: WaveShape, cold: bool) -> int:
    return 1_000 * shape.packed_rows if shape.grad_segments else 10 * shape.packed_rows


def test_floors_count_unless_they_were_contradicted_and_are_no_certainty_by_default() -> None:
    setting = Setting(floor_bytes=floor_of)
    wave = setting.wave(SHAPE, [0], Workload.training(), cold=False)
    assert wave.floor_bytes == 100_000
    assert setting.wave(SHAPE, [0], Workload.training(), cold=False, floors=False).floor_bytes == 0
    assert not setting.floor_is_certain


def test_a_floor_is_contradicted_by_a_complete_reading_of_its_kind_below_it() -> None:
    batch = grpo(1, 2, 64, 128)
    signature = only_signature(batch, Setting())
    below, above = learned([a_reading(100, 90_000)]), learned([a_reading(100, 110_000)])
    equal = learned([a_reading(100, 100_000)])
    setting = Setting(floor_bytes=floor_of)
    assert setting.floor_is_contradicted(signature, below)
    assert not setting.floor_is_contradicted(signature, above)
    assert not setting.floor_is_contradicted(signature, equal)
    assert not setting.floor_is_contradicted(signature, Profile())
    assert not replace(setting, floor_is_certain=True).floor_is_contradicted(signature, below)
    mixed = replace(signature, grad_modes=(False, True))
    assert not setting.floor_is_contradicted(mixed, below)
    without = replace(signature, grad_modes=(False,))
    assert not setting.floor_is_contradicted(without, below), "without gradients its floor is the lower one"


def counted_segments(shape: WaveShape, cold: bool) -> int:
    return 10_000 * shape.grad_segments + 1_000 * shape.segments + shape.output_bytes


def test_what_a_contradiction_is_held_against_is_one_segment_of_the_rows_seen() -> None:
    signature = only_signature(grpo(1, 2, 64, 128), Setting())
    setting = Setting(floor_bytes=counted_segments)
    assert setting.floor_is_contradicted(signature, learned([a_reading(1, 10_999)]))
    assert not setting.floor_is_contradicted(signature, learned([a_reading(1, 11_000)]))


# --- the ladder, refusals, plans -------------------------------------------------------------------------------------


def test_a_part_of_exactly_the_cap_is_not_over_it() -> None:
    batch = a_batch(2)
    assert _cut_at(batch, [0, 1], 2, 100, 1) == [[0], [1]]
    assert _cut_at(batch, [0, 1], 2, 99, 1) is None
    assert _cut_at(batch, [0, 1], 1, 200, 1) == [[0, 1]]
    assert _cut_at(batch, [0, 1], 1, 199, 1) is None


def test_what_a_layout_must_retain_counts_the_rows_that_sharing_within_reach_has() -> None:
    profile = learned([a_reading(1_000, 9_000_000, retained_bytes=2_000_000)] * 3)
    wave = a_wave(100, 16_000, 1)
    packed = LAWS["packed"]
    least = _retained_lower_bound(wave, profile, packed, DEFAULT_SAFETY)
    inside = replace(wave, packed_rows=2_000, grad_segments=0)
    kept = packed.kept_bytes(inside, profile, True)
    assert kept is not None
    assert least == min(required_bytes_of(replace(wave, grad_segments=0), profile), -(-11 * kept // 10))


def required_bytes_of(wave: Wave, profile: Profile) -> int:
    return evidence_bytes(wave, profile, LAWS["packed"], DEFAULT_SAFETY)


@pytest.mark.parametrize("rows", [1, 2, 3, 500, 999])
def test_the_rows_that_would_fit_are_the_most_that_do_in_proportion(rows: int) -> None:
    profile = learned([a_reading(1_000, 9_000_000)] * 3)
    wave = replace(a_wave(1_000, 2_000, 20), output_bytes=1_000_000)

    def scaled(count: int) -> int:
        smaller = replace(
            wave,
            packed_rows=count,
            logical_rows=2 * count,
            grad_segments=20 * count // 1_000,
            output_bytes=1_000 * count,
        )
        return required_bytes(smaller, profile, DEFAULT_LAW, DEFAULT_SAFETY)

    priced = price(wave, profile)
    assert _rows_that_fit(wave, profile, DEFAULT_LAW, priced, scaled(rows)) == rows
    assert _rows_that_fit(wave, profile, DEFAULT_LAW, priced, scaled(rows) - 1) == rows - 1
    assert _rows_that_fit(wave, profile, DEFAULT_LAW, priced, -1) == 0


def test_a_plan_of_nothing_has_a_shape_of_nothing() -> None:
    empty = plan_wave(Batch([]), profiles={}, available_bytes=GIB)
    assert empty.verdict is Verdict.EMPTY
    assert (empty.shape.grad_segments, empty.shape.segments, empty.shape.output_bytes) == (0, 0, 0)


def test_a_curve_does_not_reach_a_last_width_whose_sums_cannot_be_counted() -> None:
    heavy = [[PlanRequest(tokens=[item] * 100, spec=SPEC, output_bytes=MAX_QUANTITY)] for item in range(2)]
    curve = Curve(Batch(heavy), 0)
    assert [curve.reaches(1), curve.reaches(2)] == [True, False]


def test_each_width_has_the_kinds_of_its_own_requests() -> None:
    several = RequestSpec(input_shape=(100,), target_shape=(100,), top_k=4)
    items = [[PlanRequest(tokens=[item] * 100, spec=several if item % 2 else SPEC)] for item in range(4)]
    batch = Batch(items)
    curve = Curve(batch, 0)
    for width in range(1, 5):
        assert curve.shape(width).kinds == gather(batch, range(width)).shape.kinds


def forecast_of(shape: WaveShape, requests: Any, workload: Workload) -> int:
    return 123


def test_one_item_is_planned_and_a_forecast_is_asked_for_until_a_complete_reading() -> None:
    batch, setting = a_batch(1), Setting(forecast_bytes=forecast_of)
    cold = plan_wave(batch, profiles={}, available_bytes=GIB, setting=setting)
    assert cold.verdict is Verdict.COLD_START and cold.wave.forecast_bytes == 123
    seen = {cold.signature: learned([a_reading(100, 90_000)])}
    known = plan_wave(batch, profiles=seen, available_bytes=GIB, setting=setting)
    assert known.verdict is Verdict.RUN and known.wave.forecast_bytes == 0


def test_a_child_is_forecast_until_a_complete_reading_and_bounds_hold_for_a_rank_s_rows() -> None:
    batch = a_batch(2)
    setting = Setting(forecast_bytes=forecast_of)
    assert ladder_of(batch, Profile(), setting, DEFAULT_LAW).child([0]).wave.forecast_bytes == 123
    once = learned([a_reading(100, 90_000)])
    assert ladder_of(batch, once, setting, DEFAULT_LAW).child([0]).wave.forecast_bytes == 0
    by_rank = Setting(rank_rows=lambda shape, requests: 1)
    ladder = ladder_of(batch, learned([a_reading(100, 9_000_000)] * 3), by_rank, DEFAULT_LAW)
    cost = split_cost_bytes([ladder.child([0]), ladder.child([1])], None)
    assert RungBounds(ladder).lower_bound_bytes(2) <= cost


def test_a_plan_of_nothing_has_no_rows() -> None:
    shape = plan_wave(Batch([]), profiles={}, available_bytes=GIB).shape
    assert (shape.packed_rows, shape.shared_rows, shape.unshared_rows, shape.logical_rows) == (0, 0, 0, 0)


# --- what nobody asked about -----------------------------------------------------------------------------------------


def test_a_cut_tries_the_least_cap_too() -> None:
    specs = [RequestSpec(input_shape=(rows,), target_shape=(rows,)) for rows in (3, 1, 2)]
    requests = [PlanRequest(tokens=[item] * spec.logical_rows, spec=spec) for item, spec in enumerate(specs)]
    batch = Batch([requests])
    assert cut(batch, [0, 1, 2], 2) == [[0], [1, 2]]


def test_a_floor_is_held_against_a_reading_as_of_a_warm_wave() -> None:
    """A cold floor may hold one-time costs that no later reading shows."""
    signature = only_signature(grpo(1, 2, 64, 128), Setting())
    setting = Setting(floor_bytes=lambda shape, cold: 200_000 if cold else 100_000)
    assert not setting.floor_is_contradicted(signature, learned([a_reading(100, 150_000)]))
    assert setting.floor_is_contradicted(signature, learned([a_reading(100, 90_000)]))


@pytest.mark.parametrize(("peak_bytes", "is_wrong"), [(90_000, True), (110_000, False)])
def test_a_plan_says_whether_a_reading_contradicts_its_floor(peak_bytes: int, is_wrong: bool) -> None:
    batch = a_batch(1)
    setting = Setting(floor_bytes=floor_of)
    cold = plan_wave(batch, profiles={}, available_bytes=GIB, setting=setting)
    assert not cold.floor_is_wrong and cold.wave.floor_bytes == 100_000
    seen = {cold.signature: learned([a_reading(100, peak_bytes)])}
    plan = plan_wave(batch, profiles=seen, available_bytes=GIB, setting=setting)
    assert plan.floor_is_wrong is is_wrong
    assert plan.wave.floor_bytes == (0 if is_wrong else 100_000)


class Elsewhere(SingleProcess):
    """Another rank, whose narrowest wave does not fit."""

    def min(self, value: int) -> int:
        return 0


def test_a_rank_without_items_agrees_on_no_width_where_another_s_narrowest_does_not_fit() -> None:
    plan = plan_wave(Batch([]), profiles={}, available_bytes=GIB, quorum=Elsewhere())
    assert (plan.verdict, plan.width, plan.agreed_width) == (Verdict.EMPTY, 0, 0)


def test_headroom_is_what_is_left_of_the_budget() -> None:
    batch = a_batch(1)
    plan = plan_wave(batch, profiles={}, available_bytes=GIB, setting=Setting(floor_bytes=floor_of))
    assert plan.required_bytes > 0 and plan.headroom_bytes == GIB - plan.required_bytes


def refused(available_bytes: int) -> Refusal:
    """Of a wave of a hundred rows that needs about a million bytes."""
    profile = learned([a_reading(100, 900_000)] * 3)
    wave = a_wave(100, 100, 1)
    return Refusal.of(wave, price(wave, profile), profile, DEFAULT_LAW, available_bytes, ())


def test_a_refusal_says_what_is_missing_and_never_less_than_nothing() -> None:
    required = refused(0).price.required_bytes
    assert [refused(size).shortfall_bytes for size in (0, required - 1, required, required + 9)] == [required, 1, 0, 0]


def test_one_row_that_fits_is_not_none() -> None:
    nothing, one = (str(replace(refused(0), rows_that_fit=rows)) for rows in (0, 1))
    assert "no wave of this kind fits" in nothing and "at most" not in nothing.splitlines()[-1]
    assert "at most 1 packed rows" in one and "no wave of this kind" not in one


def test_the_rows_that_would_fit_bring_their_share_of_segments() -> None:
    profile = learned([a_reading(1_000, 9_000_000)] * 3)
    wave = replace(a_wave(1_000, 1_000, 100), segment_state_bytes=1_000_000)
    half = replace(wave, packed_rows=500, logical_rows=500, grad_segments=50)
    law = LAWS["packed"]
    available_bytes = required_bytes(half, profile, law, DEFAULT_SAFETY)
    assert _rows_that_fit(wave, profile, law, price(wave, profile, law), available_bytes) >= 500
    assert _rows_that_fit(wave, profile, law, price(wave, profile, law), available_bytes - 1) < 500


def test_waves_without_gradients_have_no_segments_to_charge() -> None:
    profile = learned([a_reading(1_000, 9_000_000)] * 3)
    for grads, segments in ((True, 80), (False, 0)):
        signature = replace(only_signature(grpo(1, 2, 64, 128), Setting()), grad_modes=(grads,))
        found = most_rows(profile, available_bytes=GIB, shortest_rows=100, signature=signature)
        assert (found.rows, found.wave.grad_segments) == (8_000, segments)


def test_a_model_has_no_state_a_segment_unless_it_is_given() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(ModelNeeds)}
    assert (fields["segment_state_bytes"], fields["optimizer_step_bytes"]) == (0, 0)


@pytest.mark.parametrize(
    ("cold", "witnessed", "held"), [(3, None, 3), (0, None, 0), (3, 0, 3), (3, 20, 20), (30, 20, 30)]
)
def test_a_probe_is_held_to_what_it_would_be_cold_and_to_what_witnesses_say(
    cold: int, witnessed: int | None, held: int
) -> None:
    assert probe_bytes(cold, witnessed) == held


def test_one_level_that_is_shared_is_one() -> None:
    """A prompt of 3 rows, under it a turn of 2 that two of three requests share, and 1 row of each of their own."""
    tree = build_tree([[1, 1, 1, 2, 2, 3], [1, 1, 1, 2, 2, 4], [1, 1, 1, 5]])
    assert [tree.packed_rows(levels) for levels in (0, 1, 2, 3, None)] == [16, 10, 8, 8, 8]


def some_needs(bytes_per_row: int = 1_000) -> ModelNeeds:
    forecast = Forecast(lines=(ForecastLine(phase="forward", fixed_bytes=10_000, bytes_per_packed_row=bytes_per_row),))
    return ModelNeeds(
        name="a model",
        parameters=10,
        trainable=10,
        parameter_bytes=40,
        gradient_bytes=40,
        optimizer="AdamW",
        optimizer_bytes=80,
        recompute=NO_RECOMPUTE,
        forecast=forecast,
    )


@pytest.mark.parametrize("rows", [1, 2, 63, 1_000])
def test_the_most_rows_of_a_forecast_are_the_most_whose_price_fits(rows: int) -> None:
    needs = some_needs()
    required = forecast_wave(needs, rows).price.required_bytes
    assert most_forecast_rows(needs, required).rows == rows
    assert most_forecast_rows(needs, required - 1).rows == rows - 1
    assert most_forecast_rows(needs, -1).rows == 0
    assert (forecast_wave(needs, rows).requests, forecast_wave(needs, 0).requests) == (max(1, rows // 64), 0)


def test_the_rows_that_are_shown_go_up_in_fours_to_twice_the_most() -> None:
    assert usual_rows(0) == usual_rows(2_047) == (1_024, 4_096)
    assert usual_rows(8_191) == (1_024, 4_096)
    assert usual_rows(8_192) == (1_024, 4_096, 16_384)
    assert len(usual_rows(1 << 40)) == 8
    assert some_needs().fixed_bytes == 160


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
@pytest.mark.parametrize("width", [(), (3,)])
def test_labels_of_any_shape_of_the_input_are_single_targets_and_several_a_row_are_not(
    shape: tuple[int, ...], width: tuple[int, ...]
) -> None:
    spec = RequestSpec(input_shape=shape, target_shape=(*shape, *width))
    signature = only_signature(Batch([[PlanRequest(tokens=[1] * 6, spec=spec)]]), Setting())
    assert signature.request_mixes == (mix_key(spec),)
    assert (signature.request_mixes == (SINGLE_TARGET,)) == (not width)


def padded_item(rows: int, padding: int) -> Batch:
    spec = RequestSpec(input_shape=(rows,), target_shape=(rows,))
    tokens = list(range(rows - padding)) + [7] * padding
    return Batch([[PlanRequest(tokens=tokens, spec=spec, padded_tail_rows=padding, output_bytes=4 * rows)]])


def test_a_refusal_says_what_the_item_would_cost_without_its_padding() -> None:
    whole, bare = padded_item(100, 40), Batch([[without_padding(padded_item(100, 40).requests[0])]])
    assert (bare.lengths, bare.requests[0].padded_tail_rows, bare.output_bytes) == ([60], 0, [240])
    assert without_padding(bare.requests[0]) is bare.requests[0]
    profiles = {only_signature(whole, Setting()): learned([a_reading(100, 9_000_000)] * 3)}

    def unpadded_bytes(batch: Batch, setting: Setting) -> int | None:
        refusal = plan_wave(batch, profiles=profiles, available_bytes=1, setting=setting).refusal
        assert refusal is not None and refusal.asked is not None
        return refusal.asked.unpadded_bytes

    needed = plan_wave(bare, profiles=profiles, available_bytes=GIB).required_bytes
    assert unpadded_bytes(whole, Setting()) == needed
    assert unpadded_bytes(padded_item(100, 0), Setting()) is None
    by_rank = Setting(rank_rows=lambda shape, requests: shape.packed_rows)
    assert unpadded_bytes(whole, by_rank) is None, "asked by the requests' place in the batch"


def test_a_probe_is_judged_by_the_wave_as_cold_and_without_forecast() -> None:
    batch = a_batch(1)
    setting = Setting(floor_bytes=lambda shape, cold: 200_000 if cold else 100_000, forecast_bytes=forecast_of)
    seed = {plan_wave(batch, profiles={}, available_bytes=GIB).signature: learned([a_reading(10, 10_000_000_000)])}
    plan = plan_wave(batch, profiles=seed, available_bytes=GIB, setting=setting)
    assert plan.probe is not None
    assert (plan.probe.cold.floor_bytes, plan.probe.cold.forecast_bytes) == (200_000, 0)


def mixed_item(with_gradients: int, without: int) -> Batch:
    """Two kinds of rows in one item."""
    sizes = ((with_gradients, True), (without, False))
    requests = [
        PlanRequest(
            tokens=[int(grads)] * rows, spec=RequestSpec(input_shape=(rows,), target_shape=(rows,)), grads=grads
        )
        for rows, grads in sizes
    ]
    return Batch([requests])


def test_one_item_is_priced_by_a_relative_of_its_own_kinds_and_by_no_stranger() -> None:
    known, item = only_signature(mixed_item(400, 400), Setting()), mixed_item(400, 1_600)
    assert known.shares and known.shares != only_signature(item, Setting()).shares
    dear, cheap = learned([a_reading(1_000, 9_000_000)] * 3), learned([a_reading(1_000, 1_000)] * 3)
    stranger = replace(known, topology="elsewhere")
    for profiles in ({known: dear}, {known: dear, stranger: cheap}, {stranger: cheap, known: dear}):
        plan = plan_wave(item, profiles=profiles, available_bytes=GIB)
        assert (plan.verdict, plan.profile) == (Verdict.RUN, dear)
    alone = plan_wave(item, profiles={stranger: cheap}, available_bytes=GIB)
    assert (alone.verdict, alone.profile) == (Verdict.COLD_START, Profile())
