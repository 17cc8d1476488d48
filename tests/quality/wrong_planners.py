"""Wrong planners: mistakes that were made, or easily are, as patches of the shipped code.

Each names the test that must notice it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pricing.kernel.law import Law
from pricing.kernel.price import retained_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import Safety
from pricing.kernel.wave import Wave
from pricing.planner import budget, row_shapes, rules, split
from pricing.planner.batch import Batch
from pricing.planner.curve import Curve, Gathering
from pricing.planner.prefix_tree import PrefixTree
from pricing.planner.split import RungBounds, SplitChild
from pricing.planner.tokens import NumpyTokens
from pricing.vectorized import _TWINS, _Kernel
from tests.quality.wrong_kernels import WrongKernel


def _one_regime(self: Curve, width: int, at_most: int) -> int:
    self.shape(at_most)
    return at_most


def _strictly_below(required_bytes: int, available_bytes: int) -> bool:
    return available_bytes >= 0 and required_bytes < available_bytes


def _any_sign(required_bytes: int, available_bytes: int) -> bool:
    return required_bytes <= max(0, available_bytes)


def _only_what_is_free(required_bytes: int, sample: budget.Budget) -> budget.BudgetVerdict:
    fits = budget.fits(required_bytes, sample.physical_bytes)
    return budget.BudgetVerdict.RUN if fits else budget.BudgetVerdict.REFUSE


def _padded_together(self: Gathering, group: int, rows: int, length: int) -> None:
    held = self._group_rows.setdefault(group, [0, 0])
    held[0] += rows
    held[1] += length
    shared = sum(rows for rows, _ in self._group_rows.values())
    unshared = sum(length for _, length in self._group_rows.values())
    self.packed_rows = -(-shared // self._multiple) * self._multiple
    self.unshared_rows = -(-unshared // self._multiple) * self._multiple


def _tail_segments_only(self: Gathering, terminal: int, length: int) -> tuple[int, int]:
    rows, segments = _RIGHT_MARK_PATH(self, terminal, length)
    return rows, min(1, segments)


_RIGHT_MARK_PATH = Gathering._mark_path


def _only_beside_the_last(self: PrefixTree, row: Any, tail: int, depth: int) -> tuple[int, int]:
    return tail, self._tokens.first_difference(row, self._tail_row[tail], depth)


def _first_block_only(self: NumpyTokens, left: Any, right: Any, start: int, expected: int = 0) -> int:
    stop = min(len(left), len(right), start + 256)
    differs = left[start:stop] != right[start:stop]
    first = int(differs.argmax()) if stop > start else 0
    return start + first if stop > start and differs[first] else min(len(left), len(right))


def _without_the_other_children(children: Sequence[SplitChild]) -> int:
    return max(child.required_bytes for child in children)


def _retained_at_full_sharing(wave: Wave, profile: Profile, law: Law, safety: Safety) -> int:
    return retained_bytes(wave, profile, law, safety)


def _an_eager_bound(self: RungBounds, subforwards: int) -> int:
    return _RIGHT_BOUND(self, max(1, subforwards - 1))


_RIGHT_BOUND = RungBounds.lower_bound_bytes


def _cut_by_count(batch: Batch, ordered: Sequence[int], parts: int, row_multiple: int = 1) -> list[list[int]]:
    edges = [len(ordered) * part // parts for part in range(parts + 1)]
    return [list(ordered[low:high]) for low, high in zip(edges, edges[1:], strict=False)]  # noqa: RUF007


def _never_young(profile: Profile, *, learned: bool, over_budget: bool) -> bool:
    return False


def _always_young(profile: Profile, *, learned: bool, over_budget: bool) -> bool:
    return True


def _always_probes(**figures: object) -> bool:
    return True


def _sixteen_times(packed_rows: int, profile: Profile, *, learned: bool) -> bool:
    return packed_rows <= 16 * profile.largest_packed_rows or not learned


def _always_exact(self: _Kernel, *corner: int) -> bool:
    return self.profile.is_empty or type(self.law) in _TWINS


def _apart_by_length(self: Batch, requests: list[int]) -> None:
    """Requests of one length share all their rows."""
    nodes: dict[int, int] = {}
    for index in requests:
        length = self.lengths[index]
        if length and length not in nodes:
            nodes[length] = len(self.parents)
            self.parents.append(0)
            self.depths.append(length)
            self.sources.append(index)
        self.terminals[index] = nodes.get(length, 0)


def _padded_in_one_piece(rows: int, multiple: int) -> int:
    return rows // multiple * multiple


WRONG_PLANNERS = [
    WrongKernel(
        name="apart_by_length",
        mistake="lets requests of one length share rows where nothing is shared",
        caught_by="test_without_sharing_a_batch_is_one_of_tokens_that_all_differ",
        patches={(Batch, "_append_apart"): _apart_by_length},
    ),
    WrongKernel(
        name="padding_rounded_down",
        mistake="rounds the columns of a padded tensor down to their multiple",
        caught_by="test_rows_are_those_of_the_tensor",
        patches={(row_shapes, "_rounded"): _padded_in_one_piece},
    ),
    WrongKernel(
        name="a_budget_of_fewer_rows",
        mistake="leaves out the number of rows whose price is the budget itself",
        caught_by="test_a_price_that_is_the_budget_fits",
        patches={(budget, "fits"): _strictly_below},
    ),
    WrongKernel(
        name="one_regime",
        mistake="bisects over all widths although the price may drop where a short request joins",
        caught_by="test_a_short_request_ends_a_regime_and_may_lower_the_price",
        patches={(Curve, "last_width_of_regime"): _one_regime},
    ),
    WrongKernel(
        name="strict_budget",
        mistake="equality does not fit",
        caught_by="test_equality_fits_and_a_negative_budget_refuses",
        patches={(budget, "fits"): _strictly_below},
    ),
    WrongKernel(
        name="negative_budget_as_zero",
        mistake="clamps a negative budget to 0, where a wave of nothing fits",
        caught_by="test_equality_fits_and_a_negative_budget_refuses",
        patches={(budget, "fits"): _any_sign},
    ),
    WrongKernel(
        name="free_alone_after_a_release",
        mistake="counts idle pieces when it plans and not when it admits",
        caught_by="test_what_fits_the_plan_is_admitted",
        patches={(budget, "judge_after_release"): _only_what_is_free},
    ),
    WrongKernel(
        name="padded_together",
        mistake="rounds the sum of groups up once instead of each group",
        caught_by="test_each_group_is_padded_on_its_own",
        patches={(Gathering, "_grow_group"): _padded_together},
    ),
    WrongKernel(
        name="tail_segments_only",
        mistake="counts a new branch but not the cut of the run it leaves",
        caught_by="test_every_width_has_the_shape_of_its_requests",
        patches={(Gathering, "_mark_path"): _tail_segments_only},
    ),
    WrongKernel(
        name="only_beside_the_last",
        mistake="shares a row only with the one before it",
        caught_by="test_packs_every_prefix_once",
        patches={(PrefixTree, "_descend"): _only_beside_the_last},
    ),
    WrongKernel(
        name="first_block_only",
        mistake="compares the first block and takes the rest for equal",
        caught_by="test_long_rows_that_part_late_and_early",
        patches={(NumpyTokens, "first_difference"): _first_block_only},
    ),
    WrongKernel(
        name="double_trust",
        mistake="trusts twice the growth",
        caught_by="test_trust_growth_limits_the_rows_and_takes_equality",
        patches={(rules, "is_trusted"): _sixteen_times},
    ),
    WrongKernel(
        name="rung_without_retained",
        mistake="forgets what the other children of a split hold",
        caught_by="test_a_rung_costs_its_children_and_they_hold_every_request_once",
        patches={(split, "rung_cost_bytes"): _without_the_other_children},
    ),
    WrongKernel(
        name="retained_at_full_sharing",
        mistake="takes retained at full sharing for a lower bound over layouts",
        caught_by="test_retained_lower_bound_is_one_for_every_layout",
        patches={(split, "retained_lower_bound_bytes"): _retained_at_full_sharing},
    ),
    WrongKernel(
        name="eager_bound",
        mistake="prunes a rung by the bound of the one before it",
        caught_by="test_pruning_never_discards_a_rung_that_fits",
        patches={(RungBounds, "lower_bound_bytes"): _an_eager_bound},
    ),
    WrongKernel(
        name="cut_by_count",
        mistake="cuts into equal numbers of requests",
        caught_by="test_a_cut_has_the_least_largest_part_of_all_contiguous_cuts",
        patches={(split, "cut"): _cut_by_count},
    ),
    WrongKernel(
        name="never_probes",
        mistake="one tiny first wave refuses every later item",
        caught_by="test_a_young_profile_probes_what_its_learned_term_alone_refuses",
        patches={(rules, "is_young"): _never_young},
    ),
    WrongKernel(
        name="always_probes",
        mistake="runs over the budget what evidence refuses",
        caught_by="test_a_young_profile_probes_what_its_learned_term_alone_refuses",
        patches={(rules, "is_young"): _always_young, (rules, "may_probe"): _always_probes},
    ),
    WrongKernel(
        name="unchecked_overflow",
        mistake="prices in int64 without asking whether it holds the largest corner",
        caught_by="test_equals_the_scalar_code_beyond_int64",
        patches={(_Kernel, "is_exact_at"): _always_exact},
    ),
]
