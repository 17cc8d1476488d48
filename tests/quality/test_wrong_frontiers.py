"""Every wrong frontier law is caught by the check it names, and the right one by none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from pricing import Profile, Reading, Safety, Wave, allocated_bytes, contracts, observe
from pricing.kernel.bands import FrontierEvidence
from pricing.kernel.errors import PricingError
from pricing.kernel.frontier import FRONTIER
from pricing.kernel.profile import observe_all
from pricing.kernel.requests import Workload
from spec import frontier_model
from tests.differential.test_frontier_model import small_readings, small_waves, told
from tests.differential.test_model import model_wave
from tests.properties.test_frontier_histories import NOISES, SHAPES, Machine, machines, readings_of, waves_of
from tests.quality.wrong_frontiers import WRONG_FRONTIERS
from tests.quality.wrong_kernels import WrongKernel, installed

SEARCH = settings(
    max_examples=20_000,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
NO_MARGIN = Safety(numerator=1, denominator=1)
ONE = Safety(numerator=1, denominator=1)
SEED = Reading(packed_rows=1, logical_rows=1, grad_segments=0, output_bytes=0, peak_delta_bytes=1)
PACKED = Workload.training(shortest_rows=64)

histories = st.lists(small_readings(), min_size=1, max_size=6)


def _after(history: list[Reading]) -> Profile:
    return observe_all(Profile(), [SEED, *history])


def _wave(reading: Reading, state_bytes: int = 0) -> Wave:
    return Wave(
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        grad_segments=reading.grad_segments,
        output_bytes=reading.output_bytes,
        segment_state_bytes=state_bytes,
        workload=PACKED,
    )


def _covered(history: list[Reading]) -> bool:
    profile = _after(history)
    return all(
        allocated_bytes(_wave(reading), profile, FRONTIER, NO_MARGIN) >= reading.output_bytes + reading.compute_bytes
        for reading in history
        if reading.packed_rows > 0
    )


def _never_lowered(drawn: tuple[list[Reading], Reading, Wave]) -> bool:
    history, reading, wave = drawn
    return contracts.incomplete_reading_never_lowers(wave, _after(history), reading, FRONTIER, NO_MARGIN)


def _order(drawn: tuple[list[Reading], Reading, Reading]) -> bool:
    history, first, second = drawn
    return contracts.order_does_not_matter(_after(history), first, second)


def _never_falls(drawn: tuple[list[Reading], Wave, int]) -> bool:
    history, wave, extra = drawn
    profile = _after(history)
    return contracts.price_never_falls_with_packed_rows(wave, extra, profile, FRONTIER, NO_MARGIN)


def _reachable(drawn: tuple[list[Reading], Reading, int]) -> bool:
    history, reading, doublings = drawn
    large = replace(reading, packed_rows=max(1, reading.packed_rows) << doublings)
    profile = observe_all(Profile(), history)
    return contracts.profile_stays_reachable(profile, large) and contracts.evidence_stays_reachable(
        profile.frontier, large, profile.complete_readings > 0
    )


def _minimum(drawn: tuple[list[Reading], int, int]) -> bool:
    history, rows, sharing = drawn
    evidence: FrontierEvidence = _after(history).frontier
    return contracts.frontier_is_the_minimum(evidence.peak, 6_144, 9_000, rows, rows * sharing, 4)


def _machine(drawn: tuple[Machine, str]) -> bool:
    """A machine that obeys the assumptions is never above a price without margin once a band bounds."""
    machine, shape = drawn
    profile = Profile()
    for at, (wave, peak) in enumerate(waves_of(machine, SHAPES[shape], NOISES["none"], 12)):
        if at >= 2 and allocated_bytes(wave, profile, FRONTIER, NO_MARGIN) < peak:
            return False
        for reading in readings_of(wave, peak):
            profile = observe(profile, reading)
    return True


def _covered_in_noise(drawn: tuple[Machine, str]) -> bool:
    """Of a machine that obeys nothing, what was seen is covered: many readings in few bands."""
    machine, noise = drawn
    profile, seen = observe(Profile(), SEED), []
    for wave, peak in waves_of(machine, SHAPES["one_size"], NOISES[noise], 12):
        seen.append((wave, peak))
        for reading in readings_of(wave, peak):
            profile = observe(profile, reading)
    return all(allocated_bytes(wave, profile, FRONTIER, NO_MARGIN) >= peak for wave, peak in seen)


def _model(drawn: tuple[list[Reading], Wave]) -> bool:
    history, wave = drawn
    expected = frontier_model.price([told(reading) for reading in history], model_wave(wave), Fraction(1))
    return allocated_bytes(wave, observe_all(Profile(), history), FRONTIER, ONE) == expected.required


def _memo(drawn: tuple[list[Reading], Wave]) -> bool:
    """What was asked of a profile before makes no difference to a price."""
    history, wave = drawn
    used = _after(history)
    allocated_bytes(replace(wave, segment_state_bytes=0), used, FRONTIER)
    return allocated_bytes(wave, used, FRONTIER) == allocated_bytes(wave, _after(history), FRONTIER)


waves = small_waves()
CHECKS: dict[str, tuple[st.SearchStrategy, Callable[..., bool]]] = {
    "covered": (histories, _covered),
    "never_lowered": (st.tuples(histories, small_readings(), waves), _never_lowered),
    "order": (st.tuples(histories, small_readings(), small_readings()), _order),
    "never_falls": (st.tuples(histories, waves, st.integers(1, 200)), _never_falls),
    "reachable": (st.tuples(st.lists(small_readings(), max_size=3), small_readings(), st.integers(0, 30)), _reachable),
    "minimum": (st.tuples(histories, st.integers(1, 300), st.integers(0, 80)), _minimum),
    "covered_in_noise": (st.tuples(machines, st.sampled_from(list(NOISES))), _covered_in_noise),
    "machine": (st.tuples(machines, st.sampled_from(list(SHAPES))), _machine),
    "model": (st.tuples(st.lists(small_readings(), max_size=5), waves), _model),
    "memo": (st.tuples(histories, waves), _memo),
}


def _finds_a_violation(check: str, max_examples: int = SEARCH.max_examples) -> bool:
    arguments, holds = CHECKS[check]

    def violated(drawn: object) -> bool:
        try:
            return not holds(drawn)
        except PricingError:  # the law itself refused what the wrong function made
            return True

    random.seed(0)
    try:
        find(arguments, violated, settings=settings(SEARCH, max_examples=max_examples))
    except NoSuchExample:
        return False
    return True


def _names() -> Iterator[str]:
    return (wrong.name for wrong in WRONG_FRONTIERS)


@pytest.mark.parametrize("wrong", WRONG_FRONTIERS, ids=lambda wrong: wrong.name)
def test_wrong_frontier_is_caught_by_the_check_it_names(wrong: WrongKernel) -> None:
    with installed(wrong):
        assert _finds_a_violation(wrong.caught_by), f"{wrong.caught_by} does not see that {wrong.mistake}"


@pytest.mark.parametrize("check", CHECKS)
def test_right_frontier_is_caught_by_no_check(check: str) -> None:
    assert not _finds_a_violation(check, max_examples=200)


def test_each_wrong_frontier_has_a_name_of_its_own() -> None:
    assert len(set(_names())) == len(WRONG_FRONTIERS) >= 20
    assert {wrong.caught_by for wrong in WRONG_FRONTIERS} == set(CHECKS)
