"""The breaks: edits of the kernel's source that change what it says, and the items of the proofs that must turn red."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One edit: `before` stands exactly once in the file `path` and becomes `after`.

    proofs: names of theorems, lemmas, probes or checks of which one must come out otherwise than expected. values:
    tests of values, for definitions (a constant, a key) that no theorem can contradict.
    """

    name: str
    path: str
    before: str
    after: str
    proofs: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def made_in(self, source: str) -> str:
        count = source.count(self.before)
        assert count == 1, f"{self.name}: {self.before!r} stands {count} times in {self.path}, not once"
        return source.replace(self.before, self.after)


BREAKS: Final = (
    # The rate laws
    Break(
        name="warm_term_without_its_sharing_clamp",
        path="pricing/kernel/rate_laws.py",
        before="return maximum(floor_rows, sharing_rows(wave.packed_rows, wave.logical_rows, sharing, growth))",
        after="return maximum(floor_rows, wave.packed_rows)",
        proofs=("the_warm_term_has_the_fewest_rows_that_hold_its_floor_and_the_wave",),
    ),
    Break(
        name="k_of_two_where_not_packed_priced",
        path="pricing/kernel/rate_laws.py",
        before="UNPACKED_GROWTH: Final = 1",
        after="UNPACKED_GROWTH: Final = 2",
        proofs=("retained_bytes_are_the_stated_formula_inside_both_windows",),
    ),
    Break(
        name="ties_of_sharing_keep_the_pair_of_more_rows",
        path="pricing/kernel/quantities.py",
        before="(left == right and candidate_packed < than.packed_rows)",
        after="(left == right and candidate_packed > than.packed_rows)",
        proofs=("of_two_equal_sharings_the_pair_of_fewer_rows_is_kept",),
    ),
    Break(
        name="negative_counts_allowed",
        path="pricing/kernel/quantities.py",
        before='    if value < 0:\n        raise QuantityError(field, value, "must be at least 0")',
        after='    if value < -5:\n        raise QuantityError(field, value, "must be at least 0")',
        proofs=("no_count_below_zero_is_accepted",),
    ),
    Break(
        name="a_warm_rate_may_be_above_the_rate",
        path="pricing/kernel/profile.py",
        before="    if warm is not None and warm > rate:",
        after="    if False:",
        proofs=("every_clause_of_a_reachable_profile",),
    ),
    Break(
        name="one_convolution_step_too_many",
        path="pricing/kernel/wave.py",
        before="(geometry.conv_kernel - 1)",
        after="geometry.conv_kernel",
        proofs=("a_convolution_of_one_step_keeps_no_history",),
    ),
    Break(
        name="an_empty_wave_may_have_segments",
        path="pricing/kernel/wave.py",
        before="if wave.packed_rows == 0 and (wave.logical_rows > 0 or wave.grad_segments > 0):",
        after="if wave.packed_rows == 0 and wave.logical_rows > 0:",
        proofs=("a_wave_of_no_packed_rows_has_nothing_else_to_run",),
    ),
    Break(
        name="top_k_left_out_of_the_mix_key",
        path="pricing/kernel/requests.py",
        before="    if request.top_k is not None:\n        parts.append",
        after="    if False:\n        parts.append",
        proofs=("what_a_request_asks_for_is_told_apart_by_its_mix",),
    ),
    # Frontier evidence
    Break(
        name="incomplete_readings_become_anchors",
        path="pricing/kernel/bands.py",
        before="bounds=reading.is_complete)",
        after="bounds=True)",
        proofs=("an_incomplete_reading_makes_no_anchor_of_peaks_and_is_covered",),
    ),
    Break(
        name="the_rate_of_a_cover_rounded_down",
        path="pricing/kernel/bands.py",
        before="bytes_per_row=ceil_div(compute_bytes, reading.packed_rows)",
        after="bytes_per_row=compute_bytes // reading.packed_rows",
        proofs=("a_reading_s_own_band_says_what_the_reading_said",),
    ),
    Break(
        name="interrupted_retained_readings_bound",
        path="pricing/kernel/bands.py",
        before="return reading.kind not in (ReadingKind.INTERRUPTED, ReadingKind.OUT_OF_MEMORY)",
        after="return True",
        proofs=("what_the_retained_bytes_of_a_reading_may_bound",),
    ),
    Break(
        name="the_seed_teaches_bands",
        path="pricing/kernel/bands.py",
        before="if not seed_seen or reading.packed_rows == 0:",
        after="if reading.packed_rows == 0:",
        proofs=("the_seed_and_what_comes_before_it_teach_no_band",),
    ),
    Break(
        name="a_join_replaces_a_band",
        path="pricing/kernel/bands.py",
        before="(*bands[:place], joined(bands[place], fresh), *bands[place + 1 :])",
        after="(*bands[:place], fresh, *bands[place + 1 :])",
        proofs=("a_join_changes_one_place_of_sorted_bands_and_keeps_what_was_there",),
    ),
    Break(
        name="incomplete_readings_are_not_covered",
        path="pricing/kernel/bands.py",
        before="    if compute_bytes == 0:\n        return bands",
        after="    if compute_bytes == 0 or not bounds:\n        return bands",
        proofs=("an_incomplete_reading_makes_no_anchor_of_peaks_and_is_covered",),
    ),
    # The frontier law
    Break(
        name="a_lift_skips_too_much",
        path="pricing/kernel/frontier.py",
        before="if cover.compute_bytes > compute and cover.bytes_per_row * bound.packed_rows > compute:",
        after="if cover.compute_bytes > 2 * compute and cover.bytes_per_row * bound.packed_rows > compute:",
        proofs=("a_bound_is_lifted_to_the_most_that_any_cover_asks_for",),
    ),
    Break(
        name="a_lift_from_the_bounds_own_compute_each_time",
        path="pricing/kernel/frontier.py",
        before="compute = maximum(compute, lifted_bytes(bound, cover))",
        after="compute = lifted_bytes(bound, cover)",
        proofs=("a_bound_is_lifted_to_the_most_that_any_cover_asks_for",),
    ),
    Break(
        name="padding_counts_for_nothing",
        path="pricing/kernel/frontier.py",
        before="if charge_bytes is None and anchor.logical_rows < anchor.packed_rows:",
        after="if False:",
        proofs=("padding_counts_as_logical_rows_where_there_are_no_charges",),
    ),
    Break(
        name="the_search_above_stops_too_early",
        path="pricing/kernel/frontier.py",
        before="if 0 <= least <= bound.compute_bytes:",
        after="if 0 <= least <= 2 * bound.compute_bytes:",
        proofs=("the_search_finds_the_least_of_all_bounds",),
    ),
    Break(
        name="the_search_below_stops_too_early",
        path="pricing/kernel/frontier.py",
        before="if 0 <= least * bound.packed_rows <= bound.compute_bytes * packed_rows:",
        after="if 0 <= least * bound.packed_rows <= 2 * bound.compute_bytes * packed_rows:",
        proofs=("the_search_finds_the_least_of_all_bounds",),
    ),
    Break(
        name="a_front_drops_the_wrong_one",
        path="pricing/kernel/frontier.py",
        before="if not any(nowhere_above(kept, bound) for kept in front):",
        after="if not any(nowhere_above(bound, kept) for kept in front):",
        proofs=("a_front_keeps_one_that_is_nowhere_above_each_it_drops",),
    ),
    # Whole functions, the planner, the twin
    Break(
        name="a_join_loses_a_band_behind_a_new_one",
        path="pricing/kernel/bands.py",
        before="return (*bands[:place], fresh, *bands[place:])",
        after="return (*bands[:place], fresh, *bands[place + 1 :])",
        proofs=("a_join_into_any_number_of_bands_changes_the_band_of_its_reading_alone",),
    ),
    Break(
        name="retained_bytes_bound_where_peaks_do",
        path="pricing/kernel/bands.py",
        before="bounds=is_retained_whole(reading))",
        after="bounds=reading.is_complete)",
        proofs=("observing_joins_a_reading_into_both_bodies_of_any_number_of_bands",),
    ),
    Break(
        name="a_new_bound_empties_the_front",
        path="pricing/kernel/frontier.py",
        before="front = (*(kept for kept in front if not nowhere_above(bound, kept)), bound)",
        after="front = (bound,)",
        proofs=("one_more_bound_leaves_a_front_in_which_each_dropped_one_has_another_below_it",),
    ),
    Break(
        name="a_gallop_gives_up_where_it_should_bisect",
        path="pricing/planner/width_search.py",
        before="return _bisect(answer, width, feasible)",
        after="return answer",
        proofs=("the_width_search_finds_the_widest_whatever_the_number_of_widths",),
    ),
    Break(
        name="a_new_regime_is_not_asked_for_its_first_width",
        path="pricing/planner/width_search.py",
        before="if not curve.reaches(first) or not feasible(first):",
        after="if not curve.reaches(first):",
        proofs=("the_width_search_finds_the_widest_whatever_the_number_of_widths",),
    ),
    Break(
        name="a_bisection_ends_one_too_early",
        path="pricing/planner/width_search.py",
        before="while high - low > 1:",
        after="while high - low > 2:",
        proofs=("a_bisection_halves_what_is_open_and_ends_where_nothing_is",),
    ),
    Break(
        name="a_rung_adds_the_least_of_what_its_children_add",
        path="pricing/planner/split.py",
        before="return retained + max(child.required_bytes - child.retained_bytes for child in children)",
        after="return retained + min(child.required_bytes - child.retained_bytes for child in children)",
        proofs=("a_rung_costs_a_child_at_its_peak_beside_what_all_others_retain",),
    ),
    Break(
        name="a_rung_is_pruned_by_the_rows_of_one_child_fewer",
        path="pricing/planner/split.py",
        before="rows = ceil_div(self._whole.shared_rows, subforwards)",
        after="rows = ceil_div(self._whole.shared_rows, subforwards - 1)",
        proofs=("the_shipped_rung_fits_exactly_where_its_cost_does_pruned_or_not",),
    ),
    Break(
        name="a_rung_is_pruned_by_what_every_child_retains",
        path="pricing/planner/split.py",
        before="self._retained_of_least[subforwards - 1])",
        after="self._retained_of_least[subforwards])",
        proofs=("the_shipped_rung_fits_exactly_where_its_cost_does_pruned_or_not",),
    ),
    Break(
        name="a_rung_is_pruned_by_its_outputs_and_what_is_retained",
        path="pricing/planner/split.py",
        before="return required + max(self._whole.output_bytes, self._retained_of_least[subforwards - 1])",
        after="return required + self._whole.output_bytes + self._retained_of_least[subforwards - 1]",
        proofs=("the_shipped_rung_fits_exactly_where_its_cost_does_pruned_or_not",),
    ),
    Break(
        name="a_rung_forgets_what_an_identical_split_was_measured_at",
        path="pricing/planner/split.py",
        before="cost = split_cost_bytes(children, measured)",
        after="cost = split_cost_bytes(children, None)",
        proofs=("the_shipped_rung_fits_exactly_where_its_cost_does_pruned_or_not",),
    ),
    Break(
        name="the_ladder_goes_on_behind_a_rung_that_fits",
        path="pricing/planner/split.py",
        before="            if rung.fits:\n                break",
        after="            if rung.fits and subforwards > 2:\n                break",
        proofs=("the_ladder_climbs_every_rung_up_to_the_first_that_fits",),
    ),
    Break(
        name="the_arrays_take_the_floor_as_a_ceiling",
        path="pricing/vectorized.py",
        before="compute = use.maximum(floor, twin(",
        after="compute = use.minimum(floor, twin(",
        proofs=("an_element_of_the_arrays_is_priced_as_its_wave",),
    ),
    Break(
        name="the_arrays_charge_no_segments",
        path="pricing/vectorized.py",
        before="return use.seen(use.seen(model + logical_charge) + segment_charge)",
        after="return use.seen(model + logical_charge)",
        proofs=("an_element_of_the_arrays_is_priced_as_its_wave",),
    ),
    Break(
        name="an_intermediate_of_the_arrays_is_not_seen_in_full",
        path="pricing/vectorized.py",
        before="profile.peak_bytes_per_row * sharing_rows_seen(columns, profile.sharing",
        after="profile.peak_bytes_per_row - sharing_rows_seen(columns, profile.sharing",
        proofs=("no_intermediate_of_an_element_is_above_that_of_the_corner",),
    ),
)
