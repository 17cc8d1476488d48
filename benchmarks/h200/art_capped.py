"""ART's admission near the edge of a device: does it get safer with footprints?

A ballast tensor takes all of the device but `room_bytes`, and a process memory fraction keeps ART's reserve of 3 % out
of reach. So what ART samples as available, what this project's sampler does, and what the allocator can really take are
the same figure to begin with, and nothing soft lies behind it: a wave that takes more ends out of memory.

Each arm runs the same batches from an empty profile: a forward, a loss and its backward a wave. A batch that breaks off
goes on with the items that did not run, up to `TRIES` times from the same one; then that item and the next few are left
out. An arm ends after `seconds_an_arm` at the latest.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from adapters.art import AdmittedPlan, Binding, LearnedReading, bind
from adapters.torch_memory import AcceleratorMemory, is_out_of_memory
from adapters.torch_memory.counter import allocator_figures, figure
from adapters.wave_loop.failure import BackwardQueue, let_go
from pricing.kernel.quantities import GIB, MIB
from pricing.planner.budget import reserve_of
from tests.art.original import load_trainer_rank

TRIES = 3
LEFT_OUT_ITEMS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CapArm:
    """One way to price and to count. law: None for ART's own. counts_cache: whether idle cache counts as available
    where ART's own count leaves it out; with footprints it does, and is given back where it is needed."""

    name: str
    law: str | None
    safety: str = "11/10"
    footprints: bool = False
    counts_cache: bool = False


ARMS = (
    CapArm(name="original", law=None),
    CapArm(name="allocated 51/50", law="frontier", safety="51/50"),
    CapArm(name="allocated 51/50, cache counted", law="frontier", safety="51/50", counts_cache=True),
    CapArm(name="footprints 51/50", law="frontier", safety="51/50", footprints=True),
    CapArm(name="allocated 11/10, cache counted", law="frontier", counts_cache=True),
    CapArm(name="footprints 11/10", law="frontier", footprints=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """room_bytes: what a wave may take above what is resident. seconds_an_arm: when an arm is stopped."""

    room_bytes: int = 4 * GIB
    seconds_an_arm: float = 18.0


@dataclass(slots=True, kw_only=True)
class CapRun:
    """What came of one arm. failures: errors that reached the caller because the device ran out of memory."""

    name: str
    waves: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    refusals: int = 0
    left_out_items: int = 0
    seconds: float = 0.0
    releases: int = 0
    release_seconds: float = 0.0
    allocator_retries: int = 0
    allocator_failures: int = 0
    ended: bool = False
    error: str | None = None


@contextmanager
def capped(cap: Cap) -> Iterator[int]:
    """The device with no more than `cap.room_bytes` left. Yields what is reserved then: what is resident. A no-op
    without a GPU."""
    if not torch.cuda.is_available():
        yield 0
        return
    torch.cuda.empty_cache()
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    room_bytes = free_bytes - reserve_of(total_bytes)
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + room_bytes) / total_bytes)
    ballast = torch.empty((room_bytes - cap.room_bytes) // (2 * MIB) * 2 * MIB, dtype=torch.uint8, device="cuda")
    try:
        yield torch.cuda.memory_reserved()
    finally:
        del ballast
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1.0)


def run_arms(
    runtime: Any, batches: list[list[Any]], cap: Cap, log: Callable[..., None], arms: tuple[CapArm, ...] = ARMS
) -> list[CapRun]:
    """Every arm, on the same capped device."""
    runs = []
    with capped(cap) as resident_bytes:
        for arm in arms:
            run = CapRun(name=arm.name)
            try:
                _run_arm(run, arm, runtime, batches, cap, resident_bytes, log)
            except Exception as error:
                run.error = f"{type(error).__name__}: {str(error)[:300]}"
                let_go(error)
            clean_up()
            log("capped", **summarize(run))
            runs.append(run)
    return runs


def _run_arm(
    run: CapRun,
    arm: CapArm,
    runtime: Any,
    batches: list[list[Any]],
    cap: Cap,
    resident_bytes: int,
    log: Callable[..., None],
) -> None:
    rank = load_trainer_rank().TrainerRank(runtime)
    seen = Seen()
    binding: Binding | None = None
    if arm.counts_cache:
        rank._available_memory_bytes = available_with_cache
    if arm.law is not None:
        binding = bind(rank, law=arm.law, safety=arm.safety, footprints=arm.footprints, records=seen)
    before, began = device_counts(), time.perf_counter()
    for batch in batches:
        run.ended = run_batch(run, rank, binding, batch, seen, cap, resident_bytes, began, log)
        rank.zero_grad()
        if not run.ended:
            break
    run.seconds = time.perf_counter() - began
    run.allocator_retries, run.allocator_failures = (
        now - was for now, was in zip(device_counts(), before, strict=True)
    )
    if binding is not None and binding.footprints is not None:
        run.releases, run.release_seconds = binding.footprints.releases, binding.footprints.release_seconds


@dataclass(slots=True)
class Seen:
    """What a bound rank says: its latest admission, and the closing reading, which goes to the facts of its wave."""

    admission: AdmittedPlan | None = None
    wave: dict[str, Any] | None = None

    def __call__(self, event: AdmittedPlan | LearnedReading) -> None:
        if isinstance(event, AdmittedPlan):
            self.admission = event
        elif self.wave is not None and event.reading.retained_bytes is None:
            self.wave["kind"] = str(event.reading.kind)
            self.wave["peak_delta_bytes"] = event.reading.peak_delta_bytes
            self.wave["footprint_bytes"] = event.reading.footprint_bytes


def run_batch(
    run: CapRun,
    rank: Any,
    binding: Binding | None,
    batch: list[Any],
    seen: Seen,
    cap: Cap,
    resident_bytes: int,
    began: float,
    log: Callable[..., None],
) -> bool:
    """Run a batch to its end, whatever breaks off. False where the arm's time was over before."""
    start, tries, queue = 0, 0, BackwardQueue()

    def finish() -> None:
        if seen.wave is not None:
            log("capped_wave", arm=run.name, **seen.wave)
            seen.wave = None

    while start < len(batch):
        failure = None
        wave: Any = None
        try:
            for wave in rank.forward_micro_batches(batch[start:]):
                finish()
                backward(wave)
                start, tries = start + wave.stats.global_count, 0
                seen.wave = facts_of(wave.stats, seen, cap, resident_bytes)
                run.waves.append(seen.wave)
                if time.perf_counter() - began > cap.seconds_an_arm:
                    finish()
                    return False
        except Exception as error:
            failure = {"at_item": start, "error": f"{type(error).__name__}: {str(error)[:160]}"}
            if is_out_of_memory(error):
                failure["after_waves"] = len(run.waves)
                run.failures.append(failure)
            elif isinstance(error, load_trainer_rank().TrainerRankMemoryError):
                run.refusals += 1
            else:
                raise
            let_go(error)
        wave = None
        finish()
        if failure is not None:
            log("capped_failure", arm=run.name, **failure)
            queue.is_suspect = True
            queue.clear()
            rank.zero_grad()
            clean_up()
            tries += 1
            if tries == TRIES:
                run.left_out_items += min(LEFT_OUT_ITEMS, len(batch) - start)
                start, tries = start + LEFT_OUT_ITEMS, 0
            if time.perf_counter() - began > cap.seconds_an_arm:
                return False
    return True


def backward(wave: Any) -> None:
    """A CISPO-like loss and its backward."""
    losses = [
        -(output.target_logprobs.detach().exp().clamp(max=2) * output.target_logprobs).sum() for output in wave.outputs
    ]
    torch.stack(losses).sum().backward()


def facts_of(stats: Any, seen: Seen, cap: Cap, resident_bytes: int) -> dict[str, Any]:
    """A wave that ran whole; its reserved peak is read at the end of its backward."""
    facts: dict[str, Any] = {
        "requests": stats.global_count,
        "packed_rows": stats.packed_tokens,
        "predicted_bytes": stats.estimated_required_bytes,
        "available_bytes": stats.available_bytes,
        "subforwards": stats.subforward_count,
    }
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        facts["reserved_peak_bytes"] = torch.cuda.max_memory_reserved() - resident_bytes
        facts["reserved_over_room"] = round(facts["reserved_peak_bytes"] / cap.room_bytes, 4)
    if seen.admission is not None:
        facts["quantity"] = str(seen.admission.price.quantity)
        facts["binding_term"] = seen.admission.price.binding_term
        facts["released_cache"] = seen.admission.released_cache
        facts["started_clean"] = seen.admission.started_clean
    return facts


def available_with_cache(sample: dict[str, Any] | None = None) -> int:
    """ART's count with the idle cache in it: everything that the allocator can hand out or take."""
    if not torch.cuda.is_available():
        return 1 << 60
    return max(0, AcceleratorMemory("cuda").sample().budget.available_bytes)


def device_counts() -> tuple[int, int]:
    """How often the allocator gave its cache back because an allocation would have failed, and how often one failed."""
    if not torch.cuda.is_available():
        return 0, 0
    figures = allocator_figures(torch.device("cuda"))
    return figure(figures, "num_alloc_retries"), figure(figures, "num_ooms")


def clean_up() -> None:
    """What a caller does after a wave that broke off, and between arms."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def summarize(run: CapRun) -> dict[str, Any]:
    """One line of the table."""
    ratios = [wave["reserved_over_room"] for wave in run.waves if "reserved_over_room" in wave]
    rows = [wave["packed_rows"] for wave in run.waves]
    return {
        "name": run.name,
        "waves": len(run.waves),
        "requests": sum(wave["requests"] for wave in run.waves),
        "mean_rows_a_wave": round(statistics.mean(rows)) if rows else None,
        "rows_a_second": round(sum(rows) / run.seconds) if run.seconds else None,
        "out_of_memory": len(run.failures),
        "allocator_failures": run.allocator_failures,
        "allocator_retries": run.allocator_retries,
        "refusals": run.refusals,
        "left_out_items": run.left_out_items,
        "mean_reserved_over_room": round(statistics.mean(ratios), 4) if ratios else None,
        "highest_reserved_over_room": max(ratios, default=None),
        "waves_under": sum(map(_is_under, run.waves)) if any("kind" in wave for wave in run.waves) else None,
        "priced_by_footprint": sum(wave.get("quantity") == "footprint" for wave in run.waves),
        "releases": run.releases,
        "release_seconds": round(run.release_seconds, 4),
        "seconds": round(run.seconds, 2),
        "all_batches": run.ended,
        "error": run.error,
    }


def _is_under(wave: dict[str, Any]) -> bool:
    """Whether a wave's price lay under its footprint, or its peak where no footprint was read."""
    seen_bytes = wave.get("footprint_bytes") or wave.get("peak_delta_bytes") or 0
    return bool(wave["predicted_bytes"] < seen_bytes)


COLUMNS = {
    "name": "priced",
    "waves": "waves",
    "requests": "requests",
    "mean_rows_a_wave": "rows a wave",
    "rows_a_second": "rows a second",
    "out_of_memory": "out of memory",
    "allocator_retries": "retries of the allocator",
    "refusals": "refused",
    "left_out_items": "requests left out",
    "mean_reserved_over_room": "mean reserved / room",
    "highest_reserved_over_room": "highest",
    "waves_under": "waves under",
    "releases": "releases",
    "seconds": "seconds",
}


def table(runs: list[dict[str, Any]]) -> str:
    """The summaries as a Markdown table."""
    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
    lines += [["" if run[column] is None else str(run[column]) for column in COLUMNS] for run in runs]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
