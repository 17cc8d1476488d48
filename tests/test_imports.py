"""Imports point one way, the kernel needs nothing but Python, and importing it is quick."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ROOMS: dict[str, set[str]] = {
    "kernel": set(),
    "contracts": {"kernel"},
    "neighbours": set(),
    "text": {"kernel"},
    "vectorized": {"kernel"},
    "formats": {"kernel"},
    "testing": {"kernel"},
    "planner": {"kernel", "text"},
    "evidence": {"kernel", "formats"},
    "records": {"kernel", "formats", "planner", "text"},
    "report": {"kernel", "formats", "planner", "records", "text"},
    "cli": {"kernel", "formats", "planner", "evidence", "records", "report", "text"},
    "plan": {"planner"},
    "recorder": {"records"},
    "__init__": {"kernel"},
}
"""Room (a folder or module of `pricing/`) -> the rooms it may import. CONTRIBUTING.md draws this table."""

KERNEL_ROOMS = ("kernel", "contracts")
"""Rooms that need nothing but the standard library, and of it only what is pure."""

THIRD_PARTY_BY_EXTRA = {
    "pricing/cli": {"click", "rich", "matplotlib"},
    "pricing/testing": {"hypothesis"},
    "pricing/planner/tokens.py": {"numpy"},
    "pricing/vectorized.py": {"numpy"},
    "pricing/planner/layout.py": {"numpy"},
    "pricing/records/metrics.py": {"prometheus_client"},
    "pricing/report/html.py": {"jinja2", "markupsafe"},
}
"""What each part of `pricing` may import beyond the standard library, each from an extra of its own."""


def imported_modules(path: Path, *, at_import_only: bool = False) -> Iterator[str]:
    """Full names of the modules that a file imports; those inside functions too, unless `at_import_only`."""
    tree = ast.parse(path.read_text())
    for node in _import_time(tree) if at_import_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""


def _import_time(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when a module is imported: not inside functions, not under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        is_checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or is_checking:
            continue
        yield child
        yield from _import_time(child)


def files_of(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "pricing").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", files_of("pricing"), ids=named)
def test_a_room_imports_the_rooms_that_the_table_allows(path: Path) -> None:
    room = room_of(path)
    for module in imported_modules(path):
        package, _, rest = module.partition(".")
        if package == "pricing":
            assert rest, f"{path}: imports the public package instead of the room"
            target = rest.split(".")[0]
            assert target == room or target in ROOMS[room], f"{room} may not import {target}"


def test_the_table_of_rooms_has_no_circle_and_no_room_that_is_not_there() -> None:
    assert {room_of(path) for path in files_of("pricing")} == set(ROOMS)
    assert tuple(graphlib.TopologicalSorter(ROOMS).static_order())


def test_contributing_draws_the_table_of_rooms() -> None:
    drawn = re.findall(r"^\| `(\w+)` \|[^|]+\|([^|]*)\|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)

    assert {room: set(re.findall(r"`(\w+)`", allowed)) for room, allowed in drawn} == ROOMS


def test_no_modules_import_one_another_in_a_circle() -> None:
    """At import time and inside functions alike; only `if TYPE_CHECKING` may look back."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in ("pricing", "adapters")
        for path in files_of(folder)
    }
    graph = {
        name: {module for module in imported_modules(path, at_import_only=True) if module in files and module != name}
        for name, path in files.items()
    }

    assert tuple(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", [path for room in KERNEL_ROOMS for path in files_of(f"pricing/{room}")], ids=named)
def test_the_kernel_rooms_need_the_standard_library_only(path: Path) -> None:
    roots = {module.split(".")[0] for module in imported_modules(path)}

    assert roots <= {"pricing"} | set(sys.stdlib_module_names)


@pytest.mark.parametrize("path", files_of("pricing"), ids=named)
def test_pricing_knows_no_adapter_no_test_and_no_torch(path: Path) -> None:
    roots = {module.split(".")[0] for module in imported_modules(path)}

    assert not roots & {"adapters", "tests", "benchmarks", "proofs", "spec", "torch", "transformers", "art", "megatron"}


@pytest.mark.parametrize("path", files_of("pricing"), ids=named)
def test_third_party_packages_stay_in_the_parts_whose_extra_brings_them(path: Path) -> None:
    allowed = {
        package for part, extra in THIRD_PARTY_BY_EXTRA.items() if named(path).startswith(part) for package in extra
    }
    roots = {module.split(".")[0] for module in imported_modules(path)}

    assert roots - set(sys.stdlib_module_names) - {"pricing"} <= allowed


def test_the_command_line_module_itself_imports_nothing_heavy() -> None:
    assert set(imported_modules(ROOT / "pricing" / "cli" / "__init__.py", at_import_only=True)) <= {
        "__future__",
        "collections.abc",
        "dataclasses",
        "sys",
        "types",
        "typing",
    }


@pytest.mark.parametrize("path", files_of("adapters"), ids=named)
def test_an_adapter_does_not_lean_on_tests_or_benchmarks(path: Path) -> None:
    roots = {module.split(".")[0] for module in imported_modules(path)}

    assert not roots & {"tests", "benchmarks", "proofs", "spec"}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_importing_pricing_brings_in_nothing_but_the_standard_library() -> None:
    """-I leaves out the working directory, so this is the installed package."""
    before = set(run_python("import sys; print(*sys.modules)").split())
    after = set(run_python("import pricing, sys; print(*sys.modules)").split())
    roots = {module.split(".")[0] for module in after - before}

    assert roots - set(sys.stdlib_module_names) == {"pricing"}


def test_importing_pricing_takes_little_time() -> None:
    """50 ms is what is promised (benchmarks/price.py measures it). A busy machine is judged against a bare start."""

    def best_seconds(code: str) -> float:
        def once() -> float:
            begin = time.perf_counter()
            run_python(code)
            return time.perf_counter() - begin

        return min(once() for _ in range(7))

    bare, with_pricing = best_seconds("pass"), best_seconds("import pricing")

    assert with_pricing - bare < max(0.05, 4 * bare)
