"""Shares: how a wave's rows divide over its kinds, where there are several.

Memory per row differs by kind: a row with gradients keeps a graph and a row without keeps nothing; a row whose logits
are wanted costs a vocabulary and one with a label costs almost nothing. So total rows say what a wave needs only while
the kinds keep their proportions. The memory signature therefore holds, where at least two kinds have rows, the **size
class** of each kind's share, and a reading is learned at the rows of its least-represented kind. The laws themselves
stay as they are.

Assumption SHARES: the compute peak never falls as the rows of any kind grow, and never grows faster than in proportion
when the rows of all kinds grow in proportion. (Sums, maxima and fixed costs do; it says nothing of how kinds combine.)
Then a wave n' needs at most max over k of n'[k] / n[k] times what a wave n needed.

Why that is enough: let c be the scale of a kind's class, so that of a total of T rows a kind of n rows has
T / 2 < c * n <= T. A reading teaches at p = min of c * n over its kinds, rounded down; a later wave of equal classes is
priced at its total P', and c * n' <= P' for each of its kinds. So n'/n = c n' / (c n) <= P'/p: the rate through p,
times P', covers it. The cost is the distance between p and P: at most `(SHARE_STEPS + 1) / SHARE_STEPS` plus a row.

Assumption JOINT: waves of one signature with more than `MOST_KINDS` kinds of a quantity need no more a row than those
it was learned from, whatever their proportions. So many kinds rarely have one that stands for most of the memory, and
shares of each would make almost every wave a signature of its own, which starts cold. Shares of the other quantity
stay: with a thousand different requests, rows with gradients are still told from rows without.

A wave of *other* classes and the same kinds is bounded too, at max of c * n' rows instead of P'. That is what lets a
mix whose proportions wander go on at a price, instead of starting cold once a class.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pricing.kernel.errors import WaveError
from pricing.kernel.quantities import ceil_div, maximum, minimum, require_count

SHARE_STEPS: Final = 2
"""Size classes an octave. Finer ones cost less above the need and hold less evidence each."""

MOST_KINDS: Final = 16
"""Of a quantity with more kinds than these, no kind has a share: the rows are one joint kind (assumption JOINT)."""

PACKED: Final = "packed"
LOGICAL: Final = "logical"

RowsByKind = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRows:
    """Rows of each kind that has any, by the kind's name, sorted. Empty where nobody asks: the wave is of one kind.

    packed: packed rows by grad mode and adapter shape, padding included (what a layer executes). logical: logical rows
    by what is asked of them as well (what the head and the outputs gather).
    """

    packed: RowsByKind = ()
    logical: RowsByKind = ()

    @classmethod
    def of(cls, packed: Iterable[tuple[str, int]], logical: Iterable[tuple[str, int]]) -> KindRows:
        """Those of a wave. Kinds without rows are left out; more than `MOST_KINDS` are one."""
        return cls(packed=_present(packed), logical=_present(logical))


ONE_KIND: Final = KindRows()


def _present(rows: Iterable[tuple[str, int]]) -> RowsByKind:
    """Looks at no more kinds than it must: it is asked for every width of a batch."""
    kinds = []
    for kind, count in rows:
        if count > 0:
            kinds.append((kind, count))
            if len(kinds) > MOST_KINDS:
                return ()
    return tuple(sorted(kinds))


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Share:
    """One kind's share of the wave's rows of one quantity (`packed` or `logical`), as its size class.

    Class 0 is a share close to all; `SHARE_STEPS` classes further on it is half as large.
    """

    quantity: str
    kind: str
    size_class: int

    def __post_init__(self) -> None:
        if self.quantity not in (PACKED, LOGICAL):
            raise WaveError(f"a share is of {PACKED} or {LOGICAL} rows, not of {self.quantity!r}")
        require_count("size_class", self.size_class)

    def __str__(self) -> str:
        octave, step = divmod(self.size_class, SHARE_STEPS)
        most = 2 * SHARE_STEPS - step
        return f"{self.quantity} {self.kind}: at most {most}/{SHARE_STEPS << (octave + 1)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRows:
    """The rows a reading of a wave counts for: its own, or fewer where it is of several kinds."""

    packed_rows: int
    logical_rows: int
    grad_segments: int


def size_class(rows: int, total_rows: int) -> int:
    """The class of a share of `rows` (at least 1) of `total_rows` (at least as many)."""
    octave = 0
    while 2 * (rows << octave) <= total_rows:
        octave += 1
    step = 2 * SHARE_STEPS - ceil_div(2 * SHARE_STEPS * (rows << octave), total_rows)
    return octave * SHARE_STEPS + step


def class_scale(size_class: int) -> tuple[int, int]:
    """c of a class as (numerator, denominator): rows of the kind times c is at most the total, and more than
    SHARE_STEPS / (SHARE_STEPS + 1) of it."""
    octave, step = divmod(size_class, SHARE_STEPS)
    return (2 * SHARE_STEPS) << octave, 2 * SHARE_STEPS - step


def scaled_up(rows: int, size_class: int) -> int:
    """c * rows, rounded up: what a wave to be priced counts for."""
    return times_up(rows, *class_scale(size_class))


def scaled_down(rows: int, size_class: int) -> int:
    """c * rows, rounded down: what a wave that was read counts for."""
    return times_down(rows, *class_scale(size_class))


def times_up(rows: int, numerator: int, denominator: int) -> int:
    """Rows times a fraction, rounded up."""
    return ceil_div(rows * numerator, denominator)


def times_down(rows: int, numerator: int, denominator: int) -> int:
    """Rows times a fraction, rounded down."""
    return rows * numerator // denominator


def shares_of(rows: KindRows) -> tuple[Share, ...]:
    """The shares as they stand in the memory signature. A single kind has none: its share is all."""
    found = []
    for quantity, by_kind in ((LOGICAL, rows.logical), (PACKED, rows.packed)):
        total = sum(count for _, count in by_kind)
        if len(by_kind) > 1:
            found += [
                Share(quantity=quantity, kind=kind, size_class=size_class(count, total)) for kind, count in by_kind
            ]
    return tuple(found)


def rows_under(rows: RowsByKind, quantity: str, total_rows: int, shares: tuple[Share, ...]) -> int:
    """Rows at which a wave is priced by evidence of these shares: its own total, and at least c * n for each kind.

    Of equal shares that is the total itself. Never falls as rows of any kind (and with them the total) grow. The kinds
    must be among those of the shares. `total_rows` may differ from the sum of the kinds (the busiest of several ranks).
    """
    classes = {share.kind: share.size_class for share in shares if share.quantity == quantity}
    total = sum(count for _, count in rows)
    most = total
    for kind, count in rows:
        if classes:
            most = maximum(most, scaled_up(count, classes[kind]))
    return total_rows if most == total else ceil_div(most * total_rows, total)


def kinds_of(shares: tuple[Share, ...]) -> frozenset[tuple[str, str]]:
    """Which kinds the shares are of."""
    return frozenset((share.quantity, share.kind) for share in shares)


def evidence_rows(packed_rows: int, logical_rows: int, grad_segments: int, rows: KindRows) -> EvidenceRows | None:
    """What a reading of this wave counts for: the rows of its least-represented kind at class scale. None where there
    is one kind: its own rows.

    Logical rows are never fewer than packed ones here, where the laws could not tell (a sharing under 1); segments
    shrink as packed rows do, so that they are no more a packed row than they were.
    """
    if len(rows.logical) < 2 and len(rows.packed) < 2:
        return None
    logical = _least_scaled(rows.logical, logical_rows)
    packed = minimum(_least_scaled(rows.packed, packed_rows), logical)
    return EvidenceRows(
        packed_rows=packed, logical_rows=logical, grad_segments=grad_segments * packed // maximum(1, packed_rows)
    )


def _least_scaled(rows: RowsByKind, total_rows: int) -> int:
    """Of a wave whose own total differs from the sum of its kinds (the busiest of several ranks), in proportion."""
    if len(rows) < 2:
        return total_rows
    total = sum(count for _, count in rows)
    least = total
    for _, count in rows:
        least = minimum(least, scaled_down(count, size_class(count, total)))
    return least * total_rows // total
