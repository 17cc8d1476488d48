"""Figures as people read them."""

from __future__ import annotations

from pricing.kernel.quantities import GIB, MIB


def gib_text(byte_count: int) -> str:
    """Bytes in GiB with two decimals, in MiB below a tenth of a GiB: "8.32 GiB"."""
    if abs(byte_count) < GIB // 10:
        return f"{byte_count / MIB:,.2f} MiB"
    return f"{byte_count / GIB:,.2f} GiB"
