"""The traceability table is complete, current, and leads somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from pricing.contracts import INVARIANTS
from spec import traceability

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "spec/**/*.md", "proofs/**/*.md", "benchmarks/**/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)


def test_table_is_current() -> None:
    assert traceability.main(["--check"]) == 0


@pytest.mark.parametrize("identifier", INVARIANTS)
def test_no_cell_is_empty(identifier: str) -> None:
    cells = traceability.rows()[identifier]
    assert [column for column, places in cells.items() if not places] == []


def test_every_predicate_is_checked_by_a_property() -> None:
    """Each contract is called by name somewhere under tests/properties or tests/planner."""
    text = "".join(
        path.read_text() for folder in ("properties", "planner") for path in (ROOT / "tests" / folder).glob("*.py")
    )
    named = {predicate.__name__ for invariant in INVARIANTS.values() for predicate in invariant.predicates}
    assert {name for name in named if f"contracts.{name}(" not in text} == set()


def test_markers_and_registry_name_existing_invariants() -> None:
    marked = {identifier for identifier, _ in traceability.marked_tests()}
    assert marked <= set(INVARIANTS)
    proven = {identifier for column in traceability.proof_targets().values() for identifier in column}
    assert proven <= set(INVARIANTS) | set(traceability.BEYOND)


def test_every_subject_of_the_proofs_has_a_theorem() -> None:
    theorems = traceability.proof_targets()["theorems"]
    probes = traceability.proof_targets()["probes"]
    assert [law for law in (*INVARIANTS, *traceability.BEYOND) if not theorems.get(law) and not probes.get(law)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_theorems_and_tests_that_are_named_exist(document: Path) -> None:
    """Names of four words and more in code quotes: sentences, as theorems and tests have, with nothing to link to."""
    named = set(re.findall(r"`([a-z]+(?:_[a-z0-9]+){3,})`", document.read_text()))
    assert {name for name in named if not re.search(rf"\b{name}\b", python_source())} == set()


@cache
def python_source() -> str:
    folders = ("pricing", "adapters", "proofs", "tests", "spec", "benchmarks")
    return "".join(path.read_text() for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    dangling = []
    for link in LINK.findall(document.read_text()):
        target, _, fragment = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        path = (document.parent / target).resolve() if target else document
        if not path.exists() or (fragment and not _has_fragment(path, fragment)):
            dangling.append(link)
    assert dangling == []


def _has_fragment(path: Path, fragment: str) -> bool:
    if re.fullmatch(r"L\d+", fragment):
        return int(fragment[1:]) <= len(path.read_text().splitlines())
    headings = re.findall(r"^#+ (.*)$", path.read_text(), flags=re.MULTILINE)
    return fragment in {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
