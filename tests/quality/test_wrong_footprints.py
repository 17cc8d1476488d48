"""Every wrong reading of footprints is seen by the comparison of kernel and model, and the right one is not.

Wrong kernels that a contract names are in `wrong_kernels`; those among them that concern footprints must be seen here
too. The others are mistakes that no contract is about: what they make is lawful, only not what the laws say.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from pricing import LAWS, Profile, Reading, ReadingKind, Safety, Wave
from pricing.kernel import price as prices
from pricing.kernel import profile as profiles
from pricing.kernel import reading as readings
from pricing.kernel.errors import PricingError
from pricing.kernel.profile import Evidence, observe_all
from pricing.testing import counts
from spec import frontier_model, model
from tests.differential.test_frontier_model import small_readings_with_footprints, small_waves, told
from tests.differential.test_model import model_reading, model_wave
from tests.quality.test_wrong_kernels import SEARCH
from tests.quality.wrong_kernels import WRONG_KERNELS, WrongKernel, installed

ONE = Safety(numerator=1, denominator=1)


def _retained_unscaled(retained_bytes: int, footprint_bytes: int, peak_bytes: int) -> int:
    return retained_bytes


def _retained_rounded_down(retained_bytes: int, footprint_bytes: int, peak_bytes: int) -> int:
    held = min(retained_bytes, peak_bytes)
    return min(0, retained_bytes) if held <= 0 else held * footprint_bytes // peak_bytes


def _no_seed_of_its_own(footprint: Evidence, told_of: Reading) -> bool:
    return True


def _incomplete_held_early(footprint: Evidence, told_of: Reading) -> bool:
    return footprint.complete_readings >= 1 or not told_of.is_complete


def _cold_for_an_empty_wave_too(wave: Wave, allocated: int) -> int:
    return -(-4 * allocated // 3)


def _retained_of_peaks_alone(wave: Wave, known: object, law: object, safety: object) -> int:
    return prices.retained_evidence_bytes(wave, known, law, safety)  # type: ignore[arg-type]


def _wrong(name: str, mistake: str, owner: object, attribute: str, function: object) -> WrongKernel:
    return WrongKernel(name=name, mistake=mistake, caught_by="model", patches={(owner, attribute): function})


WRONG_FOOTPRINTS = [
    _wrong(
        "retained_unscaled", "of a footprint the peak's bytes are retained", readings, "scaled_up", _retained_unscaled
    ),
    _wrong("retained_rounded_down", "a byte less is retained", readings, "scaled_up", _retained_rounded_down),
    _wrong("no_seed_of_its_own", "the first footprint is warm at once", profiles, "is_after_seed", _no_seed_of_its_own),
    _wrong(
        "incomplete_held_early",
        "any incomplete footprint before the seed is held against the warm fit",
        profiles,
        "is_after_seed",
        _incomplete_held_early,
    ),
    _wrong(
        "cold_for_an_empty_wave",
        "a wave without rows pays the cold factor on its outputs",
        prices,
        "cold_footprint_bytes",
        _cold_for_an_empty_wave_too,
    ),
    _wrong(
        "retained_of_peaks_alone",
        "what is retained is priced from peaks alone",
        prices,
        "retained_bytes",
        _retained_of_peaks_alone,
    ),
    *(
        kernel
        for kernel in WRONG_KERNELS
        if kernel.name
        in {
            "footprint_ignored",
            "lower_of_two_prices",
            "footprint_alone",
            "cold_factor_missing",
            "cold_factor_rounded_down",
            "footprints_of_failures_only",
            "failures_teach_nothing",
            "failures_wait_for_the_seed",
            "failures_complete_the_warm_fit",
        }
    ),
]


@st.composite
def histories(draw: st.DrawFn) -> list[Reading]:
    """Any, or a dear wave that ran out of memory before cheap ones that did not: what must be held against those."""
    told_of = draw(st.lists(small_readings_with_footprints(), max_size=5))
    aimed = draw(st.booleans())
    if aimed and told_of:
        whole = [replace(reading, kind=ReadingKind.WHOLE_WAVE) for reading in told_of[1:]]
        dear = told_of[0].peak_delta_bytes + draw(counts(1 << 24))
        return [replace(told_of[0], kind=ReadingKind.OUT_OF_MEMORY, footprint_bytes=dear), *whole]
    return told_of


cases = st.tuples(st.sampled_from(list(LAWS)), histories(), small_waves())


def _agree(drawn: tuple[str, list[Reading], Wave]) -> bool:
    law, history, wave = drawn
    profile, asked = observe_all(Profile(), history), model_wave(wave)
    if law == "frontier":
        expected = frontier_model.required([told(reading) for reading in history], asked, Fraction(1))
    else:
        expected = model.required([model_reading(reading) for reading in history], asked, law, Fraction(1))
    return expected.required == prices.required_bytes(
        wave, profile, LAWS[law], ONE
    ) and expected.retained == prices.retained_bytes(wave, profile, LAWS[law], ONE)


def _finds_a_difference(max_examples: int) -> bool:
    def differs(drawn: tuple[str, list[Reading], Wave]) -> bool:
        try:
            return not _agree(drawn)
        except PricingError:  # the kernel itself refused what the wrong function made
            return True

    try:
        find(cases, differs, settings=settings(SEARCH, max_examples=max_examples))
    except NoSuchExample:
        return False
    return True


@pytest.mark.parametrize("kernel", WRONG_FOOTPRINTS, ids=lambda kernel: kernel.name)
def test_wrong_footprints_differ_from_the_model(kernel: WrongKernel) -> None:
    with installed(kernel):
        assert _finds_a_difference(SEARCH.max_examples), f"the model does not see that {kernel.mistake}"


def test_the_right_kernel_does_not() -> None:
    assert not _finds_a_difference(500)


def test_each_has_a_name_of_its_own() -> None:
    assert len({kernel.name for kernel in WRONG_FOOTPRINTS}) == len(WRONG_FOOTPRINTS) == 15
