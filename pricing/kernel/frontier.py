"""The frontier law: every complete reading bounds every wave, and the least bound prices it.

Assumption SCALE, for one signature and caller: the compute peak never falls as P, L or S grow, and never grows faster
than in proportion when all three grow in proportion. With HEAD and SEGMENT (one more logical row costs at most 6,144 B,
one more segment at most G) one complete reading (c, Pi, Li, Si) then bounds every wave. Scale it to at least the wave's
rows, then charge the logical rows and segments that the scaled reading lacks:

    U = min over t >= max(1, P / Pi) of   t*c + 6144 * max(0, L - t*Li) + G * max(0, S - t*Si)

which by duality is, with the least t alone and without a search,

    U = t*c + max(a*l + g'*s, a'*l + g*s)        l = max(0, L - t*Li), s = max(0, S - t*Si), t = max(1, P / Pi)
        a = min(6144, c / Li), g' = min(G, (c - a*Li) / Si): charge rows in full, segments with what c leaves
        g = min(G, c / Si),    a' = min(6144, (c - g*Si) / Li): the other way round

A charge is less than 6144 (or G) only where the reading's own logical rows and segments would be charged more than the
whole reading: there scaling on is cheaper. So U never falls with P: what a larger t takes off the charges, t*c adds.
Waves that are not packed-priced have no charges: a = c / Li, g = 0, which is t >= L / Li.

`compute = max(F, min over bands U)`, with P raised to the rows that 8 times the observed sharing would imply, as in the
other laws. Until a band bounds, the warm law prices; afterwards never the minimum of both (the all-readings term is too
low for waves smaller than the evidence).

**When SCALE fails**, readings contradict bounds. Each bound is then lifted, by raising its compute, until it explains
every reading ever seen, complete or not (`lifted_bytes`). So a contradicted band is believed no further than it was
right, the price rises and stays risen, and no reading lies above a later price of its wave (INV-8).

What carries theorems (`scaled_bytes`, `bound_bytes`, `lifted_bytes`, `bound_of`) runs unchanged on solver terms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Final

from pricing.kernel.bands import Anchor, Bands, Cover, FrontierEvidence, find_band
from pricing.kernel.law import Breakdown, Ineligible, Term, ineligibility
from pricing.kernel.profile import Evidence
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, TRUST_GROWTH, ceil_div, maximum, minimum
from pricing.kernel.rate_laws import WARM, is_retained_trusted, sharing_rows
from pricing.kernel.requests import Workload
from pricing.kernel.wave import Wave

# --- one bound -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What one anchor says about every wave, in whole bytes: c, Pi, Li, Si and a, g', a', g of the law above.

    compute_bytes is at least what the anchor's own logical rows and segments take off the charges when it is scaled,
    by either pair: the charges are rounded up, so it may be a byte a row above c.
    """

    compute_bytes: int
    packed_rows: int
    logical_rows: int
    grad_segments: int
    row_bytes: int
    segment_rest_bytes: int
    row_rest_bytes: int
    segment_bytes: int


def bound_of(anchor: Anchor, charge_bytes: int | None, state_bytes: int) -> Bound:
    """The anchor's bound, not yet lifted. `charge_bytes` None: no charges (`state_bytes` is 0), only proportion."""
    compute, logical_rows, segments = anchor.compute_bytes, anchor.logical_rows, anchor.grad_segments
    most = compute if charge_bytes is None else charge_bytes
    row = affordable_bytes(most, compute, logical_rows)
    segment_rest = affordable_bytes(state_bytes, compute - row * logical_rows, segments)
    segment = affordable_bytes(state_bytes, compute, segments)
    row_rest = affordable_bytes(most, compute - segment * segments, logical_rows)
    return Bound(
        compute_bytes=maximum(
            compute,
            maximum(row * logical_rows + segment_rest * segments, row_rest * logical_rows + segment * segments),
        ),
        packed_rows=anchor.packed_rows,
        logical_rows=logical_rows,
        grad_segments=segments,
        row_bytes=row,
        segment_rest_bytes=segment_rest,
        row_rest_bytes=row_rest,
        segment_bytes=segment,
    )


def anchored_bound(anchor: Anchor, charge_bytes: int | None, state_bytes: int) -> Bound:
    """The bound of a band's anchor. Without charges its padding counts as logical rows: the model runs them too.

    Sharing is never below 1 in any law. Were padding left out, a padded tiny reading (64 rows for 1 token) would be
    scaled 64-fold for every wave of whole rows.
    """
    if charge_bytes is None and anchor.logical_rows < anchor.packed_rows:
        anchor = replace(anchor, logical_rows=anchor.packed_rows)
    return bound_of(anchor, charge_bytes, state_bytes)


def affordable_bytes(charge_bytes: int, compute_bytes: int, count: int) -> int:
    """The charge for each of `count`, or what `compute_bytes` allows each, rounded up, where that is less."""
    if count == 0:
        return charge_bytes
    return minimum(charge_bytes, ceil_div(maximum(0, compute_bytes), count))


def scaled_charge_bytes(bound: Bound, rows: int, logical_rows: int, grad_segments: int) -> int:
    """Charges for what the anchor scaled to `rows` >= Pi lacks, times Pi (so that nothing is rounded)."""
    unit = bound.packed_rows
    lacking_rows = maximum(0, logical_rows * unit - bound.logical_rows * rows)
    lacking_segments = maximum(0, grad_segments * unit - bound.grad_segments * rows)
    return maximum(
        bound.row_bytes * lacking_rows + bound.segment_rest_bytes * lacking_segments,
        bound.row_rest_bytes * lacking_rows + bound.segment_bytes * lacking_segments,
    )


def segment_charge_bytes(bound: Bound, rows: int, logical_rows: int, grad_segments: int) -> int:
    """What segments are of those charges, in whole bytes: only for taking a price apart."""
    unit = bound.packed_rows
    lacking_rows = maximum(0, logical_rows * unit - bound.logical_rows * rows)
    lacking_segments = maximum(0, grad_segments * unit - bound.grad_segments * rows)
    rest_first = bound.row_rest_bytes * lacking_rows + bound.segment_bytes * lacking_segments
    is_first = bound.row_bytes * lacking_rows + bound.segment_rest_bytes * lacking_segments >= rest_first
    return (bound.segment_rest_bytes if is_first else bound.segment_bytes) * lacking_segments // unit


def scaled_bytes(bound: Bound, packed_rows: int, logical_rows: int, grad_segments: int) -> int:
    """U times Pi: exact. Never falls in P, L or S; divided by P it never rises."""
    rows = maximum(packed_rows, bound.packed_rows)
    return bound.compute_bytes * rows + scaled_charge_bytes(bound, rows, logical_rows, grad_segments)


def bound_bytes(bound: Bound, packed_rows: int, logical_rows: int, grad_segments: int) -> int:
    """U: compute bytes that the wave is bounded by, rounded up."""
    return ceil_div(scaled_bytes(bound, packed_rows, logical_rows, grad_segments), bound.packed_rows)


# --- coverage --------------------------------------------------------------------------------------------------------


def knee_rows(cover: Cover) -> int:
    """p: up to these rows a cover grows with them, beyond it is flat. At least 1."""
    return cover.compute_bytes // cover.bytes_per_row


def needed_bytes(bound: Bound, packed_rows: int, cover: Cover, compute_bytes: int) -> int:
    """Least C with which the bound is at least `compute_bytes` at these rows and at the cover's L and S."""
    rows = maximum(packed_rows, bound.packed_rows)
    charges = scaled_charge_bytes(bound, rows, cover.logical_rows, cover.grad_segments)
    return ceil_div(compute_bytes * bound.packed_rows - charges, rows)


def lifted_bytes(bound: Bound, cover: Cover) -> int:
    """Least C, at least its own, with which the bound covers every reading of `cover`.

    A reading is at most min(c, W*P). U rises with P and U/P falls, so U covers all of them once it covers the knee:
    W*p at p rows and c at p + 1.
    """
    knee = knee_rows(cover)
    return maximum(
        bound.compute_bytes,
        maximum(
            needed_bytes(bound, knee, cover, cover.bytes_per_row * knee),
            needed_bytes(bound, knee + 1, cover, cover.compute_bytes),
        ),
    )


def lifted(bound: Bound, covers: Iterable[Cover]) -> Bound:
    """The bound, raised until it covers every one of `covers`.

    U is at least C, and at least C / Pi a row: a cover that is under either needs no closer look.
    """
    compute = bound.compute_bytes
    for cover in covers:
        if cover.compute_bytes > compute and cover.bytes_per_row * bound.packed_rows > compute:
            compute = maximum(compute, lifted_bytes(bound, cover))
    return bound if compute == bound.compute_bytes else replace(bound, compute_bytes=compute)


# --- the frontier ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """All bounds of some evidence, arranged so that a price looks at few of them.

    anchor_rows: the anchors' packed rows, ascending. above[i]: bounds of the anchors from place i on, which are at
    least as large as a wave of anchor_rows[i - 1] < P <= anchor_rows[i], by ascending C. below[i]: those before it, by
    ascending C / Pi. Either leaves out bounds that another of its side is nowhere above: no minimum changes by it.
    """

    bounds: tuple[Bound, ...]
    anchor_rows: tuple[int, ...]
    above: tuple[tuple[Bound, ...], ...]
    below: tuple[tuple[Bound, ...], ...]

    def least(self, packed_rows: int, logical_rows: int, grad_segments: int) -> tuple[int, Bound]:
        """The least bound in bytes, and a bound that says so. Needs at least one bound.

        U >= C and U >= C * P / Pi: in those orders, the first bound that cannot be lower ends the search.
        """
        place = bisect_left(self.anchor_rows, packed_rows)
        least, binding = -1, self.bounds[0]
        for bound in self.above[place]:
            if 0 <= least <= bound.compute_bytes:
                break
            value = bound_bytes(bound, packed_rows, logical_rows, grad_segments)
            if least < 0 or value < least:
                least, binding = value, bound
        for bound in self.below[place]:
            if 0 <= least * bound.packed_rows <= bound.compute_bytes * packed_rows:
                break
            value = bound_bytes(bound, packed_rows, logical_rows, grad_segments)
            if least < 0 or value < least:
                least, binding = value, bound
        return least, binding


def frontier_of(bands: Bands, charge_bytes: int | None, state_bytes: int) -> Frontier:
    """The bounds of every band with an anchor, lifted to cover every band."""
    covers = [band.cover for band in bands]
    bounds = sorted(
        (
            lifted(anchored_bound(band.anchor, charge_bytes, state_bytes), covers)
            for band in bands
            if band.anchor is not None
        ),
        key=lambda bound: bound.packed_rows,
    )
    above, below = _fronts(reversed(bounds), nowhere_above_as_larger), _fronts(bounds, nowhere_above_as_smaller)
    return Frontier(
        bounds=tuple(bounds),
        anchor_rows=tuple(bound.packed_rows for bound in bounds),
        above=tuple(tuple(sorted(front, key=lambda bound: bound.compute_bytes)) for front in reversed(above)),
        below=tuple(tuple(sorted(front, key=cmp_to_key(_compared_by_row))) for front in below),
    )


def _compared_by_row(one: Bound, other: Bound) -> int:
    """Negative where `one` has the lower C / Pi, positive where the higher: by cross-multiplication, exact."""
    return one.compute_bytes * other.packed_rows - other.compute_bytes * one.packed_rows


def nowhere_above_as_larger(one: Bound, other: Bound) -> bool:
    """Whether U of `one` is nowhere above that of `other`, for waves of no more rows than either anchor (t = 1)."""
    return (
        one.compute_bytes <= other.compute_bytes
        and one.logical_rows >= other.logical_rows
        and (one.segment_bytes == 0 or one.grad_segments >= other.grad_segments)
        and charges_no_more(one, other)
    )


def nowhere_above_as_smaller(one: Bound, other: Bound) -> bool:
    """Likewise for waves of at least the rows of either anchor (t = P / Pi): the same, by packed row."""
    mine, theirs = one.packed_rows, other.packed_rows
    return (
        one.compute_bytes * theirs <= other.compute_bytes * mine
        and one.logical_rows * theirs >= other.logical_rows * mine
        and (one.segment_bytes == 0 or one.grad_segments * theirs >= other.grad_segments * mine)
        and charges_no_more(one, other)
    )


def charges_no_more(one: Bound, other: Bound) -> bool:
    """Whether each charge of `one` is at most the same one of `other`."""
    return (
        one.row_bytes <= other.row_bytes
        and one.segment_rest_bytes <= other.segment_rest_bytes
        and one.row_rest_bytes <= other.row_rest_bytes
        and one.segment_bytes <= other.segment_bytes
    )


def _fronts(bounds: Iterable[Bound], nowhere_above: Callable[[Bound, Bound], bool]) -> list[tuple[Bound, ...]]:
    """What is left of the first 0, 1, 2, ... of `bounds` once those that another is nowhere above are dropped."""
    front: tuple[Bound, ...] = ()
    fronts = [front]
    for bound in bounds:
        if not any(nowhere_above(kept, bound) for kept in front):
            front = (*(kept for kept in front if not nowhere_above(bound, kept)), bound)
        fronts.append(front)
    return fronts


# --- the law ---------------------------------------------------------------------------------------------------------


def peak_frontier(evidence: FrontierEvidence, packed_priced: bool, state_bytes: int) -> Frontier:
    """The frontier of peaks. Without packed pricing there are no charges, and L grows peaks in proportion only."""
    return _derived(evidence, ("peak", packed_priced, state_bytes if packed_priced else 0))


def retained_frontier(evidence: FrontierEvidence, packed_priced: bool) -> Frontier:
    """The frontier of retained bytes. No segment charge: recurrent states do not outlive their layer."""
    return _derived(evidence, ("retained", packed_priced, 0))


def _derived(evidence: FrontierEvidence, key: tuple[str, bool, int]) -> Frontier:
    """`_made(evidence, key)`, remembered with the evidence: a function of the two alone, so no price can tell."""
    known = evidence.derived.get(key)
    if isinstance(known, Frontier):
        return known
    frontier = _made(evidence, key)
    if len(evidence.derived) >= MOST_DERIVED:
        evidence.derived.clear()
    evidence.derived[key] = frontier
    return frontier


def _made(evidence: FrontierEvidence, key: tuple[str, bool, int]) -> Frontier:
    of, packed_priced, state_bytes = key
    bands = evidence.peak if of == "peak" else evidence.retained
    return frontier_of(bands, LOGICAL_ROW_BYTES if packed_priced else None, state_bytes)


MOST_DERIVED: Final = 8
"""Frontiers remembered for one evidence. A job needs up to four: packed-priced or not, peak or retained."""


def trusted_rows(wave: Wave, profile: Evidence, packed_priced: bool) -> int:
    """P, raised to the rows that 8 times the sharing of complete readings would imply (packed-priced only)."""
    if not packed_priced or profile.warm_sharing is None:
        return wave.packed_rows
    return sharing_rows(wave.packed_rows, wave.logical_rows, profile.warm_sharing, TRUST_GROWTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierLaw:
    """The law of this module behind the interface of `pricing.kernel.law`."""

    name: str = "frontier"
    summary: str = "bounds a wave by every complete reading after the first (assumption SCALE)"

    def ineligibility(self, profile: Evidence, workload: Workload) -> tuple[Ineligible, ...]:
        return ineligibility(profile, workload)

    def compute_bytes(self, wave: Wave, profile: Evidence, packed_priced: bool) -> int:
        frontier = peak_frontier(profile.frontier, packed_priced, wave.segment_state_bytes)
        if not frontier.bounds:
            return WARM.compute_bytes(wave, profile, packed_priced)
        rows = trusted_rows(wave, profile, packed_priced)
        return frontier.least(rows, wave.logical_rows, wave.grad_segments)[0]

    def breakdown(self, wave: Wave, profile: Evidence, packed_priced: bool) -> Breakdown:
        frontier = peak_frontier(profile.frontier, packed_priced, wave.segment_state_bytes)
        if not frontier.bounds:
            return WARM.breakdown(wave, profile, packed_priced)
        rows = trusted_rows(wave, profile, packed_priced)
        compute, bound = frontier.least(rows, wave.logical_rows, wave.grad_segments)
        scaled_rows, model, segments = maximum(rows, bound.packed_rows), compute, 0
        if packed_priced:
            model = ceil_div(bound.compute_bytes * scaled_rows, bound.packed_rows)
            segments = segment_charge_bytes(bound, scaled_rows, wave.logical_rows, wave.grad_segments)
        return Breakdown(
            terms=(
                Term(
                    binding=binding_term(wave, profile, bound, packed_priced),
                    rows=scaled_rows,
                    bytes_per_row=ceil_div(bound.compute_bytes, bound.packed_rows),
                    model_bytes=model,
                ),
            ),
            logical_charge_bytes=compute - model - segments,
            segment_charge_bytes=segments,
        )

    def kept_bytes(self, wave: Wave, profile: Evidence, packed_priced: bool) -> int | None:
        if profile.retained_bytes_per_row is None or not is_retained_trusted(wave, profile):
            return None
        frontier = retained_frontier(profile.frontier, packed_priced)
        if not frontier.bounds:
            return WARM.kept_bytes(wave, profile, packed_priced)
        return frontier.least(wave.packed_rows, wave.logical_rows, wave.grad_segments)[0]


def binding_term(wave: Wave, profile: Evidence, bound: Bound, packed_priced: bool) -> str:
    """The name of a binding term: its band, and whether sharing beyond reach or a contradicted band raised it."""
    band = find_band(profile.frontier.peak, bound.packed_rows, bound.logical_rows)
    assert band is not None and band.anchor is not None, "a bound comes from an anchor"
    charge, state_bytes = (LOGICAL_ROW_BYTES, wave.segment_state_bytes) if packed_priced else (None, 0)
    kind = "frontier"
    if trusted_rows(wave, profile, packed_priced) > wave.packed_rows:
        kind = "frontier_clamped"
    elif bound.compute_bytes > anchored_bound(band.anchor, charge, state_bytes).compute_bytes:
        kind = "frontier_lifted"
    return f"{kind}[{band}]"


FRONTIER: Final = FrontierLaw()
