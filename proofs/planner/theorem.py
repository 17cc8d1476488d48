"""The width search and the split ladder's pruning, for any price that keeps INV-1 to INV-3: they use nothing else.

The shipped `widest_feasible` asks a curve where a regime ends and a predicate whether a width is feasible. What INV-1
to INV-3 give is that within a regime feasibility changes once, from feasible to not. `W` is the width that it must
find: the largest all of whose smaller widths are feasible. Of widths beyond W + 1 in other regimes nothing is known, so
asking about one would be an error; that none is asked about is proven.

Any number of widths, regimes and questions, by induction: a loop knows its position and no more. The curve here may end
a regime anywhere between the position and the limit, whatever was wanted, so two passes through the loop start from any
position that there can be, and the third is the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any

from pricing.kernel.price import evidence_bytes, retained_bytes
from pricing.kernel.quantities import maximum
from pricing.kernel.wave import Wave
from pricing.planner import split, width_search
from pricing.planner.budget import fits
from pricing.planner.split import Ladder, RungBounds, rung_cost_bytes, split_cost_bytes
from pricing.planner.width_search import _bisect, widest_feasible
from proofs.lemmas import MONOTONE, the_safety_factor_never_shrinks
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both, either, implies, negation

PASSES = 3


class EnoughError(Exception):
    """The search would go on as it did from an earlier position."""


class AnyCurve:
    """Any curve of `limit` widths, for a search whose answer is `widest`."""

    def __init__(self, t: Given, limit: int, widest: int) -> None:
        self.t, self.limit, self.widest = t, limit, widest
        self.first, self.end, self.passes = 0, 0, 0

    def reaches(self, width: int) -> bool:
        """Widths that are feasible can be counted; the next may be beyond what can."""
        return either(width <= self.widest, self.t.integer(f"reached{self.passes}") == 1)

    def last_width_of_regime(self, first: int, wanted: int) -> int:
        """Any width from the position on (which is `first`, where a regime begins) up to the limit."""
        self.passes += 1
        if self.passes > PASSES:
            raise EnoughError
        position = maximum(self.end, first)
        self.t.prove(both(wanted >= position, wanted <= self.limit), "what is wanted exists")
        self.first, self.end = first, position  # no further width in this regime, or any:
        if self.t.choose(False, True):
            self.end = self.t.integer(f"end{self.passes}")
            self.t.assume(both(self.end > position, self.end <= self.limit))
        return self.end

    def is_feasible(self, width: int) -> bool:
        self.t.prove(both(width >= 1, width <= self.limit), "a width that exists")
        beyond = width if width is not self.end else self.first
        self.t.prove(beyond <= self.widest + 1, "of a regime that begins no later than behind the widest")
        return width <= self.widest


@contextmanager
def bisecting(t: Given, widest: int) -> Iterator[None]:
    """Within, `_bisect` gives what the theorem about it says, where its premises hold."""

    def bisect(low: int, high: int, feasible: Callable[[int], bool]) -> int:
        t.prove(both(low <= widest, widest < high), "between a feasible width and one that is not")
        return widest

    shipped_one = width_search._bisect
    width_search._bisect = bisect
    try:
        yield
    finally:
        width_search._bisect = shipped_one


@theorem("planner", slow=True)
def the_width_search_finds_the_widest_whatever_the_number_of_widths(t: Given) -> None:
    limit, widest = t.integer("limit", 0), t.integer("W", 0)
    t.assume(widest <= limit)
    curve: Any = AnyCurve(t, limit, widest)
    try:
        with bisecting(t, widest):
            found = widest_feasible(curve, curve.is_feasible)
    except EnoughError:
        t.prove(curve.end <= widest, "up to here everything is feasible")
        return
    t.prove(found == widest)


class AskedError(Exception):
    """A search asked about this width."""

    def __init__(self, width: int) -> None:
        super().__init__("asked")
        self.width = width


def asked_after(low: int, high: int, answers: tuple[bool, ...]) -> tuple[bool, int]:
    """What `_bisect` does once it has these answers: (True, the next width it asks about) or (False, its result)."""
    given = iter(answers)

    def feasible(width: int) -> bool:
        for answer in given:
            return answer
        raise AskedError(width)

    try:
        return False, _bisect(low, high, feasible)
    except AskedError as asked:
        return True, asked.width


@theorem("planner")
def a_bisection_halves_what_is_open_and_ends_where_nothing_is(t: Given) -> None:
    """For any two widths: either nothing is open and the lower is the answer, or one between is asked about, and with
    the answer the search goes on as it would have begun from there."""
    low, high = t.integer("low", 0), t.integer("high", 1)
    t.assume(low < high)
    goes_on, width = asked_after(low, high, ())
    if not goes_on:
        t.prove(both(width == low, high == low + 1), "the lower is the last feasible one")
        return
    t.prove(both(low < width, width < high), "between the two")
    answer = t.choose(True, False)
    narrowed = (width, high) if answer else (low, width)
    after, anew = asked_after(low, high, (answer,)), asked_after(*narrowed, ())
    t.prove(after[0] == anew[0], "it ends where it would have ended")
    t.prove(after[1] == anew[1], "and asks what it would have asked")


# --- the split ladder ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Child:
    """A sub-forward's two prices."""

    required_bytes: int
    retained_bytes: int


@theorem("planner")
def a_rung_costs_a_child_at_its_peak_beside_what_all_others_retain(t: Given) -> None:
    """For each child, and no more than for the dearest. The last child stands for any number more: for them the sum of
    what they retain, and the most that one of them adds."""
    count = t.choose(1, 2, 3)
    children = [Child(t.integer(f"required{n}", 0), t.integer(f"retained{n}", 0)) for n in range(count)]
    for child in children:
        t.assume(child.retained_bytes <= child.required_bytes)  # INV-11
    cost = rung_cost_bytes(children)
    each = [
        child.required_bytes + sum(other.retained_bytes for other in children if other is not child)
        for child in children
    ]
    for value in each:
        t.prove(cost >= value, "at its peak beside the others")
    t.prove(either(*(cost == value for value in each)), "and it is one of these")
    measured = t.integer("measured", 0)
    t.prove(split_cost_bytes(children, measured) >= cost, "what was measured only raises it")


@theorem("planner")
def a_pruned_rung_does_not_fit(t: Given) -> None:
    """With what every cut keeps to: some child costs at least the price of 1/k of the rows alone (INV-1, INV-2: its
    rows are no fewer) and its own outputs besides; each other child retains its outputs, and what one request alone
    must. `others` stands for all but that child."""
    alone, outputs, its_outputs, least, available = (
        t.integer(name, 0) for name in ("price_of_rows", "outputs", "its_outputs", "least_retained", "available")
    )
    child, others = (
        Child(t.integer("required", 0), t.integer("retained", 0)),
        Child(t.integer("others.required", 0), t.integer("others.retained", 0)),
    )
    t.assume(both(its_outputs <= outputs, child.required_bytes >= alone + its_outputs))
    t.assume(both(others.retained_bytes >= outputs - its_outputs, others.retained_bytes >= least))
    t.assume(both(child.retained_bytes <= child.required_bytes, others.retained_bytes <= others.required_bytes))
    lower_bound = alone + (outputs if t.choose(True, False) else least)
    cost = rung_cost_bytes((child, others))
    t.prove(cost >= lower_bound, "the lower bound is one")
    t.prove(either(fits(lower_bound, available), not fits(cost, available)), "so what it prunes does not fit")


@theorem("planner", lemmas=(*MONOTONE, the_safety_factor_never_shrinks), merging=(evidence_bytes,))
def a_child_holds_its_outputs_besides_the_price_of_its_rows(t: Given) -> None:
    """What pruning uses of a price and the other theorems do not say: outputs are priced in full, and retained."""
    profile, law, safety = t.profile(warm=t.choose("none", "fit")), t.law(), t.safety()
    wave = t.wave(checkpoint_retained_bytes=0)
    t.assume(wave.packed_rows >= 1)
    t.prove(t.merged(evidence_bytes, wave, profile, law, safety) >= wave.output_bytes, "the price holds its outputs")
    t.prove(retained_bytes(wave, profile, law, safety) >= wave.output_bytes, "and so does what is retained")


PARTITIONS = (
    ((0,), (1,)),
    ((0,), (1, 2)),
    ((1,), (0, 2)),
    ((2,), (0, 1)),
    ((0,), (1,), (2,)),
)
"""Which requests, by what they retain alone, the least first, are in which child: two or three of two or three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A sub-forward as the ladder sees it: its two prices, and what it holds. shared_rows: without padding."""

    requests: tuple[int, ...]
    shared_rows: int
    packed_rows: int
    logical_rows: int
    output_bytes: int
    required_bytes: int
    retained_bytes: int


def a_piece(t: Given, place: int, requests: tuple[int, ...], alone: list[int], ranked: bool) -> Piece:
    """Any. A part holds no fewer rows than without padding, or is priced by the one row of a rank; it retains its
    outputs and what each of its requests alone must."""
    names = ("shared_rows", "packed_rows", "logical_rows", "output_bytes", "required_bytes", "retained_bytes")
    piece = Piece(requests=requests, **{name: t.integer(f"{name}{place}", 0) for name in names})
    held = piece.packed_rows >= (1 if ranked else piece.shared_rows)
    t.assume(implies(piece.shared_rows >= 1, both(held, piece.logical_rows >= piece.shared_rows)))
    t.assume(piece.retained_bytes <= piece.required_bytes)  # INV-11
    t.assume(piece.retained_bytes >= piece.output_bytes)  # a_child_holds_its_outputs_besides_the_price_of_its_rows
    for request in requests:
        t.assume(piece.retained_bytes >= alone[request])
    return piece


@contextmanager
def cut_into(t: Given, pieces: Sequence[Piece]) -> Iterator[None]:
    """Within, every wave is cut into `pieces`, and prices are any that keep INV-1 and INV-2 and hold outputs in full:
    a piece costs at least what a wave of no more rows costs, and its own outputs besides."""

    def required(wave: Wave, *_: object) -> int:
        price = t.integer("price_of_rows", 0)
        for piece in pieces:
            no_more = both(piece.packed_rows >= wave.packed_rows, piece.logical_rows >= wave.logical_rows)
            t.assume(implies(no_more, piece.required_bytes >= price + piece.output_bytes))
        return price

    replaced: dict[str, Any] = {
        "required_bytes": required,
        "cut": lambda batch, ordered, parts, multiple: pieces,
        "split_key": lambda signature, children: None,
    }
    shipped = {name: getattr(split, name) for name in replaced}
    vars(split).update(replaced)
    try:
        yield
    finally:
        vars(split).update(shipped)


@theorem("planner", slow=True)
def the_shipped_rung_fits_exactly_where_its_cost_does_pruned_or_not(t: Given) -> None:
    """`Ladder.rung` and `RungBounds.lower_bound_bytes` as they are, for whatever prices and however a wave is cut."""
    partition = t.choose(*PARTITIONS)
    count, ranked = sum(map(len, partition)), t.choose(False, True)
    alone = [t.integer(f"alone{request}", 0) for request in range(count)]
    for less, more in pairwise(alone):
        t.assume(less <= more)
    pieces = [a_piece(t, place, requests, alone, ranked) for place, requests in enumerate(partition)]
    whole = SimpleNamespace(shared_rows=t.integer("shared_rows", 0), output_bytes=t.integer("outputs", 0))
    t.assume(sum(piece.shared_rows for piece in pieces) >= whole.shared_rows)  # a shared prefix may count in both
    t.assume(sum(piece.output_bytes for piece in pieces) == whole.output_bytes)
    measured = t.integer("measured", 0) if t.choose(False, True) else None
    ladder: Any = SimpleNamespace(
        batch=SimpleNamespace(depth_first=list),
        requests=range(count),
        workload=t.workload(packed_priced=True),
        setting=SimpleNamespace(row_multiple=1, rank_rows=1 if ranked else None, segment_state_bytes=0),
        available_bytes=t.integer("available", 0),
        measured_splits=SimpleNamespace(get=lambda key: measured),
        child=lambda piece: piece,
        profile=None,
        law=None,
        safety=None,
        signature=None,
    )
    bounds: Any = SimpleNamespace(_ladder=ladder, _whole=whole, _retained_of_least=[0, *accumulate(alone)])
    with cut_into(t, pieces):
        lower_bound = RungBounds.lower_bound_bytes(bounds, len(pieces))
        tried = Ladder.rung(ladder, len(pieces), lower_bound)
    cost = split_cost_bytes(pieces, measured)
    t.prove(lower_bound <= cost, "the lower bound is one")
    if tried.pruned:
        t.prove(negation(fits(cost, ladder.available_bytes)), "what was pruned would not fit")
        t.prove(negation(tried.fits), "and does not count as fitting")
    else:
        t.prove(tried.cost_bytes == cost, "it costs what its children do")
        t.prove(tried.fits == fits(cost, ladder.available_bytes), "and fits where that does")
