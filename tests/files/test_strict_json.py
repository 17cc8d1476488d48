"""Reading strictly, writing whole: what every file format of this package rests on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.formats.files import write_text_atomically
from pricing.formats.strict_json import (
    MAX_DIGITS,
    Fields,
    canonical_json,
    parse_json,
    read_json_file,
    read_json_lines,
)
from pricing.kernel.errors import FileFormatError


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


def fields(**values: object) -> Fields:
    return Fields(values, "some.json", 3)


@pytest.mark.parametrize("value", [1.0, 1.5, True, "1", None, [1], {"a": 1}, -1, 1 << 63, 10**3_000])
def test_a_count_is_an_integer_of_63_bits(value: object) -> None:
    with pytest.raises(FileFormatError, match=r"some\.json:3: rows:") as caught:
        fields(rows=value).count("rows")

    assert caught.value.field == "rows"
    assert caught.value.value == value
    assert len(str(caught.value)) < 200


def test_an_integer_may_be_negative_and_still_has_63_bits() -> None:
    assert fields(a=-(1 << 63) + 1).integer("a") == -(1 << 63) + 1
    with pytest.raises(FileFormatError):
        fields(a=-(1 << 63)).integer("a")


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_a_flag_is_true_or_false(value: object) -> None:
    with pytest.raises(FileFormatError, match="true or false"):
        fields(on=value).flag("on")


def test_fields_of_nested_objects_are_named_by_their_path() -> None:
    with pytest.raises(FileFormatError) as caught:
        fields(outer=[{"inner": {"rows": 1.5}}]).members("outer")[0].member("inner").count("rows")

    assert caught.value.field == "outer[0].inner.rows"


def test_a_missing_field_a_default_and_null() -> None:
    assert fields().count("rows", 4) == 4
    assert fields(rows=None).optional_count("rows") is fields().optional_count("rows") is None
    with pytest.raises(FileFormatError, match="rows: is missing"):
        fields().count("rows")


def test_a_misspelt_field_is_not_silently_a_default() -> None:
    read = fields(rows=1, segmets=2)
    read.count("rows")
    read.count("segments", 0)

    with pytest.raises(FileFormatError, match="segmets: is not a field of this format, got 2"):
        read.finish()


def test_lines_are_counted_as_an_editor_does_and_blank_ones_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(b'{"a": 1}\n\n  \r\n{"a": 2}\r\n{"a": 3}')

    assert [(read.line, read.count("a")) for read in read_json_lines(path)] == [(1, 1), (4, 2), (5, 3)]


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
