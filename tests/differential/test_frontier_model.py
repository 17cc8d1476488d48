"""The frontier law against its executable model, and against the law before its charges were whole bytes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import Profile, Reading, ReadingKind, Safety, Wave, Workload, allocated_bytes
from pricing.kernel.bands import Anchor, sharing_class, size_class
from pricing.kernel.frontier import FRONTIER, bound_bytes, bound_of
from pricing.kernel.price import required_bytes, retained_bytes, retained_evidence_bytes
from pricing.kernel.profile import observe_all
from pricing.testing import counts, safeties
from pricing.testing.strategies import positive
from spec import frontier_model as model
from tests.differential.test_model import model_reading, model_wave

MOST_ROWS = 200
"""The model asks about every number of rows, so waves are small here. What grows with rows is the same at any size."""

WORKLOADS = [Workload.training(shortest_rows=64), Workload.training(shortest_rows=63)]


@st.composite
def small_readings(draw: st.DrawFn) -> Reading:
    """Any kind of reading of few rows; costs around charges, so that both sides of every comparison are met."""
    rows = draw(st.one_of(st.integers(0, 12), st.integers(0, MOST_ROWS)))
    logical = rows * draw(st.sampled_from([0, 1, 1, 2, 5, 70])) + draw(st.integers(0, 3)) if rows else 0
    delta = draw(st.one_of(counts(1 << 12), counts(1 << 22), st.just(6_144 * logical), st.just(6_143 * logical)))
    kind = draw(st.sampled_from([ReadingKind.WHOLE_WAVE, ReadingKind.WHOLE_WAVE, *ReadingKind]))
    return Reading(
        packed_rows=rows,
        logical_rows=logical,
        grad_segments=draw(st.integers(0, 8)),
        output_bytes=draw(st.sampled_from([0, 0, 7, 1 << 12])),
        peak_delta_bytes=delta,
        retained_bytes=draw(st.one_of(st.none(), st.integers(-9, 2 * delta + 1))),
        grads=draw(st.booleans()),
        kind=kind,
        footprint_bytes=delta if kind is ReadingKind.OUT_OF_MEMORY else None,
        closes_wave=draw(st.booleans()),
    )


@st.composite
def small_waves(draw: st.DrawFn) -> Wave:
    rows = draw(st.one_of(st.integers(0, 12), st.integers(0, 10 * MOST_ROWS)))
    return Wave(
        packed_rows=rows,
        logical_rows=rows * draw(st.sampled_from([0, 1, 2, 5, 70, 600])) + draw(st.integers(0, 3)) if rows else 0,
        grad_segments=draw(st.integers(0, 20)) if rows else 0,
        output_bytes=draw(st.sampled_from([0, 5])),
        floor_bytes=draw(st.one_of(st.just(0), counts(1 << 24))),
        checkpoint_retained_bytes=draw(st.sampled_from([0, 1 << 12])),
        segment_state_bytes=draw(st.sampled_from([0, 1, 9_000, 4_292_608])),
        workload=draw(st.sampled_from(WORKLOADS)),
    )


def told(reading: Reading) -> model.Told:
    return model.Told(
        reading=model_reading(reading),
        S=reading.grad_segments,
        interrupted=reading.kind in (ReadingKind.INTERRUPTED, ReadingKind.OUT_OF_MEMORY),
    )


@given(history=st.lists(small_readings(), max_size=6), wave=small_waves(), safety=safeties())
@settings(max_examples=200)
def test_law_and_model_agree_to_the_byte(history: list[Reading], wave: Wave, safety: Safety) -> None:
    profile = observe_all(Profile(), history)
    sigma = Fraction(safety.numerator, safety.denominator)
    expected = model.price([told(reading) for reading in history], model_wave(wave), sigma)

    assert allocated_bytes(wave, profile, FRONTIER, safety) == expected.required
    assert retained_evidence_bytes(wave, profile, FRONTIER, safety) == expected.retained


@st.composite
def small_readings_with_footprints(draw: st.DrawFn) -> Reading:
    """As `small_readings`, most with a footprint: the peak itself, a third above, far above."""
    reading = draw(small_readings())
    peak = reading.peak_delta_bytes
    footprint = draw(st.one_of(st.sampled_from([peak, 4 * peak // 3, 9 * peak + 1]), st.none()))
    if footprint is None and reading.kind is ReadingKind.OUT_OF_MEMORY:
        return reading
    return replace(reading, footprint_bytes=footprint)


@given(history=st.lists(small_readings_with_footprints(), max_size=6), wave=small_waves(), safety=safeties())
@settings(max_examples=200)
def test_law_and_model_agree_on_both_quantities(history: list[Reading], wave: Wave, safety: Safety) -> None:
    profile = observe_all(Profile(), history)
    sigma = Fraction(safety.numerator, safety.denominator)
    expected = model.required([told(reading) for reading in history], model_wave(wave), sigma)

    assert required_bytes(wave, profile, FRONTIER, safety) == expected.required
    assert retained_bytes(wave, profile, FRONTIER, safety) == expected.retained


@pytest.mark.parametrize("packed_priced", [True, False])
@given(
    compute=st.one_of(positive(1 << 12), positive(1 << 40)),
    anchor=st.tuples(positive(1 << 20), positive(1 << 24), counts(1 << 12)),
    wave=st.tuples(positive(1 << 20), counts(1 << 24), counts(1 << 12)),
    state=st.sampled_from([0, 1, 9_000, 4_292_608]),
)
def test_a_bound_is_the_least_over_all_scalings_but_for_whole_bytes(
    packed_priced: bool, compute: int, anchor: tuple[int, int, int], wave: tuple[int, int, int], state: int
) -> None:
    """Duality, on numbers: never below the minimum over t, and above it by at most a byte for each charge rounded."""
    reading = model.Seen(*anchor, c=compute, bounds=True)
    exact = model.least_scaling(reading, model.Asked(*wave, G=state, packed_priced=packed_priced))
    made = bound_of(
        Anchor(compute_bytes=compute, packed_rows=anchor[0], logical_rows=anchor[1], grad_segments=anchor[2]),
        6_144 if packed_priced else None,
        state if packed_priced else 0,
    )
    scaled = max(Fraction(1), Fraction(wave[0], anchor[0]))
    rounding = scaled * (anchor[1] + anchor[2]) + wave[1] + wave[2]

    assert exact <= bound_bytes(made, *wave) <= ceil(exact + rounding)


@given(positive(1 << 22), counts(1 << 28))
def test_bands_are_those_of_the_model(rows: int, logical_rows: int) -> None:
    """Neighbours fall apart, or together, alike."""
    here, beside = model.Seen(rows, logical_rows, 0, 1, True), model.Seen(rows + 1, logical_rows, 0, 1, True)
    apart = model.band(here) != model.band(beside)
    keys = {(size_class(seen.P), sharing_class(seen.L, seen.P)) for seen in (here, beside)}
    assert apart == (len(keys) == 2)
