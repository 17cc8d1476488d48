"""Assumption SCALE put to the test on recorded waves: how far any wave lay above what another one bounds it by.

The frontier law believes that the compute peak never falls as P, L or S grow and never grows faster than in proportion
(`kernel.frontier`). Every pair of complete waves after the seed tests that: by the one's reading the other is bounded.
A **miss** is how far, as a fraction of the bound, the other's peak lay above it. Footprints, where every wave has one,
are put to the same test in the place of the peaks: there it is assumption FOOTPRINT-SCALE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pricing.evidence.trace import TraceWave
from pricing.kernel.bands import Anchor
from pricing.kernel.errors import PricingError
from pricing.kernel.frontier import Bound, bound_bytes, bound_of, peak_frontier
from pricing.kernel.law import ineligibility
from pricing.kernel.price import Quantity
from pricing.kernel.profile import Evidence, Profile, observe
from pricing.kernel.quantities import LOGICAL_ROW_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """The worst miss of one kind: wave `above` lay `share` above the bound by wave `bounded_by` (indices in the file).

    A share of 0 or less: no wave lay above any bound, and the closest was so far below.
    """

    share: Fraction
    above: int
    bounded_by: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTest:
    """What a trace says of SCALE.

    scaling: the worst miss by scaling alone, t = max(1, P / Pi, L / Li): no charge hides anything. Segments are left
    out, as proportion says nothing of more segments at the same rows. charged: the worst miss with charges for what the
    scaled reading lacks (SCALE, HEAD and SEGMENT together), which is what packed prices rest on. None with fewer than
    two waves after the seed.
    lifted_waves: waves that were priced while readings contradicted bounds (rho > 1). raised_waves: those of them whose
    own price was raised by that. most_lifted: the largest lift of any bound ever, as a fraction of it.
    """

    waves: int
    scaling: Miss | None
    charged: Miss | None
    lifted_waves: int
    raised_waves: int
    most_lifted: Fraction


def scale_test(waves: Sequence[TraceWave], quantity: Quantity = Quantity.ALLOCATED) -> ScaleTest:
    """Test every pair of waves after the first, and replay the trace to see what misses did to prices.

    Raises `PricingError` where footprints are asked for and a wave has none.
    """
    lifts = _replayed(waves, quantity)
    return ScaleTest(
        waves=len(waves),
        scaling=_worst_miss(waves[1:], quantity, charged=False),
        charged=_worst_miss(waves[1:], quantity, charged=True),
        lifted_waves=sum(lift.is_lifted for lift in lifts),
        raised_waves=sum(lift.raises for lift in lifts),
        most_lifted=max((lift.most for lift in lifts), default=Fraction(0)),
    )


def _worst_miss(waves: Sequence[TraceWave], quantity: Quantity, *, charged: bool) -> Miss | None:
    worst: Miss | None = None
    for anchored in waves:
        compute = _compute_bytes(anchored, quantity)
        if compute == 0 or anchored.wave.logical_rows == 0:
            continue
        bound = _bound(anchored, compute, charged=charged)
        for other in waves:
            if other is anchored or not (charged or other.wave.grad_segments <= anchored.wave.grad_segments):
                continue
            limit = bound_bytes(bound, other.wave.packed_rows, other.wave.logical_rows, other.wave.grad_segments)
            share = Fraction(_compute_bytes(other, quantity), limit) - 1
            if worst is None or share > worst.share:
                worst = Miss(share=share, above=other.index, bounded_by=anchored.index)
    return worst


def _bound(anchored: TraceWave, compute_bytes: int, *, charged: bool) -> Bound:
    wave = anchored.wave
    anchor = Anchor(
        compute_bytes=compute_bytes,
        packed_rows=wave.packed_rows,
        logical_rows=wave.logical_rows,
        grad_segments=wave.grad_segments,
    )
    return bound_of(anchor, LOGICAL_ROW_BYTES, wave.segment_state_bytes) if charged else bound_of(anchor, None, 0)


def _compute_bytes(recorded: TraceWave, quantity: Quantity) -> int:
    peak_bytes = recorded.peak_bytes
    if quantity is Quantity.FOOTPRINT:
        if recorded.footprint_bytes is None:
            raise PricingError(f"wave {recorded.index} has no footprint: its cache was not released before it")
        peak_bytes = recorded.footprint_bytes
    return max(0, peak_bytes - recorded.wave.output_bytes)


@dataclass(frozen=True, slots=True)
class _Lift:
    """Lifts as one wave met them: whether there were any, whether they raised its price, and the largest."""

    is_lifted: bool
    raises: bool
    most: Fraction


def _replayed(waves: Sequence[TraceWave], quantity: Quantity) -> list[_Lift]:
    profile, lifts = Profile(), []
    for recorded in waves:
        lifts.append(_lift_met(recorded, _evidence_of(profile, quantity)))
        for reading in recorded.readings:
            profile = observe(profile, reading)
    lifts.append(_lift_met(waves[-1], _evidence_of(profile, quantity), only_largest=True))
    return lifts


def _evidence_of(profile: Profile, quantity: Quantity) -> Evidence:
    return profile.footprint if quantity is Quantity.FOOTPRINT else profile


def _lift_met(recorded: TraceWave, profile: Evidence, *, only_largest: bool = False) -> _Lift:
    """`only_largest`: after the last wave nothing more is priced, but it may have lifted bounds."""
    wave = recorded.wave
    packed_priced = not ineligibility(profile, wave.workload)
    frontier = peak_frontier(profile.frontier, packed_priced, wave.segment_state_bytes)
    if not frontier.bounds:
        return _Lift(False, False, Fraction(0))
    plain = _without_lifts(profile, packed_priced, wave.segment_state_bytes)
    most = max(
        Fraction(lifted.compute_bytes, bound.compute_bytes) - 1
        for lifted, bound in zip(frontier.bounds, plain, strict=True)
    )
    if only_largest or most == 0:
        return _Lift(False, False, most)
    asked = (wave.packed_rows, wave.logical_rows, wave.grad_segments)
    return _Lift(True, frontier.least(*asked)[0] > min(bound_bytes(bound, *asked) for bound in plain), most)


def _without_lifts(profile: Evidence, packed_priced: bool, state_bytes: int) -> list[Bound]:
    """The bounds of a profile before they were lifted, in the order of its frontier."""
    charge, state = (LOGICAL_ROW_BYTES, state_bytes) if packed_priced else (None, 0)
    anchors = [band.anchor for band in profile.frontier.peak if band.anchor is not None]
    bounds = [bound_of(anchor, charge, state) for anchor in anchors]
    return sorted(bounds, key=lambda bound: bound.packed_rows)
