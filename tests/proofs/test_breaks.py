"""The kernel broken on purpose: the table is sound, and four quick breaks turn a proof red. All: `make prove`."""

from __future__ import annotations

import json

import pytest

from proofs import registry
from proofs.breaks.__main__ import RESULTS
from proofs.breaks.run import run, unbroken
from proofs.breaks.table import BREAKS, Break
from proofs.solver.proof import Check, Lemma, Theorem

QUICK = {
    "warm_term_without_its_sharing_clamp",
    "negative_counts_allowed",
    "an_empty_wave_may_have_segments",
    "interrupted_retained_readings_bound",
}


@pytest.mark.parametrize("fault", BREAKS, ids=lambda fault: fault.name)
def test_a_break_is_one_edit_and_names_what_must_notice_it(fault: Break) -> None:
    source = (registry.ROOT / fault.path).read_text()
    assert fault.made_in(source) != source
    lemmas, theorems, checks = registry.load()
    assert fault.proofs or fault.values
    every: list[Lemma | Theorem | Check] = [*lemmas, *theorems, *checks]
    assert set(fault.proofs) <= {item.name for item in every}


def test_quick_breaks_turn_a_proof_red_that_is_green_without_them() -> None:
    quick = [fault for fault in BREAKS if fault.name in QUICK]
    assert len(quick) == len(QUICK)
    assert unbroken(quick) == []
    for result in run(quick):
        assert result.caught_by is not None and result.kind == "proof", result


def test_the_last_whole_run_noticed_every_break() -> None:
    written = json.loads(RESULTS.read_text())
    assert {result["name"] for result in written["results"]} == {fault.name for fault in BREAKS}
    assert written["noticed"] == written["breaks"] == len(BREAKS)
    assert written["unexpected_without_any_break"] == []
