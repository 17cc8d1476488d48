"""Row shapes of waves whose requests share nothing: how many rows a wave of some lengths executes.

`packed`: sequences one after the other (variable-length attention): rows add up. `padded`: one tensor [B, longest]:
B times the longest, in whatever order the sequences come. Neither falls as a wave takes one more sequence, which the
width search relies on (`pricing.contracts.widths`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from pricing.kernel.quantities import ceil_div


class RowShape(StrEnum):
    """How the sequences of a wave lie in memory. The value is part of the memory signature's topology."""

    SHARED = "shared"
    """Prefixes that several requests begin with run once (`Batch(share=True)`)."""

    PACKED = "packed"
    PADDED = "padded"


UNSHARED: Final = (RowShape.PACKED, RowShape.PADDED)


def unshared_rows(lengths: Iterable[int], shape: RowShape, multiple: int = 1) -> int:
    """Rows that a wave of sequences of these lengths executes.

    multiple: a padded tensor's columns, or a packed wave's rows, are rounded up to it.
    """
    assert shape in UNSHARED, shape
    known = tuple(lengths)
    if shape is RowShape.PADDED:
        return len(known) * _rounded(max(known, default=0), multiple)
    return _rounded(sum(known), multiple)


def _rounded(rows: int, multiple: int) -> int:
    return ceil_div(rows, multiple) * multiple
