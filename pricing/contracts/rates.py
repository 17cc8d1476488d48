"""INV-1 to INV-14 for any law: what readings teach, and what prices may do.

Where a statement has a premise, the predicate says so and holds trivially where the premise fails, so that any caller
may pass anything valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from pricing.kernel.law import Law, ineligibility
from pricing.kernel.price import (
    QuantityPrice,
    evidence_bytes,
    price,
    required_bytes,
    retained_bytes,
    retained_evidence_bytes,
)
from pricing.kernel.profile import NO_FOOTPRINT, Profile, broken_invariant, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, TRUST_GROWTH, Safety, Sharing, ceil_div, maximum, minimum
from pricing.kernel.rate_laws import (
    PACKED,
    UNPACKED_GROWTH,
    WARM,
    RateLaw,
    all_readings_bytes,
    charge_bytes,
    model_bytes,
    sharing_rows,
    warm_bytes,
)
from pricing.kernel.reading import Reading
from pricing.kernel.requests import (
    RecomputeMode,
    RequestGroup,
    RequestSpec,
    Workload,
    mix_key,
    signature_of,
    workload_of,
)
from pricing.kernel.wave import Wave

# --- INV-1, INV-2: monotone ------------------------------------------------------------------------------------------


def price_never_falls(
    smaller: Wave, larger: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-1, INV-2. Premise: `larger` is at least `smaller` in P, L, S, O and F, and equal in G and workload."""
    if not is_grown(smaller, larger):
        return True
    return evidence_bytes(smaller, profile, law, safety) <= evidence_bytes(larger, profile, law, safety)


def is_grown(smaller: Wave, larger: Wave) -> bool:
    """Whether `larger` is the same kind of wave, at least as large in every quantity that a price may grow with."""
    return (
        smaller.packed_rows <= larger.packed_rows
        and smaller.logical_rows <= larger.logical_rows
        and smaller.grad_segments <= larger.grad_segments
        and smaller.output_bytes <= larger.output_bytes
        and smaller.floor_bytes <= larger.floor_bytes
        and smaller.segment_state_bytes == larger.segment_state_bytes
        and smaller.workload == larger.workload
    )


def price_never_falls_with_packed_rows(
    wave: Wave, extra_rows: int, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-1: more packed rows, everything else equal."""
    return price_never_falls(wave, replace(wave, packed_rows=wave.packed_rows + extra_rows), profile, law, safety)


def price_never_falls_with_logical_rows(
    wave: Wave, extra_rows: int, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-2 in L. Premise: the wave has rows to run."""
    if wave.packed_rows == 0:
        return True
    return price_never_falls(wave, replace(wave, logical_rows=wave.logical_rows + extra_rows), profile, law, safety)


def price_never_falls_with_segments(
    wave: Wave, extra_segments: int, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-2 in S. Premise: the wave has rows to run."""
    if wave.packed_rows == 0:
        return True
    grown = replace(wave, grad_segments=wave.grad_segments + extra_segments)
    return price_never_falls(wave, grown, profile, law, safety)


def price_never_falls_with_outputs(
    wave: Wave, extra_bytes: int, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-2 in O."""
    return price_never_falls(wave, replace(wave, output_bytes=wave.output_bytes + extra_bytes), profile, law, safety)


def price_never_falls_with_floor(
    wave: Wave, extra_bytes: int, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-2 in F."""
    return price_never_falls(wave, replace(wave, floor_bytes=wave.floor_bytes + extra_bytes), profile, law, safety)


def charges_are_exact(
    wave: Wave, extra_logical_rows: int, extra_segments: int, profile: Profile, law: RateLaw = WARM
) -> bool:
    """INV-2, tight: with its model rows held, a packed-priced wave pays 6,144 B for each further logical row and G for
    each further segment; a wave that is not packed-priced pays neither.

    Premise: something was learned and the further logical rows stay within the sharing that needs no more rows.
    """
    grown = replace(
        wave,
        packed_rows=maximum(1, wave.packed_rows),
        logical_rows=wave.logical_rows + extra_logical_rows,
        grad_segments=wave.grad_segments + extra_segments,
    )
    wave = replace(wave, packed_rows=maximum(1, wave.packed_rows))
    if profile.is_empty or not is_within_known_sharing(grown, profile, law):
        return True
    packed_priced = not law.ineligibility(profile, wave.workload)
    charge = 6_144 * extra_logical_rows + wave.segment_state_bytes * extra_segments if packed_priced else 0
    growth = law.compute_bytes(grown, profile, packed_priced) - law.compute_bytes(wave, profile, packed_priced)
    return growth == charge


# --- INV-3: bounds ---------------------------------------------------------------------------------------------------


def bounds_enclose_the_price(
    wave: Wave,
    full_sharing_rows: int,
    no_sharing_rows: int,
    request_count: int,
    profile: Profile,
    law: Law = WARM,
    safety: Safety = DEFAULT_SAFETY,
) -> bool:
    """INV-3: lower <= exact <= upper, for any layout `wave` of the same requests.

    lower: full-sharing rows and no segments; upper: no-sharing rows and two segments a request. Premise:
    1 <= full_sharing_rows <= wave.packed_rows <= no_sharing_rows, and wave.grad_segments <= 2 * request_count.
    """
    if not 1 <= full_sharing_rows <= wave.packed_rows <= no_sharing_rows or wave.grad_segments > 2 * request_count:
        return True
    lower = replace(wave, packed_rows=full_sharing_rows, grad_segments=0)
    upper = replace(wave, packed_rows=no_sharing_rows, grad_segments=2 * request_count)
    exact = evidence_bytes(wave, profile, law, safety)
    return evidence_bytes(lower, profile, law, safety) <= exact <= evidence_bytes(upper, profile, law, safety)


# --- INV-4, INV-5: sharing -------------------------------------------------------------------------------------------


def is_within_reach(wave: Wave, sharing_logical_rows: int, sharing_packed_rows: int, growth: int) -> bool:
    """Whether the wave's sharing is at or below `growth` times the pair's: L * rp <= k * rl * P."""
    return wave.logical_rows * sharing_packed_rows <= growth * sharing_logical_rows * wave.packed_rows


def clamp_is_exact(wave: Wave, profile: Profile, growth: int = TRUST_GROWTH) -> bool:
    """INV-4: the all-readings term is B*P up to `growth` times the observed sharing and B*ceil(L/(k*r)) beyond."""
    term, rate, sharing = all_readings_bytes(wave, profile, growth), profile.peak_bytes_per_row, profile.sharing
    if is_within_reach(wave, sharing.logical_rows, sharing.packed_rows, growth):
        return term == rate * wave.packed_rows
    return term == rate * ceil_div(wave.logical_rows * sharing.packed_rows, growth * sharing.logical_rows)


def more_sharing_never_cheapens(
    wave: Wave, profile: Profile, more_shared: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-5. Premise: `more_shared` is `profile` with r and rw raised only, and the wave's sharing is at or below k
    times the smaller of the older two."""
    raised = replace(profile, sharing=more_shared.sharing, warm_sharing=more_shared.warm_sharing)
    if raised != more_shared or not is_within_known_sharing(wave, profile, law):
        return True
    return evidence_bytes(wave, profile, law, safety) <= evidence_bytes(wave, more_shared, law, safety)


def is_within_known_sharing(wave: Wave, profile: Profile, law: Law) -> bool:
    """Whether the wave's sharing is at or below k times that already seen (by the warm fit where complete)."""
    growth = UNPACKED_GROWTH if law.ineligibility(profile, wave.workload) else TRUST_GROWTH
    known = profile.sharing if profile.warm_sharing is None else profile.warm_sharing
    return is_within_reach(wave, known.logical_rows, known.packed_rows, growth)


# --- INV-6, INV-7: the warm fit --------------------------------------------------------------------------------------


def warm_floor_holds(wave: Wave, profile: Profile, growth: int = TRUST_GROWTH) -> bool:
    """INV-6: below Pw the warm term is that of Pw rows; model >= min(B*P, W*max(Pw, P)); no drop at Pw."""
    floor_rows, rate = profile.warm_packed_rows, profile.warm_bytes_per_row
    if floor_rows is None or rate is None or wave.packed_rows == 0:
        return True
    at_floor = replace(wave, packed_rows=floor_rows)
    term, term_at_floor = warm_bytes(wave, profile, growth), warm_bytes(at_floor, profile, growth)
    assert term is not None and term_at_floor is not None, "a profile with a warm floor has a warm term"
    if wave.packed_rows <= floor_rows and term != term_at_floor:
        return False
    model = model_bytes(wave, profile, growth, warm=True)
    least = minimum(profile.peak_bytes_per_row * wave.packed_rows, rate * maximum(floor_rows, wave.packed_rows))
    no_drop = wave.packed_rows > floor_rows or model <= model_bytes(at_floor, profile, growth, warm=True)
    return model >= least and no_drop


def warm_fit_never_raises(wave: Wave, profile: Profile, safety: Safety = DEFAULT_SAFETY) -> bool:
    """INV-7: the warm law never prices above the packed law, and exactly as it without a complete warm fit."""
    warm, packed = evidence_bytes(wave, profile, WARM, safety), evidence_bytes(wave, profile, PACKED, safety)
    return warm <= packed and (profile.has_warm_fit or warm == packed)


# --- INV-8: coverage -------------------------------------------------------------------------------------------------


def all_readings_term_covers(
    before: Profile, reading: Reading, later: Sequence[Reading], wave: Wave, growth: int = TRUST_GROWTH
) -> bool:
    """INV-8, first half: after a reading and any later ones, the all-readings term at its P is at least its compute.

    Premise: the reading has rows, and `wave.packed_rows` is its.
    """
    if reading.packed_rows == 0 or wave.packed_rows != reading.packed_rows:
        return True
    profile = _observed(observe(before, reading), later)
    return all_readings_bytes(wave, profile, growth) >= reading.compute_bytes


def later_reading_stays_covered(
    before: Profile,
    reading: Reading,
    later: Sequence[Reading],
    workload: Workload,
    law: Law = WARM,
    safety: Safety = DEFAULT_SAFETY,
    segment_state_bytes: int = 0,
) -> bool:
    """INV-8, second half: a reading after the seed, complete or not, is covered by the price of the wave it came from,
    also after further readings. Premise: `before` has seen its seed and the reading has rows."""
    if before.complete_readings == 0 or reading.packed_rows == 0:
        return True
    profile = _observed(observe(before, reading), later)
    wave = Wave(
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        grad_segments=reading.grad_segments,
        output_bytes=reading.output_bytes,
        workload=workload,
        segment_state_bytes=segment_state_bytes,
    )
    return evidence_bytes(wave, profile, law, safety) >= reading.output_bytes + reading.compute_bytes


def coverage_is_tight(reading: Reading) -> bool:
    """INV-8, tight: from nothing, a reading teaches a rate that covers its compute and is less than a byte a row above.

    The same for retained bytes, which stay unknown where the reading carries none. Premise: the reading has rows.
    """
    if reading.packed_rows == 0:
        return True
    profile, rows = observe(Profile(), reading), reading.packed_rows
    excess = profile.peak_bytes_per_row * rows - maximum(0, reading.peak_delta_bytes - reading.output_bytes)
    if not 0 <= excess < rows:
        return False
    if reading.retained_bytes is None or profile.retained_bytes_per_row is None:
        return reading.retained_bytes is None and profile.retained_bytes_per_row is None
    kept = maximum(0, minimum(reading.retained_bytes, reading.peak_delta_bytes) - reading.output_bytes)
    return 0 <= profile.retained_bytes_per_row * rows - kept < rows


def _observed(profile: Profile, readings: Sequence[Reading]) -> Profile:
    for reading in readings:
        profile = observe(profile, reading)
    return profile


def saw_the_whole_peak(reading: Reading) -> bool:
    """Completeness, said again from the table of kinds: the only readings that may lower a price."""
    if reading.kind == "whole_wave":
        return True
    return reading.kind == "forward_only" and reading.closes_wave and not reading.grads


# --- INV-9, INV-10: learning -----------------------------------------------------------------------------------------


def profile_stays_reachable(profile: Profile, reading: Reading) -> bool:
    """The inductive invariant that the other statements mean by "reachable profile"."""
    return broken_invariant(observe(profile, reading)) is None


def observing_only_ratchets(profile: Profile, reading: Reading) -> bool:
    """INV-9: rates, sizes and sharing only rise, the warm floor only falls, nothing known is forgotten."""
    after = observe(profile, reading)
    return (
        after.peak_bytes_per_row >= profile.peak_bytes_per_row
        and after.largest_packed_rows >= profile.largest_packed_rows
        and after.complete_readings >= profile.complete_readings
        and _is_no_less_sharing(after.sharing, profile.sharing)
        and _is_kept_or_raised(profile.retained_bytes_per_row, after.retained_bytes_per_row)
        and _is_kept_or_raised(profile.warm_bytes_per_row, after.warm_bytes_per_row)
        and (
            profile.warm_packed_rows is None
            or (after.warm_packed_rows is not None and after.warm_packed_rows <= profile.warm_packed_rows)
        )
        and (
            profile.warm_sharing is None
            or (after.warm_sharing is not None and _is_no_less_sharing(after.warm_sharing, profile.warm_sharing))
        )
    )


def _is_kept_or_raised(before: int | None, after: int | None) -> bool:
    return before is None or (after is not None and after >= before)


def _is_no_less_sharing(after: Sharing, before: Sharing) -> bool:
    return after.logical_rows * before.packed_rows >= before.logical_rows * after.packed_rows


def first_complete_reading_is_the_seed(profile: Profile, reading: Reading) -> bool:
    """INV-9: the first complete reading counts as the seed and makes no warm fit. Premise: no seed yet."""
    if profile.complete_readings > 0:
        return True
    after = observe(profile, reading)
    seeds = saw_the_whole_peak(reading) and reading.packed_rows > 0
    return (
        after.complete_readings == (1 if seeds else 0) and not after.has_warm_fit and after.warm_bytes_per_row is None
    )


def second_complete_reading_makes_the_warm_fit(profile: Profile, reading: Reading) -> bool:
    """INV-9: after the seed a complete reading with rows always leaves a complete warm fit that covers it, pending rate
    included. Premise: `profile` has its seed and the reading is complete and has rows."""
    if profile.complete_readings == 0 or not saw_the_whole_peak(reading) or reading.packed_rows == 0:
        return True
    after = observe(profile, reading)
    pending = 0 if profile.warm_bytes_per_row is None else profile.warm_bytes_per_row
    return (
        after.has_warm_fit
        and after.warm_bytes_per_row is not None
        and after.warm_bytes_per_row == maximum(pending, reading.peak_bytes_per_row)
    )


def incomplete_reading_never_completes(profile: Profile, reading: Reading) -> bool:
    """INV-9: an incomplete reading neither seeds nor completes nor extends the warm fit. Premise: it is incomplete."""
    if saw_the_whole_peak(reading):
        return True
    after = observe(profile, reading)
    return (
        after.complete_readings == profile.complete_readings
        and after.warm_packed_rows == profile.warm_packed_rows
        and after.warm_sharing == profile.warm_sharing
    )


def incomplete_reading_never_lowers(
    wave: Wave, profile: Profile, reading: Reading, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-9: an incomplete reading never lowers the price of a plan at or below k times the sharing already seen.

    Premise: incomplete; something was learned before; the wave lies within the known sharing.
    """
    if saw_the_whole_peak(reading) or profile.is_empty or not is_within_known_sharing(wave, profile, law):
        return True
    after = observe(profile, reading)
    return evidence_bytes(wave, profile, law, safety) <= evidence_bytes(wave, after, law, safety)


def order_does_not_matter(profile: Profile, first: Reading, second: Reading) -> bool:
    """INV-10: after the seed, two readings teach the same in either order. (Adjacent swaps make every permutation.)

    Footprints have a seed of their own: the first complete reading that carries one. Until then only what is allocated
    is promised.
    """
    if profile.complete_readings == 0:
        return True
    one, other = observe(observe(profile, first), second), observe(observe(profile, second), first)
    if profile.footprint.complete_readings == 0:
        one, other = replace(one, footprint=NO_FOOTPRINT), replace(other, footprint=NO_FOOTPRINT)
    return one == other


# --- INV-11, INV-12: retained and the safety factor ------------------------------------------------------------------


def retained_is_never_above_required(
    wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-11: retained <= required."""
    return retained_evidence_bytes(wave, profile, law, safety) <= evidence_bytes(wave, profile, law, safety)


def retained_is_required_outside_the_windows(
    wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-11: where R is unknown or the wave lies outside either window of 8, retained is required."""
    if profile.retained_bytes_per_row is not None and is_inside_both_windows(wave, profile):
        return True
    return retained_evidence_bytes(wave, profile, law, safety) == evidence_bytes(wave, profile, law, safety)


def is_inside_both_windows(wave: Wave, profile: Profile) -> bool:
    """The retained windows, said again: P <= 8 * largest packed rows, L <= 8 * r * max(1, P). Equality is inside."""
    beyond_rows = wave.packed_rows > 8 * profile.largest_packed_rows
    reach = 8 * profile.sharing.logical_rows * maximum(1, wave.packed_rows)
    return not beyond_rows and not wave.logical_rows * profile.sharing.packed_rows > reach


def retained_is_the_formula_inside_the_windows(
    wave: Wave, profile: Profile, law: RateLaw = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-11, exact: inside both windows retained is min(required, ceil(sigma * (O + max(C, kept)))), with
    kept = R*P + 6144*L when packed-priced and R * rows(r) at k = 1 otherwise. Premise: R is known."""
    rate = profile.retained_bytes_per_row
    if rate is None or wave.packed_rows == 0 or not is_inside_both_windows(wave, profile):
        return True
    if law.ineligibility(profile, wave.workload):
        kept = rate * sharing_rows(wave.packed_rows, wave.logical_rows, profile.sharing, 1)
    else:
        kept = rate * wave.packed_rows + 6_144 * wave.logical_rows
    held = safety.numerator * (wave.output_bytes + maximum(wave.checkpoint_retained_bytes, kept))
    expected = minimum(evidence_bytes(wave, profile, law, safety), ceil_div(held, safety.denominator))
    return retained_evidence_bytes(wave, profile, law, safety) == expected


def safety_is_tight(wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY) -> bool:
    """INV-12: sigma * (O + compute) <= required < that + 1, for P >= 1, with compute from the explained price."""
    if wave.packed_rows == 0:
        return evidence_bytes(wave, profile, law, safety) == wave.output_bytes
    required = evidence_bytes(wave, profile, law, safety)
    compute = wave.floor_bytes
    if not profile.is_empty:
        packed_priced = not law.ineligibility(profile, wave.workload)
        compute = maximum(compute, law.compute_bytes(wave, profile, packed_priced))
    exact = safety.numerator * (wave.output_bytes + compute)
    return exact <= safety.denominator * required < exact + safety.denominator


# --- INV-13, INV-14: identity and replay -----------------------------------------------------------------------------


def inactive_requests_change_nothing(
    groups: Sequence[RequestGroup], inactive: Sequence[RequestSpec], recompute: RecomputeMode, topology: str = ""
) -> bool:
    """INV-13: inactive requests in every group, and a group of nothing else, leave workload and signature equal.

    Premise: each of `inactive` asks for nothing.
    """
    if any(request.is_active for request in inactive):
        return True
    padded = [replace(group, requests=(*inactive, *group.requests, *inactive)) for group in groups]
    padded.append(RequestGroup(requests=tuple(inactive), grads=False, adapter="inactive"))
    return workload_of(padded, recompute) == workload_of(groups, recompute) and signature_of(
        padded, recompute, topology=topology
    ) == signature_of(groups, recompute, topology=topology)


def short_request_changes_eligibility_not_identity(
    groups: Sequence[RequestGroup], short: RequestSpec, recompute: RecomputeMode, profile: Profile, topology: str = ""
) -> bool:
    """INV-13: a short single-target request joining a group that has such requests keeps the signature and ends packed
    pricing. Premise: `short` is short, and the first group has an active single-target request."""
    is_short = mix_key(short) == "target:single" and 6_144 * short.logical_rows < 384 * 1_024
    if not is_short or not groups or "target:single" not in workload_of(groups[:1], recompute).request_mixes:
        return True
    joined = [replace(groups[0], requests=(*groups[0].requests, short)), *groups[1:]]
    same = signature_of(joined, recompute, topology=topology) == signature_of(groups, recompute, topology=topology)
    return same and bool(ineligibility(profile, workload_of(joined, recompute)))


def eligibility_asks_facts_only(workload: Workload, first: Profile, second: Profile) -> bool:
    """Section 3: no learned figure takes part in eligibility. Premise: both profiles have learned something."""
    if first.is_empty or second.is_empty:
        return True
    return ineligibility(first, workload) == ineligibility(second, workload)


def replay_is_identical(wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY) -> bool:
    """INV-14: from copies of its inputs a price is bit-identical, and the explained price equals the hot path's."""
    explained = price(wave, profile, law, safety)
    again = price(_copied(wave), _copied_profile(profile), law, Safety.parse(str(safety)))
    return (
        explained == again
        and explained.required_bytes == required_bytes(wave, profile, law, safety)
        and explained.retained_bytes == retained_bytes(wave, profile, law, safety)
        and explained.allocated.required_bytes == evidence_bytes(wave, profile, law, safety)
        and explained.allocated.retained_bytes == retained_evidence_bytes(wave, profile, law, safety)
    )


def parts_add_up(wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY) -> bool:
    """The parts of an explained price make the price, of either quantity: least term plus charges, and the floor; the
    binding term is that of the part that decided."""
    priced = price(wave, profile, law, safety)
    return _parts_add_up(wave, priced.allocated) and _parts_add_up(wave, priced.footprint)


def _parts_add_up(wave: Wave, explained: QuantityPrice) -> bool:
    if not explained.terms:
        return explained.binding_term in ("nothing_to_run", "cold")
    least = min(term.model_bytes for term in explained.terms)
    compute = least + explained.logical_charge_bytes + explained.segment_charge_bytes
    deciding = [term.binding for term in explained.terms if term.model_bytes == least]
    charges = explained.logical_charge_bytes + explained.segment_charge_bytes
    return (
        explained.compute_bytes == maximum(wave.floor_bytes, compute)
        and explained.binding_term == ("floor" if wave.floor_bytes >= compute else deciding[0])
        and 0 <= charges <= charge_bytes(wave)
    )


def _copied(wave: Wave) -> Wave:
    return Wave(**{field.name: getattr(wave, field.name) for field in fields(wave)})


def _copied_profile(profile: Profile) -> Profile:
    return Profile(**{field.name: getattr(profile, field.name) for field in fields(profile)})
