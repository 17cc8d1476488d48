"""INV-20 on random histories, and what it is for: no reading stops a run for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import LAWS, Law, Profile, Reading, Safety, Wave, contracts, required_bytes
from pricing.kernel.liveness import witnessed_bytes
from pricing.kernel.profile import observe, observe_all
from pricing.kernel.quantities import GIB, MIB
from pricing.planner.plan import Verdict, plan_wave
from pricing.planner.setting import Setting
from pricing.testing import counts, histories, reachable_profiles, readings, safeties, waves_and_profiles
from tests.planner.naive import grpo, only_signature

every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
extras = st.one_of(st.just(0), st.just(1), counts(1 << 22))


@pytest.mark.invariant("INV-20")
@every_law
@given(
    case=waves_and_profiles(),
    more=st.tuples(extras, extras, extras, extras, extras),
    told=readings(),
    safety=safeties(),
)
def test_what_witnesses_say_never_falls_as_a_wave_grows(
    law: Law, case: tuple[Wave, Profile], more: tuple[int, int, int, int, int], told: Reading, safety: Safety
) -> None:
    wave, profile = case
    larger = replace(
        wave,
        packed_rows=wave.packed_rows + more[0],
        logical_rows=wave.logical_rows + (more[1] if wave.packed_rows + more[0] else 0),
        grad_segments=wave.grad_segments + (more[2] if wave.packed_rows + more[0] else 0),
        output_bytes=wave.output_bytes + more[3],
        floor_bytes=wave.floor_bytes + more[4],
    )
    assert contracts.witnessed_never_falls(wave, larger, observe(profile, told), law, safety)
    assert contracts.a_witness_changes_no_price(wave, profile, law, safety)


@pytest.mark.invariant("INV-20")
@given(case=waves_and_profiles(), told=readings(min_packed_rows=1))
def test_a_complete_reading_is_a_witness(case: tuple[Wave, Profile], told: Reading) -> None:
    assert contracts.complete_reading_is_a_witness(case[1], told, case[0])


@pytest.mark.invariant("INV-20")
@given(one=reachable_profiles(), other=reachable_profiles(), told=histories(2), required=extras, witnessed=extras)
def test_witnesses_merge_in_any_order(
    one: Profile, other: Profile, told: list[Reading], required: int, witnessed: int
) -> None:
    assert contracts.witnesses_merge_in_any_order(observe_all(one, told), other)
    for said in (None, witnessed, required // 2, required // 2 + 1):
        assert contracts.only_a_doubled_price_is_doubted(required, said)


# --- what it is for --------------------------------------------------------------------------------------------------

sizes = st.lists(st.integers(40, 2_000), min_size=2, max_size=20)


def whole(rows: int, compute_bytes: int) -> Reading:
    return Reading(packed_rows=rows, logical_rows=rows, grad_segments=1, output_bytes=0, peak_delta_bytes=compute_bytes)


SIGNATURE = only_signature(grpo(prompts=1, rollouts=1, prompt=64, completion=64), Setting())
"""Of waves of one kind, whatever their rows."""


def needed_bytes(rows: int) -> int:
    """A fixed cost and a rate."""
    return 60 * MIB + 460_000 * rows


@every_law
@given(
    clean=sizes,
    dear=st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 64)), min_size=1, max_size=2),
    at=st.integers(0, 20),
    asked=st.integers(64, 8_000),
    room=st.integers(0, 40),
)
def test_no_reading_stops_a_run_for_ever(
    law: Law, clean: list[int], dear: list[tuple[int, int]], at: int, asked: int, room: int
) -> None:
    """A few readings of any size, each 1 to 64 GiB above the need, anywhere in a run of clean ones: a wave of at most
    eight times the rows of a clean one is not refused on a device of twice its witnessed price.

    That is at most six times its need by the clean reading: 2 for AGAINST, 11/10 and 4/3 for safety and footprint, and
    2 within a witness's octave.
    """
    told = [whole(rows, needed_bytes(rows)) for rows in clean]
    told[at:at] = [whole(rows, needed_bytes(rows) + extra * GIB) for rows, extra in dear]
    profile = observe_all(Profile(), told)
    seen = [rows for rows in clean if asked <= 8 * rows]
    if not seen:
        return
    bound_bytes = min(needed_bytes(rows) * max(rows, asked) // rows for rows in seen)
    charges_bytes = 6_144 * asked
    batch, setting = grpo(prompts=1, rollouts=1, prompt=asked // 2, completion=asked - asked // 2), Setting()
    available_bytes = 6 * (bound_bytes + charges_bytes) + room * GIB
    plan = plan_wave(
        batch,
        profiles={SIGNATURE: profile},
        available_bytes=available_bytes,
        setting=setting,
        law=law,
    )
    assert plan.verdict in (Verdict.RUN, Verdict.PROBE)
    if plan.verdict is Verdict.PROBE:
        said = witnessed_bytes(plan.wave, profile, law)
        assert said is not None and needed_bytes(asked) <= said <= available_bytes
        assert required_bytes(plan.wave, profile, law) == plan.required_bytes > available_bytes
