"""The controlled table: is memory per packed row flat in sharing?

Per family: sharing 1, 2, 4, 8 at 16,384 packed rows with 512-row suffixes, three shuffled repeats after a warm-up
wave of each shape. Prints peak bytes per packed row beside what the `logical` and `packed` laws ask for the first
sharing-8 wave when they have seen one sharing-1 wave only.

    python -m benchmarks.h200.controlled_table --family dense --out controlled.jsonl --seconds 60
"""

from __future__ import annotations

import random
import statistics
from typing import Any

from benchmarks.h200.families import FAMILIES, build
from benchmarks.h200.waves import Lines, WaveRunner, common_arguments, controlled, prepared, shuffled_repeats
from pricing import Profile, Reading, Wave, Workload, allocated_bytes, observe
from pricing.kernel.laws import LAWS
from pricing.kernel.quantities import GIB

SHARINGS = (1, 2, 4, 8)


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    parser.add_argument("--family", action="append", choices=[*FAMILIES], help="may be repeated; default all four")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    device = prepared(arguments)
    lines = Lines(arguments.out, arguments.seconds)
    unit = 32 if arguments.small else 1
    print(f"{'family':8s} {'sharing':>8s} {'P':>6s} {'L':>7s} {'B/row':>9s} {'spread':>8s}", flush=True)
    for family in arguments.family or [*FAMILIES]:
        shapes = [controlled(16_384 // unit, 512 // unit, sharing) for sharing in SHARINGS]
        measured: dict[str, list[dict[str, Any]]] = {shape.label: [] for shape in shapes}
        with WaveRunner(build(family, device, small=arguments.small), device, family=family) as runner:
            for index, shape in enumerate([*shapes, *shuffled_repeats(shapes, arguments.repeats, random.Random(0))]):
                if lines.is_over:
                    break
                line = runner.run(shape) | {"warm_up": index < len(shapes)}
                lines.write(line)
                if not line["warm_up"]:
                    measured[shape.label].append(line)
        _print_family(family, measured)


def _print_family(family: str, measured: dict[str, list[dict[str, Any]]]) -> None:
    rates = {}
    for label, waves in measured.items():
        if not waves:
            print(f"{family:8s} {label}: not reached", flush=True)
            continue
        per_row = [wave["peak_bytes"] / wave["packed_rows"] for wave in waves]
        rates[label] = statistics.median(per_row)
        print(
            f"{family:8s} {waves[0]['logical_rows'] / waves[0]['packed_rows']:8.3f} {waves[0]['packed_rows']:6d} "
            f"{waves[0]['logical_rows']:7d} {rates[label]:9.0f} {max(per_row) / min(per_row) - 1:8.3%}",
            flush=True,
        )
    if len(rates) < len(SHARINGS):
        return
    lowest, highest = min(rates.values()), max(rates.values())
    unshared, shared = measured["controlled-1"][0], measured["controlled-8"][0]
    print(
        f"{family:8s} flat to {highest / lowest - 1:.2%}; first sharing-8 wave: observed "
        f"{shared['peak_bytes'] / GIB:.2f} GiB, "
        + ", ".join(f"{law} law {_first_price(law, unshared, shared) / GIB:.2f} GiB" for law in ("logical", "packed")),
        flush=True,
    )


def _first_price(law: str, seen: dict[str, Any], asked: dict[str, Any]) -> int:
    """What a law that saw only the wave `seen` asks for the wave `asked`."""
    profile = observe(
        Profile(),
        Reading(
            packed_rows=seen["packed_rows"],
            logical_rows=seen["logical_rows"],
            grad_segments=seen["grad_segments"],
            output_bytes=seen["output_bytes"],
            peak_delta_bytes=seen["peak_bytes"],
        ),
    )
    wave = Wave(
        packed_rows=asked["packed_rows"],
        logical_rows=asked["logical_rows"],
        grad_segments=asked["grad_segments"],
        output_bytes=asked["output_bytes"],
        segment_state_bytes=asked["segment_state_bytes"],
        workload=Workload.training(shortest_rows=asked["shortest_request"]),
    )
    return allocated_bytes(wave, profile, LAWS[law])


if __name__ == "__main__":
    main()
