"""Run the GPU work in parts of ten minutes: python -m benchmarks.h200 --part first --out DIR --seconds 540

A part is a list of groups; the commands of a group run side by side on the one GPU (each process counts its own
allocations, so its figures do not change), the groups one after another. Every command's output lands in DIR/log.txt,
its JSON lines in DIR/evidence.tar.gz, both renewed after each group, so a part cut short loses one group at most.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

PYTEST = ("-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", "--override-ini", "filterwarnings=")


def trace(scenario: str, seconds: int, waves: int = 60) -> tuple[str, ...]:
    return (
        "-m", "benchmarks.h200.record_trace", "--scenario", scenario, "--seconds", str(seconds), "--waves", str(waves),
        "--out", f"WORK/{scenario}.jsonl",
    )  # fmt: skip


def table(family: str) -> tuple[str, ...]:
    return (
        "-m",
        "benchmarks.h200.controlled_table",
        "--family",
        family,
        "--seconds",
        "90",
        "--out",
        f"WORK/controlled-{family}.jsonl",
    )


def high_branch(family: str) -> tuple[str, ...]:
    return (
        "-m", "benchmarks.h200.high_branch", "--family", family, "--seconds", "60",
        "--out", f"WORK/high_branch-{family}.jsonl",
    )  # fmt: skip


def soak(law: str, waves: int, seconds: int) -> tuple[str, ...]:
    return (
        "-m", "benchmarks.h200.soak", "--gib", "8", "--waves", str(waves), "--law", law, "--seconds", str(seconds),
        "--out", f"WORK/soak-{law}.jsonl",
    )  # fmt: skip


def cap_soak(
    family: str,
    gib: int,
    safety: str,
    seconds: int,
    *,
    law: str = "frontier",
    expandable: bool = False,
    waves: int = 300,
) -> tuple[str, ...]:
    """A soak near its cap of a model of two narrow layers: quick waves, as many bytes. `gib` 0: no cap."""
    name = "-".join([family, str(gib), safety.replace("/", "_"), law, *(["expandable"] if expandable else [])])
    return (
        "-m", "benchmarks.h200.soak", "--seed", "28", "--layers", "2", "--law", law, "--gib", str(gib),
        "--family", family, "--safety", safety, "--waves", str(waves), "--seconds", str(seconds),
        *(["--expandable"] if expandable else []), "--out", f"WORK/{name}.jsonl",
    )  # fmt: skip


def micro_batches(shape: str, seconds: int, *, gib: int = 16) -> tuple[str, ...]:
    return (
        "-m", "benchmarks.h200.micro_batches", "--shape", shape, "--gib", str(gib), "--waves", "110", "--layers", "4",
        "--hidden", "1024", "--seconds", str(seconds), "--out", f"WORK/{shape}-{gib}-51_50-frontier.jsonl",
    )  # fmt: skip


def survival(seconds: int) -> tuple[str, ...]:
    return (
        "-m", "benchmarks.h200.survival", "--family", "moe", "--gib", "24", "--safety", "51/50", "--layers", "2",
        "--waves", "160", "--seconds", str(seconds), "--out", "WORK/moe-24-51_50-withheld.jsonl",
    )  # fmt: skip


PARTS: dict[str, list[list[tuple[str, ...]]]] = {
    "first": [
        [
            (*PYTEST, "tests/cuda/test_shared_execution.py"),
            (*PYTEST, "tests/cuda/test_head_charge.py"),
            table("dense"),
            table("moe"),
            table("gdn"),
            table("gdn_moe"),
        ],
        [
            high_branch("gdn"),
            trace("long", 100),
            trace("gdn", 100),
            trace("many", 60),
        ],
        [trace("deep", 70), trace("imbalance", 70), trace("saver", 50), trace("alternate", 70)],
    ],
    "second": [
        [
            (*PYTEST, "tests/cuda/test_head_charge.py"),
            (*PYTEST, "tests/cuda/test_waves.py"),
            (*PYTEST, "tests/cuda/test_shared_execution.py"),
            high_branch("gdn"),
            high_branch("gdn_moe"),
            table("gdn"),
            table("gdn_moe"),
            trace("gdn", 75),
        ],
        [("-m", "benchmarks.h200.overhead", "--seconds", "45", "--out", "WORK/overhead.jsonl")],
        [soak("warm", 300, 340), soak("frontier", 100, 340), soak("packed", 100, 340), soak("logical", 100, 340)],
    ],
    "third": [
        [("-m", "benchmarks.h200.overhead", "--seconds", "42", "--out", "WORK/overhead.jsonl")],
        [soak("warm", 300, 215), soak("frontier", 100, 215), (*PYTEST, "tests/cuda/test_head_charge.py")],
    ],
    "alone": [
        [("-m", "benchmarks.h200.overhead", "--pairs", "26", "--seconds", "70", "--out", "WORK/overhead.jsonl")],
        [("-m", "benchmarks.h200.binding_check", "--out", "WORK/binding.jsonl")],
        [
            (*PYTEST, "tests/cuda"),
            cap_soak("hf_moe", 16, "51/50", 60, expandable=True, waves=12),
            micro_batches("padded", 50),
            survival(60),
        ],
    ],
    "fused": [
        [
            *((*PYTEST, test) for test in ("tests/cuda/test_families_cuda.py", "tests/cuda/test_meter_cuda.py")),
            high_branch("gdn_fused"),
            high_branch("gdn_moe_fused"),
            table("gdn_fused"),
            table("gdn_moe_fused"),
        ]
    ],
    "near-the-cap": [
        [
            cap_soak("dense", 8, "11/10", 430),
            cap_soak("gdn_fused", 8, "11/10", 430),
            cap_soak("gdn_moe_fused", 24, "11/10", 430),
            cap_soak("moe", 24, "11/10", 430),
            cap_soak("hf_moe", 24, "11/10", 430),
            cap_soak("moe", 8, "11/10", 430, law="warm"),
            survival(430),
        ]
    ],
    "at-the-cap": [
        [
            cap_soak("moe", 60, "51/50", 430),
            cap_soak("hf_moe", 24, "51/50", 430, expandable=True),
            cap_soak("gdn_moe", 8, "11/10", 430),
            cap_soak("dense", 8, "51/50", 430, expandable=True),
            micro_batches("padded", 430),
            micro_batches("packed", 430),
            (*PYTEST, "tests/cuda"),
        ]
    ],
    "whole": [
        [cap_soak("moe", 0, "51/50", 330, waves=110)],
    ],
    "fused-and-whole": [
        [
            cap_soak("gdn_fused", 8, "11/10", 270),
            cap_soak("gdn_moe_fused", 24, "11/10", 270),
            table("gdn_fused"),
            high_branch("gdn_fused"),
        ],
        [micro_batches("packed", 120, gib=0)],
        [micro_batches("padded", 120, gib=0)],
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", required=True, choices=PARTS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540.0, help="end every command by then")
    parser.add_argument("--small", action="store_true", help="sizes for a CPU; leaves the tests out")
    parser.add_argument(
        "--fused-site", default="", help="a folder of packages for the commands with fused kernels only"
    )
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    out: Path = arguments.out
    work = Path(f"/tmp/pricing-{arguments.part}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    out.mkdir(parents=True, exist_ok=True)
    for number, group in enumerate(PARTS[arguments.part]):
        commands = [command for command in group if not (arguments.small and "pytest" in command)]
        run_group(commands, work, deadline, small=arguments.small, fused_site=arguments.fused_site)
        save(work, out)
        print(f"--- group {number} done, {deadline - time.monotonic():.0f} s left", flush=True)


def run_group(
    commands: list[tuple[str, ...]], work: Path, deadline: float, *, small: bool, fused_site: str = ""
) -> None:
    """Run `commands` side by side until they end or the deadline comes; print the end of each one's output."""
    running = []
    for command in commands:
        name = "-".join(part.split("/")[-1] for part in command if not part.startswith("-"))[:60]
        log = work / f"{name.replace('WORK', '')}.log"
        words = [word.replace("WORK", str(work)) for word in command]
        if small:
            words += ["--small", "--device", "cpu"]
        environment = dict(os.environ)
        if fused_site and "fused" in " ".join(command):
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (fused_site, environment.get("PYTHONPATH"))))
        with log.open("w") as file:
            process = subprocess.Popen([sys.executable, *words], stdout=file, stderr=subprocess.STDOUT, env=environment)
        running.append((process, log, time.monotonic()))
    for process, log, started in running:
        try:
            status = str(process.wait(timeout=max(1.0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            status = "stopped at the deadline"
        lines = log.read_text(errors="replace").splitlines()
        print(
            f"=== {log.stem}: exit {status}, at most {time.monotonic() - started:.0f} s",
            *lines[-14:],
            sep="\n",
            flush=True,
        )


def save(work: Path, out: Path) -> None:
    """Renew the archive of JSON lines and the log of everything."""
    with tarfile.open(out / "evidence.tar.gz", "w:gz") as archive:
        for path in sorted([*work.glob("*.jsonl"), *work.glob("*.profiles.json")]):
            archive.add(path, arcname=path.name)
    with (out / "log.txt").open("w") as file:
        for path in sorted(work.glob("*.log")):
            file.write(f"=== {path.stem}\n{path.read_text(errors='replace')}\n")


if __name__ == "__main__":
    main()
