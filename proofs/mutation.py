"""`python -m proofs.mutation [FOLDER]`: the score of a finished `mutmut run`, its survivors, and why they survive.

Reads what mutmut left in FOLDER/mutants (default: here), writes `proofs/mutation.json`, prints a summary. Exit code 1 if
the score of the law modules is below 98 % or a survivor is not argued. Mutants without a test, timed out or skipped
count as survivors, except that a time-out is a kill: the tests end in seconds, so such a mutant loops.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "proofs" / "mutation.json"
KILLED: Final = frozenset((1, 3, -24, 24, 36, 152, 255))
"""Exit codes of mutmut's workers for a failed test run and for a time-out."""

REQUIRED_SCORE: Final = 0.98

ARGUED: Final[dict[str, str]] = {}
"""Survivor -> why no test can or should kill it."""


def collect(folder: Path) -> dict[str, Any]:
    """Counts by module, score, and the survivors with their change and the reason they survive."""
    modules: dict[str, dict[str, int]] = {}
    survivors: list[dict[str, str]] = []
    for meta in sorted((folder / "mutants" / "pricing").glob("*.py.meta")):
        codes: dict[str, int | None] = json.loads(meta.read_text())["exit_code_by_key"]
        if codes:
            alive = [name for name, code in codes.items() if code not in KILLED]
            modules[meta.name.removesuffix(".py.meta")] = {"mutants": len(codes), "killed": len(codes) - len(alive)}
            survivors += [
                {"mutant": name, "change": _change(folder, name), "reason": ARGUED.get(name, "")} for name in alive
            ]
    mutants = sum(module["mutants"] for module in modules.values())
    killed = sum(module["killed"] for module in modules.values())
    return {
        "command": "mutmut run && python -m proofs.mutation",
        "mutants": mutants,
        "killed": killed,
        "score": round(killed / mutants, 4) if mutants else 0.0,
        "modules": modules,
        "survivors": survivors,
    }


def _change(folder: Path, name: str) -> str:
    """The changed lines of one mutant."""
    shown = subprocess.run(
        [sys.executable, "-m", "mutmut", "show", name], capture_output=True, text=True, cwd=folder, check=False
    )
    changed = [line for line in shown.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return "\n".join(changed)


def main(arguments: list[str]) -> int:
    found = collect(Path(arguments[0]) if arguments else ROOT)
    TARGET.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['killed']} of {found['mutants']} mutants killed: {100 * found['score']:.2f} %")
    unargued = [survivor["mutant"] for survivor in found["survivors"] if not survivor["reason"]]
    for survivor in found["survivors"]:
        print(f"\n{survivor['mutant']}: {survivor['reason'] or 'NOT ARGUED'}\n{survivor['change']}")
    return 1 if unargued or found["score"] < REQUIRED_SCORE else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
