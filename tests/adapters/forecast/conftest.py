"""One CPU meter a test, that watches this thread and is given back; and chunks of a size for short waves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from adapters.torch_memory import PeakMeter, meter_for
from adapters.trainer_rank import attention, head


@pytest.fixture
def device() -> torch.device:
    return torch.device("cpu")


@pytest.fixture
def meter(device: torch.device) -> Iterator[PeakMeter]:
    with meter_for(device) as meter:
        yield meter


@pytest.fixture(autouse=True)
def few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real runs and forecasts alike: a head of several chunks from few rows on.

    What a fake run costs is its operations, so waves of the same form take a fraction of the time.
    """
    monkeypatch.setattr(head, "HEAD_CHUNK_ROWS", 128)
    monkeypatch.setattr(attention, "_QUERY_ROWS", 256)
