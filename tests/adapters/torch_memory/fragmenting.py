"""Random histories on a device whose allocator fragments: what an admitted wave then does.

    python -m tests.adapters.torch_memory.fragmenting --histories 1000 --output spec/evidence/fragmenting.json

A **machine** is a decoder drawn at random: layers whose blocks grow with rows, a head whose blocks do not, what stays
from the first wave on. A wave of so many rows is a fixed series of allocations on it. A **history** is a run on a
`SimulatedAllocator`: each wave the widest that its price lets into what the budget counts, the cache released where
that teaches or is needed, what was measured learned. Two kinds, in turn:

* **honest**: the device has what the budget counts. Where its machine obeys the assumptions within the safety factor
  (`obeys`, from the true footprint of every size), no admitted wave may fail.
* **scarce**: the device has a tenth to nine tenths of it, of some no footprint is told: waves fail. Then what failed
  must never be admitted again into as few bytes (INV-16), and failures must end (INV-18).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import torch

from adapters.torch_memory.simulated_allocator import MIB, Block, SimulatedAllocator
from pricing import LAWS, Law, Profile, Reading, ReadingKind, Wave, Workload, observe, required_bytes
from pricing.contracts.physical import most_failures
from pricing.formats.files import write_text_atomically
from pricing.kernel.profile import needs_footprint
from pricing.kernel.quantities import DEFAULT_SAFETY
from pricing.kernel.reading import out_of_memory_footprint_bytes
from pricing.planner.budget import Budget, BudgetVerdict, judge, judge_after_release

SIZES: Final = tuple(round(256 * 2 ** (step / 2)) for step in range(15))
"""Packed rows that a wave may have: 256 to 32,768."""

UNLIMITED: Final = 1 << 44
WAVES: Final = 14
ROUNDING: Final = 16 * MIB
"""What an allocator's rounding adds to any wave, whatever it runs: a few segments (SCALE speaks of no such steps)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Bytes a row of what a layer saves and of each of its passing blocks; the head's chunk of rows and bytes a row of
    it; what is resident, and what stays allocated from the first wave on."""

    layers: int
    saved: int
    passing: tuple[int, ...]
    head_rows: int
    head_bytes: int
    resident: tuple[int, ...]
    stays: tuple[int, ...]

    @classmethod
    def drawn(cls, draw: random.Random) -> Machine:
        return cls(
            layers=draw.randint(2, 6),
            saved=draw.choice((1024, 4096, 8192)),
            passing=tuple(draw.choice((2048, 6144, 8192, 24576, 40960)) for _ in range(draw.randint(2, 6))),
            head_rows=draw.choice((256, 1024, 2048)),
            head_bytes=draw.choice((8192, 65536, 262144)),
            resident=tuple(draw.randint(1, 64) * MIB // 3 for _ in range(draw.randint(1, 8))),
            stays=tuple(draw.randint(1, 48) * MIB // 7 for _ in range(draw.randint(0, 3))),
        )

    def run(self, allocator: SimulatedAllocator, rows: int, held: list[Block], *, first: bool) -> None:
        """A wave. What it holds is in `held`, also when it runs out of memory; what stays is not."""

        def take(size_bytes: int) -> Block:
            held.append(allocator.allocate(size_bytes))
            return held[-1]

        def let_go(block: Block) -> None:
            held.remove(block)
            allocator.free(block)

        saved = []
        for _ in range(self.layers):
            saved.append(take(self.saved * rows))
            for block in [take(rate * rows) for rate in self.passing]:
                let_go(block)
        stays: list[Block] = []
        if first:
            stays = [take(size_bytes) for size_bytes in self.stays]
        for _ in range(2):
            chunk = [take(self.head_bytes * min(rows, self.head_rows)) for _ in range(2)]
            for block in chunk:
                let_go(block)
        for block in reversed(saved):
            passing = [take(rate * rows) for rate in self.passing]
            gradient = take(self.saved * rows)
            for each in (*passing, gradient, block):
                let_go(each)
        for block in stays:
            held.remove(block)


def wave_of(rows: int) -> Wave:
    return Wave(packed_rows=rows, logical_rows=rows, grad_segments=1, output_bytes=0, workload=Workload.training())


@dataclass(slots=True)
class Device:
    """A machine on its allocator. After the first wave its released state is always the same: true figures are too."""

    machine: Machine
    allocator: SimulatedAllocator
    ran: bool = False
    true: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, machine: Machine, limit_bytes: int) -> Device:
        device = cls(machine, SimulatedAllocator(limit_bytes))
        for size_bytes in machine.resident:
            device.allocator.allocate(size_bytes)
        return device

    def measure(self, rows: int) -> tuple[int, int]:
        """Allocated delta and footprint of a wave. Raises `torch.OutOfMemoryError`, everything let go."""
        allocator, held = self.allocator, []  # type: SimulatedAllocator, list[Block]
        allocator.reset_peaks()
        before = allocator.allocated_bytes
        try:
            self.machine.run(allocator, rows, held, first=not self.ran)
        except torch.OutOfMemoryError:
            for block in held:
                allocator.free(block)
            raise
        self.ran = True
        return allocator.peak_allocated_bytes - before, allocator.peak_reserved_bytes - before


def true_figures(machine: Machine) -> dict[int, tuple[int, int]]:
    """Allocated delta and footprint of every size, begun with a released cache after the smallest ran first."""
    device = Device.of(machine, UNLIMITED)
    device.measure(SIZES[0])
    figures = {}
    for rows in SIZES:
        device.allocator.empty_cache()
        figures[rows] = device.measure(rows)
    return figures


def obeys(figures: Mapping[int, tuple[int, int]], sizes: Sequence[int] = SIZES) -> bool:
    """Whether SCALE and FOOTPRINT-SCALE hold among these sizes, within the safety factor: then its promise is due."""
    up, down = DEFAULT_SAFETY.numerator, DEFAULT_SAFETY.denominator
    return all(
        figures[rows][of] * down * min(rows, other) <= up * figures[other][of] * rows
        and (rows > other or figures[rows][of] * down <= up * figures[other][of])
        for of in (0, 1)
        for other in sizes
        for rows in sizes
    )


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of histories.

    failures: waves that ran out of memory. of_obeying: those in honest histories whose machine obeys.
    fitting_yet_failed: begun with a released cache, though the footprint fitted. from_a_used_cache: begun otherwise,
    where stale blocks may be in the way. readmitted: breaches of INV-16. beyond_the_bound: histories with more failures
    from a released cache than INV-18 allows, down to the widest size that runs from one.
    """

    histories: int = 0
    obeying: int = 0
    waves: int = 0
    rows: int = 0
    failures: int = 0
    of_obeying: int = 0
    fitting_yet_failed: int = 0
    from_a_used_cache: int = 0
    readmitted: int = 0
    beyond_the_bound: int = 0
    most_failures: int = 0
    ended_without_a_width: int = 0
    releases: int = 0


def run_history(law: Law, seed: int, tally: Tally) -> None:
    """One history, into the tally."""
    draw = random.Random(seed)
    machine, scarce = Machine.drawn(draw), seed % 2 == 1
    figures = true_figures(machine)
    resident = Device.of(machine, UNLIMITED).allocator.reserved_bytes + sum(machine.stays)
    room = figures[draw.choice(SIZES[6:])][1] + figures[SIZES[0]][1] + ROUNDING
    claimed = resident + room * draw.randint(10, 30) // 10
    limit = claimed if not scarce else resident + figures[SIZES[0]][1] + (claimed - resident) * draw.randint(1, 9) // 10
    withheld = scarce and draw.random() < 0.3
    device, profile, failed = Device.of(machine, limit), Profile(), []  # type: Device, Profile, list[tuple[int, int]]
    obeying = not scarce and obeys(figures)
    tally.histories += 1
    tally.obeying += obeying
    failures, first_failed = 0, 0
    for index in range(WAVES):
        wanted = SIZES[0] if index == 0 else draw.choice(SIZES[8:] if scarce else SIZES)
        for _ in range(200):
            allocator = device.allocator
            idle = allocator.reserved_bytes - allocator.allocated_bytes
            budget = Budget(
                free_bytes=claimed - allocator.reserved_bytes, reserve_bytes=0, reusable_cache_bytes=max(0, idle)
            )
            fitting = [
                rows
                for rows in SIZES
                if rows <= wanted
                and judge(required_bytes(wave_of(rows), profile, law), budget) is not BudgetVerdict.REFUSE
            ]
            if not fitting:
                tally.ended_without_a_width += 1
                return
            rows = fitting[-1]
            wave, available = wave_of(rows), budget.available_bytes
            price = required_bytes(wave, profile, law)
            clean = needs_footprint(profile, wave) or judge(price, budget) is BudgetVerdict.RELEASE
            if clean:
                before = allocator.reserved_bytes
                allocator.empty_cache()
                tally.releases += 1
                verdict = judge_after_release(price, budget.after_release(before - allocator.reserved_bytes))
                assert verdict is BudgetVerdict.RUN, "INV-17: a plan is admitted on an unchanged device"
            clean = clean or allocator.releasable_bytes == 0
            tally.readmitted += any(rows >= large and available <= was for large, was in failed)
            tally.waves += 1
            reserved, in_use = allocator.reserved_bytes, allocator.allocated_bytes
            try:
                allocated, footprint = device.measure(rows)
            except torch.OutOfMemoryError:
                failures, first_failed = failures + clean, first_failed or rows * clean
                tally.from_a_used_cache += not clean
                failed.append((rows, available))
                tally.failures += 1
                tally.of_obeying += obeying
                tally.fitting_yet_failed += clean and device.ran and figures[rows][1] <= limit - in_use
                profile = observe(
                    profile,
                    Reading.of(
                        wave,
                        peak_delta_bytes=allocator.peak_allocated_bytes - in_use,
                        footprint_bytes=max(
                            allocator.peak_allocated_bytes - in_use,
                            out_of_memory_footprint_bytes(
                                available_bytes=available, reserved_bytes=reserved - in_use, requested_bytes=0
                            ),
                        ),
                        kind=ReadingKind.OUT_OF_MEMORY,
                    ),
                )
                continue
            tally.rows += rows
            told = footprint if clean and not withheld else None
            profile = observe(profile, Reading.of(wave, peak_delta_bytes=allocated, footprint_bytes=told))
            break
        else:
            raise AssertionError("a wave was tried 200 times")
    tally.most_failures = max(tally.most_failures, failures)
    runs = [rows for rows in SIZES if figures[rows][1] <= limit - resident]
    tally.beyond_the_bound += failures > most_failures(first_failed or 1, max(runs, default=SIZES[0]))


def run_histories(law: Law, count: int) -> dict[str, Tally]:
    """Histories 0 to `count`, by kind."""
    tallies = {"honest": Tally(), "scarce": Tally()}
    for seed in range(count):
        run_history(law, seed, tallies["scarce" if seed % 2 else "honest"])
    return tallies


def broken_promises(tally: Tally) -> list[str]:
    """What must be 0, and is not."""
    must = ("of_obeying", "fitting_yet_failed", "readmitted", "beyond_the_bound")
    return [name for name in must if getattr(tally, name) != 0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    results = {name: run_histories(law, options.histories) for name, law in LAWS.items()}
    document = {
        "command": f"python -m tests.adapters.torch_memory.fragmenting --histories {options.histories}",
        "safety": str(DEFAULT_SAFETY),
        "laws": {name: {kind: asdict(tally) for kind, tally in kinds.items()} for name, kinds in results.items()},
    }
    text = json.dumps(document, indent=2) + "\n"
    if options.output is not None:
        write_text_atomically(options.output, text)
    print(text, end="")
    return int(any(broken_promises(tally) for kinds in results.values() for tally in kinds.values()))


if __name__ == "__main__":
    raise SystemExit(main())
