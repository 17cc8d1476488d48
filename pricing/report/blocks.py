"""Waves in order, cut into as many blocks as a picture can show: of a short run every block is one wave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pricing.planner.rules import Verdict
from pricing.records.metrics import WaveSummary, binding_family
from pricing.records.record import Event

MAX_BLOCKS: Final = 160
"""Blocks of a picture: a dash each of some pixels on a screen, of two on a phone."""

LANES: Final = ("admitted", "refused", "out of memory", "learned")
"""What may happen to a wave, as the picture of time tells it. A wave stands in every lane that is true of it."""


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring waves that are drawn as one: of each figure what matters most. `start`: position of the first."""

    start: int
    waves: tuple[WaveSummary, ...]

    @property
    def stop(self) -> int:
        return self.start + len(self.waves)

    @property
    def price_bytes(self) -> int | None:
        """The highest price of a wave that ran and was not priced cold; None where there is none."""
        return max((wave.estimate_bytes for wave in self.waves if is_priced(wave)), default=None)

    @property
    def observed_bytes(self) -> int | None:
        """The highest observed peak."""
        return max((wave.observed_bytes for wave in self.waves if wave.observed_bytes is not None), default=None)

    @property
    def available_bytes(self) -> int:
        """The least budget of a wave that was admitted; where none was, of those refused."""
        admitted = [wave.available_bytes for wave in self.waves if wave.event is not Event.REFUSED]
        return min(admitted or [wave.available_bytes for wave in self.waves])

    def price_share(self) -> float | None:
        """The highest share of its budget that an admitted wave was priced at."""
        return max((share for wave in self.waves if (share := price_share(wave)) is not None), default=None)

    def use_share(self) -> float | None:
        """The highest share of its budget that a wave was seen to use."""
        return max((share for wave in self.waves if (share := use_share(wave)) is not None), default=None)


def blocks_of(waves: Sequence[WaveSummary], most: int = MAX_BLOCKS) -> tuple[Block, ...]:
    """`waves` in at most `most` blocks of equal length (the last may be shorter)."""
    size = max(1, -(-len(waves) // most))
    return tuple(Block(start, tuple(waves[start : start + size])) for start in range(0, len(waves), size))


def is_priced(wave: WaveSummary) -> bool:
    """Whether it ran, or began to, at a price that promises something: none that is cold does."""
    return wave.event is not Event.REFUSED and not wave.is_cold


def price_share(wave: WaveSummary) -> float | None:
    """What an admitted wave was priced at, as a share of its budget; None where it had none or was refused."""
    if wave.event is Event.REFUSED or wave.available_bytes <= 0:
        return None
    return wave.estimate_bytes / wave.available_bytes


def use_share(wave: WaveSummary) -> float | None:
    """What a wave was seen to use, as a share of its budget: the footprint where it was read, else the peak."""
    if wave.used_bytes is None or wave.available_bytes <= 0:
        return None
    return wave.used_bytes / wave.available_bytes


def lanes_of(wave: WaveSummary) -> Iterator[str]:
    """The lanes that a wave stands in."""
    if wave.event is Event.REFUSED:
        yield "refused"
        return
    if wave.verdict != Verdict.EMPTY:
        yield "admitted"
    if wave.event is Event.OUT_OF_MEMORY:
        yield "out of memory"
    if wave.event is Event.OBSERVED and wave.observed_bytes is not None:
        yield "learned"


def families_of(wave: WaveSummary) -> Iterator[str]:
    """The term that decided its price, without the band that a frontier term names."""
    yield binding_family(wave.binding_term)
