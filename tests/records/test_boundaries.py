"""What lies on a boundary of the records' own rules: caps, names, numbers, defaults. Each was off by one unseen."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pricing import GIB, FileFormatError, Profile, RequestSpec
from pricing.formats.codec import MAX_TEXT_CHARS
from pricing.formats.strict_json import canonical_json
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import price
from pricing.planner.plan import Batch, PlanRequest, plan_wave
from pricing.records import record_file, spool, write_down
from pricing.records.record import (
    ChildFacts,
    DecisionRecord,
    Event,
    ObservedFacts,
    PriceFacts,
    RecordError,
    RungFacts,
    StructureFacts,
)
from pricing.records.record_file import LEAST_RECORD_BYTES, NewerRecordError, parse_record, record_text
from pricing.records.recorder import Recorder, Triggers, record_of_plan, record_of_price
from pricing.records.replay import _Pricer
from pricing.records.spool import DEFAULT_MAX_BYTES, MAX_SEQUENCE, SEQUENCE, Spool, _number_of_line, sequence_of
from tests.making import a_reading, a_wave, learned

WRITER = "0123456789ab"


@pytest.fixture
def record() -> DecisionRecord:
    profile = learned([a_reading(1_000, 300_000_000)] * 3)
    return record_of_price(a_wave(5_000, 20_000, 7), profile, available_bytes=GIB, name="rank0")


def test_the_caps_are_what_they_are_said_to_be() -> None:
    assert (record_file.LEAST_RECORD_BYTES, record_file.MAX_READ_BYTES) == (16_384, 4_194_304)
    assert (DEFAULT_MAX_BYTES, spool.DEFAULT_MAX_FILES) == (67_108_864, 256)


def padded(record: DecisionRecord, size_bytes: int) -> DecisionRecord:
    """The record with a structure that makes its text exactly so long."""
    missing = size_bytes - len(record_text(with_structure(record, 1)))
    assert missing >= 0
    made = with_structure(record, 1 + missing // 2)
    text = len(record_text(made, 1 << 20))
    return dataclasses.replace(made, name=made.name + "x" * (size_bytes - text))


def with_structure(record: DecisionRecord, count: int) -> DecisionRecord:
    structure = StructureFacts(request_rows=(1,) * count, segment_rows=(), segment_parents=())
    return dataclasses.replace(record, structure=structure)


def test_a_record_of_exactly_the_cap_is_kept_whole_and_one_byte_more_is_cut(record: DecisionRecord) -> None:
    whole = padded(record, LEAST_RECORD_BYTES)
    assert len(record_text(whole, LEAST_RECORD_BYTES)) == LEAST_RECORD_BYTES
    assert parse_record(record_text(whole, LEAST_RECORD_BYTES)).record.omitted == ()
    longer = dataclasses.replace(whole, name=whole.name + "x")
    assert parse_record(record_text(longer, LEAST_RECORD_BYTES)).record.omitted == ("structure",)


def test_a_record_that_is_cut_to_exactly_the_cap_is_not_too_large(record: DecisionRecord) -> None:
    bare = len(record_text(dataclasses.replace(record, structure=None, omitted=("structure",))))
    assert bare < LEAST_RECORD_BYTES
    named = dataclasses.replace(record, name="x" * (LEAST_RECORD_BYTES - bare) + record.name)
    text = record_text(with_structure(named, 9_000), LEAST_RECORD_BYTES)
    assert len(text) == LEAST_RECORD_BYTES
    with pytest.raises(record_file.RecordTooLargeError):
        record_text(dataclasses.replace(with_structure(named, 9_000), name=named.name + "x"), LEAST_RECORD_BYTES)


def a_rung(record: DecisionRecord, *, fits: bool, children: int) -> RungFacts:
    child = ChildFacts(requests=1, wave=record.wave, required_bytes=5, retained_bytes=2)
    return RungFacts(
        subforwards=2,
        children=(child,) * children,
        cost_bytes=7,
        measured_bytes=None,
        lower_bound_bytes=0,
        available_bytes=7 if fits else 6,
        pruned=False,
        fits=fits,
    )


def test_only_children_of_rungs_that_do_not_fit_are_left_out(record: DecisionRecord) -> None:
    rungs = (a_rung(record, fits=False, children=400), a_rung(record, fits=True, children=1))
    cut = parse_record(record_text(dataclasses.replace(record, rungs=rungs), LEAST_RECORD_BYTES)).record
    assert [len(rung.children) for rung in cut.rungs] == [0, 1]
    assert cut.omitted == ("rungs[*].children of 1 rungs that do not fit",)
    with_none = (a_rung(record, fits=False, children=0), a_rung(record, fits=True, children=400))
    with pytest.raises(record_file.RecordTooLargeError):
        record_text(dataclasses.replace(record, rungs=with_none), LEAST_RECORD_BYTES)


def test_true_is_no_version_and_a_later_number_is_a_later_version(record: DecisionRecord) -> None:
    text = record_text(record)
    version = f'"schema_version":{record.schema_version}'
    assert version in text
    with pytest.raises(FileFormatError, match="schema_version"):
        parse_record(text.replace(version, '"schema_version":true'))
    with pytest.raises(NewerRecordError):
        parse_record(text.replace(version, f'"schema_version":{record.schema_version + 1}'))


def test_a_cap_under_the_least_is_refused(record: DecisionRecord) -> None:
    with pytest.raises(RecordError):
        record_text(record, LEAST_RECORD_BYTES - 1)


def observed(record: DecisionRecord, error_bytes: int, peak_delta_bytes: int) -> DecisionRecord:
    facts = Spare(error_bytes=error_bytes, peak_delta_bytes=peak_delta_bytes, used_bytes=peak_delta_bytes)
    return dataclasses.replace(record, event=Event.OBSERVED, observed=facts)  # type: ignore[arg-type]


@dataclasses.dataclass
class Spare:
    """The figures that a trigger looks at."""

    error_bytes: int
    peak_delta_bytes: int
    used_bytes: int


def test_a_price_at_exactly_the_trigger_s_percent_is_not_far_off(record: DecisionRecord) -> None:
    assert ObservedFacts.__dataclass_fields__.keys() >= {"error_bytes", "peak_delta_bytes"}
    triggers = Triggers(over_percent=100, under_percent=10)
    assert not triggers.fires(observed(record, 1_000, 1_000))
    assert triggers.fires(observed(record, 1_001, 1_000))
    assert not triggers.fires(observed(record, -100, 1_000))
    assert triggers.fires(observed(record, -101, 1_000))


def a_plan() -> tuple[Any, Batch]:
    spec = RequestSpec(input_shape=(100,), target_shape=(100,))
    items = [[PlanRequest(tokens=[7] * 60 + [item] * 40, spec=spec) for item in range(2)]]
    batch = Batch(items)
    return plan_wave(batch, profiles={}, available_bytes=GIB), batch


def test_a_record_s_number_is_none_unless_it_is_given_and_roots_have_no_parent(record: DecisionRecord) -> None:
    plan, batch = a_plan()
    made = record_of_plan(plan, batch=batch)
    assert made.index == 0
    assert record_of_price(a_wave(5_000), Profile(), available_bytes=GIB).index == 0
    assert made.structure is not None
    assert made.structure.segment_parents == (-1, 0, 0)
    assert made.structure.segment_rows == (60, 40, 40)


# --- the spool -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (f"{WRITER}-7-refused.json", 7),
        (f"{WRITER}-{'9' * 12}-refused.json", 10**12 - 1),
        (f"{WRITER}-{'1' * 13}-refused.json", 0),
        (f"{WRITER}-7.json", 0),
        (f"{WRITER}-7-8-refused.json", 0),
        (f"{WRITER}-seven-refused.json", 0),
        (f"{WRITER}-٧-refused.json", 0),
        ("notes-7-refused.json", 0),
    ],
)
def test_a_number_is_read_from_a_name_that_a_spool_gave_and_no_other(tmp_path: Path, name: str, number: int) -> None:
    assert sequence_of(tmp_path / name) == number


@pytest.mark.parametrize(
    ("number", "read"),
    [(1, 1), (0, 0), (-1, 0), (MAX_SEQUENCE - 1, MAX_SEQUENCE - 1), (MAX_SEQUENCE, 0), (True, 0), ("7", 0)],
)
def test_a_wave_line_s_number_is_one_that_a_spool_can_have_given(number: object, read: int) -> None:
    assert _number_of_line(canonical_json({SEQUENCE: number}).encode()) == read


def test_a_leftover_or_a_victim_that_somebody_else_removed_is_no_trouble(
    tmp_path: Path, record: DecisionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = Spool(tmp_path, max_files=2)
    for _ in range(2):
        assert writing.write(record) is not None
    (tmp_path / f".gone{spool._TEMPORARY_SUFFIX}").write_text("")
    plain = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        plain(path, missing_ok=True)  # somebody was quicker
        plain(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    assert writing.write(record) is not None
    assert writing.dropped == 0 and writing.evicted == 1


def entries(folder: Path, sizes: list[int]) -> list[Any]:
    made = []
    for number, size in enumerate(sizes):
        path = folder / f"{number:012x}{spool.WAVES_SUFFIX}"
        path.write_bytes(canonical_json({SEQUENCE: number + 1}).encode() + b"\n" + b" " * size)
        made.append(spool._Entry(path, path.stat().st_size, number))
    return made


def test_wave_files_over_their_share_go_oldest_first_and_no_more_than_need_to(tmp_path: Path) -> None:
    writing = Spool(tmp_path, max_files=100, max_bytes=100_000, max_record_bytes=16_384)
    of_each = entries(tmp_path, [20_000] * 4)
    total = sum(entry.size_bytes for entry in of_each)
    going = list(writing._victims(of_each, None))
    assert total > 50_000 and [entry.path for entry in going] == [entry.path for entry in of_each]
    record_path = tmp_path / f"{WRITER}-9-refused.json"
    record_path.write_text("{}")
    a_record = spool._Entry(record_path, 2, 9)
    order = [entry.path for entry in writing._victims([*of_each, a_record], None)]
    assert order.index(record_path) == 2, "two go for the share, then records, then the other wave lines"
    few = Spool(tmp_path, max_files=4, max_bytes=1 << 30)
    order = [entry.path for entry in few._victims([*of_each, a_record], None)]
    assert order.index(record_path) == 2, "likewise by their number"


def test_a_wave_line_of_more_than_an_eighth_of_the_spool_is_dropped(tmp_path: Path) -> None:
    def line(size_bytes: int) -> dict[str, object]:
        return {"x": "y" * (size_bytes - len(canonical_json({"x": ""})) - 1)}

    writing = Spool(tmp_path, max_bytes=80_000, max_record_bytes=16_384)
    assert len(canonical_json(line(10_000))) + 1 == 10_000
    assert writing.append_wave(line(10_000))
    assert not writing.append_wave(line(10_001))
    assert writing.dropped == 1


# --- replays ---------------------------------------------------------------------------------------------------------


def test_records_of_the_first_version_were_decided_by_what_is_allocated(record: DecisionRecord) -> None:
    def pricer(version: int) -> _Pricer:
        return _Pricer(dataclasses.replace(record, schema_version=version), DEFAULT_LAW, record.safety)

    assert [pricer(version).knows_footprints for version in (1, 2)] == [False, True]
    assert pricer(1).price(record.wave).required_bytes < pricer(2).price(record.wave).required_bytes


def test_a_rung_that_would_be_pruned_has_no_cost_and_one_cut_for_size_keeps_its_own(record: DecisionRecord) -> None:
    pricer = _Pricer(record, DEFAULT_LAW, record.safety)
    with_children = a_rung(record, fits=True, children=2)
    replayed = pricer.rung(with_children)
    assert replayed.cost_bytes is not None and replayed.cost_bytes > 7 and not replayed.pruned
    pruned = pricer.rung(dataclasses.replace(with_children, lower_bound_bytes=8))
    assert (pruned.pruned, pruned.cost_bytes, pruned.fits) == (True, None, False)
    kept = pricer.rung(dataclasses.replace(with_children, children=()))
    assert (kept.pruned, kept.cost_bytes, kept.fits) == (False, 7, True)


def test_the_widths_in_the_middle_go_down_to_thirty_two_and_then_to_four_at_each_end(record: DecisionRecord) -> None:
    tried = record_of_plan(a_plan()[0]).tried[:1]
    for count, kept in ((100, [64, 8]), (65, [64, 8]), (64, [8]), (9, [8]), (8, [])):
        shortened = record_file._shortened(dataclasses.replace(record, tried=tried * count))
        assert [len(shorter.tried) for shorter in shortened] == kept


def test_a_spool_s_own_files_and_no_others() -> None:
    assert spool.is_spool_file(f"{WRITER}{spool.WAVES_SUFFIX}")
    assert spool.is_spool_file(f"{WRITER}-1-refused.json")
    for other in (f"{WRITER}x{spool.WAVES_SUFFIX}", f"{WRITER}.json", WRITER, f"x{WRITER[1:]}{spool.WAVES_SUFFIX}"):
        assert not spool.is_spool_file(other)


def test_a_number_beyond_the_last_is_found_again_among_the_files(tmp_path: Path, record: DecisionRecord) -> None:
    writing = Spool(tmp_path)
    assert (writing.written, writing.dropped, writing.evicted) == (0, 0, 0)
    for latest, expected in ((None, 1), (MAX_SEQUENCE, 2), (MAX_SEQUENCE - 1, MAX_SEQUENCE)):
        if latest is not None:
            (tmp_path / spool._LOCK_NAME).write_text(f"{latest:020d}\n")
        path = writing.write(record)
        assert path is not None and int(path.name.split("-")[1]) == expected


def test_the_last_byte_is_the_last(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"ab\n")
    assert spool._last_byte(tmp_path / "file") == b"\n"


# --- what nobody asked about -----------------------------------------------------------------------------------------


def without(text: str, path: tuple[str, ...]) -> str:
    """The text of a record without one field."""
    data = json.loads(text)
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return json.dumps(data)


def test_a_field_that_an_older_record_has_not_says_what_was_so_then(record: DecisionRecord) -> None:
    text = record_text(record)
    older = parse_record(without(text, ("wave", "forecast_bytes"))).record
    assert older.wave.forecast_bytes == 0
    assert parse_record(without(text, ("price", "learned"))).record.price.learned
    assert parse_record(without(text, ("after_out_of_memory",))).record.after_out_of_memory == 0


def test_a_version_that_is_too_long_to_say_is_counted_in_bits(record: DecisionRecord) -> None:
    text, version = record_text(record), f'"schema_version":{record.schema_version}'
    for number, said in ((2**63 - 1, f"schema_version {2**63 - 1}"), (2**63, "has 64 bits")):
        with pytest.raises(NewerRecordError, match=said):
            parse_record(text.replace(version, f'"schema_version":{number}'))


def test_a_wave_is_no_second_try_unless_it_is_said_to_be() -> None:
    plan, _ = a_plan()
    recorder = Recorder()
    for noted in (0, 2):
        recorder.admitted(plan, after_out_of_memory=noted) if noted else recorder.admitted(plan)
        assert recorder.last_record is not None and recorder.last_record.after_out_of_memory == noted


def test_a_first_wave_line_takes_the_room_of_one_file(tmp_path: Path, record: DecisionRecord) -> None:
    writing = Spool(tmp_path, max_files=2)
    path = writing.write(record)
    assert path is not None and writing.append_wave({"wave": 1})
    assert path.exists() and writing.evicted == 0
    assert writing.append_wave({"wave": 2}) and path.exists(), "a further line takes none"
    assert writing.write(record) is not None and not path.exists() and writing.evicted == 1


def test_wave_lines_over_their_share_lose_the_older_half_and_no_more(tmp_path: Path) -> None:
    writing = Spool(tmp_path, max_bytes=80_000, max_record_bytes=16_384)
    path = tmp_path / f"{writing.writer}{spool.WAVES_SUFFIX}"
    line: dict[str, object] = {"x": "y" * 991}  # 1,000 bytes with its end
    for count in range(1, 20):  # the first carries its number besides
        assert writing.append_wave(line)
        assert len(path.read_bytes().splitlines()) == count and not writing.evicted_by_kind
    assert writing.append_wave(line)
    kept = path.read_bytes().splitlines()
    assert len(kept) + writing.evicted_by_kind[spool.WAVE_LINES] == 20
    assert 9 <= len(kept) <= 11, "half of it, and the new one"
    assert writing.evicted == 0 and sequence_of(path) == 1, "it is as old as it was"


def test_where_many_write_a_writer_s_share_is_smaller(tmp_path: Path) -> None:
    """Half of the spool between them all: so no living writer's lines have to go as a whole."""
    writing = Spool(tmp_path, max_files=1_000, max_bytes=1_000_000)
    for number in range(99):
        (tmp_path / f"{number:012x}{spool.WAVES_SUFFIX}").write_bytes(canonical_json({SEQUENCE: 1}).encode() + b"\n")
    path = tmp_path / f"{writing.writer}{spool.WAVES_SUFFIX}"
    line: dict[str, object] = {"x": "y" * 991}
    for _ in range(4):
        assert writing.append_wave(line)
    assert len(path.read_bytes().splitlines()) == 4 and not writing.evicted_by_kind, "up to 1 / 200 of a million"
    assert writing.append_wave(line)
    assert writing.evicted_by_kind[spool.WAVE_LINES] >= 1 and path.stat().st_size <= 5_000


def test_what_went_is_counted_on_from_what_the_folder_says(tmp_path: Path, record: DecisionRecord) -> None:
    writing = Spool(tmp_path, max_files=2)
    for _ in range(5):
        assert writing.write(record) is not None
    assert sum(spool.what_went(tmp_path).evicted.values()) == writing.evicted == 3
    another = Spool(tmp_path, max_files=2)
    assert another.write(record) is not None
    assert sum(spool.what_went(tmp_path).evicted.values()) == 4


# --- bounds of the spool, and what is cut ----------------------------------------------------------------------------


def test_a_spool_may_be_as_small_as_its_smallest_record_allows(tmp_path: Path) -> None:
    least = LEAST_RECORD_BYTES
    assert Spool(tmp_path, max_bytes=2 * least, max_record_bytes=least).max_record_bytes == least
    for bounds in (
        {"max_bytes": 2 * least - 1, "max_record_bytes": least},
        {"max_bytes": 4 * least, "max_record_bytes": least - 1},
        {"max_files": 1},
    ):
        with pytest.raises(spool.SpoolError):
            Spool(tmp_path, **bounds)
    assert Spool(tmp_path, max_files=2).max_files == 2


def test_a_record_counts_under_the_bound_before_it_is_written(tmp_path: Path, record: DecisionRecord) -> None:
    size = len(record_text(record)) + 1
    count = 2 * LEAST_RECORD_BYTES // size
    assert count >= 2
    writing = Spool(tmp_path, max_bytes=2 * LEAST_RECORD_BYTES, max_record_bytes=LEAST_RECORD_BYTES)
    for _ in range(count + 3):
        assert writing.write(record) is not None
        assert sum(path.stat().st_size for path in tmp_path.glob("*.json")) <= writing.max_bytes
    assert writing.evicted == 3, "as many fit as do, and no fewer"


def test_a_lock_file_s_number_of_more_than_twelve_digits_is_not_ours(tmp_path: Path, record: DecisionRecord) -> None:
    writing = Spool(tmp_path)
    assert writing.write(record) is not None
    (tmp_path / spool._LOCK_NAME).write_text(f"{10**12:020d}\n")
    path = writing.write(record)
    assert path is not None and sequence_of(path) == 2


def test_only_a_regular_file_is_read_as_a_record_unless_another_is_asked_for() -> None:
    with pytest.raises(OSError):
        record_file.read_record("/dev/null")
    with pytest.raises(FileFormatError):
        record_file.read_record("/dev/null", regular_only=False)


@pytest.mark.parametrize("length", [MAX_TEXT_CHARS - 1, MAX_TEXT_CHARS, MAX_TEXT_CHARS + 1])
def test_a_refusal_s_text_is_cut_to_what_a_record_holds(length: int) -> None:
    refusal: Any = LongRefusal("x" * length)
    text = write_down._refusal_facts(refusal).text
    assert len(text) == min(length, MAX_TEXT_CHARS)
    assert text.endswith(" ...") == (length > MAX_TEXT_CHARS)


class LongRefusal(str):
    """A refusal whose whole explanation is this text."""

    shortfall_bytes = rows_that_fit = 0


def test_a_price_is_a_learned_one_only_where_what_decided_it_was_learned() -> None:
    wave = a_wave(5_000, 20_000, 7)
    profile = learned([a_reading(1_000, 300_000_000)] * 3)
    for known in (profile, Profile()):
        priced = price(wave, known)
        facts = PriceFacts.of(priced)
        assert facts.learned == priced.deciding.learned and facts.other is not None
        assert PriceFacts.of_allocated(priced).learned
    assert not PriceFacts.of(price(wave, profile)).learned, "its footprint is priced at a factor: nothing taught it"
