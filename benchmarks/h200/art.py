"""OpenPipe ART's own `TrainerRank` runs real waves with this kernel bound, and learns from real peaks.

    python -m benchmarks.h200.art --out DIR          on a GPU, with openpipe-art and megatron-core importable
    python -m benchmarks.h200.art --out DIR --small  anywhere: the same path on a tiny model (no GPU, no readings)

Writes DIR/art_h200.jsonl, one line an event, flushed as it happens, and DIR/art_h200.json, the summary. The
same batches run three times over one model: with ART's own pricing, bound to the warm law and bound to the
frontier law, each from an empty profile and under one budget, after an unrecorded pass that pays for
compilation. These arms price what is allocated alone, as ART does.

Then the device itself is made small, and the arms of `art_capped` run to its edge: ART's own pricing, and the frontier
law with and without footprints. `--capped` runs these alone. The process must have the GPU for itself.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch

from adapters.art import Admission, Binding, Observation, bind
from adapters.art.interface import installed_version
from benchmarks.h200 import art_capped, art_model
from pricing.kernel.quantities import GIB
from pricing.kernel.reading import ReadingKind
from tests.art.original import load_trainer_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Batches of prompts with rollouts that share them; lengths in tokens."""

    batches: int = 2
    edge_batches: int = 4
    prompts: int = 16
    rollouts: int = 8
    prompt: int = 1_024
    completion: tuple[int, int] = (128, 512)
    budget_bytes: int = 4 * GIB


@dataclass(slots=True, kw_only=True)
class Arm:
    """One run of all batches by one rank."""

    name: str
    waves: list[dict[str, Any]] = field(default_factory=list)
    batch_seconds: list[float] = field(default_factory=list)
    price_call_microseconds: float | None = None
    error: str | None = None


class Log:
    """Events as JSON lines, on disk as soon as they are written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.perf_counter()

    def write(self, event: str, **facts: Any) -> None:
        line = json.dumps({"event": event, "at_seconds": round(time.perf_counter() - self._began, 3), **facts})
        self._stream.write(line + "\n")
        self._stream.flush()
        print(line[:400], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--small", action="store_true", help="a tiny model and batch")
    parser.add_argument("--capped", action="store_true", help="only the arms at the edge of a small device")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    shape, workload, cap = art_model.ModelShape(), Workload(), art_capped.Cap()
    if options.small:
        shape = art_model.ModelShape(hidden=64, layers=2, heads=4, query_groups=2, ffn=128, vocabulary=512)
        workload = Workload(
            batches=1, edge_batches=1, prompts=3, rollouts=3, prompt=96, completion=(16, 32), budget_bytes=1 << 60
        )
        cap = art_capped.Cap(seconds_an_arm=5.0)
    with open(options.out / "art_h200.jsonl", "w") as stream:
        summary = run(shape, workload, cap, Log(stream), uncapped=not options.capped)
    (options.out / "art_h200.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(table(summary))


def run(
    shape: art_model.ModelShape, workload: Workload, cap: art_capped.Cap, log: Log, *, uncapped: bool
) -> dict[str, Any]:
    """All arms; a failing arm is recorded with its error and does not stop the others."""
    environment = describe_environment()
    log.write("environment", **environment)
    first = art_model.trainer_rank(shape)
    batches = [make_batch(workload, shape.vocabulary, seed) for seed in range(workload.batches)]
    log.write("model", shape=asdict(shape), parameters=sum(p.numel() for p in first.runtime.model[0].parameters()))
    arms: list[Arm] = []
    names: tuple[tuple[str, str | None], ...] = (("original", None), ("warm", "warm"), ("frontier", "frontier"))
    for name, law in (("compile", None), *(names if uncapped else ())):
        arm = Arm(name=name)
        try:
            run_arm(arm, law, first.runtime, batches, workload, log)
        except Exception as error:
            arm.error = f"{type(error).__name__}: {error}"
            log.write("error", arm=name, error=arm.error, trace=traceback.format_exc().splitlines()[-12:])
        arms.append(arm)
    edge_batches = [make_batch(workload, shape.vocabulary, seed) for seed in range(workload.edge_batches)]
    capped = art_capped.run_arms(first.runtime, edge_batches, cap, log.write)
    return {
        "environment": environment,
        "shape": asdict(shape),
        "workload": asdict(workload),
        "arms": [{"name": arm.name, **summarize(arm), "waves": arm.waves} for arm in arms if arm.name != "compile"],
        "cap": asdict(cap),
        "capped": [{**art_capped.summarize(arm), "waves_run": arm.waves, "failures": arm.failures} for arm in capped],
    }


def describe_environment() -> dict[str, Any]:
    stood_in_for = art_model.load_execution()
    found = {name: _importable(name) for name in ("openai", "megatron.bridge", "transformer_engine", "flash_attn")}
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "openpipe_art": installed_version(),
        "megatron_core": _version_of("megatron.core"),
        "stood_in_for": stood_in_for,
        "third_party": found,
    }


def _importable(name: str) -> str:
    try:
        __import__(name)
        return "present"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _version_of(name: str) -> str:
    import importlib

    return str(getattr(importlib.import_module(name), "__version__", "unknown"))


def make_batch(workload: Workload, vocabulary: int, seed: int) -> list[Any]:
    """ART requests: each prompt's rollouts in a row, all wanting the log-probabilities of their own next tokens."""
    draw = random.Random(seed)
    request = load_trainer_rank().ForwardInput

    def tokens(count: int) -> list[int]:
        return [draw.randrange(vocabulary) for _ in range(count)]

    items = []
    for _ in range(workload.prompts):
        prompt = tokens(workload.prompt)
        for _ in range(workload.rollouts):
            row = torch.tensor(prompt + tokens(draw.randint(*workload.completion)))
            items.append(request(input_tokens=row, target_tokens=row.roll(-1)))
    return items


def run_arm(arm: Arm, law: str | None, runtime: Any, batches: list[list[Any]], workload: Workload, log: Log) -> None:
    rank = load_trainer_rank().TrainerRank(runtime)
    rank._available_memory_bytes = lambda sample=None: workload.budget_bytes
    peaks: list[int] = []
    binding: Binding | None = None
    if law is not None:
        binding = bind(rank, law=law, footprints=False, records=lambda event: note_peak(event, peaks))
    else:
        listen(rank, peaks)
    planning: list[float] = []
    time_calls(rank, "_select_next_micro_batch", planning)
    for batch in batches:
        began = time.perf_counter()
        run_batch(arm, rank, binding, batch, peaks, planning, log)
        arm.batch_seconds.append(time.perf_counter() - began)
    arm.price_call_microseconds = price_call_microseconds(rank, batches[0])
    log.write("arm", name=arm.name, **summarize(arm))
    if binding is not None:
        for signature, profile in binding.profiles.items():
            log.write("learned", arm=arm.name, signature=signature.key, profile=str(profile))


def note_peak(event: Admission | Observation, peaks: list[int]) -> None:
    if isinstance(event, Observation) and event.reading.kind is ReadingKind.WHOLE_WAVE:
        peaks.append(event.reading.peak_delta_bytes)


def listen(rank: Any, peaks: list[int]) -> None:
    """Note the original's whole-wave peaks as it learns from them."""
    original = type(rank)._update_memory_profile

    def update(plan: Any, peak_delta_bytes: int, *, retained_bytes: int | None, caller_phase: bool = False) -> None:
        if caller_phase:
            peaks.append(peak_delta_bytes)
        original(rank, plan, peak_delta_bytes, retained_bytes=retained_bytes, caller_phase=caller_phase)

    rank._update_memory_profile = update


def time_calls(rank: Any, name: str, seconds: list[float]) -> None:
    method: Callable[..., Any] = getattr(rank, name)

    def timed(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        result = method(*arguments, **named)
        seconds.append(time.perf_counter() - began)
        return result

    setattr(rank, name, timed)


def run_batch(
    arm: Arm, rank: Any, binding: Binding | None, batch: list[Any], peaks: list[int], planning: list[float], log: Log
) -> None:
    """Forward, a CISPO-like loss and backward over each wave, inside the yield; then what was predicted and what came.

    The whole-wave peak of a wave is read when the loop asks for the next one, so a wave is logged then.
    """
    running: dict[str, Any] | None = None
    for wave in rank.forward_micro_batches(batch):
        finish(arm, running, peaks, log)
        losses = [
            -(output.target_logprobs.detach().exp().clamp(max=2) * output.target_logprobs).sum()
            for output in wave.outputs
        ]
        torch.stack(losses).sum().backward()
        admission = None if binding is None else binding.explain(wave.stats)
        running = {
            "requests": wave.stats.global_count,
            "packed_rows": wave.stats.packed_tokens,
            "logical_rows": wave.stats.logical_tokens,
            "predicted_bytes": wave.stats.estimated_required_bytes,
            "planning_seconds": round(planning[-1], 6),
            "subforwards": wave.stats.subforward_count,
            "cold": wave.stats.cold_start,
            "binding_term": None if admission is None else admission.price.binding_term,
        }
    finish(arm, running, peaks, log)
    rank.zero_grad()


def finish(arm: Arm, wave: dict[str, Any] | None, peaks: list[int], log: Log) -> None:
    """Add a wave that is over to its arm, with its peak if one was read: a split wave gives no whole-wave reading."""
    if wave is None:
        return
    if peaks:
        wave["observed_bytes"] = peaks.pop()
    arm.waves.append(wave)
    log.write("wave", arm=arm.name, **wave)


def price_call_microseconds(rank: Any, batch: list[Any], calls: int = 2_000) -> float | None:
    """Median time of one price on this rank, for the layout of the first eight requests."""
    plan = rank._plan_flat_forward(batch[:8], checkpoint=load_trainer_rank().Unset)
    facts = {
        "packed_tokens": plan.packed_tokens,
        "output_bytes": plan.output_bytes,
        "signature": plan.signature,
        "logical_tokens": plan.active_logical_tokens,
        "gdn_segments": plan.grad_segment_count,
        "group_rows": rank._plan_group_rows(plan),
    }
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        rank._estimate_required_memory_bytes_from_values(**facts)
        times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1e6, 3)


def summarize(arm: Arm) -> dict[str, Any]:
    measured = [wave for wave in arm.waves if "observed_bytes" in wave]
    scored = measured[3:]
    over = [wave["predicted_bytes"] / wave["observed_bytes"] - 1 for wave in scored if wave["observed_bytes"]]
    return {
        "waves": len(arm.waves),
        "mean_rows_a_wave": round(statistics.mean(w["packed_rows"] for w in arm.waves)) if arm.waves else None,
        "planning_seconds": round(sum(wave["planning_seconds"] for wave in arm.waves), 4),
        "batch_seconds": [round(seconds, 3) for seconds in arm.batch_seconds],
        "measured_waves": len(measured),
        "waves_under": sum(w["predicted_bytes"] < w["observed_bytes"] for w in measured if not w["cold"]),
        "cold_waves_under": sum(w["predicted_bytes"] < w["observed_bytes"] for w in measured if w["cold"]),
        "median_over_estimate_percent": round(100 * statistics.median(over), 2) if over else None,
        "price_call_microseconds": arm.price_call_microseconds,
        "error": arm.error,
    }


def table(summary: dict[str, Any]) -> str:
    columns = ("name", "waves", "mean_rows_a_wave", "planning_seconds", "median_over_estimate_percent", "waves_under")
    lines = ["  ".join(f"{column:>28}" for column in columns)]
    for arm in summary["arms"]:
        facts = {**arm, "waves": len(arm["waves"])}
        lines.append("  ".join(f"{facts[column]!s:>28}" for column in columns))
    return "\n".join([*lines, "", art_capped.table(summary["capped"])])


if __name__ == "__main__":
    main()
