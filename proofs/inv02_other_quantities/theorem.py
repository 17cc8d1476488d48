"""INV-2 on all integers, one quantity at a time, and the exact charge for a further logical row and segment."""

from __future__ import annotations

from dataclasses import replace

from pricing import contracts
from pricing.kernel.quantities import maximum
from proofs.inv05_more_sharing.theorem import tell_reaches
from proofs.lemmas import MONOTONE, shared_rows_are_packed_rows_within_reach_and_clamped_beyond
from proofs.solver.proof import Given, theorem


@theorem("INV-2", lemmas=MONOTONE)
def required_bytes_never_fall_as_logical_rows_grow(t: Given) -> None:
    profile, wave, extra = t.profile(retained=False), t.wave(), t.integer("extra", 0)
    t.holds(contracts.price_never_falls_with_logical_rows, wave, extra, profile, t.law(), t.safety())


@theorem("INV-2", lemmas=MONOTONE)
def required_bytes_never_fall_as_segments_grow(t: Given) -> None:
    profile, wave, extra = t.profile(retained=False), t.wave(), t.integer("extra", 0)
    t.holds(contracts.price_never_falls_with_segments, wave, extra, profile, t.law(), t.safety())


@theorem("INV-2", lemmas=MONOTONE)
def required_bytes_never_fall_as_outputs_grow(t: Given) -> None:
    profile, wave, extra = t.profile(retained=False), t.wave(), t.integer("extra", 0)
    t.holds(contracts.price_never_falls_with_outputs, wave, extra, profile, t.law(), t.safety())


@theorem("INV-2", lemmas=MONOTONE)
def required_bytes_never_fall_as_the_static_floor_grows(t: Given) -> None:
    profile, wave, extra = t.profile(retained=False), t.wave(), t.integer("extra", 0)
    t.holds(contracts.price_never_falls_with_floor, wave, extra, profile, t.law(), t.safety())


@theorem("INV-2", lemmas=(*MONOTONE, shared_rows_are_packed_rows_within_reach_and_clamped_beyond))
def each_further_logical_row_and_segment_pays_exactly_its_charge(t: Given) -> None:
    profile, wave = t.profile(retained=False), t.wave()
    rows, segments = t.integer("extra_rows", 0), t.integer("extra_segments", 0)
    priced = replace(wave, packed_rows=maximum(1, wave.packed_rows))
    tell_reaches(t, priced, profile, profile)
    tell_reaches(t, replace(priced, logical_rows=priced.logical_rows + rows), profile, profile)
    t.holds(contracts.charges_are_exact, wave, rows, segments, profile, t.law())
