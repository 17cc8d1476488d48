"""The charts of a run's page as inline SVG: use of the device, price against observed peak, lanes, one price in parts.

No script and no network; colours come from the page's style sheet, so they follow light and dark. Shape says what
colour says: a dash is a price, a dot is what was observed, a cross was refused, a triangle ran out of memory.

A chart has no view box: across, everything stands at a share of the width, and heights and letters are pixels. So one
drawing serves a screen and a phone, and no letter shrinks. Only lines and areas stretch, in a layer that keeps the
width of their strokes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from typing import Final

from pricing.records.metrics import WaveSummary
from pricing.records.record import DecisionRecord, Event
from pricing.report.blocks import Block, is_priced
from pricing.report.run_report import Series
from pricing.report.words import counted, gib, percent, unit_of

AXIS_WIDTH: Final = 58
TOP: Final = 26
PLOT_HEIGHT: Final = 260
NUMBERS_HEIGHT: Final = 40
STRIP_HEIGHT: Final = 12
LAYER_WIDTH: Final = 1_000

NUMBERED: Final = 8
"""Wave numbers below a chart; on a phone every second is hidden."""

LOG_RATIO: Final = 16
"""Where the largest figure is so many times the median observed peak, the axis is logarithmic."""

MOST_SHARE: Final = 1.15
"""The picture of use ends there; what goes beyond is drawn as far."""

Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Axis:
    """A vertical axis: from a figure to y, its ticks with their labels, and its unit in words."""

    y: Scale
    ticks: tuple[tuple[float, str], ...]
    unit: str


# --- charts ----------------------------------------------------------------------------------------------------------


def use_chart(series: Series, blocks: Sequence[Block], identifier: str) -> str:
    """What each wave was admitted with and what it used, as shares of its budget."""
    axis = _share_axis()
    total = blocks[-1].stop
    parts = [*_grid(axis)]
    for block in blocks:
        room = 100 * len(block.waves) / total
        left, width = 100 * block.start / total + 0.1 * room, 0.8 * room
        bars = []
        for kind, share in (("admitted", block.price_share()), ("used", block.use_share())):
            if share is not None:
                top = axis.y(share)
                bars.append(
                    f'<rect class="{kind}" x="{left:.2f}%" width="{width:.2f}%" y="{top:.1f}" '
                    f'height="{axis.y(0) - top:.1f}"/>'
                )
        if bars:
            parts.append(f"<g><title>{escape(_told_use(block))}</title>{''.join(bars)}</g>")
    parts.append(f'<line class="budget" x1="0" x2="100%" y1="{axis.y(1):.1f}" y2="{axis.y(1):.1f}"/>')
    parts += _starts(series, total)
    parts += _troubles(blocks, lambda wave: axis.y(_share(wave)), with_under=False)
    parts += _wave_numbers(blocks)
    used = [share for block in blocks if (share := block.use_share()) is not None]
    described = f"{counted(total, 'wave')}; the most that a wave used of its budget is {percent(max(used, default=0))}"
    return _chart(identifier, f"Use of the device, {series.label}", f"{described}. {_in_words(series)}", axis, parts)


def price_chart(series: Series, blocks: Sequence[Block], identifier: str) -> str:
    """Price and observed peak of each wave, with the budget it was held against."""
    axis = _axis_of(blocks)
    total = blocks[-1].stop
    budget = _steps([(_middle(block, total), axis.y(block.available_bytes)) for block in blocks])
    parts = [
        _layer(f'<path class="over" d="{budget}V{TOP}H0z"/>'),
        *_grid(axis),
        _layer(f'<path class="budget" fill="none" d="{budget}"/>'),
        *_starts(series, total),
    ]
    single = all(len(block.waves) == 1 for block in blocks)
    parts += _marks(blocks, axis) if single else _lines(blocks, axis)
    parts += _troubles(blocks, lambda wave: axis.y(wave.estimate_bytes), with_under=True, axis=axis)
    parts += _wave_numbers(blocks)
    described = f"{_in_words(series)} Vertical axis in {axis.unit}. All figures are in the table."
    return _chart(identifier, f"Price and observed peak, {series.label}", described, axis, parts)


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of events over time: its name, in how many waves it was so, and a strip that shows where."""

    name: str
    count: int
    strip: str


def lanes(
    blocks: Sequence[Block], names_of: Callable[[WaveSummary], Iterable[str]], order: Sequence[str]
) -> list[Lane]:
    """A lane for each name that `names_of` gives a wave: those of `order` first, the others as they come."""
    counts = [Counter(name for wave in block.waves for name in names_of(wave)) for block in blocks]
    names = dict.fromkeys([*order, *(name for count in counts for name in count)])
    return [
        Lane(name, sum(count[name] for count in counts), _strip(blocks, [count[name] for count in counts], name))
        for name in names
    ]


def _strip(blocks: Sequence[Block], counts: Sequence[int], name: str) -> str:
    """Where a lane is true: a bar over the blocks in which it is, paler where it is so of fewer of their waves."""
    total = blocks[-1].stop
    drawn = []
    tenths = [-(-10 * count // len(block.waves)) for block, count in zip(blocks, counts, strict=True)]
    for depth, run in groupby(zip(blocks, tenths, counts, strict=True), key=lambda item: item[1]):
        stretch = list(run)
        if not depth:
            continue
        first, last = stretch[0][0], stretch[-1][0]
        width = max(0.4, 100 * (last.stop - first.start) / total)
        left = min(100 * first.start / total, 100 - width)
        opacity = "" if depth == 10 else f' fill-opacity="{0.25 + 0.075 * depth:.2f}"'
        waves = sum(count for _, _, count in stretch)
        told = f"{_range_text(first.waves[0].index, last.waves[-1].index)}: {name}"
        told += f" in {waves}" if depth < 10 else ""
        drawn.append(
            f'<rect class="bound" x="{left:.2f}%" y="0" width="{width:.2f}%" height="{STRIP_HEIGHT}"{opacity}>'
            f"<title>{escape(told)}</title></rect>"
        )
    return f'<svg class="strip" height="{STRIP_HEIGHT}" aria-hidden="true">{"".join(drawn)}</svg>'


def parts_bar(record: DecisionRecord, identifier: str) -> str:
    """One price as a bar of its parts, with the budget as a line across it."""
    parts = price_parts(record)
    required, available = record.price.required_bytes, max(0, record.available_bytes)
    largest = max(required, available, 1) * 1.02

    def x(size: float) -> float:
        return 100 * size / largest

    drawn, start = [], 0
    for name, size in parts:
        drawn.append(
            f'<rect class="{PART_CLASSES[name]}" x="{x(start):.2f}%" y="22" width="{x(size):.2f}%" '
            f'height="26"><title>{escape(name)}: {gib(size)}</title></rect>'
        )
        start += size
    for words, size, at, ends in (("budget", available, 14, (16, 54)), ("price", required, 66, (48, 54))):
        anchor = "end" if x(size) > 50 else "start"
        said = record.available_bytes if words == "budget" else required
        drawn.append(f'<line class="{words}" x1="{x(size):.2f}%" x2="{x(size):.2f}%" y1="{ends[0]}" y2="{ends[1]}"/>')
        drawn.append(
            f'<text class="label" x="{x(size):.2f}%" y="{at}" text-anchor="{anchor}">{words} {gib(said)}</text>'
        )
    described = ", ".join(f"{name} {gib(size)}" for name, size in parts)
    return _plot(identifier, 70, "Price in parts against the budget", described, drawn)


PART_CLASSES: Final = {
    "outputs": "part-outputs",
    "floor": "part-model",
    "model memory": "part-model",
    "logical rows": "part-rows",
    "segments": "part-segments",
    "safety": "part-safety",
    "footprint not read yet": "part-footprint",
}


def price_parts(record: DecisionRecord) -> list[tuple[str, int]]:
    """The parts of a price that is no split's, in bytes; they add up to it. Parts of 0 are left out."""
    price = record.price
    charges = price.logical_charge_bytes + price.segment_charge_bytes
    binds_by_floor = price.binding_term in ("floor", "cold")
    parts = [
        ("outputs", price.output_bytes),
        ("floor" if binds_by_floor else "model memory", price.compute_bytes - (0 if binds_by_floor else charges)),
        ("logical rows", 0 if binds_by_floor else price.logical_charge_bytes),
        ("segments", 0 if binds_by_floor else price.segment_charge_bytes),
    ]
    unread = 0 if price.learned or price.other is None else price.required_bytes - price.other.required_bytes
    parts.append(("safety", price.required_bytes - unread - sum(size for _, size in parts)))
    parts.append(("footprint not read yet", unread))
    return [(name, size) for name, size in parts if size > 0]


# --- marks -----------------------------------------------------------------------------------------------------------


def _marks(blocks: Sequence[Block], axis: Axis) -> Iterator[str]:
    """A dash for the price, a dot for the peak, a stem between them. A cold price promises nothing and is not drawn."""
    total = blocks[-1].stop
    half = min(1.0, 38 / total)
    for block in blocks:
        (wave,) = block.waves
        if wave.event is Event.REFUSED:
            continue
        centre, top = 100 * _middle(block, total), axis.y(wave.estimate_bytes)
        parts = [f"<title>{escape(_told(wave))}</title>"]
        if wave.observed_bytes is not None:
            bottom = axis.y(wave.observed_bytes)
            if is_priced(wave):
                ends = f'y1="{top:.1f}" y2="{bottom:.1f}"'
                parts.append(f'<line class="stem" x1="{centre:.2f}%" x2="{centre:.2f}%" {ends}/>')
            parts.append(f'<circle class="observed" cx="{centre:.2f}%" cy="{bottom:.1f}" r="3.4"/>')
        if is_priced(wave):
            ends = f'x1="{centre - half:.2f}%" x2="{centre + half:.2f}%"'
            parts.append(f'<line class="price" {ends} y1="{top:.1f}" y2="{top:.1f}"/>')
        yield f"<g>{''.join(parts)}</g>"


def _lines(blocks: Sequence[Block], axis: Axis) -> Iterator[str]:
    total = blocks[-1].stop
    priced = [(_middle(block, total), axis.y(block.price_bytes)) for block in blocks if block.price_bytes is not None]
    seen = [(_middle(block, total), axis.y(size)) for block in blocks if (size := block.observed_bytes) is not None]
    for kind, points in (("price", priced), ("observed", seen)):
        if points:
            path = " ".join(f"{LAYER_WIDTH * x:.1f} {y:.1f}" for x, y in points)
            yield _layer(f'<path class="{kind}" fill="none" d="M{path}"/>')


def _troubles(
    blocks: Sequence[Block], y_of: Callable[[WaveSummary], float], *, with_under: bool, axis: Axis | None = None
) -> Iterator[str]:
    """Refusals, waves that ran out of memory, and peaks above their price; drawn last, so that nothing hides them.

    One mark of a kind in a block: it says how many it stands for.
    """
    total = blocks[-1].stop
    for block in blocks:
        x = 100 * _middle(block, total)
        for kind, event in (("refused", Event.REFUSED), ("failed", Event.OUT_OF_MEMORY)):
            those = [wave for wave in block.waves if wave.event is event]
            if those:
                yield _mark(kind, x, y_of(max(those, key=lambda wave: wave.estimate_bytes)), those)
        under = [wave for wave in block.waves if with_under and wave.is_under]
        if under and axis is not None:
            peak = max(wave.observed_bytes or 0 for wave in under)
            yield _mark("under", x, axis.y(peak), under)


def _mark(kind: str, x: float, y: float, waves: Sequence[WaveSummary]) -> str:
    told = _told(waves[0]) if len(waves) == 1 else f"{len(waves):,} waves, the first: {_told(waves[0])}"
    return f'<use href="#mark-{kind}" x="{x:.2f}%" y="{y:.1f}"><title>{escape(told)}</title></use>'


def _told(wave: WaveSummary) -> str:
    """One wave in a line: what a pointer resting on it shows."""
    words = f"wave {wave.index}, {str(wave.event).replace('_', ' ')}: price {gib(wave.estimate_bytes)}"
    if wave.observed_bytes is not None:
        words += f", observed {gib(wave.observed_bytes)}"
    if wave.over_fraction is not None:
        words += f" ({'+' if wave.over_fraction >= 0 else ''}{percent(wave.over_fraction)})"
    return f"{words}, budget {gib(wave.available_bytes)}, {wave.packed_rows:,} packed rows, {wave.binding_term}"


def _told_use(block: Block) -> str:
    words = _range_text(block.waves[0].index, block.waves[-1].index)
    for name, share in (("admitted at", block.price_share()), ("used", block.use_share())):
        words += "" if share is None else f", {name} {percent(share)}"
    return f"{words} of the budget"


def _in_words(series: Series) -> str:
    """The chart in a sentence or two, for those who do not see it."""
    waves = series.waves
    seen = [wave for wave in waves if wave.observed_bytes is not None]
    under = sum(wave.is_under for wave in seen)
    words = f"{counted(len(waves), 'wave')}; {under} of {len(seen)} observed above their price"
    for event, name in ((Event.REFUSED, "refused"), (Event.OUT_OF_MEMORY, "out of memory")):
        those = [str(wave.index) for wave in waves if wave.event is event]
        if those:
            words += f"; {name}: {', '.join(those[:20])}{', ...' if len(those) > 20 else ''}"
    return f"{words}."


# --- axes ------------------------------------------------------------------------------------------------------------


def _share(wave: WaveSummary) -> float:
    return wave.estimate_bytes / wave.available_bytes if wave.available_bytes > 0 else MOST_SHARE


def _share_axis() -> Axis:
    def y(share: float) -> float:
        return TOP + PLOT_HEIGHT * (1 - min(max(share, 0.0), MOST_SHARE) / MOST_SHARE)

    return Axis(y, tuple((quarter / 4, f"{25 * quarter} %") for quarter in range(5)), "of the budget")


def _axis_of(blocks: Sequence[Block]) -> Axis:
    observed = sorted(size for block in blocks if (size := block.observed_bytes))
    prices = [price for block in blocks if (price := block.price_bytes) is not None]
    refused = [
        wave.estimate_bytes
        for block in blocks
        for wave in block.waves
        if wave.event is Event.REFUSED and not wave.is_cold
    ]
    budgets = [max(0, max(wave.available_bytes for wave in block.waves)) for block in blocks]
    shown = [*prices, *refused, *budgets, *observed]
    largest = max(max(shown, default=0), 1)
    typical = observed[len(observed) // 2] if observed else largest
    if largest > LOG_RATIO * typical:
        smallest = min((size for size in shown if size > 0), default=1)
        return _log_axis(max(smallest, largest / 1e5), largest)
    return linear_axis(largest)


def linear_axis(largest: float) -> Axis:
    """An axis from 0 to just above `largest` bytes, in the unit that suits it."""
    unit, name = unit_of(largest)
    step = _nice_step(largest / unit / 5) * unit
    top = step * math.ceil(largest * 1.02 / step)
    ticks = tuple((step * number, f"{step * number / unit:g}") for number in range(round(top / step) + 1))
    return Axis(lambda size: TOP + PLOT_HEIGHT * (1 - min(max(size, 0), top) / top), ticks, name)


def _log_axis(smallest: float, largest: float) -> Axis:
    unit, name = unit_of(largest)
    low, high = math.log(smallest / 1.3), math.log(largest * 1.15)
    exponents = range(math.floor(math.log10(smallest / unit)) - 1, math.ceil(math.log10(largest / unit)) + 1)
    ticks = (factor * 10.0**exponent * unit for exponent in exponents for factor in (1, 2, 5))
    inside = tuple((tick, f"{tick / unit:g}") for tick in ticks if low <= math.log(tick) <= high)

    def y(size: float) -> float:
        share = (math.log(max(size, 1)) - low) / (high - low)
        return TOP + PLOT_HEIGHT * (1 - min(max(share, 0.0), 1.0))

    return Axis(y, inside, f"{name}, log scale")


def _nice_step(rough: float) -> float:
    scale = 10.0 ** math.floor(math.log10(rough))
    return next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= rough)


def _middle(block: Block, total: int) -> float:
    """Where a block's middle lies, as a share of the width. Every wave has as much room, the first and last too."""
    return (block.start + block.stop) / 2 / total


def _grid(axis: Axis) -> Iterator[str]:
    for tick, _ in axis.ticks:
        yield f'<line class="grid" x1="0" x2="100%" y1="{axis.y(tick):.1f}" y2="{axis.y(tick):.1f}"/>'


def _axis_drawn(axis: Axis, height: int) -> str:
    labels = "".join(
        f'<text class="tick" x="{AXIS_WIDTH - 8}" y="{axis.y(tick) + 4:.1f}" text-anchor="end">{label}</text>'
        for tick, label in axis.ticks
    )
    return (
        f'<svg class="axis" width="{AXIS_WIDTH}" height="{height}" aria-hidden="true">'
        f'<text class="label" x="0" y="12">{axis.unit}</text>{labels}</svg>'
    )


def _wave_numbers(blocks: Sequence[Block]) -> Iterator[str]:
    total = blocks[-1].stop
    step = max(1, math.ceil(len(blocks) / NUMBERED))
    for number, block in enumerate(blocks[::step]):
        wide = " wide" if number % 2 else ""
        yield (
            f'<text class="tick{wide}" x="{100 * _middle(block, total):.2f}%" y="{TOP + PLOT_HEIGHT + 18}" '
            f'text-anchor="middle">{block.waves[0].index:,}</text>'
        )
    yield f'<text class="label" x="100%" y="{TOP + PLOT_HEIGHT + 36}" text-anchor="end">wave</text>'


def _starts(series: Series, total: int) -> Iterator[str]:
    """Where another process began: a restarted run counts its waves anew."""
    for number, at in enumerate(series.starts[1:], start=2):
        x = f"{100 * at / total:.2f}%"
        yield (
            f'<line class="start" x1="{x}" x2="{x}" y1="{TOP}" y2="{TOP + PLOT_HEIGHT}">'
            f"<title>process {number} of {len(series.processes)} begins</title></line>"
        )


def _steps(points: Sequence[tuple[float, float]]) -> str:
    """A path over the whole plot that holds each point's y as far as halfway to its neighbours."""
    path = [f"M0 {points[0][1]:.1f}"]
    for (left, before), (right, y) in pairwise(points):
        if y != before:
            path.append(f"H{LAYER_WIDTH * (left + right) / 2:.1f}V{y:.1f}")
    return "".join([*path, f"H{LAYER_WIDTH}"])


def _layer(drawn: str) -> str:
    """Lines and areas, in thousandths of the width across: they stretch with the page, their strokes do not."""
    height = TOP + PLOT_HEIGHT
    return (
        f'<svg class="layer" width="100%" height="{height}" viewBox="0 0 {LAYER_WIDTH} {height}" '
        f'preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'
    )


def _chart(identifier: str, title: str, described: str, axis: Axis, parts: Sequence[str]) -> str:
    height = TOP + PLOT_HEIGHT + NUMBERS_HEIGHT
    return f'<div class="chart">{_axis_drawn(axis, height)}{_plot(identifier, height, title, described, parts)}</div>'


def _plot(identifier: str, height: int, title: str, described: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="plot" height="{height}" role="img" aria-labelledby="{identifier}-t {identifier}-d">'
        f'<title id="{identifier}-t">{escape(title)}</title><desc id="{identifier}-d">{escape(described)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _range_text(first: int, last: int) -> str:
    return f"wave {first}" if first == last else f"waves {first} to {last}"
