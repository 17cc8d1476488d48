"""Either price covers the peak of rows and gradients (`pricing.kernel.made_gradients`).

A wave is seen at two moments; the highest of any number of them is the higher of two, over and over. At a moment rows
hold c, and g of gradients was made and stays; all of them are G.
"""

from __future__ import annotations

from dataclasses import dataclass

from pricing.kernel.quantities import maximum
from proofs.solver.proof import Given, theorem


@dataclass(frozen=True)
class Moments:
    """Two moments of a wave that was read (rows many) and of one that is to be priced (other rows many)."""

    rows: int
    other_rows: int
    read: tuple[int, int]
    other: tuple[int, int]
    made: tuple[int, int]
    all_made: int


def moments(t: Given, *, gradients_do_not_depend_on_rows: bool = True) -> Moments:
    """By assumption SCALE, of rows at each moment: they never outgrow their number."""
    names = ("first", "second")
    found = Moments(
        rows=t.integer("rows", 1),
        other_rows=t.integer("other_rows", 1),
        read=(t.integer("read_first", 0), t.integer("read_second", 0)),
        other=(t.integer("other_first", 0), t.integer("other_second", 0)),
        made=(t.integer("made_first", 0), t.integer("made_second", 0)),
        all_made=t.integer("all_made", 0),
    )
    t.assume(found.other_rows >= found.rows)
    for at in range(len(names)):
        t.assume(found.rows * found.other[at] <= found.other_rows * found.read[at])
        if gradients_do_not_depend_on_rows:
            t.assume(found.made[at] <= found.all_made)
    return found


@theorem("device")
def rows_and_all_gradients_apart_cover_their_peak(t: Given) -> None:
    seen = moments(t)
    peak = maximum(seen.other[0] + seen.made[0], seen.other[1] + seen.made[1])
    t.prove(peak <= maximum(*seen.other) + seen.all_made)


@theorem("device")
def rows_and_gradients_together_never_outgrow_the_rows(t: Given) -> None:
    """SCALE of the rows gives SCALE of both together: what the laws assume of what they learn from."""
    seen = moments(t)
    peak = maximum(seen.read[0] + seen.made[0], seen.read[1] + seen.made[1])
    other = maximum(seen.other[0] + seen.made[0], seen.other[1] + seen.made[1])
    t.prove(seen.rows * other <= seen.other_rows * peak)


@theorem("device")
def a_wave_that_finds_a_part_of_the_gradients_is_covered(t: Given) -> None:
    """What was there lies under its baseline; of the rest it makes no more by any moment."""
    seen = moments(t)
    left = (t.integer("left_first", 0), t.integer("left_second", 0))
    for at in range(len(left)):
        t.assume(left[at] <= seen.made[at])
    whole = maximum(seen.other[0] + seen.made[0], seen.other[1] + seen.made[1])
    t.prove(maximum(seen.other[0] + left[0], seen.other[1] + left[1]) <= whole)
