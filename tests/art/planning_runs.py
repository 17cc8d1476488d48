"""Planning runs: batches through a rank's own planner, against a made-up machine. No GPU, nothing is executed.

What a wave would have reached is computed from its plan, and the rank learns it through its own profile update,
as it would from a real counter. Two ranks given the same scenario can so be compared wave by wave.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adapters.art.bound_rank import bind
from pricing.kernel.quantities import GIB, MIB
from tests.art.original import DEFAULT_GEOMETRY, Geometry, load_trainer_rank, planning_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A made-up device: forward peak = row_bytes * P + logical_row_bytes * L + fixed_bytes (+ outputs), more
    when cold.

    The forward keeps `kept_percent` of that; the caller's loss and backward raise it to `caller_percent`.
    """

    row_bytes: int
    logical_row_bytes: int = 0
    fixed_bytes: int = 64 << 20
    cold_bytes: int = 2 << 30
    caller_percent: int = 120
    kept_percent: int = 60

    def forward_bytes(self, plan: Any, *, cold: bool) -> int:
        """Bytes above baseline at the forward's peak."""
        rows: int = self.row_bytes * plan.packed_tokens + self.logical_row_bytes * plan.active_logical_tokens
        return rows + self.fixed_bytes + int(plan.output_bytes) + (self.cold_bytes if cold else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWave:
    """One wave that a rank's planner picked and the machine ran. `peak_bytes` is what the machine then reached.

    `planning_seconds` is CPU time of the planning thread: what else the computer does is not in it.
    """

    start: int
    width: int
    packed_rows: int
    logical_rows: int
    required_bytes: int
    peak_bytes: int
    planning_seconds: float
    cold: bool
    subforwards: int


def run_batch(
    rank: Any, items: Sequence[Any], machine: Machine, waves: list[RunWave] | None = None, *, cold: bool = True
) -> list[RunWave]:
    """Plan `items` wave by wave with the rank's own planner, and teach it what the machine reached.

    Waves are added to `waves` as they run, so those before one of ART's refusals, which is raised, are there.
    `cold`: the first wave pays the machine's one-time costs.
    """
    waves = [] if waves is None else waves
    start = 0
    while start < len(items):
        began = time.thread_time()
        candidate = rank._select_next_micro_batch(items, start)
        seconds = time.thread_time() - began
        width = candidate.stats_global_count
        peak = _run(rank, candidate, machine, cold=cold and start == 0)
        rank._last_global_micro_batch_size = max(rank._last_global_micro_batch_size or 0, width)
        waves.append(
            RunWave(
                start=start,
                width=width,
                packed_rows=candidate.plan.packed_tokens,
                logical_rows=candidate.plan.logical_tokens,
                required_bytes=candidate.check.estimated_required_bytes,
                peak_bytes=peak,
                planning_seconds=seconds,
                cold=candidate.cold_start,
                subforwards=candidate.plan.subforward_count,
            )
        )
        start += width
    return waves


def _run(rank: Any, candidate: Any, machine: Machine, *, cold: bool) -> int:
    """Both readings of a flat wave, or one of each child of a split; the peak that was reached."""
    children = getattr(candidate.plan, "subforwards", None)
    peak = kept = 0
    for plan in children or (candidate.plan,):
        forward = machine.forward_bytes(plan, cold=cold)
        retained = forward * machine.kept_percent // 100
        rank._update_memory_profile(plan, forward, retained_bytes=retained)
        peak, kept = max(peak, kept + forward), kept + retained
    if children is None:
        peak = peak * machine.caller_percent // 100
        rank._update_memory_profile(candidate.plan, peak, retained_bytes=None, caller_phase=True)
    return peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The waves of one run, and the kind of refusal that ended it (None: every item ran)."""

    waves: tuple[RunWave, ...]
    refusal: str | None

    @property
    def choices(self) -> tuple[object, ...]:
        """What the planner decided: start, width, packed rows and sub-forwards of every wave, and how it ended."""
        return *((wave.start, wave.width, wave.packed_rows, wave.subforwards) for wave in self.waves), self.refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A batch, a machine and a budget."""

    items: Sequence[Any]
    machine: Machine
    budget_bytes: int
    geometry: Geometry = DEFAULT_GEOMETRY

    def run(self, law: str | None, safety: str = "11/10") -> Outcome:
        """The whole batch by a fresh rank: the original's pricing where `law` is None, else bound to that law."""
        rank = planning_rank(self.geometry, self.budget_bytes)
        if law is not None:
            bind(rank, law=law, safety=safety)
        waves: list[RunWave] = []
        refusal = None
        try:
            run_batch(rank, self.items, self.machine, waves)
        except load_trainer_rank().TrainerRankMemoryError as error:
            refusal = type(error).__name__
        return Outcome(waves=tuple(waves), refusal=refusal)


def random_scenario(seed: int) -> Scenario:
    """Up to 12 prompts with up to 12 rollouts, budgets of a thousand rows to 128 thousand. The same for
    the same seed.
    """
    draw = random.Random(seed)
    whole = draw.random() < 0.7  # a prompt's rollouts as one item: such an item is what ART's split ladder may cut
    items: list[Any] = []
    for _ in range(draw.randint(1, 12)):
        group = make_batch(draw, prompts=1, rollouts=draw.randint(1, 12), prompt=(16, 600), completion=(8, 300))
        items += [group] if whole else group
    machine = Machine(
        row_bytes=draw.choice((10_000, 150_000, 450_000)),
        logical_row_bytes=draw.choice((0, 2_000, 6_000)),
        fixed_bytes=draw.choice((0, 64 * MIB, 900 * MIB)),
        cold_bytes=draw.choice((0, 0, 256 * MIB, 2 * GIB)),
        caller_percent=draw.randint(100, 130),
        kept_percent=draw.choice((10, 60)),
    )
    budget = machine.fixed_bytes + int(machine.row_bytes * 1_000 * 2 ** draw.uniform(0, 7))
    return Scenario(items=items, machine=machine, budget_bytes=budget)


def make_batch(
    draw: random.Random, *, prompts: int, rollouts: int, prompt: tuple[int, int], completion: tuple[int, int]
) -> list[Any]:
    """ART requests: each prompt's rollouts in a row, single-target labels."""
    import torch

    request = load_trainer_rank().ForwardInput
    items = []
    for _ in range(prompts):
        shared = torch.tensor([draw.randrange(50_000) for _ in range(draw.randint(*prompt))])
        for _ in range(rollouts):
            own = torch.tensor([draw.randrange(50_000) for _ in range(draw.randint(*completion))])
            row = torch.cat((shared, own))
            items.append(request(input_tokens=row, target_tokens=row.roll(-1)))
    return items
