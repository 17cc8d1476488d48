"""The page of a run: self-contained HTML, no script, no network, light and dark, readable by keyboard and by ear.

Order follows what a person asks: what happened, what to do, how close it was, why a wave did not run, all the figures.
What the page says is put together here; how it looks is `templates/page.html` and `templates/style.css`, whose engine
escapes every text. The charts alone come as markup.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pricing.kernel.quantities import DEFAULT_SAFETY
from pricing.planner.rules import Verdict
from pricing.records.metrics import WaveSummary, binding_family
from pricing.records.record import DecisionRecord, Event, RungFacts, WidthFacts
from pricing.records.replay import Answer
from pricing.report.blocks import LANES, blocks_of, families_of, lanes_of
from pricing.report.findings import Finding, Severity, findings_of
from pricing.report.run_report import MAX_WAVES, Recorded, RunReport, Series
from pricing.report.svg import PART_CLASSES, Lane, lanes, parts_bar, price_chart, price_parts, use_chart
from pricing.report.words import counted, gib, signed

MAX_TABLE_ROWS: Final = 1_000
"""Waves in the table; of more, the newest are shown, and as many of those in trouble."""

MAX_CARDS: Final = 24
"""Refusals and failures shown in full."""

MAX_CHARTS: Final = 16
"""Series that get charts; of more, those with the most trouble."""

OPEN_CARDS: Final = 3
"""Refusals and failures that are open at first."""

TERM_WORDS: Final = {
    "nothing_to_run": "nothing ran",
    "cold": "nothing was learned yet: outputs and the analytic floor alone",
    "forecast": "forecast from the model itself: nothing complete was measured yet",
    "floor": "the analytic lower bound",
    "all_readings": "highest bytes a packed row of any reading",
    "all_readings_clamped": "highest rate of any reading; more sharing than 8 times what was seen counts as 8 times",
    "warm": "highest bytes a packed row after the first wave",
    "warm_clamped": "highest rate after the first wave; more sharing than 8 times what was seen counts as 8 times",
    "warm_floor": "smaller than every wave after the first: priced as the smallest of them",
    "frontier": "scaled from complete readings of waves near in size and sharing",
    "frontier_clamped": "as frontier; more sharing than 8 times what was seen counts as 8 times",
    "frontier_lifted": "as frontier, lifted so that every reading stays covered",
}

COLUMNS: Final = (
    "Wave",
    "What",
    "Items",
    "Packed rows",
    "Sharing",
    "Price",
    "Observed",
    "Over",
    "Budget",
    "Headroom",
    "Decided by",
)

_MARKS: Final = {Severity.FAILED: "✕", Severity.REFUSED: "!", Severity.NOTICE: "i", Severity.GOOD: "✓"}
_SAID: Final = {
    Severity.FAILED: "Failed",
    Severity.REFUSED: "Refused",
    Severity.NOTICE: "Notice",
    Severity.GOOD: "All well",
}
_EVENTS: Final = {
    Event.ADMITTED: "admitted",
    Event.OBSERVED: "ran",
    Event.ABANDONED: "ran, not read",
    Event.REFUSED: "refused",
    Event.OUT_OF_MEMORY: "out of memory",
}

View = dict[str, object]
"""What a part of the template shows, by name."""


def page(report: RunReport) -> str:
    """The whole page."""
    charted, left_out = _charted(report)
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=report.title,
            run_in_words=_run_in_words(report),
            findings=[_finding(finding) for finding in findings_of(report)],
            figures=list(_figures(report)),
            charts=[_charts(number, series) for number, series in enumerate(charted)],
            charts_left_out=left_out,
            any_restart=any(len(series.processes) > 1 for series in charted),
            terms=list(_terms(report)),
            cards=[_card(item, f"card-{at}", is_open=at < OPEN_CARDS) for at, item in enumerate(_troubled(report))],
            cards_missing=list(_cards_missing(report)),
            **_table(report),
            footer=_footer(report),
            unreadable=report.unreadable[:50],
            unreadable_count=len(report.unreadable),
        )
    )


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("pricing.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def style_sheet() -> str:
    """The page's style sheet, as the page holds it."""
    return _environment().get_template("style.css").render()


# --- what happened, and what to do -----------------------------------------------------------------------------------


def _run_in_words(report: RunReport) -> str:
    laws = sorted({f"{item.record.law}, safety factor {item.record.safety}" for item in report.records})
    laws = laws or sorted({wave.law for wave in report.waves})
    names, processes = len(report.series), len(report.processes)
    by = f"{processes:,} process{'' if processes == 1 else 'es'}"
    if names != processes:
        by += f" under {counted(names, 'name')} (processes of one name stand one after another: a run restarted)"
    words = f"{counted(len(report.waves), 'wave')} of {by}, each priced before it ran and measured while it did."
    if laws:
        words += f" Law: {'; '.join(laws)}."
    if report.left_out:
        words += f" {report.left_out:,} older waves are left out: the newest {MAX_WAVES:,} are read."
    return words


def _finding(finding: Finding) -> View:
    return {
        "severity": str(finding.severity),
        "mark": _MARKS[finding.severity],
        "said": _SAID[finding.severity],
        "what": finding.what[:1].upper() + finding.what[1:],
        "advice": finding.advice.split("`"),
    }


def _figures(report: RunReport) -> Iterator[View]:
    tightest, over = report.tightest, report.median_over
    refused, failed = report.count(Event.REFUSED), report.count(Event.OUT_OF_MEMORY)
    under = report.under
    for name, value, kind in (
        ("waves that ran", f"{report.ran:,}", ""),
        ("refused", f"{refused:,}", "refused" if refused else ""),
        ("out of memory", f"{failed:,}", "failed" if failed else ""),
        ("peaks above price", f"{len(under):,} of {len(report.scored):,}", "failed" if under else ""),
        ("median price over peak", "–" if over is None else signed(over), ""),
        ("least headroom", "–" if tightest is None else gib(tightest.headroom_bytes), ""),
    ):
        yield {"name": name, "value": value, "kind": kind}


# --- charts ----------------------------------------------------------------------------------------------------------


def _charted(report: RunReport) -> tuple[Sequence[Series], str]:
    """The series that get charts, and a sentence about those that do not."""
    if len(report.series) <= MAX_CHARTS:
        return report.series, ""
    troubled = sorted(report.series, key=lambda series: -sum(map(_is_troubled, series.waves)))
    chosen = set(map(id, troubled[:MAX_CHARTS]))
    left = len(report.series) - MAX_CHARTS
    return (
        [series for series in report.series if id(series) in chosen],
        f"{left} more names have no charts here: those with the most trouble are drawn. Their waves count above.",
    )


def _charts(number: int, series: Series) -> View:
    waves = series.waves
    blocks = blocks_of(waves)
    size = len(blocks[0].waves)
    thinned = ""
    if size > 1:
        thinned = (
            f"{len(waves):,} waves are drawn as {len(blocks)} blocks of {size:,}: of each the highest price, peak and "
            "use and the least budget. A mark stands for one or more waves of its block; a strip is paler where fewer "
            "of them are so."
        )
    return {
        "summary": _series_words(series),
        "use": Markup(use_chart(series, blocks, f"use-{number}")),
        "events": [_lane(lane) for lane in lanes(blocks, lanes_of, LANES)],
        "price": Markup(price_chart(series, blocks, f"price-{number}")),
        "terms": [_lane(lane) for lane in lanes(blocks, families_of, ())],
        "thinned": thinned,
    }


def _lane(lane: Lane) -> View:
    return {"name": lane.name, "count": lane.count, "strip": Markup(lane.strip)}


def _series_words(series: Series) -> str:
    words = f"{series.label}: {counted(len(series.waves), 'wave')}"
    if len(series.processes) > 1:
        words += f" of {len(series.processes)} processes"
    for event, name in ((Event.REFUSED, "refused"), (Event.OUT_OF_MEMORY, "out of memory")):
        count = sum(1 for wave in series.waves if wave.event is event)
        words += f", {count:,} {name}" if count else ""
    return words


def _terms(report: RunReport) -> Iterator[View]:
    """What the binding terms of this run mean."""
    for name in dict.fromkeys(binding_family(wave.binding_term) for wave in report.waves):
        yield {"name": name, "means": TERM_WORDS.get(name, "named by the law")}


# --- waves that did not run ------------------------------------------------------------------------------------------


def _troubled(report: RunReport) -> Sequence[Recorded]:
    return [*report.failures, *report.refusals][:MAX_CARDS]


def _cards_missing(report: RunReport) -> Iterator[str]:
    recorded = len(report.failures) + len(report.refusals)
    if recorded > MAX_CARDS:
        yield f"{recorded - MAX_CARDS} more are in the folder; pricing replay FOLDER lists them."
    missing = report.count(Event.REFUSED) + report.count(Event.OUT_OF_MEMORY) - recorded
    if missing > 0:
        yield f"Of {missing} more no record is left (the spool is bounded); they are in the table."


def _card(item: Recorded, identifier: str, *, is_open: bool) -> View:
    record = item.record
    rows = [*map(_width_row, record.tried), *map(_rung_row, record.rungs)]
    return {
        "kind": "failed" if record.event is Event.OUT_OF_MEMORY else "refused",
        "is_open": is_open,
        "title": _card_title(record),
        "bar": Markup(parts_bar(record, f"{identifier}-bar")),
        "parts": [{"kind": PART_CLASSES[name], "words": f"{name} {gib(size)}"} for name, size in price_parts(record)],
        "reasons": [_asked(record), *_reasons(record)],
        "helps": list(_helps(item)),
        "tried": rows if len(rows) >= 2 else [],
        "tried_words": f"{counted(len(record.tried), 'width')}, {counted(len(record.rungs), 'split')}",
        "source": item.source + ("" if item.replays else " (does not replay to the byte)"),
    }


def _card_title(record: DecisionRecord) -> str:
    where = f"{record.name} wave {record.index}" if record.name else f"Wave {record.index}"
    held = f"{gib(record.required_bytes)} against a budget of {gib(record.available_bytes)}"
    if record.event is Event.OUT_OF_MEMORY:
        return f"{where} ran out of memory, admitted at {held}"
    if record.refused_elsewhere:
        return f"{where} was refused on another rank; here it was {held}"
    return f"{where} was refused: {held}"


def _asked(record: DecisionRecord) -> str:
    wave = record.wave
    words = f"{wave.packed_rows:,} packed rows for {wave.logical_rows:,} logical rows"
    words += f" in {counted(wave.grad_segments, 'segment')}"
    if record.structure is not None:
        words += f", {counted(len(record.structure.request_rows), 'request')}"
    term = record.price.binding_term
    means = TERM_WORDS.get(binding_family(term))
    return f"Asked: {words}. Decided by {term}{f' ({means})' if means else ''}."


def _reasons(record: DecisionRecord) -> Iterator[str]:
    if record.price.ineligible and record.price.binding_term != "cold":
        names = ", ".join(name.lower().replace("_", " ") for name in record.price.ineligible)
        yield f"Not priced by packed rows: {names}."
    if record.failure is not None:
        yield _failure_words(record)


def _failure_words(record: DecisionRecord) -> str:
    failure = record.failure
    assert failure is not None, "asked only of records of a failure"
    words = "Cause: out of memory after admission"
    if failure.requested_bytes is not None:
        words += f", on a request of {failure.requested_bytes:,} bytes"
    if record.budget is not None:
        words += (
            f". Admitted with {gib(record.budget.free_bytes)} physically free ({gib(record.budget.reserve_bytes)} of "
            f"it reserved) and {gib(record.budget.reusable_cache_bytes)} of reusable cache"
        )
    if failure.budget_after is not None:
        words += f"; afterwards {gib(failure.budget_after.free_bytes)} were free"
    return f"{words}.{f' {record.note}' if record.note else ''}"


def _helps(item: Recorded) -> Iterator[str]:
    record = item.record
    if record.refusal is not None and record.refusal.shortfall_bytes:
        yield f"{gib(record.refusal.shortfall_bytes)} more"
    if record.refusal is not None and record.refusal.rows_that_fit:
        yield f"at most {record.refusal.rows_that_fit:,} packed rows at this sharing"
    if record.event is not Event.REFUSED:
        return
    for answer in item.what_ifs:
        verb = {Answer.RUNS: "runs", Answer.RUNS_NARROWER: "runs narrower"}.get(answer.answer)
        if verb is not None and answer.law != "logical":
            yield f"law {answer.law}: {verb} at {gib(answer.required_bytes)}, {gib(answer.headroom_bytes)} to spare"


def _width_row(step: WidthFacts) -> tuple[str, ...]:
    result = "fits" if step.fits else "does not fit"
    if not step.learned:
        result = "nothing learned"
    elif not step.trusted:
        result = "over 8 times the largest seen"
    return (
        counted(step.width, "item"),
        f"{step.wave.packed_rows:,}",
        gib(step.required_bytes),
        gib(step.available_bytes),
        result,
    )


def _rung_row(rung: RungFacts) -> tuple[str, ...]:
    if rung.cost_bytes is None:
        price, result = f"at least {gib(rung.lower_bound_bytes)}", "not cut: too much at any cut"
    else:
        price, result = gib(rung.cost_bytes), "fits" if rung.fits else "does not fit"
    largest = max((child.wave.packed_rows for child in rung.children), default=0)
    rows = f"at most {largest:,} each" if largest else "–"
    return f"split in {rung.subforwards}", rows, price, gib(rung.available_bytes), result


# --- all the figures -------------------------------------------------------------------------------------------------


def _table(report: RunReport) -> Mapping[str, object]:
    labelled = [
        (_process_label(series, number), wave)
        for series in report.series
        for number, process in enumerate(series.processes, start=1)
        for wave in process.waves
    ]
    shown = labelled
    if len(labelled) > MAX_TABLE_ROWS:
        older = labelled[:-MAX_TABLE_ROWS]
        troubled = [pair for pair in older if _is_troubled(pair[1])]
        shown = [*troubled[-MAX_TABLE_ROWS:], *labelled[-MAX_TABLE_ROWS:]]
    caption = "Bytes are above the wave's baseline. Over: price over observed peak."
    if len(shown) < len(labelled):
        caption += f" {len(shown):,} of {len(labelled):,} waves: the newest, and of the others the last in trouble."
    several = len(report.processes) > 1
    return {
        "caption": caption,
        "columns": COLUMNS,
        "rows": [_wave_row(f"{label} {wave.index}" if several else str(wave.index), wave) for label, wave in shown],
    }


def _process_label(series: Series, number: int) -> str:
    """The series, and where several processes share its name, which of them."""
    return series.label if len(series.processes) == 1 else f"{series.label} ({number})"


def _is_troubled(wave: WaveSummary) -> bool:
    return wave.event in (Event.REFUSED, Event.OUT_OF_MEMORY) or wave.is_under


def _wave_row(head: str, wave: WaveSummary) -> View:
    over = wave.over_fraction
    what = "nothing to run" if wave.verdict == Verdict.EMPTY else _EVENTS[wave.event]
    if wave.subforwards is not None and wave.subforwards > 1:
        what += f", split in {wave.subforwards}"
    kind = "failed" if wave.event is Event.OUT_OF_MEMORY else "refused" if wave.event is Event.REFUSED else ""
    if wave.is_under:
        what, kind = f"{what}, peak above price", kind or "failed"
    cells = (
        what,
        "–" if wave.width is None else f"{wave.width:,}",
        f"{wave.packed_rows:,}",
        f"{wave.logical_rows / wave.packed_rows:.2f}" if wave.packed_rows else "–",
        gib(wave.estimate_bytes),
        "–" if wave.used_bytes is None else gib(wave.used_bytes),
        "–" if over is None else "cold" if wave.is_cold else signed(over),
        gib(wave.available_bytes),
        gib(wave.headroom_bytes),
        binding_family(wave.binding_term),
    )
    return {"head": head, "kind": kind, "cells": cells}


def _footer(report: RunReport) -> str:
    equal = sum(1 for item in report.records if item.replays)
    replayed = f"{equal} of {len(report.records)} records replay to the byte." if report.records else ""
    unknown = sum(item.read.unknown_count for item in report.records)
    extras = f" {unknown} fields of a later build were passed over." if unknown else ""
    return (
        f"{replayed}{extras} A price is the peak a wave is expected to reach, times the safety factor "
        f"({DEFAULT_SAFETY} unless chosen otherwise). Waves priced cold promise nothing and are not counted as above "
        "their price. Use is the footprint where it was read, else the peak."
    )
