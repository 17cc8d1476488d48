"""How a report says figures: bytes, shares and counts, as short as they can be read rightly."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from pricing.kernel.quantities import GIB, MIB

KIB: Final = 1024


def gib(byte_count: int) -> str:
    """Bytes in GiB with two decimals; in MiB below a tenth of a GiB, in KiB below a tenth of a MiB."""
    if abs(byte_count) < MIB // 10:
        return f"{byte_count / KIB:,.1f} KiB"
    if abs(byte_count) < GIB // 10:
        return f"{byte_count / MIB:,.1f} MiB"
    return f"{byte_count / GIB:,.2f} GiB"


def unit_of(largest_bytes: float) -> tuple[int, str]:
    """The unit of an axis that ends at `largest_bytes`, in bytes and by name: its labels stay short and above 0.1."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if largest_bytes >= unit:
            return unit, name
    return 1, "B"


def percent(share: Fraction | float) -> str:
    """A share in percent: one decimal below a hundred, none above."""
    value = float(100 * share)
    return f"{value:,.1f} %" if abs(value) < 100 else f"{value:,.0f} %"


def signed(share: Fraction | float) -> str:
    """A share in percent with its sign."""
    return f"{'+' if share >= 0 else ''}{percent(share)}"


def counted(count: int, noun: str) -> str:
    """ "1 wave", "2,000 waves"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def of_total(count: int, total: int) -> str:
    """ "all 3", "2 of 3", "both", "it"."""
    if count < total:
        return f"{count:,} of {total:,}"
    return {1: "it", 2: "both"}.get(total, f"all {total:,}")
