"""INV-16 by CrossHair: a wave that failed before anything else was known, and one after it."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.profile import Profile
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading, ReadingKind
from proofs.harness import EXACT, reading_of, wave_of


def failed_wave(packed: int, footprint: int, outputs: int) -> Reading:
    """The reading of a wave that ran out of memory."""
    return Reading(
        packed_rows=packed,
        logical_rows=0,
        grad_segments=0,
        output_bytes=outputs,
        peak_delta_bytes=0,
        footprint_bytes=footprint,
        kind=ReadingKind.OUT_OF_MEMORY,
    )


def a_failed_wave_is_not_admitted_again(packed: int, footprint: int, outputs: int, extra: int) -> bool:
    """
    pre: 1 <= packed <= 10**6 and 1 <= footprint <= 10**12 and 0 <= outputs <= 10**12 and 0 <= extra <= 10**6
    post: _
    """
    failed, wave = failed_wave(packed, footprint, outputs), wave_of(packed + extra, 0, outputs=outputs)
    return contracts.failed_wave_is_never_admitted_again(Profile(), failed, (), wave, WARM, EXACT)


def nor_after_another_wave_was_read(packed: int, footprint: int, other_packed: int, delta: int) -> bool:
    """
    pre: 1 <= packed <= 10**6 and 1 <= footprint <= 10**12 and 1 <= other_packed <= 10**6 and 0 <= delta <= 10**12
    post: _
    """
    failed, later = failed_wave(packed, footprint, 0), reading_of(other_packed, delta)
    return contracts.failed_wave_is_never_admitted_again(Profile(), failed, (later,), wave_of(packed, 0), WARM, EXACT)
