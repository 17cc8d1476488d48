"""Shares: classes and scales by value, and the bound that makes them enough (assumption SHARES)."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pricing.kernel.errors import WaveError
from pricing.kernel.frontier import FRONTIER
from pricing.kernel.price import allocated_bytes
from pricing.kernel.profile import Profile, observe_all
from pricing.kernel.quantities import Safety
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading
from pricing.kernel.requests import NO_RECOMPUTE, Workload
from pricing.kernel.shares import (
    LOGICAL,
    MOST_KINDS,
    PACKED,
    SHARE_STEPS,
    EvidenceRows,
    KindRows,
    Share,
    class_scale,
    evidence_rows,
    rows_under,
    scaled_down,
    scaled_up,
    shares_of,
    size_class,
)
from pricing.kernel.wave import Wave

ONE = Safety(numerator=1, denominator=1)
MIXED = Workload(grad_modes=(False, True), request_mixes=("logits", "target:single"), recompute=NO_RECOMPUTE)


@pytest.mark.parametrize(
    ("rows", "total", "expected"),
    [(1, 1, 0), (100, 100, 0), (76, 100, 0), (75, 100, 1), (51, 100, 1), (50, 100, 2), (25, 100, 4), (1, 1_000, 19)],
)
def test_a_class_is_half_an_octave_of_shares(rows: int, total: int, expected: int) -> None:
    assert size_class(rows, total) == expected


@given(total=st.integers(1, 1 << 40), data=st.data())
def test_at_the_scale_of_its_class_a_kind_is_at_most_the_total_and_little_less(total: int, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, total))
    scaled = rows * Fraction(*class_scale(size_class(rows, total)))

    assert Fraction(SHARE_STEPS, SHARE_STEPS + 1) * total < scaled <= total
    assert scaled_down(rows, size_class(rows, total)) <= scaled <= scaled_up(rows, size_class(rows, total)) <= total


def test_one_kind_has_no_share_and_counts_for_its_own_rows() -> None:
    one = KindRows.of([("gradients", 100), ("no gradients", 0)], [("target:single, gradients", 120)])

    assert shares_of(one) == ()
    assert evidence_rows(100, 120, 3, one) is None
    assert rows_under(one.packed, PACKED, 100, ()) == 100


def test_the_least_represented_kind_says_what_a_reading_counts_for() -> None:
    """64 rows of 2,112 with gradients: class 10 (a share of at most 1/32), at whose scale they are 2,048."""
    rows = KindRows.of([("gradients", 64), ("no gradients", 2_048)], [("a", 64), ("b", 2_048)])

    assert [share.size_class for share in shares_of(rows)] == [10, 0, 10, 0]
    assert evidence_rows(2_112, 2_112, 4, rows) == EvidenceRows(packed_rows=2_048, logical_rows=2_048, grad_segments=3)


def test_a_share_is_of_packed_or_logical_rows() -> None:
    with pytest.raises(WaveError, match="routed"):
        Share(quantity="routed", kind="a", size_class=0)


# --- the bound -------------------------------------------------------------------------------------------------------

KINDS = ("a", "b", "c")
kind_rows = st.lists(st.integers(1, 1 << 20), min_size=3, max_size=3)


@st.composite
def waves_of_three_kinds(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Packed and logical rows of each kind; as often as not near those of a second wave of the same classes."""
    packed = draw(kind_rows)
    return packed, [rows * draw(st.integers(1, 3)) + draw(st.integers(0, 2)) for rows in packed]


def kinds_of_wave(wave: tuple[list[int], list[int]]) -> KindRows:
    packed, logical = wave
    return KindRows.of(zip(KINDS, packed, strict=True), zip(KINDS, logical, strict=True))


def as_wave(wave: tuple[list[int], list[int]], by: tuple[Share, ...]) -> Wave:
    rows = kinds_of_wave(wave)
    packed, logical = sum(wave[0]), sum(wave[1])
    return Wave(
        packed_rows=rows_under(rows.packed, PACKED, packed, by),
        logical_rows=rows_under(rows.logical, LOGICAL, logical, by),
        grad_segments=0,
        output_bytes=0,
        workload=MIXED,
        evidence=evidence_rows(packed, logical, 0, rows),
    )


def need_bytes(wave: tuple[list[int], list[int]], costs: list[int], fixed: int) -> int:
    """Some memory that obeys SHARES: kinds add up or take turns, each with a cost a row; and a fixed cost."""
    packed, logical = wave
    added = sum(cost * rows for cost, rows in zip(costs, packed, strict=False))
    in_turn = max(cost * rows for cost, rows in zip(costs[3:], logical, strict=True))
    return fixed + max(added, in_turn) + in_turn // 2


@given(
    first=waves_of_three_kinds(),
    second=waves_of_three_kinds(),
    again=st.booleans(),
    factors=st.tuples(st.integers(50, 200), st.integers(50, 200)),
    costs=st.lists(st.integers(0, 1 << 16), min_size=6, max_size=6),
    fixed=st.integers(0, 1 << 30),
)
@example(
    first=([64, 2_048, 1], [64, 2_048, 1]),
    second=([2_048, 64, 1], [2_048, 64, 1]),
    again=False,
    factors=(100, 100),
    costs=[70_000, 1, 0, 0, 0, 0],
    fixed=0,
)
def test_what_one_wave_taught_covers_every_wave_of_its_kinds(
    first: tuple[list[int], list[int]],
    second: tuple[list[int], list[int]],
    again: bool,
    factors: tuple[int, int],
    costs: list[int],
    fixed: int,
) -> None:
    """Whatever the proportions: at its own rows where they are of equal classes, at more where they are not. Under
    every law that mixes are priced by, at a safety factor of 1."""
    if again:  # mostly of the same classes
        second = (
            [max(1, rows * factor // 100) for rows, factor in zip(first[0], (*factors, 100), strict=True)],
            [max(1, rows * factor // 100) for rows, factor in zip(first[1], (*factors, 100), strict=True)],
        )
    shares = shares_of(kinds_of_wave(first))
    evidence = as_wave(first, ()).evidence_rows
    reading = Reading(
        packed_rows=evidence.packed_rows,
        logical_rows=evidence.logical_rows,
        grad_segments=0,
        output_bytes=0,
        peak_delta_bytes=need_bytes(first, costs, fixed),
    )
    priced = as_wave(second, shares)
    for readings in (1, 3):
        profile = observe_all(Profile(), [reading] * readings)
        for law in (WARM, FRONTIER):
            if shares == shares_of(kinds_of_wave(second)):
                assert priced.packed_rows == sum(second[0])
            # Under a rate through the origin a wave smaller than the evidence is not covered, as everywhere.
            bounds = law is FRONTIER and readings == 3
            if bounds or fixed == 0 or priced.packed_rows >= reading.packed_rows:
                assert allocated_bytes(priced, profile, law, ONE) >= need_bytes(second, costs, fixed)


@given(first=waves_of_three_kinds(), grown=kind_rows)
def test_rows_counted_never_fall_as_any_kind_grows(first: tuple[list[int], list[int]], grown: list[int]) -> None:
    shares = shares_of(kinds_of_wave(first))
    larger = ([rows + more for rows, more in zip(first[0], grown, strict=True)], first[1])

    assert as_wave(larger, shares).packed_rows >= as_wave(first, shares).packed_rows


@given(first=waves_of_three_kinds())
def test_a_reading_counts_for_little_less_than_its_rows(first: tuple[list[int], list[int]]) -> None:
    evidence = as_wave(first, ()).evidence_rows
    total = min(sum(first[0]), sum(first[1]))

    assert (evidence.packed_rows + 1) * (SHARE_STEPS + 1) > total * SHARE_STEPS
    assert evidence.packed_rows <= evidence.logical_rows


# --- many kinds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [1, 984])
def test_beyond_the_most_kinds_the_rows_are_one_joint_kind_and_the_other_quantity_keeps_its_shares(more: int) -> None:
    packed = [("gradients", 64), ("no gradients", 2_048)]
    most = KindRows.of(packed, [(f"kind {number:04}", 10) for number in range(MOST_KINDS)])
    many = KindRows.of(packed, [(f"kind {number:04}", 10) for number in range(MOST_KINDS + more)])

    assert {share.quantity for share in shares_of(most)} == {PACKED, LOGICAL}
    assert [(share.quantity, share.size_class) for share in shares_of(many)] == [(PACKED, 10), (PACKED, 0)]
    assert rows_under(many.logical, LOGICAL, 3_000, shares_of(many)) == 3_000
    told = evidence_rows(2_112, 3_000, 4, many)
    assert told == EvidenceRows(packed_rows=2_048, logical_rows=3_000, grad_segments=3)


def test_kinds_without_rows_do_not_make_many() -> None:
    kinds = [(f"kind {number:04}", 10 if number < 2 else 0) for number in range(10 * MOST_KINDS)]
    assert len(KindRows.of((), kinds).logical) == 2
