"""The picture of a backtest: price against observed peak, one panel a law. Needs matplotlib (the `plot` extra).

Both axes are logarithmic and alike, so a law's over-estimate is a distance from the diagonal and the same factor is the
same distance everywhere. Below the diagonal lies what must not happen: a price under the peak. A trace has
one colour and marker; what it took of the device, its footprints, is hollow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pricing.cli.backtest import trace_names
from pricing.cli.output import percent_text, require_picture_ending
from pricing.evidence.backtest import Backtest, ReplayedWave
from pricing.kernel.errors import PricingError
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import Quantity
from pricing.kernel.quantities import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Told apart with every common colour blindness (Okabe and Ito); markers differ as well."""
MARKERS: Final = "os^Dv<>"
UNDER_COLOUR: Final = "#B00020"
PANEL_INCHES: Final = 4.6
LEFT_INCHES: Final = 0.95
RIGHT_INCHES: Final = 0.2
BOTTOM_INCHES: Final = 1.0
TITLE_INCHES: Final = 0.8
GAP_INCHES: Final = 0.2
NARROWEST: Final = 0.6
"""A panel is at least so wide for its height, so that its title fits."""

Limits = tuple[float, float]


def draw(results: Sequence[Backtest], path: str) -> None:
    """Draw `results` into `path`; the ending says the format. Raises `PricingError` for an unknown one, `OSError`."""
    require_picture_ending(path)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    laws = list(dict.fromkeys(result.law for result in results))
    columns = len(laws) if len(laws) <= 4 else math.ceil(math.sqrt(len(laws)))
    rows = math.ceil(len(laws) / columns)
    across, up = _limits(results)
    figure, panels = pyplot.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    _lay_out(figure, rows, columns, math.log(across[1] / across[0]) / math.log(up[1] / up[0]))
    try:
        for at, law in enumerate(laws):
            panel = panels[at // columns][at % columns]
            _draw_panel(panel, law, [result for result in results if result.law == law], across, up)
            if at % columns == 0:
                panel.set_ylabel("price, before the wave ran")
            if at + columns >= len(laws):
                panel.set_xlabel("observed peak")
        for spare in range(len(laws), rows * columns):
            panels[spare // columns][spare % columns].set_axis_off()
        first = results[0]
        title = f"Price against observed peak, one dot a wave (safety {first.safety}, {first.order} order)"
        figure.suptitle(title, y=1 - 0.12 / figure.get_figheight(), va="top")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=min(len(labels), 5), frameon=False)
        figure.savefig(path, dpi=130)
    except ValueError as error:
        raise PricingError(f"cannot draw {path}: {error}") from error
    finally:
        pyplot.close(figure)


def _lay_out(figure: Figure, rows: int, columns: int, width_share: float) -> None:
    """Give every panel the shape of its axes (both are logarithmic and alike), and room for words around them."""
    height = PANEL_INCHES
    width = height * width_share
    inner_width = columns * width + (columns - 1) * GAP_INCHES
    inner_height = rows * height + (rows - 1) * TITLE_INCHES
    total_width = LEFT_INCHES + inner_width + RIGHT_INCHES
    total_height = BOTTOM_INCHES + inner_height + TITLE_INCHES + 0.3
    figure.set_size_inches(total_width, total_height)
    figure.subplots_adjust(
        left=LEFT_INCHES / total_width,
        right=1 - RIGHT_INCHES / total_width,
        bottom=BOTTOM_INCHES / total_height,
        top=(BOTTOM_INCHES + inner_height) / total_height,
        wspace=GAP_INCHES / width,
        hspace=TITLE_INCHES / height,
    )


def _draw_panel(panel: Axes, law: str, results: Sequence[Backtest], across: Limits, up: Limits) -> None:
    low, high = min(across[0], up[0]), max(across[1], up[1])
    panel.set(xscale="log", yscale="log", xlim=across, ylim=up, aspect="equal")
    panel.fill_between([low, high], [low, high], low, color=UNDER_COLOUR, alpha=0.08, linewidth=0)
    panel.plot([low, high], [low, high], color="#444444", linewidth=1)
    for factor in (2, 4, 8):
        panel.plot([low, high], [factor * low, factor * high], color="#BBBBBB", linewidth=0.7, linestyle=":")
        at = across[0] * 1.2
        panel.annotate(f"{factor}x", (at, at * factor), color="#777777", fontsize=8, ha="center", va="bottom")
    panel.annotate("price under the peak", (across[1] / 1.1, up[0] * 1.15), color=UNDER_COLOUR, fontsize=9, ha="right")
    at_equal = across[1] / 1.6
    panel.annotate("price = peak", (at_equal, at_equal / 1.04), fontsize=8, rotation=45, ha="center", va="top")
    traces = list(dict.fromkeys(result.trace for result in results))
    names = trace_names(traces)
    for result in results:
        waves, at = result.waves[result.skip :], traces.index(result.trace)
        is_footprint = result.quantity is Quantity.FOOTPRINT
        colour = COLOURS[at % len(COLOURS)]
        hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": colour, "linewidths": 0.9}
        panel.scatter(
            *_points(waves),
            s=22,
            alpha=0.75,
            marker=MARKERS[at % len(MARKERS)],
            **(hollow if is_footprint else {"color": colour, "linewidths": 0}),
            label=names[result.trace] + (", footprint" if is_footprint else ""),
            zorder=3,
        )
        under = [wave for wave in waves if wave.is_under]
        panel.scatter(*_points(under), s=70, marker="x", color=UNDER_COLOUR, linewidths=1.6, zorder=4)
    panel.set_title(_panel_title(law, results), fontsize=10)
    _label_axis(panel.xaxis, across)
    _label_axis(panel.yaxis, up)
    panel.tick_params(labelsize=8)


def _panel_title(law: str, results: Sequence[Backtest]) -> str:
    """The law and, in words, how it did over all its traces."""
    medians = [result.score.over_median for result in results if result.score.over_median is not None]
    under = sum(result.score.under for result in results)
    scored = sum(result.score.scored for result in results)
    default = " (default)" if law == DEFAULT_LAW.name else ""
    if not medians:
        return f"{law}{default}\nno wave scored"
    low, high = percent_text(min(medians)), percent_text(max(medians))
    middle = low if low == high else f"{low} to {high}"
    return f"{law}{default}\nmedian {middle}\n{under} of {scored} under the peak"


def _points(waves: Sequence[ReplayedWave]) -> tuple[list[float], list[float]]:
    return [wave.peak_bytes / GIB for wave in waves], [wave.price_bytes / GIB for wave in waves]


def _limits(results: Sequence[Backtest]) -> tuple[Limits, Limits]:
    """The range of peaks and that of prices and peaks, in GiB, with room around. Both begin alike."""
    waves = [wave for result in results for wave in result.waves[result.skip :]]
    peaks = [wave.peak_bytes / GIB for wave in waves] or [1]
    prices = [wave.price_bytes / GIB for wave in waves if wave.price_bytes > 0]
    lowest = min(peaks + prices) / 1.4
    highest = max(peaks + prices) * 1.4
    return (lowest, max(max(peaks) * 1.4, lowest * (highest / lowest) ** NARROWEST)), (lowest, highest)


def _label_axis(axis: Axis, limits: Limits) -> None:
    """Powers of two in GiB (every second or third where there are many), written as people write them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    first, last = math.ceil(math.log2(limits[0])), math.floor(math.log2(limits[1]))
    step = max(1, math.ceil((last - first) / 8))

    def written(value: float, _position: object = None) -> str:
        return f"{value:g} GiB" if value >= 1 else f"{value * 1024:g} MiB"

    axis.set_major_locator(FixedLocator([2.0**power for power in range(first, last + 1, step)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(written))
