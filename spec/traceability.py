"""Generates `traceability.md`: invariant, function, contract, property, proof, mistakes caught, regressions.

    python -m spec.traceability            writes the table
    python -m spec.traceability --check    exits 1 if the table on disk is not what the code says

Tests say which invariants they are about by the marker `invariant`; proofs by `proofs.registry`; wrong kernels by the
contract they name. `tests/test_traceability.py` fails on an empty cell and on a link that leads nowhere.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pricing.contracts import INVARIANTS
from spec import cases

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "spec" / "traceability.md"

BEYOND = {
    "reachable": 'What "reachable profile" means: the inductive invariant that the other statements start from',
    "shares": "What one mixed wave taught covers every wave of its kinds, in proportion (assumption SHARES)",
    "head": "What a wave teaches covers whatever rows of it have labels (assumption LABELS)",
    "affine": "A warm floor that covers a fixed cost plus a rate covers it at every size (assumption AFFINE)",
    "frontier": "The frontier law's invariants, for any number of bands",
    "device": "End to end: on a device that satisfies the named assumptions an admitted wave stays within its price",
    "planner": "The width search's contract, for whatever prices, if they never fall with width within a regime",
    "twin": "The arrays' price equals the scalar one, and no intermediate of it is above the corner that is checked",
    "second opinion": "What cvc5 does not decide, on every small input by the kernel itself",
    "mistake-1": "A mistake as it was made: a size gate at which the price drops; refuted by a counterexample",
    "mistake-2": "A mistake as it was made: pricing by sharing ratio, and its cross product of maxima; refuted",
    "mistake-3": "A mistake as it was made: rates in floating point; shown by counterexamples",
    "mistake-4": "A mistake as it was made: packed pricing without the clamp's continuity; refuted",
}
"""Subjects of `proofs/` that are no invariant of their own."""


@dataclass(frozen=True)
class Target:
    """A place in the code: what it is called, its file and line."""

    name: str
    path: Path
    line: int

    @property
    def link(self) -> str:
        return f"[{self.name}](../{self.path.relative_to(ROOT).as_posix()}#L{self.line})"


def definitions(path: Path) -> dict[str, int]:
    """Line of every function, class and method (as Class.method) in a file."""
    found: dict[str, int] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node.lineno
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    found[f"{node.name}.{member.name}"] = member.lineno
    return found


def marked_tests() -> Iterator[tuple[str, Target]]:
    """(invariant, test) for every test function, class or module that carries the marker."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        for identifier in _module_marks(tree):
            yield identifier, Target(path.stem, path, 1)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                for decorator in node.decorator_list:
                    for identifier in _marks(decorator):
                        yield identifier, Target(node.name, path, node.lineno)


def _module_marks(tree: ast.Module) -> list[str]:
    marks: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            for child in ast.walk(node.value):
                marks += _marks(child)
    return marks


def _marks(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "invariant":
        return [str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)]
    return []


def function_targets() -> dict[str, list[Target]]:
    targets: dict[str, list[Target]] = {}
    for identifier, invariant in INVARIANTS.items():
        targets[identifier] = []
        for function in invariant.functions:
            path, name = _place_of(function)
            targets[identifier].append(Target(name, path, definitions(path)[name]))
    return targets


def _place_of(function: str) -> tuple[Path, str]:
    """File and name of "price.price" (of the kernel) or "planner.budget.judge"."""
    *folders, module, name = function.split(".")
    return (ROOT / "pricing").joinpath(*(folders or ["kernel"])) / f"{module}.py", name


def contract_targets() -> dict[str, list[Target]]:
    return {
        identifier: [_predicate_target(predicate) for predicate in invariant.predicates]
        for identifier, invariant in INVARIANTS.items()
    }


def _predicate_target(predicate: Callable[..., bool]) -> Target:
    path = ROOT / Path(*predicate.__module__.split(".")).with_suffix(".py")
    return Target(predicate.__name__, path, definitions(path)[predicate.__name__])


def test_targets(folder_names: tuple[str, ...]) -> dict[str, list[Target]]:
    targets: dict[str, list[Target]] = defaultdict(list)
    for identifier, target in marked_tests():
        if target.path.relative_to(ROOT / "tests").parts[0] in folder_names:
            targets[identifier].append(target)
    return targets


def wrong_kernel_targets() -> dict[str, list[Target]]:
    """Wrong kernels by the invariant whose contract catches them."""
    wrong_kernels = importlib.import_module("tests.quality.wrong_kernels")
    path = ROOT / "tests" / "quality" / "wrong_kernels.py"
    lines = path.read_text().splitlines()
    targets: dict[str, list[Target]] = defaultdict(list)
    for kernel in wrong_kernels.WRONG_KERNELS:
        line = 1 + next(index for index, text in enumerate(lines) if f'"{kernel.name}"' in text)
        for identifier, invariant in INVARIANTS.items():
            if kernel.caught_by in {predicate.__name__ for predicate in invariant.predicates}:
                targets[identifier].append(Target(kernel.name, path, line))
    return targets


def proof_targets() -> dict[str, Mapping[str, list[Target]]]:
    """Theorems, CrossHair harnesses and probes, by column, from `proofs.registry`."""
    registry = importlib.import_module("proofs.registry")
    columns: dict[str, dict[str, list[Target]]] = {
        name: defaultdict(list) for name in ("theorems", "CrossHair", "probes")
    }
    for column, identifier, name, relative_path in registry.entries():
        path = ROOT / relative_path
        columns[column][identifier].append(Target(name, path, definitions(path).get(name, 1)))
    return dict(columns)


def rows() -> dict[str, dict[str, list[Target]]]:
    """Every cell of the table: invariant -> column -> places."""
    proofs = proof_targets()
    sources: dict[str, Mapping[str, list[Target]]] = {
        "functions": function_targets(),
        "contracts": contract_targets(),
        "property tests": test_targets(("properties", "differential", "planner")),
        **proofs,
        "caught": wrong_kernel_targets(),
        "regressions": test_targets(("regressions", "values")),
    }
    return {
        identifier: {column: list(source.get(identifier, [])) for column, source in sources.items()}
        for identifier in INVARIANTS
    }


def render() -> str:
    lines = [
        "# Traceability",
        "",
        "Generated by `python -m spec.traceability` from the code; a test fails when it is stale, when a cell is empty",
        "or when a link leads nowhere. Statements: [laws.md](laws.md#5-invariants). Verdicts and times of the proofs:",
        "[proofs/](../proofs/README.md). `caught` names the seeded wrong kernels that the row's contracts must catch.",
        "",
    ]
    for identifier, cells in rows().items():
        lines += [f"## {identifier}", "", INVARIANTS[identifier].statement + ".", ""]
        lines += ["| what | where |", "| --- | --- |"]
        lines += [f"| {column} | {', '.join(place.link for place in places)} |" for column, places in cells.items()]
        lines.append("")
    lines += _beyond()
    return "\n".join(lines).rstrip() + "\n"


def _beyond() -> list[str]:
    """The proofs that are not about one of the invariants."""
    lines = ["## Beyond the invariants", ""]
    columns = proof_targets()
    for subject, statement in BEYOND.items():
        lines += [f"### {subject}", "", statement + ".", "", "| what | where |", "| --- | --- |"]
        for column, by_law in columns.items():
            if by_law.get(subject):
                lines.append(f"| {column} | {', '.join(place.link for place in by_law[subject])} |")
        lines.append("")
    return lines


def main(arguments: list[str]) -> int:
    table = render()
    if "--check" in arguments:
        current = TABLE.read_text() if TABLE.exists() else ""
        if current != table:
            print("spec/traceability.md is stale: run `python -m spec.traceability`", file=sys.stderr)
            return 1
        return 0
    TABLE.write_text(table)
    cases.main([])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
