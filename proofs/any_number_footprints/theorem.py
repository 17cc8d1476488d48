"""INV-15, INV-16 and INV-18 for any number of bands: the shipped price of both quantities, whole, under every law.

What stands for any number: of the bands of one body of evidence the one whose bound is the least of the larger wave (of
the wave that is priced) stands for whichever it is. Bounds beside it only lower what the smaller wave costs, and lift
none; covers beside the ones named only lift. Functions that are opaque here answer anything; what is assumed of them
are instances of the theorems named beside them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pricing import contracts
from pricing.kernel.bands import SOUND, Anchor, Band, Cover, FrontierEvidence, sharing_class, size_class
from pricing.kernel.frontier import (
    FRONTIER,
    Bound,
    anchored_bound,
    bound_bytes,
    lifted,
    lifted_bytes,
    nowhere_above_as_larger,
    nowhere_above_as_smaller,
    peak_frontier,
    scaled_bytes,
    trusted_rows,
)
from pricing.kernel.price import evidence_bytes, required_bytes
from pricing.kernel.profile import Evidence, Profile, observe_footprint
from pricing.kernel.quantities import maximum
from pricing.kernel.rate_laws import LOGICAL, PACKED, WARM
from pricing.kernel.reading import Reading
from pricing.kernel.wave import Wave
from proofs.any_number.rest import Order, Rest
from proofs.any_number.theorem import JOINS, OPAQUE, are_same, told_of_skip, witness
from proofs.assembly.theorem import covers
from proofs.frontier.theorem import ROUNDING, a_bound, a_cover, a_wave, an_anchor, charge_pairs, charged, raised, step
from proofs.inv08_coverage.theorem import COVERING, is_remembered
from proofs.inv15_two_quantities.theorem import KINDS, tell_sharing_of
from proofs.inv16_out_of_memory.theorem import failed_reading
from proofs.lemmas import (
    MONOTONE,
    a_product_never_falls_as_a_factor_grows,
    the_safety_factor_never_falls_as_bytes_grow,
)
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both, implies

# --- INV-15: required never falls -------------------------------------------------------------------------------------


def evidence_of(t: Given, name: str, bounds: bool) -> FrontierEvidence:
    """Evidence in which no band bounds yet, or in which the least bound is that of a band, which stands for any."""
    band = Band(size=1, sharing=1, cover=a_cover(t, f"{name}.cover"), anchor=an_anchor(t, f"{name}.anchor"))
    evidence = FrontierEvidence(peak=(band,) if bounds else ())
    evidence.derived[SOUND] = True  # joins keep what the check asks for: `any_number`
    return evidence


def tell_growth(t: Given, evidence: Evidence, smaller: Wave, larger: Wave, packed_priced: bool) -> None:
    """a_bound_never_falls_as_packed_rows_grow, ..._as_logical_rows_or_segments_grow, of each bound of the evidence;
    and every_anchor_makes_a_bound."""
    for bound in peak_frontier(evidence.frontier, packed_priced, smaller.segment_state_bytes).bounds:
        t.assume(both(bound.packed_rows >= 1, bound.compute_bytes >= 0))
        rows, more = (trusted_rows(wave, evidence, packed_priced) for wave in (smaller, larger))
        grows = both(
            rows <= more,
            smaller.logical_rows <= larger.logical_rows,
            smaller.grad_segments <= larger.grad_segments,
        )
        least, most = (
            bound_bytes(bound, at, wave.logical_rows, wave.grad_segments)
            for at, wave in ((rows, smaller), (more, larger))
        )
        t.assume(both(implies(grows, least <= most), both(least >= 0, most >= 0)))


@theorem("INV-15", lemmas=MONOTONE, merging=(evidence_bytes, lifted), opaque=OPAQUE, slow=True)
def required_never_falls_as_a_wave_grows_under_any_law_whatever_bands_there_are(t: Given) -> None:
    """The shipped `required_bytes`, whole: of both quantities, or of a footprint that was never read; where no band
    bounds, the frontier law is the warm one."""
    law, of_peaks, of_footprints = t.choose(
        (FRONTIER, True, True),
        (FRONTIER, True, False),
        (FRONTIER, False, True),
        (FRONTIER, True, None),
        *((law, False, kind) for law in (FRONTIER, LOGICAL, PACKED) for kind in (False, None)),
    )
    packed_priced = t.choose(True, False)
    workload = t.workload(packed_priced)
    smaller = t.wave("smaller", workload=workload)
    larger = t.wave("larger", workload=workload, segment_state_bytes=smaller.segment_state_bytes)
    learned, frontier = t.profile(retained=False, warm="fit" if of_peaks else None), evidence_of(t, "peaks", of_peaks)
    profile = t.valid(lambda: replace(learned, frontier=frontier))
    if of_footprints is not None:
        read = t.footprints(retained=False, warm="fit" if of_footprints else None)
        of_read = evidence_of(t, "footprints", of_footprints)
        seen = t.valid(lambda: replace(read, frontier=of_read))
        profile = t.valid(lambda: replace(learned, frontier=frontier, footprint=seen))
    safety = t.safety()
    for evidence in (profile, profile.footprint):
        tell_growth(t, evidence, smaller, larger, packed_priced)
    t.assume(t.merged(contracts.is_grown, smaller, larger))
    for name, evidence in (("peaks", profile), ("footprints", profile.footprint)):
        least, most = (evidence_bytes(wave, evidence, law, safety) for wave in (smaller, larger))
        step(t, least <= most, name)
    t.prove(required_bytes(smaller, profile, law, safety) <= required_bytes(larger, profile, law, safety), "required")
