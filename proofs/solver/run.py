"""One run of a theorem over symbolic values, the exploration of all its paths, and the joining of a function's paths.

A theorem's body is plain Python. `explore` runs it once for every combination of branch outcomes: a fork that the path
so far does not decide takes the first outcome, and the other is queued as a script to re-run. Within a run, `merged`
does the same to one shipped function and joins the results of its paths into one if-then-else term, so that `maximum`
costs a term and not a fork.

A path on which the code raises is an obligation too: that path must be impossible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import z3

from proofs.solver.symbolic import InexactError, Integer, Term, Truth, activate, deactivate, integer_term, truth_term

MAX_PATHS = 4096
"""A theorem with more paths than this is written wrongly; splitting or merging is cheaper than solving them."""


class ProofError(Exception):
    """A theorem that cannot be run as written: the machinery's fault or the theorem's, never a refutation."""


class _DeadPath(Exception):
    """This path contradicts itself; nothing is to be shown on it."""


@dataclass(frozen=True, slots=True)
class Obligation:
    """`hypotheses` together must imply `claim`, for all integers.

    `stated`: the theorem itself claims it; else the machinery does (a divisor is positive, a path cannot raise).
    """

    label: str
    hypotheses: tuple[Term, ...]
    claim: Term
    choices: tuple[int, ...]
    stated: bool = False

    def negated(self) -> tuple[Term, ...]:
        """What must be unsatisfiable."""
        return (*self.hypotheses, z3.Not(self.claim))

    @property
    def identity(self) -> tuple[frozenset[int], int]:
        """Equal for obligations that say the same, while their terms live."""
        return frozenset(hypothesis.get_id() for hypothesis in self.hypotheses), self.claim.get_id()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a merged function, or one product (`function` is None), as the lemmas see it."""

    function: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    result: Any


@dataclass(slots=True)
class _Frame:
    """One path of one exploration: the outcomes to replay, the outcomes taken, and the conditions they amount to."""

    script: list[int]
    taken: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    conditions: list[Term] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    printed: bool = False

    def add(self, condition: Term) -> None:
        self.conditions.append(condition)
        self.known.add(condition.get_id())

    def decide(self, width: int) -> int:
        position = len(self.taken)
        outcome = self.script[position] if position < len(self.script) else 0
        self.taken.append(outcome)
        self.widths.append(width)
        return outcome

    def untaken(self) -> list[list[int]]:
        return [
            [*self.taken[:position], outcome]
            for position in range(len(self.script), len(self.taken))
            for outcome in range(1, self.widths[position])
        ]


@dataclass(frozen=True, slots=True)
class Path:
    """A finished path of an inner exploration: its own conditions, and what it returned or raised."""

    condition: Term
    value: Any
    error: Exception | None


class Run:
    """Everything one path of a theorem has assumed, defined, promised and called."""

    def __init__(self, script: list[int], limit: int | None = None) -> None:
        self.frames = [_Frame(script)]
        self.limit = limit
        self.assumptions: list[Term] = []
        self._assumed: set[int] = set()
        self._bounds: dict[int, int] = {}
        self.facts: list[Term] = []
        self._stated: set[int] = set()
        self.obligations: list[Obligation] = []
        self.calls: list[Call] = []
        self._logged: set[Any] = set()
        self._kept: list[Any] = []
        self.memo: dict[Any, Any] = {}
        self.effects = 0
        self.choices: list[int] = []
        self.assuming = False
        self._quotients: dict[tuple[int, int], tuple[Term, Term, Term]] = {}
        self._named: dict[int, tuple[Term, Term]] = {}
        self._fresh = 0

    # --- what symbolic values ask of the run ---

    def fork(self, condition: Term) -> bool:
        decided = self._decided(condition)
        if decided is not None:
            return decided
        outcome = self.frames[-1].decide(2) == 0
        positive, negative, _ = _simplified(condition)
        self.frames[-1].add(positive if outcome else negative)
        return outcome

    def quotient(self, numerator: Term, denominator: Term) -> Term:
        """numerator // denominator: a fresh q with q*d <= n < q*d + d; d >= 1 is an obligation of its own."""
        if z3.is_int_value(numerator) and z3.is_int_value(denominator) and denominator.as_long() > 0:
            return z3.IntVal(numerator.as_long() // denominator.as_long())
        if not (z3.is_int_value(denominator) and denominator.as_long() > 0):
            self.oblige("a divisor is at least 1", denominator >= 1)
        key = (numerator.get_id(), denominator.get_id())
        if key not in self._quotients:
            self._quotients[key] = (self.fresh("quotient"), numerator, denominator)
        quotient = self._quotients[key][0]
        below = quotient * denominator
        self.define(z3.And(below <= numerator, numerator < below + denominator))
        return quotient

    def multiplied(self, left: Term, right: Term, product: Term) -> None:
        self.log(Call(None, (Integer(left), Integer(right)), Integer(product)))

    def printed(self) -> None:
        self.frames[-1].printed = True

    # --- bookkeeping ---

    def fresh(self, name: str) -> Term:
        self._fresh += 1
        return z3.Int(f"{name}!{self._fresh}")

    def named(self, term: Term) -> Term:
        """A fresh variable defined as `term`, the same one for the same term."""
        key = term.get_id()
        if key not in self._named:
            variable = self.fresh("joined")
            self._named[key] = (variable, term)
            self.facts.append(variable == term)
        return self._named[key][0]

    def define(self, fact: Term) -> None:
        """Add a fact that holds wherever the innermost path does."""
        self.effects += 1
        guards = [condition for frame in self.frames[1:] for condition in frame.conditions]
        guarded = z3.Implies(z3.And(*guards), fact) if guards else fact
        if guarded.get_id() not in self._stated:
            self._stated.add(guarded.get_id())
            self.facts.append(guarded)

    def log(self, call: Call) -> None:
        key = (call.function, identity(call.arguments))
        if key not in self._logged:
            self._logged.add(key)
            self.calls.append(call)

    def forget_calls(self, keeping: int) -> None:
        """Drop the calls logged after the first `keeping`: they were a lemma's own."""
        for call in self.calls[keeping:]:
            self._logged.discard((call.function, identity(call.arguments)))
        del self.calls[keeping:]

    def keep(self, value: Any) -> None:
        """Keep terms alive whose numbers are used as keys."""
        self._kept.append(value)

    def assume(self, condition: Term) -> None:
        assert len(self.frames) == 1, "assumptions belong to the theorem, not to a function it calls"
        self._assume(condition)

    def _assume(self, condition: Term) -> None:
        condition = z3.simplify(condition)
        if z3.is_false(condition):
            raise _DeadPath
        if not z3.is_true(condition):
            self.assumptions.append(condition)
            self._assumed.add(condition.get_id())
            bound = _lower_bound(condition)
            if bound is not None:
                subject, least = bound
                self._bounds[subject.get_id()] = max(least, self._bounds.get(subject.get_id(), least))

    def oblige(self, label: str, claim: Term, *, stated: bool = False) -> None:
        """Promise that `claim` holds on the present path (nothing to promise if the path says so literally).

        While inputs are made, assume it instead.
        """
        self.effects += 1
        if not stated and self._decided(claim) is True:
            return
        conditions = [condition for frame in self.frames for condition in frame.conditions]
        if self.assuming:
            inner = [condition for frame in self.frames[1:] for condition in frame.conditions]
            self._assume(z3.Implies(z3.And(*inner), claim) if inner else claim)
            return
        hypotheses = (*self.assumptions, *self.facts, *conditions)
        self.obligations.append(Obligation(label, hypotheses, claim, tuple(self.choices), stated))

    def choose(self, width: int) -> int:
        outcome = self.frames[-1].decide(width)
        self.choices.append(outcome)
        return outcome

    def inner_paths(self, body: Callable[[], Any]) -> list[Path]:
        """Every path of `body` within this run."""
        finished: list[Path] = []
        pending: list[list[int]] = [[]]
        while pending:
            frame = _Frame(pending.pop())
            self.frames.append(frame)
            value, error = None, None
            try:
                value = body()
            except Exception as raised:
                if _is_ours(raised):
                    raise
                error = raised
            finally:
                self.frames.pop()
            _check_printed(frame, error)
            pending.extend(frame.untaken())
            finished.append(Path(_conjunction(frame.conditions), value, error))
            if len(finished) > MAX_PATHS:
                raise ProofError(f"more than {MAX_PATHS} paths inside one function")
        return finished

    def forbid(self, path: Path, what: str) -> None:
        """An inner path that raised must be impossible."""
        self.oblige(f"{what} does not raise {type(path.error).__name__}: {path.error}", z3.Not(path.condition))

    def oblige_on(self, path: Path, label: str) -> None:
        """On an inner path that returned a truth value, that value must be true."""
        condition = () if z3.is_true(path.condition) else (path.condition,)
        hypotheses = (*self.assumptions, *self.facts, *self.frames[0].conditions, *condition)
        claim = truth_term(path.value)
        self.obligations.append(Obligation(label, hypotheses, claim, tuple(self.choices), stated=True))

    @contextmanager
    def making_inputs(self) -> Iterator[None]:
        """Within, what the shipped guards check is assumed: the values are a theorem's inputs."""
        before, self.assuming = self.assuming, True
        try:
            yield
        finally:
            self.assuming = before

    def _decided(self, condition: Term) -> bool | None:
        """What the path so far says of a condition, by its text alone; None if nothing."""
        positive, negative, literal = _simplified(condition)
        if literal is not None:
            return literal
        if self._is_known(positive):
            self.effects += 1
            return True
        if self._is_known(negative):
            self.effects += 1
            return False
        by_bound = self._decided_by_bound(positive)
        self.effects += by_bound is not None
        return by_bound

    def _decided_by_bound(self, condition: Term) -> bool | None:
        """Whether `x >= c`, `x == c` or the negation of one follows from an assumption `x >= b` on the same term."""
        if z3.is_not(condition):
            inner = self._decided_by_bound(condition.arg(0))
            return None if inner is None else not inner
        bound = _lower_bound(condition)
        if bound is not None:
            subject, least = bound
            known = self._bounds.get(subject.get_id())
            return True if known is not None and known >= least else None
        if z3.is_eq(condition) and z3.is_int_value(condition.arg(0)):
            known = self._bounds.get(condition.arg(1).get_id())
            return False if known is not None and known > condition.arg(0).as_long() else None
        return None

    def _is_known(self, condition: Term) -> bool:
        key = condition.get_id()
        return key in self._assumed or any(key in frame.known for frame in self.frames)


_SIMPLIFIED: dict[int, tuple[Term, Term, Term, bool | None]] = {}


def _simplified(condition: Term) -> tuple[Term, Term, bool | None]:
    """A condition and its negation, simplified, and its value if it is a literal. Re-runs ask again and again."""
    key = condition.get_id()
    if key not in _SIMPLIFIED:
        positive, negative = z3.simplify(condition), z3.simplify(z3.Not(condition))
        literal = bool(z3.is_true(positive)) if z3.is_true(positive) or z3.is_false(positive) else None
        _SIMPLIFIED[key] = (condition, positive, negative, literal)
    return _SIMPLIFIED[key][1:]


def _lower_bound(condition: Term) -> tuple[Term, int] | None:
    """(x, c) of a simplified condition that says x >= c."""
    if z3.is_ge(condition) and z3.is_int_value(condition.arg(1)):
        return condition.arg(0), condition.arg(1).as_long()
    if z3.is_le(condition) and z3.is_int_value(condition.arg(0)):
        return condition.arg(1), condition.arg(0).as_long()
    return None


def explore(body: Callable[[Run], None], limit: int | None = None) -> Iterator[Run]:
    """Run `body` on every path; yield each finished run. `limit` bounds the magnitude that guards accept."""
    pending: list[list[int]] = [[]]
    count = 0
    while pending:
        run = Run(pending.pop(), limit)
        activate(run)
        error: Exception | None = None
        try:
            body(run)
        except _DeadPath:
            pass
        except Exception as raised:
            if _is_ours(raised):
                raise
            error = raised
            run.oblige(f"no path raises {type(raised).__name__}: {raised}", z3.BoolVal(False))
        finally:
            deactivate(run)
        _check_printed(run.frames[0], error)
        pending.extend(run.frames[0].untaken())
        count += 1
        if count > MAX_PATHS:
            raise ProofError(f"more than {MAX_PATHS} paths in one theorem")
        yield run


def merge(run: Run, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call a shipped function on all its own paths and join what they return.

    Remembered for the rest of the run where the call promised nothing, defined nothing and used no path condition; and
    for a guard of an input, which was assumed to pass: asked of the same values again, it passes again.
    """
    key = (function, identity((*arguments, *keywords.values())))
    if key in run.memo:
        return run.memo[key]
    effects, unconditional = run.effects, run.assuming and not any(frame.conditions for frame in run.frames[1:])
    paths = run.inner_paths(lambda: function(*arguments, **keywords))
    for path in paths:
        if path.error is not None:
            run.forbid(path, function.__name__)
    returned = [path for path in paths if path.error is None]
    if not returned:
        raise paths[0].error or AssertionError("a path returns or raises")
    result = _joined(run, [(path.condition, path.value) for path in returned])
    run.log(Call(function, (*arguments, *keywords.values()), result))
    if run.effects == effects or (unconditional and result is None):
        run.keep(arguments)
        run.memo[key] = result
    return result


def _joined(run: Run, cases: list[tuple[Term, Any]]) -> Any:
    values = [value for _, value in cases]
    first = values[0]
    if len(cases) == 1 or all(value is first for value in values):
        return first
    if all(isinstance(value, (bool, Truth)) for value in values):
        return Truth(z3.simplify(z3.Or(*(z3.And(condition, truth_term(value)) for condition, value in cases))))
    if all(isinstance(value, (int, Integer)) for value in values):
        return Integer(run.named(_if_then_else([(condition, integer_term(value)) for condition, value in cases])))
    if dataclasses.is_dataclass(first) and all(type(value) is type(first) for value in values):
        fields = [item.name for item in dataclasses.fields(first)]
        joined = {name: _joined(run, [(c, getattr(value, name)) for c, value in cases]) for name in fields}
        return forge(type(first), **joined)
    raise ProofError(f"cannot join paths that return {', '.join(sorted({type(value).__name__ for value in values}))}")


def _if_then_else(cases: list[tuple[Term, Term]]) -> Term:
    result = cases[-1][1]
    for condition, value in reversed(cases[:-1]):
        result = z3.If(condition, value, result)
    return result


def forge(cls: Any, **fields: Any) -> Any:
    """An instance of a frozen dataclass with these fields, without its `__post_init__`."""
    made = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _conjunction(conditions: list[Term]) -> Term:
    return z3.And(*conditions) if conditions else z3.BoolVal(True)


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same term (or equal plain values), without forking."""
    return bool(identity(left) == identity(right))


def identity(value: Any) -> Any:
    """A key equal for values that are the same term. Terms are shared, so while they live their numbers tell them."""
    if isinstance(value, Integer):
        return ("int", value.term.as_long()) if z3.is_int_value(value.term) else ("term", value.term.get_id())
    if isinstance(value, int) and not isinstance(value, bool):
        return "int", value
    if isinstance(value, Truth):
        return "truth", value.term.get_id()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), tuple(identity(getattr(value, item.name)) for item in dataclasses.fields(value))
    if isinstance(value, tuple):
        return tuple(identity(item) for item in value)
    return type(value), value if isinstance(value, (str, bool, type(None))) else id(value)


def _is_ours(error: Exception) -> bool:
    return isinstance(error, (ProofError, InexactError, _DeadPath, z3.Z3Exception))


def _check_printed(frame: _Frame, error: Exception | None) -> None:
    if frame.printed and error is None:
        raise ProofError("a path printed a symbolic value and went on: its text could decide something")
