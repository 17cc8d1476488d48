"""What a price cannot depend on, from the source of the law modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pricing
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
    return found + _mutable_globals(ast.parse(source))


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
)


@checked("INV-14")
def the_purity_check_sees_each_planted_impurity() -> str:
    missed = [source for source in PLANTED if not impurities(source)]
    assert not missed, f"not seen: {missed}"
    return f"{len(PLANTED)} planted, {len(PLANTED)} seen"
