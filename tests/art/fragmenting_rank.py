"""ART's own planner over a device that fragments and runs out of memory. Nothing is executed: a plan is a fixed series
of allocations on a `SimulatedAllocator` (`fragmenting.Machine`), read and learned from as ART reads and learns.

    python -m tests.art.fragmenting_rank --machines 60 --output spec/evidence/art/fragmenting.json

Two batches on every machine, under two budgets, with the frontier law at 51/50: priced by what is allocated alone; with
footprints; and with every footprint told as no more than its allocated peak, so that the price is wrong and only waves
that ran out of memory teach.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import torch

from adapters.art import Binding, bind
from adapters.art.footprints import Footprints, Look
from adapters.torch_memory.simulated_allocator import MIB, Block, SimulatedAllocator
from pricing.formats.files import write_text_atomically
from pricing.kernel.wave import Wave
from tests.adapters.art.simulated import simulated_device
from tests.adapters.torch_memory.fragmenting import Machine
from tests.art.original import Geometry, load_trainer_rank, planning_rank
from tests.art.planning_runs import make_batch

ROOMS_MIB: Final = (512, 1_024)
TRIES: Final = 5
"""How often a batch is planned anew after an error, where nothing is learned from one."""
GEOMETRY: Final = Geometry(hidden=128, layers=4, heads=2, query_groups=1, channels=64, ffn=256, vocabulary=1_024)
"""Small, so that the machine decides and not ART's static floors."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of runs.

    failures: waves that ran out of memory. refused: batches that ART refused the rest of. readmitted: waves as large as
    one that ran out of memory, admitted into as few bytes (INV-16). beside_the_cache: waves that began with a price
    above what lay beside the cache, and with a cache that could be given back. releases: of the cache. retries: of the
    allocator, which gives its cache back where an allocation would fail. worst_run: most failures of one machine under
    one budget. failed: of the run at hand.
    """

    waves: int = 0
    rows: int = 0
    failures: int = 0
    refused: int = 0
    readmitted: int = 0
    beside_the_cache: int = 0
    releases: int = 0
    retries: int = 0
    worst_run: int = 0
    failed: list[tuple[Wave, int]] = field(default_factory=list)


class FragmentingRank:
    """A bound rank whose plans run on the machine of `seed`, with `room_mib` above what is resident.

    footprints: as `bind` takes them, True for the simulated device. Without them the rank's budget still counts the
    idle cache, so that the price is all that differs.
    """

    def __init__(
        self, seed: int, room_mib: int, *, footprints: bool = True, law: str = "frontier", safety: str
    ) -> None:
        self.machine = Machine.drawn(random.Random(seed))
        self.allocator = SimulatedAllocator(1 << 44)
        for size_bytes in self.machine.resident:
            self.allocator.allocate(size_bytes)
        self.allocator.limit_bytes = self.allocator.reserved_bytes + room_mib * MIB
        self.device = simulated_device(self.allocator)
        self.rank = planning_rank(GEOMETRY)
        del self.rank._available_memory_bytes
        if not footprints:
            self.rank._available_memory_bytes = lambda sample=None: self.device.sampler.budget().available_bytes
        self.rank.fragmenting = self
        self.events: list[Any] = []
        self.binding: Binding = bind(
            self.rank,
            law=law,
            safety=safety,
            records=self.events.append,
            footprints=self.device if footprints else False,
        )
        self.kept_percent = 50
        self.held: list[Block] = []
        self.ran = False
        self.at_start: Callable[[], None] = lambda: None

    def forward(self, plan: Any) -> None:
        """What ART's own tracked run does, on the machine: it raises its own error from the allocator's."""
        self.at_start()
        self.allocator.reset_peaks()
        baseline = self.allocator.allocated_bytes
        try:
            self.machine.run(self.allocator, plan.packed_tokens, self.held, first=not self.ran)
        except torch.OutOfMemoryError as error:
            raise load_trainer_rank().TrainerRankMemoryError(
                "CUDA OOM occurred despite the planner estimate",
                predicted_peak_bytes=0,
                usable_limit_bytes=0,
                suggestion="",
            ) from error
        self.ran = True
        peak = self.allocator.peak_allocated_bytes - baseline
        self.rank._update_memory_profile(plan, peak, retained_bytes=peak * self.kept_percent // 100)

    def let_go(self) -> None:
        for block in self.held:
            self.allocator.free(block)
        self.held.clear()

    def run(self, items: list[Any], tally: Tally, tries: int = 40) -> Tally:
        """A batch, planned anew from where it broke off, `tries` times at most."""
        start = 0
        while start < len(items):
            try:
                candidate = self.rank._select_next_micro_batch(items, start)
            except load_trainer_rank().TrainerRankMemoryError:
                tally.refused += 1
                return tally
            plan, check = candidate.plan, candidate.check
            tally.readmitted += any(
                plan.packed_tokens >= wave.packed_rows
                and plan.active_logical_tokens >= wave.logical_rows
                and plan.grad_segment_count >= wave.grad_segments
                and plan.output_bytes >= wave.output_bytes
                and check.available_bytes <= was
                for wave, was in tally.failed
            )

            def at_start(required: int = check.estimated_required_bytes) -> None:
                left = self.allocator.limit_bytes - self.allocator.reserved_bytes
                tally.beside_the_cache += required > left and self.allocator.releasable_bytes > 0

            self.at_start = at_start
            baseline = self.allocator.allocated_bytes
            try:
                self.rank._run_flat_plan_with_memory_tracking(plan, check=check, context="forward_micro_batches")
            except load_trainer_rank().TrainerRankMemoryError:
                self.let_go()
                tally.failures += 1
                wave = replace(
                    self.binding.admissions[-1].wave,
                    packed_rows=plan.packed_tokens,
                    logical_rows=plan.active_logical_tokens,
                    grad_segments=plan.grad_segment_count,
                    output_bytes=plan.output_bytes,
                )
                tally.failed.append((wave, check.available_bytes))
                tries -= 1
                if tries == 0:
                    return tally
                continue
            peak = self.allocator.peak_allocated_bytes - baseline
            self.rank._update_memory_profile(plan, peak, retained_bytes=None, caller_phase=True)
            self.rank._last_global_micro_batch_size = candidate.stats_global_count
            tally.waves, tally.rows = tally.waves + 1, tally.rows + plan.packed_tokens
            start += candidate.stats_global_count
        return tally


def run_forward(self: Any, plan: Any, *, check: Any, context: str) -> tuple[list[Any], None]:
    """In the place of ART's tracked run, on its class."""
    self.fragmenting.forward(plan)
    return [], None


def batch(seed: int, prompts: int = 24) -> list[Any]:
    return make_batch(random.Random(seed), prompts=prompts, rollouts=4, prompt=(64, 500), completion=(64, 400))


def two_batches(rank: FragmentingRank, tries: int = 40) -> Tally:
    """Two batches by one rank, each planned anew after every error, `tries` times at most."""
    tally = Tally()
    for seed in (1, 2):
        rank.run(batch(seed), tally, tries)
    tally.worst_run = tally.failures
    tally.retries = rank.allocator.alloc_retries
    tally.releases = 0 if rank.binding.footprints is None else rank.binding.footprints.releases
    return tally


def understated(look: Callable[..., Look]) -> Callable[..., Look]:
    """`Footprints.look` that tells every footprint as no more than the allocated peak."""

    def wrong(self: Footprints, plan: Any, *, ends: bool) -> Look:
        return replace(look(self, plan, ends=ends), footprint_bytes=0)

    return wrong


def all_machines(count: int, *, footprints: bool, tries: int) -> Tally:
    """Machines 0 to `count` under both budgets, each from an empty profile."""
    total = Tally()
    for seed in range(count):
        for room_mib in ROOMS_MIB:
            tally = two_batches(FragmentingRank(seed, room_mib, footprints=footprints, safety="51/50"), tries)
            for name in (each.name for each in fields(Tally) if each.type == "int"):
                merge = max if name == "worst_run" else int.__add__
                setattr(total, name, merge(getattr(total, name), getattr(tally, name)))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=60)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    load_trainer_rank()._impl.TrainerRank._run_flat_plan_with_memory_tracking = run_forward
    results = {
        "allocated alone": all_machines(options.machines, footprints=False, tries=TRIES),
        "with footprints": all_machines(options.machines, footprints=True, tries=40),
    }
    Footprints.look = understated(Footprints.look)  # type: ignore[method-assign]
    results["with footprints understated"] = all_machines(options.machines, footprints=True, tries=40)
    document = {
        "command": f"python -m tests.art.fragmenting_rank --machines {options.machines}",
        "runs": options.machines * len(ROOMS_MIB),
        "safety": "51/50",
        "results": {
            name: {field: value for field, value in asdict(tally).items() if field != "failed"}
            for name, tally in results.items()
        },
    }
    text = json.dumps(document, indent=1) + "\n"
    if options.output is not None:
        write_text_atomically(options.output, text)
    print(text, end="")


if __name__ == "__main__":
    main()
