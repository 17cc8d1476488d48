"""An executable model of the laws: as naive as it can be, in exact fractions, written from `laws.md` alone.

It keeps every reading and recomputes everything from the list each time; it knows no profile, no ratchet, no integer
arithmetic. Nothing here is imported by the product, and nothing of the product's arithmetic is used here: the two can
only agree by both being right. `tests/differential/test_model.py` compares them on random histories.

`price` answers from one list of readings. `required` asks it twice: of the readings as they are, and of those that have
a footprint with it in the place of their peak (section 7).

Rates are whole bytes per row by law (rounded up once, at the reading), implied rows are whole rows; those are the only
roundings besides the final one.
"""

# The laws name quantities by capital letters, which the linter takes for constants.
# ruff: noqa: SIM300

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

COLD = Fraction(4, 3)
"""Footprint over allocated price while no footprint was read. Section 7."""

RAISE = Fraction(17, 16)
"""What a wave that ran out of memory is taken to have needed, at least, of what was available to it. Section 7."""


@dataclass(frozen=True)
class ModelReading:
    """(P, L, O, delta, retained or None, complete?), and the footprint or None. Section 2.

    failed: the wave ran out of memory. always_held: it counts as read after the seed, wherever it stands.
    """

    P: int
    L: int
    O: int  # noqa: E741
    delta: int
    retained: int | None
    complete: bool
    footprint: int | None = None
    failed: bool = False
    always_held: bool = False

    @property
    def compute(self) -> int:
        return max(0, self.delta - self.O)

    @property
    def rate(self) -> int:
        return ceil(Fraction(self.compute, self.P))

    @property
    def sharing(self) -> Fraction:
        return max(Fraction(1), Fraction(self.L, self.P))


@dataclass(frozen=True)
class ModelWave:
    """(P, L, S, O, F, C, G) and whether its facts allow packed pricing. Sections 1 and 3."""

    P: int
    L: int
    S: int
    O: int  # noqa: E741
    F: int
    C: int
    G: int
    eligible: bool


@dataclass(frozen=True)
class ModelPrice:
    required: int
    retained: int


def required(readings: list[ModelReading], wave: ModelWave, law: str, sigma: Fraction) -> ModelPrice:
    """Section 7, of the laws of section 4: the higher of what the peaks and what the footprints say."""
    footprints = [as_footprint(reading) for reading in readings if has_footprint(reading)]
    of_footprints = price(footprints, wave, law, sigma) if footprints else None
    return higher(price(readings, wave, law, sigma), of_footprints, wave)


def has_footprint(reading: ModelReading) -> bool:
    return reading.P > 0 and reading.footprint is not None


def as_footprint(reading: ModelReading) -> ModelReading:
    """The reading with its footprint for its peak. What is retained holds its share of it."""
    assert reading.footprint is not None
    retained = reading.retained
    if retained is not None:
        held = max(0, min(retained, reading.delta))
        retained = min(0, retained) if held == 0 else ceil(Fraction(held * reading.footprint, reading.delta))
    return replace(reading, delta=reading.footprint, retained=retained, always_held=reading.failed)


def higher(allocated: ModelPrice, footprint: ModelPrice | None, wave: ModelWave) -> ModelPrice:
    """The higher of two prices; without a footprint read, `COLD` times the allocated one stands for it."""
    if footprint is None:
        factor = COLD if wave.P > 0 else Fraction(1)
        footprint = ModelPrice(ceil(factor * allocated.required), ceil(factor * allocated.retained))
    return ModelPrice(
        required=max(allocated.required, footprint.required), retained=max(allocated.retained, footprint.retained)
    )


def failed_footprint(available: int, reserved: int, requested: int) -> int:
    """The footprint that a wave which ran out of memory is read with."""
    return max(1, ceil(RAISE * available), reserved + requested)


def price(readings: list[ModelReading], wave: ModelWave, law: str, sigma: Fraction) -> ModelPrice:
    """Section 4, from the whole list of readings. `law` is "logical", "packed" or "warm"."""
    seen = [reading for reading in readings if reading.P > 0]
    if wave.P == 0:
        return ModelPrice(required=wave.O, retained=wave.O)
    packed_priced = bool(seen) and wave.eligible and law != "logical"
    compute = max(Fraction(wave.F), _compute(seen, wave, law, packed_priced) if seen else Fraction(0))
    required = ceil(sigma * (wave.O + compute))
    return ModelPrice(required=required, retained=_retained(seen, wave, packed_priced, sigma, required))


def _compute(seen: list[ModelReading], wave: ModelWave, law: str, packed_priced: bool) -> Fraction:
    reach = 8 if packed_priced else 1
    model = Fraction(max(reading.rate for reading in seen)) * _rows(wave, _sharing(seen), reach)
    after_seed = _after_the_seed(seen)
    fits = [reading for reading in after_seed if reading.complete]
    if law == "warm" and fits:
        smallest = min(reading.P for reading in fits)
        rows = max(smallest, _rows(wave, _sharing(fits), reach))
        model = min(model, Fraction(max(reading.rate for reading in after_seed)) * rows)
    charge = 6_144 * wave.L + wave.S * wave.G if packed_priced else 0
    return model + charge


def _retained(seen: list[ModelReading], wave: ModelWave, packed_priced: bool, sigma: Fraction, required: int) -> int:
    carried = [reading for reading in seen if reading.retained is not None]
    if not carried:
        return required
    rate = max(ceil(Fraction(_kept(reading), reading.P)) for reading in carried)
    sharing = _sharing(seen)
    most_rows = max(reading.P for reading in seen)
    if wave.P > 8 * most_rows or wave.L > 8 * sharing * max(1, wave.P):
        return required
    kept = rate * wave.P + 6_144 * wave.L if packed_priced else rate * _rows(wave, sharing, 1)
    return min(required, ceil(sigma * (wave.O + max(wave.C, kept))))


def _kept(reading: ModelReading) -> int:
    assert reading.retained is not None
    return max(0, min(reading.retained, reading.delta) - reading.O)


def _rows(wave: ModelWave, sharing: Fraction, reach: int) -> int:
    return max(wave.P, ceil(wave.L / (reach * sharing)))


def _sharing(readings: list[ModelReading]) -> Fraction:
    return max(reading.sharing for reading in readings)


def _after_the_seed(seen: list[ModelReading]) -> list[ModelReading]:
    seed = next((index for index, reading in enumerate(seen) if reading.complete), len(seen))
    return [reading for index, reading in enumerate(seen) if index > seed or reading.always_held]
