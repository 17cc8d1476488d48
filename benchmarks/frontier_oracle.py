"""Rows a wave under each law, against an oracle that knows the machine: how much of the device a price leaves idle.

    python -m benchmarks.frontier_oracle [--waves 60] [--seed 7] [--noise 0:10:30] [--json] [--output FILE]

The machine is simulated: peaks are interpolated from a recorded trace (by packed rows, never falling), the first wave
pays half a GiB more, and each wave's peak moves by up to +-noise (per mille). Requests are groups of rollouts on a
prompt, in optimizer steps of 37 to 150 groups, so every step ends in a wave of what was left over: the mixed sizes
that make one rate through the origin so loose.

Every law sees the same requests under the same budget and safety factor 11/10, and admits the widest wave that its
price says fits, at most 8 times the rows seen before; it then learns from that wave's two readings. The oracle admits
while 11/10 of the machine's own peak, noise apart, fits. `of_oracle` compares rows a wave from the tenth wave on, those
aside that ended a step (nobody's price made them small). `under` counts waves above their price, `out_of_memory` those
above the budget.
"""

from __future__ import annotations

import argparse
import json
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pricing.evidence.trace import TraceWave, read_trace
from pricing.formats.files import write_text_atomically
from pricing.kernel.frontier import FRONTIER
from pricing.kernel.law import Law
from pricing.kernel.price import required_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, GIB, TRUST_GROWTH, with_safety
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import Workload
from pricing.kernel.wave import Wave

EVIDENCE: Final = Path(__file__).resolve().parent.parent / "spec" / "evidence" / "h200"
TRACES: Final = ("dense-1", "moe-1", "gdn_moe-1")
BUDGET_BYTES: Final = 14 * GIB
FIRST_WAVE_BYTES: Final = GIB // 2
SCORED_FROM: Final = 9
"""Index of the tenth wave."""

WORKLOAD: Final = Workload.training(shortest_rows=64)
PER_MILLE: Final = 1_000


@dataclass(frozen=True)
class Group:
    """Rollouts on one prompt: what a wave grows by."""

    packed_rows: int
    logical_rows: int
    segments: int


@dataclass(frozen=True)
class Machine:
    """Compute bytes by packed rows, from a trace's waves after the first."""

    rows: tuple[int, ...]
    compute: tuple[int, ...]
    state_bytes: int

    @classmethod
    def of(cls, waves: Sequence[TraceWave]) -> Machine:
        seen: dict[int, int] = {0: 0}
        for recorded in sorted(waves[1:], key=lambda recorded: recorded.wave.packed_rows):
            highest = max(seen.values())
            seen[recorded.wave.packed_rows] = max(highest, recorded.peak_bytes - recorded.wave.output_bytes)
        return cls(tuple(seen), tuple(seen.values()), waves[0].wave.segment_state_bytes)

    def compute_bytes(self, packed_rows: int) -> int:
        """Linear between recorded sizes, in proportion beyond the largest."""
        at = bisect_left(self.rows, packed_rows)
        if at == len(self.rows):
            return self.compute[-1] * packed_rows // self.rows[-1]
        if self.rows[at] == packed_rows:
            return self.compute[at]
        (low, high), (least, most) = self.rows[at - 1 : at + 1], self.compute[at - 1 : at + 1]
        return least + (most - least) * (packed_rows - low) // (high - low)


def steps(chance: random.Random) -> Iterator[list[Group]]:
    """Optimizer steps of groups of 4 to 8 rollouts, without end."""
    while True:
        yield [_group(chance) for _ in range(chance.randint(37, 150))]


def _group(chance: random.Random) -> Group:
    prompt = chance.randint(200, 1_500)
    completions = [chance.randint(64, 400) for _ in range(chance.randint(4, 8))]
    return Group(
        packed_rows=prompt + sum(completions),
        logical_rows=len(completions) * prompt + sum(completions),
        segments=1 + len(completions),
    )


def widest(groups: Sequence[Group], fits: Callable[[Group], bool]) -> Group:
    """The first groups together, as many as fit, one at least."""
    wave = groups[0]
    for group in groups[1:]:
        wider = Group(
            wave.packed_rows + group.packed_rows,
            wave.logical_rows + group.logical_rows,
            wave.segments + group.segments,
        )
        if not fits(wider):
            break
        wave = wider
    return wave


@dataclass
class Run:
    """What one law made of the requests. `limited`: whether a wave was cut by its price, not by the end of a step."""

    rows: list[int]
    limited: list[bool]
    under: int = 0
    out_of_memory: int = 0

    @property
    def scored(self) -> list[int]:
        return [rows for rows, limited in list(zip(self.rows, self.limited, strict=True))[SCORED_FROM:] if limited]


def run(machine: Machine, law: Law | None, wave_count: int, seed: int, noise_per_mille: int) -> Run:
    """Waves of one law (None: the oracle) until `wave_count` have run."""
    requests, chance = steps(random.Random(seed)), random.Random(seed + 1)
    profile, done = Profile(), Run([], [])
    left: list[Group] = []
    while len(done.rows) < wave_count:
        left = left or next(requests)
        ran = widest(left, _admits(machine, law, profile))
        left = left[_count(left, ran) :]
        wave = _wave(ran, machine)
        noise = chance.randint(-noise_per_mille, noise_per_mille)
        peak = wave.output_bytes + machine.compute_bytes(ran.packed_rows) * (PER_MILLE + noise) // PER_MILLE
        peak += 0 if done.rows else FIRST_WAVE_BYTES
        if law is not None and done.rows:
            done.under += required_bytes(wave, profile, law) < peak
            done.out_of_memory += peak > BUDGET_BYTES
        done.rows.append(ran.packed_rows)
        done.limited.append(bool(left))
        for reading in _readings(wave, peak):
            profile = observe(profile, reading)
    return done


def _count(groups: Sequence[Group], ran: Group) -> int:
    rows = count = 0
    while rows < ran.packed_rows:
        rows += groups[count].packed_rows
        count += 1
    return count


def _admits(machine: Machine, law: Law | None, profile: Profile) -> Callable[[Group], bool]:
    def oracle(group: Group) -> bool:
        wave = _wave(group, machine)
        need = wave.output_bytes + machine.compute_bytes(group.packed_rows)
        return with_safety(DEFAULT_SAFETY.numerator, DEFAULT_SAFETY.denominator, need) <= BUDGET_BYTES

    def priced(group: Group) -> bool:
        assert law is not None, "the oracle asks no law"
        if profile.is_empty or group.packed_rows > TRUST_GROWTH * profile.largest_packed_rows:
            return False
        return required_bytes(_wave(group, machine), profile, law) <= BUDGET_BYTES

    return oracle if law is None else priced


def _wave(group: Group, machine: Machine) -> Wave:
    return Wave(
        packed_rows=group.packed_rows,
        logical_rows=group.logical_rows,
        grad_segments=group.segments,
        output_bytes=4 * group.logical_rows,
        segment_state_bytes=machine.state_bytes,
        workload=WORKLOAD,
    )


def _readings(wave: Wave, peak_bytes: int) -> Iterator[Reading]:
    for kind, bytes_read in ((ReadingKind.FORWARD_ONLY, peak_bytes * 2 // 3), (ReadingKind.WHOLE_WAVE, peak_bytes)):
        yield Reading(
            packed_rows=wave.packed_rows,
            logical_rows=wave.logical_rows,
            grad_segments=wave.grad_segments,
            output_bytes=wave.output_bytes,
            peak_delta_bytes=bytes_read,
            footprint_bytes=bytes_read,  # a device that reserves what it hands out
            kind=kind,
        )


def measure(wave_count: int, seeds: Sequence[int], noises: Sequence[int]) -> list[dict[str, Any]]:
    """One row a trace and noise: rows a wave of each law and of the oracle, summed over the seeds."""
    results = []
    for name in TRACES:
        machine = Machine.of(read_trace(EVIDENCE / f"{name}.jsonl"))
        for noise in noises:
            runs = {
                law.name if law else "oracle": [run(machine, law, wave_count, seed, noise) for seed in seeds]
                for law in (FRONTIER, WARM, None)
            }
            rows = {key: _mean([rows for done in of_key for rows in done.scored]) for key, of_key in runs.items()}
            results.append(
                {
                    "trace": name,
                    "noise_per_mille": noise,
                    "rows_a_wave": {key: round(mean) for key, mean in rows.items()},
                    "of_oracle": {key: round(mean / rows["oracle"], 4) for key, mean in rows.items()},
                    "under": {key: sum(done.under for done in runs[key]) for key in ("frontier", "warm")},
                    "out_of_memory": {
                        key: sum(done.out_of_memory for done in runs[key]) for key in ("frontier", "warm")
                    },
                }
            )
    return results


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--waves", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds from --seed on")
    parser.add_argument("--noise", default="0:10:30", help="per mille, separated by colons")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--output")
    asked = parser.parse_args(arguments)
    noises = [int(part) for part in asked.noise.split(":")]
    results = measure(asked.waves, range(asked.seed, asked.seed + asked.seeds), noises)
    document = json.dumps({"budget_bytes": BUDGET_BYTES, "safety": str(DEFAULT_SAFETY), "results": results}, indent=2)
    if asked.output:
        write_text_atomically(asked.output, document + "\n")
    if asked.json:
        print(document)
        return 0
    print("trace      noise    rows a wave: frontier     warm   oracle   of the oracle: frontier   warm   under")
    for row in results:
        rows, share = row["rows_a_wave"], row["of_oracle"]
        print(
            f"{row['trace']:10} {row['noise_per_mille'] / 10:4.1f} % {rows['frontier']:24,} {rows['warm']:8,}"
            f" {rows['oracle']:8,} {share['frontier']:25.1%} {share['warm']:6.1%}"
            f"   {row['under']['frontier']} / {row['under']['warm']}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
