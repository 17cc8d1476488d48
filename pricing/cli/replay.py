"""`pricing replay`: decide recorded decisions again and compare, byte for byte; or ask what another law would say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from pricing.cli.options import json_option
from pricing.cli.output import emit_json, say
from pricing.cli.progress import Progress
from pricing.kernel.errors import PricingError
from pricing.kernel.law import Law
from pricing.kernel.laws import LAWS, find_law
from pricing.kernel.quantities import Safety
from pricing.records.record import IncompleteRecordError, RecordError
from pricing.records.record_file import ReadRecord, read_record
from pricing.records.replay import Answer, Replay, WhatIf, replay, what_if
from pricing.records.spool import record_paths
from pricing.text import gib_text

EQUAL: Final = "equal"
DIFFERENT: Final = "different"
INCOMPLETE: Final = "incomplete"
UNREADABLE: Final = "unreadable"

_ANSWERS: Final = {
    Answer.RUNS: "the wave as recorded runs",
    Answer.RUNS_NARROWER: "the wave as recorded does not fit, a narrower one that was tried does",
    Answer.REFUSED: "nothing that was tried fits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one report. `read`, `replayed` are None where it could not be read, or not be replayed."""

    path: Path
    status: str
    error: str | None = None
    read: ReadRecord | None = None
    replayed: Replay | None = None
    what_ifs: tuple[WhatIf, ...] = ()


@click.command(
    "replay",
    help="""Decide each recorded decision again, from the record alone, and compare with what was recorded.

    REPORTS are records, or folders of them (a spool). Every price, width, rung and verdict is computed again; the first
    field that differs is named. With --law or --safety it also says what that law would have decided, among the widths
    and rungs that were recorded.

    \b
    Exit codes: 0 all equal, 1 a record differs, 2 a record cannot be read or lacks what its replay needs.

    \b
    Example:
        pricing replay records/
        pricing replay records/ --law frontier --safety 51/50
    """,
)
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...", type=click.Path(path_type=Path))
@click.option(
    "--law",
    "laws",
    metavar="NAME",
    multiple=True,
    callback=lambda _ctx, _param, names: tuple(find_law(name) for name in dict.fromkeys(names)),
    help=f"What would this law have decided? May be given again: {', '.join(LAWS)}.",
)
@click.option(
    "--safety",
    metavar="FACTOR",
    callback=lambda _ctx, _param, text: None if text is None else Safety.parse(text),
    help='What would this safety factor have decided? Read exactly: "51/50" or "1.02".',
)
@json_option
@click.pass_context
def command(
    context: click.Context, reports: Sequence[Path], laws: tuple[Law, ...], safety: Safety | None, as_json: bool
) -> None:
    paths, outcomes = _paths(reports), []
    with Progress("replaying", len(paths)) as progress:
        for path, named in paths:
            outcomes.append(_outcome(path, laws, safety, named=named))
            progress.advance()
    if as_json:
        emit_json({"results": [_outcome_json(outcome) for outcome in outcomes], **_counts(outcomes)})
    else:
        for outcome in outcomes:
            _tell(outcome)
        _tell_total(outcomes)
    if any(outcome.replayed is None for outcome in outcomes):
        context.exit(2)
    if any(outcome.status == DIFFERENT for outcome in outcomes):
        context.exit(1)


def _paths(reports: Sequence[Path]) -> list[tuple[Path, bool]]:
    """The records asked for and whether each was named, folders opened. Raises `RecordError` for a folder without any.

    What was named may be a pipe; what lies in a folder is read only where it is a regular file.
    """
    paths: list[tuple[Path, bool]] = []
    for report in reports:
        found = [(path, False) for path in record_paths(report)] if report.is_dir() else [(report, True)]
        if not found:
            raise RecordError(f"{report}: no records in this folder (a spool writes one when a trigger fires)")
        paths += found
    return paths


def _outcome(path: Path, laws: tuple[Law, ...], safety: Safety | None, *, named: bool) -> Outcome:
    try:
        read = read_record(path, regular_only=not named)
        replayed = replay(read.record)
        what_ifs = tuple(_what_ifs(read, laws, safety))
    except IncompleteRecordError as error:
        return Outcome(path=path, status=INCOMPLETE, error=str(error))
    except PricingError as error:
        return Outcome(path=path, status=UNREADABLE, error=str(error))
    except OSError as error:
        return Outcome(path=path, status=UNREADABLE, error=error.strerror or str(error))
    status = EQUAL if replayed.is_equal else DIFFERENT
    return Outcome(path=path, status=status, read=read, replayed=replayed, what_ifs=what_ifs)


def _what_ifs(read: ReadRecord, laws: tuple[Law, ...], safety: Safety | None) -> list[WhatIf]:
    """Under each law asked for, or the record's own if only the safety factor was."""
    if not laws and safety is None:
        return []
    record = read.record
    return [what_if(record, law, safety or record.safety) for law in laws or (find_law(record.law),)]


def _outcome_json(outcome: Outcome) -> dict[str, object]:
    document: dict[str, object] = {"report": str(outcome.path), "status": outcome.status, "error": outcome.error}
    if outcome.read is None or outcome.replayed is None:
        return document
    replayed, record = outcome.replayed, outcome.read.record
    first = replayed.differences[0] if replayed.differences else None
    return {
        **document,
        "event": str(record.event),
        "verdict": record.verdict,
        "law": record.law,
        "safety": str(record.safety),
        "required_bytes": record.required_bytes,
        "available_bytes": record.available_bytes,
        "binding_term": record.price.binding_term,
        "prices": replayed.steps,
        "first_difference": None
        if first is None
        else {"field": first.field, "recorded": first.recorded, "replayed": first.replayed},
        "differences": len(replayed.differences),
        "not_replayed": list(replayed.not_replayed),
        "unknown_fields": list(outcome.read.unknown_fields),
        "unknown_count": outcome.read.unknown_count,
        "remarks": list(outcome.read.remarks),
        "what_if": [_what_if_json(answer) for answer in outcome.what_ifs],
    }


def _what_if_json(answer: WhatIf) -> dict[str, object]:
    return {
        "law": answer.law,
        "safety": str(answer.safety),
        "answer": str(answer.answer),
        "required_bytes": answer.required_bytes,
        "headroom_bytes": answer.headroom_bytes,
        "binding_term": answer.binding_term,
        "widest_width": answer.widest,
        "under_bytes": answer.under_bytes,
    }


def _counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    return {
        status: sum(1 for outcome in outcomes if outcome.status == status)
        for status in (EQUAL, DIFFERENT, INCOMPLETE, UNREADABLE)
    }


def _tell(outcome: Outcome) -> None:
    if outcome.read is None or outcome.replayed is None:
        say(f"Error: {outcome.path}: {outcome.error}", err=True)
        return
    record, replayed = outcome.read.record, outcome.replayed
    say(
        f"{outcome.path.name}: {outcome.status}, {replayed.steps} prices. {_named(record.name)}wave {record.index} "
        f"{str(record.event).replace('_', ' ')}: verdict {record.verdict}, {gib_text(record.required_bytes)} of "
        f"{gib_text(record.available_bytes)}, bound by {record.price.binding_term} ({record.law}, {record.safety})"
    )
    if replayed.differences:
        say(f"  first difference: {replayed.differences[0]}")
        if len(replayed.differences) > 1:
            say(f"  and {len(replayed.differences) - 1} more, beginning with {replayed.differences[1].field}")
    for part in replayed.not_replayed:
        say(f"  not replayed, left out of the record for its size: {part}")
    if outcome.read.unknown_count:
        shown = ", ".join(outcome.read.unknown_fields)
        say(f"  accepted {outcome.read.unknown_count} fields that this build does not know: {shown}")
    for remark in outcome.read.remarks:
        say(f"  {remark}")
    for answer in outcome.what_ifs:
        say(f"  {_what_if_text(answer)}")


def _named(name: str) -> str:
    return f"{name} " if name else ""


def _what_if_text(answer: WhatIf) -> str:
    text = (
        f"under {answer.law}, {answer.safety}: {_ANSWERS[answer.answer]}; {gib_text(answer.required_bytes)}, "
        f"bound by {answer.binding_term}"
    )
    if answer.widest:
        text += f"; widest tried width that fits: {answer.widest}"
    if answer.under_bytes:
        text += f"; the observed peak lies {gib_text(answer.under_bytes)} above that price"
    return text


def _tell_total(outcomes: Sequence[Outcome]) -> None:
    counted = ", ".join(f"{count} {status}" for status, count in _counts(outcomes).items() if count)
    say(f"{len(outcomes)} record{'' if len(outcomes) == 1 else 's'}: {counted}")
