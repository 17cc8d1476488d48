"""One CPU meter a test: it watches this thread, and gives it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from adapters.torch_memory import PeakMeter, meter_for


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


@pytest.fixture
def meter(device: torch.device) -> Iterator[PeakMeter]:
    with meter_for(device) as meter:
        yield meter
