"""The kernel against the naive model of `spec/model.py`, on random histories, byte for byte."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.law import LOGICAL, PACKED, WARM, RateLaw, required_bytes, retained_bytes
from pricing.profile import Profile, observe_all
from pricing.quantities import Safety
from pricing.reading import Reading
from pricing.requests import Workload
from pricing.testing import histories, safeties, waves
from pricing.wave import Wave
from spec.model import ModelReading, ModelWave, price


def _model_reading(reading: Reading) -> ModelReading:
    whole = reading.kind == "whole_wave"
    closing_forward = reading.kind == "forward_only" and not reading.grads and reading.closes_wave
    return ModelReading(
        P=reading.packed_rows,
        L=reading.logical_rows,
        O=reading.output_bytes,
        delta=reading.peak_delta_bytes,
        retained=reading.retained_bytes,
        complete=whole or closing_forward,
    )


def _model_wave(wave: Wave) -> ModelWave:
    return ModelWave(
        P=wave.packed_rows,
        L=wave.logical_rows,
        S=wave.grad_segments,
        O=wave.output_bytes,
        F=wave.floor_bytes,
        C=wave.checkpoint_retained_bytes,
        G=wave.segment_state_bytes,
        eligible=_is_eligible(wave.workload),
    )


def _is_eligible(workload: Workload) -> bool:
    """Section 3 of the laws, said once more without the kernel."""
    mode, shortest = workload.recompute, workload.shortest_single_target_rows
    return (
        (mode.granularity, mode.method, mode.num_layers, mode.training) == ("full", "uniform", 1, True)
        and set(workload.grad_modes) == {True}
        and set(workload.request_mixes) <= {"target:single", "inactive"}
        and (shortest is None or shortest >= 64)
    )


@pytest.mark.invariant("INV-4", "INV-11", "INV-12")
@given(histories(), st.data(), st.sampled_from([LOGICAL, PACKED, WARM]), safeties())
def test_kernel_equals_the_model(history: list[Reading], data: st.DataObject, law: RateLaw, safety: Safety) -> None:
    profile = observe_all(Profile(), history)
    wave = data.draw(waves(profile))
    modelled = price(
        [_model_reading(reading) for reading in history],
        _model_wave(wave),
        law.name,
        Fraction(safety.numerator, safety.denominator),
    )
    assert required_bytes(wave, profile, law, safety) == modelled.required
    assert retained_bytes(wave, profile, law, safety) == modelled.retained
