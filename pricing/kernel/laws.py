"""The registry of laws: every law this build knows, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pricing.kernel.errors import UnknownLawError
from pricing.kernel.frontier import FRONTIER
from pricing.kernel.law import Law
from pricing.kernel.rate_laws import LOGICAL, PACKED, WARM

LAWS: Final[Mapping[str, Law]] = MappingProxyType({law.name: law for law in (LOGICAL, PACKED, WARM, FRONTIER)})
DEFAULT_LAW: Final[Law] = FRONTIER
"""Source: near a cap of an H200 no wave ran out of memory under it, and it has the least over-estimate of the four
(`spec/evidence/on-the-h200.md`). A profile from before there was frontier evidence is priced by `warm` until it has
some."""


def find_law(name: str) -> Law:
    """The law called `name`. Raises `UnknownLawError` listing the known ones."""
    try:
        return LAWS[name]
    except (KeyError, TypeError):
        raise UnknownLawError(f"unknown law {str(name)[:80]!r}; known: {', '.join(LAWS)}") from None
