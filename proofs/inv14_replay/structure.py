"""What a price cannot depend on, from the source of the law modules.

One write is allowed, by name: the memo `derived` of the frontier law's evidence. It is harmless because what is written
is a function of the evidence alone, so a price from a remembered value is the price from the evidence. That reason is
checked too: in the source (`the_memo_holds_what_the_evidence_alone_says`) and by running
(`prices_do_not_tell_whether_they_were_asked_before`).
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path

import pricing
from pricing.kernel import bands, frontier
from pricing.kernel.bands import FrontierEvidence
from pricing.kernel.price import price
from pricing.kernel.profile import Profile, observe_all
from pricing.kernel.reading import Reading
from pricing.kernel.requests import Workload
from pricing.kernel.wave import Wave
from proofs.solver.proof import checked

LAW_ROOMS = ("kernel", "contracts")
"""Every module of these rooms is a law module."""

ALLOWED_IMPORTS = frozenset(
    """
    __future__ bisect collections collections.abc dataclasses decimal enum fractions functools hashlib itertools json
    math re types typing
    """.split()  # noqa: SIM905
)
"""Standard library modules that answer from their arguments alone. No time, random, os, io, sys, threading, ..."""

FORBIDDEN_CALLS = frozenset(
    "open input eval exec compile globals locals vars id hash setattr delattr __import__".split()  # noqa: SIM905
)
"""Built-ins that reach beyond arguments. `hash` and `id` differ from process to process."""


def impurities(source: str, *, floats: bool = True) -> list[str]:
    """What in a law module's source could make a price depend on more than its arguments, or leave exact integers."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            found += [f"{line}: imports {a.name}" for a in node.names if not _is_pure(a.name)]
        elif isinstance(node, ast.ImportFrom):
            found += [] if _is_pure(node.module or "") else [f"{line}: imports {node.module}"]
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            found.append(f"{line}: rebinds {', '.join(node.names)}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(f"{line}: calls {node.func.id}")
        elif floats and isinstance(node, ast.Constant) and isinstance(node.value, (float, complex)):
            found.append(f"{line}: a float {node.value!r}")
        elif floats and isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.Div, ast.Pow)):
            found.append(f"{line}: a true division or power")
        elif floats and isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
            found.append(f"{line}: makes a float")
    return found + _mutable_globals(ast.parse(source)) + writes(source)


def _is_pure(module: str) -> bool:
    return module in ALLOWED_IMPORTS or module == "pricing" or module.startswith("pricing.")


def _mutable_globals(tree: ast.Module) -> list[str]:
    """Module-level lists, dicts and sets: state that could outlive a call."""
    found = []
    for node in tree.body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)):
            found.append(f"{node.lineno}: a mutable global")
    return found


MUTATING_METHODS = frozenset(
    """
    __delattr__ __delitem__ __setattr__ __setitem__ add append appendleft clear discard extend insert move_to_end pop
    popitem popleft remove reverse setdefault sort subtract update
    """.split()  # noqa: SIM905
)

MEMO = "derived"
"""The one container that the kernel writes into: `FrontierEvidence.derived`."""

MEMO_WRITERS = frozenset({"_derived", "observe_bands", "require_evidence", "require_witnesses"})
"""The functions that may write into it."""


def writes(source: str) -> list[str]:
    """Writes into objects that a function was handed or found: attributes, items, and methods that change a container.

    A container that the function made itself is its own, and a frozen dataclass may finish its own fields while it is
    made. The memo may be written by its writers, and by nobody else.
    """
    found: list[str] = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            own = _made_here(function)
            for node in _body(function):
                for target in _written(node):
                    if not (_is_own(target, own) or _finishes_itself(node, function) or _is_memo(target, function)):
                        found.append(f"{target.lineno}: writes into {ast.unparse(target)}")
    return found


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting += ast.iter_child_nodes(node)


def _written(node: ast.AST) -> Iterator[ast.expr]:
    """The objects that a statement or call writes into: `a` in `a.b = 1`, in `a[b] = 1`, in `a.append(1)`."""
    targets: list[ast.expr] = []
    if isinstance(node, (ast.Assign, ast.Delete)):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.NamedExpr)):
        targets = [node.target]
    elif isinstance(node, ast.With):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING_METHODS:
        yield node.func.value
    for target in targets:
        for inner in ast.walk(target):
            if isinstance(inner, (ast.Attribute, ast.Subscript)) and not isinstance(inner.ctx, ast.Load):
                yield inner.value


def _made_here(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Local names that are only ever bound to a container made in the function."""
    bound: dict[str, bool] = {
        argument.arg: False for argument in ast.walk(function.args) if isinstance(argument, ast.arg)
    }
    fresh = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    for node in _body(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    bound[target.id] = bound.get(target.id, True) and isinstance(node.value, fresh)
        elif isinstance(node, (ast.For, ast.NamedExpr)):
            bound |= {name.id: False for name in ast.walk(node.target) if isinstance(name, ast.Name)}
    return frozenset(name for name, is_fresh in bound.items() if is_fresh)


def _is_own(target: ast.expr, own: frozenset[str]) -> bool:
    return isinstance(target, ast.Name) and target.id in own


def _finishes_itself(node: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """`self.field = ...` in `__init__` and `object.__setattr__(self, ...)` in `__post_init__`: not yet anybody's."""
    if isinstance(node, ast.Assign):
        return function.name == "__init__" and all(
            isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" for target in node.targets
        )
    return (
        function.name == "__post_init__"
        and isinstance(node, ast.Call)
        and ast.unparse(node.func) == "object.__setattr__"
        and ast.unparse(node.args[0]) == "self"
    )


def _is_memo(target: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == MEMO and function.name in MEMO_WRITERS


@checked("INV-14")
def law_modules_read_no_clock_no_randomness_no_files_and_keep_no_state() -> str:
    folder = Path(pricing.__file__).parent
    paths = [path for room in LAW_ROOMS for path in sorted((folder / room).glob("*.py"))]
    found = {path.stem: impurities(path.read_text()) for path in paths}
    assert not any(found.values()), f"impure: { {name: lines for name, lines in found.items() if lines} }"
    return f"{len(paths)} modules: arguments in, values out"


PLANTED = (
    "import time",
    "from random import random",
    "import os",
    "SEEN = {}",
    "def price(x):\n    global LAST\n    LAST = x",
    "def price(x):\n    return x / 2",
    "def price(x):\n    return x * 1.1",
    "def price(x):\n    return open(x).read()",
    "def price(x):\n    x.last = 1",
    "def price(x):\n    x.last += 1",
    "def price(x, y):\n    x[y] = 1",
    "def price(x, y):\n    x[y], z = 1, 2",
    "def price(x):\n    del x[0]",
    "def price(x):\n    x.seen.append(1)",
    "def price(x):\n    known = x.seen\n    known.update({1: 2})",
    "def price(x):\n    x.setdefault(1, 2)",
    "def price(x):\n    object.__setattr__(x, 'last', 1)",
    "def price(x):\n    x.derived[1] = 2",
    "def _derived(x):\n    x.other[1] = 2",
    "def price(x):\n    for x.last in range(3):\n        pass",
)

HARMLESS = (
    "def price(x):\n    seen = []\n    seen.append(x)\n    return seen",
    "def price(x):\n    seen = {}\n    seen[x] = 1\n    return seen",
    "def __post_init__(self):\n    object.__setattr__(self, 'last', 1)",
    "def _derived(evidence):\n    evidence.derived[1] = 2",
)


@checked("INV-14")
def the_purity_check_sees_each_planted_impurity() -> str:
    missed = [source for source in PLANTED if not impurities(source)]
    assert not missed, f"not seen: {missed}"
    return f"{len(PLANTED)} planted, {len(PLANTED)} seen"


@checked("INV-14")
def the_purity_check_lets_pass_what_stays_inside_a_call() -> str:
    flagged = {source: impurities(source) for source in HARMLESS if impurities(source)}
    assert not flagged, f"flagged: {flagged}"
    return f"{len(HARMLESS)} sources"


@checked("INV-14")
def the_memo_holds_what_the_evidence_alone_says() -> str:
    """Each value written is `_made(evidence, key)`, which reads evidence and key and not the memo, or the mark that the
    evidence was checked, or the witnesses beside it that were: the very tuple, so that no other passes for it. And the
    memo takes no part in making, comparing or showing evidence."""
    told = next(field for field in dataclasses.fields(FrontierEvidence) if field.name == MEMO)
    assert not (told.init or told.compare or told.repr), "the memo is part of what the evidence says"
    made = inspect.getsource(frontier._made)
    assert MEMO not in made, "what is remembered looks at the memo"
    assert list(inspect.signature(frontier._made).parameters) == ["evidence", "key"]
    values = [
        ast.unparse(value)
        for function in (frontier._derived, bands.observe_bands, bands.require_evidence, bands.require_witnesses)
        for value in _remembered(ast.parse(inspect.getsource(function)))
    ]
    expected = ["True", "True", "_made(evidence, key)", "evidence.derived[CHECKED]", "witnesses"]
    assert sorted(values) == expected, values
    return "a function of evidence and key"


def _remembered(tree: ast.Module) -> Iterator[ast.expr]:
    """What a function writes into the memo; a local name is followed to its last binding."""
    bound = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            yield bound.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value


@checked("INV-14")
def prices_do_not_tell_whether_they_were_asked_before() -> str:
    """The frontier law's prices from evidence that many other prices were asked of, and from new evidence."""
    asked = observe_all(Profile(), [_told(rows) for rows in (712, 9_000, 16_385, 40_000, 3)])
    waves = [_asked(rows, state_bytes) for state_bytes in (0, 4_096, 512, 8) for rows in (1, 700, 20_000, 90_000)]
    first = [price(wave, asked, frontier.FRONTIER) for wave in waves]
    again = [price(wave, asked, frontier.FRONTIER) for wave in reversed(waves)][::-1]
    fresh = [
        price(wave, dataclasses.replace(asked, frontier=_as_new(asked.frontier)), frontier.FRONTIER) for wave in waves
    ]
    assert first == again == fresh, "a price depends on what was asked before"
    return f"{len(waves)} prices, three times"


def _as_new(evidence: FrontierEvidence) -> FrontierEvidence:
    return FrontierEvidence(peak=evidence.peak, retained=evidence.retained)


def _told(rows: int) -> Reading:
    return Reading(
        packed_rows=rows,
        logical_rows=3 * rows,
        grad_segments=4,
        output_bytes=8,
        peak_delta_bytes=300_000 * rows + 2**28,
    )


def _asked(rows: int, state_bytes: int) -> Wave:
    return Wave(
        packed_rows=rows,
        logical_rows=5 * rows,
        grad_segments=9,
        output_bytes=8,
        workload=Workload.training(shortest_rows=512),
        segment_state_bytes=state_bytes,
    )
