"""Speed of the kernel: a price, an explained price, an observation, and the import.

    python -m benchmarks.price [--json] [--output FILE] [--repeats 120]

Best of many short repeats (milliseconds each, so that some fall between whatever else the machine does), with an empty
call of the same shape beside it (what the loop and the call themselves cost; nothing is subtracted). Targets:
required_bytes <= 3 us, explained price <= 10 us (default law), import <= 50 ms.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pricing import LAWS, Law, Profile, Wave, observe, price, required_bytes
from pricing.evidence.trace import TraceWave, read_trace
from pricing.formats.files import write_text_atomically
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety

TRACE: Final = Path(__file__).parents[1] / "spec" / "evidence" / "h200" / "gdn_moe-1.jsonl"
CALLS: Final = 500
STARTS: Final = 25
"""Interpreters started to time an import."""


def empty(wave: Wave, profile: Profile, law: Law, safety: Safety) -> int:
    """What a call of this shape costs that does nothing."""
    return 0


def best_us(act: Callable[[], object], repeats: int, calls: int = CALLS) -> float:
    """Microseconds a call, best of `repeats` runs of `calls` calls."""

    def once() -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            act()
        return time.perf_counter() - begin

    return min(once() for _ in range(repeats)) / calls * 1e6


def learned(waves: tuple[TraceWave, ...]) -> Profile:
    profile = Profile()
    for recorded in waves:
        for reading in recorded.readings:
            profile = observe(profile, reading)
    return profile


def measure(repeats: int) -> dict[str, object]:
    waves = read_trace(TRACE)
    profile, wave, reading = learned(waves), waves[1].wave, waves[2].readings[1]
    laws = {}
    for name, law in LAWS.items():
        laws[name] = {
            "empty_us": best_us(partial(empty, wave, profile, law, DEFAULT_SAFETY), repeats),
            "required_us": best_us(partial(required_bytes, wave, profile, law, DEFAULT_SAFETY), repeats),
            "price_us": best_us(partial(price, wave, profile, law, DEFAULT_SAFETY), repeats),
        }
    return {
        "benchmark": "price",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "profile": f"{len(waves)} waves of {TRACE.name}",
        "repeats": repeats,
        "calls_a_repeat": CALLS,
        "laws": laws,
        "observe_us": best_us(partial(observe, profile, reading), repeats),
        "import_ms": import_ms("import pricing"),
        "bare_start_ms": import_ms("pass"),
    }


def import_ms(code: str) -> float:
    """Milliseconds of processor time of a whole interpreter that runs `code`, best of `STARTS`.

    Processor time is what it takes on an idle machine, and a busy one stretches it far less than time on the wall.
    """

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def once() -> float:
        begin = spent()
        subprocess.run([sys.executable, "-I", "-c", code], check=True)
        return spent() - begin

    return min(once() for _ in range(STARTS)) * 1e3


def text_of(figures: dict[str, object]) -> str:
    laws = figures["laws"]
    assert isinstance(laws, dict)
    lines = [f"{'law':<10} {'empty us':>10} {'required us':>12} {'price us':>10}"]
    for name, row in laws.items():
        lines.append(f"{name:<10} {row['empty_us']:>10.2f} {row['required_us']:>12.2f} {row['price_us']:>10.2f}")
    lines.append(f"observe {figures['observe_us']:.2f} us")
    imported, bare = figures["import_ms"], figures["bare_start_ms"]
    assert isinstance(imported, float) and isinstance(bare, float)
    lines.append(f"import pricing {imported - bare:.1f} ms above a bare start of {bare:.1f} ms")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--output", metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--repeats", type=int, default=120)
    arguments = parser.parse_args()
    figures = measure(max(1, arguments.repeats))
    if arguments.output:
        Path(arguments.output).parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(arguments.output, json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2) if arguments.json else text_of(figures))


if __name__ == "__main__":
    main()
