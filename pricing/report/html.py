"""The page of a run: self-contained HTML, no script, no network, light and dark, readable by keyboard and by ear.

Order follows what a person asks: what happened, what to do, how close it was, why a wave did not run, all the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from html import escape
from typing import Final

from pricing.kernel.quantities import DEFAULT_SAFETY
from pricing.planner.rules import Verdict
from pricing.records.metrics import WaveSummary, binding_family
from pricing.records.record import DecisionRecord, Event, RungFacts, WidthFacts
from pricing.records.replay import Answer
from pricing.report.run_report import Finding, Recorded, RunReport, Series, Severity, gib, percent
from pricing.report.style import STYLE
from pricing.report.svg import binding_chart, parts_bar, price_chart, price_parts

MAX_TABLE_ROWS: Final = 1_000
"""Waves in the table; of more, those in trouble and the newest are shown."""

MAX_CARDS: Final = 24
"""Refusals and failures shown in full."""

OPEN_SERIES: Final = 1
"""Processes whose charts are open at first."""

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


def page(report: RunReport) -> str:
    """The whole page."""
    findings = report.findings()
    body = [
        _header(report),
        _findings(findings),
        _figures(report),
        *_charts(report),
        *_cards(report),
        _table(report),
        _footer(report),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Memory of {escape(report.title)}: {escape(findings[0].what)}</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#waves">Skip to the table of waves</a>\n<main>\n'
        f"{''.join(body)}</main>\n</body>\n</html>\n"
    )


# --- what happened, and what to do -----------------------------------------------------------------------------------


def _header(report: RunReport) -> str:
    laws = sorted({f"{item.record.law}, safety factor {item.record.safety}" for item in report.records})
    laws = laws or sorted({wave.law for wave in report.waves})
    law = f" Law: {escape('; '.join(laws))}." if laws else ""
    processes = len(report.series)
    return (
        f"<header><h1>Memory of <q>{escape(report.title)}</q></h1>"
        f"<p>{len(report.waves):,} waves of {processes} process{'' if processes == 1 else 'es'}, each priced before it "
        f"ran and measured while it did.{law}</p></header>\n"
    )


def _findings(findings: Sequence[Finding]) -> str:
    items = "".join(
        f'<li class="{finding.severity}"><span class="mark" aria-hidden="true">{_MARKS[finding.severity]}</span>'
        f'<div><strong><span class="hidden">{_SAID[finding.severity]}: </span>{_sentence(finding.what)}</strong>'
        f"<p>{_with_code(finding.advice)}</p></div></li>"
        for finding in findings
    )
    return (
        '<section aria-labelledby="found"><h2 id="found">What happened, and what to do</h2>'
        f'<ul class="findings">{items}</ul></section>\n'
    )


def _figures(report: RunReport) -> str:
    tightest, median = report.tightest, report.median_over
    refused, failed = report.count(Event.REFUSED), report.count(Event.OUT_OF_MEMORY)
    figures = [
        ("waves that ran", f"{report.ran:,}", ""),
        ("refused", f"{refused:,}", "refused" if refused else ""),
        ("out of memory", f"{failed:,}", "failed" if failed else ""),
        ("peaks above price", f"{len(report.under):,} of {len(report.scored):,}", "failed" if report.under else ""),
        ("median price over peak", "–" if median is None else _signed(median), ""),
        ("least headroom", "–" if tightest is None else gib(tightest.headroom_bytes), ""),
    ]
    tiles = "".join(
        f'<div class="{kind}"><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>' for name, value, kind in figures
    )
    return f'<section aria-label="Key figures"><dl class="figures">{tiles}</dl></section>\n'


# --- charts ----------------------------------------------------------------------------------------------------------


def _charts(report: RunReport) -> Iterator[str]:
    if not report.series:
        return
    yield '<section aria-labelledby="charts"><h2 id="charts">Price and observed peak of each wave</h2>'
    yield _legend()
    for number, series in enumerate(report.series):
        charts = (
            f"<figure>{price_chart(series, f'price-{number}')}</figure>"
            f"<h3>What decided the price</h3><figure>{binding_chart(series, f'bound-{number}')}</figure>"
        )
        if len(report.series) == 1:
            yield charts
        else:
            opened = " open" if number < OPEN_SERIES else ""
            yield f"<details{opened}><summary>{escape(_series_words(series))}</summary>{charts}</details>"
    yield f"{_terms(report)}</section>\n"


def _series_words(series: Series) -> str:
    words = f"{series.label}: {len(series.waves):,} waves"
    for event, name in ((Event.REFUSED, "refused"), (Event.OUT_OF_MEMORY, "out of memory")):
        count = sum(1 for wave in series.waves if wave.event is event)
        words += f", {count} {name}" if count else ""
    return words


def _terms(report: RunReport) -> str:
    """What the binding terms of this run mean."""
    families = dict.fromkeys(binding_family(wave.binding_term) for wave in report.waves)
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(TERM_WORDS.get(name, 'named by the law'))}</dd></div>"
        for name in families
    )
    return f'<dl class="terms">{items}</dl>'


_LEGEND_MARKS: Final = {
    "price": '<line class="price" x1="3" x2="21" y1="7" y2="7"/>',
    "observed peak": '<circle class="observed" cx="12" cy="7" r="4"/>',
    "budget": '<line class="budget" x1="0" x2="24" y1="7" y2="7"/>',
    "refused": '<path class="refused" d="M7 2l10 10m0 -10l-10 10"/>',
    "out of memory": '<path class="failed" d="M12 1l7 12h-14z"/>',
    "peak above its price": '<circle class="under" cx="12" cy="7" r="5.5"/>',
}


def _legend() -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 24 14" aria-hidden="true">{mark}</svg>{name}</li>'
        for name, mark in _LEGEND_MARKS.items()
    )
    return f'<ul class="legend" aria-label="Legend">{items}</ul>'


# --- waves that did not run ------------------------------------------------------------------------------------------


def _cards(report: RunReport) -> Iterator[str]:
    troubled = [*report.failures, *report.refusals]
    missing = report.count(Event.REFUSED) + report.count(Event.OUT_OF_MEMORY) - len(troubled)
    if not troubled and missing <= 0:
        return
    yield '<section aria-labelledby="why"><h2 id="why">Why these waves did not run through</h2>'
    for number, item in enumerate(troubled[:MAX_CARDS]):
        yield _card(item, f"card-{number}", is_open=number < OPEN_CARDS)
    if len(troubled) > MAX_CARDS:
        more = len(troubled) - MAX_CARDS
        yield f"<p>{more} more are in the folder; <code>pricing replay FOLDER</code> lists them.</p>"
    if missing > 0:
        yield f"<p>Of {missing} more no record is left (the spool is bounded); they are in the table.</p>"
    yield "</section>\n"


def _card(item: Recorded, identifier: str, *, is_open: bool) -> str:
    record = item.record
    kind = "failed" if record.event is Event.OUT_OF_MEMORY else "refused"
    source = escape(item.source) + ("" if item.replays else " (does not replay to the byte)")
    return (
        f'<details class="card {kind}"{" open" if is_open else ""}><summary>{escape(_card_title(record))}</summary>'
        f"<figure>{parts_bar(record, f'{identifier}-bar')}</figure>"
        f"<p>{escape(_asked(record))}</p>{''.join(_reasons(item))}{_tried(record)}"
        f'<p class="source">{source}</p></details>'
    )


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
    words += f" in {_counted(wave.grad_segments, 'segment')}"
    if record.structure is not None:
        words += f", {_counted(len(record.structure.request_rows), 'request')}"
    parts = ", ".join(f"{name} {gib(size)}" for name, size in price_parts(record))
    term = record.price.binding_term
    means = TERM_WORDS.get(binding_family(term))
    return f"Asked: {words}. Price: {parts}. Decided by {term}{f' ({means})' if means else ''}."


def _reasons(item: Recorded) -> Iterator[str]:
    record = item.record
    if record.price.ineligible and record.price.binding_term != "cold":
        names = ", ".join(name.lower().replace("_", " ") for name in record.price.ineligible)
        yield f"<p>Not priced by packed rows: {escape(names)}.</p>"
    if record.failure is not None:
        yield f"<p>{escape(_failure_words(record))}</p>"
    helps = list(_helps(item))
    if helps:
        yield f"<h3>What would have helped</h3><ul>{''.join(f'<li>{escape(text)}</li>' for text in helps)}</ul>"


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


def _tried(record: DecisionRecord) -> str:
    rows = [*map(_width_row, record.tried), *map(_rung_row, record.rungs)]
    if len(rows) < 2:
        return ""
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("Tried", "Packed rows", "Price", "Budget", "Result"))
    tried = f"{_counted(len(record.tried), 'width')}, {_counted(len(record.rungs), 'split')}"
    return (
        f"<details><summary>What was tried: {tried}</summary>"
        '<div class="scroll" role="region" tabindex="0" aria-label="What was tried"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _width_row(step: WidthFacts) -> str:
    result = "fits" if step.fits else "does not fit"
    if not step.learned:
        result = "nothing learned"
    elif not step.trusted:
        result = "over 8 times the largest seen"
    return _cells(
        _counted(step.width, "item"),
        f"{step.wave.packed_rows:,}",
        gib(step.required_bytes),
        gib(step.available_bytes),
        result,
    )


def _rung_row(rung: RungFacts) -> str:
    if rung.cost_bytes is None:
        price, result = f"at least {gib(rung.lower_bound_bytes)}", "not cut: too much at any cut"
    else:
        price, result = gib(rung.cost_bytes), "fits" if rung.fits else "does not fit"
    largest = max((child.wave.packed_rows for child in rung.children), default=0)
    rows = f"at most {largest:,} each" if largest else "–"
    return _cells(f"split in {rung.subforwards}", rows, price, gib(rung.available_bytes), result)


def _cells(head: str, *cells: str) -> str:
    return f'<tr><th scope="row">{escape(head)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'


# --- all the figures -------------------------------------------------------------------------------------------------

_COLUMNS: Final = (
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


def _table(report: RunReport) -> str:
    labelled = [(series.label, wave) for series in report.series for wave in series.waves]
    shown = labelled
    if len(labelled) > MAX_TABLE_ROWS:
        newest = set(range(len(labelled) - MAX_TABLE_ROWS, len(labelled)))
        shown = [pair for at, pair in enumerate(labelled) if at in newest or _is_troubled(pair[1])]
    caption = "Bytes are above the wave's baseline. Over: price over observed peak."
    if len(shown) < len(labelled):
        caption += f" {len(shown):,} of {len(labelled):,} waves: those in trouble, and the newest."
    several = len(report.series) > 1
    rows = "".join(_wave_row(f"{label} {wave.index}" if several else str(wave.index), wave) for label, wave in shown)
    heads = "".join(f'<th scope="col">{name}</th>' for name in _COLUMNS)
    return (
        f'<section aria-labelledby="waves"><h2 id="waves" tabindex="-1">All waves</h2><div class="scroll tall" '
        f'role="region" tabindex="0" aria-label="Table of waves"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></section>\n"
    )


def _is_troubled(wave: WaveSummary) -> bool:
    return wave.event in (Event.REFUSED, Event.OUT_OF_MEMORY) or wave.is_under


def _wave_row(head: str, wave: WaveSummary) -> str:
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
        "–" if wave.observed_bytes is None else gib(wave.observed_bytes),
        "–" if over is None else "cold" if wave.is_cold else _signed(over),
        gib(wave.available_bytes),
        gib(wave.headroom_bytes),
        binding_family(wave.binding_term),
    )
    return _cells(head, *cells).replace("<tr>", f'<tr class="{kind}">' if kind else "<tr>", 1)


def _footer(report: RunReport) -> str:
    equal = sum(1 for item in report.records if item.replays)
    replayed = f"{equal} of {len(report.records)} records replay to the byte." if report.records else ""
    unknown = sum(item.read.unknown_count for item in report.records)
    extras = f" {unknown} fields of a later build were passed over." if unknown else ""
    unread = ""
    if report.unreadable:
        items = "".join(f"<li>{escape(text)}</li>" for text in report.unreadable[:50])
        unread = f"<details><summary>{len(report.unreadable)} not read in full</summary><ul>{items}</ul></details>"
    return (
        f"<footer><p>{replayed}{extras} A price is the peak a wave is expected to reach, times the safety factor "
        f"({DEFAULT_SAFETY} unless chosen otherwise). Waves priced cold promise nothing and are not counted as above "
        f"their price.</p>{unread}</footer>\n"
    )


def _sentence(text: str) -> str:
    return escape(text[:1].upper() + text[1:])


def _with_code(text: str) -> str:
    """Text whose `quoted` parts are code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if at % 2 else piece for at, piece in enumerate(pieces))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _signed(share: Fraction | float) -> str:
    return f"{'+' if share >= 0 else ''}{percent(share)}"
