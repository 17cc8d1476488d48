"""`pricing backtest`: recorded waves replayed under each law, as a table, as JSON, as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pricing.cli.options import COUNT, json_option, laws_option, safety_option
from pricing.cli.output import WIDE_COLUMNS, console, emit_json, percent_text, say
from pricing.cli.progress import Progress
from pricing.evidence.backtest import DEFAULT_SKIP, Backtest, Order, backtest, quantities_of
from pricing.evidence.trace import read_trace
from pricing.kernel.law import Law
from pricing.kernel.quantities import Safety
from pricing.text import visible

if TYPE_CHECKING:
    from rich.console import Console


@click.command("backtest")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@laws_option
@safety_option
@click.option("--skip", type=COUNT, default=DEFAULT_SKIP, help=f"Waves not scored at first. Default: {DEFAULT_SKIP}.")
@click.option(
    "--order",
    type=click.Choice([str(order) for order in Order]),
    default=str(Order.RECORDED),
    help="Order of replay. Default: as recorded.",
)
@click.option("--seed", type=COUNT, default=0, help="Seed of a shuffled order. Default: 0.")
@click.option("--plot", metavar="FILE", help="Draw price against observed peak, one panel a law (.png, .svg, .pdf).")
@json_option
def command(
    traces: tuple[str, ...],
    laws: tuple[Law, ...],
    safety: Safety,
    skip: int,
    order: str,
    seed: int,
    plot: str | None,
    as_json: bool,
) -> None:
    """Replay each TRACE under each law and say how far its prices lay from the peaks that were then observed.

    Wave by wave, in order: priced by the profile learned from the waves before it, then observed. `under` counts
    prices below the observed peak: waves that might have been admitted and run out of memory. The `over` figures are
    price / peak - 1. A trace whose waves each began with a released cache is scored twice: by the peak of what was
    allocated, and by the footprint, the peak of what was reserved.
    Exit code: 1 where no wave is scored, else 0.

    Example:

    \b
        pricing backtest spec/evidence/h200/*.jsonl --skip 3 --plot backtest.png
    """
    with Progress("reading", len(traces)) as reading:
        loaded = []
        for path in traces:
            loaded.append((path, read_trace(path)))
            reading.advance()
    results: list[Backtest] = []
    asked = [
        (path, waves, quantity, law) for path, waves in loaded for quantity in quantities_of(waves) for law in laws
    ]
    with Progress("replaying", sum(len(waves) for _, waves, _, _ in asked)) as progress:
        for path, waves, quantity, law in asked:
            progress.says(f"{Path(path).name}, {law.name}")
            results.append(
                backtest(
                    path,
                    waves,
                    law,
                    safety=safety,
                    quantity=quantity,
                    skip=skip,
                    order=Order(order),
                    seed=seed,
                    on_wave=progress.advance,
                )
            )
    if plot is not None:
        from pricing.cli.backtest_plot import draw

        with Progress("drawing"):
            draw(results, plot)
    if as_json:
        emit_json({"results": [result.to_json() for result in results]})
        _check_scored(results)
        return
    _print_table(console(), results)
    if plot is not None:
        say(f"Picture: {plot}")
    _check_scored(results)


def _check_scored(results: Sequence[Backtest]) -> None:
    """A replay that scored nothing has shown nothing: `under` is 0 of 0. Raises `click.ClickException`, exit code 1."""
    if not any(result.score.scored for result in results):
        skip = results[0].skip
        raise click.ClickException(f"no wave was scored: --skip {skip} leaves none of any trace. Give a smaller one.")


def _print_table(spoken: Console, results: Sequence[Backtest]) -> None:
    from rich.table import Table

    first = results[0]
    order = "" if first.order is Order.RECORDED else f", {first.order} order"
    table = Table(title=f"Price against observed peak, safety {first.safety}{order}", title_justify="left")
    for heading in ("trace", "peak of", "law"):
        table.add_column(heading, no_wrap=True)
    narrow = spoken.width < WIDE_COLUMNS
    always = ("scored", "under", "over: median", "max")
    for heading in always if narrow else ("scored", "under", "over: min", "median", "p95", "max", "median GiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    names = trace_names([result.trace for result in results])
    for at, result in enumerate(results):
        score = result.score
        opens_trace = at == 0 or results[at - 1].trace != result.trace
        opens_quantity = opens_trace or results[at - 1].quantity != result.quantity
        gib = "-" if score.over_gib_median is None else f"{float(score.over_gib_median):+,.2f}"
        median, most = percent_text(score.over_median), percent_text(score.over_max)
        wide = (percent_text(score.over_min), median, percent_text(score.over_p95), most, gib)
        table.add_row(
            names[result.trace] if opens_trace else "",
            str(result.quantity) if opens_quantity else "",
            result.law,
            f"{score.scored:,}",
            f"[bold red]{score.under:,}[/]" if score.under else "0",
            *((median, most) if narrow else wide),
            end_section=at + 1 == len(results) or results[at + 1].trace != result.trace,
        )
    spoken.print(table)
    spoken.print(
        "under: waves priced below the peak they reached. over: price / peak - 1, and price - peak in GiB.\n"
        f"Not scored: the first {'wave' if first.skip == 1 else f'{first.skip:,} waves'} of each trace."
        + ("\nLeft out at this width: over min, p95, and median GiB." if narrow else "")
    )


def trace_names(paths: Sequence[str]) -> dict[str, str]:
    """Short names of traces for people: the file's name, or the whole path where two files have the same."""
    stems = {path: Path(path).stem for path in paths}
    counts = Counter(stems.values())
    return {path: visible(stem if counts[stem] == 1 else path) for path, stem in stems.items()}
