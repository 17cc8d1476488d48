"""Wrong kernels: mistakes that were made, or easily are, as patches of the shipped functions.

Each names the contract that must notice it. A suite that passes on one of these proves nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pricing.kernel import bands, law, liveness, merge, price, profile, quantities, rate_laws, reading, requests
from pricing.kernel.bands import Anchor, Witnesses
from pricing.kernel.law import Ineligible
from pricing.kernel.profile import Evidence, Profile
from pricing.kernel.quantities import Sharing
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import RequestGroup, RequestSpec, Signature, Workload
from pricing.kernel.wave import Wave
from pricing.planner import budget


@dataclass(frozen=True, kw_only=True)
class WrongKernel:
    """`patches` maps (owner, attribute) to the wrong function; `caught_by` is a predicate of `pricing.contracts`."""

    name: str
    mistake: str
    caught_by: str
    patches: Mapping[tuple[object, str], object]


@contextmanager
def installed(kernel: WrongKernel) -> Iterator[None]:
    """Put the wrong functions in place everywhere in the package that the right ones were imported to."""
    undo: list[tuple[object, str, object]] = []
    try:
        for (owner, attribute), wrong in kernel.patches.items():
            right = getattr(owner, attribute)
            for holder in [owner, *_modules_holding(attribute, right)]:
                undo.append((holder, attribute, right))
                setattr(holder, attribute, wrong)
        yield
    finally:
        for holder, attribute, right in reversed(undo):
            setattr(holder, attribute, right)


def _modules_holding(attribute: str, value: object) -> list[object]:
    modules = [module for name, module in sys.modules.items() if name.startswith("pricing.")]
    return [module for module in modules if module.__dict__.get(attribute) is value]


_right_observe_witnesses = bands.observe_witnesses


# --- wrong pricing ---------------------------------------------------------------------------------------------------


def _warm_from_the_floor_only(wave: Wave, known: Profile, growth: int, *, warm: bool) -> int:
    model = rate_laws.all_readings_bytes(wave, known, growth)
    term = rate_laws.warm_bytes(wave, known, growth) if warm else None
    gate = known.warm_packed_rows
    return model if term is None or gate is None or wave.packed_rows < gate else min(model, term)


def _warm_instead_of_least(wave: Wave, known: Profile, growth: int, *, warm: bool) -> int:
    term = rate_laws.warm_bytes(wave, known, growth) if warm else None
    return rate_laws.all_readings_bytes(wave, known, growth) if term is None else term


def _all_readings_in_doubles(wave: Wave, known: Profile, growth: int) -> int:
    ratio = known.sharing.logical_rows / known.sharing.packed_rows
    return int(known.peak_bytes_per_row * max(float(wave.packed_rows), wave.logical_rows / (growth * ratio)))


def _clamp_missing(packed_rows: int, logical_rows: int, sharing: Sharing, growth: int) -> int:
    return packed_rows


def _clamp_everywhere(packed_rows: int, logical_rows: int, sharing: Sharing, growth: int) -> int:
    return quantities.ceil_div(logical_rows * sharing.packed_rows, growth * sharing.logical_rows)


def _cross_product_of_maxima(wave: Wave, known: Profile, growth: int) -> int:
    rows = rate_laws.sharing_rows(wave.packed_rows, wave.logical_rows, known.sharing, growth)
    return known.peak_bytes_per_row * max(rows, known.largest_packed_rows)


def _reach_rounded_down(packed_rows: int, logical_rows: int, sharing: Sharing, growth: int) -> int:
    return max(packed_rows, logical_rows * sharing.packed_rows // (growth * sharing.logical_rows))


def _warm_rows_without_floor(wave: Wave, floor_rows: int, sharing: Sharing, growth: int) -> int:
    return rate_laws.sharing_rows(wave.packed_rows, wave.logical_rows, sharing, growth)


def _no_segment_charge(wave: Wave) -> int:
    return quantities.LOGICAL_ROW_BYTES * wave.logical_rows


def _packed_rows_charged(wave: Wave) -> int:
    return quantities.LOGICAL_ROW_BYTES * wave.packed_rows + wave.grad_segments * wave.segment_state_bytes


def _safety_truncated(numerator: int, denominator: int, byte_count: int) -> int:
    return numerator * byte_count // denominator


def _safety_in_doubles(numerator: int, denominator: int, byte_count: int) -> int:
    return int(numerator / denominator * byte_count)


def _nothing_to_run_pays_the_floor(wave: Wave, known: Profile, chosen: Any = rate_laws.WARM, safety: Any = None) -> int:
    safety = safety or quantities.DEFAULT_SAFETY
    compute = price._floored_compute_bytes(wave, known, chosen)
    return quantities.with_safety(safety.numerator, safety.denominator, wave.output_bytes + compute)


def _floor_added(wave: Wave, known: Profile, chosen: Any) -> int:
    if known.is_empty:
        return wave.floor_bytes
    packed_priced = not chosen.ineligibility(known, wave.workload)
    return wave.floor_bytes + int(chosen.compute_bytes(wave, known, packed_priced))


def _cold_is_free(wave: Wave, known: Profile, chosen: Any) -> int:
    if known.is_empty:
        return 0
    packed_priced = not chosen.ineligibility(known, wave.workload)
    return max(wave.floor_bytes, int(chosen.compute_bytes(wave, known, packed_priced)))


def _retained_uncapped(wave: Wave, known: Profile, chosen: Any, safety: Any, required: int) -> int:
    if wave.packed_rows == 0 or known.is_empty:
        return required
    kept = chosen.kept_bytes(wave, known, not chosen.ineligibility(known, wave.workload))
    if kept is None:
        return required
    held = wave.output_bytes + max(wave.checkpoint_retained_bytes, kept)
    return quantities.with_safety(safety.numerator, safety.denominator, held)


def _window_edge_outside(wave: Wave, known: Profile) -> bool:
    return wave.packed_rows < 8 * known.largest_packed_rows and (
        wave.logical_rows * known.sharing.packed_rows
        <= 8 * known.sharing.logical_rows * quantities.maximum(1, wave.packed_rows)
    )


def _window_one_row_wider(wave: Wave, known: Profile) -> bool:
    return wave.packed_rows <= 8 * known.largest_packed_rows + 1 and (
        wave.logical_rows * known.sharing.packed_rows
        <= 8 * known.sharing.logical_rows * quantities.maximum(1, wave.packed_rows)
    )


def _no_sharing_window(wave: Wave, known: Profile) -> bool:
    return wave.packed_rows <= 8 * known.largest_packed_rows


def _rate_floor_in_eligibility(known: Profile, workload: Workload) -> tuple[Ineligible, ...]:
    if known.peak_bytes_per_row < 24_576:
        return (Ineligible.NO_PROFILE,)
    return _right_ineligibility(known, workload)


_right_ineligibility = law.ineligibility


def _segments_charged_only_where_rows_are_shared(wave: Wave) -> int:
    segments = wave.grad_segments if wave.packed_rows < wave.logical_rows else 0
    return quantities.LOGICAL_ROW_BYTES * wave.logical_rows + segments * wave.segment_state_bytes


def _known_sharing_discounts_rows(packed_rows: int, logical_rows: int, sharing: Sharing, growth: int) -> int:
    implied = quantities.ceil_div(logical_rows * sharing.packed_rows, growth * sharing.logical_rows)
    return max(implied, quantities.ceil_div(packed_rows * sharing.packed_rows, sharing.logical_rows))


class _DriftingMargin:
    """A margin that remembers how often it was asked: state outside the inputs."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, numerator: int, denominator: int, byte_count: int) -> int:
        self._calls += 1
        return quantities.ceil_div(numerator * byte_count, denominator) + self._calls


def _charges_left_out_of_the_explanation(floor_bytes: int, breakdown: law.Breakdown) -> tuple[int, str]:
    least = breakdown.least
    return max(floor_bytes, least.model_bytes), least.binding if least.model_bytes > floor_bytes else "floor"


# --- wrong learning --------------------------------------------------------------------------------------------------

_right_observe = profile.observe


def _pending_rate_dropped(known: Profile, told: Reading) -> Profile:
    after = _right_observe(known, told)
    if known.warm_packed_rows is None and after.warm_packed_rows is not None:
        return replace(after, warm_bytes_per_row=told.peak_bytes_per_row)
    return after


def _first_wave_warm(known: Profile, told: Reading) -> Profile:
    after = _right_observe(known, told)
    if known.complete_readings == 0 and after.complete_readings == 1:
        return replace(after, warm_bytes_per_row=told.peak_bytes_per_row)
    return after


def _warm_floor_rises(known: Profile, told: Reading) -> Profile:
    after = _right_observe(known, told)
    if known.warm_packed_rows is not None and told.is_complete and told.packed_rows > 0:
        return replace(after, warm_packed_rows=max(known.warm_packed_rows, told.packed_rows))
    return after


def _incomplete_teaches_no_rate(known: Profile, told: Reading) -> Profile:
    after = _right_observe(known, told)
    if told.is_complete or known.is_empty:
        return after
    return replace(
        after, peak_bytes_per_row=known.peak_bytes_per_row, retained_bytes_per_row=known.retained_bytes_per_row
    )


def _incomplete_raises_no_warm_rate(known: Profile, told: Reading) -> Profile:
    after = _right_observe(known, told)
    return after if told.is_complete else replace(after, warm_bytes_per_row=known.warm_bytes_per_row)


def _incomplete_extends_the_warm_fit(known: Profile, told: Reading) -> Profile:
    after = _right_observe(known, told)
    if known.warm_packed_rows is None or told.packed_rows == 0:
        return after
    return replace(after, warm_packed_rows=min(known.warm_packed_rows, told.packed_rows))


def _last_rate_wins(known: Profile, told: Reading) -> Profile:
    after = _right_observe(known, told)
    if known.warm_packed_rows is None or told.packed_rows == 0:
        return after
    return replace(after, warm_bytes_per_row=told.peak_bytes_per_row)


def _last_of_equal_sharing_kept(sharing: Sharing, logical_rows: int, packed_rows: int) -> Sharing:
    if logical_rows * sharing.packed_rows >= sharing.logical_rows * packed_rows and logical_rows >= packed_rows:
        return Sharing(logical_rows=logical_rows, packed_rows=packed_rows)
    return sharing


def _unseen_retained_is_zero(known: int | None, told: Reading) -> int:
    kept = told.retained_compute_bytes or 0
    return max(known or 0, quantities.ceil_div(kept, told.packed_rows))


def _rate_truncated(told: Reading) -> int:
    return told.compute_bytes // told.packed_rows


def _output_not_subtracted(told: Reading) -> int:
    return told.peak_delta_bytes


def _retained_above_the_peak(told: Reading) -> int | None:
    return None if told.retained_bytes is None else max(0, told.retained_bytes - told.output_bytes)


def _every_forward_complete(told: Reading) -> bool:
    return told.kind in ("whole_wave", "forward_only")


def _interrupted_complete(told: Reading) -> bool:
    return told.kind in ("whole_wave", "interrupted")


# --- wrong identity --------------------------------------------------------------------------------------------------

_right_signature_of = requests.signature_of


def _all_requests(group: RequestGroup) -> tuple[RequestSpec, ...]:
    return group.requests


def _short_flag_in_identity(groups: Any, recompute: Any, *, topology: str) -> Signature:
    signature = _right_signature_of(groups, recompute, topology=topology)
    is_short = requests.workload_of(groups, recompute).has_short_request
    return replace(signature, topology=topology + ("/short" if is_short else ""))


def _no_short_gate(workload: Workload) -> bool:
    return False


# --- wrong footprints ------------------------------------------------------------------------------------------------


def _footprint_ignored(wave: Wave, known: Profile, chosen: Any = rate_laws.WARM, safety: Any = None) -> int:
    return price.evidence_bytes(wave, known, chosen, safety or quantities.DEFAULT_SAFETY)


def _lower_of_two(wave: Wave, known: Profile, chosen: Any = rate_laws.WARM, safety: Any = None) -> int:
    safety = safety or quantities.DEFAULT_SAFETY
    return min(
        price.evidence_bytes(wave, known, chosen, safety), price.footprint_price_bytes(wave, known, chosen, safety)
    )


def _footprint_alone(wave: Wave, known: Profile, chosen: Any = rate_laws.WARM, safety: Any = None) -> int:
    return price.footprint_price_bytes(wave, known, chosen, safety or quantities.DEFAULT_SAFETY)


def _cold_factor_missing(wave: Wave, allocated: int) -> int:
    return allocated


def _cold_factor_rounded_down(wave: Wave, allocated: int) -> int:
    return allocated if wave.packed_rows == 0 else 4 * allocated // 3


def _failures_teach_nothing(known: Evidence, told: Reading) -> Evidence:
    return known if told.kind is ReadingKind.OUT_OF_MEMORY else _right_observe_footprint(known, told)


def _failures_are_whole_waves(known: Evidence, told: Reading) -> Evidence:
    is_failure = told.kind is ReadingKind.OUT_OF_MEMORY
    return _right_observe_footprint(known, replace(told, kind=ReadingKind.WHOLE_WAVE) if is_failure else told)


def _failures_wait_for_the_seed(known: Evidence, told: Reading) -> bool:
    return known.complete_readings >= 1


def _finished_waves_teach_no_footprint(known: Evidence, told: Reading) -> Evidence:
    return _right_observe_footprint(known, told) if told.kind is ReadingKind.OUT_OF_MEMORY else known


def _needed_what_was_available(*, available_bytes: int, reserved_bytes: int, requested_bytes: int) -> int:
    return max(1, available_bytes, reserved_bytes + requested_bytes)


def _needed_a_byte_more(*, available_bytes: int, reserved_bytes: int, requested_bytes: int) -> int:
    return max(available_bytes + 1, reserved_bytes + requested_bytes)


def _only_the_raise(*, available_bytes: int, reserved_bytes: int, requested_bytes: int) -> int:
    return max(1, quantities.ceil_div(17 * available_bytes, 16))


def _only_what_is_free_after_a_release(required_bytes: int, sample: budget.Budget) -> budget.BudgetVerdict:
    fits = budget.fits(required_bytes, sample.physical_bytes)
    return budget.BudgetVerdict.RUN if fits else budget.BudgetVerdict.REFUSE


def _released_beyond_the_process_limit(sample: budget.Budget, released_bytes: int) -> budget.Budget:
    return replace(
        sample,
        free_bytes=sample.free_bytes + released_bytes,
        reusable_cache_bytes=sample.reusable_cache_bytes - released_bytes,
    )


_right_observe_footprint = profile.observe_footprint


# --- wrong merging ---------------------------------------------------------------------------------------------------


def _last_writer_wins(one: Profile, other: Profile) -> Profile:
    return other


def _counts_added(one: Profile, other: Profile) -> Profile:
    merged = _right_merge(one, other)
    count = one.complete_readings + other.complete_readings
    return merged if count < 2 <= merged.complete_readings else replace(merged, complete_readings=count)


def _own_bands_only(one: Any, other: Any) -> Any:
    return one or other


def _own_sharing_of_equal(one: Sharing, other: Sharing) -> Sharing:
    higher = one.logical_rows * other.packed_rows >= other.logical_rows * one.packed_rows
    return one if higher else other


def _least_rate(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


_right_merge = merge.merge


def _highest_witness(one: Anchor, other: Anchor) -> Anchor:
    return one if one.compute_bytes * other.packed_rows >= other.compute_bytes * one.packed_rows else other


def _own_witness(one: Anchor, other: Anchor) -> Anchor:
    return one


def _incomplete_witness(known: Witnesses, told: Reading) -> Witnesses:
    whole = replace(told, kind=ReadingKind.WHOLE_WAVE)
    return _right_observe_witnesses(known, whole)


def _doubts_whatever_it_can(required_bytes: int, witnessed: int | None) -> bool:
    return witnessed is not None and required_bytes > witnessed


def _rows_in_falling_order(wave: Wave, known: Evidence, packed_priced: bool) -> int:
    return max(1, known.largest_packed_rows - wave.packed_rows)


def _kernel(name: str, mistake: str, caught_by: str, owner: object, attribute: str, wrong: object) -> WrongKernel:
    return WrongKernel(name=name, mistake=mistake, caught_by=caught_by, patches={(owner, attribute): wrong})


def _getter(function: Callable[[Any], object]) -> property:
    return property(function)


WRONG_KERNELS: tuple[WrongKernel, ...] = (
    _kernel(
        "size_gate_instead_of_floor",
        "the warm rate prices only waves from the warm floor on, so the price drops there",
        "price_never_falls_with_packed_rows",
        rate_laws,
        "model_bytes",
        _warm_from_the_floor_only,
    ),
    _kernel(
        "warm_instead_of_least",
        "the warm term replaces the all-readings term even where it is higher",
        "warm_fit_never_raises",
        rate_laws,
        "model_bytes",
        _warm_instead_of_least,
    ),
    _kernel(
        "rates_in_doubles",
        "the all-readings term in floating point",
        "clamp_is_exact",
        rate_laws,
        "all_readings_bytes",
        _all_readings_in_doubles,
    ),
    _kernel(
        "safety_in_doubles",
        "the safety factor as a double, truncated",
        "safety_is_tight",
        quantities,
        "with_safety",
        _safety_in_doubles,
    ),
    _kernel(
        "clamp_missing",
        "packed rows alone, however far the sharing is beyond the evidence",
        "clamp_is_exact",
        rate_laws,
        "sharing_rows",
        _clamp_missing,
    ),
    _kernel(
        "clamp_everywhere",
        "the rows that sharing implies, even below the packed rows",
        "clamp_is_exact",
        rate_laws,
        "sharing_rows",
        _clamp_everywhere,
    ),
    _kernel(
        "reach_rounded_down",
        "implied rows rounded down instead of up",
        "clamp_is_exact",
        rate_laws,
        "sharing_rows",
        _reach_rounded_down,
    ),
    _kernel(
        "cross_product_of_maxima",
        "the highest rate times the largest size ever seen",
        "clamp_is_exact",
        rate_laws,
        "all_readings_bytes",
        _cross_product_of_maxima,
    ),
    _kernel(
        "warm_floor_missing",
        "the warm rate through the origin, below the smallest warm wave too",
        "warm_floor_holds",
        rate_laws,
        "warm_rows",
        _warm_rows_without_floor,
    ),
    _kernel(
        "segments_uncharged",
        "recurrent states of segments cost nothing",
        "charges_are_exact",
        rate_laws,
        "charge_bytes",
        _no_segment_charge,
    ),
    _kernel(
        "packed_rows_charged",
        "head and caller memory charged by packed instead of logical rows",
        "charges_are_exact",
        rate_laws,
        "charge_bytes",
        _packed_rows_charged,
    ),
    _kernel(
        "segments_charged_only_where_rows_are_shared",
        "the unshared layout, an upper bound, pays for no segment",
        "bounds_enclose_the_price",
        rate_laws,
        "charge_bytes",
        _segments_charged_only_where_rows_are_shared,
    ),
    _kernel(
        "known_sharing_discounts_rows",
        "packed rows divided by the sharing seen, so that learning more sharing cheapens every plan",
        "more_sharing_never_cheapens",
        rate_laws,
        "sharing_rows",
        _known_sharing_discounts_rows,
    ),
    _kernel(
        "drifting_margin",
        "a price that depends on how many were asked for before",
        "replay_is_identical",
        quantities,
        "with_safety",
        _DriftingMargin(),
    ),
    _kernel(
        "charges_left_out_of_the_explanation",
        "the explained price forgets the charges that the hot path adds",
        "parts_add_up",
        price,
        "_floored",
        _charges_left_out_of_the_explanation,
    ),
    _kernel(
        "safety_truncated",
        "truncation instead of rounding up",
        "safety_is_tight",
        quantities,
        "with_safety",
        _safety_truncated,
    ),
    _kernel(
        "nothing_to_run_pays_the_floor",
        "a wave without rows is charged the static floor",
        "safety_is_tight",
        price,
        "evidence_bytes",
        _nothing_to_run_pays_the_floor,
    ),
    _kernel(
        "floor_added",
        "the static floor added to the learned compute instead of compared with it",
        "safety_is_tight",
        price,
        "_floored_compute_bytes",
        _floor_added,
    ),
    _kernel(
        "cold_is_free",
        "the floor forgotten without a profile",
        "safety_is_tight",
        price,
        "_floored_compute_bytes",
        _cold_is_free,
    ),
    _kernel(
        "retained_uncapped",
        "retained bytes not capped by required bytes",
        "retained_is_never_above_required",
        price,
        "_capped_retained_bytes",
        _retained_uncapped,
    ),
    _kernel(
        "window_edge_outside",
        "`<` for `<=` at the size window",
        "retained_is_the_formula_inside_the_windows",
        rate_laws,
        "is_retained_trusted",
        _window_edge_outside,
    ),
    _kernel(
        "window_one_row_wider",
        "the size window one row too wide",
        "retained_is_required_outside_the_windows",
        rate_laws,
        "is_retained_trusted",
        _window_one_row_wider,
    ),
    _kernel(
        "no_sharing_window",
        "retained trusted at any sharing",
        "retained_is_required_outside_the_windows",
        rate_laws,
        "is_retained_trusted",
        _no_sharing_window,
    ),
    _kernel(
        "rate_floor_in_eligibility",
        "packed pricing only from a learned rate on",
        "eligibility_asks_facts_only",
        law,
        "ineligibility",
        _rate_floor_in_eligibility,
    ),
    _kernel(
        "no_short_gate",
        "short requests packed-priced",
        "short_request_changes_eligibility_not_identity",
        Workload,
        "has_short_request",
        _getter(_no_short_gate),
    ),
    _kernel(
        "pending_rate_dropped",
        "a high reading between the seed and the first warm wave is lost",
        "second_complete_reading_makes_the_warm_fit",
        profile,
        "observe",
        _pending_rate_dropped,
    ),
    _kernel(
        "first_wave_warm",
        "the seed's one-time costs enter the warm rate",
        "first_complete_reading_is_the_seed",
        profile,
        "observe",
        _first_wave_warm,
    ),
    _kernel(
        "warm_floor_rises",
        "the warm floor kept as a maximum",
        "observing_only_ratchets",
        profile,
        "observe",
        _warm_floor_rises,
    ),
    _kernel(
        "incomplete_teaches_no_rate",
        "only complete readings raise the all-readings rate",
        "all_readings_term_covers",
        profile,
        "observe",
        _incomplete_teaches_no_rate,
    ),
    _kernel(
        "incomplete_raises_no_warm_rate",
        "an incomplete reading after the seed does not raise the warm rate",
        "later_reading_stays_covered",
        profile,
        "observe",
        _incomplete_raises_no_warm_rate,
    ),
    _kernel(
        "incomplete_extends_the_warm_fit",
        "an incomplete reading lowers the warm floor",
        "incomplete_reading_never_completes",
        profile,
        "observe",
        _incomplete_extends_the_warm_fit,
    ),
    _kernel(
        "last_rate_wins",
        "the warm rate is that of the last reading",
        "order_does_not_matter",
        profile,
        "observe",
        _last_rate_wins,
    ),
    _kernel(
        "last_of_equal_sharing_kept",
        "of equal sharing ratios the last pair is kept",
        "order_does_not_matter",
        quantities,
        "more_sharing",
        _last_of_equal_sharing_kept,
    ),
    _kernel(
        "unseen_retained_is_zero",
        "retained bytes that nobody read count as none",
        "coverage_is_tight",
        profile,
        "_retained_rate",
        _unseen_retained_is_zero,
    ),
    _kernel(
        "highest_witness_kept",
        "of two complete readings the dearer is the witness, so one that paid a one-time cost hides all others",
        "complete_reading_is_a_witness",
        bands,
        "lower_anchor",
        _highest_witness,
    ),
    _kernel(
        "incomplete_witness",
        "a reading that missed the peak says what a wave needs",
        "complete_reading_is_a_witness",
        bands,
        "observe_witnesses",
        _incomplete_witness,
    ),
    _kernel(
        "own_witness_wins",
        "of two processes' witnesses each keeps its own",
        "witnesses_merge_in_any_order",
        bands,
        "lower_anchor",
        _own_witness,
    ),
    _kernel(
        "doubts_whatever_it_can",
        "every price that a witness undercuts is doubted, at the edge of the device too",
        "only_a_doubled_price_is_doubted",
        liveness,
        "stands_against",
        _doubts_whatever_it_can,
    ),
    _kernel(
        "fewer_rows_for_more",
        "a witness is asked about the rows that a wave lacks instead of those it has",
        "witnessed_never_falls",
        liveness,
        "trusted_rows",
        _rows_in_falling_order,
    ),
    _kernel(
        "rate_truncated",
        "a rate rounded down lies under its own evidence",
        "all_readings_term_covers",
        Reading,
        "peak_bytes_per_row",
        _getter(_rate_truncated),
    ),
    _kernel(
        "output_not_subtracted",
        "requested outputs counted as model memory, then charged again",
        "coverage_is_tight",
        Reading,
        "compute_bytes",
        _getter(_output_not_subtracted),
    ),
    _kernel(
        "retained_above_the_peak",
        "more retained than the peak",
        "profile_stays_reachable",
        Reading,
        "retained_compute_bytes",
        _getter(_retained_above_the_peak),
    ),
    _kernel(
        "every_forward_complete",
        "a forward's reading lowers prices although backward was never seen",
        "incomplete_reading_never_completes",
        Reading,
        "is_complete",
        _getter(_every_forward_complete),
    ),
    _kernel(
        "interrupted_complete",
        "an interrupted wave lowers prices",
        "incomplete_reading_never_completes",
        Reading,
        "is_complete",
        _getter(_interrupted_complete),
    ),
    _kernel(
        "inactive_in_signature",
        "inactive requests are part of the signature",
        "inactive_requests_change_nothing",
        RequestGroup,
        "active",
        _getter(_all_requests),
    ),
    _kernel(
        "short_flag_in_identity",
        "a short batch starts a cold profile of its own",
        "short_request_changes_eligibility_not_identity",
        requests,
        "signature_of",
        _short_flag_in_identity,
    ),
    _kernel(
        "last_writer_wins",
        "the later of two processes that share a file replaces what the other learned",
        "merging_does_not_depend_on_order",
        merge,
        "merge",
        _last_writer_wins,
    ),
    _kernel(
        "counts_added",
        "readings that both processes had loaded are counted again at every save, and two seeds pass for a warm fit",
        "merging_again_changes_nothing",
        merge,
        "merge",
        _counts_added,
    ),
    _kernel(
        "own_bands_only",
        "bands that the other process has are left out",
        "merging_does_not_depend_on_order",
        merge,
        "merge_bands",
        _own_bands_only,
    ),
    _kernel(
        "own_sharing_of_equal",
        "of equal sharing ratios each process keeps its own pair",
        "merging_does_not_depend_on_order",
        merge,
        "merge_sharing",
        _own_sharing_of_equal,
    ),
    _kernel(
        "least_rate_merged",
        "a merged warm or retained rate is the lower one",
        "what_grew_from_a_profile_absorbs_it",
        merge,
        "_larger",
        _least_rate,
    ),
    _kernel(
        "footprint_ignored",
        "the price of what is allocated alone: 64 of 77 waves ran out of memory by it",
        "required_is_the_higher_price",
        price,
        "required_bytes",
        _footprint_ignored,
    ),
    _kernel(
        "lower_of_two_prices",
        "the minimum of the two prices for their maximum",
        "required_is_the_higher_price",
        price,
        "required_bytes",
        _lower_of_two,
    ),
    _kernel(
        "footprint_alone",
        "the footprint's price alone, though its evidence may be older than that of what is allocated",
        "required_is_the_higher_price",
        price,
        "required_bytes",
        _footprint_alone,
    ),
    _kernel(
        "cold_factor_missing",
        "without a footprint the allocated price is taken for one",
        "footprint_is_priced_as_what_is_allocated",
        price,
        "cold_footprint_bytes",
        _cold_factor_missing,
    ),
    _kernel(
        "cold_factor_rounded_down",
        "the cold factor truncates",
        "footprint_is_priced_as_what_is_allocated",
        price,
        "cold_footprint_bytes",
        _cold_factor_rounded_down,
    ),
    _kernel(
        "footprints_of_failures_only",
        "waves that finished teach no footprint",
        "a_footprint_teaches_both",
        profile,
        "observe_footprint",
        _finished_waves_teach_no_footprint,
    ),
    _kernel(
        "failures_teach_nothing",
        "a wave that ran out of memory is forgotten, and planned again",
        "failed_wave_is_never_admitted_again",
        profile,
        "observe_footprint",
        _failures_teach_nothing,
    ),
    _kernel(
        "failures_wait_for_the_seed",
        "what ran out of memory before the seed stays out of the warm fit, which then forgets it",
        "failed_wave_is_never_admitted_again",
        profile,
        "is_after_seed",
        _failures_wait_for_the_seed,
    ),
    _kernel(
        "failures_complete_the_warm_fit",
        "a wave that ran out of memory passes for one that was seen to its end",
        "a_footprint_teaches_both",
        profile,
        "observe_footprint",
        _failures_are_whole_waves,
    ),
    _kernel(
        "failed_wave_needed_what_was_available",
        "a failed wave is taken to need what it had, so it is admitted into the same bytes again",
        "failure_is_above_what_was_available",
        reading,
        "out_of_memory_footprint_bytes",
        _needed_what_was_available,
    ),
    _kernel(
        "failed_wave_needed_a_byte_more",
        "each failure raises the price by one byte, so a run fails for ever",
        "each_failure_raises_the_price",
        reading,
        "out_of_memory_footprint_bytes",
        _needed_a_byte_more,
    ),
    _kernel(
        "failed_wave_as_narrow_as_a_row",
        "the same, seen from the next plan: it is one row narrower",
        "narrower_waves_stay_dear",
        reading,
        "out_of_memory_footprint_bytes",
        _needed_a_byte_more,
    ),
    _kernel(
        "what_the_allocator_asked_for_is_ignored",
        "a failed wave is raised by 1/16, although the allocator said by how much it lacked more",
        "failure_is_above_what_was_available",
        reading,
        "out_of_memory_footprint_bytes",
        _only_the_raise,
    ),
    _kernel(
        "admission_counts_what_is_free",
        "a plan counts idle cache, admission after the release counts what is free: the same wave is planned for ever",
        "plan_is_admitted",
        budget,
        "judge_after_release",
        _only_what_is_free_after_a_release,
    ),
    _kernel(
        "a_release_forgets_the_process_limit",
        "what went back to the driver is not counted as what the process may take again",
        "plan_is_admitted",
        budget.Budget,
        "after_release",
        _released_beyond_the_process_limit,
    ),
)
