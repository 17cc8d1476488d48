"""The registry: every invariant, the predicates that state it, and the kernel functions it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pricing.contracts.available import plan_is_admitted
from pricing.contracts.frontier import (
    bound_never_falls,
    bound_per_row_never_rises,
    evidence_does_not_depend_on_order,
    evidence_stays_reachable,
    frontier_is_the_minimum,
    incomplete_reading_never_moves_a_bound,
    joined_cover_covers_both,
    lift_is_least,
    lifted_bound_covers,
    wider_cover_never_lowers_a_lift,
)
from pricing.contracts.liveness import (
    a_witness_changes_no_price,
    complete_reading_is_a_witness,
    only_a_doubled_price_is_doubted,
    witnessed_never_falls,
    witnesses_merge_in_any_order,
)
from pricing.contracts.merging import (
    merged_profile_is_reachable,
    merging_again_changes_nothing,
    merging_does_not_depend_on_grouping,
    merging_does_not_depend_on_order,
    merging_keeps_the_seed_out,
    what_grew_from_a_profile_absorbs_it,
)
from pricing.contracts.physical import (
    a_footprint_teaches_both,
    each_failure_raises_the_price,
    failed_footprint_stays_covered,
    failed_wave_is_never_admitted_again,
    failure_is_above_what_was_available,
    footprint_is_priced_as_what_is_allocated,
    narrower_waves_stay_dear,
    required_is_the_higher_price,
    required_never_falls,
)
from pricing.contracts.rates import (
    all_readings_term_covers,
    bounds_enclose_the_price,
    charges_are_exact,
    clamp_is_exact,
    coverage_is_tight,
    eligibility_asks_facts_only,
    first_complete_reading_is_the_seed,
    inactive_requests_change_nothing,
    incomplete_reading_never_completes,
    incomplete_reading_never_lowers,
    later_reading_stays_covered,
    more_sharing_never_cheapens,
    observing_only_ratchets,
    order_does_not_matter,
    parts_add_up,
    price_never_falls,
    price_never_falls_with_floor,
    price_never_falls_with_logical_rows,
    price_never_falls_with_outputs,
    price_never_falls_with_packed_rows,
    price_never_falls_with_segments,
    profile_stays_reachable,
    replay_is_identical,
    retained_is_never_above_required,
    retained_is_required_outside_the_windows,
    retained_is_the_formula_inside_the_windows,
    safety_is_tight,
    second_complete_reading_makes_the_warm_fit,
    short_request_changes_eligibility_not_identity,
    warm_fit_never_raises,
    warm_floor_holds,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """One invariant: what it says, the predicates that state it, and the functions it is about: of the kernel
    ("price.price"), or by their place in the package ("planner.budget.judge")."""

    statement: str
    predicates: tuple[Callable[..., bool], ...]
    functions: tuple[str, ...]


INVARIANTS: Final[Mapping[str, Invariant]] = MappingProxyType(
    {
        "INV-1": Invariant(
            statement="required never falls as packed rows grow, packed-priced or not",
            predicates=(price_never_falls_with_packed_rows, price_never_falls, bound_never_falls),
            functions=("price.required_bytes", "rate_laws.sharing_rows", "frontier.bound_bytes"),
        ),
        "INV-2": Invariant(
            statement="required never falls as logical rows, segments, outputs or the floor grow",
            predicates=(
                price_never_falls_with_logical_rows,
                price_never_falls_with_segments,
                price_never_falls_with_outputs,
                price_never_falls_with_floor,
                charges_are_exact,
                price_never_falls,
                bound_never_falls,
                frontier_is_the_minimum,
            ),
            functions=("price.required_bytes", "rate_laws.charge_bytes", "frontier.scaled_bytes"),
        ),
        "INV-3": Invariant(
            statement="price(full sharing, 0 segments) <= price(any layout) <= price(no sharing, 2 segments a request)",
            predicates=(bounds_enclose_the_price,),
            functions=("price.required_bytes",),
        ),
        "INV-4": Invariant(
            statement="the all-readings term is B*P up to k times the observed sharing and B*ceil(L/(k*r)) beyond",
            predicates=(clamp_is_exact,),
            functions=("rate_laws.all_readings_bytes", "rate_laws.sharing_rows"),
        ),
        "INV-5": Invariant(
            statement="learning more sharing alone never cheapens a plan within k times the older sharing",
            predicates=(more_sharing_never_cheapens,),
            functions=("rate_laws.sharing_rows", "rate_laws.model_bytes"),
        ),
        "INV-6": Invariant(
            statement="a wave below the warm floor is priced warm as if it were that large; no drop at the floor",
            predicates=(warm_floor_holds,),
            functions=("rate_laws.warm_bytes", "rate_laws.warm_rows"),
        ),
        "INV-7": Invariant(
            statement="the warm fit never raises a price; a profile without it prices as before",
            predicates=(warm_fit_never_raises,),
            functions=("rate_laws.model_bytes",),
        ),
        "INV-8": Invariant(
            statement="every reading is covered by the all-readings term, every one after the seed by the final price",
            predicates=(
                all_readings_term_covers,
                later_reading_stays_covered,
                coverage_is_tight,
                bound_per_row_never_rises,
                lifted_bound_covers,
                joined_cover_covers_both,
            ),
            functions=(
                "profile.observe",
                "rate_laws.all_readings_bytes",
                "rate_laws.warm_bytes",
                "frontier.lifted_bytes",
            ),
        ),
        "INV-9": Invariant(
            statement="learning only ratchets; incomplete readings never complete a fit and never lower a price",
            predicates=(
                profile_stays_reachable,
                observing_only_ratchets,
                first_complete_reading_is_the_seed,
                second_complete_reading_makes_the_warm_fit,
                incomplete_reading_never_completes,
                incomplete_reading_never_lowers,
                evidence_stays_reachable,
                incomplete_reading_never_moves_a_bound,
                wider_cover_never_lowers_a_lift,
                lift_is_least,
            ),
            functions=("profile.observe", "quantities.more_sharing", "bands.observe_bands"),
        ),
        "INV-10": Invariant(
            statement="after the seed the profile does not depend on the order of readings",
            predicates=(order_does_not_matter, evidence_does_not_depend_on_order),
            functions=("profile.observe", "bands.observe_bands"),
        ),
        "INV-11": Invariant(
            statement="retained is never above required, and equal to it outside either window",
            predicates=(
                retained_is_never_above_required,
                retained_is_required_outside_the_windows,
                retained_is_the_formula_inside_the_windows,
            ),
            functions=("price.retained_bytes", "rate_laws.is_retained_trusted"),
        ),
        "INV-12": Invariant(
            statement="sigma * (O + compute) <= required < that + 1",
            predicates=(safety_is_tight,),
            functions=("quantities.with_safety", "price.required_bytes"),
        ),
        "INV-13": Invariant(
            statement="inactive requests change nothing; a short request changes eligibility, never identity",
            predicates=(
                inactive_requests_change_nothing,
                short_request_changes_eligibility_not_identity,
                eligibility_asks_facts_only,
            ),
            functions=("requests.mix_key", "requests.workload_of", "requests.signature_of", "law.ineligibility"),
        ),
        "INV-14": Invariant(
            statement="same inputs, same bytes: a price replayed from its record is bit-identical",
            predicates=(replay_is_identical, parts_add_up),
            functions=("price.price", "price.required_bytes", "price.retained_bytes"),
        ),
        "INV-15": Invariant(
            statement="required is the higher of the allocated and the footprint price; the same laws price both",
            predicates=(
                required_is_the_higher_price,
                footprint_is_priced_as_what_is_allocated,
                required_never_falls,
                a_footprint_teaches_both,
            ),
            functions=("price.required_bytes", "price.footprint_price_bytes", "profile.observe"),
        ),
        "INV-16": Invariant(
            statement="what ran out of memory is never admitted again into as few bytes, nor what is as large",
            predicates=(failed_wave_is_never_admitted_again, failed_footprint_stays_covered),
            functions=("profile.observe_footprint", "profile.is_after_seed", "frontier.lifted_bytes"),
        ),
        "INV-17": Invariant(
            statement="what a plan counts as available is what admission counts: on an unchanged device it is admitted",
            predicates=(plan_is_admitted,),
            functions=("planner.budget.judge", "planner.budget.judge_after_release", "planner.budget.Budget"),
        ),
        "INV-18": Invariant(
            statement="each out-of-memory error raises the price by 1/16 at least: few come before what runs",
            predicates=(failure_is_above_what_was_available, each_failure_raises_the_price, narrower_waves_stay_dear),
            functions=("reading.out_of_memory_footprint_bytes", "price.required_bytes"),
        ),
        "INV-19": Invariant(
            statement="merging is commutative, associative, idempotent; a profile absorbs what it grew from",
            predicates=(
                merging_does_not_depend_on_order,
                merging_does_not_depend_on_grouping,
                merging_again_changes_nothing,
                what_grew_from_a_profile_absorbs_it,
                merged_profile_is_reachable,
                merging_keeps_the_seed_out,
            ),
            functions=("merge.merge", "merge.merge_sharing", "merge.merge_bands"),
        ),
        "INV-20": Invariant(
            statement="complete readings say of every wave what it needs at most; no price depends on it",
            predicates=(
                witnessed_never_falls,
                complete_reading_is_a_witness,
                a_witness_changes_no_price,
                only_a_doubled_price_is_doubted,
                witnesses_merge_in_any_order,
            ),
            functions=("liveness.witnessed_bytes", "liveness.stands_against", "bands.observe_witnesses"),
        ),
    }
)
