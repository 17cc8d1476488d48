"""Tests against OpenPipe ART itself: `make test-art`. Skipped, with the reason, where it cannot be imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.art.original import ArtUnavailableError, load_trainer_rank

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    if not here:
        return
    try:
        load_trainer_rank()
    except ArtUnavailableError as error:
        for item in here:
            item.add_marker(pytest.mark.skip(reason=f"make test-art runs this: {error}"))
