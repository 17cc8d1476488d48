"""Compare this build with recorded answers of another implementation.

    python -m tests.differential.conform FILE...

A file holds JSON lines of one or several formats, told apart by what a line contains (`tests/data/peer/README.md`
describes them). Differences go to stderr, the sum to stdout. Exit code 0: nothing differs; 1: something does; 2: a file
that cannot be read as what it should be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from pricing.formats.place import Findings, Place
from pricing.formats.strict_json import JsonObject, read_json_lines
from pricing.kernel.errors import FileFormatError, PricingError
from tests.differential.comparison import Comparison
from tests.differential.kernel_formats import compare_history, compare_request_mix
from tests.differential.planner_formats import compare_prefix_tree, compare_width_search

Compare = Callable[[JsonObject, Place, Comparison], None]

SHOWN_DIFFERENCES: Final = 20

FORMATS: Final[Mapping[str, Compare]] = {
    "observations": compare_history,
    "input_shape": compare_request_mix,
    "packed_by_depth": compare_prefix_tree,
    "completions": compare_width_search,
}
"""How each format is compared, by the field that gives it away."""


def conform(paths: Iterable[str]) -> Comparison:
    """Compare every line of every file. Raises `FileFormatError` and `OSError`."""
    comparison = Comparison()
    for path in paths:
        empty = True
        for line, place in read_json_lines(path, Findings()):
            empty = False
            comparison.place = f"{path}:{place.line}"
            marks = [mark for mark in FORMATS if line.get(mark) is not None]
            if len(marks) != 1:
                raise place.error(f"is of no known format: one of {', '.join(FORMATS)} tells which")
            place.build(partial(FORMATS[marks[0]], line, place, comparison))
        if empty:
            raise FileFormatError(path, "holds no case")
    return comparison


def main(paths: list[str]) -> int:
    if not paths:
        print("usage: python -m tests.differential.conform FILE...", file=sys.stderr)
        return 2
    try:
        comparison = conform(paths)
    except PricingError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"Error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    for difference in comparison.differences[:SHOWN_DIFFERENCES]:
        print(difference, file=sys.stderr)
    if len(comparison.differences) > SHOWN_DIFFERENCES:
        print(f"... and {len(comparison.differences) - SHOWN_DIFFERENCES} more", file=sys.stderr)
    print(comparison.summary())
    return 1 if comparison.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
