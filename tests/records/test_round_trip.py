"""Every record that we write reads back equal, obeys the schema, and replays to the byte; a changed one does not."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import PricingError, find_law
from pricing.formats.codec import encode
from pricing.formats.strict_json import canonical_json
from pricing.planner.plan import Batch, WavePlan
from pricing.records.record import DecisionRecord
from pricing.records.record_file import parse_record, record_text, schema_text
from pricing.records.recorder import record_of_plan
from pricing.records.replay import Answer, recompute, replay, what_if
from tests.records.making import SOME_RECORDS, TOKEN, other_safety, plans, records

SCHEMA_FILE = Path(__file__).parents[2] / "spec" / "report.schema.json"


@pytest.fixture(scope="module")
def validator() -> jsonschema.protocols.Validator:
    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_schema_file_is_what_the_code_says() -> None:
    how = "schema_text() of pricing.records.record, printed into spec/report.schema.json"
    assert SCHEMA_FILE.read_text() == schema_text(), f"regenerate it: {how}"


@pytest.mark.invariant("INV-14")
@SOME_RECORDS
@given(record=records())
def test_a_record_reads_back_equal_and_replays_to_the_byte(
    record: DecisionRecord, validator: jsonschema.protocols.Validator
) -> None:
    text = record_text(record)
    validator.validate(json.loads(text))
    read = parse_record(text)
    assert (read.unknown_count, read.remarks) == (0, ())
    assert read.record == record
    assert record_text(read.record) == text, "equal records are equal bytes"
    replayed = replay(read.record)
    assert replayed.is_equal, str(replayed.differences[0])
    assert replayed.replayed == record


@SOME_RECORDS
@given(planned=plans())
def test_the_recorded_structure_is_the_layout_s_and_holds_no_token_ids(planned: tuple[WavePlan, Batch]) -> None:
    plan, batch = planned
    record = record_of_plan(plan, batch=batch)
    assert str(TOKEN // 1_000) not in record_text(record)
    structure = record.structure
    layout = plan.layout(batch)
    assert structure is not None
    assert structure.segment_rows == tuple(segment.stop - segment.start for segment in layout.segments)
    assert structure.segment_parents == tuple(segment.parent for segment in layout.segments)
    assert sum(structure.segment_rows) == sum(group.rows for group in layout.groups)
    assert sum(structure.request_rows) == plan.wave.logical_rows


@SOME_RECORDS
@given(record=records(), seed=st.integers(0, 1 << 32))
def test_a_changed_figure_is_found(record: DecisionRecord, seed: int) -> None:
    """The replay can fail: whatever computed figure is changed, it is the first difference or makes one."""
    data: Any = json.loads(record_text(record))
    choices: list[tuple[Any, ...]] = [
        ("price", "required_bytes"),
        ("price", "retained_bytes"),
        ("price", "compute_bytes"),
        ("required_bytes",),
    ]
    choices += [("tried", at, "required_bytes") for at in range(len(data["tried"]))]
    choices += [
        ("rungs", at, "children", child, "retained_bytes")
        for at, rung in enumerate(data["rungs"])
        for child in range(len(rung["children"]))
    ]
    path = random.Random(seed).choice(choices)
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] += 1
    changed = replay(parse_record(json.dumps(data)).record)
    assert not changed.is_equal
    named = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
    assert named in [difference.field for difference in changed.differences]


@SOME_RECORDS
@given(record=records())
def test_a_changed_verdict_is_found(record: DecisionRecord) -> None:
    other = "refuse" if record.verdict != "refuse" else "run"
    changed = replay(replace(record, verdict=other))
    assert [difference.field for difference in changed.differences] == ["verdict"]


@SOME_RECORDS
@given(record=records())
def test_what_if_under_its_own_law_is_what_was_decided(record: DecisionRecord) -> None:
    answer = what_if(record, find_law(record.law), record.safety)
    if not record.refused_elsewhere:
        assert (answer.answer is Answer.RUNS) == (record.verdict != "refuse")
        assert answer.required_bytes == record.required_bytes
    if record.observed is not None:
        assert answer.under_bytes == max(0, -record.observed.error_bytes)


@SOME_RECORDS
@given(record=records(), law=st.sampled_from(["logical", "packed", "warm", "frontier"]))
def test_what_if_equals_a_replay_of_the_record_that_law_would_have_written(record: DecisionRecord, law: str) -> None:
    there = recompute(record, find_law(law), record.safety)
    assert what_if(record, find_law(law), other_safety(record.safety)).law == law
    assert (there.law, there.profiles, there.regimes) == (law, record.profiles, record.regimes)
    assert replay(there).is_equal
    assert (
        what_if(record, find_law(law), record.safety).required_bytes == there.required_bytes or record.refused_elsewhere
    )


@SOME_RECORDS
@given(record=records(), seed=st.integers(0, 1 << 32))
def test_unknown_fields_anywhere_change_nothing_and_are_said(record: DecisionRecord, seed: int) -> None:
    data = encode(record)
    added = _add_unknown(data, random.Random(seed))
    read = parse_record(canonical_json(data))
    assert read.record == record
    assert read.unknown_count == added
    assert len(read.unknown_fields) == min(added, 20)
    assert replay(read.record).is_equal


def _add_unknown(value: object, rng: random.Random) -> int:
    """Put a field nobody knows into some of the objects in `value`; how many."""
    if isinstance(value, list):
        return sum(_add_unknown(item, rng) for item in value)
    if not isinstance(value, dict):
        return 0
    added = sum(_add_unknown(item, rng) for item in value.values())
    if rng.random() < 0.5:
        value["from_the_future"] = rng.choice([None, 1, "text", [1, {"a": {}}], {"nested": [True]}])
        added += 1
    return added


def test_what_a_record_cannot_hold_is_a_typed_error() -> None:
    with pytest.raises(PricingError, match="float cannot be recorded"):
        encode(1.5)
