"""Speed of a price and of an observation beside another checkout of this project, in one run.

    git worktree add /tmp/other COMMIT
    python -m benchmarks.price_against /tmp/other [--rounds 15] [--output FILE]

Both run the same code on the same trace in turn, in processes of their own; best of all rounds, in runs of about 1 ms
(which a quota of CPU time lets through whole), so that a busy machine matters little. The trace has footprints: here
both quantities are learned and priced, in 0.1.0 what is allocated alone.
Targets: required_bytes <= 4 us, observe <= 15 us.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from pricing.formats.files import write_text_atomically

ROOT: Final = Path(__file__).resolve().parents[1]
TRACE: Final = ROOT / "spec" / "evidence" / "h200-physical" / "moe-21.jsonl"

CHILD: Final = """
import json, sys, time
from functools import partial
from pricing import LAWS, Profile, observe, required_bytes
from pricing.evidence.trace import read_trace
waves, profile = read_trace(sys.argv[1]), Profile()
for recorded in waves:
    for reading in recorded.readings:
        profile = observe(profile, reading)

def best_us(act):
    best = None
    for _ in range(120):
        begin = time.perf_counter()
        for _ in range(50):
            act()
        took = time.perf_counter() - begin
        best = took if best is None else min(best, took)
    return best / 50 * 1e6

figures = {f"required_bytes, {name}": best_us(partial(required_bytes, waves[1].wave, profile, law))
           for name, law in LAWS.items()}
figures["observe"] = best_us(partial(observe, profile, waves[2].readings[1]))
print(json.dumps(figures))
"""


def figures_of(checkout: Path) -> dict[str, float]:
    """Microseconds a call, by what was called."""
    finished = subprocess.run(
        [sys.executable, "-c", CHILD, str(TRACE)], cwd=checkout, capture_output=True, text=True, check=True
    )
    return {name: float(value) for name, value in json.loads(finished.stdout).items()}


def compared(other: Path, rounds: int) -> dict[str, Any]:
    """Best of `rounds`, this checkout and the other in turn."""
    best: dict[str, dict[str, float]] = {"this": {}, "other": {}}
    for _ in range(rounds):
        for name, checkout in (("this", ROOT), ("other", other)):
            for what, took in figures_of(checkout).items():
                best[name][what] = min(took, best[name].get(what, took))
    return {
        what: {
            "this_us": round(best["this"][what], 3),
            "other_us": round(best["other"][what], 3),
            "ratio": round(best["this"][what] / best["other"][what], 2),
        }
        for what in best["this"]
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=options.other, capture_output=True, text=True, check=True
    ).stdout.strip()
    document = {
        "command": f"python -m benchmarks.price_against CHECKOUT --rounds {options.rounds}",
        "other": commit,
        "trace": TRACE.name,
        "calls": compared(options.other, options.rounds),
    }
    text = json.dumps(document, indent=2) + "\n"
    if options.output is not None:
        write_text_atomically(options.output, text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
