"""The quick part of the proofs, one test a theorem, probe, lemma and check: what `python -m proofs --quick` runs.

Time: about a minute of processor time, by the seconds of its items. Slow theorems, cvc5 and the whole table are
`make prove`'s.
"""

from __future__ import annotations

import pytest

from pricing.contracts import INVARIANTS
from proofs import registry, runner
from proofs.solver.proof import Check, Lemma, Theorem

LEMMAS, THEOREMS, CHECKS = registry.load()
QUICK = [theorem for theorem in THEOREMS if not theorem.slow]


@pytest.mark.parametrize("lemma", LEMMAS, ids=lambda lemma: lemma.name)
def test_lemma_is_proven(lemma: Lemma) -> None:
    outcome = runner.prove(lemma, None)
    assert outcome.passed, outcome


@pytest.mark.parametrize("theorem", [t for t in QUICK if t.expected == "proven"], ids=lambda t: f"{t.law}-{t.name}")
def test_theorem_is_proven_and_says_something(theorem: Theorem) -> None:
    outcome = runner.prove(theorem, None)
    assert outcome.passed, outcome
    assert outcome.obligations > 0


@pytest.mark.parametrize("theorem", [t for t in QUICK if t.expected == "refuted"], ids=lambda t: f"{t.law}-{t.name}")
def test_false_statement_is_refuted_by_an_example_on_ints(theorem: Theorem) -> None:
    outcome = runner.refute(theorem, None)
    assert outcome.passed, outcome
    assert outcome.witness is not None


@pytest.mark.parametrize("item", CHECKS, ids=lambda item: item.name)
def test_check_holds(item: Check) -> None:
    outcome = runner.check(item)
    assert outcome.passed, outcome.evidence


def test_every_invariant_has_theorem_probe_and_harness_and_nothing_else_is_claimed() -> None:
    columns: dict[str, set[str]] = {"theorems": set(), "probes": set(), "CrossHair": set()}
    for column, law, _, path in registry.entries():
        columns[column].add(law)
        assert (registry.ROOT / path).is_file()
    for laws in columns.values():
        assert set(INVARIANTS) <= laws
    supporting = {
        "reachable",
        "affine",
        "shares",
        "head",
        "frontier",
        "device",
        "planner",
        "twin",
        "second opinion",
        "mistake-1",
        "mistake-2",
        "mistake-3",
        "mistake-4",
    }
    assert set().union(*columns.values()) <= set(INVARIANTS) | supporting


def test_every_invariant_has_a_quick_theorem() -> None:
    quick = {theorem.law for theorem in QUICK if theorem.expected == "proven"}
    assert set(INVARIANTS) <= quick


def test_the_four_historical_mistakes_are_refuted() -> None:
    refuted = {theorem.law for theorem in THEOREMS if theorem.expected == "refuted"} | {item.law for item in CHECKS}
    assert {"mistake-1", "mistake-2", "mistake-3", "mistake-4"} <= refuted
