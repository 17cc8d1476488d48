"""The planner against recorded answers of another implementation: prefix trees and width searches.

Trees must be equal. Widths need not be: that planner tries a coarse grid, ours finds the largest feasible width, so
ours is never narrower and never over the budget. What both planned must be priced alike, within the interval of
`kernel_formats`, by the profile that the recorded waves teach. Where that planner used cheap estimates, a wave that
fits without any sharing and with two segments a request carries that price: an upper bound, which ours must then meet
too.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Final

from pricing.formats.codec import decode
from pricing.formats.place import Place
from pricing.formats.strict_json import JsonObject
from pricing.kernel.price import Price, price
from pricing.kernel.profile import Profile, observe
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import ONE_LAYER_FULL, RequestSpec, Signature
from pricing.kernel.wave import Wave
from pricing.planner.batch import Batch, PlanRequest
from pricing.planner.budget import fits
from pricing.planner.curve import Curve
from pricing.planner.plan import Verdict, WavePlan, plan_wave
from pricing.planner.prefix_tree import build_tree
from pricing.planner.setting import Setting
from pricing.planner.tokens import ArrayTokens, NumpyTokens
from tests.differential.comparison import Comparison
from tests.differential.formats import Machine, PeerProfile, PickedWave, RefusedWave, Tree, WidthSearch
from tests.differential.kernel_formats import BELOW_BYTES, SIGMA

OUTPUT_BYTES_PER_ROW: Final = 4

_SIGNATURE: Final = Signature(
    topology="",
    group_count=1,
    request_mixes=("target:single",),
    grad_modes=(True,),
    adapter_shapes=("",),
    recompute=ONE_LAYER_FULL,
)


def compare_prefix_tree(line: JsonObject, place: Place, comparison: Comparison) -> None:
    """One set of token rows, by both token representations: rows at each depth of sharing, segments, order."""
    case = decode(Tree, line, place)
    by_depth = list(case.packed_by_depth)
    for tokens in (NumpyTokens(), ArrayTokens()):
        tree = build_tree([list(row) for row in case.rows], tokens)
        comparison.equal("packed rows", tree.packed_rows(), case.packed_full)
        comparison.equal("rows by depth", [tree.packed_rows(depth) for depth in range(len(by_depth))], by_depth)
        comparison.equal("segments", sorted(tree.segments()), sorted(case.segments_full))
        comparison.equal("segment count", tree.segment_count, case.canonical_segments)
        comparison.equal("order", tree.depth_first_rows(), list(case.order))
    comparison.equal("canonical rows", case.canonical_full, case.packed_full)


def compare_width_search(line: JsonObject, place: Place, comparison: Comparison) -> None:
    """One batch on one machine: every wave that planner picked, planned by ours from the same profile."""
    case = decode(WidthSearch, line, place)
    batch = _batch(case)
    setting = Setting(segment_state_bytes=case.geometry.segment_state_bytes)
    profile = Profile()
    for recorded in case.waves:
        plan = _plan(batch, recorded.start, profile, case.budget, setting)
        _compare_wave(batch, plan, recorded, setting, case.cheap_estimates, comparison)
        profile = _learn(profile, case.machine, recorded)
        _compare_profile(profile, recorded.profile, comparison)
    if case.refused is not None:
        plan = _plan(batch, case.refused.start, profile, case.budget, setting)
        _compare_refused(plan, case.refused, comparison)


def _batch(case: WidthSearch) -> Batch:
    """Prompt-major single requests: a prompt's completions share exactly the prompt."""
    items: list[tuple[PlanRequest, ...]] = []
    for prompt, (rows, completions) in enumerate(zip(case.prompts, case.completions, strict=True)):
        for completion in completions:
            tail = len(items)
            length = rows + completion
            request = PlanRequest(
                tokens=[2 * prompt] * rows + [2 * tail + 1] * completion,
                spec=RequestSpec(input_shape=(length,), target_shape=(length,)),
                output_bytes=OUTPUT_BYTES_PER_ROW * length,
            )
            items.append((request,))
    return Batch(items)


def _plan(batch: Batch, start: int, profile: Profile, budget: int, setting: Setting) -> WavePlan:
    return plan_wave(
        batch, start=start, profiles={_SIGNATURE: profile}, available_bytes=budget, setting=setting, law=WARM
    )


def _compare_wave(
    batch: Batch, plan: WavePlan, recorded: PickedWave, setting: Setting, cheap: bool, comparison: Comparison
) -> None:
    width = recorded.width
    comparison.holds("runs", plan.runs, f"ours refuses what theirs runs as {width} items")
    comparison.equal("signature", plan.signature, _SIGNATURE)
    if recorded.subforwards > 1:
        return
    comparison.holds("width", plan.width >= width, f"ours {plan.width}, theirs {width}")
    comparison.equal("cold start", plan.verdict is Verdict.COLD_START, recorded.cold_start)
    comparison.holds(
        "budget",
        plan.verdict is Verdict.PROBE or fits(plan.required_bytes, plan.available_bytes),
        f"ours needs {plan.required_bytes} of {plan.available_bytes}",
    )
    curve = Curve(batch, plan.start)
    shape = curve.shape(width)
    for name, ours in (("packed", shape.packed_rows), ("logical", shape.logical_rows), ("segments", shape.segments)):
        comparison.equal(name, ours, getattr(recorded, name))
    workload = curve.workload(width, ONE_LAYER_FULL)
    wave = setting.wave(shape, batch.item_requests(plan.start, width), workload, cold=plan.profile.is_empty)
    theirs = recorded.required
    if cheap and theirs > price(wave, plan.profile, WARM).allocated.required_bytes + _above(
        price(wave, plan.profile, WARM), wave
    ):
        wave = replace(wave, packed_rows=shape.unshared_rows, grad_segments=2 * width)
    _compare_required(price(wave, plan.profile, WARM), wave, theirs, comparison)


def _compare_required(priced: Price, wave: Wave, theirs: int, comparison: Comparison) -> None:
    comparison.within("required", priced.allocated.required_bytes, theirs - BELOW_BYTES, theirs + _above(priced, wave))


def _above(priced: Price, wave: Wave) -> Fraction:
    least = min(priced.terms, key=lambda term: term.model_bytes, default=None)
    rate, rows = (0, 0) if least is None else (least.bytes_per_row, least.rows)
    return SIGMA * (rate + rows + wave.grad_segments + 4)


def _compare_refused(plan: WavePlan, refused: RefusedWave, comparison: Comparison) -> None:
    """Theirs refuses the narrowest wave. Ours prices it alike and does not run it as it is; where only a first wave was
    learned from, its verdict is a probe."""
    allowed = {Verdict.REFUSE} if plan.profile.complete_readings > 1 else {Verdict.REFUSE, Verdict.PROBE}
    comparison.holds("verdict", plan.verdict in allowed, f"ours {plan.verdict}")
    comparison.equal("width", plan.width, 1)
    _compare_required(plan.price, plan.wave, refused.required, comparison)


def _learn(profile: Profile, machine: Machine, recorded: PickedWave) -> Profile:
    """Both readings of a wave on the made-up machine: the forward's, then the whole wave's."""
    packed, logical = recorded.packed, recorded.logical
    forward = (
        machine.row_bytes * packed
        + machine.logical_row_bytes * logical
        + machine.fixed_bytes
        + OUTPUT_BYTES_PER_ROW * logical
        + (machine.cold_bytes if profile.is_empty else 0)
    )
    after_forward = _reading(recorded, ReadingKind.FORWARD_ONLY, forward, forward * machine.kept_percent // 100)
    whole = _reading(recorded, ReadingKind.WHOLE_WAVE, forward * machine.caller_percent // 100, None)
    return observe(observe(profile, after_forward), whole)


def _reading(recorded: PickedWave, kind: ReadingKind, peak_bytes: int, retained_bytes: int | None) -> Reading:
    return Reading(
        packed_rows=recorded.packed,
        logical_rows=recorded.logical,
        grad_segments=recorded.segments,
        output_bytes=OUTPUT_BYTES_PER_ROW * recorded.logical,
        peak_delta_bytes=peak_bytes,
        footprint_bytes=peak_bytes,  # that planner holds what is allocated against its budget
        retained_bytes=retained_bytes,
        kind=kind,
    )


def _compare_profile(profile: Profile, theirs: PeerProfile, comparison: Comparison) -> None:
    comparison.equal("largest packed rows", profile.largest_packed_rows, theirs.packed_tokens)
    comparison.equal("complete readings", profile.complete_readings, theirs.caller_plans)
    comparison.equal("warm packed rows", profile.warm_packed_rows, theirs.warm_packed_tokens)
