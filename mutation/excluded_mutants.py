"""Mutants of what mutmut leaves out: bodies of properties, constants, defaults and enumeration values.

mutmut 3 skips decorated functions and everything outside functions. These count as survivors unless shown otherwise,
so they are mutated here, one small change each, in a copy of the project, against the same tests.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

COPIED: Final = ("pricing", "tests", "spec", "proofs", "mutation", "pyproject.toml", "README.md")

SWAPPED: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.LShift: ast.RShift,
}
CALLED: Final = {"maximum": "minimum", "minimum": "maximum", "min": "max", "ceil_div": "maximum"}


@dataclass(frozen=True, slots=True)
class Change:
    """One mutant: a node of a module's source, and the text to stand there instead."""

    module: str
    owner: str
    line: int
    before: str
    after: str
    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.module}.{self.owner}:{self.line}: {self.before} -> {self.after}"


def changes(module: str, source: str) -> Iterator[Change]:
    """Every change to properties, constants, defaults and enumeration values of one module."""
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for owner, root in _excluded(ast.parse(source)):
        for node in ast.walk(root):
            for replacement in _replacements(node):
                start = offsets[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
                end = offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
                after = f"({ast.unparse(replacement)})" if isinstance(node, ast.BoolOp) else ast.unparse(replacement)
                yield Change(module, owner, node.lineno, source[start:end], after, start, end)  # type: ignore[attr-defined]


def _excluded(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """(owner, node) of the values that mutmut does not reach."""
    for node in tree.body:
        yield from _value("", node)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                yield from _value(f"{node.name}.", member)
                if isinstance(member, ast.FunctionDef) and _is_property(member):
                    for statement in member.body:
                        if not _is_text(statement):
                            yield f"{node.name}.{member.name}", statement


def _value(prefix: str, node: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield prefix + ast.unparse(node.target), node.value
    elif isinstance(node, ast.Assign):
        yield prefix + ast.unparse(node.targets[0]), node.value


def _is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in function.decorator_list)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _replacements(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        yield ast.Compare(node.left, [SWAPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators)  # type: ignore[list-item]
    elif isinstance(node, ast.BoolOp):
        swapped: Any = SWAPPED[type(node.op)]()
        yield ast.BoolOp(swapped, node.values)
        if len(node.values) > 2:  # and each condition by itself dropped
            yield from (ast.BoolOp(node.op, [v for v in node.values if v is not value]) for value in node.values)
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        operator: Any = SWAPPED[type(node.op)]()
        yield ast.BinOp(node.left, operator, node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLED:
        yield ast.Call(ast.Name(CALLED[node.func.id]), node.args, node.keywords)


def _constants(value: object) -> Iterator[ast.expr]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, str):
        yield ast.Constant(value + "XX")


def run(root: Path, modules: list[str], tests: list[str]) -> Iterator[tuple[Change, bool]]:
    """Each change, and whether the tests killed it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "evidence"))
            elif source.exists():
                shutil.copy(source, copy / name)
        assert _passes(copy, tests), "the tests pass before anything is changed"
        for module in modules:
            path = copy / "pricing" / "kernel" / f"{module}.py"
            original = path.read_text()
            for change in changes(module, original):
                path.write_text(original[: change.start] + change.after + original[change.end :])
                yield change, not _passes(copy, tests)
            path.write_text(original)


def _passes(folder: Path, tests: list[str]) -> bool:
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False).returncode == 0


def configured(root: Path) -> tuple[list[str], list[str]]:
    """Modules and tests, from the project's mutation settings."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mutmut"]
    paths = sorted(path for pattern in settings["only_mutate"] for path in root.glob(pattern))
    return [path.stem for path in paths if path.stem != "__init__"], settings["pytest_add_cli_args_test_selection"]
