"""Where a generated example takes its choices from.

The generators in `pricing.testing.strategies` are written once against `Choices`. Drawing each choice through
Hypothesis gives examples that shrink well; taking them all from one seed is several times faster and serves runs of
100,000 examples a property, where the seed is what gets reported.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

ROW_BOUNDARIES = (0, 1, 2, 27, 63, 64, 65, 712, 1_000, 16_205, 109_065)


class Choices(Protocol):
    """A source of choices."""

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""
        ...

    def between(self, least: int, largest: int) -> int:
        """An integer in [least, largest]."""
        ...


def flag(choices: Choices) -> bool:
    return choices.pick((False, True))


def count(choices: Choices, largest: int) -> int:
    """An integer in [0, largest]: known boundaries, the largest, or any size up to it, each as likely."""
    way = choices.between(0, 2)
    if way == 0:
        return choices.between(0, min(largest, (1 << choices.between(0, largest.bit_length())) - 1))
    if way == 1:
        return min(largest, choices.pick(ROW_BOUNDARIES))
    return largest - min(largest, choices.between(0, 2))


class DrawnChoices:
    """Each choice drawn through Hypothesis."""

    __slots__ = ("_draw",)

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def pick(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))

    def between(self, least: int, largest: int) -> int:
        return self._draw(st.integers(least, largest))


class SeededChoices:
    """All choices from one seed."""

    __slots__ = ("_random",)

    def __init__(self, seed: bytes) -> None:
        self._random = random.Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._random.random() * len(options))]

    def between(self, least: int, largest: int) -> int:
        return self._random.randint(least, largest)
