"""Every wrong planner is caught by the test it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pricing.planner.row_shapes import RowShape
from pricing.planner.tokens import NumpyTokens
from pricing.testing import reachable_profiles, safeties
from tests.planner import (
    test_curve,
    test_most_rows,
    test_no_sharing,
    test_prefix_tree,
    test_split,
    test_vectorized,
    test_width_search,
)
from tests.planner.naive import items, training_items
from tests.properties import test_available
from tests.quality.wrong_kernels import WrongKernel, installed
from tests.quality.wrong_planners import WRONG_PLANNERS

SEARCH: Final = settings(
    max_examples=1_000,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

# Strategies of the property tests that a wrong planner names; tests that draw nothing are called as they are.
DRAWN: Final[Mapping[str, Mapping[str, st.SearchStrategy[Any]]]] = {
    "test_every_width_has_the_shape_of_its_requests": {
        "items": items,
        "multiple": test_curve.multiples,
        "data": st.data(),
    },
    "test_without_sharing_a_batch_is_one_of_tokens_that_all_differ": {
        "items": items,
        "multiple": test_curve.multiples,
    },
    "test_rows_are_those_of_the_tensor": {
        "shape": st.sampled_from([RowShape.PADDED]),
        "rows": st.just(lambda lengths: len(lengths) * max(lengths)),
        "lengths": test_no_sharing.lengths.filter(bool),
        "data": st.data(),
    },
    "test_packs_every_prefix_once": {
        "rows": test_prefix_tree.rows_of_few_symbols,
        "tokens": st.just(NumpyTokens()),
    },
    "test_a_rung_costs_its_children_and_they_hold_every_request_once": {
        "items": training_items,
        "profile": test_split.ladder_profiles,
        "setting": test_split.ladder_settings,
        "law": test_width_search.laws,
        "budget": st.integers(0, 10**7),
    },
    "test_retained_lower_bound_is_one_for_every_layout": {
        "profile": reachable_profiles(),
        "law": test_width_search.laws,
        "data": st.data(),
    },
    "test_pruning_never_discards_a_rung_that_fits": {
        "items": items,
        "profile": test_split.ladder_profiles,
        "setting": test_split.ladder_settings,
        "law": test_width_search.laws,
    },
    "test_a_cut_has_the_least_largest_part_of_all_contiguous_cuts": {
        "items": training_items,
        "parts": st.integers(1, 6),
        "multiple": st.sampled_from([1, 64]),
    },
    "test_what_fits_the_plan_is_admitted": {
        "drawn": test_available.budgets_and_releases(),
        "beside": st.integers(-2, 2),
        "required": st.none(),
    },
    "test_equals_the_scalar_code_beyond_int64": {
        "columns": test_vectorized.candidate_columns((1 << 63) - 1),
        "profile": reachable_profiles(),
        "law": test_width_search.laws,
        "safety": safeties(),
        "state": st.sampled_from([0, 1, (1 << 63) - 1]),
    },
}

TESTS: Final[Mapping[str, Callable[..., None]]] = {
    name: test
    for module in (
        test_available,
        test_curve,
        test_most_rows,
        test_no_sharing,
        test_prefix_tree,
        test_split,
        test_vectorized,
        test_width_search,
    )
    for name, test in vars(module).items()
    if name.startswith("test_")
}


@pytest.mark.parametrize("planner", WRONG_PLANNERS, ids=lambda planner: planner.name)
def test_a_wrong_planner_is_caught(planner: WrongKernel) -> None:
    check = runnable(planner.caught_by)
    with installed(planner), numpy.errstate(all="ignore"), pytest.raises(AssertionError):
        check()


def runnable(name: str) -> Callable[[], None]:
    """The named test with nothing left to fill in, searching without shrinking."""
    test = TESTS[name]
    if name not in DRAWN:
        return test
    return SEARCH(given(**DRAWN[name])(test.hypothesis.inner_test))  # type: ignore[attr-defined]


def test_every_wrong_planner_is_its_own() -> None:
    names = [planner.name for planner in WRONG_PLANNERS]
    assert len(set(names)) == len(names) and all(planner.mistake for planner in WRONG_PLANNERS)
