"""How long planning takes: the tree and the curve, a whole batch, one price.

    python benchmarks/plan.py [--prompts 64 --rollouts 16 --prompt 1024 --completion 256:1024 --seed 7] [--json]
        [--output FILE]

One thread, best of repeats, tokens already in arrays. `tree_ms`: prefix trees and the curve over every width.
`plan_ms`: the whole batch to waves, trees included. `scalar_ns` and `vector_ns`: one price by `required_bytes`, and
one candidate of a million in arrays. `scaling`: the same planning from 0.1 M to 27 M tokens. `chain_ms`: 10,000
nested prefixes. `curve_bytes`: memory of trees and curve beyond the tokens.

`--against DIR` plans the same batch by another checkout in turn, round by round, and gives the ratio: what can be
said of speed on a machine that is busy.

Where `art.trainer_rank` can be imported (`make test-art` sets that up), its planner plans the same batch in the same
process, each wave followed by the same two readings, beside ours doing the same; else its recorded figures are printed,
labelled as recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy

from pricing.formats.files import write_text_atomically
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import required_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import GIB
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import ONE_LAYER_FULL, RequestSpec, Signature, Workload
from pricing.kernel.wave import Wave
from pricing.planner.batch import Batch, PlanRequest
from pricing.planner.curve import Curve
from pricing.planner.plan import BatchPlan, plan_batch, plan_wave
from pricing.planner.prefix_tree import build_tree
from pricing.vectorized import required_bytes_array

RECORDED_PEER: Final = {"one_width_ms": 110.0, "whole_batch_ms": 4_200.0, "waves": 6}
"""openpipe-art 0.5.23 at the default size, recorded once on a quiet core."""

SCALING_PROMPTS: Final = (4, 16, 64, 256, 1_024)
CANDIDATES: Final = 1_000_000
CHAIN_LENGTH: Final = 10_000
VOCABULARY: Final = 150_000
ROW_BYTES: Final = 300_000
BUDGET_BYTES: Final = 42 * GIB
SIGNATURE: Final = Signature(
    topology="",
    group_count=1,
    request_mixes=("target:single",),
    grad_modes=(True,),
    adapter_shapes=("",),
    recompute=ONE_LAYER_FULL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A GRPO-shaped batch: `rollouts` completions of `completion` tokens (least, most) on each of `prompts` prompts."""

    prompts: int
    rollouts: int
    prompt: int
    completion: tuple[int, int]
    seed: int

    def rows(self) -> list[Any]:
        draw = numpy.random.default_rng(self.seed)
        rows = []
        for _ in range(self.prompts):
            prompt = draw.integers(0, VOCABULARY, self.prompt)
            for _ in range(self.rollouts):
                tail = draw.integers(0, VOCABULARY, int(draw.integers(self.completion[0], self.completion[1] + 1)))
                rows.append(numpy.concatenate([prompt, tail]))
        return rows


def items_of(rows: Sequence[Any]) -> list[tuple[PlanRequest]]:
    """Every row a request of its own, asking for single-target log-probabilities."""
    return [
        (
            PlanRequest(
                tokens=row,
                spec=RequestSpec(input_shape=(len(row),), target_shape=(len(row),)),
                output_bytes=4 * len(row),
            ),
        )
        for row in rows
    ]


def warm_profile() -> Profile:
    """Two whole waves of 20,000 rows at `ROW_BYTES` a row."""
    profile = Profile()
    for _ in range(2):
        profile = observe(profile, reading_of(20_000, 40_000, 20_000 * ROW_BYTES))
    return profile


def reading_of(packed_rows: int, logical_rows: int, peak_bytes: int) -> Reading:
    return Reading(
        packed_rows=packed_rows,
        logical_rows=logical_rows,
        grad_segments=0,
        output_bytes=4 * logical_rows,
        peak_delta_bytes=peak_bytes,
        kind=ReadingKind.WHOLE_WAVE,
    )


def best_seconds(act: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - began)
    return best


def plan_whole(items: Sequence[Sequence[PlanRequest]]) -> BatchPlan:
    return plan_batch(Batch(items), profiles={SIGNATURE: warm_profile()}, available_bytes=BUDGET_BYTES)


def whole_curve(items: Sequence[Sequence[PlanRequest]]) -> Curve:
    """Trees and the curve over every width."""
    curve = Curve(Batch(items), 0)
    curve.shape(len(items))
    return curve


def measure_planning(size: Size, repeats: int) -> dict[str, Any]:
    rows = size.rows()
    items = items_of(rows)
    plan = plan_whole(items)
    tracemalloc.start()
    kept = whole_curve(items)
    curve_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept.limit == len(items)
    return {
        "requests": len(rows),
        "tokens": sum(map(len, rows)),
        "tree_ms": 1e3 * best_seconds(lambda: whole_curve(items), repeats),
        "plan_ms": 1e3 * best_seconds(lambda: plan_whole(items), repeats),
        "waves": len(plan.waves),
        "packed_rows": sum(wave.wave.packed_rows for wave in plan.waves),
        "curve_bytes": curve_bytes,
    }


def measure_scaling(size: Size, repeats: int) -> list[dict[str, Any]]:
    """Planning at other numbers of prompts, everything else the same."""
    points = []
    for prompts in SCALING_PROMPTS:
        items = items_of(
            Size(
                prompts=prompts,
                rollouts=size.rollouts,
                prompt=size.prompt,
                completion=size.completion,
                seed=size.seed,
            ).rows()
        )
        tokens = sum(len(request.tokens) for item in items for request in item)
        seconds = best_seconds(lambda items=items: plan_whole(items), repeats)  # type: ignore[misc]
        points.append({"tokens": tokens, "plan_ms": 1e3 * seconds, "ns_per_token": 1e9 * seconds / tokens})
    return points


SIDE_BY_SIDE: Final = """
import dataclasses, sys, time, numpy
from pricing import Profile, Reading, RequestSpec, observe
from pricing.plan import Batch, PlanRequest, plan_batch, plan_wave
prompts, rollouts, length, least, most, seed, repeats = map(int, sys.argv[1:])
draw, items, rows = numpy.random.default_rng(seed), [], []
for _ in range(prompts):
    prompt = draw.integers(0, 150_000, length)
    for _ in range(rollouts):
        tail = draw.integers(0, 150_000, int(draw.integers(least, most + 1)))
        row = numpy.concatenate([prompt, tail])
        spec = RequestSpec(input_shape=(len(row),), target_shape=(len(row),))
        items.append((PlanRequest(tokens=row, spec=spec, output_bytes=4 * len(row)),))
        rows.append(row)
reading = Reading(packed_rows=20_000, logical_rows=40_000, grad_segments=0, output_bytes=160_000,
                  peak_delta_bytes=20_000 * 300_000)
if hasattr(Reading, "footprint_bytes"):  # the same price in versions that price footprints too
    reading = dataclasses.replace(reading, footprint_bytes=reading.peak_delta_bytes)
profile = observe(observe(Profile(), reading), reading)
profiles = {plan_wave(Batch(items[:1]), profiles={}, available_bytes=0).signature: profile}

def best(act):
    least = 1e9
    for _ in range(repeats):
        began = time.perf_counter()
        act()
        least = min(least, time.perf_counter() - began)
    return 1e3 * least

def whole():
    return len(plan_batch(Batch(items), profiles=profiles, available_bytes=42 << 30).waves)

def compare():
    for last, row in zip(rows, rows[1:]):
        count = min(len(last), len(row))
        (last[:count] != row[:count]).argmax()

print(best(whole), best(lambda: Batch(items)), best(compare), whole())
"""
"""Planning by public names alone, so that any version runs it: ms of the batch, of its trees, of reading alone."""


def measure_side_by_side(size: Size, other: str, rounds: int, repeats: int) -> dict[str, Any]:
    """This checkout and `other` (a folder with a version of `pricing`) in turn, each round in a process of its own."""
    arguments = [size.prompts, size.rollouts, size.prompt, *size.completion, size.seed, repeats]
    figures: dict[str, list[list[float]]] = {"this": [], "other": []}
    for _ in range(rounds):
        for name, folder in (("this", os.getcwd()), ("other", other)):
            command = [sys.executable, "-c", SIDE_BY_SIDE, *map(str, arguments)]
            done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
            figures[name].append([float(figure) for figure in done.stdout.split()])
    least = {name: [min(column) for column in zip(*taken, strict=True)] for name, taken in figures.items()}
    ratios = sorted(one[0] / two[0] for one, two in zip(figures["this"], figures["other"], strict=True))
    assert figures["this"][0][3] == figures["other"][0][3], "both plan as many waves"
    return {
        "plan_ms": {name: columns[0] for name, columns in least.items()},
        "tree_ms": {name: columns[1] for name, columns in least.items()},
        "reading_alone_ms": least["this"][2],
        "rounds": rounds,
        "ratio_median": ratios[len(ratios) // 2],
    }


def measure_prices(repeats: int) -> dict[str, float]:
    profile, workload = warm_profile(), Workload.training(shortest_rows=512)
    wave = Wave(packed_rows=16_205, logical_rows=109_065, grad_segments=101, output_bytes=436_260, workload=workload)

    def scalars(calls: int = 1_000) -> None:
        for _ in range(calls):
            required_bytes(wave, profile, DEFAULT_LAW)

    draw = numpy.random.default_rng(0)
    packed = draw.integers(1, 200_000, CANDIDATES)
    logical, segments = packed * draw.integers(1, 20, CANDIDATES), draw.integers(0, 200, CANDIDATES)

    def vector() -> None:
        required_bytes_array(
            packed_rows=packed,
            logical_rows=logical,
            grad_segments=segments,
            output_bytes=outputs,
            workload=workload,
            profile=profile,
        )

    outputs = 4 * logical
    return {
        "scalar_ns": 1e6 * best_seconds(scalars, 5 * repeats),
        "vector_ns": 1e9 * best_seconds(vector, repeats) / CANDIDATES,
    }


def measure_chain() -> float:
    row = numpy.random.default_rng(0).integers(0, VOCABULARY, CHAIN_LENGTH)
    rows = [row[:length] for length in range(1, CHAIN_LENGTH + 1)]
    return 1e3 * best_seconds(lambda: build_tree(rows), 2)


def measure_peer(size: Size) -> dict[str, Any] | None:
    """Both planners on one made-up machine, in this process, learning after every wave; None without the peer."""
    try:
        import torch

        from tests.art.original import Geometry, load_trainer_rank, planning_rank
        from tests.art.planning_runs import Machine, run_batch

        request = load_trainer_rank().ForwardInput
    except ImportError:
        return None
    torch.set_num_threads(1)
    rows, machine = size.rows(), Machine(row_bytes=ROW_BYTES)
    inputs = [request(input_tokens=torch.from_numpy(row), target_tokens=torch.from_numpy(row).roll(-1)) for row in rows]
    rank = planning_rank(Geometry(), BUDGET_BYTES)
    began = time.perf_counter()
    waves = run_batch(rank, inputs, machine)
    elapsed = time.perf_counter() - began
    began = time.perf_counter()
    ours = _plan_and_learn(items_of(rows), machine)
    return {
        "measured": "in this run",
        "whole_batch_ms": 1e3 * sum(wave.planning_seconds for wave in waves),
        "elapsed_ms": 1e3 * elapsed,
        "waves": len(waves),
        "ours_whole_batch_ms": 1e3 * (time.perf_counter() - began),
        "ours_waves": ours,
    }


def _plan_and_learn(items: Sequence[Sequence[PlanRequest]], machine: Any) -> int:
    """Our planner wave by wave from nothing, each followed by its two readings, as `run_batch` does; waves planned."""
    batch, profile, start, waves = Batch(items), Profile(), 0, 0
    while start < len(batch):
        plan = plan_wave(batch, start=start, profiles={SIGNATURE: profile}, available_bytes=BUDGET_BYTES)
        assert plan.runs, str(plan.refusal)
        wave, outputs = plan.wave, plan.wave.output_bytes
        forward = machine.row_bytes * wave.packed_rows + machine.fixed_bytes + outputs
        forward += machine.cold_bytes if start == 0 else 0
        for peak, kind in (
            (forward, ReadingKind.FORWARD_ONLY),
            (forward * machine.caller_percent // 100, ReadingKind.WHOLE_WAVE),
        ):
            profile = observe(
                profile,
                Reading(
                    packed_rows=wave.packed_rows,
                    logical_rows=wave.logical_rows,
                    grad_segments=wave.grad_segments,
                    output_bytes=outputs,
                    peak_delta_bytes=peak,
                    retained_bytes=forward * machine.kept_percent // 100 if kind is ReadingKind.FORWARD_ONLY else None,
                    kind=kind,
                ),
            )
        start, waves = plan.next_start, waves + 1
    return waves


def span(text: str) -> tuple[int, int]:
    """ "256:1024": least and most tokens."""
    least, _, most = text.partition(":")
    bounds = int(least), int(most or least)
    if not 0 <= bounds[0] <= bounds[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not LEAST:MOST")
    return bounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=1_024)
    parser.add_argument("--completion", type=span, default=(256, 1_024))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--against", metavar="DIR", help="another checkout, planned by in turn: a ratio, in one run")
    parser.add_argument("--no-scaling", action="store_true", help="leave out the scaling series (it needs 250 MB)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--output", metavar="FILE", help="write the JSON there as well")
    options = parser.parse_args()
    size = Size(
        prompts=options.prompts,
        rollouts=options.rollouts,
        prompt=options.prompt,
        completion=options.completion,
        seed=options.seed,
    )
    if options.against is not None:
        document = json.dumps(measure_side_by_side(size, options.against, 7, options.repeats), indent=2)
        if options.output is not None:
            write_text_atomically(options.output, document + "\n")
        print(document)
        return
    report = {
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "prompts": size.prompts,
        "rollouts": size.rollouts,
        **measure_planning(size, options.repeats),
        **measure_prices(options.repeats),
        "chain_ms": measure_chain(),
        "scaling": [] if options.no_scaling else measure_scaling(size, max(2, options.repeats // 2)),
        "peer": measure_peer(size) or {"measured": "recorded at 64 x 16, not in this run", **RECORDED_PEER},
    }
    document = json.dumps(report, indent=2)
    if options.output is not None:
        write_text_atomically(options.output, document + "\n")
    print(document if options.json else as_text(report))


def as_text(report: dict[str, Any]) -> str:
    peer = report["peer"]
    lines = [
        f"{report['prompts']} prompts x {report['rollouts']} rollouts: {report['tokens']:,} tokens",
        f"  trees and curve       {report['tree_ms']:9.1f} ms",
        f"  whole batch planned   {report['plan_ms']:9.1f} ms   ({report['waves']} waves)",
        f"  memory beyond tokens  {report['curve_bytes'] / 1024:9.1f} KiB ({report['requests']:,} requests)",
        f"  10,000 nested prefixes{report['chain_ms']:9.1f} ms",
        f"  one price             {report['scalar_ns']:9.0f} ns",
        f"  one of a million      {report['vector_ns']:9.1f} ns",
        f"  openpipe-art 0.5.23   {peer['whole_batch_ms']:9.1f} ms   ({peer['waves']} waves; {peer['measured']})",
    ]
    if "ours_whole_batch_ms" in peer:
        lines.append(f"  ours, learning alike  {peer['ours_whole_batch_ms']:9.1f} ms   ({peer['ours_waves']} waves)")
    for point in report["scaling"]:
        lines.append(
            f"  {point['tokens']:12,} tokens {point['plan_ms']:9.1f} ms  {point['ns_per_token']:6.1f} ns a token"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
