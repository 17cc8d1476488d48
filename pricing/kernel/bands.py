"""Frontier evidence: what readings after the seed taught the frontier law, kept by band. Bounded, order-independent.

A **band** is a size class (eighths of an octave of packed rows) by a sharing class (octaves of logical / packed rows),
both read from an integer's leading bits. A band keeps two things, for two different uses:

* its **anchor**, one complete reading as it was: the one of most compute. Assumption SCALE turns a complete reading
  into a bound for every other wave, so whole readings make sharper bounds than joined ones (rate of one, size of
  another), and leaving the rest out costs nothing: a minimum over fewer sound bounds is still sound.
* its **cover**, over all readings, complete or not: most compute bytes, most bytes a row, least logical rows, least
  segments. Whatever the prices do, none may lie under a reading; a reading is never above
  min(compute_bytes, bytes_per_row * P), and the law covers that.

Everything is a maximum or a minimum, so two readings teach the same in either order (INV-10). There are at most
`MOST_BANDS` bands, however long the run is.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from pricing.kernel.quantities import ceil_div, maximum, minimum, require_count
from pricing.kernel.reading import Reading, ReadingKind

SIZE_BITS: Final = 3
"""Leading bits after the first that tell sizes apart: eight size classes an octave, each at most 12.5 % wide."""

LARGEST_CLASS_ROWS: Final = 1 << 20
"""Waves of a million packed rows and more share the last size class."""

MOST_SHARING_CLASS: Final = 7
"""Sharing classes: below 2, below 4, ..., below 64, and 64 or more."""


def size_class(packed_rows: int) -> int:
    """Which eighth of an octave `packed_rows` >= 1 lies in; 1, 2, 3, ... without gaps, never falling."""
    rows = min(packed_rows, LARGEST_CLASS_ROWS)
    shift = max(0, rows.bit_length() - 1 - SIZE_BITS)
    return (shift << SIZE_BITS) + (rows >> shift)


def size_class_rows(size: int) -> int:
    """Fewest packed rows of a size class: the inverse of `size_class`."""
    shift = max(0, (size >> SIZE_BITS) - 1)
    return (size - (shift << SIZE_BITS)) << shift


def sharing_class(logical_rows: int, packed_rows: int) -> int:
    """Which octave of logical / packed rows: 1 below 2 (padding included), 2 below 4, ..., the last from 64 on."""
    octave = (logical_rows // packed_rows).bit_length()
    if octave <= 1:
        return 1
    return octave if octave < MOST_SHARING_CLASS else MOST_SHARING_CLASS


MOST_BANDS: Final = size_class(LARGEST_CLASS_ROWS) * MOST_SHARING_CLASS
"""Most bands that evidence can hold: 144 size classes by 7 sharing classes, 1,008."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One complete reading, as it was: what bounds are made of. `compute_bytes` excludes the outputs."""

    compute_bytes: int
    packed_rows: int
    logical_rows: int
    grad_segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """What a band's readings are never above: min(compute_bytes, bytes_per_row * P), from these L and S on."""

    compute_bytes: int
    bytes_per_row: int
    logical_rows: int
    grad_segments: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One band's evidence. `anchor` is None until a complete reading lands in it."""

    size: int
    sharing: int
    cover: Cover
    anchor: Anchor | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.size, self.sharing

    def __str__(self) -> str:
        first = size_class_rows(self.size)
        rows = (
            f"{first}.. rows" if first == LARGEST_CLASS_ROWS else f"{first}..{size_class_rows(self.size + 1) - 1} rows"
        )
        least = 1 << (self.sharing - 1)
        return f"{rows}, sharing {least}.." + ("" if self.sharing == MOST_SHARING_CLASS else str(2 * least))


Bands = tuple[Band, ...]
"""Bands in ascending order of key, each key once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierEvidence:
    """All that the frontier law knows: bands of peak compute, and bands of what is retained after the forward.

    `derived` is a memo of what the law computes from this evidence alone (see `kernel.frontier`): it takes no part in
    equality, and dropping it changes no price.
    """

    peak: Bands = ()
    retained: Bands = ()
    derived: dict[object, object] = field(default_factory=dict, init=False, repr=False, compare=False)


NO_EVIDENCE: Final = FrontierEvidence()

Witnesses = tuple[Anchor, ...]
"""Complete readings as they were, one an octave of packed rows and sharing class: that of the least compute a row. They
take no part in any price; what they are for is told in `kernel.liveness`."""

SOUND: Final = "sound"
"""Key of `derived` for evidence that was checked, or was made by `observe_bands` of such evidence: joins keep what the
check asks for (`proofs/frontier`), so a reading costs no look at every band."""


CHECKED: Final = "witnesses"
"""Key of `derived` for the witnesses beside this evidence that were checked: that very tuple needs no further look."""


def observe_bands(evidence: FrontierEvidence, reading: Reading, seed_seen: bool) -> FrontierEvidence:
    """The evidence after one more reading. Without `seed_seen` the reading stays out: it is the seed, or before."""
    if not seed_seen or reading.packed_rows == 0:
        return evidence
    retained = reading.retained_compute_bytes
    after = FrontierEvidence(
        peak=join(evidence.peak, reading, reading.compute_bytes, bounds=reading.is_complete),
        retained=(
            evidence.retained
            if retained is None
            else join(evidence.retained, reading, retained, bounds=is_retained_whole(reading))
        ),
    )
    if SOUND in evidence.derived:
        after.derived[SOUND] = True
    if CHECKED in evidence.derived:
        after.derived[CHECKED] = evidence.derived[CHECKED]
    return after


def is_retained_whole(reading: Reading) -> bool:
    """Whether what the reading says was retained may bound other waves.

    The forward's return knows it exactly, also where the wave's peak is still to come. An interrupted reading does
    not: its peak, which caps what it retained, may be that of a counter reset in between. Nor does one that ran out of
    memory, whose footprint is no figure of its own.
    """
    return reading.kind not in (ReadingKind.INTERRUPTED, ReadingKind.OUT_OF_MEMORY)


def join(bands: Bands, reading: Reading, compute_bytes: int, *, bounds: bool) -> Bands:
    """`bands` with one more reading of `compute_bytes`. A reading of no compute neither bounds nor needs covering."""
    if compute_bytes == 0:
        return bands
    fresh = band_of(reading, compute_bytes, bounds=bounds)
    key = fresh.key
    place = bisect_left(bands, key, key=_key)
    if place < len(bands) and bands[place].key == key:
        return (*bands[:place], joined(bands[place], fresh), *bands[place + 1 :])
    return (*bands[:place], fresh, *bands[place:])


def find_band(bands: Bands, packed_rows: int, logical_rows: int) -> Band | None:
    """The band that a wave of these rows falls into, if there is evidence in it."""
    key = size_class(packed_rows), sharing_class(logical_rows, packed_rows)
    place = bisect_left(bands, key, key=_key)
    return bands[place] if place < len(bands) and bands[place].key == key else None


def _key(band: Band) -> tuple[int, int]:
    return band.key


def band_of(reading: Reading, compute_bytes: int, *, bounds: bool) -> Band:
    """The band that one reading alone would make. It bounds only if it ran logical rows: SCALE scales by them."""
    return Band(
        size=size_class(reading.packed_rows),
        sharing=sharing_class(reading.logical_rows, reading.packed_rows),
        cover=Cover(
            compute_bytes=compute_bytes,
            bytes_per_row=ceil_div(compute_bytes, reading.packed_rows),
            logical_rows=reading.logical_rows,
            grad_segments=reading.grad_segments,
        ),
        anchor=(
            Anchor(
                compute_bytes=compute_bytes,
                packed_rows=reading.packed_rows,
                logical_rows=reading.logical_rows,
                grad_segments=reading.grad_segments,
            )
            if bounds and reading.logical_rows > 0
            else None
        ),
    )


def joined(one: Band, other: Band) -> Band:
    """Two bands of one key as one: the higher anchor, the joined covers."""
    return Band(
        size=one.size,
        sharing=one.sharing,
        cover=joined_cover(one.cover, other.cover),
        anchor=higher_anchor(one.anchor, other.anchor),
    )


def joined_cover(one: Cover, other: Cover) -> Cover:
    """The least cover over both: it is above whatever either is above."""
    return Cover(
        compute_bytes=maximum(one.compute_bytes, other.compute_bytes),
        bytes_per_row=maximum(one.bytes_per_row, other.bytes_per_row),
        logical_rows=minimum(one.logical_rows, other.logical_rows),
        grad_segments=minimum(one.grad_segments, other.grad_segments),
    )


def higher_anchor(one: Anchor | None, other: Anchor | None) -> Anchor | None:
    """The anchor of more compute; of equal ones that of more rows, logical rows, segments: it says more."""
    if one is None or other is None:
        return other if one is None else one
    return one if _rank(one) >= _rank(other) else other


def _rank(anchor: Anchor) -> tuple[int, int, int, int]:
    return anchor.compute_bytes, anchor.packed_rows, anchor.logical_rows, anchor.grad_segments


# --- witnesses -------------------------------------------------------------------------------------------------------


def observe_witnesses(known: Witnesses, reading: Reading) -> Witnesses:
    """The witnesses after one more reading of 1 packed row or more. The seed may be one: what it paid once makes it
    high, never low."""
    compute = reading.compute_bytes
    if not reading.is_complete or compute == 0 or reading.logical_rows == 0:
        return known
    told = Anchor(
        compute_bytes=compute,
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        grad_segments=reading.grad_segments,
    )
    key = witness_class(told)
    place = bisect_left(known, key, key=witness_class)
    if place == len(known) or witness_class(known[place]) != key:
        return (*known[:place], told, *known[place:])
    kept = lower_anchor(known[place], told)
    return known if kept is known[place] else (*known[:place], kept, *known[place + 1 :])


def merge_witnesses(one: Witnesses, other: Witnesses) -> Witnesses:
    """The witnesses of both, of each class the lower."""
    kept = {witness_class(anchor): anchor for anchor in one}
    for anchor in other:
        key = witness_class(anchor)
        kept[key] = lower_anchor(kept[key], anchor) if key in kept else anchor
    return tuple(kept[key] for key in sorted(kept))


def witness_class(anchor: Anchor) -> tuple[int, int]:
    """Octave of packed rows, and sharing class."""
    rows = anchor.packed_rows
    octave = (rows if rows < LARGEST_CLASS_ROWS else LARGEST_CLASS_ROWS).bit_length()
    return octave, sharing_class(anchor.logical_rows, rows)


def lower_anchor(one: Anchor, other: Anchor) -> Anchor:
    """The anchor of less compute a row; of equal ones that of more rows, logical rows, segments: it says more."""
    mine, theirs = one.compute_bytes * other.packed_rows, other.compute_bytes * one.packed_rows
    if mine != theirs:
        return one if mine < theirs else other
    return one if _rank(one) >= _rank(other) else other


def broken_witnesses(evidence: FrontierEvidence, witnesses: Witnesses) -> str | None:
    """The first clause that no history of readings could have broken, in words; None for reachable witnesses, of which
    those beside `evidence` are known to be once they were checked."""
    if not witnesses or evidence.derived.get(CHECKED) is witnesses:
        return None
    if any(anchor.compute_bytes < 1 or anchor.packed_rows < 1 or anchor.logical_rows < 1 for anchor in witnesses):
        return "a witness of nothing"
    keys = [witness_class(anchor) for anchor in witnesses]
    if any(left >= right for left, right in pairwise(keys)):
        return "witnesses out of order, or two of one class"
    return None


# --- reachability ----------------------------------------------------------------------------------------------------


def broken_evidence(evidence: FrontierEvidence) -> str | None:
    """The first clause that no history of readings could have broken, in words; None for reachable evidence."""
    if SOUND in evidence.derived:
        return None
    for name, bands in (("peak", evidence.peak), ("retained", evidence.retained)):
        keys = [band.key for band in bands]
        if any(left >= right for left, right in pairwise(keys)):
            return f"{name} bands out of order, or one of them twice"
        for band in bands:
            broken = broken_band(band)
            if broken is not None:
                return f"{name} band (size class {band.size}, sharing class {band.sharing}): {broken}"
    return None


def broken_band(band: Band) -> str | None:
    """The first clause of a band's invariant that `band` breaks, in words; None for a reachable band."""
    cover, anchor = band.cover, band.anchor
    if not (1 <= band.size <= size_class(LARGEST_CLASS_ROWS) and 1 <= band.sharing <= MOST_SHARING_CLASS):
        return "no such band"
    if not 1 <= cover.bytes_per_row <= cover.compute_bytes:
        return "a cover of nothing, or more bytes a row than bytes"
    if anchor is None:
        return None
    if anchor.packed_rows == 0:
        return "its anchor has no rows"
    if (size_class(anchor.packed_rows), sharing_class(anchor.logical_rows, anchor.packed_rows)) != band.key:
        return "its anchor belongs to another band"
    if anchor.logical_rows == 0 or not is_covered(anchor, cover):
        return "its anchor is not covered"
    return None


def is_covered(anchor: Anchor, cover: Cover) -> bool:
    """Whether a reading like `anchor` is within `cover`, which a band's own anchor always is."""
    return (
        1 <= anchor.compute_bytes <= cover.compute_bytes
        and ceil_div(anchor.compute_bytes, anchor.packed_rows) <= cover.bytes_per_row
        and anchor.logical_rows >= cover.logical_rows
        and anchor.grad_segments >= cover.grad_segments
    )


def require_evidence(evidence: FrontierEvidence) -> None:
    """Check every number of `evidence`. Raises `QuantityError` naming the field."""
    if SOUND in evidence.derived:
        return
    for name, bands in (("peak", evidence.peak), ("retained", evidence.retained)):
        for band in bands:
            require_count(f"frontier.{name}.size", band.size)
            require_count(f"frontier.{name}.sharing", band.sharing)
            for part in (band.cover, band.anchor):
                if part is not None:
                    for slot in part.__slots__:
                        require_count(f"frontier.{name}.{slot}", getattr(part, slot))
    if broken_evidence(evidence) is None:
        evidence.derived[SOUND] = True


def require_witnesses(evidence: FrontierEvidence, witnesses: Witnesses) -> None:
    """Check every number of the witnesses beside `evidence`. Raises `QuantityError` naming the field."""
    if not witnesses or evidence.derived.get(CHECKED) is witnesses:
        return
    for anchor in witnesses:
        for slot in anchor.__slots__:
            require_count(f"witnesses.{slot}", getattr(anchor, slot))
    if broken_witnesses(evidence, witnesses) is None:
        evidence.derived[CHECKED] = witnesses
