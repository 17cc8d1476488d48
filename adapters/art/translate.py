"""One-to-one translations between ART's records and this kernel's. No arithmetic of the laws lives here.

ART's signature, profile and plan are read by attribute (they are dataclasses of `art.trainer_rank`), so this
module imports nothing of ART and can be tested without it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from pricing.kernel.profile import Profile
from pricing.kernel.quantities import SHORT_REQUEST_ROWS, UNSHARED, Sharing, ceil_div
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, RecomputeMode, Signature, Workload

_SHARING_DENOMINATOR: Final = 1 << 20
"""Adopted sharing ratios are doubles; the nearest fraction with at most this denominator is the pair that made
them.
"""


def recompute_mode(rank: Any, one_layer: bool) -> RecomputeMode:
    """The recompute mode of `rank`: `one_layer` is its own live answer, the stored settings say the rest.

    A rank that stores full/uniform/1 but answers no is not training (recompute is skipped then).
    """
    if one_layer:
        return ONE_LAYER_FULL
    granularity = rank._recompute_granularity
    if granularity is None:
        return NO_RECOMPUTE
    mode = RecomputeMode(
        granularity=str(granularity), method=rank._recompute_method, num_layers=rank._recompute_num_layers
    )
    if not mode.is_one_layer_full:
        return mode
    return RecomputeMode(granularity=mode.granularity, method=mode.method, num_layers=mode.num_layers, training=False)


def signature_of(original: Any, recompute: RecomputeMode) -> Signature:
    """The kernel's signature for ART's: different for different ones, equal for equal ones (the short flag is
    in neither).

    ART keeps two things in a signature that the kernel's has no field for: the multiset of grad modes and the
    identity of the layout score. They enter as part of the topology's text. ART also keeps `inactive` among the
    mixes, and starts cold when an inactive request joins; its planner gates on that, so it is kept, and
    eligibility ignores it as it should.
    """
    topology = "dp{} tp{} cp{} pp{}".format(*original.topology)
    score = "/".join(str(part) for part in original.planner_coefficients)
    grads = "".join("g" if grad else "n" for grad in original.grad_modes)
    scoped = getattr(original, "checkpoint_partition", None), getattr(original, "bounded_forward_peak", False)
    return Signature(
        topology=f"{topology} score {score} grads {grads}" + (f" scoped {scoped}" if any(scoped) else ""),
        group_count=int(original.slot_group_count),
        request_mixes=tuple(sorted(set(original.request_mix))),
        grad_modes=tuple(sorted(set(original.grad_modes))),
        adapter_shapes=(repr(original.slot_shapes),) if original.slot_shapes else (),
        recompute=recompute,
    )


def workload_of(original: Any, recompute: RecomputeMode) -> Workload:
    """The eligibility facts in ART's signature. ART says only whether some request is short, so 63 rows stand
    for yes.
    """
    return Workload(
        grad_modes=tuple(sorted(set(original.grad_modes))),
        request_mixes=tuple(sorted(set(original.request_mix))),
        recompute=recompute,
        shortest_single_target_rows=SHORT_REQUEST_ROWS - 1 if original.short_requests else None,
    )


def reading_of(
    plan: Any,
    peak_delta_bytes: int,
    retained_bytes: int | None,
    *,
    caller_phase: bool,
    split_child: bool,
    footprint_bytes: int | None = None,
) -> Reading:
    """ART's reading of one plan. `caller_phase` is its word for a complete one, given where the interval was whole.
    `footprint_bytes` is what this project's reader saw beside it, None without a clean start.

    ART counts no forward's return as complete, not even of a gradient-free `dp_rank_forward`, so neither does this.
    A gradient wave whose whole-wave reading shows no compute ran no backward: it is `interrupted`, so that it can never
    become a warm rate of zero.
    """
    grads = bool(plan.signature.grad_enabled)
    reading = Reading(
        packed_rows=int(plan.packed_tokens),
        logical_rows=int(plan.active_logical_tokens),
        grad_segments=int(plan.grad_segment_count),
        output_bytes=int(plan.output_bytes),
        peak_delta_bytes=int(peak_delta_bytes),
        footprint_bytes=None if footprint_bytes is None else max(footprint_bytes, int(peak_delta_bytes)),
        retained_bytes=None if retained_bytes is None else int(retained_bytes),
        grads=grads,
        kind=_kind(caller_phase, retained_bytes is not None, split_child),
    )
    if reading.kind is ReadingKind.WHOLE_WAVE and grads and reading.compute_bytes == 0:
        return replace(reading, kind=ReadingKind.INTERRUPTED)
    return reading


def _kind(caller_phase: bool, at_forward_return: bool, split_child: bool) -> ReadingKind:
    if split_child:
        return ReadingKind.SPLIT_CHILD
    if caller_phase:
        return ReadingKind.WHOLE_WAVE
    return ReadingKind.FORWARD_ONLY if at_forward_return else ReadingKind.INTERRUPTED


def adopted_profile(original: Any) -> Profile:
    """What a rank had learned before it was bound, taken over: rates rounded up to whole bytes, ratios as
    fractions.
    """
    warm_sharing = original.warm_logical_per_packed
    return Profile(
        peak_bytes_per_row=math.ceil(original.bytes_per_token),
        largest_packed_rows=int(original.packed_tokens),
        sharing=_sharing(original.logical_per_packed),
        retained_bytes_per_row=_ceil(original.retained_compute_bytes_per_token),
        complete_readings=int(original.caller_plans),
        warm_bytes_per_row=_ceil(original.warm_bytes_per_token),
        warm_packed_rows=original.warm_packed_tokens,
        warm_sharing=None if warm_sharing is None else _sharing(warm_sharing),
    )


def _ceil(value: float | None) -> int | None:
    return None if value is None else math.ceil(value)


def _sharing(ratio: float) -> Sharing:
    nearest = Fraction(ratio).limit_denominator(_SHARING_DENOMINATOR)
    if nearest <= 1:
        return UNSHARED
    return Sharing(logical_rows=nearest.numerator, packed_rows=nearest.denominator)


def floor_bytes(estimate: int, output_bytes: int) -> int:
    """The static floor F inside an estimate of ART's that holds nothing but outputs and floor.

    Such an estimate is the truncation of 1.1 * (O + F), which at most one integer O + F fits: the largest one below
    (estimate + 1) / 1.1. ART's own addition of outputs under context parallelism is in F.
    """
    return max(0, ceil_div((estimate + 1) * 10, 11) - 1 - output_bytes)
