"""An executable model of the frontier law: as naive as it can be, in exact fractions, written from `frontier.md` alone.

It keeps every reading, sorts them into bands each time, asks every band about every number of rows, and takes the
minimum over all bounds. No join, no knee, no order of search, nothing left out: what the product saves by theorem is
done at length here, so that the two can only agree by both being right. `tests/differential/test_frontier_model.py`
compares them. Nothing here is imported by the product.

`least_scaling` is the law before its charges are rounded to whole bytes: the minimum over every scaling of a reading.
"""

# The laws name quantities by capital letters, which the linter takes for constants.
# ruff: noqa: SIM300

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from spec import model
from spec.model import ModelPrice, ModelReading, ModelWave

CHARGE = 6_144


@dataclass(frozen=True)
class Seen:
    """One reading for one of the two uses: bytes `c` at (P, L, S), and whether it may bound."""

    P: int
    L: int
    S: int
    c: int
    bounds: bool


@dataclass(frozen=True)
class Asked:
    """(P, L, S) and G of a wave, and whether it is packed-priced."""

    P: int
    L: int
    S: int
    G: int
    packed_priced: bool


@dataclass(frozen=True)
class Told:
    """A reading as told: the model's own, its segments, and whether it was interrupted."""

    reading: ModelReading
    S: int
    interrupted: bool


# --- bands -----------------------------------------------------------------------------------------------------------


def band(seen: Seen) -> tuple[int, int, int]:
    """(octave of P, eighth of it, octave of L / P): found by trying."""
    rows = min(seen.P, 2**20)
    octave = next(octave for octave in range(21) if rows < 2 ** (octave + 1))
    eighth = next(eighth for eighth in range(7, -1, -1) if Fraction(rows, 2**octave) >= 1 + Fraction(eighth, 8))
    doublings = next((doublings for doublings in range(1, 7) if seen.L < seen.P * 2**doublings), 7)
    return octave, eighth, doublings


def bands(readings: list[Seen]) -> Iterator[list[Seen]]:
    """The readings of each band, those of no bytes apart: they neither bound nor need covering."""
    told = [seen for seen in readings if seen.c > 0]
    for key in sorted({band(seen) for seen in told}):
        yield [seen for seen in told if band(seen) == key]


def anchor(of_band: list[Seen]) -> Seen | None:
    """The complete reading of most bytes; of equal ones that of more rows, logical rows, segments."""
    whole = [seen for seen in of_band if seen.bounds and seen.L > 0]
    return max(whole, key=lambda seen: (seen.c, seen.P, seen.L, seen.S), default=None)


def most_bytes(of_band: list[Seen], rows: int) -> int:
    """What no reading of the band is above at these rows: most bytes, and most whole bytes a row."""
    rate = max(ceil(Fraction(seen.c, seen.P)) for seen in of_band)
    return min(max(seen.c for seen in of_band), rate * rows)


# --- one bound -------------------------------------------------------------------------------------------------------


def least_scaling(reading: Seen, wave: Asked) -> Fraction:
    """U before rounding: the least, over every scaling t of the reading, of t*c and charges for what it then lacks."""
    least = max(Fraction(1), Fraction(wave.P, reading.P))
    ratios = [Fraction(wave.L, reading.L)] + ([Fraction(wave.S, reading.S)] if reading.S else [])
    if not wave.packed_priced:
        return max(least, ratios[0]) * reading.c
    candidates = [
        t * reading.c
        + CHARGE * max(Fraction(0), wave.L - t * reading.L)
        + wave.G * max(Fraction(0), wave.S - t * reading.S)
        for t in [least, *(t for t in ratios if t > least)]
    ]
    return min(candidates)


def charges(reading: Seen, wave: Asked) -> tuple[tuple[int, int], tuple[int, int]]:
    """((a, g'), (a', g)): whole bytes for a lacking logical row and a lacking segment, either charged first."""
    most, state = (CHARGE, wave.G) if wave.packed_priced else (reading.c, 0)

    def affordable(charge: int, compute: int, count: int) -> int:
        return charge if count == 0 else min(charge, ceil(Fraction(max(0, compute), count)))

    a = affordable(most, reading.c, reading.L)
    g = affordable(state, reading.c, reading.S)
    return (a, affordable(state, reading.c - a * reading.L, reading.S)), (
        affordable(most, reading.c - g * reading.S, reading.L),
        g,
    )


def trusted(reading: Seen, wave: Asked) -> int:
    """C: the reading's bytes, at least what its own rows and segments are credited."""
    return max(reading.c, *(row * reading.L + segment * reading.S for row, segment in charges(reading, wave)))


def lacking(reading: Seen, wave: Asked, P: int, L: int, S: int) -> Fraction:
    """The dearer pair of charges for what the reading, scaled to P rows, lacks."""
    t = max(Fraction(1), Fraction(P, reading.P))
    rows, segments = max(Fraction(0), L - t * reading.L), max(Fraction(0), S - t * reading.S)
    return max(row * rows + segment * segments for row, segment in charges(reading, wave))


def lifted(reading: Seen, readings: list[Seen], wave: Asked) -> int:
    """Least C, from `trusted` on, with which the bound is at no number of rows below any band's readings."""
    compute = trusted(reading, wave)
    for of_band in bands(readings):
        L, S = min(seen.L for seen in of_band), min(seen.S for seen in of_band)
        for P in range(1, max(seen.P for seen in of_band) + 2):
            t = max(Fraction(1), Fraction(P, reading.P))
            compute = max(compute, ceil((most_bytes(of_band, P) - lacking(reading, wave, P, L, S)) / t))
    return compute


def padded(reading: Seen, wave: Asked) -> Seen:
    """Without charges padding counts as logical rows: the model runs it."""
    return reading if wave.packed_priced else replace(reading, L=max(reading.L, reading.P))


def frontier(readings: list[Seen], wave: Asked) -> int | None:
    """The least bound over all bands, rounded up; None where no band bounds."""
    anchors = [padded(reading, wave) for reading in map(anchor, bands(readings)) if reading is not None]
    bounds = [
        max(Fraction(1), Fraction(wave.P, reading.P)) * lifted(reading, readings, wave)
        + lacking(reading, wave, wave.P, wave.L, wave.S)
        for reading in anchors
    ]
    return ceil(min(bounds)) if bounds else None


# --- prices ----------------------------------------------------------------------------------------------------------


def required(told: list[Told], wave: ModelWave, sigma: Fraction) -> ModelPrice:
    """The higher of what the peaks and what the footprints say, as of every law (`laws.md`, section 7)."""
    footprints = [replace(one, reading=model.as_footprint(one.reading)) for one in told if has_footprint(one)]
    return model.higher(price(told, wave, sigma), price(footprints, wave, sigma) if footprints else None, wave)


def has_footprint(one: Told) -> bool:
    return model.has_footprint(one.reading)


def price(told: list[Told], wave: ModelWave, sigma: Fraction) -> ModelPrice:
    """Required and retained bytes of a wave after these readings, in order."""
    readings = [one.reading for one in told]
    warm = model.price(readings, wave, "warm", sigma)
    after_seed = _after_the_seed([one for one in told if one.reading.P > 0])
    if wave.P == 0 or not after_seed:
        return warm
    peaks = [Seen(one.reading.P, one.reading.L, one.S, one.reading.compute, one.reading.complete) for one in after_seed]
    complete = [one.reading for one in after_seed if one.reading.complete]
    rows = wave.P
    if wave.eligible and complete:
        rows = max(rows, ceil(wave.L / (8 * max(reading.sharing for reading in complete))))
    compute = frontier(peaks, Asked(rows, wave.L, wave.S, wave.G, wave.eligible))
    required = warm.required if compute is None else ceil(sigma * (wave.O + max(wave.F, compute)))
    return ModelPrice(required=required, retained=_retained(told, after_seed, wave, sigma, required))


def _retained(told: list[Told], after_seed: list[Told], wave: ModelWave, sigma: Fraction, required: int) -> int:
    seen = [one.reading for one in told if one.reading.P > 0]
    if all(reading.retained is None for reading in seen):
        return required
    sharing = max(reading.sharing for reading in seen)
    if wave.P > 8 * max(reading.P for reading in seen) or wave.L > 8 * sharing * wave.P:
        return required
    held = [
        Seen(one.reading.P, one.reading.L, one.S, _kept(one.reading), not one.interrupted)
        for one in after_seed
        if one.reading.retained is not None
    ]
    kept = frontier(held, Asked(wave.P, wave.L, wave.S, 0, wave.eligible))
    if kept is None:
        rate = max(ceil(Fraction(_kept(reading), reading.P)) for reading in seen if reading.retained is not None)
        kept = rate * wave.P + CHARGE * wave.L if wave.eligible else rate * max(wave.P, ceil(wave.L / sharing))
    return min(required, ceil(sigma * (wave.O + max(wave.C, kept))))


def _kept(reading: ModelReading) -> int:
    assert reading.retained is not None
    return max(0, min(reading.retained, reading.delta) - reading.O)


def _after_the_seed(told: list[Told]) -> list[Told]:
    """What was told after the first complete reading, and what is held against every price wherever it was told."""
    seed = next((at for at, one in enumerate(told) if one.reading.complete), len(told))
    return [one for at, one in enumerate(told) if at > seed or one.reading.always_held]
