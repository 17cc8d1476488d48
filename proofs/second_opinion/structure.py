"""The theorems and lemmas of `registry.CVC5_UNDECIDED` on ints, without any solver.

Each is run as it is written, on plain ints by the unpatched kernel: on every assignment of small integers to its
inputs, as many integers as `MOST_ASSIGNMENTS` allows, then on a seeded sample of larger ones. Assignments outside its
premises are passed over; the check says how many were inside, and there must be some.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Final

from proofs import registry
from proofs.solver.proof import LEMMAS, THEOREMS, Lemma, PremiseError, Replay, Theorem, checked

MOST_ASSIGNMENTS: Final = 20_000
SAMPLED: Final = 4_000
LARGEST: Final = 40
SEED: Final = 20_261_202
MOST_CHOICES: Final = 12


class _Told(Replay):
    """A replay that remembers how many options each choice had."""

    def __init__(self, values: Mapping[str, int], choices: list[int]) -> None:
        super().__init__(values, choices)
        self.least: dict[str, int] = {}

    def integer(self, name: str, at_least: int | None = None) -> int:
        self.least[name] = at_least or 0
        return super().integer(name, at_least)


def names_of(item: Theorem | Lemma) -> dict[str, int]:
    """The inputs of an item and the least of each: found by running it on larger and larger numbers."""
    found: dict[str, int] = {}
    random_ints = random.Random(SEED)
    for _ in range(400):
        told = _Told({name: random_ints.randint(least, least + 3) for name, least in found.items()}, [])
        with suppress(PremiseError, ZeroDivisionError):
            _run(item, told)
        found |= told.least
    return found


def _run(item: Theorem | Lemma, told: Replay) -> None:
    (item.body if isinstance(item, Theorem) else item.prove)(told)


def assignments(names: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Every assignment of a few small integers, then the sample."""
    width = 1
    while (width + 1) ** len(names) <= MOST_ASSIGNMENTS:
        width += 1
    for values in product(range(width), repeat=len(names)):
        yield {name: least + value for (name, least), value in zip(names.items(), values, strict=True)}
    random_ints = random.Random(SEED)
    for _ in range(SAMPLED):
        largest = random_ints.choice((2, 5, LARGEST))
        yield {name: random_ints.randint(least, least + largest) for name, least in names.items()}


def inside(item: Theorem | Lemma) -> int:
    """How many assignments meet the premises of an item. Raises `AssertionError` where a claim is false on one."""
    count, choices = 0, random.Random(SEED)
    for values in assignments(names_of(item)):
        told = _Told(values, [choices.randrange(2) for _ in range(MOST_CHOICES)])
        try:
            _run(item, told)
        except (PremiseError, ZeroDivisionError):
            continue
        count += bool(told.claims)
        for label, holds in told.claims:
            assert holds, f"{item.name}: {label} is false on {told.inputs}"
    return count


@checked("second opinion")
def what_cvc5_does_not_decide_holds_on_every_small_input() -> str:
    wanted = {*registry.CVC5_UNDECIDED}
    every: list[Lemma | Theorem] = [*LEMMAS, *THEOREMS]
    items = [item for item in every if item.name in wanted]
    assert {item.name for item in items} == wanted, "each of them is there"
    counts = {item.name: inside(item) for item in items}
    none = [name for name, count in counts.items() if count < 25]
    assert not none, f"hardly an assignment meets the premises of {none}: {counts}"
    return ", ".join(f"{name}: {count}" for name, count in counts.items())
