"""INV-5 by CrossHair."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.quantities import Sharing
from proofs.harness import profile_with, wave_of


def more_sharing_never_cheapens(rate: int, packed: int, logical: int, learned: int) -> bool:
    """
    pre: 0 <= rate <= 10**12 and 1 <= packed <= 10**6 and 0 <= logical <= 8 * packed and 2 <= learned <= 64
    post: _
    """
    known = profile_with(rate)
    more = profile_with(rate, sharing=Sharing(logical_rows=learned, packed_rows=1))
    return contracts.more_sharing_never_cheapens(wave_of(packed, logical), known, more)
