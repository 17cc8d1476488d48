"""Whatever is in the file, the reader and the replay end in a typed error or an answer, soon and in little memory."""

from __future__ import annotations

import copy
import json
import random
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import FileFormatError, PricingError
from pricing.records.record import DecisionRecord, Event, IncompleteRecordError, RecordError
from pricing.records.record_file import MAX_READ_BYTES, NewerRecordError, parse_record, record_text
from pricing.records.recorder import record_of_price
from pricing.records.replay import replay
from tests.making import a_reading, a_wave, learned
from tests.records.making import SOME_RECORDS, planned_records

SECONDS = 2.0
"""Longest that any one text may take: a hundred times what a sound record takes."""


def a_record() -> DecisionRecord:
    profile = learned(a_reading(1_000 * size, 300_000_000 * size, retained_bytes=10_000) for size in (1, 2, 3))
    return record_of_price(a_wave(5_000, 20_000, 7), profile, available_bytes=1 << 33, name="rank0")


TEXT = record_text(a_record())


def outcome(text: str | bytes) -> str:
    """`equal`, `different`, or the name of the error, which must be a typed one; in bounded time."""
    began = time.perf_counter()
    try:
        result = "equal" if replay(parse_record(text).record).is_equal else "different"
    except PricingError as error:
        assert len(str(error)) < 2_000, "a message is for people"
        result = type(error).__name__
    assert time.perf_counter() - began < SECONDS
    return result


def test_the_sound_record_replays() -> None:
    assert outcome(TEXT) == "equal"


def test_every_truncation_is_a_typed_error() -> None:
    for length in range(0, len(TEXT), 3):
        assert outcome(TEXT[:length]) == "FileFormatError", TEXT[:length][-40:]


def test_flipped_bits_are_a_typed_error_or_found_by_the_replay() -> None:
    rng = random.Random(8)
    outcomes = []
    for _ in range(1_500):
        damaged = bytearray(TEXT.encode())
        for _ in range(rng.choice([1, 1, 2, 8])):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        outcomes.append(outcome(bytes(damaged)))
    assert {"FileFormatError", "IncompleteRecordError", "different"} <= set(outcomes)


def test_arbitrary_bytes_are_a_typed_error() -> None:
    rng = random.Random(9)
    for length in (0, 1, 2, 7, 100, 5_000):
        for _ in range(20):
            assert outcome(rng.randbytes(length)) == "FileFormatError"


WRONG: list[object] = [None, True, -1, 0, 1 << 62, 1 << 63, 10**70, 10**100, 1.5, "", "text", [], [[]], {}, {"a": 1}]


def paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        yield from paths(inner, (*path, step))


def replaced(data: object, path: tuple[Any, ...], value: object) -> str:
    changed: Any = copy.deepcopy(data)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(changed)


def test_every_field_of_every_wrong_type_is_a_typed_error_or_an_answer() -> None:
    data = json.loads(TEXT)
    for path in paths(data):
        for wrong in WRONG:
            outcome(replaced(data, path, wrong))


def test_a_missing_field_is_named_or_has_a_default() -> None:
    data = json.loads(TEXT)
    named = []
    for path in paths(data):
        if not isinstance(path[-1], str):
            continue
        changed: Any = copy.deepcopy(data)
        inner = changed
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]
        try:
            replay(parse_record(json.dumps(changed)).record)
        except IncompleteRecordError as error:
            assert error.where.endswith(path[-1])
            named.append(error.where)
        except PricingError:
            assert "profiles" in path, path
    assert "regimes[0].recompute" in named
    assert "regimes[0].recompute.training" in named
    assert "profiles" in named
    assert len(named) >= 50


@SOME_RECORDS
@given(record=planned_records(), seed=st.integers(0, 1 << 32))
def test_damaged_plans_end_in_a_typed_error_or_an_answer(record: DecisionRecord, seed: int) -> None:
    rng = random.Random(seed)
    data = json.loads(record_text(record))
    outcome(replaced(data, rng.choice(list(paths(data))), rng.choice(WRONG)))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' * 60 + "1" + "}" * 60,
        "[" * 1_000_000 + "]" * 1_000_000,
        '{"schema_version":' + "9" * 5_000 + "}",
        '{"schema_version":' + "9" * 2_000_000 + "}",
        '{"schema_version":1e400}',
        '{"schema_version":NaN}',
        '{"a":1,"a":2}',
        '"' + "x" * 3_000_000 + '"',
        "[" + "1," * 400_000 + "1]",
        "\ud800",
        "null",
        "3",
        "",
        " " * 4_000_000,
        "x" * (MAX_READ_BYTES + 1),
    ],
    ids=lambda text: f"{text[:20]!r}... of {len(text)}",
)
def test_hostile_texts_are_refused_soon_and_in_little_memory(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PricingError):
            began = time.perf_counter()
            parse_record(text)
        assert time.perf_counter() - began < 10 * SECONDS
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


def test_unknown_content_of_any_shape_is_bounded_in_what_is_said() -> None:
    data = json.loads(TEXT)
    data.update({f"unknown_{'x' * 500}_{number}": [0] * 10 for number in range(2_000)})
    read = parse_record(json.dumps(data))
    assert read.unknown_count == 2_000
    assert len(read.unknown_fields) == 20 and max(map(len, read.unknown_fields)) < 100


def test_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(NewerRecordError, match="schema_version 3; this build reads up to 2"):
        parse_record(TEXT.replace('"schema_version":2', '"schema_version":3'))
    with pytest.raises(FileFormatError, match="schema_version"):
        parse_record(TEXT.replace('"schema_version":2', '"schema_version":0'))


def test_errors_say_where() -> None:
    data = json.loads(TEXT)
    for path, wrong, said in (
        (("wave", "packed_rows"), -1, "wave.packed_rows: must be at least 0, got -1"),
        (("price", "terms", 0, "rows"), "7", "price.terms[0].rows: must be an integer, got '7'"),
        (
            ("wave", "packed_rows"),
            10**100,
            "wave.packed_rows: must lie within +-(2**256 - 1), got an integer of 333 bits",
        ),
        (("note",), "x" * 4_097, "note: must have at most 4096 characters, has 4097"),
        (("event",), "forgotten", f"event: unknown event 'forgotten'; known: {', '.join(Event)}"),
        (("profiles", 0, "content", "sharing"), 3, "profiles[0].content.sharing: must be an object, got 3"),
    ):
        with pytest.raises(FileFormatError) as caught:
            parse_record(replaced(data, path, wrong), "rank0.json")
        assert str(caught.value) == f"rank0.json: {said}"
    with pytest.raises(FileFormatError, match="cut off"):
        parse_record(TEXT[:-1], "rank0.json")
    assert issubclass(RecordError, PricingError)
