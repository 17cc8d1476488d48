"""Which splits are the same split: what a measured peak of one is remembered under."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pricing.kernel.quantities import maximum
from pricing.kernel.requests import Signature
from pricing.kernel.wave import Wave

SplitPart = tuple[int, int, int, int]
"""Packed rows, logical rows, segments and output bytes of one part."""

SplitKey = tuple[Signature, tuple[SplitPart, ...]]
"""The wave's memory signature, and its parts, sorted.

Sorted, because items come in another order the next time and the parts with them. The peak may depend on which part
runs last; of several measurements the highest is kept, and a price made of it is only ever too high.
"""

MOST_SPLITS = 1_024
"""Splits remembered at a time; the oldest is forgotten first. A forgotten one costs its ladder's price again."""


def split_key_of(signature: Signature, parts: Iterable[Wave]) -> SplitKey:
    """The key of a split of a wave of this signature into these parts, in any order."""
    quantities = ((part.packed_rows, part.logical_rows, part.grad_segments, part.output_bytes) for part in parts)
    return signature, tuple(sorted(quantities))


def merge_splits(one: Mapping[SplitKey, int], other: Mapping[SplitKey, int]) -> dict[SplitKey, int]:
    """What either remembers, the higher peak of each; of too many those of `other` that came last, then of `one`."""
    kept = {key: peak_bytes for key, peak_bytes in one.items() if key not in other}
    newer = {key: maximum(peak_bytes, one.get(key, 0)) for key, peak_bytes in other.items()}
    return dict(list({**kept, **newer}.items())[-MOST_SPLITS:])
