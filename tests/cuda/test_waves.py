"""The wave contract on the device, and what only a device can show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from adapters.torch_memory import PeakMeter, meter_for
from adapters.trainer_rank import TrainerRank
from benchmarks.h200.waves import SavingCaller
from tests.adapters.trainer_rank.wave_contract import WaveContract
from tests.adapters.trainer_rank.waves import decoder, group, loss_of

pytestmark = pytest.mark.cuda

KIB = 1 << 10


@pytest.fixture
def meter(device: torch.device) -> Iterator[PeakMeter]:
    with meter_for(device) as meter:
        yield meter


class TestWavesOnTheDevice(WaveContract):
    """Nested, interrupted, foreign-reset, deferred-backward and optimizer-inside waves, and all the others."""


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


def test_an_out_of_memory_error_that_the_caller_swallows_teaches_nothing(
    meter: PeakMeter, device: torch.device
) -> None:
    rank = TrainerRank(decoder(device), meter=meter)
    for wave in rank.forward_micro_batches([group(0)]):
        loss_of(wave.outputs).backward()
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 50, dtype=torch.uint8, device=device)
    assert wave.stats.closing is None
    (profile,) = rank.profiles.values()
    assert profile.complete_readings == 0
