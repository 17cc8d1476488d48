"""Reading strictly, writing whole: what every file format of this package rests on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.formats.codec import Count, Natural, Text, decode
from pricing.formats.files import write_text_atomically
from pricing.formats.place import Findings, MissingFieldError, Place
from pricing.formats.strict_json import (
    MAX_DIGITS,
    canonical_json,
    parse_json,
    read_json_file,
    read_json_lines,
)
from pricing.kernel.errors import FileFormatError
from pricing.kernel.quantities import DEFAULT_SAFETY, UNSHARED, Safety, Sharing
from pricing.kernel.reading import ReadingKind


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ('{"a": 1, "a": 2}', "a", "twice"),
        ('{"b": {"a": 1, "a": 1}}', "a", "twice"),
        ('{"a": NaN}', "a", "not a number that can be used, got NaN"),
        ('{"a": [1, [-Infinity]]}', "a", "got -Infinity"),
        ('{"a": 1e999}', "a", "got 1e999"),
        ('{"a": ' + "9" * (MAX_DIGITS + 1) + "}", "a", f"a number of {MAX_DIGITS + 1} digits"),
        ("[NaN]", None, "got NaN"),
        ('{"a": 1', None, "cut off"),
        ("", None, "cut off"),
        ("{'a': 1}", None, "not JSON"),
        ('{"a": 01}', None, "not JSON"),
        ('{"a": tru', None, "not JSON"),
        ("[" * 100_000, None, "nests too deep"),
        ('{"a":' * 100_000, None, "nests too deep"),
        (b"\xff\xfe", None, "not UTF-8"),
        (b'{"a": "\xe2\x82"}', None, "not UTF-8"),
    ],
)
def test_what_is_not_strict_json_is_refused_by_name(text: str | bytes, field: str | None, reason: str) -> None:
    with pytest.raises(FileFormatError, match=reason) as caught:
        parse_json(text, "some.json", 7)

    assert (caught.value.path, caught.value.line, caught.value.field) == ("some.json", 7, field)
    assert str(caught.value).startswith("some.json:7:")


@given(text=st.one_of(st.text(max_size=60), st.binary(max_size=60)))
def test_any_bytes_are_json_or_a_typed_error(text: str | bytes) -> None:
    try:
        parse_json(text, "some.json")
    except FileFormatError as error:
        assert error.path == "some.json"


# --- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    rows: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One field of each kind that `decode` reads."""

    rows: Natural = 0
    segments: int = 0
    figure: Count = 0
    on: bool = False
    name: Text = ""
    kind: ReadingKind = ReadingKind.WHOLE_WAVE
    at_most: Natural | None = None
    outer: tuple[Inner, ...] = ()
    row: tuple[Natural, ...] = ()
    by_name: Mapping[str, Natural] = field(default_factory=dict)
    sharing: Sharing = UNSHARED
    safety: Safety = DEFAULT_SAFETY


def read(**values: object) -> Sample:
    return decode(Sample, values, Place("some.json", 3))


@pytest.mark.parametrize("value", [1.0, 1.5, True, "1", None, [1], {"a": 1}, -1, 1 << 63, 10**3_000])
def test_a_count_is_an_integer_of_63_bits(value: object) -> None:
    with pytest.raises(FileFormatError, match=r"some\.json:3: rows:") as caught:
        read(rows=value)

    assert caught.value.field == "rows"
    assert caught.value.value == value
    assert len(str(caught.value)) < 200
    assert read(rows=(1 << 63) - 1).rows == (1 << 63) - 1


def test_an_integer_may_be_negative_and_still_has_63_bits() -> None:
    assert read(segments=-(1 << 63) + 1).segments == -(1 << 63) + 1
    with pytest.raises(FileFormatError):
        read(segments=-(1 << 63))


def test_a_figure_computed_here_has_up_to_256_bits() -> None:
    assert read(figure=(1 << 256) - 1).figure == (1 << 256) - 1
    with pytest.raises(FileFormatError, match="must lie within"):
        read(figure=1 << 256)


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_a_flag_is_true_or_false(value: object) -> None:
    with pytest.raises(FileFormatError, match="true or false"):
        read(on=value)


@pytest.mark.parametrize(
    ("values", "path", "said"),
    [
        ({"outer": [{"rows": 1}, {"rows": 1.5}]}, "outer[1].rows", "must be an integer, got 1.5"),
        ({"outer": [{}]}, "outer[0].rows", "is missing"),
        ({"outer": [{"rows": 1, "row": 2}]}, "outer[0].row", "is not a field of this format, got 2"),
        ({"outer": {}}, "outer", "must be a list"),
        ({"outer": [3]}, "outer[0]", "must be an object, got 3"),
        ({"row": [1, -1]}, "row[1]", "must be at least 0, got -1"),
        ({"by_name": {"a": "b"}}, "by_name.a", "must be an integer, got 'b'"),
        ({"by_name": []}, "by_name", "must be an object"),
        ({"name": 3}, "name", "must be text, got 3"),
        ({"name": "x" * 4_097}, "name", "must have at most 4096 characters, has 4097"),
        ({"kind": "half_wave"}, "kind", "unknown reading kind 'half_wave'; known: whole_wave, forward_only"),
        ({"kind": "x" * 121}, "kind", "is none of the names known here: 121 characters"),
        ({"kind": 3}, "kind", "must be text, got 3"),
        ({"sharing": {"logical_rows": 1, "packed_rows": 0}}, "sharing", "got"),
        ({"safety": "1/2"}, "safety", "at least 1"),
        ({"safety": 2}, "safety", "must be text, got 2"),
        ({"x" * 500: 1}, "x" * 120 + "...", "is not a field of this format"),
    ],
)
def test_a_value_that_is_not_what_it_should_be_is_named_by_its_path(
    values: dict[str, object], path: str, said: str
) -> None:
    with pytest.raises(FileFormatError) as caught:
        read(**values)

    assert (caught.value.path, caught.value.line, caught.value.field) == ("some.json", 3, path)
    assert said in str(caught.value)


def test_a_missing_field_a_default_and_null() -> None:
    assert read() == Sample()
    assert read(at_most=None).at_most is None
    with pytest.raises(MissingFieldError, match="rows: is missing"):
        decode(Inner, {}, Place("some.json"))


def test_a_misspelt_field_is_not_silently_a_default() -> None:
    with pytest.raises(FileFormatError, match="segmets: is not a field of this format, got 2"):
        read(rows=1, segmets=2)


def test_where_others_may_write_too_unknown_fields_are_noted_and_the_known_ones_stay_strict() -> None:
    findings = Findings()
    values = {"outer": [{"rows": 1, "extra": 2}], **{f"x{number}": 0 for number in range(30)}}

    assert decode(Sample, values, Place("some.json", findings=findings)).outer == (Inner(rows=1),)
    assert findings.unknown_count == 31 and len(findings.unknown) == 20 and "x0" in findings.unknown
    with pytest.raises(FileFormatError, match="rows"):
        decode(Sample, {"rows": 1.5}, Place("some.json", findings=findings))


def test_a_document_full_of_equal_names_is_refused_soon() -> None:
    names = ", ".join(f'"x{number}": 0' for number in range(100_000))
    with pytest.raises(FileFormatError, match="x99999: stands there twice"):
        parse_json(f'{{{names}, "x99999": 1}}', "some.json")


def test_lines_are_counted_as_an_editor_does_and_blank_ones_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(b'{"a": 1}\n\n  \r\n{"a": 2}\r\n{"a": 3}')

    assert [(place.line, line["a"]) for line, place in read_json_lines(path)] == [(1, 1), (4, 2), (5, 3)]


def test_a_file_of_one_object_holds_one_object(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    for text in ("[]", "3", '{"a": 1} {"a": 2}', '{"a": 1}\n{"a": 2}\n'):
        path.write_text(text)
        with pytest.raises(FileFormatError):
            read_json_file(path)


def test_canonical_text_is_equal_for_equal_values_and_holds_no_float() -> None:
    assert canonical_json({"b": [1, True, None, "ä"], "a": 2}) == '{"a":2,"b":[1,true,null,"\\u00e4"]}'
    for value in (1.0, {"a": [0.5]}, float("nan")):
        with pytest.raises(TypeError):
            canonical_json(value)


def test_a_file_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    write_text_atomically(path, "first")
    write_text_atomically(path, "second")

    assert path.read_text() == "second"
    assert os.listdir(tmp_path) == ["some.json"]


def test_a_file_is_on_the_disk_before_it_takes_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(name: str, act: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            done.append(name)
            act(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    write_text_atomically(tmp_path / "some.json", "text")

    assert done == ["fsync", "replace", "fsync"]


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.json"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_text_atomically(path, "new")

    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["some.json"]


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write_text_atomically(tmp_path / "none" / "some.json", "text")

    assert raised.value.filename == str(tmp_path / "none" / "some.json")
