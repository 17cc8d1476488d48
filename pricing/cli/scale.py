"""`pricing scale`: the frontier law's assumption tested on recorded waves."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import click

from pricing.cli.backtest import trace_names
from pricing.cli.options import PERCENT, json_option
from pricing.cli.output import console, emit_json, say
from pricing.cli.progress import Progress
from pricing.evidence.backtest import quantities_of
from pricing.evidence.scale import Miss, ScaleTest, scale_test
from pricing.evidence.trace import read_trace
from pricing.kernel.price import Quantity


@click.command("scale")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--at-most",
    metavar="PERCENT",
    type=PERCENT,
    help="Exit with 1 if the worst miss with charges, in percent, is above this on any trace.",
)
@click.option(
    "--quantity",
    type=click.Choice([str(quantity) for quantity in Quantity]),
    help="Only peaks of what was allocated, or only footprints. Default: what each trace has.",
)
@json_option
def command(traces: tuple[str, ...], at_most: Fraction | None, quantity: str | None, as_json: bool) -> None:
    """Test assumption SCALE on each TRACE: how far any wave lay above what another wave bounds it by.

    A trace whose waves each began with a released cache is tested twice: by the peaks of what was allocated, and by
    the footprints, which fragmentation makes rougher.

    `scaling` is the worst miss by scaling alone, `charged` with the charges for logical rows and segments that packed
    prices add. `lifted` counts waves that were priced while some reading contradicted a bound (rho > 1), `raised` those
    whose own price that raised, and `most` is the largest lift of a bound.

    Example:

    \b
        pricing scale spec/evidence/h200/*.jsonl
    """
    results = []
    with Progress("testing", len(traces)) as progress:
        for path in traces:
            waves = read_trace(path)
            for asked in quantities_of(waves) if quantity is None else (Quantity(quantity),):
                results.append((path, asked, scale_test(waves, asked)))
            progress.advance()
    if as_json:
        emit_json(
            {
                "results": [
                    {"trace": path, "quantity": str(asked), **scale_to_json(result)} for path, asked, result in results
                ]
            }
        )
    else:
        _print_table(results)
    if at_most is not None and any(_is_above(result, at_most) for _, _, result in results):
        raise click.exceptions.Exit(1)


def scale_to_json(result: ScaleTest) -> dict[str, object]:
    """One trace's figures; shares as the nearest doubles, in percent."""
    return {
        "waves": result.waves,
        "scaling": _miss_to_json(result.scaling),
        "charged": _miss_to_json(result.charged),
        "lifted_waves": result.lifted_waves,
        "raised_waves": result.raised_waves,
        "most_lifted_percent": float(100 * result.most_lifted),
    }


def _miss_to_json(miss: Miss | None) -> dict[str, object] | None:
    if miss is None:
        return None
    return {"worst_percent": float(100 * miss.share), "above": miss.above, "bounded_by": miss.bounded_by}


def _is_above(result: ScaleTest, percent: Fraction) -> bool:
    return result.charged is not None and 100 * result.charged.share > percent


def _print_table(results: Sequence[tuple[str, Quantity, ScaleTest]]) -> None:
    from rich.table import Table

    table = Table(title="Assumption SCALE: worst miss, as a share of the bound", title_justify="left")
    table.add_column("trace", no_wrap=True)
    table.add_column("peak of", no_wrap=True)
    for heading in ("waves", "scaling", "at wave", "charged", "at wave", "lifted", "raised", "most"):
        table.add_column(heading, justify="right", no_wrap=True)
    names = trace_names([path for path, _, _ in results])
    for path, asked, result in results:
        table.add_row(
            names[path],
            str(asked),
            f"{result.waves:,}",
            *_miss_cells(result.scaling),
            *_miss_cells(result.charged),
            f"{result.lifted_waves:,}",
            f"{result.raised_waves:,}",
            f"{float(100 * result.most_lifted):.3f} %",
        )
    console().print(table)
    say("A miss of 0 % or less: no wave lay above any bound. `at wave`: index of the wave, by that of its bound.")


def _miss_cells(miss: Miss | None) -> tuple[str, str]:
    if miss is None:
        return "-", "-"
    return f"{float(100 * miss.share):+.3f} %", f"{miss.above} by {miss.bounded_by}"
