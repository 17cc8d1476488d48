"""The kernel against the executable model, on random histories aimed at the kernel's boundaries."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import LAWS, Profile, Reading, ReadingKind, Safety, Wave, allocated_bytes, ineligibility
from pricing.kernel.price import required_bytes, retained_bytes, retained_evidence_bytes
from pricing.kernel.profile import observe_all
from pricing.kernel.reading import out_of_memory_footprint_bytes
from pricing.testing import strategies as pp
from spec import model

RATE_LAWS = ("logical", "packed", "warm")


@st.composite
def histories_and_waves(draw: st.DrawFn) -> tuple[list[Reading], Wave]:
    history = draw(pp.histories(8))
    return history, draw(pp.waves(observe_all(Profile(), history)))


@pytest.mark.parametrize("law", RATE_LAWS)
@given(case=histories_and_waves(), safety=pp.safeties())
def test_kernel_and_model_agree_to_the_byte(law: str, case: tuple[list[Reading], Wave], safety: Safety) -> None:
    history, wave = case
    profile = observe_all(Profile(), history)

    expected = model.price(
        [model_reading(reading) for reading in history],
        model_wave(wave),
        law,
        Fraction(safety.numerator, safety.denominator),
    )

    assert allocated_bytes(wave, profile, LAWS[law], safety) == expected.required
    assert retained_evidence_bytes(wave, profile, LAWS[law], safety) == expected.retained


@pytest.mark.parametrize("law", RATE_LAWS)
@given(case=histories_and_waves(), safety=pp.safeties())
def test_kernel_and_model_agree_on_both_quantities(law: str, case: tuple[list[Reading], Wave], safety: Safety) -> None:
    history, wave = case
    profile = observe_all(Profile(), history)
    expected = model.required(
        [model_reading(reading) for reading in history],
        model_wave(wave),
        law,
        Fraction(safety.numerator, safety.denominator),
    )

    assert required_bytes(wave, profile, LAWS[law], safety) == expected.required
    assert retained_bytes(wave, profile, LAWS[law], safety) == expected.retained


@given(available=pp.counts(1 << 40), reserved=pp.counts(1 << 40), requested=pp.counts(1 << 40))
def test_a_failed_wave_is_read_alike(available: int, reserved: int, requested: int) -> None:
    assert out_of_memory_footprint_bytes(
        available_bytes=available, reserved_bytes=reserved, requested_bytes=requested
    ) == model.failed_footprint(available, reserved, requested)


def model_reading(reading: Reading) -> model.ModelReading:
    return model.ModelReading(
        P=reading.packed_rows,
        L=reading.logical_rows,
        O=reading.output_bytes,
        delta=reading.peak_delta_bytes,
        retained=reading.retained_bytes,
        complete=reading.is_complete,
        footprint=reading.footprint_bytes,
        failed=reading.kind is ReadingKind.OUT_OF_MEMORY,
    )


def model_wave(wave: Wave) -> model.ModelWave:
    """The model takes eligibility as a fact: the wave's own, apart from whether a profile is there."""
    something = observe_all(
        Profile(), [Reading(packed_rows=1, logical_rows=1, grad_segments=0, output_bytes=0, peak_delta_bytes=1)]
    )
    return model.ModelWave(
        P=wave.packed_rows,
        L=wave.logical_rows,
        S=wave.grad_segments,
        O=wave.output_bytes,
        F=wave.floor_bytes,
        C=wave.checkpoint_retained_bytes,
        G=wave.segment_state_bytes,
        eligible=not ineligibility(something, wave.workload),
    )
