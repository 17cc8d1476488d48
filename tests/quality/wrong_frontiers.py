"""Wrong frontier laws: looser forms that were tried, or easily are, as patches of the shipped functions.

Each names the check of `test_wrong_frontiers.py` that must notice it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pricing.kernel import bands, frontier, rate_laws
from pricing.kernel.bands import Anchor, Band, Bands, Cover, FrontierEvidence
from pricing.kernel.frontier import Bound, Frontier
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, ceil_div
from pricing.kernel.reading import Reading
from pricing.kernel.wave import Wave
from tests.quality.wrong_kernels import WrongKernel

_right_band_of = bands.band_of
_right_bound_of = frontier.bound_of
_right_derived = frontier._derived
_right_observe_bands = bands.observe_bands


# --- coverage --------------------------------------------------------------------------------------------------------


def _never_lifted(bound: Bound, covers: Iterable[Cover]) -> Bound:
    return bound


def _lifted_at_the_knee_only(bound: Bound, cover: Cover) -> int:
    knee = frontier.knee_rows(cover)
    needed = frontier.needed_bytes(bound, knee, cover, cover.bytes_per_row * knee)
    return max(bound.compute_bytes, needed)


def _lifted_by_the_first_cover(bound: Bound, covers: Iterable[Cover]) -> Bound:
    first = next(iter(covers), None)
    return bound if first is None else replace(bound, compute_bytes=frontier.lifted_bytes(bound, first))


def _cover_of_whole_points(one: Cover, other: Cover) -> Cover:
    return max(one, other, key=lambda cover: (cover.compute_bytes, cover.bytes_per_row))


def _cover_at_most_logical_rows(one: Cover, other: Cover) -> Cover:
    return Cover(
        compute_bytes=max(one.compute_bytes, other.compute_bytes),
        bytes_per_row=max(one.bytes_per_row, other.bytes_per_row),
        logical_rows=max(one.logical_rows, other.logical_rows),
        grad_segments=max(one.grad_segments, other.grad_segments),
    )


def _incomplete_covers_nothing(known: Bands, reading: Reading, compute_bytes: int, *, bounds: bool) -> Bands:
    return _right_join(known, reading, compute_bytes if bounds else 0, bounds=bounds)


_right_join = bands.join


def _rounded_down(bound: Bound, packed_rows: int, logical_rows: int, grad_segments: int) -> int:
    return frontier.scaled_bytes(bound, packed_rows, logical_rows, grad_segments) // bound.packed_rows


def _in_floats(bound: Bound, packed_rows: int, logical_rows: int, grad_segments: int) -> int:
    scaled = frontier.scaled_bytes(bound, packed_rows, logical_rows, grad_segments)
    return int(scaled / bound.packed_rows)


# --- what bounds -----------------------------------------------------------------------------------------------------


def _incomplete_bounds_too(reading: Reading, compute_bytes: int, *, bounds: bool) -> Band:
    return _right_band_of(reading, compute_bytes, bounds=True)


def _the_last_anchor_wins(one: Anchor | None, other: Anchor | None) -> Anchor | None:
    return one if other is None else other


def _anchors_joined_from_two(one: Anchor | None, other: Anchor | None) -> Anchor | None:
    """Compute of one reading at the rows of another."""
    if one is None or other is None:
        return one or other
    return Anchor(
        compute_bytes=min(one.compute_bytes, other.compute_bytes),
        packed_rows=max(one.packed_rows, other.packed_rows),
        logical_rows=max(one.logical_rows, other.logical_rows),
        grad_segments=max(one.grad_segments, other.grad_segments),
    )


def _seed_let_in(evidence: FrontierEvidence, reading: Reading, seed_seen: bool) -> FrontierEvidence:
    return _right_observe_bands(evidence, reading, True)


def _classes_without_an_end(packed_rows: int) -> int:
    shift = max(0, packed_rows.bit_length() - 1 - bands.SIZE_BITS)
    return (shift << bands.SIZE_BITS) + (packed_rows >> shift)


# --- what a bound charges --------------------------------------------------------------------------------------------


def _full_charges_for_free(anchor: Anchor, charge_bytes: int | None, state_bytes: int) -> Bound:
    """The charge that scales with the evidence: nobody pays for its credits, so it falls with P."""
    row = ceil_div(anchor.compute_bytes, anchor.logical_rows) if charge_bytes is None else charge_bytes
    return replace(
        _right_bound_of(anchor, charge_bytes, state_bytes),
        compute_bytes=anchor.compute_bytes,
        row_bytes=row,
        row_rest_bytes=row,
        segment_bytes=state_bytes,
        segment_rest_bytes=state_bytes,
    )


def _segments_never_charged(anchor: Anchor, charge_bytes: int | None, state_bytes: int) -> Bound:
    return _right_bound_of(anchor, charge_bytes, 0)


def _half_the_charge(anchor: Anchor, charge_bytes: int | None, state_bytes: int) -> Bound:
    return _right_bound_of(anchor, None if charge_bytes is None else LOGICAL_ROW_BYTES // 2, state_bytes)


def _unpacked_by_packed_rows(anchor: Anchor, charge_bytes: int | None, state_bytes: int) -> Bound:
    """Without charges, logical rows beyond the evidence would cost nothing."""
    return _right_bound_of(anchor, 0 if charge_bytes is None else charge_bytes, state_bytes)


def _clamp_lost(wave: Wave, profile: Profile, packed_priced: bool) -> int:
    return wave.packed_rows


# --- the minimum -----------------------------------------------------------------------------------------------------


def _dropped_whatever_its_logical_rows(one: Bound, other: Bound) -> bool:
    return one.compute_bytes <= other.compute_bytes and frontier.charges_no_more(one, other)


def _dropped_by_bytes_instead_of_rate(one: Bound, other: Bound) -> bool:
    return frontier.nowhere_above_as_larger(one, other)


def _nearest_band_only(self: Frontier, packed_rows: int, logical_rows: int, grad_segments: int) -> tuple[int, Bound]:
    place = sum(rows < packed_rows for rows in self.anchor_rows)
    bound = self.bounds[min(place, len(self.bounds) - 1)]
    return frontier.bound_bytes(bound, packed_rows, logical_rows, grad_segments), bound


def _minimum_with_the_warm_law(self: Any, wave: Wave, profile: Profile, packed_priced: bool) -> int:
    right = _right_compute_bytes(self, wave, profile, packed_priced)
    return min(right, rate_laws.WARM.compute_bytes(wave, profile, packed_priced))


_right_compute_bytes = frontier.FrontierLaw.compute_bytes


def _remembered_for_any_state(evidence: FrontierEvidence, key: tuple[str, bool, int]) -> Frontier:
    """The memo forgets G: the second G is priced with the first one's bounds."""
    for remembered, made in evidence.derived.items():
        if isinstance(made, Frontier) and isinstance(remembered, tuple) and remembered[:2] == key[:2]:
            return made
    return _right_derived(evidence, key)


@dataclass(frozen=True)
class _Named:
    """Shorthand: (name, mistake, check, owner, attribute, wrong function)."""

    name: str
    mistake: str
    caught_by: str
    owner: object
    attribute: str
    wrong: object

    @property
    def kernel(self) -> WrongKernel:
        return WrongKernel(
            name=self.name,
            mistake=self.mistake,
            caught_by=self.caught_by,
            patches={(self.owner, self.attribute): self.wrong},
        )


WRONG_FRONTIERS: tuple[WrongKernel, ...] = tuple(
    named.kernel
    for named in (
        _Named("lift_missing", "contradicted bounds stay (rho missing)", "covered", frontier, "lifted", _never_lifted),
        _Named(
            "knee_only",
            "covers W * p at the knee and nothing beyond it",
            "covered",
            frontier,
            "lifted_bytes",
            _lifted_at_the_knee_only,
        ),
        _Named(
            "one_cover",
            "each bound is lifted over one band only",
            "covered",
            frontier,
            "lifted",
            _lifted_by_the_first_cover,
        ),
        _Named(
            "whole_points",
            "keeps the highest reading whole instead of the knee",
            "covered_in_noise",
            bands,
            "joined_cover",
            _cover_of_whole_points,
        ),
        _Named(
            "own_logical_rows",
            "covers at the most logical rows of a band instead of the least",
            "covered",
            bands,
            "joined_cover",
            _cover_at_most_logical_rows,
        ),
        _Named(
            "incomplete_uncovered",
            "incomplete readings need not be covered",
            "covered",
            bands,
            "join",
            _incomplete_covers_nothing,
        ),
        _Named("rounded_down", "U is truncated", "model", frontier, "bound_bytes", _rounded_down),
        _Named("in_floats", "U is a double, truncated", "model", frontier, "bound_bytes", _in_floats),
        _Named(
            "incomplete_bounds",
            "a band without a complete reading is used as a bound",
            "never_lowered",
            bands,
            "band_of",
            _incomplete_bounds_too,
        ),
        _Named("last_anchor", "the last anchor of a band wins", "order", bands, "higher_anchor", _the_last_anchor_wins),
        _Named(
            "rows_of_another",
            "a bound takes the rows of one reading and the bytes of another",
            "machine",
            bands,
            "higher_anchor",
            _anchors_joined_from_two,
        ),
        _Named("seed_let_in", "the seed is evidence", "reachable", bands, "observe_bands", _seed_let_in),
        _Named(
            "endless_classes", "evidence grows without bound", "reachable", bands, "size_class", _classes_without_an_end
        ),
        _Named(
            "unpaid_credits",
            "charges scale with the evidence and fall with P",
            "never_falls",
            frontier,
            "bound_of",
            _full_charges_for_free,
        ),
        _Named("free_segments", "segments are not charged", "machine", frontier, "bound_of", _segments_never_charged),
        _Named("half_charge", "half the logical charge", "machine", frontier, "bound_of", _half_the_charge),
        _Named(
            "unpacked_by_packed_rows",
            "without packed pricing logical rows cost nothing",
            "model",
            frontier,
            "bound_of",
            _unpacked_by_packed_rows,
        ),
        _Named("clamp_lost", "sharing is extrapolated without end", "model", frontier, "trusted_rows", _clamp_lost),
        _Named(
            "dropped_blindly",
            "a search leaves out bounds that hold more logical rows",
            "minimum",
            frontier,
            "nowhere_above_as_larger",
            _dropped_whatever_its_logical_rows,
        ),
        _Named(
            "dropped_by_bytes",
            "a search compares smaller anchors by bytes, not by rate",
            "minimum",
            frontier,
            "nowhere_above_as_smaller",
            _dropped_by_bytes_instead_of_rate,
        ),
        _Named("nearest_band", "prices by the next band alone", "minimum", Frontier, "least", _nearest_band_only),
        _Named(
            "warm_minimum",
            "takes the minimum with the warm law",
            "machine",
            frontier.FrontierLaw,
            "compute_bytes",
            _minimum_with_the_warm_law,
        ),
        _Named(
            "stale_memo",
            "what was derived for one G prices another",
            "memo",
            frontier,
            "_derived",
            _remembered_for_any_state,
        ),
    )
)
