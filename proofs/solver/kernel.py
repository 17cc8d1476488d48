"""How the shipped kernel is made to run on symbolic integers, without a changed line in it.

While a theorem runs, module globals are replaced in `pricing.*` and in the theorem modules:

- Each function of `MERGED` by a wrapper that calls *the same shipped function* on all its paths and joins the results.
- `require_count` and `require_integer`, which ask for Python's own `int`, by twins: their checks become obligations.
- `ineligibility` by a stub that answers for every workload at once (`AnyWorkload`); the shipped one has a theorem.
- `size_class` and `sharing_class` by any numbers from 1 on, the same for the same rows: joins do not ask more of them.
- The frontier's memo by what it remembers, made anew: a symbolic key has no hash.
- Functions that a theorem names as opaque by any value, the same for the same arguments. What the theorem needs of them
  it assumes, as instances of theorems about the shipped function.
- The frontier law's evidence by a stand-in (`AnyEvidence`) that no other law may look into; it has its own theorems.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pricing.kernel import bands, frontier, law, profile, quantities, rate_laws, reading, wave
from pricing.kernel.law import Ineligible
from proofs.solver.run import ProofError, Run, forge, identity, merge
from proofs.solver.symbolic import InexactError, Integer, Truth

MERGED: list[Callable[..., Any]] = [
    quantities.maximum,
    quantities.minimum,
    quantities.ceil_div,
    quantities.is_more_sharing,
    quantities.more_sharing,
    quantities.with_safety,
    reading.require_peak_above_baseline,
    reading.require_footprint_above_peak,
    reading.scaled_up,
    wave.require_rows_to_run,
    profile.require_reachable,
    profile.require_footprint_of_readings,
    rate_laws.sharing_rows,
    rate_laws.is_retained_trusted,
]
"""Shipped functions whose paths are joined. A law that brings its own small functions adds them here."""


class AnyWorkload:
    """Stands for every workload that is (or is not) packed-priced once a profile exists.

    A price may learn this one bit through `ineligibility` and nothing else: any other look at it stops the proof.
    """

    __slots__ = ("packed_priced",)

    def __init__(self, packed_priced: bool) -> None:
        self.packed_priced = packed_priced

    def __getattr__(self, name: str) -> Any:
        raise InexactError(f"a law looked at workload.{name} otherwise than through ineligibility")


class AnyEvidence:
    """Stands for whatever the frontier law has kept. Equal where the same readings were told, in whatever order: that
    the shipped evidence is so too, and stays reachable, is proven in `proofs/frontier`."""

    __slots__ = ("told",)

    def __init__(self, told: frozenset[int]) -> None:
        self.told = told

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyEvidence) and self.told == other.told

    def __hash__(self) -> int:
        return hash(self.told)

    def __getattr__(self, name: str) -> Any:
        raise InexactError(f"a rate law looked into the frontier law's evidence: {name}")


@contextmanager
def on_symbolic_integers(
    run: Run, merging: Sequence[Callable[..., Any]] = (), opaque: Sequence[Callable[..., Any]] = ()
) -> Iterator[None]:
    """Within, the kernel's globals are replaced as described above. `merging`: further functions to join. `opaque`:
    functions to replace by any value."""
    replacements: dict[int, Any] = {id(function): _merged_wrapper(run, function) for function in (*MERGED, *merging)}
    replacements |= {id(function): _any_answer(run, function) for function in opaque}
    replacements[id(frontier._derived)] = frontier._made
    for check, twin in ((quantities.require_count, _count_check), (quantities.require_integer, _integer_check)):
        replacements[id(check)] = twin(run, check)
    for classify in (bands.size_class, bands.sharing_class):
        replacements[id(classify)] = _any_class(run, classify)
    replacements[id(law.ineligibility)] = _ineligibility_of_any(law.ineligibility)
    replacements[id(bands.observe_bands)] = _evidence_stub(bands.observe_bands)
    replacements[id(bands.observe_witnesses)] = _witnesses_stub(bands.observe_witnesses)
    replacements[id(bands.require_evidence)] = _evidence_check(bands.require_evidence)
    replacements[id(profile._broken_frontier)] = _frontier_check(profile._broken_frontier)
    restored: list[tuple[dict[str, Any], str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.startswith("pricing.") or (name.startswith("proofs.") and not name.startswith("proofs.solver")):
            namespace = vars(module)
            for key, value in list(namespace.items()):
                if id(value) in replacements:
                    restored.append((namespace, key, value))
                    namespace[key] = replacements[id(value)]
    try:
        yield
    finally:
        for namespace, key, value in restored:
            namespace[key] = value


def _merged_wrapper(run: Run, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        return merge(run, function, arguments, keywords)

    return wrapper


def _count_check(run: Run, shipped: Callable[[str, int], None]) -> Callable[[str, Any], None]:
    @functools.wraps(shipped)
    def require_count(field: str, value: Any) -> None:
        if not isinstance(value, Integer):
            shipped(field, value)
            return
        run.oblige(f"{field} is at least 0", value.term >= 0)
        if run.limit is not None:
            run.oblige(f"{field} is within the limit", value.term <= run.limit)

    return require_count


def _integer_check(run: Run, shipped: Callable[[str, int], None]) -> Callable[[str, Any], None]:
    @functools.wraps(shipped)
    def require_integer(field: str, value: Any) -> None:
        if not isinstance(value, Integer):
            shipped(field, value)
            return
        if run.limit is not None:
            run.oblige(f"{field} is below the limit", value.term <= run.limit)
            run.oblige(f"{field} is above minus the limit", value.term >= -run.limit)

    return require_integer


def _any_class(run: Run, classify: Callable[..., int]) -> Callable[..., Any]:
    @functools.wraps(classify)
    def any_class(*rows: Any) -> Any:
        if not any(isinstance(count, Integer) for count in rows):
            return classify(*rows)
        key = (classify, identity(rows))
        if key not in run.memo:
            run.keep(rows)
            run.memo[key] = Integer(run.fresh(classify.__name__))
        found: Integer = run.memo[key]
        run.define(found.term >= 1)
        return found

    return any_class


def _any_answer(run: Run, function: Callable[..., Any]) -> Callable[..., Any]:
    returned = inspect.get_annotations(function, eval_str=True)["return"]

    @functools.wraps(function)
    def any_answer(*arguments: Any) -> Any:
        key = (function, "opaque", identity(arguments))
        if key not in run.memo:
            run.keep(arguments)
            run.memo[key] = _any_value(run, function.__name__, returned)
        return run.memo[key]

    return any_answer


def _any_value(run: Run, name: str, kind: type[Any]) -> Any:
    if kind is bool:
        return Truth(run.fresh(name) == 1)
    if kind is int:
        return Integer(run.fresh(name))
    assert dataclasses.is_dataclass(kind), "an opaque function gives a truth, an integer or a structure of integers"
    return forge(kind, **{item.name: Integer(run.fresh(f"{name}.{item.name}")) for item in dataclasses.fields(kind)})


def _ineligibility_of_any(shipped: Callable[..., Any]) -> Callable[..., tuple[Ineligible, ...]]:
    def ineligibility(of: Any, workload: Any) -> tuple[Ineligible, ...]:
        if not isinstance(workload, AnyWorkload):
            answer: tuple[Ineligible, ...] = shipped(of, workload)
            return answer
        if of.is_empty:
            return (Ineligible.NO_PROFILE,)
        return () if workload.packed_priced else (Ineligible.RECOMPUTE,)

    return ineligibility


def _evidence_stub(shipped: Callable[..., Any]) -> Callable[..., Any]:
    def observe_bands(evidence: Any, told: Any, seed_seen: bool) -> Any:
        if not isinstance(evidence, AnyEvidence):
            return shipped(evidence, told, seed_seen)
        return AnyEvidence(evidence.told | {id(told)}) if seed_seen else evidence

    return observe_bands


def _witnesses_stub(shipped: Callable[..., Any]) -> Callable[..., Any]:
    """No price looks at witnesses, so that none are kept of readings that are symbols; see `proofs/liveness`."""

    def observe_witnesses(known: Any, told: Any) -> Any:
        return known if isinstance(told.packed_rows, Integer) else shipped(known, told)

    return observe_witnesses


def _evidence_check(shipped: Callable[..., Any]) -> Callable[..., None]:
    def require_evidence(evidence: Any) -> None:
        if not isinstance(evidence, AnyEvidence):
            shipped(evidence)

    return require_evidence


def _frontier_check(shipped: Callable[..., Any]) -> Callable[..., Any]:
    def broken_frontier(of: Any) -> Any:
        return None if isinstance(of.frontier, AnyEvidence) else shipped(of)

    return broken_frontier


def shipped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The shipped function behind a merged wrapper (itself outside a run)."""
    inner = getattr(function, "__wrapped__", function)
    if not callable(inner):
        raise ProofError(f"{function!r} wraps nothing")
    return inner
