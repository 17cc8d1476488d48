"""Generates the tables of `evidence/on-the-h200.md` from the raw logs beside it.

python -m spec.h200_figures            writes the tables
python -m spec.h200_figures --check    exits 1 if a figure on the page is not what the logs say
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pricing import Profile, allocated_bytes, observe
from pricing.evidence.trace import TraceWave, read_trace
from pricing.formats.files import write_text_atomically
from pricing.kernel.laws import find_law
from pricing.kernel.quantities import GIB
from spec.tables import table, with_tables

EVIDENCE = Path(__file__).resolve().parent / "evidence"
DOCUMENT = EVIDENCE / "on-the-h200.md"
FAMILIES = ("dense", "moe", "gdn", "gdn_moe", "gdn_fused")
SHARINGS = ("controlled-1", "controlled-2", "controlled-4", "controlled-8")
CAP_BYTES = 8 * GIB
Line = dict[str, Any]


def lines_of(name: str) -> list[Line]:
    return [json.loads(line) for line in (EVIDENCE / name).read_text().splitlines()]


def controlled() -> str:
    rows = []
    for family in FAMILIES:
        path = EVIDENCE / "h200-tables" / f"controlled-{family}.jsonl"
        waves, lines = read_trace(path), lines_of(f"h200-tables/controlled-{family}.jsonl")
        rates = [_median_rate(lines, label) for label in SHARINGS]
        by_label = {label: wave for wave, label in _settled(waves, lines)}
        first = {law: _first_price(law, by_label["controlled-1"], by_label["controlled-8"]) for law in _FIRST_LAWS}
        rows.append(
            (
                family,
                *(f"{rate:,.0f}" for rate in rates),
                f"{100 * (max(rates) / min(rates) - 1):.2f} %",
                _gib(by_label["controlled-8"].peak_bytes),
                *(_gib(first[law]) for law in _FIRST_LAWS),
            )
        )
    heads = ("family", "sharing 1", "2", "4", "8", "flat to", "observed at 8", "`logical` asks", "`packed` asks")
    return table(heads, rows)


_FIRST_LAWS = ("logical", "packed")


def _settled(waves: Sequence[TraceWave], lines: Sequence[Line]) -> Iterable[tuple[TraceWave, str]]:
    """Waves after the warm-up with their labels, last first: the first of a label wins in a dict."""
    pairs = [(wave, line["label"]) for wave, line in zip(waves, lines, strict=True) if not line["warm_up"]]
    return reversed(pairs)


def _median_rate(lines: Sequence[Line], label: str) -> float:
    rates = [
        line["peak_bytes"] / line["packed_rows"] for line in lines if line["label"] == label and not line["warm_up"]
    ]
    return float(statistics.median(rates))


def _first_price(law: str, seen: TraceWave, asked: TraceWave) -> int:
    """What a law that saw one unshared wave asks for the first shared one."""
    _, whole_wave = seen.readings
    return allocated_bytes(asked.wave, observe(Profile(), whole_wave), find_law(law))


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"


def high_branch() -> str:
    rows = []
    for family in ("gdn", "gdn_moe", "gdn_fused"):
        lines = [line for line in lines_of(f"h200-tables/high_branch-{family}.jsonl") if not line["warm_up"]]
        branched = [line for line in lines if line["label"].startswith("branches")]
        alone = [line for line in lines if line["label"].startswith("single")]
        high, low = (statistics.median(line["peak_bytes"] for line in group) for group in (branched, alone))
        packed, single = branched[0]["packed_rows"], alone[0]["packed_rows"]
        per_segment = (high - low * packed / single) / (branched[0]["grad_segments"] - 1)
        rows.append(
            (
                family,
                f"{low / single:,.0f}",
                f"{high / packed:,.0f}",
                f"{100 * (high / packed / (low / single) - 1):+.1f} %",
                f"{per_segment / 1e6:.2f} MB",
                f"{branched[0]['segment_state_bytes'] / 1e6:.2f} MB",
            )
        )
    return table(("family", "single, B a row", "101 branches, B a row", "more", "a further segment", "G"), rows)


def soak() -> str:
    rows = []
    for path in sorted((EVIDENCE / "h200-soak").glob("*-*.jsonl")):
        if path.stem.startswith("overhead"):
            continue
        lines = lines_of(f"h200-soak/{path.name}")
        waves = [line for line in lines if line["event"] == "wave" and line["observed_bytes"]]
        use = [100 * (wave["baseline_bytes"] + wave["observed_bytes"]) / CAP_BYTES for wave in waves]
        learned = [wave for wave in waves if wave["binding_term"] != "cold"]
        under = sum(wave["observed_bytes"] > wave["predicted_bytes"] for wave in learned)
        over = statistics.median(100 * (wave["predicted_bytes"] / wave["observed_bytes"] - 1) for wave in learned)
        rows.append(
            (
                path.stem.replace("-", ", "),
                len(waves),
                *(sum(line["event"] == event for line in lines) for event in ("out_of_memory", "refused")),
                f"{statistics.mean(wave['packed_rows'] for wave in waves):,.0f}",
                f"{statistics.mean(use):.1f} %",
                f"{max(use):.1f} %",
                under,
                f"{over:+.1f} %",
            )
        )
    heads = (
        "run, law",
        "waves",
        "out of memory",
        "refused",
        "rows a wave",
        "mean use",
        "highest",
        "under",
        "median over",
    )
    return table(heads, rows)


def footprint_soak() -> str:
    """Runs whose prices hold what a wave takes from the driver."""
    return _near_a_cap("h200-footprint-soak")


def cap_soak() -> str:
    """More families and caps, and loops without shared prefixes."""
    return _near_a_cap("h200-cap")


def _near_a_cap(folder: str) -> str:
    """A row for each log of a soak, FAMILY-GIB-SAFETY[-...].jsonl. Use is of the cap, from the eleventh wave on."""
    rows = []
    for path in sorted((EVIDENCE / folder).glob("*-*.jsonl")):
        lines = lines_of(f"{folder}/{path.name}")
        waves = [line for line in lines if line["event"] == "wave"]
        if "reserved_peak_bytes" not in waves[0]:
            continue
        settled = waves[10:]
        cap_bytes = waves[0]["gib"] * GIB
        reserved = [100 * wave["reserved_peak_bytes"] / cap_bytes for wave in settled]
        allocated = [100 * _allocated_peak_bytes(wave) / cap_bytes for wave in settled]
        family, gib, safety = path.stem.split("-")[:3]
        cap = f"{waves[0]['gib']:.0f} GiB{' (no cap)' if gib == '0' else ''}"
        segments = ", expandable" if waves[0].get("expandable") else ""
        rows.append(
            (
                f"{family}, {cap}, {waves[0]['law']} {safety.replace('_', '/')}{segments}",
                len(waves),
                *(sum(line["event"] == event for line in lines) for event in ("out_of_memory", "refused")),
                f"{statistics.mean(wave['packed_rows'] for wave in settled):,.0f}",
                f"{statistics.mean(reserved):.1f} %",
                f"{max(reserved):.1f} %",
                f"{statistics.mean(allocated):.1f} %",
                waves[-1]["allocator_retries"],
                sum((wave["footprint_bytes"] or 0) > wave["predicted_bytes"] for wave in waves[3:]),
                f"{statistics.mean(wave['seconds'] for wave in settled):.2f} s",
            )
        )
    heads = (
        "run",
        "waves",
        "out of memory",
        "refused",
        "rows a wave",
        "reserved / cap",
        "highest",
        "allocated / cap",
        "retries",
        "under",
        "a wave",
    )
    return table(heads, rows)


def _allocated_peak_bytes(wave: Line) -> int:
    """The whole process's. The loops without shared prefixes log it, the soak its parts."""
    peak_bytes: int = wave["peak_bytes"] if "peak_bytes" in wave else wave["baseline_bytes"] + wave["observed_bytes"]
    return peak_bytes


def withheld() -> str:
    """Survival with footprint evidence withheld."""
    lines = lines_of("h200-cap/moe-24-51_50-withheld.jsonl")
    failed = [line["batch"] for line in lines if line["event"] == "out_of_memory"]
    later = sum(line["event"] == "wave" and line["batch"] > max(failed) for line in lines)
    rows = [
        ("batches, waves", f"{lines[-1]['batch'] + 1}, {sum(line['event'] == 'wave' for line in lines)}"),
        ("waves that ran out of memory", f"{len(failed)}, the last in batch {max(failed)}"),
        ("waves in later batches, none out of memory", later),
        ("items refused", sum(line["event"] == "refused" for line in lines)),
    ]
    return table(("what", "moe, 24 GiB, frontier 51/50"), rows)


def costs() -> str:
    """Overhead and a release of the cache beside the same wave without, and the check at binding."""
    pairs = [line for line in lines_of("h200-cap/overhead.jsonl") if not line["warm_up"]]
    bare = statistics.median(pair["bare_seconds"] for pair in pairs)
    more, released = (
        statistics.median(pair[f"{name}_seconds"] - pair["bare_seconds"] for pair in pairs)
        for name in ("metered", "released")
    )
    first, skipped, again = lines_of("h200-cap/binding.jsonl")
    rows = [
        (f"a wave without, median of {len(pairs)} pairs", f"{1e3 * bare:.1f} ms"),
        ("planning, admission and metering", f"{1e3 * more:+.2f} ms ({100 * more / bare:.2f} %)"),
        ("a release of the cache before it", f"{1e3 * released:+.2f} ms ({100 * released / bare:.2f} %)"),
        (f"binding with its check, {first['parameters'] / 1e9:.1f} B parameters, first", f"{first['seconds']:.1f} s"),
        ("the same again", f"{again['seconds']:.2f} s, {_gib(again['peak_delta_bytes'])} at its peak"),
        ("binding without", f"{skipped['seconds']:.2f} s"),
    ]
    return table(("what", "one H200"), rows)


def overhead() -> str:
    rows = []
    for name in ("overhead-1", "overhead-2"):
        pairs = [line for line in lines_of(f"h200-soak/{name}.jsonl") if not line["warm_up"]]
        bare = statistics.median(pair["bare_seconds"] for pair in pairs)
        more = statistics.median(pair["metered_seconds"] - pair["bare_seconds"] for pair in pairs)
        spread = statistics.pstdev(pair["bare_seconds"] for pair in pairs)
        rows.append(
            (
                name,
                len(pairs),
                f"{1e3 * bare:.1f} ms",
                f"{1e3 * spread:.1f} ms",
                f"{1e3 * more:+.2f} ms",
                f"{100 * more / bare:.2f} %",
            )
        )
    return table(("run", "pairs", "a wave without", "its spread", "with, median of pairs", "share"), rows)


def ranks() -> str:
    log = json.loads((EVIDENCE / "nccl" / "nccl_quorum.json").read_text())
    summary, killed = log["summary"], log["killed"][0]["killed"]
    waves = [of_rank["waves"] for of_rank in log["ranks"]]
    own = [1e3 * min(statistics.median(wave["quorum_s"] for wave in of_rank) for of_rank in waves)]
    rows = [
        ("waves, each on both GPUs", summary["waves"]),
        ("waves in which both agreed on the same width", _agreed_waves(waves)),
        ("waves over their price after the first", _under(waves)),
        (
            "least budget, the free GPU and the one with 40 GiB taken",
            " and ".join(_gib(_least_budget(w)) for w in waves),
        ),
        ("highest peak", _gib(max(wave["peak_bytes"] for of_rank in waves for wave in of_rank))),
        ("one quorum call, both ready, median", f"{summary['quorum_call_median_us']:.0f} us"),
        ("quorum a wave on the rank that is waited for, median", f"{own[0]:.2f} ms"),
        ("the same as a share of a wave", f"{100 * own[0] / 1e3 / _median_wave_s(waves):.2f} %"),
        (
            "quorum and waiting for the slower rank, share of wave time",
            f"{100 * summary['quorum_share_of_wave_time']:.1f} %",
        ),
        ("NCCL's memory: driver's free fell, allocator's reserved rose", _nccl(log)),
        ("a killed rank's peer ends with an error after", f"{killed['elapsed_s']:.1f} s of 10 s allowed"),
        ("checks that failed", len(log["failed_checks"])),
    ]
    return table(("what", "two H200, NCCL"), rows)


def _agreed_waves(waves: Sequence[Sequence[Line]]) -> int:
    return sum(len({wave["agreed_width"] for wave in pair}) == 1 for pair in zip(*waves, strict=True))


def _under(waves: Sequence[Sequence[Line]]) -> int:
    return sum(wave["peak_bytes"] > wave["required_bytes"] for of_rank in waves for wave in of_rank[1:])


def _least_budget(waves: Sequence[Line]) -> int:
    return min(int(wave["available_bytes"]) for wave in waves)


def _median_wave_s(waves: Sequence[Sequence[Line]]) -> float:
    return float(statistics.median(wave["wave_s"] for of_rank in waves for wave in of_rank))


def _nccl(log: Line) -> str:
    memory = log["ranks"][0]["memory"]
    return f"{memory['driver_free_fell_bytes'] >> 20} MiB, {memory['allocator_reserved_rose_bytes'] >> 20} MiB"


def traces() -> str:
    rows = []
    for path in sorted((EVIDENCE / "h200-own").glob("*.jsonl")):
        waves = read_trace(path)
        sizes = [wave.wave.packed_rows for wave in waves]
        peaks = [wave.peak_bytes for wave in waves]
        rows.append(
            (path.stem, len(waves), f"{min(sizes):,} to {max(sizes):,}", f"{_gib(min(peaks))} to {_gib(max(peaks))}")
        )
    return table(("trace", "waves", "packed rows", "peaks"), rows)


def tables() -> dict[str, str]:
    makers = (controlled, high_branch, soak, footprint_soak, cap_soak, withheld, costs, overhead, ranks, traces)
    return {maker.__name__: maker() for maker in makers}


def main(arguments: Sequence[str]) -> int:
    document = DOCUMENT.read_text()
    current = with_tables(document, tables())
    if "--check" in arguments:
        print("current" if current == document else "stale: run python -m spec.h200_figures")
        return 0 if current == document else 1
    write_text_atomically(DOCUMENT, current)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
