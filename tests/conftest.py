"""Hypothesis profiles and the CUDA gate.

`ci` (the default) is small, derandomised and quick, so that a red run is the same red run everywhere. `deep` is what
`make deep` runs: 100,000 examples a property, random. `mutation` is what `mutation.beyond` runs on each mutant.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# pytest-xdist tells its workers a narrow terminal; tables for people are tested as they go to a pipe.
os.environ.pop("COLUMNS", None)

_SLOW_MACHINES = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "ci", max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW_MACHINES
)
settings.register_profile(
    "deep", max_examples=100_000, deadline=None, database=None, suppress_health_check=_SLOW_MACHINES
)
settings.register_profile(
    "mutation", max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW_MACHINES
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True, scope="module")
def _no_meter_outlives_its_module() -> Iterator[None]:
    """A rank without a meter of its own takes the process's, which nobody closes: the next file would find it taken."""
    yield
    if "adapters.torch_memory.meter" not in sys.modules:
        return
    from adapters.torch_memory.counter import PROCESS_CLAIMS
    from adapters.torch_memory.meter import close_process_meters

    close_process_meters()
    assert not PROCESS_CLAIMS.owners(), "a test left a peak counter claimed"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a CUDA device where there is none."""
    cuda_items = [item for item in items if item.get_closest_marker("cuda")]
    if not cuda_items or _has_cuda():
        return
    for item in cuda_items:
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _has_cuda() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()
