"""One name for one thing: no two classes of `pricing` and `adapters` are called alike, but those that are listed."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]

ALIKE = {
    "Block": "a paragraph of the report's page; an allocator's block, as PyTorch calls it",
    "Share": "a kind's share of a wave's rows; a micro-batch's share of a step's weight",
    "Sharing": "logical over packed rows, as prices need it; the same as a batch of the command `budget` gives it",
    "Count": "a whole number of a record; click's type of one",
}
"""Each pair is never seen side by side: nothing imports both."""


def classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for room in ("pricing", "adapters"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_no_two_classes_are_called_alike() -> None:
    twice = {name: paths for name, paths in classes().items() if len(paths) > 1 and name not in ALIKE}
    assert not twice


def test_those_that_are_alike_are_imported_side_by_side_nowhere() -> None:
    homes = {name: paths for name, paths in classes().items() if name in ALIKE}
    for path in (path for room in ("pricing", "adapters") for path in (ROOT / room).rglob("*.py")):
        imported: dict[str, set[str]] = defaultdict(set)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    imported[alias.name].add(node.module)
        for name in homes:
            assert len(imported[name]) <= 1, (path, name)


def test_modules_that_were_called_alike_are_not() -> None:
    names = [path.stem for path in (ROOT / "adapters").rglob("*.py")]
    assert names.count("binding") == 1
    assert "layouts" not in names
    assert not (ROOT / "adapters/trainer_rank/wave.py").exists()
