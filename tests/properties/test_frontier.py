"""The frontier law over generated bounds, covers and evidence: one property a predicate, and what only whole histories
show. (That it keeps INV-1..3 and 8..14 as every other law does is in `test_invariants.py`.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pricing import Profile, Reading, ReadingKind, Safety, Wave, Workload, contracts, observe
from pricing.kernel.bands import (
    LARGEST_CLASS_ROWS,
    MOST_BANDS,
    MOST_SHARING_CLASS,
    NO_EVIDENCE,
    Anchor,
    Band,
    Cover,
    FrontierEvidence,
    broken_evidence,
    find_band,
    observe_bands,
    sharing_class,
    size_class,
    size_class_rows,
)
from pricing.kernel.errors import ProfileError
from pricing.kernel.frontier import (
    FRONTIER,
    MOST_DERIVED,
    Bound,
    bound_bytes,
    bound_of,
    frontier_of,
    nowhere_above_as_larger,
    nowhere_above_as_smaller,
    peak_frontier,
)
from pricing.kernel.price import allocated_bytes, price, retained_evidence_bytes
from pricing.kernel.profile import observe_all
from pricing.kernel.quantities import LOGICAL_ROW_BYTES
from pricing.kernel.rate_laws import WARM
from pricing.testing import counts, histories, incomplete_readings, readings
from pricing.testing.strategies import MAX_BYTES, MAX_ROWS, positive

NO_MARGIN = Safety(numerator=1, denominator=1)
PACKED_WORKLOAD = Workload.training(shortest_rows=64)
UNPACKED_WORKLOAD = Workload.training(shortest_rows=63)
STATE_BYTES = 4_292_608

charges = st.sampled_from([None, 0, LOGICAL_ROW_BYTES])
state_bytes = st.sampled_from([0, 1, STATE_BYTES])


@st.composite
def anchors(draw: st.DrawFn, largest_rows: int = MAX_ROWS) -> Anchor:
    """Complete readings of any size, cost and sharing; now and then of fewer bytes than their own charges."""
    rows = draw(positive(largest_rows))
    return Anchor(
        compute_bytes=draw(st.one_of(positive(MAX_BYTES), positive(1 << 21).map(lambda rate: rate * rows))),
        packed_rows=rows,
        logical_rows=max(1, draw(st.one_of(st.just(rows), counts(128).map(lambda sharing: sharing * rows)))),
        grad_segments=draw(counts(1 << 12)),
    )


@st.composite
def bounds(draw: st.DrawFn) -> Bound:
    """A bound as evidence makes it, lifted by some amount half of the time."""
    charge = draw(charges)
    bound = bound_of(draw(anchors()), charge, draw(state_bytes) if charge is not None else 0)
    return replace(bound, compute_bytes=bound.compute_bytes + draw(st.one_of(st.just(0), counts(MAX_BYTES))))


@st.composite
def covers(draw: st.DrawFn) -> Cover:
    rate = draw(positive(1 << 22))
    return Cover(
        compute_bytes=rate * draw(positive(MAX_ROWS)) + draw(counts(rate - 1)),
        bytes_per_row=rate,
        logical_rows=draw(counts(MAX_ROWS)),
        grad_segments=draw(counts(1 << 12)),
    )


@st.composite
def covered_readings(draw: st.DrawFn) -> tuple[Cover, Anchor]:
    """A cover and a reading within it: at the knee, beside it, anywhere."""
    cover = draw(covers())
    knee = cover.compute_bytes // cover.bytes_per_row
    rows = draw(st.one_of(st.integers(max(1, knee - 1), knee + 1), positive(MAX_ROWS)))
    most = min(cover.compute_bytes, cover.bytes_per_row * rows)
    return cover, Anchor(
        compute_bytes=draw(st.one_of(st.just(most), st.integers(1, most))),
        packed_rows=rows,
        logical_rows=cover.logical_rows + draw(st.one_of(st.just(0), counts(MAX_ROWS))),
        grad_segments=cover.grad_segments + draw(st.one_of(st.just(0), counts(1 << 10))),
    )


@st.composite
def crowded_evidence(draw: st.DrawFn) -> FrontierEvidence:
    """Evidence of many readings in few bands, complete or not, as a noisy machine would leave it, or an absurd one."""
    evidence = NO_EVIDENCE
    fixed, rate = draw(counts(1 << 32)), draw(positive(1 << 20))
    for _ in range(draw(st.integers(1, 12))):
        rows = draw(st.one_of(st.integers(1, 64), st.integers(1_000, 5_000)))
        noise = draw(st.sampled_from([97, 100, 100, 103, 150]))
        sharing = draw(st.integers(1, 12))
        reading = Reading(
            packed_rows=rows,
            logical_rows=rows * sharing,
            grad_segments=draw(counts(64)),
            output_bytes=0,
            peak_delta_bytes=(fixed + rate * rows) * noise // 100,
            kind=draw(st.sampled_from([ReadingKind.WHOLE_WAVE, ReadingKind.WHOLE_WAVE, ReadingKind.SPLIT_CHILD])),
        )
        evidence = observe_bands(evidence, reading, True)
    return evidence


def wave_of(reading: Reading, workload: Workload, segment_bytes: int = 0) -> Wave:
    return Wave(
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        grad_segments=reading.grad_segments,
        output_bytes=reading.output_bytes,
        segment_state_bytes=segment_bytes,
        workload=workload,
    )


# --- one bound -------------------------------------------------------------------------------------------------------


@given(anchors(), charges, state_bytes)
def test_every_anchor_makes_a_bound(anchor: Anchor, charge: int | None, segment_bytes: int) -> None:
    assert contracts.is_bound(bound_of(anchor, charge, segment_bytes))


@pytest.mark.invariant("INV-1", "INV-2")
@given(bounds(), anchors(), counts(MAX_ROWS), counts(MAX_ROWS), counts(1 << 12))
def test_bound_never_falls(bound: Bound, wave: Anchor, rows: int, logical_rows: int, segments: int) -> None:
    larger = replace(
        wave,
        packed_rows=wave.packed_rows + rows,
        logical_rows=wave.logical_rows + logical_rows,
        grad_segments=wave.grad_segments + segments,
    )
    assert contracts.bound_never_falls(bound, wave, larger)


@pytest.mark.invariant("INV-8")
@given(bounds(), positive(MAX_ROWS), counts(MAX_ROWS), counts(64 * MAX_ROWS), counts(1 << 12))
def test_bound_per_row_never_rises(bound: Bound, rows: int, more: int, logical_rows: int, segments: int) -> None:
    assert contracts.bound_per_row_never_rises(bound, rows, rows + more, logical_rows, segments)


@pytest.mark.invariant("INV-8")
@given(bounds(), covered_readings())
def test_lifted_bound_covers(bound: Bound, covered: tuple[Cover, Anchor]) -> None:
    assert contracts.lifted_bound_covers(bound, *covered)


@pytest.mark.invariant("INV-9")
@given(bounds(), positive(MAX_ROWS), covers(), positive(MAX_BYTES))
def test_lift_is_least(bound: Bound, rows: int, cover: Cover, target_bytes: int) -> None:
    assert contracts.lift_is_least(bound, rows, cover, target_bytes)


@pytest.mark.invariant("INV-8")
@given(covered_readings(), covers())
def test_joined_cover_covers_both(covered: tuple[Cover, Anchor], other: Cover) -> None:
    assert contracts.joined_cover_covers_both(covered[0], other, covered[1])


@pytest.mark.invariant("INV-9")
@given(bounds(), covers(), covers())
def test_wider_cover_never_lowers_a_lift(bound: Bound, one: Cover, other: Cover) -> None:
    assert contracts.wider_cover_never_lowers_a_lift(bound, one, other)


# --- the frontier ----------------------------------------------------------------------------------------------------


@pytest.mark.invariant("INV-2")
@given(crowded_evidence(), charges, state_bytes, st.data())
def test_frontier_is_the_minimum(
    evidence: FrontierEvidence, charge: int | None, segment_bytes: int, data: st.DataObject
) -> None:
    frontier = frontier_of(evidence.peak, charge, segment_bytes)
    near = [max(1, rows + offset) for rows in (*frontier.anchor_rows, 1) for offset in (-1, 0, 1)]
    rows = data.draw(st.one_of(st.sampled_from(near), positive(1 << 13)))
    sharing, segments = data.draw(st.integers(0, 16)), data.draw(counts(128))
    assert contracts.frontier_is_the_minimum(evidence.peak, charge, segment_bytes, rows, rows * sharing, segments)


@st.composite
def small_bounds(draw: st.DrawFn) -> Bound:
    """Bounds of small numbers, so that two of them are often comparable and often only just."""
    anchor = Anchor(
        compute_bytes=draw(st.integers(1, 40)),
        packed_rows=draw(st.integers(1, 12)),
        logical_rows=draw(st.integers(1, 12)),
        grad_segments=draw(st.integers(0, 4)),
    )
    return bound_of(anchor, draw(st.sampled_from([None, 3])), 0) if draw(st.booleans()) else bound_of(anchor, 3, 5)


@pytest.mark.invariant("INV-2")
@settings(max_examples=1_000)
@given(small_bounds(), small_bounds(), st.integers(0, 40), st.integers(0, 60), st.integers(0, 12))
def test_a_bound_that_is_left_out_is_nowhere_below_the_one_that_stays(
    one: Bound, other: Bound, offset: int, logical_rows: int, segments: int
) -> None:
    if nowhere_above_as_larger(one, other):
        wave = (max(1, min(one.packed_rows, other.packed_rows) - offset), logical_rows, segments)
        assert bound_bytes(one, *wave) <= bound_bytes(other, *wave)
    if nowhere_above_as_smaller(one, other):
        wave = (max(one.packed_rows, other.packed_rows) + offset, logical_rows, segments)
        assert bound_bytes(one, *wave) <= bound_bytes(other, *wave)


@pytest.mark.invariant("INV-9")
@given(histories(8), readings(), st.booleans())
def test_evidence_stays_reachable(history: Sequence[Reading], reading: Reading, seed_seen: bool) -> None:
    evidence = NO_EVIDENCE
    for earlier in history:
        evidence = observe_bands(evidence, earlier, True)
    assert contracts.evidence_stays_reachable(evidence, reading, seed_seen)


@pytest.mark.invariant("INV-9")
@given(crowded_evidence(), incomplete_readings())
def test_incomplete_reading_never_moves_a_bound(evidence: FrontierEvidence, reading: Reading) -> None:
    assert contracts.incomplete_reading_never_moves_a_bound(evidence, reading)


@pytest.mark.invariant("INV-9")
@given(crowded_evidence(), incomplete_readings(), state_bytes, st.booleans(), st.data())
def test_incomplete_reading_never_lowers_a_price_at_any_sharing(
    evidence: FrontierEvidence, reading: Reading, segment_bytes: int, packed: bool, data: st.DataObject
) -> None:
    """Stronger than INV-9 asks: once a band bounds, not even beyond 8 times the sharing already seen."""
    before = peak_frontier(evidence, packed, segment_bytes)
    if not before.bounds:
        return
    after = peak_frontier(observe_bands(evidence, reading, True), packed, segment_bytes)
    rows = data.draw(positive(1 << 13))
    wave = (rows, rows * data.draw(st.integers(0, 100)), data.draw(counts(128)))
    assert before.least(*wave)[0] <= after.least(*wave)[0]


@pytest.mark.invariant("INV-10")
@given(crowded_evidence(), readings(), readings())
def test_evidence_does_not_depend_on_order(evidence: FrontierEvidence, first: Reading, second: Reading) -> None:
    assert contracts.evidence_does_not_depend_on_order(evidence, first, second)


@pytest.mark.invariant("INV-10")
@given(st.lists(readings(min_packed_rows=1), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_a_shuffled_history_leaves_equal_evidence(history: list[Reading], random: object) -> None:
    shuffled = list(history)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    seed = Reading(
        packed_rows=1, logical_rows=1, grad_segments=0, output_bytes=0, peak_delta_bytes=1, footprint_bytes=1
    )
    one, other = observe_all(Profile(), [seed, *history]), observe_all(Profile(), [seed, *shuffled])
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.invariant("INV-8", "INV-11")
@given(readings(min_packed_rows=1), histories(4), st.booleans())
def test_what_was_retained_stays_covered(reading: Reading, later: Sequence[Reading], packed: bool) -> None:
    """INV-8 for retained bytes: no reading after the seed lies above the retained price of its wave (or required)."""
    seed = Reading(packed_rows=1, logical_rows=1, grad_segments=0, output_bytes=0, peak_delta_bytes=1)
    profile = observe_all(Profile(), [seed, reading, *later])
    wave = wave_of(reading, PACKED_WORKLOAD if packed else UNPACKED_WORKLOAD)
    if reading.retained_compute_bytes is not None and profile.frontier.retained:
        held = reading.output_bytes + reading.retained_compute_bytes
        assert retained_evidence_bytes(wave, profile, FRONTIER, NO_MARGIN) >= min(
            held, allocated_bytes(wave, profile, FRONTIER, NO_MARGIN)
        )


# --- from the warm law to the frontier, and the names of prices ------------------------------------------------------


@given(histories(5), readings(min_packed_rows=1))
def test_until_a_band_bounds_the_warm_law_prices(history: list[Reading], reading: Reading) -> None:
    profile = observe_all(Profile(), history)
    wave = wave_of(reading, PACKED_WORKLOAD, STATE_BYTES)
    priced = price(wave, profile, FRONTIER).allocated
    if any(band.anchor is not None for band in profile.frontier.peak):
        assert priced.binding_term == "floor" or priced.binding_term.startswith("frontier")
    else:
        warm = price(wave, profile, WARM).allocated
        assert (priced.required_bytes, priced.binding_term) == (warm.required_bytes, warm.binding_term)


def test_the_binding_term_names_the_band_and_why() -> None:
    profile = _of([(712, 712, 1_200_000_000), (1_000, 1_000, 1_000_000_000), (8_000, 8_000, 2_000_000_000)])
    assert _binding(profile, 7_000, 7_000) == "frontier[7680..8191 rows, sharing 1..2]"
    assert _binding(profile, 20_000, 20_000) == "frontier[7680..8191 rows, sharing 1..2]"
    assert _binding(profile, 1_000, 9_000).startswith("frontier_clamped[")
    contradicted = observe(profile, _whole(7_000, 7_000, 2_500_000_000))
    assert _binding(contradicted, 7_500, 7_500) == "frontier_lifted[7680..8191 rows, sharing 1..2]"


def test_the_seed_stays_out() -> None:
    dear_seed, cheap_seed = _of([(500, 500, 9_000_000_000), (500, 500, 10)]), _of([(500, 500, 1), (500, 500, 10)])
    assert dear_seed.frontier == cheap_seed.frontier


# --- bands -----------------------------------------------------------------------------------------------------------


def test_bands_are_bounded_in_number() -> None:
    assert MOST_BANDS == size_class(LARGEST_CLASS_ROWS) * MOST_SHARING_CLASS == 1_008


@given(positive(1 << 24))
@example(1)
@example(LARGEST_CLASS_ROWS)
def test_a_size_class_is_an_eighth_of_an_octave(rows: int) -> None:
    size = size_class(rows)
    first = size_class_rows(size)
    assert first <= rows
    assert size_class(first) == size
    if rows < LARGEST_CLASS_ROWS:
        after = size_class_rows(size + 1)
        assert first <= rows < after <= max(first + 1, first + first // 8)


@given(counts(1 << 30), positive(1 << 24))
def test_a_sharing_class_is_an_octave(logical_rows: int, packed_rows: int) -> None:
    octave = sharing_class(logical_rows, packed_rows)
    assert 1 <= octave <= MOST_SHARING_CLASS
    assert octave == 1 or packed_rows << (octave - 1) <= logical_rows
    assert octave == MOST_SHARING_CLASS or logical_rows < packed_rows << octave


def _of(waves: Sequence[tuple[int, int, int]]) -> Profile:
    return observe_all(Profile(), [_whole(*wave) for wave in waves])


def _whole(packed_rows: int, logical_rows: int, peak_bytes: int) -> Reading:
    return Reading(
        packed_rows=packed_rows,
        logical_rows=logical_rows,
        grad_segments=1,
        output_bytes=0,
        peak_delta_bytes=peak_bytes,
    )


def _binding(profile: Profile, packed_rows: int, logical_rows: int) -> str:
    return price(wave_of(_whole(packed_rows, logical_rows, 1), PACKED_WORKLOAD), profile, FRONTIER).binding_term


# --- evidence that no history leaves ---------------------------------------------------------------------------------


ANCHOR = Anchor(compute_bytes=3_000, packed_rows=20, logical_rows=40, grad_segments=3)
COVER = Cover(compute_bytes=3_000, bytes_per_row=150, logical_rows=40, grad_segments=3)
BAND = Band(size=size_class(20), sharing=2, cover=COVER, anchor=ANCHOR)


def test_evidence_that_a_history_leaves_is_accepted() -> None:
    assert broken_evidence(FrontierEvidence(peak=(BAND,), retained=(BAND,))) is None
    assert broken_evidence(FrontierEvidence(peak=(replace(BAND, anchor=None),))) is None
    one_byte = Cover(compute_bytes=1, bytes_per_row=1, logical_rows=0, grad_segments=0)
    assert broken_evidence(FrontierEvidence(peak=(Band(size=1, sharing=1, cover=one_byte),))) is None
    last = Band(size=144, sharing=7, cover=one_byte)
    assert broken_evidence(FrontierEvidence(peak=(BAND, last))) is None


@pytest.mark.parametrize(
    ("band", "says"),
    [
        (replace(BAND, size=0, anchor=None), "no such band"),
        (replace(BAND, size=145, anchor=None), "no such band"),
        (replace(BAND, sharing=0, anchor=None), "no such band"),
        (replace(BAND, sharing=8, anchor=None), "no such band"),
        (replace(BAND, cover=replace(COVER, bytes_per_row=0)), "cover"),
        (replace(BAND, cover=replace(COVER, bytes_per_row=3_001)), "cover"),
        (replace(BAND, size=size_class(22)), "another band"),
        (replace(BAND, sharing=3), "another band"),
        (replace(BAND, anchor=replace(ANCHOR, compute_bytes=0)), "not covered"),
        (replace(BAND, anchor=replace(ANCHOR, compute_bytes=3_001)), "not covered"),
        (replace(BAND, cover=replace(COVER, bytes_per_row=149)), "not covered"),
        (replace(BAND, cover=replace(COVER, logical_rows=41)), "not covered"),
        (replace(BAND, cover=replace(COVER, grad_segments=4)), "not covered"),
        (
            Band(
                size=size_class(20),
                sharing=1,
                cover=replace(COVER, logical_rows=0),
                anchor=replace(ANCHOR, logical_rows=0),
            ),
            "not covered",
        ),
    ],
)
def test_evidence_that_no_history_leaves_is_refused(band: Band, says: str) -> None:
    for evidence in (FrontierEvidence(peak=(band,)), FrontierEvidence(retained=(band,))):
        assert says in (broken_evidence(evidence) or "accepted")
        with pytest.raises(ProfileError, match=says):
            replace(observe_all(Profile(), [_whole(20, 40, 9_000)] * 2), frontier=evidence)


def test_bands_stand_in_order_and_once() -> None:
    later = replace(BAND, sharing=3, anchor=None)
    assert broken_evidence(FrontierEvidence(peak=(BAND, later))) is None
    for bands in ((later, BAND), (BAND, BAND)):
        assert "out of order" in (broken_evidence(FrontierEvidence(peak=bands)) or "accepted")


def test_evidence_before_the_seed_is_refused() -> None:
    with pytest.raises(ProfileError, match="before the seed"):
        replace(Profile(), peak_bytes_per_row=150, largest_packed_rows=20, frontier=FrontierEvidence(peak=(BAND,)))
    seeded = observe(Profile(), _whole(20, 40, 9_000))
    with pytest.raises(ProfileError, match="second complete reading"):
        replace(seeded, frontier=FrontierEvidence(peak=(BAND,)))
    assert replace(seeded, frontier=FrontierEvidence(peak=(replace(BAND, anchor=None),))).complete_readings == 1


def test_a_band_is_found_by_the_rows_of_a_wave_or_not_at_all() -> None:
    later = replace(BAND, sharing=3, anchor=None)
    assert find_band((BAND, later), 20, 40) is BAND
    assert find_band((BAND, later), 20, 80) is later
    for rows, logical_rows in ((20, 20), (19, 40), (22, 44), (20, 160)):
        assert find_band((BAND, later), rows, logical_rows) is None
    assert find_band((), 20, 40) is None


def test_what_is_derived_from_evidence_is_remembered_and_bounded() -> None:
    profile = _of([(500, 500, 9), (500, 500, 10_000_000), (900, 2_000, 30_000_000)])
    wave = wave_of(_whole(700, 900, 1), PACKED_WORKLOAD)
    prices = {
        state: allocated_bytes(replace(wave, segment_state_bytes=state), profile, FRONTIER) for state in range(40)
    }
    assert len(profile.frontier.derived) <= MOST_DERIVED
    again = {state: allocated_bytes(replace(wave, segment_state_bytes=state), profile, FRONTIER) for state in range(40)}
    assert again == prices
    assert peak_frontier(profile.frontier, True, 39) is peak_frontier(profile.frontier, True, 39)
