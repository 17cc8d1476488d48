"""What a theorem is written against: `Proof` on symbolic integers, `Replay` on the ints of one assignment.

A theorem is a function of one argument `t`. It makes inputs (`t.wave()`, `t.profile()`, ...), assumes, and proves:

    @theorem("INV-1")
    def required_bytes_never_fall_as_packed_rows_grow(t: Given) -> None:
        wave, profile = t.wave(), t.profile()
        ...
        t.prove(evidence_bytes(wave, profile, law) <= evidence_bytes(larger, profile, law))

The same function runs on plain ints under the unpatched kernel: that is how every counterexample, and one witness of
every theorem's premises, is checked outside the solver.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import z3

from pricing.kernel.bands import NO_EVIDENCE, FrontierEvidence
from pricing.kernel.errors import PricingError
from pricing.kernel.law import Law
from pricing.kernel.profile import Evidence, Profile
from pricing.kernel.quantities import Safety, Sharing
from pricing.kernel.rate_laws import LOGICAL, PACKED, WARM
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import NO_RECOMPUTE, Workload
from pricing.kernel.wave import Wave
from proofs.solver.kernel import AnyEvidence, AnyWorkload, on_symbolic_integers
from proofs.solver.run import Call, Obligation, ProofError, Run, explore, forge, identity, merge
from proofs.solver.symbolic import Integer, Truth, both, truth_term

T = TypeVar("T")


class Given(ABC):
    """Inputs of a theorem, what it assumes of them and what it proves."""

    # --- what the two readings of a theorem implement ---

    @abstractmethod
    def integer(self, name: str, at_least: int | None = None) -> int:
        """Any integer; of at least `at_least` where that is given. Names are unique within a theorem."""

    @abstractmethod
    def choose(self, *options: T) -> T:
        """Each of the options: the theorem is proven for all of them."""

    @abstractmethod
    def assume(self, condition: bool) -> None:
        """Only inputs that satisfy `condition` are spoken of from here on."""

    @abstractmethod
    def prove(self, claim: bool, label: str = "") -> None:
        """The claim holds on this path, for all inputs."""

    @abstractmethod
    def holds(self, contract: Callable[..., bool], *arguments: Any) -> None:
        """A predicate of `pricing.contracts` holds for these arguments: on each path of the predicate, by itself."""

    @abstractmethod
    def merged(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function` on all its paths and join the results, so that the theorem does not fork."""

    @abstractmethod
    def valid(self, make: Callable[[], T]) -> T:
        """An input built by the shipped constructor; what the constructor checks is assumed."""

    @abstractmethod
    def workload(self, packed_priced: bool) -> Workload:
        """Any workload that is packed-priced (or is not) once a profile exists."""

    @abstractmethod
    def evidence(self) -> FrontierEvidence:
        """Any evidence of the frontier law: the rate laws must not look at it."""

    @abstractmethod
    def safety(self, name: str = "safety") -> Safety:
        """Any safety factor of at least 1."""

    @abstractmethod
    def use(self, lemma: Lemma, *arguments: Any) -> None:
        """Tell the solver this instance of a lemma."""

    # --- inputs ---

    def sharing(self, name: str) -> Sharing:
        """Any sharing ratio of at least 1."""
        logical, packed = self.integer(f"{name}.logical"), self.integer(f"{name}.packed")
        return self.valid(lambda: Sharing(logical_rows=logical, packed_rows=packed))

    def law(self) -> Law:
        """Each of the three rate laws."""
        return self.choose(LOGICAL, PACKED, WARM)

    def wave(self, name: str = "wave", *, workload: Workload | None = None, **fixed: Any) -> Wave:
        """Any wave; fields given by keyword are taken as they are. Packed-priced or not, both, unless given."""
        counts = (
            "packed_rows",
            "logical_rows",
            "grad_segments",
            "output_bytes",
            "floor_bytes",
            "checkpoint_retained_bytes",
            "segment_state_bytes",
        )
        fields = {field: fixed[field] if field in fixed else self.integer(f"{name}.{field}") for field in counts}
        asked = self.workload(self.choose(True, False)) if workload is None else workload
        return self.valid(lambda: Wave(workload=asked, evidence=None, **fields))

    def profile(self, name: str = "profile", *, retained: bool | None = None, warm: str | None = None) -> Profile:
        """Any reachable profile (the shipped `require_reachable` is what is assumed of it).

        `retained`: with a retained rate, without, or (None) both. `warm`: "none", "pending" (a warm rate without a
        fit), "fit", or (None) all three. Of footprints it knows none.
        """
        fields = self._learned(name, retained=retained, warm=warm)
        return self.valid(lambda: Profile(**fields))

    def footprints(self, name: str = "footprint", *, retained: bool | None = None, warm: str | None = None) -> Evidence:
        """Any reachable evidence of footprints: as a profile's own, but a warm rate may be pending before the seed."""
        fields = self._learned(name, retained=retained, warm=warm)
        return self.valid(lambda: Evidence(**fields))

    def _learned(self, name: str, *, retained: bool | None, warm: str | None) -> dict[str, Any]:
        shape = self.choose("none", "pending", "fit") if warm is None else warm
        keeps = self.choose(False, True) if retained is None else retained
        fields: dict[str, Any] = {
            "peak_bytes_per_row": self.integer(f"{name}.B"),
            "largest_packed_rows": self.integer(f"{name}.largest"),
            "sharing": self.sharing(f"{name}.r"),
            "complete_readings": self.integer(f"{name}.complete"),
        }
        if keeps:
            fields["retained_bytes_per_row"] = self.integer(f"{name}.R")
        if shape != "none":
            fields["warm_bytes_per_row"] = self.integer(f"{name}.W")
        if shape == "fit":
            fields["warm_packed_rows"] = self.integer(f"{name}.Pw")
            fields["warm_sharing"] = self.sharing(f"{name}.rw")
        return fields | {"frontier": self.evidence()}

    def reading(
        self,
        name: str = "reading",
        *,
        complete: bool | None = None,
        retained: bool | None = None,
        kind: tuple[ReadingKind, bool, bool] | None = None,
        footprint: bool = False,
    ) -> Reading:
        """Any reading that no guard refuses. `complete`: a whole wave, a forward, or (None) both.

        `kind` names (kind, grads, closes_wave) instead: `observe` asks only `is_complete` of them, which has its own
        theorem. `footprint`: with one, which a wave that ran out of memory always has.
        """
        if kind is None:
            whole = self.choose(True, False) if complete is None else complete
            kind = (ReadingKind.WHOLE_WAVE, True, False) if whole else (ReadingKind.FORWARD_ONLY, True, False)
        keeps = self.choose(False, True) if retained is None else retained
        counts = ("packed_rows", "logical_rows", "grad_segments", "output_bytes", "peak_delta_bytes")
        fields: dict[str, Any] = {field: self.integer(f"{name}.{field}") for field in counts}
        fields["retained_bytes"] = self.integer(f"{name}.retained_bytes") if keeps else None
        if footprint or kind[0] is ReadingKind.OUT_OF_MEMORY:
            fields["footprint_bytes"] = self.integer(f"{name}.footprint_bytes")
        return self.valid(lambda: Reading(kind=kind[0], grads=kind[1], closes_wave=kind[2], **fields))


# --- lemmas and theorems ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lemma:
    """A statement over its arguments, proven once for all of them, then told to solvers by instance.

    `pair` gives the arguments for two recorded calls, or None; instances for all pairs of calls are told by themselves.
    """

    statement: Callable[..., None]
    pair: Callable[[Call, Call], tuple[Any, ...] | None] | None

    @property
    def name(self) -> str:
        return self.statement.__name__

    def prove(self, t: Given) -> None:
        """The lemma as a theorem: for any arguments."""
        parameters = list(inspect.signature(self.statement).parameters.values())[1:]
        self.statement(t, *(_any_value(t, parameter.name, str(parameter.annotation)) for parameter in parameters))


def _any_value(t: Given, name: str, annotation: str) -> Any:
    if annotation == "int":
        return t.integer(name)
    if annotation == "Sharing":
        return t.sharing(name)
    raise ProofError(f"a lemma's argument {name} must be an int or a Sharing, not {annotation}")


@dataclass(frozen=True, slots=True)
class Theorem:
    """A sentence about the shipped functions. `expected` is "proven", or "refuted" for probes and known mistakes."""

    law: str
    body: Callable[[Given], None]
    lemmas: tuple[Lemma, ...] = ()
    merging: tuple[Callable[..., Any], ...] = ()
    opaque: tuple[Callable[..., Any], ...] = ()
    expected: str = "proven"
    slow: bool = False
    limit: int | None = None

    @property
    def name(self) -> str:
        return self.body.__name__

    @property
    def module(self) -> str:
        return self.body.__module__


@dataclass(frozen=True, slots=True)
class Check:
    """A fact about the code itself, or a computed counterexample: it returns its evidence in words, or raises."""

    law: str
    body: Callable[[], str]

    @property
    def name(self) -> str:
        return self.body.__name__

    @property
    def module(self) -> str:
        return self.body.__module__


LEMMAS: list[Lemma] = []
THEOREMS: list[Theorem] = []
CHECKS: list[Check] = []


def checked(law: str) -> Callable[[Callable[[], str]], Check]:
    """Register a check of `law`: `AssertionError` means that it does not hold."""

    def register(body: Callable[[], str]) -> Check:
        made = Check(law, body)
        CHECKS.append(made)
        return made

    return register


def lemma(
    pair: Callable[[Call, Call], tuple[Any, ...] | None] | None = None,
) -> Callable[[Callable[..., None]], Lemma]:
    """Register a lemma. See `Lemma`."""

    def register(statement: Callable[..., None]) -> Lemma:
        made = Lemma(statement, pair)
        LEMMAS.append(made)
        return made

    return register


def theorem(
    law: str,
    *,
    lemmas: Sequence[Lemma] = (),
    merging: Sequence[Callable[..., Any]] = (),
    opaque: Sequence[Callable[..., Any]] = (),
    slow: bool = False,
    limit: int | None = None,
) -> Callable[[Callable[[Given], None]], Theorem]:
    """Register a theorem of `law` ("INV-1", ...).

    `merging`: further shipped functions whose paths are joined here. `opaque`: functions that answer anything, the same
    for the same arguments; only what the theorem assumes of them is known. `slow`: not part of the quick run. `limit`:
    guards also refuse magnitudes above it.
    """

    def register(body: Callable[[Given], None]) -> Theorem:
        return _registered(Theorem(law, body, tuple(lemmas), tuple(merging), tuple(opaque), "proven", slow, limit))

    return register


def refuted(
    law: str, *, merging: Sequence[Callable[..., Any]] = (), opaque: Sequence[Callable[..., Any]] = ()
) -> Callable[[Callable[[Given], None]], Theorem]:
    """Register a false sentence: the machinery must find a counterexample that replays on ints."""

    def register(body: Callable[[Given], None]) -> Theorem:
        return _registered(Theorem(law, body, merging=tuple(merging), opaque=tuple(opaque), expected="refuted"))

    return register


def _registered(made: Theorem) -> Theorem:
    THEOREMS.append(made)
    return made


# --- on symbolic integers --------------------------------------------------------------------------------------------


class Proof(Given):
    """A theorem read on symbolic integers, on one path."""

    def __init__(self, run: Run, lemmas: Iterable[Lemma] = ()) -> None:
        self.run = run
        self._lemmas = tuple(lemmas)
        self._told: set[Any] = set()
        self._names: set[str] = set()

    def integer(self, name: str, at_least: int | None = None) -> int:
        if name in self._names:
            raise ProofError(f"two inputs are called {name}")
        self._names.add(name)
        value: Any = Integer(z3.Int(name))
        if at_least is not None:
            self.run.assume(value.term >= at_least)
        return value  # type: ignore[no-any-return]

    def choose(self, *options: T) -> T:
        return options[self.run.choose(len(options))]

    def assume(self, condition: bool) -> None:
        self.run.assume(truth_term(condition))

    def prove(self, claim: bool, label: str = "") -> None:
        self._tell_lemmas()
        self.run.oblige(label or "the claim", truth_term(claim), stated=True)

    def holds(self, contract: Callable[..., bool], *arguments: Any) -> None:
        paths = self.run.inner_paths(lambda: contract(*arguments))
        self._tell_lemmas()
        for path in paths:
            if path.error is None:
                self.run.oblige_on(path, contract.__name__)
            else:
                self.run.forbid(path, contract.__name__)

    def merged(self, function: Callable[..., T], *arguments: Any) -> T:
        result: T = merge(self.run, function, arguments, {})
        return result

    def valid(self, make: Callable[[], T]) -> T:
        with self.run.making_inputs():
            made: T = merge(self.run, make, (), {})
        return made

    def workload(self, packed_priced: bool) -> Workload:
        stub: Any = AnyWorkload(packed_priced)
        return stub  # type: ignore[no-any-return]

    def evidence(self) -> FrontierEvidence:
        stub: Any = AnyEvidence(frozenset())
        return stub  # type: ignore[no-any-return]

    def safety(self, name: str = "safety") -> Safety:
        numerator, denominator = self.integer(f"{name}.numerator"), self.integer(f"{name}.denominator", 1)
        self.assume(denominator <= numerator)
        made: Safety = forge(Safety, numerator=numerator, denominator=denominator)
        return made

    def use(self, lemma: Lemma, *arguments: Any) -> None:
        key = (lemma, identity(arguments))
        if key in self._told:
            return
        self._told.add(key)
        self.run.keep(arguments)
        obligations, calls = len(self.run.obligations), len(self.run.calls)
        self.run.inner_paths(lambda: lemma.statement(_Instance(self.run), *arguments))
        # What an instance promises (divisors, impossible paths) was shown for all arguments by the lemma's own proof.
        del self.run.obligations[obligations:]
        self.run.forget_calls(calls)

    def _tell_lemmas(self) -> None:
        calls = list(self.run.calls)
        for lemma in self._lemmas:
            for left in calls if lemma.pair else ():
                for right in calls:
                    arguments = lemma.pair(left, right) if left is not right and lemma.pair else None
                    if arguments is not None:
                        self.use(lemma, *arguments)


class _Instance(Given):
    """A lemma read as a fact: its premises imply its conclusions, for the given arguments."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def assume(self, condition: bool) -> None:
        self.run.frames[-1].add(z3.simplify(truth_term(condition)))

    def prove(self, claim: bool, label: str = "") -> None:
        self.run.define(truth_term(claim))

    def _no_inputs(self, *_: Any, **__: Any) -> Any:
        raise ProofError("a lemma's inputs are its arguments")

    def use(self, lemma: Lemma, *arguments: Any) -> None:
        """What a lemma's own proof was told, its users need not be told again."""

    integer = choose = holds = merged = valid = workload = evidence = safety = _no_inputs


def obligations_of(theorem: Theorem | Lemma) -> Iterable[Run]:
    """Every path of a theorem, finished: its obligations, and the choices that lead to it."""
    if isinstance(theorem, Lemma):
        theorem = Theorem("lemma", theorem.prove)
    body, lemmas, merging, opaque = theorem.body, theorem.lemmas, theorem.merging, theorem.opaque

    def on_path(run: Run) -> None:
        with on_symbolic_integers(run, merging, opaque):
            body(Proof(run, lemmas))

    return explore(on_path, theorem.limit)


# --- on ints ---------------------------------------------------------------------------------------------------------


class PremiseError(Exception):
    """An assignment does not satisfy what the theorem assumes."""


class Replay(Given):
    """A theorem read on the ints of one assignment, by the shipped kernel as it is. Claims go to `claims`."""

    def __init__(self, values: Mapping[str, int], choices: Sequence[int]) -> None:
        self.values = values
        self._choices = list(choices)
        self.inputs: dict[str, int] = {}
        self.claims: list[tuple[str, bool]] = []

    def integer(self, name: str, at_least: int | None = None) -> int:
        self.inputs[name] = value = self.values.get(name, at_least or 0)
        if at_least is not None and value < at_least:
            raise PremiseError(f"{name} = {value} < {at_least}")
        return value

    def choose(self, *options: T) -> T:
        return options[self._choices.pop(0) if self._choices else 0]

    def assume(self, condition: bool) -> None:
        if not condition:
            raise PremiseError("an assumption does not hold")

    def prove(self, claim: bool, label: str = "") -> None:
        assert isinstance(claim, bool), "on ints, a claim is a bool"
        self.claims.append((label or "the claim", claim))

    def holds(self, contract: Callable[..., bool], *arguments: Any) -> None:
        self.prove(contract(*arguments), contract.__name__)

    def merged(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)

    def valid(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except PricingError as error:
            raise PremiseError(str(error)) from error

    def workload(self, packed_priced: bool) -> Workload:
        return Workload.training() if packed_priced else Workload.training(recompute=NO_RECOMPUTE)

    def evidence(self) -> FrontierEvidence:
        return NO_EVIDENCE

    def safety(self, name: str = "safety") -> Safety:
        numerator, denominator = self.integer(f"{name}.numerator"), self.integer(f"{name}.denominator", 1)
        return self.valid(lambda: Safety(numerator=numerator, denominator=denominator))

    def use(self, lemma: Lemma, *arguments: Any) -> None:
        """On ints nothing needs a hint."""


def replay(theorem: Theorem | Lemma, values: Mapping[str, int], choices: Sequence[int]) -> Replay:
    """Run a theorem on ints. Raises `PremiseError` where the assignment is outside it."""
    t = Replay(values, choices)
    (theorem.body if isinstance(theorem, Theorem) else theorem.prove)(t)
    return t


__all__ = [
    "CHECKS",
    "LEMMAS",
    "THEOREMS",
    "Call",
    "Check",
    "Given",
    "Integer",
    "Lemma",
    "Obligation",
    "PremiseError",
    "Proof",
    "ProofError",
    "Replay",
    "Theorem",
    "Truth",
    "both",
    "checked",
    "lemma",
    "obligations_of",
    "refuted",
    "replay",
    "theorem",
]
