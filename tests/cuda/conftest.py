"""Fixtures of the tests on a real GPU. Every module here marks itself `cuda`."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def device() -> Iterator[torch.device]:
    """The first GPU, with what earlier tests left behind given back."""
    torch.cuda.set_device(0)
    torch.manual_seed(0)
    yield torch.device("cuda", 0)
    gc.collect()
    torch.cuda.empty_cache()
