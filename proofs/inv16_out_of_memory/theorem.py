"""INV-16 on all integers, for any number of further readings, by the induction of INV-8.

What a failed wave leaves in the evidence of footprints (`is_remembered`) is there at once, also before the seed; any
other reading keeps it; and it makes every wave as large cost what the failed one was taken to need, which is more than
what was available to it. That the price which a budget sees is never below the footprint's is INV-15. For the frontier
law the failed wave is a cover, and every bound is lifted to it: `any_number_footprints` has that whole.
"""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.bands import Cover, band_of, joined_cover
from pricing.kernel.price import evidence_bytes
from pricing.kernel.profile import observe_footprint
from pricing.kernel.quantities import minimum
from pricing.kernel.reading import Reading, ReadingKind, out_of_memory_footprint_bytes
from proofs.inv08_coverage.theorem import COVERING, is_remembered
from proofs.inv15_two_quantities.theorem import KINDS, tell_sharing_of
from proofs.lemmas import a_product_never_falls_as_a_factor_grows
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both

OUT_OF_MEMORY = (ReadingKind.OUT_OF_MEMORY, True, False)


def failed_reading(t: Given) -> Reading:
    """Any reading of a wave that ran out of memory, with the footprint in the place of the peak."""
    told = t.reading("failed", retained=False, kind=OUT_OF_MEMORY).of_footprint
    assert told is not None, "it always has one"
    t.assume(told.packed_rows >= 1)
    return told


@theorem("INV-16", lemmas=COVERING)
def a_wave_that_ran_out_of_memory_is_remembered_at_once_also_before_the_seed(t: Given) -> None:
    footprints, failed = t.footprints(retained=False), failed_reading(t)
    tell_sharing_of(t, footprints, failed)
    t.prove(is_remembered(observe_footprint(footprints, failed), failed))


@theorem("INV-16", lemmas=COVERING)
def it_is_still_remembered_after_any_other_reading(t: Given) -> None:
    """Of a wave that was finished, broken off or failed, before the seed or after it."""
    footprints, failed = t.footprints(retained=False), failed_reading(t)
    other = t.reading("other", retained=False, kind=t.choose(*KINDS))
    t.assume(both(other.packed_rows >= 1, is_remembered(footprints, failed)))
    tell_sharing_of(t, footprints, other)
    t.prove(is_remembered(observe_footprint(footprints, other), failed))


@theorem("INV-16", lemmas=COVERING)
def every_wave_as_large_costs_what_a_remembered_failure_was_taken_to_need(t: Given) -> None:
    """By each rate law, packed-priced or not, with or without safety factor to spare."""
    footprints, failed, wave = t.footprints(retained=False), failed_reading(t), t.wave()
    t.assume(contracts.is_as_large(wave, failed))
    t.assume(is_remembered(footprints, failed))
    price = t.merged(evidence_bytes, wave, footprints, t.law(), t.safety())
    t.prove(price >= failed.output_bytes + failed.compute_bytes)


@theorem("INV-16")
def a_failed_wave_is_taken_to_need_more_than_what_was_available(t: Given) -> None:
    figures = t.integer("available"), t.integer("reserved"), t.integer("requested")
    t.holds(contracts.failure_is_above_what_was_available, *figures)


@theorem("INV-16")
def outputs_and_compute_of_a_failed_wave_are_its_whole_footprint(t: Given) -> None:
    """So that a price of both is a price of what it needed: at least the footprint, and more than was available."""
    figures = {name: t.integer(name, 0) for name in ("available_bytes", "reserved_bytes", "requested_bytes")}
    failed = failed_reading(t)
    t.assume(failed.peak_delta_bytes == out_of_memory_footprint_bytes(**figures))
    t.prove(failed.output_bytes + failed.compute_bytes > figures["available_bytes"])


@theorem("INV-16", lemmas=COVERING)
def the_frontier_law_has_a_failed_wave_covered_from_its_rows_on(t: Given) -> None:
    """What its cover asks of every bound (`a_bound_that_reaches_the_knee_covers_every_reading`): all that it was taken
    to need, for each wave of at least its rows; and a wider cover, after any other reading, asks no less."""
    failed, rows, other = failed_reading(t), t.integer("rows", 1), t.reading("other", retained=False, kind=KINDS[0])
    t.assume(both(rows >= failed.packed_rows, failed.compute_bytes >= 1))
    t.assume(both(other.packed_rows >= 1, other.compute_bytes >= 1))
    own = cover_of(failed)
    wider = joined_cover(own, cover_of(other))
    for cover in (own, wider):
        never_falls = a_product_never_falls_as_a_factor_grows
        t.use(never_falls, cover.bytes_per_row, failed.packed_rows, rows)
        t.use(never_falls, failed.packed_rows, own.bytes_per_row, cover.bytes_per_row)
        t.prove(minimum(cover.compute_bytes, cover.bytes_per_row * rows) >= failed.compute_bytes)
    t.prove(both(wider.logical_rows <= failed.logical_rows, wider.grad_segments <= failed.grad_segments), "from there")


def cover_of(told: Reading) -> Cover:
    """The cover that one reading alone makes."""
    return band_of(told, told.compute_bytes, bounds=False).cover
