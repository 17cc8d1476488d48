"""Traces and files of readings: what is read, and every way in which a line can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pricing import FileFormatError, ReadingKind
from pricing.evidence.trace import read_readings, read_trace
from pricing.kernel.requests import ONE_LAYER_FULL

SHIPPED = sorted((Path(__file__).parents[2] / "spec" / "evidence" / "h200").glob("*-1.jsonl"))

WAVE: dict[str, Any] = {
    "packed_rows": 16_385,
    "logical_rows": 131_585,
    "grad_segments": 18,
    "output_bytes": 526_340,
    "segment_state_bytes": 4_292_608,
    "shortest_request": 513,
    "peak_bytes": 5_510_536_704,
    "forward_peak_bytes": 3_214_661_120,
    "retained_bytes": 671_729_152,
}
READING: dict[str, Any] = {
    "packed_rows": 10,
    "logical_rows": 20,
    "grad_segments": 1,
    "output_bytes": 4,
    "peak_delta_bytes": 1_000,
}


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "some.jsonl"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_shipped_traces_are_read_whole(path: Path) -> None:
    waves = read_trace(path)

    assert len(waves) == 55
    assert [wave.index for wave in waves] == list(range(55))
    for wave in waves:
        assert 0 < wave.forward_peak_bytes <= wave.peak_bytes
        assert wave.wave.workload.recompute == ONE_LAYER_FULL
        assert not wave.wave.workload.has_short_request


def test_three_traces_are_shipped() -> None:
    assert [path.name for path in SHIPPED] == ["dense-1.jsonl", "gdn_moe-1.jsonl", "moe-1.jsonl"]


def test_a_wave_is_a_forward_reading_and_a_whole_one(tmp_path: Path) -> None:
    (wave,) = read_trace(written(tmp_path, json.dumps(WAVE | {"label": "grpo", "seconds": 2.1})))
    forward, whole = wave.readings

    assert (forward.kind, forward.peak_delta_bytes, forward.retained_bytes) == (
        ReadingKind.FORWARD_ONLY,
        3_214_661_120,
        671_729_152,
    )
    assert (whole.kind, whole.peak_delta_bytes, whole.retained_bytes) == (ReadingKind.WHOLE_WAVE, 5_510_536_704, None)
    assert not forward.is_complete and whole.is_complete
    assert wave.wave.floor_bytes == 0


@pytest.mark.parametrize("name", WAVE)
def test_a_line_without_a_field_it_needs_is_refused(name: str, tmp_path: Path) -> None:
    short = {key: value for key, value in WAVE.items() if key != name}
    with pytest.raises(FileFormatError, match=rf"some\.jsonl:2: {name}: is missing"):
        read_trace(written(tmp_path, json.dumps(WAVE), json.dumps(short)))


@pytest.mark.parametrize(
    "value", [-1, 1.0, 2.5, True, "12", None, [], 1 << 63, 10**100], ids=lambda value: str(value)[:12]
)
@pytest.mark.parametrize("name", WAVE)
def test_a_value_that_is_no_count_is_refused_with_line_field_and_value(
    name: str, value: object, tmp_path: Path
) -> None:
    path = written(tmp_path, json.dumps(WAVE), "", json.dumps(WAVE | {name: value}))
    with pytest.raises(FileFormatError) as caught:
        read_trace(path)

    error = caught.value
    assert (error.path, error.line, error.field, error.value) == (str(path), 3, name, value)


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        (json.dumps(WAVE)[:-20], None, "cut off"),
        (json.dumps(WAVE)[1:], None, "not JSON"),
        (json.dumps(WAVE | {"peak_bytes": float("nan")}), "peak_bytes", "NaN"),
        (json.dumps(WAVE | {"seconds": float("inf")}), "seconds", "Infinity"),
        (json.dumps(WAVE)[:-1] + ', "peak_bytes": 3}', "peak_bytes", "twice"),
        (json.dumps(WAVE | {"kind": "half_wave"}), "kind", "unknown reading kind 'half_wave'"),
        (json.dumps(WAVE | {"kind": 3}), "kind", "must be text"),
        (json.dumps(WAVE | {"kind": "interrupted"}), "kind", "must be whole_wave"),
        (json.dumps(WAVE | {"peak_bytes": 0}), "peak_bytes", "at least 1"),
        (json.dumps(WAVE | {"packed_rows": 0}), None, "0 packed rows"),
        ("[]", None, "one JSON object"),
        ("7", None, "one JSON object"),
        ("null", None, "one JSON object"),
        ('{"packed_rows": ' + "1" * 5_000 + "}", "packed_rows", "5000 digits"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_malformed_line_is_refused_by_name(line: str, field: str | None, reason: str, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=reason) as caught:
        read_trace(written(tmp_path, json.dumps(WAVE), line))

    assert (caught.value.line, caught.value.field) == (2, field)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_is_no_trace_and_no_readings(text: str, tmp_path: Path) -> None:
    for read in (read_trace, read_readings):
        with pytest.raises(FileFormatError, match="holds no"):
            read(written(tmp_path, text))


def test_readings_by_their_own_fields(tmp_path: Path) -> None:
    recompute = {"granularity": "full", "method": "uniform", "num_layers": 1, "training": True}
    signature = {
        "topology": "t",
        "group_count": 1,
        "request_mixes": ["target:single"],
        "grad_modes": [True],
        "adapter_shapes": [""],
        "recompute": recompute,
    }
    extended = READING | {
        "retained_bytes": -5,
        "grads": False,
        "kind": "forward_only",
        "closes_wave": True,
        "signature": signature,
    }
    first, second = read_readings(written(tmp_path, json.dumps(READING), json.dumps(extended)))

    assert (first.reading.kind, first.reading.grads, first.signature) == (ReadingKind.WHOLE_WAVE, True, None)
    assert second.reading.is_complete and second.reading.retained_bytes == -5
    assert second.signature is not None and second.signature.topology == "t"


def test_a_trace_is_understood_as_readings(tmp_path: Path) -> None:
    readings = read_readings(written(tmp_path, json.dumps(WAVE), json.dumps(READING)))

    assert [signed.reading.kind for signed in readings] == ["forward_only", "whole_wave", "whole_wave"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"peak_delta_bytes": 1.5}, "peak_delta_bytes"),
        ({"peak_delta_bytes": None}, "peak_bytes"),
        ({"retained_bytes": "x"}, "retained_bytes"),
        ({"grads": 1}, "grads"),
        ({"kind": "whole"}, "kind"),
        ({"closes_waves": True}, "closes_waves"),
        ({"peak_delta_bytes": -1}, None),
        ({"signature": {"topology": "t"}}, "signature.group_count"),
    ],
    ids=str,
)
def test_a_reading_that_is_none_is_refused(change: dict[str, Any], field: str | None, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError) as caught:
        read_readings(written(tmp_path, json.dumps(READING | change)))

    assert caught.value.line == 1
    if field != "peak_bytes":
        assert caught.value.field == field
