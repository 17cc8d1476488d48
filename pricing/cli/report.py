"""`pricing report`: what a run's records say, as text, as JSON, or as one self-contained page."""

from __future__ import annotations

import textwrap
from fractions import Fraction
from pathlib import Path

import click

from pricing.cli.options import json_option
from pricing.cli.output import emit_json, say
from pricing.cli.progress import Progress
from pricing.formats.files import write_text_atomically
from pricing.records.metrics import binding_family
from pricing.records.record import Event, RecordError
from pricing.report.findings import Severity, findings_of
from pricing.report.run_report import RunReport, read_run
from pricing.report.words import gib, percent
from pricing.text import visible


@click.command(
    "report",
    help="""Say what the records in FOLDER tell about a run: what happened, what to do, how close it was.

    FOLDER is a recorder's spool. With --html the whole run becomes one page: price and observed peak of every wave
    against the budget, what decided each price, every refusal with its reason, and the table. The page needs no network
    and no script. With --plot the run over time becomes a picture: the use of the device wave by wave, and which waves
    were admitted, refused, out of memory, learned from.

    \b
    Example:
        pricing report records/ --html report.html
    """,
)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--html", "html_path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write the page here."
)
@click.option("--plot", metavar="FILE", help="Draw the use of the device wave by wave (.png, .svg, .pdf).")
@json_option
def command(folder: Path, html_path: Path | None, plot: str | None, as_json: bool) -> None:
    if not folder.is_dir():
        raise RecordError(f"{folder}: not a folder")
    with Progress("reading") as reading:
        report = read_run(folder, progress=reading.reached)
    if html_path is not None:
        from pricing.report.html import page

        with Progress("writing the page"):
            write_text_atomically(html_path, visible(page(report)))
    if plot is not None:
        from pricing.cli.report_plot import draw

        with Progress("drawing"):
            draw(report, plot)
    if as_json:
        emit_json(_to_json(report))
        return
    _tell(report)
    if html_path is not None:
        say(f"\nPage: {html_path}")
    if plot is not None:
        say(f"Picture: {plot}")


def _tell(report: RunReport) -> None:
    say(f"{report.title}: {_figures(report)}\n")
    for finding in findings_of(report):
        say(f"{finding.severity.upper():8} {finding.what[:1].upper()}{finding.what[1:]}.")
        say(textwrap.indent(textwrap.fill(finding.advice, 100), " " * 9))
    for text in report.unreadable[:10]:
        say(f"{Severity.NOTICE.upper():8} not read: {text}", err=True)


def _figures(report: RunReport) -> str:
    words = f"{report.ran:,} waves ran, {report.count(Event.REFUSED):,} refused"
    words += f", {report.count(Event.OUT_OF_MEMORY):,} out of memory"
    if report.further_tries:
        words += f" ({report.further_tries:,} ran in their place)"
    if report.median_over is not None:
        words += f", price over peak at the median {percent(report.median_over)}"
    if report.tightest is not None:
        words += f", least headroom {gib(report.tightest.headroom_bytes)}"
    return words


def _to_json(report: RunReport) -> dict[str, object]:
    tightest = report.tightest
    terms = [binding_family(wave.binding_term) for wave in report.waves]
    return {
        "title": report.title,
        "waves": len(report.waves),
        "ran": report.ran,
        "refused": report.count(Event.REFUSED),
        "out_of_memory": report.count(Event.OUT_OF_MEMORY),
        "further_tries": report.further_tries,
        "scored": len(report.scored),
        "under": len(report.under),
        "over_median": _number(report.median_over),
        "least_headroom_bytes": None if tightest is None else tightest.headroom_bytes,
        "binding_terms": {term: terms.count(term) for term in dict.fromkeys(terms)},
        "records": len(report.records),
        "replayed_equal": sum(1 for item in report.records if item.replays),
        "unreadable": list(report.unreadable),
        "findings": [
            {"severity": str(finding.severity), "what": finding.what, "advice": finding.advice}
            for finding in findings_of(report)
        ],
    }


def _number(share: Fraction | None) -> float | None:
    return None if share is None else float(share)
