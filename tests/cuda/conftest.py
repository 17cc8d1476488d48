"""Tests on a real GPU: marked `cuda`, skipped where there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cuda)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def device() -> Iterator[torch.device]:
    """The first GPU, with what earlier tests left behind given back."""
    torch.cuda.set_device(0)
    torch.manual_seed(0)
    yield torch.device("cuda", 0)
    gc.collect()
    torch.cuda.empty_cache()
