"""The fuzzer in full, some minutes: `python -m tests.fuzz [--seed 20] [--output spec/evidence/fuzz.json]`.

Writes how often each outcome was seen. A broken promise stops it with the target's name and the seed.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from pricing.formats.files import write_text_atomically
from tests.fuzz.targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--share", type=float, default=1.0, help="of each target's tries")
    parser.add_argument("--only", action="append", choices=[*TARGETS], help="may be given again")
    parser.add_argument("--output", metavar="FILE", help="write the figures there as well")
    asked = parser.parse_args()
    figures: dict[str, object] = {}
    for name, (target, tries, _) in TARGETS.items():
        if asked.only and name not in asked.only:
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                counts = target(random.Random(f"{asked.seed} {name}"), Path(folder), max(1, round(asked.share * tries)))
            except BaseException as error:
                error.add_note(f"target {name!r}, seed {asked.seed}")
                raise
        figures[name] = {"tries": max(1, round(asked.share * tries)), "outcomes": dict(sorted(counts.items()))}
        print(f"{name:18} {time.perf_counter() - began:6.1f} s  {dict(sorted(counts.items()))}", flush=True)
    if asked.output is not None:
        document = {"seed": asked.seed, "share": asked.share, "targets": figures, "broken promises": 0}
        write_text_atomically(asked.output, json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
