"""Generates the figures of footprints: `evidence/footprints.json`, and the tables in `footprints.md` made from it.

    python -m spec.footprint_figures            measures again and writes both
    python -m spec.footprint_figures --check    exits 1 if what is on disk is not what the code and the traces say

Every trace whose waves began with a released cache is replayed under the frontier law, both quantities, in recorded,
descending and shuffled order; FOOTPRINT-SCALE is tested on each. `least-cap.jsonl` gives the smallest caps that ran.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from pricing.evidence.backtest import Order, ReplayedWave, backtest
from pricing.evidence.scale import scale_test
from pricing.evidence.trace import TraceWave, read_trace
from pricing.formats.files import write_text_atomically
from pricing.kernel.laws import find_law
from pricing.kernel.price import Quantity
from pricing.kernel.quantities import GIB, Safety
from spec.tables import table, with_tables

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "spec" / "footprints.md"
FIGURES = ROOT / "spec" / "evidence" / "footprints.json"
TRACES = ROOT / "spec" / "evidence" / "h200-physical"

SKIP = 3
SHUFFLES = range(10)
FRONTIER = find_law("frontier")
FACTORS = {"11/10": Safety(numerator=11, denominator=10), "51/50": Safety(numerator=51, denominator=50)}
SIZES = ((0, 5_000), (5_000, 15_000), (15_000, 50_000), (50_000, 1 << 30))


def measured() -> dict[str, Any]:
    """All figures, by trace. Shares are in percent."""
    traces = {path.stem: read_trace(path) for path in sorted(TRACES.glob("*-[0-9][0-9].jsonl"))}
    return {
        "skip": SKIP,
        "shuffles": len(SHUFFLES),
        "traces": {name: _figures(name, waves) for name, waves in traces.items()},
        "least_caps": [_cap(json.loads(line)) for line in (TRACES / "least-cap.jsonl").read_text().splitlines()],
    }


def _figures(name: str, waves: Sequence[TraceWave]) -> dict[str, Any]:
    scale = {quantity: scale_test(waves, quantity) for quantity in (Quantity.ALLOCATED, Quantity.FOOTPRINT)}
    return {
        "waves": len(waves),
        "above_allocated_percent": {_size_name(size): _above_allocated(waves, size) for size in SIZES},
        "laws": {factor: _scores(name, waves, safety) for factor, safety in FACTORS.items()},
        "worst_miss_percent": {
            str(quantity): None if test.charged is None else _percent(test.charged.share, 2)
            for quantity, test in scale.items()
        },
        "most_lifted_percent": {str(quantity): _percent(test.most_lifted, 2) for quantity, test in scale.items()},
    }


def _size_name(size: tuple[int, int]) -> str:
    least, most = size
    return f"{least // 1000} k and more" if most == 1 << 30 else f"{least // 1000} k to {most // 1000} k"


def _above_allocated(waves: Sequence[TraceWave], size: tuple[int, int]) -> list[float] | None:
    """Least, median and most of footprint / allocated peak - 1 of the waves of a size, the first wave aside."""
    shares = [
        float(100 * (Fraction(wave.footprint_bytes, wave.peak_bytes) - 1))
        for wave in waves[1:]
        if wave.footprint_bytes is not None and size[0] <= wave.wave.packed_rows < size[1]
    ]
    return [round(pick(shares), 1) for pick in (min, statistics.median, max)] if shares else None


def _scores(name: str, waves: Sequence[TraceWave], safety: Safety) -> dict[str, Any]:
    def replayed(order: Order, seed: int = 0) -> list[ReplayedWave]:
        run = backtest(
            name, waves, FRONTIER, skip=SKIP, safety=safety, order=order, seed=seed, quantity=Quantity.FOOTPRINT
        )
        return list(run.waves[SKIP:])

    def of(waves: Sequence[ReplayedWave]) -> dict[str, Any]:
        """`under_without_the_first` leaves out the wave that ran first, whose one-time costs others do not have."""
        return {
            "scored": len(waves),
            "median_percent": _percent(statistics.median(wave.over for wave in waves)),
            "least_percent": _percent(min(wave.over for wave in waves)),
            "under": sum(wave.is_under for wave in waves),
            "under_without_the_first": sum(wave.is_under for wave in waves if wave.index > 0),
        }

    shuffled = [wave for seed in SHUFFLES for wave in replayed(Order.SHUFFLED, seed)]
    return {
        "recorded": of(replayed(Order.RECORDED)),
        "descending": of(replayed(Order.DESCENDING)),
        "shuffled": of(shuffled),
    }


def _percent(share: Fraction, digits: int = 1) -> float:
    return round(float(100 * share), digits)


def _cap(line: dict[str, Any]) -> dict[str, Any]:
    """What a wave adds: by its allocated peak, its footprint, and the least cap that still ran, above it."""
    baseline = line["baseline_bytes"]
    allocated = line["allocated_peak_bytes"] - baseline
    above = {name: line[f"{name}_bytes"] - baseline for name in ("reserved_peak", "least_cap")}
    return {
        "family": line["family"],
        "packed_rows": line["packed_rows"],
        "allocated_gib": round(allocated / GIB, 2),
        **{f"{name}_percent": round(100 * (figure / allocated - 1), 1) for name, figure in above.items()},
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def tables(figures: dict[str, Any]) -> dict[str, str]:
    """Markdown tables by the name of the place in `footprints.md` that they go to."""
    return {
        "fragmentation": _fragmentation(figures),
        "caps": _caps(figures),
        "misses": _misses(figures),
        "prices": _prices(figures),
    }


def _fragmentation(figures: dict[str, Any]) -> str:
    def cell(shares: list[float] | None) -> str:
        return "" if shares is None else f"{shares[0]:.0f} to {shares[2]:.0f} %, median {shares[1]:.0f} %"

    sizes = [_size_name(size) for size in SIZES]
    rows = [
        (name, *(cell(trace["above_allocated_percent"][size]) for size in sizes))
        for name, trace in figures["traces"].items()
    ]
    return table(("trace", *(f"{size} rows" for size in sizes)), rows)


def _caps(figures: dict[str, Any]) -> str:
    rows = [
        (
            of["family"],
            f"{of['packed_rows']:,}",
            f"{of['allocated_gib']:.2f} GiB",
            f"{of['reserved_peak_percent']:+.1f} %",
            f"{of['least_cap_percent']:+.1f} %",
        )
        for of in figures["least_caps"]
    ]
    return table(("family", "rows", "allocated", "footprint above it", "least cap that ran"), rows)


def _misses(figures: dict[str, Any]) -> str:
    rows = [
        (
            name,
            trace["waves"],
            *(f"{trace['worst_miss_percent'][quantity]:+.2f} %" for quantity in ("allocated", "footprint")),
            f"{trace['most_lifted_percent']['footprint']:.2f} %",
        )
        for name, trace in figures["traces"].items()
    ]
    return table(("trace", "waves", "SCALE", "FOOTPRINT-SCALE", "largest lift"), rows)


def _prices(figures: dict[str, Any]) -> str:
    rows = []
    for name, trace in figures["traces"].items():
        wide, tight = trace["laws"]["11/10"], trace["laws"]["51/50"]
        rows.append(
            (
                name,
                *(
                    cell
                    for order in ("recorded", "descending")
                    for cell in (
                        f"{wide[order]['median_percent']:+.1f} %",
                        f"{wide[order]['least_percent']:+.1f} %",
                        wide[order]["under"],
                    )
                ),
                f"{wide['shuffled']['under_without_the_first']} of {wide['shuffled']['scored']}",
                f"{tight['recorded']['median_percent']:+.1f} %",
                tight["recorded"]["under"],
            )
        )
    heads = ("median", "least", "under", "descending: median", "least", "under", "shuffled: under", "51/50: median")
    return table(("trace", *heads, "under"), rows)


def written(document: str, figures: dict[str, Any]) -> str:
    """The document with its tables made anew."""
    return with_tables(document, tables(figures))


def main(arguments: Sequence[str]) -> int:
    figures = measured()
    text, document = json.dumps(figures, indent=2) + "\n", DOCUMENT.read_text()
    if "--check" in arguments:
        stale = FIGURES.read_text() != text or written(document, figures) != document
        print("stale: run python -m spec.footprint_figures" if stale else "current")
        return 1 if stale else 0
    write_text_atomically(FIGURES, text)
    write_text_atomically(DOCUMENT, written(document, figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
