"""Public failures of planners as tests: what is admitted, narrowed, split, probed or refused, and what is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy
import pytest
from numpy.typing import NDArray

from pricing.kernel.laws import LAWS
from pricing.kernel.price import required_bytes
from pricing.kernel.profile import Profile, observe, observe_all
from pricing.kernel.quantities import GIB, MAX_QUANTITY, Safety
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import NO_RECOMPUTE, RequestSpec, Signature, mix_key
from pricing.planner.batch import Batch, PlanRequest
from pricing.planner.budget import Budget, BudgetVerdict, judge
from pricing.planner.curve import Curve
from pricing.planner.plan import Setting, Verdict, WavePlan, plan_batch, plan_wave
from tests.making import a_reading

GB = 10**9
EXACT = Safety(numerator=1, denominator=1)


def request_of(tokens: Sequence[int] | NDArray[Any], *, grads: bool = True, output_bytes: int = 0) -> PlanRequest:
    shape = (len(tokens),)
    spec = RequestSpec(input_shape=shape, target_shape=shape)
    return PlanRequest(tokens=tokens, spec=spec, grads=grads, output_bytes=output_bytes)


def lone(rows: int, number: int = 0, *, grads: bool = True) -> PlanRequest:
    """A request that shares nothing with one of another number."""
    return request_of(numpy.arange(rows) + number * 10**6, grads=grads)


def branches(prefix: int, tails: Sequence[int]) -> list[PlanRequest]:
    """Requests that share exactly their first `prefix` tokens."""
    shared = numpy.arange(prefix)
    return [
        request_of(numpy.concatenate([shared, numpy.arange(tail) + 10**6 * (number + 1)]))
        for number, tail in enumerate(tails)
    ]


def whole(packed: int, logical: int, peak_bytes: int, *, grads: bool = True) -> Reading:
    kind = ReadingKind.WHOLE_WAVE if grads else ReadingKind.FORWARD_ONLY
    return Reading(
        packed_rows=packed,
        logical_rows=logical,
        grad_segments=0,
        output_bytes=0,
        peak_delta_bytes=peak_bytes,
        footprint_bytes=peak_bytes,
        grads=grads,
        kind=kind,
        closes_wave=not grads,
    )


def signature_of_first(batch: Batch, setting: Setting | None = None) -> Signature:
    return Curve(batch, 0).signature(1, (setting or Setting()).recompute, (setting or Setting()).topology)


def plan_first(
    batch: Batch,
    profile: Profile,
    budget: int,
    setting: Setting | None = None,
    law: str = "warm",
    safety: Safety | None = None,
) -> WavePlan:
    return plan_wave(
        batch,
        profiles={signature_of_first(batch, setting): profile},
        available_bytes=budget,
        setting=setting,
        law=LAWS[law],
        safety=safety or Safety(numerator=11, denominator=10),
    )


class TestD01TinyWarmUp:
    """A 27-token warm-up must not refuse all later work: a verdict, never a price, and only until evidence is there."""

    AVAILABLE = 68 * GB
    SEED = whole(27, 27, 473_835_924, grads=False)

    def verdict(self, rows: int, *readings: Reading) -> WavePlan:
        return plan_first(Batch([[lone(rows, grads=False)]]), observe_all(Profile(), list(readings)), self.AVAILABLE)

    @pytest.mark.parametrize("rows", [217, 6_273, 17_063, 20_000, 21_489, 103_960])
    def test_after_the_warm_up_alone_every_item_can_still_run(self, rows: int) -> None:
        plan = self.verdict(rows, self.SEED)
        assert plan.runs and plan.width == 1
        assert plan.price.required_bytes == required_bytes(plan.wave, observe(Profile(), self.SEED), law=WARM)

    def test_a_price_over_the_budget_is_a_probe_and_the_price_stays(self) -> None:
        plan = self.verdict(6_273, self.SEED)
        assert plan.verdict is Verdict.PROBE and plan.required_bytes > 121 * GB - GB

    @pytest.mark.parametrize("law", ["warm", "frontier"])
    @pytest.mark.parametrize("rows", [17_063, 20_000, 21_489])
    def test_after_one_long_call_everything_smaller_is_admitted_by_its_price(self, rows: int, law: str) -> None:
        profile = observe_all(Profile(), [self.SEED, whole(103_960, 103_960, 22_200_000_000, grads=False)])
        plan = plan_first(Batch([[lone(rows, grads=False)]]), profile, self.AVAILABLE, law=law)
        assert plan.verdict is Verdict.RUN
        assert plan.required_bytes <= (11 * (22_200_000_000 + 103_960)) // 10 + 1

    def test_evidence_after_the_seed_ends_probing(self) -> None:
        tiny = whole(27, 27, 473_835_924, grads=False)
        assert self.verdict(6_273, self.SEED, tiny).verdict is Verdict.REFUSE

    def test_the_old_trust_edge_lies_between_216_and_217(self) -> None:
        profile = observe_all(Profile(), [whole(27, 27, 27_000), whole(27, 27, 27_000)])
        verdicts = [plan_first(Batch([[lone(rows)]]), profile, self.AVAILABLE).verdict for rows in (216, 217)]
        assert verdicts == [Verdict.RUN, Verdict.PROBE]


@pytest.mark.invariant("INV-4")
class TestD02FirstSharedBatch:
    """21 branches of one prompt after an unshared calibration: 16,205 packed rows of 109,065."""

    PROFILE = observe(Profile(), whole(1_000, 1_000, 459_782_000))

    def batch(self) -> Batch:
        tails = [550] * 9 + [551] * 12
        return Batch([branches(4_643, tails)])

    def test_it_is_priced_by_packed_rows(self) -> None:
        profile = observe(self.PROFILE, whole(15_000, 15_000, 10))
        plan = plan_first(self.batch(), observe(profile, whole(15_000, 15_000, 459_782 * 15_000)), 9 * GIB)
        assert (plan.wave.packed_rows, plan.wave.logical_rows) == (16_205, 109_065)
        assert plan.price.logical_charge_bytes == 6_144 * 109_065
        assert round(plan.required_bytes / GIB, 2) == 8.32
        assert plan.verdict is Verdict.RUN

    def test_full_sharing_costs_less_than_none(self) -> None:
        shape = Curve(self.batch(), 0).shape(1)
        assert shape.unshared_rows == 109_065 and shape.packed_rows == 16_205
        shared = plan_first(self.batch(), self.PROFILE, 1_000 * GIB)
        unshared = plan_first(Batch([[lone(109_065)]]), self.PROFILE, 1_000 * GIB)
        assert shared.required_bytes < unshared.required_bytes // 5

    def test_the_ladder_uses_sharing(self) -> None:
        """Each child repeats the prompt: two children have 4,643 rows more than the whole, not twice the rows."""
        retained = Reading(
            packed_rows=15_000,
            logical_rows=15_000,
            grad_segments=0,
            output_bytes=0,
            peak_delta_bytes=15_000 * 400_000,
            footprint_bytes=15_000 * 400_000,
            retained_bytes=15_000 * 40_000,
            kind=ReadingKind.FORWARD_ONLY,
        )
        profile = observe(observe(Profile(), retained), whole(15_000, 15_000, 15_000 * 459_782))
        plan = plan_first(self.batch(), profile, 7 * GIB)
        assert plan.verdict is Verdict.SPLIT
        rows = [child.wave.packed_rows for child in plan.rungs[0].children]
        assert sum(rows) == 16_205 + 4_643 and max(rows) < 10_800


@pytest.mark.invariant("INV-11")
class TestD11RetainedShare:
    """Forward peak 60 GiB, retained 30, backward peak 100; halves cost 1.1 * (30 + (100 - 30) / 2) = 71.5 GiB."""

    SETTING = Setting(recompute=NO_RECOMPUTE)
    BATCH = Batch([[lone(512, 0), lone(512, 1)]])

    def profile(self) -> Profile:
        forward = Reading(
            packed_rows=1_024,
            logical_rows=1_024,
            grad_segments=0,
            output_bytes=0,
            peak_delta_bytes=60 * GIB,
            footprint_bytes=60 * GIB,
            retained_bytes=30 * GIB,
            kind=ReadingKind.FORWARD_ONLY,
        )
        return observe(observe(Profile(), forward), whole(1_024, 1_024, 100 * GIB))

    def test_two_halves_are_admitted(self) -> None:
        plan = plan_first(self.BATCH, self.profile(), 75 * GIB, self.SETTING)
        assert (plan.verdict, plan.subforwards) == (Verdict.SPLIT, 2)
        assert 10 * plan.required_bytes == 715 * GIB

    def test_equality_admits_and_a_byte_less_does_not(self) -> None:
        cost = -(-715 * GIB // 10)
        assert plan_first(self.BATCH, self.profile(), cost, self.SETTING).verdict is Verdict.SPLIT
        assert plan_first(self.BATCH, self.profile(), cost - 1, self.SETTING).verdict is not Verdict.SPLIT

    def test_a_higher_backward_peak_raises_no_retained_bytes(self) -> None:
        higher = observe(self.profile(), whole(1_024, 1_024, 120 * GIB))
        before, after = (
            plan_first(self.BATCH, profile, 90 * GIB, self.SETTING).rungs[0].children[0].retained_bytes
            for profile in (self.profile(), higher)
        )
        assert before == after


@pytest.mark.invariant("INV-1", "INV-2")
class TestD13OneTokenMore:
    """A refusal must not turn into an admission one token later, at any window."""

    def verdicts(self, rows: Sequence[int], *readings: Reading) -> list[Verdict]:
        profile = observe_all(Profile(), list(readings))
        budget = required_bytes(plan_first(Batch([[lone(80)]]), profile, GIB).wave, profile, law=WARM) - 1
        return [plan_first(Batch([[lone(at)]]), profile, budget).verdict for at in rows]

    def test_80_and_81_are_both_refused(self) -> None:
        supported = [whole(10, 10, 10_000_000)] * 2
        assert self.verdicts([80, 81, 82, 800], *supported) == [Verdict.REFUSE] * 4

    def test_80_and_81_are_both_probed_while_only_a_first_wave_was_seen(self) -> None:
        assert self.verdicts([80, 81, 82, 800], whole(10, 10, 10_000_000)) == [Verdict.PROBE] * 4

    def test_prices_do_not_drop_at_the_row_window_or_the_sharing_window(self) -> None:
        profile = observe_all(Profile(), [whole(10, 10, 10_000_000)] * 2)
        tails = [[1] * count for count in range(1, 30)]
        prices = [plan_first(Batch([branches(70, tail)]), profile, 10**12).required_bytes for tail in tails]
        assert prices == sorted(prices)


@pytest.mark.invariant("INV-13")
class TestD14InactiveRequests:
    """8 tokens of real work cost the same beside an inactive request of 8,001."""

    def test_the_plan_is_the_same(self) -> None:
        profile = observe_all(Profile(), [whole(64, 64, 64_000)] * 2)
        idle = PlanRequest(tokens=list(range(8_001)), spec=RequestSpec(input_shape=(8_001,)))
        alone = plan_first(Batch([[lone(8)]]), profile, GIB)
        beside = plan_first(Batch([[lone(8), idle]]), profile, GIB)
        assert (beside.wave, beside.price, beside.signature) == (alone.wave, alone.price, alone.signature)
        assert len(beside.requests) == 2 and len(beside.layout(Batch([[lone(8), idle]])).request_positions[1]) == 0


class TestD17BusiestRank:
    """Ranks (4,096; 2,868) of 6,964 rows: admitted by what the busiest rank holds; each group is padded on its own."""

    RATE = 1_048_576 * 15
    PAIR = Batch([[lone(3_482, 0), lone(3_482, 1)]])

    def test_the_pair_is_admitted_by_4_096_rows(self) -> None:
        profile = observe_all(Profile(), [whole(4_096, 4_096, 4_096 * self.RATE)] * 2)
        budget = int(81.9 * GIB)
        busiest = plan_first(self.PAIR, profile, budget, Setting(rank_rows=lambda shape, requests: 4_096))
        assert (busiest.verdict, busiest.wave.packed_rows, busiest.shape.packed_rows) == (Verdict.RUN, 4_096, 6_964)
        everything = plan_first(self.PAIR, profile, budget)
        assert everything.verdict is not Verdict.RUN
        evenly = plan_first(self.PAIR, profile, budget, Setting(rank_rows=lambda shape, requests: 3_482))
        assert evenly.required_bytes < busiest.required_bytes

    def test_groups_of_4k_plus_1_rows_are_padded_one_by_one(self) -> None:
        requests = [
            PlanRequest(
                tokens=list(range(4_001)),
                spec=RequestSpec(input_shape=(4_001,), target_shape=(4_001,)),
                slot=slot,
                adapter="r8",
            )
            for slot in ("a", "b", "c")
        ]
        batch = Batch([requests])
        plan = plan_wave(batch, profiles={}, available_bytes=GIB, setting=Setting(row_multiple=4), law=WARM)
        assert plan.wave.packed_rows == 3 * 4_004 == plan.layout(batch).packed_rows


class TestD19CachedIsNotFree:
    """Two figures: a wave that fits only by the cache is run after a release, not as it is."""

    def test_a_handoff_with_nothing_physically_free_is_released_first(self) -> None:
        """The first report's snapshot; of 55.2 GB idle bytes 42.8 GB came back."""
        total, allocated, reserved, free = 150_754_820_096, 92_197_523_968, 147_394_134_016, 14_352_384
        reserve = -(-3 * total // 100)
        idle = reserved - allocated
        assert judge(7_976_316_880, Budget(free_bytes=free, reserve_bytes=reserve, reusable_cache_bytes=idle)) is (
            BudgetVerdict.RELEASE
        )
        released = 42_754_637_824
        after = Budget(free_bytes=free + released, reserve_bytes=reserve, reusable_cache_bytes=idle - released)
        assert judge(7_976_316_880, after) is BudgetVerdict.RUN

    def test_equality_fits_and_free_that_rises_is_no_error(self) -> None:
        """A07's snapshots: 30.3 against 30.3, and 82.94 rising to 90.17."""
        at = int(30.3 * GIB)
        assert judge(at, Budget(free_bytes=at, reserve_bytes=0)) is BudgetVerdict.RUN
        for free in (82.94, 90.17, 77.94):
            assert judge(at, Budget(free_bytes=int(free * GIB), reserve_bytes=GIB)) is BudgetVerdict.RUN
        assert judge(0, Budget(free_bytes=int(2.82 * GIB), reserve_bytes=int(6.03 * GIB))) is BudgetVerdict.REFUSE


@pytest.mark.invariant("INV-3")
class TestD22PlanThatRan:
    """Cost-optimal rows (41, 82, 43) break a bisection; full-sharing rows (41, 42, 43) do not, and are what runs."""

    BATCH = Batch([[request] for request in branches(40, [1, 1, 1])])
    PROFILE = observe_all(Profile(), [whole(1_000, 3_000, 1_000 * 10**6)] * 2)

    def test_rows_are_monotone_and_the_search_takes_all_three(self) -> None:
        curve = Curve(self.BATCH, 0)
        assert [curve.shape(width).packed_rows for width in (1, 2, 3)] == [41, 42, 43]
        assert [curve.shape(width).unshared_rows for width in (1, 2, 3)] == [41, 82, 123]
        plan = plan_first(self.BATCH, self.PROFILE, 60 * 10**6)
        assert (plan.width, plan.verdict) == (3, Verdict.RUN)

    def test_what_runs_is_what_was_priced(self) -> None:
        plan = plan_first(self.BATCH, self.PROFILE, 60 * 10**6)
        assert plan.layout(self.BATCH).packed_rows == plan.wave.packed_rows == 43
        assert (
            plan.price.required_bytes
            == plan.tried[-1].required_bytes
            == required_bytes(plan.wave, self.PROFILE, law=WARM)
        )


class TestD23RefusalsThatCanBeTrusted:
    """One refusal once mixed the unsplit plan's rows with a split rung's budget."""

    BATCH = Batch([[lone(120_000, 0), lone(88_288, 1)]])
    PROFILE = observe_all(Profile(), [whole(16_205, 109_065, 459_782 * 16_205)] * 2)

    def test_every_rung_has_its_own_rows_price_and_budget(self) -> None:
        plan = plan_first(self.BATCH, self.PROFILE, 63 * GIB)
        assert plan.verdict is Verdict.REFUSE and plan.refusal is not None
        assert plan.refusal.wave.packed_rows == 208_288 and plan.refusal.available_bytes == 63 * GIB
        assert plan.price.required_bytes > 95 * GIB
        (rung,) = plan.refusal.rungs
        assert [child.wave.packed_rows for child in rung.children] == [88_288, 120_000] or rung.pruned
        assert rung.available_bytes == 63 * GIB and not rung.fits

    def test_it_says_what_was_tried_and_never_that_none_exists(self) -> None:
        plan = plan_first(self.BATCH, self.PROFILE, 63 * GIB)
        text = str(plan.refusal)
        assert "no feasible split found; tried:" in text and "2 sub-forwards" in text
        assert "208,288 packed rows" in text and "63.00 GiB" in text and "none exists" not in text

    def test_an_admission_keeps_its_own_figures(self) -> None:
        """Admitted at 100 of 120; that free memory later falls to 3 changes a new judgement, not the record."""
        batch = Batch([[lone(100)]])
        profile = observe_all(Profile(), [whole(100, 100, 100)] * 2)
        admitted = plan_first(batch, profile, 120, Setting(recompute=NO_RECOMPUTE), safety=EXACT)
        later = plan_first(batch, profile, 3, Setting(recompute=NO_RECOMPUTE), safety=EXACT)
        assert (admitted.required_bytes, admitted.available_bytes, admitted.verdict) == (100, 120, Verdict.RUN)
        assert (later.required_bytes, later.available_bytes, later.runs) == (100, 3, False)


class TestA05CountOfParts:
    """ceil(total / cap) is not a split count: requests are indivisible."""

    @pytest.mark.parametrize(("count", "rows", "cap", "parts"), [(8, 7, 8, 8), (16, 30_720, 32_768, 16)])
    def test_parts_are_checked_after_the_cut(self, count: int, rows: int, cap: int, parts: int) -> None:
        """A byte a row, nothing retained: the budget is the cap."""
        forward = Reading(
            packed_rows=rows,
            logical_rows=rows,
            grad_segments=0,
            output_bytes=0,
            peak_delta_bytes=rows,
            footprint_bytes=rows,
            retained_bytes=0,
            kind=ReadingKind.FORWARD_ONLY,
        )
        profile = observe_all(Profile(), [forward, whole(rows, rows, rows)] * 2)
        setting = Setting(recompute=NO_RECOMPUTE)
        batch = Batch([[lone(rows, number) for number in range(count)]])
        plan = plan_first(batch, profile, cap, setting, safety=EXACT)
        assert (plan.verdict, plan.subforwards) == (Verdict.SPLIT, parts)
        assert all(child.wave.packed_rows <= cap for child in plan.children)

    @pytest.mark.parametrize(("count", "rows", "cap"), [(8, 7, 8), (16, 30_720, 32_768)])
    def test_single_items_run_one_a_wave(self, count: int, rows: int, cap: int) -> None:
        profile = observe_all(Profile(), [whole(rows, rows, rows)] * 2)
        setting = Setting(recompute=NO_RECOMPUTE)
        batch = Batch([[lone(rows, number)] for number in range(count)])
        plan = plan_batch(
            batch,
            profiles={signature_of_first(batch, setting): profile},
            available_bytes=cap,
            setting=setting,
            safety=EXACT,
            law=WARM,
        )
        assert [wave.width for wave in plan.waves] == [1] * count and not plan.refused


class TestA11AlignmentPadding:
    """A 1,000-row sequence aligned to 64 is 1,024 rows, in the price, in the layout and against the cap."""

    def test_one_rounding_everywhere(self) -> None:
        setting = Setting(recompute=NO_RECOMPUTE, row_multiple=64)
        batch = Batch([[lone(1_000)]])
        profile = observe_all(Profile(), [whole(1_024, 1_024, 1_024)] * 2)
        fits = plan_first(batch, profile, 1_024, setting, safety=EXACT)
        assert (fits.verdict, fits.wave.packed_rows, fits.required_bytes) == (Verdict.RUN, 1_024, 1_024)
        assert fits.layout(batch).packed_rows == 1_024
        assert plan_first(batch, profile, 1_000, setting, safety=EXACT).verdict is Verdict.REFUSE


ALMOST_ALL = MAX_QUANTITY - 10**6


@pytest.mark.parametrize(
    "outputs",
    [(1 << 62, 1 << 62), (ALMOST_ALL, 10**6 + 1), (ALMOST_ALL, ALMOST_ALL, 0), (0, ALMOST_ALL, 10**7, 5)],
)
def test_sums_beyond_what_can_be_counted_end_the_wave_before_them(outputs: tuple[int, ...]) -> None:
    """Width 1 fits and width 2 has no number: that raised, although nobody needs width 2."""
    spec = RequestSpec(input_shape=(2,), logits=True)
    batch = Batch([[PlanRequest(tokens=[7, at], spec=spec, output_bytes=size)] for at, size in enumerate(outputs)])
    profile = observe_all(Profile(), [a_reading(10, 10, logical_rows=10, footprint_bytes=10)] * 3)
    plan = plan_batch(batch, profiles=lambda _: profile, available_bytes=MAX_QUANTITY, safety=EXACT, law=WARM)
    assert all(sum(outputs[wave.start : wave.next_start]) <= MAX_QUANTITY for wave in plan.waves)
    assert plan.unplanned_items == 0 and len(plan.waves) == 2 and not plan.refused


def test_a_request_that_asks_for_more_than_labels_is_no_plain_one() -> None:
    """Every field of a request that makes a mix of its own, beside the plain one that is asked about first."""
    plain = RequestSpec(input_shape=(70,), target_shape=(70,))
    changes: list[dict[str, Any]] = [{"target_shape": (70, 4)}, {"input_shape": (1, 70)}, {"target_shape": None}]
    for field in fields(plain):
        if field.name not in ("input_shape", "target_shape"):
            changes.append({field.name: 5 if field.name == "top_k" else True})
    for change in ({}, *changes):
        spec = replace(plain, **change)
        batch = Batch([[PlanRequest(tokens=[0] * 70, spec=spec)]])
        assert batch.mixes == [mix_key(spec)], change
        assert (mix_key(spec) == "target:single") == (change in ({}, {"input_shape": (1, 70)})), change
