"""Record evidence traces on a GPU: python -m benchmarks.h200.record_trace --scenario gdn --out gdn-1.jsonl --seconds 60

Scenarios (each starts with a small cold wave, which pays compilation):
  a family's name           the standard mix: controlled sharing, 101 branches, random GRPO waves of 0.5k to 60k rows
  deep                      dense, 32 layers of hidden 2,048
  long                      dense, waves up to 150k packed rows
  imbalance                 moe with a router that sends most rows to few experts
  saver                     dense, a caller that keeps 256 KiB a request alive
  many                      dense, thousands of requests of 64 to 96 rows on shared prompts, and duplicates
  alternate                 dense, tiny and large waves in turn
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.h200.families import FAMILIES, Experts, Family, build
from benchmarks.h200.waves import (
    Caller,
    Lines,
    SavingCaller,
    WaveRunner,
    WaveShape,
    branches,
    common_arguments,
    controlled,
    policy_gradient,
    prepared,
    rollouts,
    shuffled_repeats,
    single,
)

KIB = 1 << 10


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    parser.add_argument("--scenario", required=True, choices=[*FAMILY_OF])
    parser.add_argument("--waves", type=int, default=60)
    parser.add_argument("--release", action="store_true", help="release the cache before every wave: footprints")
    arguments = parser.parse_args()
    device = prepared(arguments)
    family, change, caller = FAMILY_OF[arguments.scenario]
    model = build(family, device, small=arguments.small, change=change)
    draw = random.Random(arguments.seed)
    lines = Lines(arguments.out, arguments.seconds)
    unit = 64 if arguments.small else 1
    with WaveRunner(model, device, family=family) as runner:
        for shape in scenario_shapes(arguments.scenario, draw, unit):
            if lines.is_over or runner.waves >= arguments.waves:
                break
            line = runner.run(shape, caller, release_cache=arguments.release) | {"scenario": arguments.scenario}
            lines.write(line)
            print(
                f"{line['wave']:3d} {line['label']:16s} P {line['packed_rows']:7d} L {line['logical_rows']:8d} "
                f"S {line['grad_segments']:5d} peak {line['peak_bytes'] / 2**30:7.3f} GiB "
                f"{line['peak_bytes'] / line['packed_rows']:10.0f} B/row {line['seconds']:6.2f} s",
                flush=True,
            )


def _deep(family: Family) -> Family:
    config = replace(family.config, layers=32, hidden=2048, heads=16, kv_heads=8, feed_forward=6144)
    return replace(family, config=config)


def _imbalanced(family: Family) -> Family:
    assert family.experts is not None
    experts: Experts = replace(family.experts, imbalance=8.0)
    return replace(family, experts=experts)


FAMILY_OF: dict[str, tuple[str, Callable[[Family], Family] | None, Caller]] = {
    "dense": ("dense", None, policy_gradient),
    "moe": ("moe", None, policy_gradient),
    "gdn": ("gdn", None, policy_gradient),
    "gdn_moe": ("gdn_moe", None, policy_gradient),
    "gdn_fused": ("gdn_fused", None, policy_gradient),
    "gdn_moe_fused": ("gdn_moe_fused", None, policy_gradient),
    "deep": ("dense", _deep, policy_gradient),
    "long": ("dense", None, policy_gradient),
    "imbalance": ("moe", _imbalanced, policy_gradient),
    "saver": ("dense", None, SavingCaller(saved_bytes=256 * KIB)),
    "many": ("dense", None, policy_gradient),
    "alternate": ("dense", None, policy_gradient),
}


def scenario_shapes(scenario: str, draw: random.Random, unit: int = 1) -> Iterator[WaveShape]:
    """The endless wave sequence of a scenario; sizes are divided by `unit`."""
    yield single(712 // unit, "cold-small")
    if scenario == "long":
        while True:
            yield rollouts(draw, draw.choice((4_000, 20_000, 60_000, 100_000, 150_000)) // unit)
    if scenario == "many":
        while True:
            yield _many(draw, unit)
    if scenario == "alternate":
        while True:
            yield rollouts(draw, draw.randint(600, 1_500) // unit)
            yield rollouts(draw, draw.randint(20_000, 50_000) // unit)
    if scenario in FAMILIES:
        shapes = [controlled(16_384 // unit, 512 // unit, sharing) for sharing in (1, 2, 4, 8)]
        yield from shuffled_repeats(shapes, 2, draw)
        yield branches(5_100 // unit, 101, max(1, 20 // unit))
        yield single(7_119 // unit)
    while True:
        yield rollouts(draw, int(2 ** draw.uniform(9, 15.8)) // unit)


def _many(draw: random.Random, unit: int) -> WaveShape:
    """Hundreds to thousands of short requests: branches of 32 rows on prompts of 64, a third of them duplicates."""
    prompts = draw.randint(16, 256) // min(unit, 8)
    families = tuple(
        (64, tuple(0 if draw.random() < 0.33 else draw.randint(1, 32) for _ in range(draw.randint(4, 16))))
        for _ in range(max(1, prompts))
    )
    return WaveShape(label="many", families=families)


if __name__ == "__main__":
    main()
