"""Records as text: canonical JSON of bounded size, read back strictly, and the schema that says what it looks like.

Whole numbers only and sorted names, so that equal records are equal bytes. A record over its cap leaves parts out and
lists them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pricing.formats.codec import decode, encode, json_schema
from pricing.formats.files import open_regular
from pricing.formats.place import Findings, MissingFieldError, Place
from pricing.formats.strict_json import JsonObject, canonical_json, parse_object
from pricing.records.record import SCHEMA_VERSION, DecisionRecord, IncompleteRecordError, RecordError

MAX_RECORD_BYTES: Final = 256 << 10
"""Default cap on one record's text. A record of a 40-step search with a GRPO batch's structure is about 30 KiB."""

LEAST_RECORD_BYTES: Final = 16 << 10
"""Smallest cap that can be asked for: what cannot be omitted (wave, profile, price, budget) needs a few KiB."""

MAX_READ_BYTES: Final = 4 << 20
"""Longest text that the reader takes; longer is an error before anything is parsed."""


class NewerRecordError(RecordError):
    """A record of a later format version than this build knows."""


class RecordTooLargeError(RecordError):
    """A record that stays over its size cap although every part that may be omitted was."""


def record_text(record: DecisionRecord, max_bytes: int = MAX_RECORD_BYTES) -> str:
    """A record as canonical JSON of at most `max_bytes`, with the parts omitted for that listed in `omitted`.

    Left out in this order, as far as needed: the structure, the rungs' children except of the rung that runs, the
    widths in the middle of the search. Raises `RecordTooLargeError` where that is not enough.
    """
    if max_bytes < LEAST_RECORD_BYTES:
        raise RecordError(f"a cap of {max_bytes} B is under the least of {LEAST_RECORD_BYTES} B")
    text = canonical_json(encode(record))
    for shorter in _shortened(record):
        if len(text) <= max_bytes:
            break
        text = canonical_json(encode(shorter))
    if len(text) > max_bytes:
        raise RecordTooLargeError(f"a record of {len(text)} B cannot be cut to {max_bytes} B")
    return text


def _shortened(record: DecisionRecord) -> Iterator[DecisionRecord]:
    """The record with ever more parts left out."""
    if record.structure is not None:
        record = dataclasses.replace(record, structure=None, omitted=(*record.omitted, "structure"))
        yield record
    bulky = [at for at, rung in enumerate(record.rungs) if rung.children and not rung.fits]
    if bulky:
        rungs = tuple(
            dataclasses.replace(rung, children=()) if at in bulky else rung for at, rung in enumerate(record.rungs)
        )
        omitted = (*record.omitted, f"rungs[*].children of {len(bulky)} rungs that do not fit")
        record = dataclasses.replace(record, rungs=rungs, omitted=omitted)
        yield record
    for kept in (32, 4):
        if len(record.tried) > 2 * kept:
            cut = len(record.tried) - 2 * kept
            record = dataclasses.replace(
                record,
                tried=record.tried[:kept] + record.tried[-kept:],
                omitted=(*record.omitted, f"tried: {cut} of {len(record.tried)}, in the middle"),
            )
            yield record


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """A record as read: with the unknown fields that were passed over, and remarks about what was filled in."""

    record: DecisionRecord
    unknown_fields: tuple[str, ...]
    unknown_count: int
    remarks: tuple[str, ...]


def read_record(path: str | os.PathLike[str], *, regular_only: bool = True) -> ReadRecord:
    """The record in a file. Raises `OSError`, and `PricingError` for whatever else can be wrong with it.

    regular_only: a pipe or a device is an error, not something to wait for.
    """
    with open_regular(path) if regular_only else open(path, "rb") as stream:
        content = stream.read(MAX_READ_BYTES + 1)
    return parse_record(content, Path(path).name)


def parse_record(text: str | bytes, source: str = "record") -> ReadRecord:
    """The record in a text. Raises `NewerRecordError`, `IncompleteRecordError` naming the missing field, or
    `FileFormatError` for everything else; all are `PricingError`."""
    if len(text) > MAX_READ_BYTES:
        raise RecordError(f"{source}: longer than {MAX_READ_BYTES} B, so not a record")
    data = parse_object(text, source)
    version = data.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        raise NewerRecordError(
            f"{source}: schema_version has {version.bit_length()} bits or is later"
            if version.bit_length() > 63
            else f"{source}: schema_version {version}; this build reads up to {SCHEMA_VERSION}"
        )
    return _record_from_json(data, Findings(), source)


def _record_from_json(data: JsonObject, findings: Findings, source: str) -> ReadRecord:
    """A record may have been written by a later build of this version: what is unknown is passed over and listed."""
    place = Place(source, findings=findings)
    try:
        record = decode(DecisionRecord, data, place)
    except MissingFieldError as error:
        raise IncompleteRecordError(str(error.field)) from error
    if record.schema_version < 1:
        raise place.member("schema_version").error("must be at least 1", record.schema_version)
    return ReadRecord(
        record=record,
        unknown_fields=tuple(findings.unknown),
        unknown_count=findings.unknown_count,
        remarks=tuple(findings.remarks),
    )


def schema_text() -> str:
    """The JSON Schema of a record: the content of `spec/report.schema.json`, which a test keeps equal to this."""
    schema = json_schema(
        DecisionRecord,
        title="packed-pricing decision record",
        identifier="urn:packed-pricing:decision-record:1",
    )
    return json.dumps(schema, indent=2, ensure_ascii=True) + "\n"
