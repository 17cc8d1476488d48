"""Contract of a wave's rows by width: what lets the width search gallop and bisect."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def rows_never_fall_with_width(rows: Sequence[int]) -> bool:
    """`rows[w]`: packed rows of the first w + 1 items. Whatever a wave's shape (shared, packed, padded), one more item
    never takes rows away."""
    return all(before <= after for before, after in pairwise(rows))
