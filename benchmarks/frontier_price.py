"""Time of one price under the frontier law: with the evidence of a run, and with every band that there can be.

    python -m benchmarks.frontier_price [--json] [--output FILE]

`run`: what the shipped gdn_moe trace teaches. `full`: an anchor in each of the 1,008 bands, of a machine with a fixed
cost, a rate, and 3 % of noise. Best of repeats, in microseconds of CPU time. `derive_ms`: what the first price after a
reading takes, while the bounds are derived anew.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pricing.evidence.trace import read_trace
from pricing.formats.files import write_text_atomically
from pricing.kernel.bands import (
    LARGEST_CLASS_ROWS,
    MOST_BANDS,
    MOST_SHARING_CLASS,
    Anchor,
    Band,
    Cover,
    FrontierEvidence,
    size_class,
    size_class_rows,
)
from pricing.kernel.frontier import FRONTIER
from pricing.kernel.price import price, required_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import ceil_div
from pricing.kernel.requests import Workload
from pricing.kernel.wave import Wave

TRACE: Final = Path(__file__).resolve().parent.parent / "spec" / "evidence" / "h200" / "gdn_moe-1.jsonl"
STATE_BYTES: Final = 4_292_608
REPEATS: Final = 7
WAVES: Final = 200


def run_profile() -> Profile:
    """What a recorded run teaches."""
    profile = Profile()
    for recorded in read_trace(TRACE):
        for reading in recorded.readings:
            profile = observe(profile, reading)
    return profile


def full_profile() -> Profile:
    """The same, with evidence in every band there can be."""
    chance = random.Random(3)
    bands = tuple(
        _band(size, sharing, chance)
        for size in range(1, size_class(LARGEST_CLASS_ROWS) + 1)
        for sharing in range(1, MOST_SHARING_CLASS + 1)
    )
    assert len(bands) == MOST_BANDS, "one of each"
    return replace(run_profile(), frontier=FrontierEvidence(peak=bands, retained=bands))


def _band(size: int, sharing: int, chance: random.Random) -> Band:
    rows = size_class_rows(size)
    logical = rows * (1 << (sharing - 1)) + chance.randint(0, rows - 1) // 2
    need = (2_000_000_000 + 300_000 * rows + 5 * logical) * chance.randint(970, 1_030) // 1_000
    anchor = Anchor(
        compute_bytes=need, packed_rows=rows, logical_rows=logical, grad_segments=1 + rows // chance.randint(200, 900)
    )
    cover = Cover(
        compute_bytes=need,
        bytes_per_row=ceil_div(need, rows),
        logical_rows=logical,
        grad_segments=anchor.grad_segments,
    )
    return Band(size=size, sharing=sharing, cover=cover, anchor=anchor)


def some_waves(largest_rows: int) -> list[Wave]:
    chance = random.Random(4)
    waves = []
    for _ in range(WAVES):
        rows = int(largest_rows ** chance.random()) + 1
        waves.append(
            Wave(
                packed_rows=rows,
                logical_rows=int(rows * 64 ** chance.random()),
                grad_segments=1 + rows // 400,
                output_bytes=0,
                segment_state_bytes=STATE_BYTES,
                workload=Workload.training(shortest_rows=64),
            )
        )
    return waves


def measure() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, profile in (("run", run_profile()), ("full", full_profile())):
        waves = some_waves(1 << 17)
        began = time.process_time()
        required_bytes(waves[0], profile, FRONTIER)
        derived = time.process_time() - began
        figures[name] = {
            "bands": len(profile.frontier.peak),
            "derive_ms": round(derived * 1e3, 2),
            "required_us": round(_best(lambda wave, known=profile: required_bytes(wave, known, FRONTIER), waves), 2),
            "price_us": round(_best(lambda wave, known=profile: price(wave, known, FRONTIER), waves), 2),
        }
    return figures


def _best(ask: Any, waves: Sequence[Wave]) -> float:
    """Microseconds a wave, best of repeats."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        for wave in waves:
            ask(wave)
        best = min(best, time.process_time() - began)
    return best / len(waves) * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--output")
    asked = parser.parse_args(arguments)
    figures = measure()
    document = json.dumps(figures, indent=2)
    if asked.output:
        write_text_atomically(asked.output, document + "\n")
    if asked.json:
        print(document)
        return 0
    for name, row in figures.items():
        print(
            f"{name:5} {row['bands']:5,} bands: required {row['required_us']:6.2f} us,"
            f" explained {row['price_us']:6.2f} us, first after a reading {row['derive_ms']:.1f} ms"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
