"""The page of families says what the models do: none wrong, none accepted that dies later, none refused unsaid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.adapters.trainer_rank.families import FAMILIES, Family, reason, row_of

PAGE = (Path(__file__).parents[3] / "spec/families.md").read_text()
LARGEST_LOG_PROB = 2e-4
"""fp32 rounding of logits in the tens; what is wrong is wrong by hundredths at least."""
LARGEST_GRADIENT = 1e-3


def test_the_page_lists_each_family_once_and_forty_that_run() -> None:
    accepted, refused = (re.findall(r"^\| (.+?) \|", part, re.M)[1:] for part in PAGE.split("## Refused"))
    assert sorted(accepted[0:] + refused) == sorted(family.name for family in FAMILIES)
    assert len(accepted) >= 40


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_runs_packed_as_it_runs_alone_or_is_refused_for_the_reason_on_the_page(family: Family) -> None:
    row = row_of(family)
    if row.refusal is not None:
        assert f"| {family.name} | {reason(row.refusal)} |" in PAGE
        return
    assert re.search(rf"^\| {re.escape(family.name)} \| \d+e-\d+ \| \d+e-\d+ \|$", PAGE, re.M)
    assert row.log_prob < LARGEST_LOG_PROB
    assert row.gradient < LARGEST_GRADIENT
