"""The machinery itself: what it must refuse, and that its encoding agrees with Python on ints."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import z3

from pricing.kernel import quantities
from pricing.kernel.quantities import Sharing, ceil_div, is_more_sharing, maximum, minimum, with_safety
from pricing.kernel.rate_laws import sharing_rows
from proofs import runner
from proofs.solver import crosshair, decide
from proofs.solver.proof import Given, Theorem, obligations_of, refuted, replay, theorem
from proofs.solver.run import MAX_PATHS, ProofError, Run
from proofs.solver.second_opinion import SecondOpinion
from proofs.solver.symbolic import InexactError, active_run

VALUES = (-7, -1, 0, 1, 2, 3, 8, 100)


def prove(body: Callable[[Given], None]) -> runner.Outcome:
    return runner.prove(Theorem("test", body), None)


def test_floor_division_is_pythons_for_positive_divisors() -> None:
    """Each quotient on its own: the encoding's only value for n // d is Python's."""

    for numerator, denominator in itertools.product(VALUES, (1, 2, 3, 8)):

        def body(t: Given, n: int = numerator, d: int = denominator) -> None:
            left, right = t.integer("n"), t.integer("d")
            t.assume(left == n)
            t.assume(right == d)
            t.prove(left // right == n // d)

        assert prove(body).passed


@pytest.mark.parametrize("function", [maximum, minimum, ceil_div], ids=lambda function: function.__name__)
def test_merged_functions_have_pythons_values(function: Callable[[int, int], int]) -> None:
    for left, right in itertools.product(VALUES, (1, 2, 8)):

        def body(t: Given, one: int = left, two: int = right) -> None:
            first, second = t.integer("first"), t.integer("second")
            t.assume(first == one)
            t.assume(second == two)
            t.prove(t.merged(function, first, second) == function(one, two))

        assert prove(body).passed


def test_a_divisor_that_may_be_zero_is_an_open_obligation() -> None:
    def body(t: Given) -> None:
        t.prove(ceil_div(t.integer("n", 0), t.integer("d", 0)) >= 0)

    outcome = prove(body)
    assert not outcome.passed
    assert outcome.z3 is not None
    assert any("divisor" in label for label in outcome.z3.undecided)


def test_a_path_that_raises_is_an_open_obligation() -> None:
    def body(t: Given) -> None:
        Sharing(logical_rows=t.integer("logical", 1), packed_rows=t.integer("packed", 1))
        t.prove(True)

    assert not prove(body).passed


def test_a_theorem_that_asks_nothing_is_not_proven() -> None:
    def body(t: Given) -> None:
        t.valid(lambda: t.integer("n", 0))

    outcome = prove(body)
    assert outcome.obligations == 0 and not outcome.passed
    assert "no question at all" in outcome.evidence

    def nothing(t: Given) -> None:
        t.integer("n", 0)

    assert not prove(nothing).passed


def test_a_contradictory_premise_proves_nothing() -> None:
    def body(t: Given) -> None:
        number = t.integer("x", 1)
        t.assume(number * number < number)
        t.prove(number == 5)

    outcome = prove(body)
    assert outcome.z3 is not None
    assert outcome.z3.verdict == "proven"
    assert not outcome.passed
    assert "no witness" in outcome.evidence


def test_true_division_floats_and_hashes_stop_a_proof() -> None:
    def leaves(operation: Callable[[int], object]) -> Callable[[Given], None]:
        return lambda t: t.prove(bool(operation(t.integer("x", 1))) or True)

    for operation in (lambda x: x / 2, float, hash, lambda x: x * 1.5, lambda x: x % 2, int, lambda x: [0][x]):
        with pytest.raises(InexactError):
            list(obligations_of(Theorem("test", leaves(operation))))


def test_a_symbolic_value_that_outlives_its_run_is_refused() -> None:
    kept: list[int] = []
    list(obligations_of(Theorem("test", lambda t: kept.append(t.integer("x")))))
    with pytest.raises(InexactError):
        bool(kept[0] > 0)
    with pytest.raises(InexactError):
        active_run()


def test_text_of_a_symbolic_value_may_not_decide_anything() -> None:
    def body(t: Given) -> None:
        t.prove(str(t.integer("x")) == str(t.integer("y")))

    with pytest.raises(ProofError):
        list(obligations_of(Theorem("test", body)))


def test_runaway_paths_are_an_error() -> None:
    def body(t: Given) -> None:
        for number in range(MAX_PATHS.bit_length() + 1):
            bool(t.integer(f"x{number}") > 0)

    with pytest.raises(ProofError):
        list(obligations_of(Theorem("test", body)))


def test_every_path_is_explored_once() -> None:
    seen: list[tuple[bool, bool]] = []

    def body(t: Given) -> None:
        seen.append((bool(t.integer("x") > 0), bool(t.integer("y") > 0)))

    list(obligations_of(Theorem("test", body)))
    assert sorted(seen) == [(False, False), (False, True), (True, False), (True, True)]


def test_the_kernel_is_restored_after_a_run() -> None:
    before = quantities.maximum, sharing_rows, with_safety, is_more_sharing
    list(obligations_of(Theorem("test", lambda t: t.prove(maximum(t.integer("x"), 1) >= 1))))
    assert before == (quantities.maximum, sharing_rows, with_safety, is_more_sharing)
    assert quantities.maximum(1, 2) == 2


def test_registering_is_explicit() -> None:
    from proofs.solver.proof import THEOREMS

    count = len(THEOREMS)
    made = theorem("test")(lambda t: None)
    other = refuted("test")(lambda t: None)
    assert [made, other] == THEOREMS[count:]
    del THEOREMS[count:]


def test_a_counterexample_replays_on_ints() -> None:
    def body(t: Given) -> None:
        t.prove(t.integer("x", 0) * 2 <= 10)

    false = Theorem("test", body, expected="refuted")
    outcome = runner.refute(false, None)
    assert outcome.passed and outcome.witness is not None and outcome.witness["x"] > 5
    assert replay(false, {"x": 5}, ()).claims == [("the claim", True)]


def test_a_true_statement_is_not_refuted() -> None:
    outcome = runner.refute(Theorem("test", lambda t: t.prove(t.integer("x", 0) >= 0), expected="refuted"), None)
    assert not outcome.passed


def test_cvc5_answers_and_is_killed_when_it_overruns() -> None:
    x = z3.Int("x")
    hard = [z3.Int(name) for name in ("a", "b", "c")]
    cubes = sum(v * v * v for v in hard)
    with SecondOpinion() as second:
        assert second.decide(_script(x > 1, x < 1), 5.0).outcome == "proven"
        assert second.decide(_script(x > 1), 5.0).outcome == "refuted"
        unknown = second.decide(_script(cubes == 33, *(v > 1_000_000 for v in hard)), 0.5)
        assert unknown.outcome in ("unknown", "proven")
        assert unknown.seconds < 10
        assert second.decide(_script(x > 1, x < 1), 5.0).outcome == "proven"


def _script(*conditions: z3.BoolRef) -> str:
    solver = z3.SimpleSolver()
    solver.add(*conditions)
    return "(set-logic ALL)\n" + str(solver.to_smt2())


def test_a_core_keeps_what_is_needed() -> None:
    x, y = z3.Ints("x y")
    run = Run([])
    run.assume(x >= 3)
    run.assume(y >= 3)
    run.oblige("x is at least 2", x >= 2, stated=True)
    smaller = decide.core(run.obligations[0], 5.0)
    assert [str(hypothesis) for hypothesis in smaller.hypotheses] == [str(z3.simplify(x >= 3))]
    assert decide.decide(smaller, 5.0).outcome == "proven"


def test_crosshair_says_what_it_finds() -> None:
    assert crosshair.check("tests.proofs.planted.doubling_is_never_seven", 10).outcome == "confirmed"
    assert crosshair.check("tests.proofs.planted.halves_add_up", 10).outcome == "refuted"
