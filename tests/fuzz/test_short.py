"""The fuzzer's short form: every target with few tries, in every run. `make fuzz` is the long one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, profile_files


@pytest.mark.parametrize("name", TARGETS)
def test_no_promise_is_broken(name: str, tmp_path: Path) -> None:
    target, _, tries = TARGETS[name]
    assert sum(target(random.Random(f"20 {name}"), tmp_path, tries).values()) > 0


def test_the_fuzzer_finds_a_reader_that_does_not_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the checksum, mutations make other profiles."""
    monkeypatch.setattr("pricing.formats.profile_file.checksum_of", lambda canonical: "sha256:same")
    with pytest.raises(AssertionError, match="another profile was read"):
        profile_files(random.Random(20), tmp_path, 5_000)


def test_mutations_change_what_they_are_given() -> None:
    draw = random.Random(20)
    text = b'{"a": 12, "b": [1, 2]}\n{"a": 13}\n'
    assert sum(mutated(draw, text) != text for _ in range(500)) > 450


def test_the_page_says_what_the_full_run_found() -> None:
    spec = Path(__file__).parents[2] / "spec"
    run = json.loads((spec / "evidence" / "fuzz.json").read_text())
    seen = run["targets"]["profile files"]
    found = seen["outcomes"]
    said = f"of {seen['tries']:,} mutated files {found['refused']:,} were refused and {found['as written']:,} held"
    assert said in " ".join((spec / "files.md").read_text().split())
    assert run["broken promises"] == 0
