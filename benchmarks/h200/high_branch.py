"""The high-branch case: what does a segment cost in a recurrent layer?

101 branches of 20 rows on a prompt of 5,100 against one request of 7,119 rows, on a family with gated delta nets whose
head and feed-forward are small enough that the recomputed recurrent layer holds the peak. Prints bytes per row of both
and bytes per extra segment beside G, the charge.

    python -m benchmarks.h200.high_branch --family gdn --out high_branch.jsonl --seconds 60
"""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

from benchmarks.h200.families import Family, build
from benchmarks.h200.waves import Lines, WaveRunner, branches, common_arguments, prepared, shuffled_repeats, single

SMALL_VOCABULARY = 32_000
SMALL_FEED_FORWARD = 2_560


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    parser.add_argument("--family", action="append", choices=["gdn", "gdn_moe", "gdn_fused", "gdn_moe_fused"])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    device = prepared(arguments)
    lines = Lines(arguments.out, arguments.seconds)
    shapes = [branches(5_100, 101, 20), single(7_119)]
    if arguments.small:
        shapes = [branches(200, 11, 10), single(309)]
    branched, alone = (shape.label for shape in shapes)
    for family in arguments.family or ["gdn"]:
        model = build(family, device, small=arguments.small, change=_small_head)
        peaks: dict[str, list[int]] = {branched: [], alone: []}
        segments = rows = 0
        with WaveRunner(model, device, family=family) as runner:
            for index, shape in enumerate([*shapes, *shuffled_repeats(shapes, arguments.repeats, random.Random(0))]):
                if lines.is_over:
                    break
                line = runner.run(shape) | {"warm_up": index < len(shapes), "vocabulary": model.config.vocabulary}
                lines.write(line)
                if not line["warm_up"]:
                    peaks[shape.label].append(line["peak_bytes"])
                if shape.label == branched:
                    segments, rows = line["grad_segments"], line["packed_rows"]
        if not all(peaks.values()):
            print(f"{family}: not reached", flush=True)
            continue
        high, low = statistics.median(peaks[branched]), statistics.median(peaks[alone])
        alone_rows = shapes[1].packed_rows
        per_segment = (high - low * rows / alone_rows) / (segments - 1)
        print(
            f"{family}: single {low / alone_rows:.0f} B/row, branched {high / rows:.0f} B/row "
            f"({high / rows / (low / alone_rows) - 1:+.1%}), {per_segment / 1e6:.2f} MB an extra segment, "
            f"G {model.segment_state_bytes / 1e6:.2f} MB",
            flush=True,
        )


def _small_head(family: Family) -> Family:
    narrow = min(family.config.feed_forward, SMALL_FEED_FORWARD)
    return replace(family, config=replace(family.config, vocabulary=SMALL_VOCABULARY, feed_forward=narrow))


if __name__ == "__main__":
    main()
