"""OpenPipe ART's own pricing and this kernel's, side by side in ART's own planner.

    python -m benchmarks.art_side_by_side [--histories 2400] [--runs 60] [--out spec/evidence/art/side_by_side.json]

Needs `art.trainer_rank` (`make test-art` sets that up); no GPU. Shows, over the same ranks in one process:

- differential: answers to random and recorded histories inside the laws' interval; planning runs that pick the
  same waves;
- a table: one batch, one budget, one made-up machine: waves, rows a wave, planning CPU seconds, predicted against
  reached peaks;
- overhead: one price call and one planned batch, as ratios, from alternating rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from adapters.art import bind
from adapters.art.interface import SUPPORTED_VERSION, installed_version
from pricing.evidence.trace import read_trace
from pricing.kernel.quantities import GIB, MIB
from tests.art.differential import Answer, Pair, compare, recorded_history
from tests.art.original import Geometry, load_trainer_rank, planning_rank
from tests.art.planning_runs import Machine, RunWave, make_batch, random_scenario, run_batch

TRACES = Path(__file__).parent.parent / "spec" / "evidence" / "h200"
ARMS: tuple[tuple[str, str | None, str], ...] = (
    ("original", None, "11/10"),
    ("bound, warm", "warm", "11/10"),
    ("bound, frontier", "frontier", "11/10"),
    ("bound, frontier at 51/50", "frontier", "51/50"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=2_400)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    load_trainer_rank()
    table = side_by_side(options.rounds)
    report: dict[str, Any] = {
        "openpipe_art": SUPPORTED_VERSION,
        "installed": installed_version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "random_histories": random_histories(options.histories),
        "recorded_histories": recorded_histories(),
        "planning_runs": planning_runs(options.runs),
        "table": table,
        "overhead": overhead(),
    }
    text = json.dumps(report, indent=1)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")
    print(text)
    print(as_text(table))


# --- differential --------------------------------------------------------------------------------------------


def random_histories(count: int) -> dict[str, Any]:
    answers = compare(range(count))
    return {"histories": count, **tally([answer for given in answers.values() for answer in given])}


def recorded_histories() -> dict[str, Any]:
    """The recorded H200 traces: each wave is priced by both, then taught to both (its forward, then the whole
    wave).
    """
    histories = {path.stem: recorded_history(read_trace(path)) for path in sorted(TRACES.glob("*.jsonl"))}
    return {name: tally(Pair(history.geometry).ask(history)) for name, history in histories.items()}


def tally(answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        "answers": len(answers),
        "outside": sum(not answer.is_inside for answer in answers),
        "least_difference_bytes": min(answer.difference_bytes for answer in answers),
        "largest_difference_bytes": max(answer.difference_bytes for answer in answers),
        "percent_within_a_millionth": round(100 * sum(map(is_close, answers)) / len(answers), 1),
        "binding_terms": dict(Counter(answer.binding_term for answer in answers if answer.what == "required")),
    }


def is_close(answer: Answer) -> bool:
    return answer.difference_bytes <= max(2, answer.original_bytes // 1_000_000)


def planning_runs(count: int) -> dict[str, Any]:
    """Random batches, machines and budgets through both planners. A refusal is an outcome like any other."""
    outcomes: Counter[str] = Counter()
    for seed in range(count):
        scenario = random_scenario(seed)
        theirs, ours = scenario.run(None), scenario.run("warm")
        outcomes["same" if theirs.choices == ours.choices else "different"] += 1
        outcomes["waves"] += len(theirs.waves)
        outcomes["refused"] += theirs.refusal is not None
        outcomes["with_split"] += any(wave.subforwards > 1 for wave in theirs.waves)
    return {"runs": count, "different": 0, **outcomes}


# --- the table -----------------------------------------------------------------------------------------------


def side_by_side(rounds: int) -> dict[str, Any]:
    """Two batches of 64 prompts with 16 rollouts each, 24 GiB, a machine like the recorded dense model."""
    draw = random.Random(1)
    batches = [
        make_batch(draw, prompts=64, rollouts=16, prompt=(1_024, 1_024), completion=(256, 1_024)) for _ in range(2)
    ]
    machine = Machine(row_bytes=275_200, fixed_bytes=800 * MIB, cold_bytes=2 * GIB, caller_percent=110)
    rows: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for name, law, safety in ARMS:
            facts = run_arm(batches, machine, law, safety)
            best = rows.setdefault(name, facts)
            best["planning_seconds"] = min(best["planning_seconds"], facts["planning_seconds"])
    original = rows["original"]["planning_seconds"]
    for facts in rows.values():
        facts["planning_ratio"] = round(facts["planning_seconds"] / original, 3)
    return {"requests": sum(map(len, batches)), "budget_bytes": 24 * GIB, "rounds": rounds, "arms": rows}


def run_arm(batches: Sequence[Sequence[Any]], machine: Machine, law: str | None, safety: str) -> dict[str, Any]:
    rank = planning_rank(Geometry(hidden=4096, layers=8, ffn=12_288, heads=32, channels=128), 24 * GIB)
    if law is not None:
        bind(rank, law=law, safety=safety)
    waves: list[RunWave] = []
    for batch in batches:
        run_batch(rank, batch, machine, waves, cold=not waves)
    warm = [wave for wave in waves[1:] if not wave.cold]
    return {
        "waves": len(waves),
        "median_rows_a_wave": statistics.median(wave.packed_rows for wave in waves),
        "planning_seconds": round(sum(wave.planning_seconds for wave in waves), 3),
        "median_predicted_bytes": int(statistics.median(wave.required_bytes for wave in waves)),
        "median_reached_bytes": int(statistics.median(wave.peak_bytes for wave in waves)),
        "median_over_estimate_percent": round(
            100 * statistics.median(wave.required_bytes / wave.peak_bytes - 1 for wave in warm), 1
        ),
        "warm_waves_under": sum(wave.required_bytes < wave.peak_bytes for wave in warm),
        "waves_over_budget": sum(wave.peak_bytes > 24 * GIB for wave in waves),
    }


def as_text(table: dict[str, Any]) -> str:
    columns = ("waves", "median_rows_a_wave", "planning_seconds", "planning_ratio", "median_over_estimate_percent")
    lines = [f"{'':26}" + "".join(f"{column:>30}" for column in columns)]
    lines += [f"{name:26}" + "".join(f"{facts[c]!s:>30}" for c in columns) for name, facts in table["arms"].items()]
    return "\n".join(lines)


# --- overhead ------------------------------------------------------------------------------------------------


def overhead(rounds: int = 40) -> dict[str, Any]:
    """Median CPU microseconds of one required and one retained call, from alternating rounds of 100 calls."""
    ranks = {name: planning_rank(Geometry(gdn_layers=24)) for name in ("original", "warm", "frontier")}
    for law in ("warm", "frontier"):
        bind(ranks[law], law=law)
    history = recorded_history(read_trace(sorted(TRACES.glob("*.jsonl"))[0]))
    signature = load_trainer_rank()._impl._MemorySignature(**history.signature)
    Pair.teach(tuple(ranks.values()), history.lessons, signature)
    facts = {"packed_tokens": 16_385, "logical_tokens": 131_585, "output_bytes": 526_340}
    price = {**facts, "signature": signature, "gdn_segments": 18, "group_rows": ((16_385, True),)}
    calls: dict[str, Callable[[Any], int]] = {
        "required": lambda rank: rank._estimate_required_memory_bytes_from_values(**price),
        "retained": lambda rank: rank._retained_memory_bytes(signature, **facts, required=1 << 40),
    }
    figures: dict[str, Any] = {}
    for what, call in calls.items():
        times: dict[str, list[float]] = {name: [] for name in ranks}
        for _ in range(rounds):
            for name, rank in ranks.items():
                began = time.thread_time()
                for _ in range(100):
                    call(rank)
                times[name].append((time.thread_time() - began) * 1e4)
        medians = {name: statistics.median(given) for name, given in times.items()}
        ratios = {f"{name}_ratio": round(medians[name] / medians["original"], 2) for name in ("warm", "frontier")}
        figures[what] = {**{name: round(median, 2) for name, median in medians.items()}, **ratios}
    return {"microseconds_a_call": figures}


if __name__ == "__main__":
    main()
