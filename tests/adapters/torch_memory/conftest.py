"""One meter of the CPU a test; closed whatever happens, so that the dispatch mode never leaks into the next
test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.torch_memory import PeakMeter, StorageCounter


@pytest.fixture
def meter() -> Iterator[PeakMeter]:
    """A fresh meter on a fresh storage counter."""
    meter = PeakMeter(StorageCounter())
    try:
        yield meter
    finally:
        for interval in tuple(meter._intervals):
            interval.discard()
        meter.close()


@pytest.fixture
def counter() -> Iterator[StorageCounter]:
    """A storage counter that watches, without a meter."""
    with StorageCounter() as counter:
        yield counter
