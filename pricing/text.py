"""Figures as people read them."""

from __future__ import annotations

import unicodedata
from typing import Final

from pricing.kernel.quantities import GIB, MIB

_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories of what a terminal obeys instead of showing: controls, marks of direction, half surrogate pairs."""


def gib_text(byte_count: int) -> str:
    """Bytes in GiB with two decimals, in MiB below a tenth of a GiB: "8.32 GiB"."""
    if abs(byte_count) < GIB // 10:
        return f"{byte_count / MIB:,.2f} MiB"
    return f"{byte_count / GIB:,.2f} GiB"


def visible(text: str) -> str:
    """Text as it may go to a terminal: what would be obeyed instead of shown is spelled out, lines stay lines.

    Names come from records, files and folders of anybody: an escape in one could move the cursor, set the title or
    paint over what stands there.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if character != "\n" and unicodedata.category(character) in _UNSEEN
        else character
        for character in text
    )
