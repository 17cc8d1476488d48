"""Loaded by CrossHair's own process only: harnesses of the rate laws run without the frontier law's evidence.

Which band a reading belongs to is decided by the leading bits of its size, which CrossHair explores bit by bit; the
rate laws never look at it. The frontier law's harnesses ask for it back by calling `pricing.kernel.bands` themselves.
"""

from __future__ import annotations

from pricing.kernel import profile
from pricing.kernel.bands import FrontierEvidence, Witnesses
from pricing.kernel.reading import Reading


def _unchanged(evidence: FrontierEvidence, reading: Reading, seed_seen: bool) -> FrontierEvidence:
    return evidence


setattr(profile, "observe_bands", _unchanged)  # noqa: B010


def _without(known: Witnesses, reading: Reading) -> Witnesses:
    return known


setattr(profile, "observe_witnesses", _without)  # noqa: B010
