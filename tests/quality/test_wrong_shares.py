"""Every wrong reckoning of shares lets one wave price another of its signature too low, and the right one does not."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample

from pricing.kernel.errors import PricingError
from tests.planner.test_shares_in_plans import Pair, is_covered, pairs
from tests.quality.wrong_kernels import WrongKernel, installed
from tests.quality.wrong_shares import WRONG_SHARES


def is_found(most_examples: int) -> bool:
    def violated(pair: Pair) -> bool:
        try:
            return not is_covered(pair)
        except PricingError:
            return True

    search = settings(
        max_examples=most_examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        find(pairs(), violated, settings=search)
    except NoSuchExample:
        return False
    return True


@pytest.mark.parametrize("wrong", WRONG_SHARES, ids=lambda wrong: wrong.name)
def test_wrong_shares_are_caught(wrong: WrongKernel) -> None:
    with installed(wrong):
        assert is_found(10_000), f"nothing sees that {wrong.mistake}"


def test_right_shares_are_not() -> None:
    assert not is_found(600)
