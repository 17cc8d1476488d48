"""The wave tests again, on the device: nested, interrupted, foreign-reset, deferred-backward and optimizer-inside waves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from adapters.torch_memory import PeakMeter, meter_for
from adapters.trainer_rank import TrainerRank
from benchmarks.waves import SavingCaller
from tests.adapters.trainer_rank.test_waves import (
    test_a_body_that_breaks_off_leaves_the_rank_usable as test_a_body_that_breaks_off_leaves_the_rank_usable,
)
from tests.adapters.trainer_rank.test_waves import (
    test_a_body_that_raises_leaves_the_rank_usable_and_prices_right as test_a_body_that_raises,
)
from tests.adapters.trainer_rank.test_waves import (
    test_a_caller_that_never_runs_backward_cannot_lower_a_price as test_a_caller_that_never_runs_backward,
)
from tests.adapters.trainer_rank.test_waves import (
    test_a_deferred_backward_is_noticed as test_a_deferred_backward_is_noticed,
)
from tests.adapters.trainer_rank.test_waves import (
    test_a_foreign_reset_is_noticed as test_a_foreign_reset_is_noticed,
)
from tests.adapters.trainer_rank.test_waves import (
    test_a_nested_forward_in_every_wave_leaves_the_warm_fit_inert as test_a_nested_forward_in_every_wave,
)
from tests.adapters.trainer_rank.test_waves import (
    test_a_nested_forwards_peak_is_composed_not_lost as test_a_nested_forwards_peak_is_composed_not_lost,
)
from tests.adapters.trainer_rank.test_waves import (
    test_an_optimizer_step_inside_the_wave_ends_the_reading_and_keeps_it_complete as test_an_optimizer_step_inside,
)
from tests.adapters.trainer_rank.test_waves import (
    test_gradients_add_up_over_waves as test_gradients_add_up_over_waves,
)
from tests.adapters.trainer_rank.test_waves import (
    test_memory_is_released_before_the_next_admission_unless_the_caller_keeps_it as test_memory_is_released,
)
from tests.adapters.trainer_rank.test_waves import (
    test_out_of_memory_after_admission_carries_the_admissions_own_numbers as test_out_of_memory_after_admission,
)
from tests.adapters.trainer_rank.test_waves import (
    test_outputs_come_in_caller_order_and_with_their_indices as test_outputs_come_in_caller_order,
)
from tests.adapters.trainer_rank.test_waves import (
    test_the_loop_variable_does_not_hold_the_last_wave as test_the_loop_variable_does_not_hold_the_last_wave,
)
from tests.adapters.trainer_rank.waves import decoder, group, loss_of

pytestmark = pytest.mark.cuda

KIB = 1 << 10


@pytest.fixture
def meter(device: torch.device) -> Iterator[PeakMeter]:
    with meter_for(device) as meter:
        yield meter


def test_calibration_on_long_requests_admits_short_ones_above_their_peak(
    meter: PeakMeter, device: torch.device
) -> None:
    """16 shared 4,096-token requests with a caller that keeps 256 KiB a request; then 20 shared ones of 64 tokens."""
    rank = TrainerRank(decoder(device), meter=meter)
    caller = SavingCaller(saved_bytes=256 * KIB)
    for wave in rank.forward_micro_batches([group(0, prompt=2048, rollouts=16, completion=2048)]):
        caller(wave.outputs).backward()
    assert wave.stats.is_complete
    for wave in rank.forward_micro_batches([group(1, prompt=32, rollouts=20, completion=32)]):
        caller(wave.outputs).backward()
    assert not wave.stats.price.ineligible
    assert wave.stats.observed_bytes is not None
    assert wave.stats.predicted_bytes > wave.stats.observed_bytes >= 20 * 256 * KIB


def test_an_out_of_memory_error_that_the_caller_swallows_teaches_nothing(meter: PeakMeter, device: torch.device) -> None:
    rank = TrainerRank(decoder(device), meter=meter)
    for wave in rank.forward_micro_batches([group(0)]):
        loss_of(wave.outputs).backward()
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 50, dtype=torch.uint8, device=device)
    assert wave.stats.closing is None
    (profile,) = rank.profiles.values()
    assert profile.complete_readings == 0
