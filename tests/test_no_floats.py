"""The law modules compute in integers: no float literal, no true division, no call that makes a float.

A double drops low bits as rows grow and truncates, so it breaks the theorems (spec/laws.md). This reads the source, so
a float cannot come back unnoticed in a branch that no test takes.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PRICING = Path(__file__).parents[1] / "pricing"

LAW_MODULES = sorted(path for room in ("kernel", "contracts") for path in (PRICING / room).glob("*.py"))

FLOAT_MAKERS = {"float", "sqrt", "log", "log2", "log10", "exp", "ceil", "floor", "round", "pow", "fsum", "mean"}


def float_uses(tree: ast.AST) -> list[str]:
    """Every place of a module that makes or could make a float, as `line: what`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (float, complex)):
            found.append(f"{node.lineno}: {node.value}")
        elif isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div):
            found.append(f"{node.lineno}: true division")
        elif (
            isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Pow) and not _is_whole_power(node)
        ):
            found.append(f"{node.lineno}: a power that may be negative")
        elif isinstance(node, ast.Call) and _called(node) in FLOAT_MAKERS:
            found.append(f"{node.lineno}: {_called(node)}()")
    return found


def _called(node: ast.Call) -> str:
    function = node.func
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def _is_whole_power(node: ast.BinOp | ast.AugAssign) -> bool:
    exponent = node.right if isinstance(node, ast.BinOp) else node.value
    return isinstance(exponent, ast.Constant) and isinstance(exponent.value, int) and exponent.value >= 0


@pytest.mark.parametrize("path", LAW_MODULES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_law_module_computes_in_integers(path: Path) -> None:
    assert float_uses(ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    ["x = 1.5", "x = a / b", "x /= 2", "x = float(a)", "x = math.ceil(a)", "x = round(a)", "x = 2 ** -1", "1e3"],
)
def test_each_way_to_make_a_float_is_seen(source: str) -> None:
    assert float_uses(ast.parse(source))


@pytest.mark.parametrize("source", ["x = a // b", "x = -(-a // b)", "x = 1 << 30", "x = 2 ** 63", 'x = "1.5"'])
def test_integer_arithmetic_is_not_taken_for_it(source: str) -> None:
    assert not float_uses(ast.parse(source))
