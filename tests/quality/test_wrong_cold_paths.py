"""Every wrong cold path, in the planner or the loop, is caught by a whole run of a trainer: the test it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from adapters.torch_memory import meter_for
from adapters.trainer_rank import attention, head
from adapters.wave_loop import loop
from adapters.wave_loop.loop import WaveLoop
from pricing.kernel import forecast
from pricing.kernel.errors import PricingError
from pricing.kernel.profile import Profile
from pricing.planner import rules
from pricing.planner.budget import fits
from tests.adapters.forecast import test_cold_path
from tests.adapters.forecast.observed import CPU
from tests.quality.wrong_kernels import WrongKernel, installed

RIGHT_PLAN = WaveLoop._plan
NOTICED: Final = (AssertionError, pytest.fail.Exception, PricingError, torch.OutOfMemoryError)


def _any_width(width: int, *, required_bytes: int, available_bytes: int, learned: bool, trusted: bool) -> bool:
    return fits(required_bytes, available_bytes) and (trusted or not learned)


def _tried_by_everybody(
    profile: Profile, *, learned: bool, over_budget: bool, forecast_fits: bool, survives: bool
) -> bool:
    return True


def _tried_by_nobody(
    profile: Profile, *, learned: bool, over_budget: bool, forecast_fits: bool, survives: bool
) -> bool:
    return forecast_fits and rules.is_young(profile, learned=learned, over_budget=over_budget)


def _again_and_again(*, had_probe: bool, over_budget: bool, cold_required_bytes: int, available_bytes: int) -> bool:
    return fits(cold_required_bytes, available_bytes)


def _whatever_is_certain(*, had_probe: bool, over_budget: bool, cold_required_bytes: int, available_bytes: int) -> bool:
    return not (over_budget and had_probe)


def _without_the_forecast(required: int, forecast_bytes: int, complete_readings: int) -> int:
    return required


def _survives_everything(self: WaveLoop, work: Any, start: int, budget: Any, *, survives: bool = False) -> Any:
    return RIGHT_PLAN(self, work, start, budget, survives=True)


WRONG_COLD_PATHS: Final = [
    WrongKernel(
        name="any_width",
        mistake="starts cold with as many items as the forecast lets in",
        caught_by="test_of_cold_waves_only_the_narrowest_runs",
        patches={(rules, "is_feasible"): _any_width},
    ),
    WrongKernel(
        name="tried_by_everybody",
        mistake="tries what its forecast keeps out although nothing takes it back",
        caught_by="test_a_forecast_that_does_not_fit_is_refused_where_nothing_survives",
        patches={(rules, "is_open_to_a_probe"): _tried_by_everybody},
    ),
    WrongKernel(
        name="survives_everything",
        mistake="says of a caller's own loop that it takes a wave back",
        caught_by="test_a_forecast_that_does_not_fit_is_refused_where_nothing_survives",
        patches={(WaveLoop, "_plan"): _survives_everything},
    ),
    WrongKernel(
        name="without_the_forecast",
        mistake="prices a first wave by its floor alone",
        caught_by="test_a_forecast_that_does_not_fit_is_refused_where_nothing_survives",
        patches={(forecast, "with_forecast"): _without_the_forecast},
    ),
    WrongKernel(
        name="tried_by_nobody",
        mistake="refuses for ever by a forecast that errs",
        caught_by="test_where_the_run_survives_it_is_tried_and_a_reading_takes_over",
        patches={(rules, "is_open_to_a_probe"): _tried_by_nobody},
    ),
    WrongKernel(
        name="again_and_again",
        mistake="tries a wave that ran out again",
        caught_by="test_a_try_that_runs_out_is_taken_back_refused_and_not_made_again",
        patches={(rules, "may_probe"): _again_and_again},
    ),
    WrongKernel(
        name="whatever_is_certain",
        mistake="tries what cannot fit",
        caught_by="test_where_what_is_certain_does_not_fit_nothing_is_tried",
        patches={(rules, "may_probe"): _whatever_is_certain},
    ),
]

SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {"test_of_cold_waves_only_the_narrowest_runs": {"owned": False}}


def runnable(name: str, folder: Path) -> Callable[[], None]:
    """The named test on a meter of its own."""
    test: Callable[..., None] = getattr(test_cold_path, name)

    def check() -> None:
        with meter_for(CPU) as meter:
            partial(test, tmp_path=folder, **SETTINGS.get(name, {}))(meter)

    return check


@pytest.fixture(autouse=True)
def few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the tests stand: see `tests/adapters/forecast/conftest.py`. What tries for ever gives up early."""
    monkeypatch.setattr(loop, "OUT_OF_MEMORY_TRIES", 3)
    monkeypatch.setattr(head, "HEAD_CHUNK_ROWS", 128)
    monkeypatch.setattr(attention, "_QUERY_ROWS", 256)


@pytest.mark.parametrize("wrong", WRONG_COLD_PATHS, ids=lambda wrong: wrong.name)
def test_a_wrong_cold_path_is_caught(wrong: WrongKernel, tmp_path: Path) -> None:
    check = runnable(wrong.caught_by, tmp_path)
    with installed(wrong), pytest.raises(NOTICED):
        check()


@pytest.mark.parametrize("name", sorted({wrong.caught_by for wrong in WRONG_COLD_PATHS}))
def test_the_right_one_passes_here_too(name: str, tmp_path: Path) -> None:
    """What catches a mistake above is the mistake, not where the test runs."""
    runnable(name, tmp_path)()
