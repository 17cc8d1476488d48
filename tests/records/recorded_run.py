"""A recorded run for tests of the report: a shipped H200 trace, priced wave by wave, with chosen trouble."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pricing import GIB, Law, Profile, RequestSpec, find_law, observe
from pricing.evidence.trace import TraceWave, read_trace
from pricing.kernel.reading import Reading
from pricing.planner.budget import Budget
from pricing.planner.plan import Batch, PlanRequest, Setting, WavePlan, plan_wave
from pricing.records.recorder import Recorder, Triggers
from pricing.records.spool import Spool

EVIDENCE = Path(__file__).parents[2] / "spec" / "evidence" / "h200"

ROOMY = Budget(free_bytes=95 * GIB, reserve_bytes=5 * GIB, reusable_cache_bytes=3 * GIB)
TIGHT = Budget(free_bytes=2 * GIB, reserve_bytes=GIB, reusable_cache_bytes=0)


def record_run(
    folder: Path,
    *,
    trace: str = "dense-1",
    law: str = "warm",
    waves: int = 40,
    refused: Sequence[int] = (),
    out_of_memory: Sequence[int] = (),
    under: Sequence[int] = (),
    names: Sequence[str] = ("rank0",),
) -> None:
    """Record the first `waves` waves of a trace under each name; those listed are refused, fail, or peak too high."""
    for name in names:
        spool = Spool(folder)
        recorder = Recorder(name=name, spool=spool, triggers=Triggers())
        profile = Profile()
        for wave in read_trace(EVIDENCE / f"{trace}.jsonl")[:waves]:
            if wave.index in refused:
                recorder.refused(refused_plan(wave, profile, find_law(law)), budget=TIGHT, index=wave.index)
                continue
            ticket = recorder.priced(
                wave.wave,
                profile,
                available_bytes=ROOMY.available_bytes,
                budget=ROOMY,
                law=find_law(law),
                index=wave.index,
            )
            assert ticket is not None, recorder.last_failure
            if wave.index in out_of_memory:
                after = Budget(free_bytes=14_352_384, reserve_bytes=0)
                recorder.out_of_memory(ticket, requested_bytes=67_108_864, budget_after=after)
                continue
            last = wave.readings[-1]
            if wave.index in under:
                last = high_reading(last, ticket.required_bytes + GIB)
            else:
                for reading in wave.readings:
                    profile = observe(profile, reading)
            recorder.observed(ticket, last)
        assert recorder.failures == 0, recorder.last_failure
        assert spool.dropped == 0, spool.last_failure


def high_reading(reading: Reading, peak_delta_bytes: int) -> Reading:
    return Reading(
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        grad_segments=reading.grad_segments,
        output_bytes=reading.output_bytes,
        peak_delta_bytes=peak_delta_bytes,
    )


def refused_plan(wave: TraceWave, profile: Profile, law: Law) -> WavePlan:
    """A planner's refusal of two requests of the wave's size on the tight budget."""
    rows = max(64, wave.wave.packed_rows // 2)
    spec = RequestSpec(input_shape=(rows,), target_shape=(rows,))
    batch = Batch([[PlanRequest(tokens=[request] * rows, spec=spec, output_bytes=4 * rows) for request in range(2)]])
    setting = Setting(segment_state_bytes=wave.wave.segment_state_bytes)
    signature = plan_wave(batch, profiles={}, available_bytes=0, setting=setting).signature
    return plan_wave(
        batch,
        profiles={signature: profile},
        available_bytes=TIGHT.available_bytes,
        setting=setting,
        law=law,
        probed={signature},
    )
