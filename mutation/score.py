"""The mutation score of the law modules, the survivors, and why they survive.

Reads what a finished `mutmut run` left in FOLDER/mutants (default: here), runs the mutants of what mutmut leaves out
(`excluded_mutants.py`, minutes; `--keep` takes their last result instead), writes `mutation/mutation.json`, prints a
summary. Exit code 1 if the score is below 98 % or a survivor is not argued. A mutant without a test, skipped or crashed
counts as a survivor; one that times out is killed: the tests end in seconds, so it loops.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from mutation import excluded_mutants

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "mutation" / "mutation.json"
KILLED: Final = frozenset((1, 3, -24, 24, 36, 152, 255))
"""Exit codes of mutmut's workers for a failed test run and for a time-out."""

REQUIRED_SCORE: Final = 0.98

_EITHER: Final = "equivalent: of two equal integers either is the result"
_ASSERTED: Final = "an internal assertion that no input reaches: every caller of `_warm_term` has a whole warm fit"
_TOGETHER: Final = "equivalent on reachable profiles: floor and sharing are None together, and a fit has a rate"

ARGUED: Final[dict[str, str]] = {
    "requests._T": "equivalent: the name that a type variable has for people",
    "pricing.kernel.quantities.x_maximum__mutmut_3": _EITHER,
    "pricing.kernel.quantities.x_minimum__mutmut_3": _EITHER,
    "pricing.kernel.requests.x_signature_of__mutmut_4": (
        "equivalent: of that workload only the mixes and grad modes are read, never the recompute mode"
    ),
    "pricing.kernel.rate_laws.x_warm_bytes__mutmut_2": _TOGETHER,
    "pricing.kernel.rate_laws.x_warm_bytes__mutmut_3": _TOGETHER,
    "pricing.kernel.rate_laws.x__warm_term__mutmut_2": _ASSERTED,
    "pricing.kernel.rate_laws.x__warm_term__mutmut_3": _ASSERTED,
    "pricing.kernel.rate_laws.x__warm_term__mutmut_7": _ASSERTED,
    "pricing.kernel.rate_laws.x__warm_term__mutmut_8": _ASSERTED,
    "pricing.kernel.price.x__capped_retained_bytes__mutmut_1": (
        "equivalent: without rows required is O, which caps retained; without a profile no retained rate is known"
    ),
}
"""Survivor -> why no test can or should kill it."""


def by_mutmut(folder: Path) -> list[dict[str, Any]]:
    """Every mutant of a finished mutmut run, and whether it was killed."""
    found = []
    for meta in sorted((folder / "mutants" / "pricing" / "kernel").glob("*.py.meta")):
        codes: dict[str, int | None] = json.loads(meta.read_text())["exit_code_by_key"]
        module = meta.name.removesuffix(".py.meta")
        found += [{"mutant": name, "module": module, "killed": code in KILLED} for name, code in codes.items()]
    return found


def of_the_rest() -> list[dict[str, Any]]:
    """Every mutant of what mutmut leaves out, and whether it was killed."""
    modules, tests = excluded_mutants.configured(ROOT)
    return [
        {"mutant": change.name, "module": change.module, "killed": killed}
        for change, killed in excluded_mutants.run(ROOT, modules, tests)
    ]


def report(mutants: list[dict[str, Any]], rest: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Counts by module, score, and the survivors with their change and the reason they survive."""
    every = [*mutants, *rest]
    alive = [mutant for mutant in every if not mutant["killed"]]
    return {
        "command": "mutmut run && python -m mutation",
        "mutants": len(every),
        "killed": len(every) - len(alive),
        "score": round(1 - len(alive) / len(every), 4),
        "by_mutmut": len(mutants),
        "of_properties_constants_and_defaults": len(rest),
        "modules": {
            module: {"mutants": len(own), "killed": sum(mutant["killed"] for mutant in own)}
            for module in sorted({mutant["module"] for mutant in every})
            for own in [[mutant for mutant in every if mutant["module"] == module]]
        },
        "survivors": [
            {
                "mutant": mutant["mutant"],
                "change": _change(folder, mutant["mutant"]),
                "reason": ARGUED.get(mutant["mutant"].split(":", 1)[0], ""),
            }
            for mutant in alive
        ],
        "rest": [[mutant["mutant"], mutant["module"], mutant["killed"]] for mutant in rest],
    }


def _change(folder: Path, name: str) -> str:
    """The changed lines of one of mutmut's mutants; the others say it in their names."""
    if "__mutmut_" not in name:
        return name.split(": ", 1)[1]
    shown = subprocess.run(
        [sys.executable, "-m", "mutmut", "show", name], capture_output=True, text=True, cwd=folder, check=False
    )
    changed = [line for line in shown.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(changed)


def main(arguments: list[str]) -> int:
    folders = [argument for argument in arguments if not argument.startswith("-")]
    folder = Path(folders[0]) if folders else ROOT
    if "--keep" in arguments:
        kept = json.loads(TARGET.read_text())["rest"]
        rest = [{"mutant": name, "module": module, "killed": killed} for name, module, killed in kept]
    else:
        rest = of_the_rest()
    found = report(by_mutmut(folder), rest, folder)
    TARGET.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['killed']} of {found['mutants']} mutants killed: {100 * found['score']:.2f} %")
    for survivor in found["survivors"]:
        print(f"\n{survivor['mutant']}: {survivor['reason'] or 'NOT ARGUED'}\n{survivor['change']}")
    argued = all(survivor["reason"] for survivor in found["survivors"])
    return 0 if argued and found["score"] >= REQUIRED_SCORE else 1
