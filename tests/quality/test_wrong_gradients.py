"""Every wrong account of gradients is caught by whole training loops of a real rank: the test it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from adapters.torch_memory import Observation, PeakMeter, StorageCounter, gradients
from adapters.torch_memory.gradients import GradientAccount, GradientWatch
from adapters.torch_memory.measurement import Measurement
from adapters.torch_memory.meter import Interval
from adapters.wave_loop import loop
from adapters.wave_loop.loop import WaveLoop
from adapters.wave_loop.wave import WaveStats
from pricing import Profile, Reading, ReadingKind, Wave
from pricing.planner.budget import Budget
from tests.adapters.trainer_rank import test_full_fine_tuning as fine_tuning
from tests.properties.test_training_loops import Step, assert_loop_holds
from tests.quality.wrong_kernels import WrongKernel, installed
from tests.regressions import test_gradient_cases as cases

RIGHT_OUT_OF_MEMORY = Interval.out_of_memory
RIGHT_BUDGET = WaveLoop._budget


def _all_of_them(self: GradientAccount) -> int:
    return self.trained_bytes


def _none_of_them(self: GradientAccount) -> int:
    return 0


def _whatever_lets_them_go(self: GradientAccount) -> int:
    return sum(value.nbytes for value in self._parameters if value.requires_grad and value.grad is None)


def _no_hook(value: object) -> bool:
    return False


def _nothing_stayed(self: Measurement) -> list[int]:
    return [0] * (len(self.made) + 1)


def _always_new(self: Measurement, held: object) -> bool:
    return True


def _rows_alone(self: Measurement, wave: Wave, kind: ReadingKind, retained_bytes: int | None) -> Reading:
    rows_bytes = max(0, self.allocated.without(self._stayed_before()))
    return Reading.of(
        wave,
        peak_delta_bytes=rows_bytes,
        footprint_bytes=rows_bytes,
        retained_bytes=retained_bytes,
        grads=True,
        kind=kind,
    )


def _of_rows_alone(self: Interval, error: BaseException | None = None, **figures: int) -> Observation:
    return replace(RIGHT_OUT_OF_MEMORY(self, error, **figures), reading_with_gradients=None)


def _whatever_admission_showed(self: WaveLoop, work: Any, most_bytes: int | None = None) -> Budget:
    return RIGHT_BUDGET(self, work)


def _the_rows(self: WaveStats, look: Observation) -> Reading | None:
    return look.reading


def _whatever_was_read(profile: Profile) -> bool:
    return not profile.is_empty


WRONG_ACCOUNTS: Final = [
    WrongKernel(
        name="all_of_them",
        mistake="holds gradients back that are there",
        caught_by="test_random_training_loops",
        patches={(GradientAccount, "held_back_bytes"): _all_of_them},
    ),
    WrongKernel(
        name="none_of_them",
        mistake="holds nothing back",
        caught_by="test_random_training_loops",
        patches={(GradientAccount, "held_back_bytes"): _none_of_them},
    ),
    WrongKernel(
        name="whatever_lets_them_go",
        mistake="holds back what never coexists",
        caught_by="test_a_step_inside_backward_teaches_and_holds_nothing_back",
        patches={(GradientAccount, "held_back_bytes"): _whatever_lets_them_go},
    ),
    WrongKernel(
        name="no_hook",
        mistake="holds back, at the first wave, what a step inside backward lets go",
        caught_by="test_a_step_inside_backward_teaches_and_holds_nothing_back",
        patches={(gradients, "_has_hook_after_accumulation"): _no_hook},
    ),
    WrongKernel(
        name="nothing_stayed",
        mistake="reads gradients that stay as a cost of rows",
        caught_by="test_gradients_are_no_cost_of_rows",
        patches={(Measurement, "_stayed_before"): _nothing_stayed},
    ),
    WrongKernel(
        name="always_new",
        mistake="takes a buffer off once for each gradient that is cut from it",
        caught_by="test_gradients_that_are_cut_from_one_buffer_count_once",
        patches={(Measurement, "is_new"): _always_new},
    ),
    WrongKernel(
        name="nothing_died",
        mistake="adds nothing for gradients that die inside",
        caught_by="test_gradients_that_die_inside_do_not_hide_the_peak",
        patches={(Measurement, "freed_bytes"): property(lambda self: 0)},
    ),
    WrongKernel(
        name="rows_alone",
        mistake="learns rows alone where it says both together",
        caught_by="test_gradients_are_learned_together_with_rows",
        patches={(Measurement, "_reading_with_gradients"): _rows_alone},
    ),
    WrongKernel(
        name="a_part_is_whole",
        mistake="takes a wave that made a part of the gradients for one that made all",
        caught_by="test_waves_that_make_a_part_of_the_gradients_say_nothing_of_all",
        patches={(GradientWatch, "made_all"): property(lambda self: True)},
    ),
    WrongKernel(
        name="whatever_was_read",
        mistake="prices together by readings of a part",
        caught_by="test_waves_that_make_a_part_of_the_gradients_say_nothing_of_all",
        patches={(loop, "may_price_together"): _whatever_was_read},
    ),
    WrongKernel(
        name="of_rows_alone",
        mistake="lets a wave that ran out of memory in again, by the other price",
        caught_by="test_a_wave_that_ran_out_of_memory_is_admitted_neither_way_again",
        patches={(Interval, "out_of_memory"): _of_rows_alone},
    ),
    WrongKernel(
        name="whatever_admission_showed",
        mistake="plans again with memory that was missing at admission",
        caught_by="test_what_is_missing_at_admission_is_missing_to_both_together",
        patches={(WaveLoop, "_budget"): _whatever_admission_showed},
    ),
    WrongKernel(
        name="the_rows",
        mistake="sets rows alone against the price of both",
        caught_by="test_the_record_sets_what_was_seen_against_what_was_priced",
        patches={(WaveStats, "reading_of"): _the_rows},
    ),
]

STEPS: Final = [
    Step(lengths=lengths, zero_at="end", set_to_none=True, accumulates=accumulates, frozen=frozen, restarts=restarts)
    for lengths, accumulates, frozen, restarts in (
        ((60, 90), False, 0, False),
        ((90, 60), True, 1, True),
        ((60,), False, 0, False),
    )
]


def runnable(name: str) -> Callable[[PeakMeter], None]:
    """The named test, at one of its parameters."""
    checks: Mapping[str, Callable[[PeakMeter], None]] = {
        "test_random_training_loops": lambda meter: assert_loop_holds(meter, "sgd", False, False, "frontier", STEPS),
        "test_a_step_inside_backward_teaches_and_holds_nothing_back": lambda meter: (
            cases.test_a_step_inside_backward_teaches_and_holds_nothing_back(meter, "frontier", "sgd")
        ),
        "test_gradients_are_no_cost_of_rows": lambda meter: cases.test_gradients_are_no_cost_of_rows(meter, "frontier"),
        "test_gradients_that_die_inside_do_not_hide_the_peak": lambda meter: (
            cases.test_gradients_that_die_inside_do_not_hide_the_peak(meter, "frontier", True)
        ),
        "test_a_wave_that_ran_out_of_memory_is_admitted_neither_way_again": lambda meter: (
            fine_tuning.test_a_wave_that_ran_out_of_memory_is_admitted_neither_way_again(meter, "all there")
        ),
        "test_waves_that_make_a_part_of_the_gradients_say_nothing_of_all": lambda meter: (
            fine_tuning.test_waves_that_make_a_part_of_the_gradients_say_nothing_of_all(meter, "frontier")
        ),
    }
    plain: Callable[[PeakMeter], None] | None = getattr(fine_tuning, name, getattr(cases, name, None))
    check = checks.get(name, plain)
    assert check is not None
    return check


@pytest.mark.parametrize("wrong", WRONG_ACCOUNTS, ids=lambda wrong: wrong.name)
def test_a_wrong_account_is_caught(wrong: WrongKernel) -> None:
    with (
        PeakMeter(StorageCounter()) as meter,
        installed(wrong),
        pytest.raises((AssertionError, pytest.fail.Exception)),
    ):
        runnable(wrong.caught_by)(meter)


@pytest.mark.parametrize("name", sorted({wrong.caught_by for wrong in WRONG_ACCOUNTS}))
def test_the_right_one_passes_here_too(name: str) -> None:
    """What catches a mistake above is the mistake, not where the test runs."""
    with PeakMeter(StorageCounter()) as meter:
        runnable(name)(meter)
