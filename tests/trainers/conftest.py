"""Tests against TRL's own trainers: `make test-trainers`. Skipped, with the reason, where TRL is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.trainers)
        if importlib.util.find_spec("trl") is None:
            item.add_marker(pytest.mark.skip(reason="make test-trainers runs this: the extra `trl` is not installed"))
