"""The picture of a plan: what each wave is priced at against the budget, and the rows it runs.

Above, the price: nothing that runs may cross the budget line, and what is left under it is headroom. Below, the rows:
solid what the wave runs, pale what sharing saves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pricing.cli.output import require_picture_ending
from pricing.kernel.errors import PricingError
from pricing.kernel.quantities import GIB
from pricing.planner.plan import BatchPlan, Verdict, WavePlan
from pricing.text import gib_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = {
    Verdict.RUN: "#0072B2",
    Verdict.COLD_START: "#56B4E9",
    Verdict.PROBE: "#E69F00",
    Verdict.SPLIT: "#CC79A7",
    Verdict.REFUSE: "#B00020",
}
"""Told apart with every common colour blindness (Okabe and Ito); refusals are hatched as well."""
PACKED_COLOUR: Final = "#009E73"
SAVED_COLOUR: Final = "#CCCCCC"
BUDGET_COLOUR: Final = "#222222"
MAX_LABELLED_WAVES: Final = 60
HEADROOM_FACTOR: Final = 1.2
"""The price axis ends this far above the budget; a bar that goes on beyond it says its price."""
BOUNDS_INCHES: Final = (6.0, 16.0)


def draw(plan: BatchPlan, budget_bytes: int, path: str) -> None:
    """Draw `plan` into `path`; the ending says the format. Raises `PricingError` for an unknown one, `OSError`."""
    require_picture_ending(path)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    least, most = BOUNDS_INCHES
    width_inches = min(most, max(least, 2.5 + 0.35 * len(plan.waves)))
    figure, (prices, rows) = pyplot.subplots(
        2, 1, figsize=(width_inches, 6.4), sharex=True, layout="constrained", height_ratios=(3, 2)
    )
    try:
        _draw_prices(prices, plan.waves, budget_bytes)
        _draw_rows(rows, plan.waves)
        refused = len(plan.refused)
        said = f"{len(plan.waves) - refused} waves" + (f", {refused} refused" if refused else "")
        figure.suptitle(said + (f"; {plan.unplanned_items:,} items not planned" if plan.unplanned_items else ""))
        drawn = [axes.get_legend_handles_labels() for axes in (prices, rows)]
        handles, labels = ([*of_prices, *of_rows] for of_prices, of_rows in zip(*drawn, strict=True))
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False, fontsize=9)
        figure.savefig(path, dpi=130)
    except ValueError as error:
        raise PricingError(f"cannot draw {path}: {error}") from error
    finally:
        pyplot.close(figure)


def _draw_prices(axes: Axes, waves: Sequence[WavePlan], budget_bytes: int) -> None:
    within = [wave.required_bytes for wave in waves if wave.required_bytes <= budget_bytes]
    top = HEADROOM_FACTOR * max([budget_bytes, *within, 1]) / GIB
    for verdict, colour in COLOURS.items():
        numbers = [number for number, wave in enumerate(waves, start=1) if wave.verdict is verdict]
        heights = [min(top, waves[number - 1].required_bytes / GIB) for number in numbers]
        if numbers:
            hatch = "//" if verdict is Verdict.REFUSE else None
            label = str(verdict).replace("_", " ")
            axes.bar(numbers, heights, color=colour, hatch=hatch, edgecolor="white", linewidth=0.5, label=label)
    axes.axhline(budget_bytes / GIB, color=BUDGET_COLOUR, linestyle="--", label=f"budget {gib_text(budget_bytes)}")
    for number, wave in enumerate(waves, start=1):
        price_gib = wave.required_bytes / GIB
        if price_gib > top:
            box = {"facecolor": COLOURS[wave.verdict], "edgecolor": "none", "pad": 2}
            said, place = f"{gib_text(wave.required_bytes)} >", (number, 0.97 * top)
            axes.annotate(said, place, rotation=90, ha="center", va="top", fontsize=8, color="white", bbox=box)
        elif len(waves) <= MAX_LABELLED_WAVES:
            is_tall = price_gib > 0.1 * top
            above, colour = ("top", "white") if is_tall else ("bottom", "#444444")
            place, shift = (number, price_gib), (0, -1)
            axes.annotate(
                f"{wave.width}",
                place,
                shift,
                textcoords="offset points",
                ha="center",
                va=above,
                fontsize=8,
                color=colour,
            )
    labelled = "; on each bar its items" if len(waves) <= MAX_LABELLED_WAVES else ""
    axes.set_ylabel(f"price (GiB){labelled}")
    axes.set_ylim(0, top)


def _draw_rows(axes: Axes, waves: Sequence[WavePlan]) -> None:
    """Rows of what runs. A refused item has no bar: it runs no row, and its rows may dwarf all others."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    numbers = [number for number, wave in enumerate(waves, start=1) if wave.runs]
    packed = [wave.wave.packed_rows for wave in waves if wave.runs]
    saved = [max(0, wave.wave.logical_rows - wave.wave.packed_rows) for wave in waves if wave.runs]
    axes.bar(numbers, packed, color=PACKED_COLOUR, edgecolor="white", linewidth=0.5, label="packed rows")
    axes.bar(
        numbers,
        saved,
        bottom=packed,
        color=SAVED_COLOUR,
        edgecolor="white",
        linewidth=0.5,
        label="rows saved by sharing",
    )
    axes.set_ylabel("rows")
    axes.set_xlabel("wave")
    axes.set_xlim(0.3, len(waves) + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rows, _position: f"{rows:,.0f}"))
