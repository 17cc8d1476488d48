"""The picture of a run over time: use of the device wave by wave, and what happened to the waves.

For each name two panels: above, pale what a wave was admitted with and solid what it used, as shares of its budget;
below, one lane each for admitted, refused, out of memory and learned. Many waves are drawn in blocks, and the picture
says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pricing.cli.output import require_picture_ending
from pricing.kernel.errors import PricingError
from pricing.records.record import Event
from pricing.report.blocks import LANES, Block, blocks_of, lanes_of
from pricing.report.run_report import RunReport, Series
from pricing.report.words import counted
from pricing.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ADMITTED_COLOUR: Final = "#A9CBE6"
USED_COLOUR: Final = "#0072B2"
BUDGET_COLOUR: Final = "#222222"
LANE_COLOURS: Final = {"admitted": "#0072B2", "refused": "#B36B00", "out of memory": "#B00020", "learned": "#009E73"}
"""Told apart with every common colour blindness, and by their place."""
MOST_BLOCKS: Final = 240
MOST_SHARE: Final = 1.15
MOST_GAPS: Final = 80
"""Of more blocks the gaps would be a pixel or none, which looks like a pattern."""
MAX_SERIES: Final = 8
SERIES_INCHES: Final = 4.2


def draw(report: RunReport, path: str) -> None:
    """Draw `report` into `path`; the ending says the format. Raises `PricingError` for an unknown one or for a run of
    no wave, and `OSError`.
    """
    require_picture_ending(path)
    if not report.series:
        raise PricingError(f"cannot draw {path}: no wave was recorded")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    series = sorted(report.series, key=lambda one: -sum(wave.event in _TROUBLE for wave in one.waves))[:MAX_SERIES]
    figure, panels = pyplot.subplots(
        2 * len(series),
        1,
        squeeze=False,
        figsize=(11, 0.7 + SERIES_INCHES * len(series)),
        layout="constrained",
        height_ratios=(3, 1.2) * len(series),
    )
    try:
        for at, one in enumerate(series):
            blocks = blocks_of(one.waves, MOST_BLOCKS)
            _draw_use(panels[2 * at][0], one, blocks)
            _draw_lanes(panels[2 * at + 1][0], blocks)
        left_out = len(report.series) - len(series)
        title = f"Use of the device over {counted(len(report.waves), 'wave')}: {visible(report.title)}"
        figure.suptitle(title + (f" ({left_out} more names not drawn)" if left_out else ""), parse_math=False)
        figure.legend(
            *panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=9
        )
        figure.savefig(path, dpi=130)
    except ValueError as error:
        raise PricingError(f"cannot draw {path}: {error}") from error
    finally:
        pyplot.close(figure)


_TROUBLE: Final = (Event.REFUSED, Event.OUT_OF_MEMORY)


def _draw_use(axes: Axes, series: Series, blocks: Sequence[Block]) -> None:
    from matplotlib.ticker import PercentFormatter

    starts = [block.start for block in blocks]
    share_drawn = 0.86 if len(blocks) <= MOST_GAPS else 1.0
    widths = [share_drawn * (block.stop - block.start) for block in blocks]
    for label, colour, shares in (
        ("admitted with", ADMITTED_COLOUR, [block.price_share() for block in blocks]),
        ("used (footprint, else peak)", USED_COLOUR, [block.use_share() for block in blocks]),
    ):
        heights = [min(share or 0.0, MOST_SHARE) for share in shares]
        axes.bar(starts, heights, width=widths, align="edge", color=colour, label=label)
    axes.axhline(1, color=BUDGET_COLOUR, linestyle="--", label="budget")
    for event, marker, label in ((Event.REFUSED, "x", "refused"), (Event.OUT_OF_MEMORY, "^", "out of memory")):
        shares_of = {
            (block.start + block.stop) / 2: max(_share(block, event)) for block in blocks if any(_share(block, event))
        }
        axes.plot(
            list(shares_of), list(shares_of.values()), marker, color=LANE_COLOURS[label], markersize=7, label=label
        )
    for start in series.starts[1:]:
        axes.axvline(start, color=BUDGET_COLOUR, linestyle=":", linewidth=1)
    size = len(blocks[0].waves)
    words = f"{visible(series.label)}: {counted(len(series.waves), 'wave')}"
    if len(series.processes) > 1:
        words += f" of {len(series.processes)} processes (dotted: another begins)"
    if size > 1:
        words += f"; {len(blocks)} blocks of {size:,}, of each the highest"
    axes.set_title(words, loc="left", fontsize=10, parse_math=False)
    axes.set_ylim(0, 1.06 * MOST_SHARE)
    axes.set_xlim(0, blocks[-1].stop)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylabel("of the budget")
    axes.tick_params(labelbottom=False)


def _share(block: Block, event: Event) -> list[float]:
    """What each wave of an event was priced at, as shares of their budgets, as far as the picture goes."""
    return [
        min(wave.estimate_bytes / wave.available_bytes, MOST_SHARE) if wave.available_bytes > 0 else MOST_SHARE
        for wave in block.waves
        if wave.event is event
    ]


def _draw_lanes(axes: Axes, blocks: Sequence[Block]) -> None:
    from matplotlib.ticker import MaxNLocator

    for at, name in enumerate(LANES):
        shares = [sum(name in lanes_of(wave) for wave in block.waves) / len(block.waves) for block in blocks]
        spans = [(block, share) for block, share in zip(blocks, shares, strict=True) if share]
        axes.broken_barh(
            [(block.start, block.stop - block.start) for block, _ in spans],
            (-at - 0.36, 0.72),
            facecolors=[(LANE_COLOURS[name], 0.3 + 0.7 * share) for _, share in spans],
        )
    counts = [sum(name in lanes_of(wave) for block in blocks for wave in block.waves) for name in LANES]
    axes.set_yticks(
        [-at for at in range(len(LANES))],
        [f"{name} ({count:,})" for name, count in zip(LANES, counts, strict=True)],
        fontsize=9,
    )
    axes.set_ylim(-len(LANES) + 0.5, 0.5)
    axes.set_xlim(0, blocks[-1].stop)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("wave, in the order recorded")
