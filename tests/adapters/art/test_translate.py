"""The ART adapter's translations, on records of ART's shape: ART itself is not needed (`tests/art` runs against it)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.art import ArtBindingError, ArtInterfaceError, bind, unbind
from adapters.art.translate import (
    adopted_profile,
    floor_bytes,
    reading_of,
    recompute_mode,
    signature_of,
    workload_of,
)
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import Sharing
from pricing.kernel.reading import ReadingKind
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, RecomputeMode


@dataclass(frozen=True, kw_only=True)
class Original:
    """A signature as ART keeps it."""

    topology: tuple[int, int, int, int] = (1, 1, 1, 1)
    planner_coefficients: tuple[int, str | None] = (1, None)
    slot_group_count: int = 1
    request_mix: tuple[str, ...] = ("target:single",)
    grad_enabled: bool = True
    grad_modes: tuple[bool, ...] = (True,)
    slot_shapes: tuple[object, ...] = ()
    short_requests: bool = False


DISTINCT = (
    Original(),
    Original(topology=(1, 2, 1, 1)),
    Original(planner_coefficients=(2, "table")),
    Original(slot_group_count=3, grad_modes=(False, True, True)),
    Original(slot_group_count=3, grad_modes=(False, False, True)),
    Original(request_mix=("inactive", "target:single")),
    Original(request_mix=("target:(4,)",)),
    Original(slot_shapes=((True, ((8, 64),)),)),
    Original(slot_shapes=((True, ((16, 64),)),)),
)


def test_different_signatures_stay_different_and_equal_ones_equal() -> None:
    translated = [signature_of(original, ONE_LAYER_FULL) for original in DISTINCT]
    assert all(left != right for left, right in itertools.combinations(translated, 2))
    assert translated == [signature_of(original, ONE_LAYER_FULL) for original in DISTINCT]


def test_the_recompute_mode_is_part_of_identity_and_the_short_flag_is_not() -> None:
    assert signature_of(Original(), ONE_LAYER_FULL) != signature_of(Original(), NO_RECOMPUTE)
    short = Original(short_requests=True)
    assert signature_of(short, ONE_LAYER_FULL) == signature_of(Original(), ONE_LAYER_FULL)
    assert workload_of(short, ONE_LAYER_FULL).has_short_request
    assert not workload_of(Original(), ONE_LAYER_FULL).has_short_request


@pytest.mark.parametrize(
    ("settings", "one_layer", "expected"),
    [
        (("full", "uniform", 1), True, ONE_LAYER_FULL),
        (
            ("full", "uniform", 1),
            False,
            RecomputeMode(granularity="full", method="uniform", num_layers=1, training=False),
        ),
        (("full", "uniform", 2), False, RecomputeMode(granularity="full", method="uniform", num_layers=2)),
        (("selective", None, None), False, RecomputeMode(granularity="selective")),
        ((None, None, None), False, NO_RECOMPUTE),
    ],
)
def test_the_recompute_mode_is_one_layer_exactly_where_ART_says_so(
    settings: tuple[Any, Any, Any], one_layer: bool, expected: RecomputeMode
) -> None:
    rank = SimpleNamespace(
        _recompute_granularity=settings[0], _recompute_method=settings[1], _recompute_num_layers=settings[2]
    )
    mode = recompute_mode(rank, one_layer)
    assert mode == expected
    assert mode.is_one_layer_full is one_layer


def plan(**changes: int) -> Any:
    facts = {"packed_tokens": 10, "active_logical_tokens": 30, "grad_segment_count": 2, "output_bytes": 100}
    return SimpleNamespace(**{**facts, **changes}, signature=Original())


@pytest.mark.parametrize(
    ("caller_phase", "retained", "split_child", "kind"),
    [
        (True, None, False, ReadingKind.WHOLE_WAVE),
        (False, 500, False, ReadingKind.FORWARD_ONLY),
        (False, None, False, ReadingKind.INTERRUPTED),
        (False, 500, True, ReadingKind.SPLIT_CHILD),
    ],
)
def test_a_reading_is_complete_exactly_where_ART_says_so(
    caller_phase: bool, retained: int | None, split_child: bool, kind: ReadingKind
) -> None:
    reading = reading_of(plan(), 900, retained, caller_phase=caller_phase, split_child=split_child)
    assert reading.kind is kind
    assert reading.is_complete is caller_phase
    assert (reading.packed_rows, reading.logical_rows, reading.grad_segments) == (10, 30, 2)
    assert (reading.output_bytes, reading.peak_delta_bytes, reading.retained_bytes) == (100, 900, retained)


def test_a_whole_wave_of_no_compute_is_interrupted() -> None:
    reading = reading_of(plan(), 100, None, caller_phase=True, split_child=False)
    assert reading.kind is ReadingKind.INTERRUPTED and not reading.is_complete


@given(st.integers(0, 1 << 44), st.integers(0, 1 << 40))
def test_a_floor_is_read_back_exactly_from_an_estimate(floor: int, outputs: int) -> None:
    assert floor_bytes(int((outputs + floor) * 1.10), outputs) == floor


def test_an_adopted_profile_rounds_rates_up_and_finds_the_pair_of_a_ratio() -> None:
    learned = SimpleNamespace(
        bytes_per_token=459_781.2,
        packed_tokens=16_385,
        logical_per_packed=131_585 / 16_385,
        retained_compute_bytes_per_token=10.0,
        warm_bytes_per_token=323_000.5,
        warm_packed_tokens=4_000,
        warm_logical_per_packed=1.0,
        caller_plans=3,
    )
    assert adopted_profile(learned) == Profile(
        peak_bytes_per_row=459_782,
        largest_packed_rows=16_385,
        sharing=Sharing(logical_rows=131_585 // 5, packed_rows=16_385 // 5),
        retained_bytes_per_row=10,
        complete_readings=3,
        warm_bytes_per_row=323_001,
        warm_packed_rows=4_000,
        warm_sharing=Sharing(logical_rows=1, packed_rows=1),
    )


def test_an_object_that_is_no_trainer_rank_is_refused_with_everything_it_lacks() -> None:
    class TrainerRank:
        def _one_layer_recompute(self) -> bool:
            return True

    with pytest.raises(ArtInterfaceError, match=r"openpipe-art 0\.5\.23") as refusal:
        bind(TrainerRank())
    assert "_one_layer_recompute" not in refusal.value.expected
    assert refusal.value.found["_retained_memory_bytes"] == "nothing"
    assert refusal.value.expected["_retained_memory_bytes"].startswith("self, signature")
    with pytest.raises(ArtBindingError):
        unbind(TrainerRank())
