"""Deciding obligations with z3, and describing them as SMT-LIB for a second solver."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import z3

from proofs.solver.run import Obligation

_FRESH = re.compile(r"\b(joined|quotient)!\d+")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A solver's answer on one obligation: "proven", "refuted" (with the assignment that refutes), or "unknown"."""

    outcome: str
    seconds: float
    values: dict[str, int] | None = None


def decide(obligation: Obligation, timeout_s: float) -> Verdict:
    """z3 on one obligation."""
    solver = _solver(obligation, timeout_s)
    return _check(solver)


def find_inputs(hypotheses: Sequence[object], timeout_s: float) -> Verdict:
    """An assignment that satisfies all hypotheses ("refuted", with the values), or "proven" that there is none."""
    solver = z3.SimpleSolver()
    solver.set("timeout", int(timeout_s * 1000))
    solver.add(*hypotheses)
    return _check(solver)


def core(obligation: Obligation, timeout_s: float) -> Obligation:
    """A proven obligation with only those hypotheses that z3 needed; unchanged if it cannot say.

    What follows from fewer hypotheses follows from all, so a second solver may be asked this smaller question.
    """
    solver = z3.SimpleSolver()
    solver.set("timeout", int(timeout_s * 1000))
    solver.set("unsat_core", True)
    for number, hypothesis in enumerate(obligation.hypotheses):
        solver.assert_and_track(hypothesis, f"hypothesis!{number}")
    solver.add(z3.Not(obligation.claim))
    if solver.check() != z3.unsat:
        return obligation
    used = {str(name) for name in solver.unsat_core()}
    needed = tuple(h for number, h in enumerate(obligation.hypotheses) if f"hypothesis!{number}" in used)
    return replace(obligation, hypotheses=needed)


def smt2(obligation: Obligation) -> str:
    """The obligation as an SMT-LIB script whose answer must be `unsat`.

    Fresh variables are numbered in order of appearance, so that equal questions have equal texts.
    """
    text: str = _solver(obligation, 0).to_smt2()
    numbers: dict[str, str] = {}
    body = _FRESH.sub(lambda found: numbers.setdefault(found[0], f"{found[1]}!{len(numbers)}"), text)
    return "(set-logic ALL)\n" + body


def _solver(obligation: Obligation, timeout_s: float) -> z3.Solver:
    solver = z3.SimpleSolver()
    if timeout_s:
        solver.set("timeout", int(timeout_s * 1000))
    solver.add(*obligation.negated())
    return solver


def _check(solver: z3.Solver) -> Verdict:
    began = time.perf_counter()
    answer = solver.check()
    seconds = time.perf_counter() - began
    if answer == z3.unsat:
        return Verdict("proven", seconds)
    if answer == z3.sat:
        model = solver.model()
        values = {symbol.name(): model[symbol].as_long() for symbol in model.decls() if symbol.arity() == 0}
        return Verdict("refuted", seconds, values)
    return Verdict("unknown", seconds)
