"""Backtest: replay recorded waves under a law, and say by how much its prices lay above (or under) the peaks.

Wave i is priced by the profile learned from the waves before it, then observed as a trainer would have: its forward's
return, then the whole wave. Pure and exact; only `Score.to_json` rounds, to the nearest double of each figure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

from pricing.evidence.trace import TraceWave
from pricing.kernel.errors import PricingError
from pricing.kernel.law import Law
from pricing.kernel.price import Quantity, price
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, GIB, Safety

DEFAULT_SKIP: Final = 1
"""Waves that are not scored: the first is priced with no profile."""


class Order(StrEnum):
    """The order in which waves are replayed. All but the first ask a law about waves unlike those it has seen."""

    RECORDED = "recorded"
    DESCENDING = "descending"
    """Most packed rows first: every wave is smaller than all evidence."""
    SHUFFLED = "shuffled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedWave:
    """One wave as it was priced before it ran, and the peak it then reached: of what is allocated, or of what is
    reserved. Bytes above baseline."""

    index: int
    packed_rows: int
    logical_rows: int
    price_bytes: int
    peak_bytes: int
    binding_term: str

    @property
    def is_under(self) -> bool:
        """Whether the price lay below the peak: a wave that might have been admitted and run out of memory."""
        return self.price_bytes < self.peak_bytes

    @property
    def over(self) -> Fraction:
        """Over-estimate as a fraction of the observed peak; negative for a price below it."""
        return Fraction(self.price_bytes, self.peak_bytes) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How a law did on a trace. The figures are None where no wave was scored."""

    scored: int
    under: int
    over_min: Fraction | None
    over_median: Fraction | None
    over_p95: Fraction | None
    over_max: Fraction | None
    over_gib_median: Fraction | None

    def to_json(self) -> dict[str, int | float | None]:
        figures = ("over_min", "over_median", "over_p95", "over_max", "over_gib_median")
        rounded = {name: None if (value := getattr(self, name)) is None else float(value) for name in figures}
        return {"scored": self.scored, "under": self.under, **rounded}


def ordered(waves: Sequence[TraceWave], order: Order, seed: int = 0) -> list[TraceWave]:
    """The waves in another order; `seed` matters to a shuffle only. Equal arguments give equal orders."""
    if order is Order.DESCENDING:
        return sorted(waves, key=lambda recorded: -recorded.wave.packed_rows)
    arranged = list(waves)
    if order is Order.SHUFFLED:
        random.Random(seed).shuffle(arranged)
    return arranged


def quantities_of(waves: Iterable[TraceWave]) -> tuple[Quantity, ...]:
    """What a trace can be scored by: footprints too, where every wave has one."""
    if all(recorded.footprint_bytes is not None for recorded in waves):
        return (Quantity.ALLOCATED, Quantity.FOOTPRINT)
    return (Quantity.ALLOCATED,)


def replay(
    waves: Iterable[TraceWave],
    law: Law,
    safety: Safety = DEFAULT_SAFETY,
    quantity: Quantity = Quantity.ALLOCATED,
) -> Iterator[ReplayedWave]:
    """Each wave with the price of `quantity` that the profile of the waves before it gives.

    Raises `PricingError` where a wave has no footprint and footprints are asked for.
    """
    profile = Profile()
    for recorded in waves:
        priced = price(recorded.wave, profile, law, safety)
        of_quantity, peak = priced.allocated, recorded.peak_bytes
        if quantity is Quantity.FOOTPRINT:
            if recorded.footprint_bytes is None:
                raise PricingError(f"wave {recorded.index} has no footprint: its cache was not released before it")
            of_quantity, peak = priced.footprint, recorded.footprint_bytes
        yield ReplayedWave(
            index=recorded.index,
            packed_rows=recorded.wave.packed_rows,
            logical_rows=recorded.wave.logical_rows,
            price_bytes=of_quantity.required_bytes,
            peak_bytes=peak,
            binding_term=of_quantity.binding_term,
        )
        for reading in recorded.readings:
            profile = observe(profile, reading)


def score(replayed: Sequence[ReplayedWave], skip: int = DEFAULT_SKIP) -> Score:
    """The score of a replay without its first `skip` waves. Raises `PricingError` for a negative `skip`."""
    if skip < 0:
        raise PricingError(f"cannot skip {skip} waves: must be at least 0")
    scored = replayed[skip:]
    over = sorted(wave.over for wave in scored)
    over_gib = sorted(Fraction(wave.price_bytes - wave.peak_bytes, GIB) for wave in scored)
    half = Fraction(1, 2)
    return Score(
        scored=len(scored),
        under=sum(wave.is_under for wave in scored),
        over_min=over[0] if over else None,
        over_median=quantile(over, half) if over else None,
        over_p95=quantile(over, Fraction(95, 100)) if over else None,
        over_max=over[-1] if over else None,
        over_gib_median=quantile(over_gib, half) if over_gib else None,
    )


def quantile(ascending: Sequence[Fraction], share: Fraction) -> Fraction:
    """The value `share` (0 to 1) of the way through sorted values, linear between neighbours; exact.

    The definition of NumPy's default and of spreadsheets: position share * (n - 1).
    """
    assert ascending and 0 <= share <= 1, "a quantile of something, between the least and the most"
    position = share * (len(ascending) - 1)
    below = position.numerator // position.denominator
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (position - below) * (ascending[above] - ascending[below])


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """One trace under one law: every wave as it was priced in one quantity, and the score."""

    trace: str
    law: str
    quantity: Quantity
    safety: Safety
    skip: int
    order: Order
    waves: tuple[ReplayedWave, ...]
    score: Score

    def to_json(self) -> dict[str, object]:
        """One entry of the `results` of `pricing backtest --json`."""
        asked = {
            "trace": self.trace,
            "law": self.law,
            "quantity": str(self.quantity),
            "safety": str(self.safety),
        }
        return {**asked, "skip": self.skip, "order": str(self.order), **self.score.to_json()}


def backtest(
    trace: str,
    waves: Sequence[TraceWave],
    law: Law,
    *,
    safety: Safety = DEFAULT_SAFETY,
    quantity: Quantity = Quantity.ALLOCATED,
    skip: int = DEFAULT_SKIP,
    order: Order = Order.RECORDED,
    seed: int = 0,
    on_wave: Callable[[], object] = lambda: None,
) -> Backtest:
    """Replay `waves` (of the trace called `trace`) under `law` and score it. `on_wave` is called after each wave."""
    replayed = []
    for wave in replay(ordered(waves, order, seed), law, safety, quantity):
        replayed.append(wave)
        on_wave()
    return Backtest(
        trace=trace,
        law=law.name,
        quantity=quantity,
        safety=safety,
        skip=skip,
        order=order,
        waves=tuple(replayed),
        score=score(replayed, skip),
    )
