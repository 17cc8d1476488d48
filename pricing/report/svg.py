"""The charts of a run's page, as inline SVG: price against observed peak, binding terms over time, one price in parts.

Plain text building: no script, no network, colours from the page's style sheet (so they follow light and dark). Shape
says what colour says: a dash is a price, a dot is what was observed, a cross was refused, a triangle ran out of memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby, pairwise
from typing import Final

from pricing.kernel.quantities import GIB
from pricing.records.metrics import WaveSummary, binding_family
from pricing.records.record import DecisionRecord, Event
from pricing.report.run_report import Series, gib, percent

WIDTH: Final = 1_000
LEFT: Final = 76
RIGHT: Final = 20
TOP: Final = 14
PLOT_HEIGHT: Final = 300
AXIS_HEIGHT: Final = 44
LANE_HEIGHT: Final = 26
LANE_LEFT: Final = 190

MARKED_WAVES: Final = 150
"""Up to here every wave gets its own marks; beyond, lines."""

LOG_RATIO: Final = 16
"""Where the largest figure is so many times the median observed peak, the axis is logarithmic."""

Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class _Axis:
    """A vertical axis: from bytes to y, its ticks in bytes, and whether it is logarithmic."""

    y: Scale
    ticks: tuple[float, ...]
    logarithmic: bool


def price_chart(series: Series, identifier: str) -> str:
    """Price and observed peak of each wave, with the budget it was held against."""
    waves = series.waves
    axis = _axis_of(waves)
    x = _x_scale(len(waves), LEFT)
    budget = _steps([(x(at), axis.y(wave.available_bytes)) for at, wave in enumerate(waves)])
    parts = [
        f'<path class="over" d="{budget}V{TOP}H{LEFT}z"/>',
        *_grid(axis),
        *_wave_numbers(waves, x),
        f'<path class="budget" fill="none" d="{budget}"/>',
    ]
    parts += _marks(waves, x, axis) if len(waves) <= MARKED_WAVES else _lines(waves, x, axis)
    parts += _troubles(waves, x, axis)
    height = TOP + PLOT_HEIGHT + AXIS_HEIGHT
    return _svg(identifier, height, f"Price and observed peak, {series.label}", _described(series, axis), parts)


def binding_chart(series: Series, identifier: str) -> str:
    """Which term decided each wave's price: one lane a term, a block where it bound."""
    waves = series.waves
    families = [binding_family(wave.binding_term) for wave in waves]
    lanes = sorted(set(families), key=families.index)
    x = _x_scale(len(waves), LANE_LEFT)
    half = (x(1) - x(0)) / 2 if len(waves) > 1 else 12
    parts = []
    for lane, name in enumerate(lanes):
        y = TOP + lane * LANE_HEIGHT
        count = families.count(name)
        parts.append(f'<text class="lane-name" x="{LANE_LEFT - 14}" y="{y + 17}">{escape(name)} ({count})</text>')
        parts.append(
            f'<rect class="lane" x="{LANE_LEFT - 6}" y="{y + 3}" width="{WIDTH - RIGHT - LANE_LEFT + 12}" '
            f'height="{LANE_HEIGHT - 6}" rx="3"/>'
        )
    at = 0
    for name, run in groupby(families):
        length = len(list(run))
        left, right = x(at) - half, x(at + length - 1) + half
        y = TOP + lanes.index(name) * LANE_HEIGHT + 3
        numbers = _range_text(waves[at].index, waves[at + length - 1].index)
        parts.append(
            f'<rect class="bound" x="{left:.1f}" y="{y}" width="{max(2.0, right - left - 1):.1f}" '
            f'height="{LANE_HEIGHT - 6}" rx="2"><title>{numbers}: {escape(name)}</title></rect>'
        )
        at += length
    base = TOP + len(lanes) * LANE_HEIGHT
    parts += _wave_numbers(waves, x, base + 4)
    described = "; ".join(f"{name}: {families.count(name)} of {len(waves)} waves" for name in lanes)
    return _svg(identifier, base + AXIS_HEIGHT, f"Binding terms over time, {series.label}", described, parts)


def parts_bar(record: DecisionRecord, identifier: str) -> str:
    """One price as a bar of its parts, with the budget as a line across it."""
    parts = price_parts(record)
    required, available = record.price.required_bytes, max(0, record.available_bytes)
    largest = max(required, available, 1)

    def x(size: float) -> float:
        return 10 + (WIDTH - 20) * size / (largest * 1.06)

    drawn, start = [], 0
    for name, size in parts:
        width = x(start + size) - x(start)
        drawn.append(
            f'<rect class="{_PART_CLASSES[name]}" x="{x(start):.1f}" y="26" width="{max(0.0, width - 1):.1f}" '
            f'height="30"><title>{escape(name)}: {gib(size)}</title></rect>'
        )
        if width > 8 * len(name):
            drawn.append(f'<text class="part-name" x="{x(start) + 6:.1f}" y="46">{escape(name)}</text>')
        start += size
    at = x(available)
    anchor = "end" if at > WIDTH / 2 else "start"
    drawn.append(f'<line class="budget" x1="{at:.1f}" x2="{at:.1f}" y1="16" y2="66"/>')
    drawn.append(
        f'<text class="label" x="{at:.1f}" y="12" text-anchor="{anchor}">budget {gib(record.available_bytes)}</text>'
    )
    drawn.append(f'<text class="label" x="{x(required):.1f}" y="80" text-anchor="end">price {gib(required)}</text>')
    described = ", ".join(f"{name} {gib(size)}" for name, size in parts)
    return _svg(identifier, 88, "Price in parts against the budget", described, drawn)


_PART_CLASSES: Final = {
    "outputs": "part-outputs",
    "floor": "part-model",
    "model memory": "part-model",
    "logical rows": "part-rows",
    "segments": "part-segments",
    "safety": "part-safety",
    "footprint not read yet": "part-safety",
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


def _marks(waves: Sequence[WaveSummary], x: Scale, axis: _Axis) -> Iterator[str]:
    """A dash for the price, a dot for the peak, a stem between them. A cold price promises nothing and is not drawn."""
    half = min(9.0, 0.38 * (x(1) - x(0))) if len(waves) > 1 else 9.0
    for at, wave in enumerate(waves):
        if wave.event is Event.REFUSED:
            continue
        centre, top = x(at), axis.y(wave.estimate_bytes)
        parts = [f"<title>{escape(_told(wave))}</title>"]
        if wave.observed_bytes is not None:
            bottom = axis.y(wave.observed_bytes)
            if not wave.is_cold:
                ends = f'y1="{top:.1f}" y2="{bottom:.1f}"'
                parts.append(f'<line class="stem" x1="{centre:.1f}" x2="{centre:.1f}" {ends}/>')
            parts.append(f'<circle class="observed" cx="{centre:.1f}" cy="{bottom:.1f}" r="3.6"/>')
        if not wave.is_cold:
            ends = f'x1="{centre - half:.1f}" x2="{centre + half:.1f}"'
            parts.append(f'<line class="price" {ends} y1="{top:.1f}" y2="{top:.1f}"/>')
        yield f"<g>{''.join(parts)}</g>"


def _lines(waves: Sequence[WaveSummary], x: Scale, axis: _Axis) -> Iterator[str]:
    ran = [(at, wave) for at, wave in enumerate(waves) if wave.event is not Event.REFUSED]
    yield _line([(x(at), axis.y(wave.estimate_bytes)) for at, wave in ran if not wave.is_cold], "price")
    seen = [(x(at), axis.y(wave.observed_bytes)) for at, wave in ran if wave.observed_bytes is not None]
    yield _line(seen, "observed")


def _troubles(waves: Sequence[WaveSummary], x: Scale, axis: _Axis) -> Iterator[str]:
    """Refusals, waves that ran out of memory, and peaks above their price; drawn last, so that nothing hides them."""
    for at, wave in enumerate(waves):
        centre, y = x(at), axis.y(wave.estimate_bytes)
        title = f"<title>{escape(_told(wave))}</title>"
        if wave.event is Event.REFUSED:
            yield f'<path class="refused" d="M{centre - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12">{title}</path>'
        elif wave.event is Event.OUT_OF_MEMORY:
            yield f'<path class="failed" d="M{centre:.1f} {y - 9:.1f}l9 15h-18z">{title}</path>'
        elif wave.is_under and wave.observed_bytes is not None:
            peak = axis.y(wave.observed_bytes)
            yield f'<circle class="under" cx="{centre:.1f}" cy="{peak:.1f}" r="7.5">{title}</circle>'


def _told(wave: WaveSummary) -> str:
    """One wave in a line: what a pointer resting on it shows."""
    words = f"wave {wave.index}, {str(wave.event).replace('_', ' ')}: price {gib(wave.estimate_bytes)}"
    if wave.observed_bytes is not None:
        words += f", observed {gib(wave.observed_bytes)}"
    if wave.over_fraction is not None:
        words += f" ({'+' if wave.over_fraction >= 0 else ''}{percent(wave.over_fraction)})"
    return f"{words}, budget {gib(wave.available_bytes)}, {wave.packed_rows:,} packed rows, {wave.binding_term}"


def _described(series: Series, axis: _Axis) -> str:
    """The chart in a sentence or two, for those who do not see it."""
    seen = [wave for wave in series.waves if wave.observed_bytes is not None]
    under = sum(wave.is_under for wave in seen)
    words = f"{len(series.waves)} waves; {under} of {len(seen)} observed above their price"
    refused = [str(wave.index) for wave in series.waves if wave.event is Event.REFUSED]
    failed = [str(wave.index) for wave in series.waves if wave.event is Event.OUT_OF_MEMORY]
    if refused:
        words += f"; refused: {', '.join(refused[:20])}"
    if failed:
        words += f"; out of memory: {', '.join(failed[:20])}"
    return f"{words}. Vertical axis in GiB{', logarithmic' if axis.logarithmic else ''}. All figures are in the table."


# --- axes ------------------------------------------------------------------------------------------------------------


def _axis_of(waves: Sequence[WaveSummary]) -> _Axis:
    observed = sorted(wave.observed_bytes for wave in waves if wave.observed_bytes)
    prices = [wave.estimate_bytes for wave in waves if not wave.is_cold]
    shown = prices + [max(0, wave.available_bytes) for wave in waves] + observed
    largest = max(max(shown, default=0), 1)
    typical = observed[len(observed) // 2] if observed else largest
    if largest > LOG_RATIO * typical:
        smallest = min((size for size in shown if size > 0), default=1)
        return _log_axis(max(smallest, largest / 1e5), largest)
    return _linear_axis(largest)


def _linear_axis(largest: float) -> _Axis:
    step = _nice_step(largest / GIB / 5) * GIB
    top = step * math.ceil(largest * 1.02 / step)
    ticks = tuple(step * number for number in range(round(top / step) + 1))
    return _Axis(lambda size: TOP + PLOT_HEIGHT * (1 - min(max(size, 0), top) / top), ticks, False)


def _log_axis(smallest: float, largest: float) -> _Axis:
    low, high = math.log(smallest / 1.3), math.log(largest * 1.15)
    exponents = range(math.floor(math.log10(smallest / GIB)) - 1, math.ceil(math.log10(largest / GIB)) + 1)
    ticks = (factor * 10.0**exponent * GIB for exponent in exponents for factor in (1, 2, 5))
    inside = tuple(tick for tick in ticks if low <= math.log(tick) <= high)

    def y(size: float) -> float:
        share = (math.log(max(size, 1)) - low) / (high - low)
        return TOP + PLOT_HEIGHT * (1 - min(max(share, 0.0), 1.0))

    return _Axis(y, inside, True)


def _nice_step(rough: float) -> float:
    scale = 10.0 ** math.floor(math.log10(rough))
    return next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= rough)


def _x_scale(count: int, left: int) -> Scale:
    inner_left, inner_right = left + 14, WIDTH - RIGHT - 14
    if count == 1:
        return lambda at: (inner_left + inner_right) / 2
    return lambda at: inner_left + (inner_right - inner_left) * at / (count - 1)


def _grid(axis: _Axis) -> Iterator[str]:
    for tick in axis.ticks:
        y = axis.y(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick / GIB:g}</text>'
    unit = "GiB, log scale" if axis.logarithmic else "GiB"
    middle = TOP + PLOT_HEIGHT / 2
    yield f'<text class="label" transform="translate(16 {middle:.0f}) rotate(-90)" text-anchor="middle">{unit}</text>'


def _wave_numbers(waves: Sequence[WaveSummary], x: Scale, base: float = TOP + PLOT_HEIGHT) -> Iterator[str]:
    step = max(1, math.ceil(len(waves) / 12))
    for at in range(0, len(waves), step):
        yield f'<text class="tick" x="{x(at):.1f}" y="{base + 18:.0f}" text-anchor="middle">{waves[at].index}</text>'
    yield f'<text class="label" x="{WIDTH - RIGHT}" y="{base + 36:.0f}" text-anchor="end">wave</text>'


def _line(points: Sequence[tuple[float, float]], kind: str) -> str:
    path = " ".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{kind}" fill="none" d="M{path}"/>' if points else ""


def _steps(points: Sequence[tuple[float, float]]) -> str:
    """A path over the whole plot that holds each point's y as far as halfway to its neighbours."""
    path = [f"M{LEFT} {points[0][1]:.1f}"]
    for (left, before), (right, y) in pairwise(points):
        if y != before:
            path.append(f"H{(left + right) / 2:.1f}V{y:.1f}")
    return "".join([*path, f"H{WIDTH - RIGHT}"])


def _svg(identifier: str, height: float, title: str, described: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="{identifier}-t {identifier}-d">'
        f'<title id="{identifier}-t">{escape(title)}</title><desc id="{identifier}-d">{escape(described)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _range_text(first: int, last: int) -> str:
    return f"wave {first}" if first == last else f"waves {first} to {last}"
