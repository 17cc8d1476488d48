"""Runs what the registry lists and says what came of it, one `Outcome` an item."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Final

from proofs import registry
from proofs.solver import crosshair
from proofs.solver.decide import Verdict, core, decide, find_inputs, smt2
from proofs.solver.proof import Check, Lemma, PremiseError, Replay, Theorem, obligations_of, replay
from proofs.solver.run import Obligation
from proofs.solver.second_opinion import SecondOpinion

Z3_TIMEOUT_S: Final = 60.0
CORE_TIMEOUT_S: Final = 0.5
CVC5_CORE_TIMEOUT_S: Final = 3.0
CVC5_TIMEOUT_S: Final = 10.0
WITNESS_ATTEMPTS: Final = 60
REFUTE_ATTEMPTS: Final = 8
"""How often a false sentence is asked about: where it calls functions that are opaque to the solver, a counterexample
may give them values that they never have, and the next one, found from paths walked anew, need not."""


@dataclass(slots=True)
class Opinion:
    """One solver on all obligations of one item."""

    verdict: str
    seconds: float = 0.0
    slowest_s: float = 0.0
    questions: int = 0
    undecided: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """What came of one theorem, probe, lemma, check or harness. `passed`: it is as expected."""

    kind: str
    law: str
    name: str
    path: str
    expected: str
    passed: bool
    seconds: float
    obligations: int = 0
    z3: Opinion | None = None
    cvc5: Opinion | None = None
    crosshair: Opinion | None = None
    witness: dict[str, int] | None = None
    evidence: str = ""

    def as_json(self) -> dict[str, Any]:
        """Without what does not apply."""
        kept = ("seconds", "passed")
        return {name: value for name, value in asdict(self).items() if name in kept or value not in (None, "", 0)}


def distinct_obligations(item: Theorem | Lemma) -> list[Obligation]:
    """All obligations of an item, each once."""
    found: dict[Any, Obligation] = {}
    for run in obligations_of(item):
        for obligation in run.obligations:
            found.setdefault(obligation.identity, obligation)
    return list(found.values())


def prove(item: Theorem | Lemma, second: SecondOpinion | None, patience: float = 1.0) -> Outcome:
    """Every obligation by z3 and, where asked, by cvc5; and a witness that the premises exclude nothing by accident.

    patience: times the limits of both, for a machine that others use too. What cvc5 is known not to decide gets none.
    """
    began = time.perf_counter()
    if item.name in registry.CVC5_NOT_ASKED:
        second = None
    obligations = distinct_obligations(item)
    first = _ask(obligations, lambda obligation: decide(obligation, Z3_TIMEOUT_S * patience))
    if item.name in registry.CVC5_UNDECIDED:
        patience = 1.0
    other = None if second is None else _ask_again(obligations, second, patience)
    witness = find_witness(item, obligations)
    outcome = _outcome(item, "lemma" if isinstance(item, Lemma) else "theorem", "proven", began)
    outcome.obligations, outcome.z3, outcome.cvc5, outcome.witness = len(obligations), first, other, witness
    excused = item.name in registry.CVC5_UNDECIDED and other is not None and other.verdict == "unknown"
    agreed = other is None or other.verdict == "proven" or excused
    needs_witness = any(obligation.stated for obligation in obligations)
    outcome.passed = bool(obligations) and first.verdict == "proven" and agreed
    outcome.passed = outcome.passed and (witness is not None or not needs_witness)
    if item.name in registry.CVC5_NOT_ASKED:
        outcome.evidence = f"cvc5 not asked: {registry.CVC5_NOT_ASKED[item.name]}"
    if not obligations:
        outcome.evidence = "it comes to no question at all: every path of it contradicts itself"
    if needs_witness and witness is None:
        outcome.evidence = "no witness of its premises was found: it may say nothing"
    return outcome


def _ask(obligations: list[Obligation], solve: Callable[[Obligation], Verdict]) -> Opinion:
    opinion = Opinion("proven")
    for obligation in obligations:
        verdict = solve(obligation)
        opinion.questions += 1
        opinion.seconds += verdict.seconds
        opinion.slowest_s = max(opinion.slowest_s, verdict.seconds)
        if verdict.outcome != "proven":
            opinion.undecided.append(f"{obligation.label}: {verdict.outcome}")
            worse = "refuted" in (verdict.outcome, opinion.verdict)
            opinion.verdict = "refuted" if worse else "unknown"
    return opinion


def _ask_again(obligations: list[Obligation], second: SecondOpinion, patience: float) -> Opinion:
    """cvc5 on the hypotheses that z3 needed (see `core`), then on all of them where those were not enough for it."""
    cores: dict[Any, tuple[Obligation, Obligation]] = {}
    for obligation in obligations:
        smaller = core(obligation, CORE_TIMEOUT_S)
        cores.setdefault(smaller.identity, (smaller, obligation))
    whole = {id(smaller): obligation for smaller, obligation in cores.values()}

    def solve(smaller: Obligation) -> Verdict:
        quick = second.decide(smt2(smaller), CVC5_CORE_TIMEOUT_S * patience)
        if quick.outcome != "unknown":
            return quick
        full = second.decide(smt2(whole[id(smaller)]), CVC5_TIMEOUT_S * patience)
        return Verdict(full.outcome, quick.seconds + full.seconds)

    return _ask([smaller for smaller, _ in cores.values()], solve)


def find_witness(item: Theorem | Lemma, obligations: list[Obligation]) -> dict[str, int] | None:
    """Inputs that reach a claim of the theorem, checked on ints: premises hold and claims are true there.

    The claims with most hypotheses come first: they lie deepest, beyond every premise. Where those lie on paths that
    contradict themselves, as the deepest of a search may, claims from all over follow.
    """
    stated = sorted((o for o in obligations if o.stated), key=lambda o: -len(o.hypotheses))
    apart = max(1, len(stated) // (4 * WITNESS_ATTEMPTS))
    for obligation in [*stated[:WITNESS_ATTEMPTS], *stated[WITNESS_ATTEMPTS::apart]]:
        found = find_inputs(obligation.hypotheses, 5.0)
        if found.values is not None:
            try:
                told = replay(item, found.values, obligation.choices)
            except PremiseError:
                continue
            assert all(holds for _, holds in told.claims), f"{item.name} is false on ints: {told.inputs}"
            return told.inputs
    return None


def refute(item: Theorem, second: SecondOpinion | None) -> Outcome:
    """A false sentence: the first counterexample that z3 finds and the unpatched kernel confirms on ints."""
    began = time.perf_counter()
    outcome = _outcome(item, "probe", "refuted", began)
    outcome.z3 = Opinion("unknown")
    for obligation in chain.from_iterable(distinct_obligations(item) for _ in range(REFUTE_ATTEMPTS)):
        verdict = decide(obligation, Z3_TIMEOUT_S)
        outcome.obligations += 1
        outcome.z3.seconds += verdict.seconds
        outcome.z3.slowest_s = max(outcome.z3.slowest_s, verdict.seconds)
        told = _confirmed(item, obligation, verdict)
        if told is not None:
            outcome.z3.verdict, outcome.passed, outcome.witness = "refuted", True, told.inputs
            if second is not None:
                outcome.cvc5 = _sat(second.decide(smt2(obligation), CVC5_TIMEOUT_S))
            break
    outcome.seconds = time.perf_counter() - began
    return outcome


def _sat(verdict: Verdict) -> Opinion:
    return Opinion(verdict.outcome, verdict.seconds, verdict.seconds)


def _confirmed(item: Theorem, obligation: Obligation, verdict: Verdict) -> Replay | None:
    if verdict.values is None or not obligation.stated:
        return None
    told = replay(item, verdict.values, obligation.choices)
    return told if any(not holds for _, holds in told.claims) else None


def check(item: Check) -> Outcome:
    """A check of the code: its own evidence."""
    began = time.perf_counter()
    outcome = _outcome(item, "check", "holds", began)
    try:
        outcome.evidence, outcome.passed = item.body(), True
    except AssertionError as error:
        outcome.evidence = str(error)
    outcome.seconds = time.perf_counter() - began
    return outcome


def confirm(item: registry.Harness, per_condition_s: float) -> Outcome:
    """CrossHair on one harness."""
    verdict = crosshair.check(f"{item.module}.{item.name}", per_condition_s)
    excused = item.name in registry.CROSSHAIR_UNDECIDED and verdict.outcome == "unknown"
    return Outcome(
        kind="crosshair",
        law=item.law,
        name=item.name,
        path=registry.path_of(item.module),
        expected="confirmed",
        passed=verdict.outcome == "confirmed" or excused,
        seconds=verdict.seconds,
        crosshair=_sat(verdict),
        evidence=registry.CROSSHAIR_UNDECIDED.get(item.name, ""),
    )


def _outcome(item: Theorem | Lemma | Check, kind: str, expected: str, began: float) -> Outcome:
    return Outcome(
        kind=kind,
        law="lemma" if isinstance(item, Lemma) else item.law,
        name=item.name,
        path=registry.path_of(item.statement.__module__ if isinstance(item, Lemma) else item.module),
        expected=expected,
        passed=False,
        seconds=time.perf_counter() - began,
    )


def run_all(
    *,
    quick: bool,
    second: bool,
    harnesses: bool,
    only: Mapping[str, bool] | None = None,
    items: frozenset[str] = frozenset(),
    per_condition_s: float = 60.0,
    patience: float = 1.0,
    share: tuple[int, int] = (0, 1),
) -> Iterator[Outcome]:
    """Everything in the registry, in its order. `quick` leaves out slow theorems, cvc5 and CrossHair.

    share: (k, n) for one of n workers: what comes at places k, k + n, k + 2n, ... of the registry.

    only: laws, all if empty. items: names, all if empty; a name that nothing has is an error, not a silent pass.
    """
    lemmas, theorems, checks = registry.load()
    every: list[Lemma | Theorem | Check | registry.Harness] = [*lemmas, *theorems, *checks, *registry.harnesses()]
    names = {item.name for item in every}
    if not items <= names:
        raise LookupError(f"nothing in the proofs is called {', '.join(sorted(items - names))}")

    mine = {(type(item), item.name) for item in every[share[0] :: share[1]]}

    def asked(item: Theorem | Check | registry.Harness) -> bool:
        named = (not only or item.law in only) and (not items or item.name in items)
        return named and (type(item), item.name) in mine

    with SecondOpinion() as opinion:
        other = opinion if second and not quick else None
        for lemma in lemmas:
            if (not items or lemma.name in items) and (Lemma, lemma.name) in mine:
                yield prove(lemma, other, patience)
        for theorem in theorems:
            if asked(theorem) and not (quick and theorem.slow):
                yield prove(theorem, other, patience) if theorem.expected == "proven" else refute(theorem, other)
    for item in checks:
        if asked(item):
            yield check(item)
    if harnesses and not quick:
        for harness in registry.harnesses():
            if asked(harness):
                yield confirm(harness, per_condition_s)
