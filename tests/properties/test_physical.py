"""INV-15, INV-16 and INV-18: what holds of allocated bytes and footprints together, under every law."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pricing import LAWS, Law, Profile, Reading, ReadingKind, Safety, Wave, contracts, required_bytes
from pricing.contracts.physical import most_failures
from pricing.kernel.profile import NO_FOOTPRINT, observe
from pricing.testing import counts, histories, reachable_profiles, readings, safeties, waves, waves_and_profiles

every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
failures = readings((ReadingKind.OUT_OF_MEMORY,), min_packed_rows=1)
extras = st.one_of(st.just(0), st.just(1), counts(1 << 22))
shares = st.integers(1, 100)


@pytest.mark.invariant("INV-15")
@every_law
@given(case=waves_and_profiles(), safety=safeties())
def test_required_is_the_higher_of_two_prices(law: Law, case: tuple[Wave, Profile], safety: Safety) -> None:
    assert contracts.required_is_the_higher_price(*case, law, safety)
    assert contracts.footprint_is_priced_as_what_is_allocated(*case, law, safety)


@pytest.mark.invariant("INV-15")
@every_law
@given(case=waves_and_profiles(), more=st.tuples(extras, extras, extras, extras, extras), safety=safeties())
def test_the_higher_of_two_prices_never_falls(
    law: Law, case: tuple[Wave, Profile], more: tuple[int, int, int, int, int], safety: Safety
) -> None:
    wave, profile = case
    runs = wave.packed_rows > 0
    larger = replace(
        wave,
        packed_rows=wave.packed_rows + more[0],
        logical_rows=wave.logical_rows + more[1] * runs,
        grad_segments=wave.grad_segments + more[2] * runs,
        output_bytes=wave.output_bytes + more[3],
        floor_bytes=wave.floor_bytes + more[4],
    )
    assert contracts.required_never_falls(wave, larger, profile, law, safety)


@pytest.mark.invariant("INV-15")
@given(profile=reachable_profiles(), reading=readings())
def test_a_footprint_teaches_both_bodies_of_evidence(profile: Profile, reading: Reading) -> None:
    assert contracts.a_footprint_teaches_both(profile, reading)
    without = replace(reading, footprint_bytes=None) if reading.kind is not ReadingKind.OUT_OF_MEMORY else reading
    one, other = observe(profile, reading), observe(profile, without)
    assert replace(one, footprint=NO_FOOTPRINT) == replace(other, footprint=NO_FOOTPRINT)


@pytest.mark.invariant("INV-16")
@every_law
@given(data=st.data(), before=histories(3), failed=failures, later=histories(4), safety=safeties())
def test_what_ran_out_of_memory_is_never_admitted_again(
    law: Law, data: st.DataObject, before: list[Reading], failed: Reading, later: list[Reading], safety: Safety
) -> None:
    profile = Profile()
    for reading in before:
        profile = observe(profile, reading)
    wave = as_large(data.draw(waves(observe(profile, failed), min_packed_rows=1)), failed)
    assert contracts.failed_wave_is_never_admitted_again(profile, failed, later, wave, law, safety)
    told = failed.of_footprint
    assert told is not None
    footprints = [reading.of_footprint for reading in later]
    assert contracts.failed_footprint_stays_covered(
        profile.footprint, told, [one for one in footprints if one is not None], wave, law, safety
    )


def as_large(wave: Wave, failed: Reading) -> Wave:
    """`wave`, grown to at least what failed; half of the time it is the very wave, for `waves` aims at small ones."""
    return replace(
        wave,
        packed_rows=max(wave.packed_rows, failed.packed_rows),
        logical_rows=max(wave.logical_rows, failed.logical_rows),
        grad_segments=max(wave.grad_segments, failed.grad_segments),
        output_bytes=max(wave.output_bytes, failed.output_bytes),
    )


@pytest.mark.invariant("INV-18")
@given(available=counts(1 << 40), reserved=counts(1 << 40), requested=counts(1 << 40))
def test_a_failure_is_above_what_was_available(available: int, reserved: int, requested: int) -> None:
    assert contracts.failure_is_above_what_was_available(available, reserved, requested)


@pytest.mark.invariant("INV-18")
@every_law
@given(case=waves_and_profiles(), room=st.one_of(st.just(0), counts(1 << 36)), share=shares, safety=safeties())
def test_each_failure_raises_the_price_and_narrows_the_next_wave(
    law: Law, case: tuple[Wave, Profile], room: int, share: int, safety: Safety
) -> None:
    wave, profile = case
    available = required_bytes(wave, profile, law, safety) + room
    assume(available < 1 << 58)  # what a device can have, with room for the raise
    assert contracts.each_failure_raises_the_price(profile, wave, available, law, safety)
    fewer = max(1, wave.packed_rows * share // 100)
    assert contracts.narrower_waves_stay_dear(profile, wave, in_proportion(wave, fewer), available, law, safety)


def in_proportion(wave: Wave, packed_rows: int) -> Wave:
    """So many rows of the wave, with their share of everything else, rounded up."""
    if wave.packed_rows == 0:
        return wave

    def share(quantity: int) -> int:
        return -(-quantity * packed_rows // wave.packed_rows)

    return replace(
        wave,
        packed_rows=packed_rows,
        logical_rows=share(wave.logical_rows),
        grad_segments=share(wave.grad_segments),
        output_bytes=share(wave.output_bytes),
        floor_bytes=0,
    )


@pytest.mark.invariant("INV-18")
def test_the_stated_number_of_failures() -> None:
    assert most_failures(1_000, 1_000) == most_failures(1, 5) == 0
    assert most_failures(17, 16) == 1
    assert most_failures(1_001, 942) == 2
    assert most_failures(8_000, 1_000) == 35
