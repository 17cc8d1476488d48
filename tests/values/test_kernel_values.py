"""Exact values and exact messages of the law modules' own functions, one assertion a fact, in milliseconds.

The laws' theorems leave some things open that a careless edit would change: what an error says, which field it names,
what a text form looks like, what the empty profile becomes. Mutation testing of the law modules runs these first.
"""

# `refused` calls its argument at once, so a lambda in a loop sees the loop's present values.
# ruff: noqa: B023

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from pricing import Profile, Reading, ReadingKind, RecurrentGeometry, Safety, Sharing, Wave, Workload, observe
from pricing.kernel.bands import NO_EVIDENCE
from pricing.kernel.errors import (
    InvalidReadingError,
    ProfileError,
    QuantityError,
    SafetyError,
    UnknownReadingKindError,
    WaveError,
)
from pricing.kernel.law import Breakdown, Ineligible, Law, Term, ineligibility
from pricing.kernel.price import allocated_bytes, price, retained_evidence_bytes
from pricing.kernel.profile import broken_invariant, observe_all
from pricing.kernel.quantities import (
    DEFAULT_SAFETY,
    GIB,
    LOGICAL_ROW_BYTES,
    MAX_QUANTITY,
    MIB,
    RESERVE_DENOMINATOR,
    RESERVE_NUMERATOR,
    SHORT_REQUEST_ROWS,
    TRUST_GROWTH,
    UNSHARED,
    ceil_div,
    is_more_sharing,
    maximum,
    minimum,
    more_sharing,
    require_count,
    require_integer,
    with_safety,
)
from pricing.kernel.rate_laws import (
    LOGICAL,
    PACKED,
    UNPACKED_GROWTH,
    WARM,
    all_readings_bytes,
    charge_bytes,
    is_retained_trusted,
    model_bytes,
    sharing_rows,
    warm_bytes,
    warm_rows,
)
from pricing.kernel.reading import out_of_memory_footprint_bytes
from pricing.kernel.requests import (
    INACTIVE,
    NO_RECOMPUTE,
    ONE_LAYER_FULL,
    SINGLE_TARGET,
    RecomputeMode,
    RequestGroup,
    RequestSpec,
    Signature,
    mix_key,
    signature_of,
    workload_of,
)
from pricing.kernel.shares import EvidenceRows
from pricing.kernel.wave import segment_state_bytes
from spec import model
from tests.making import a_reading, a_wave, learned, rate_profile

LAWS: tuple[Law, ...] = (LOGICAL, PACKED, WARM)


def wrong(field: str, value: object) -> dict[str, Any]:
    """A field by name with a value that its type does not allow."""
    return {field: value}


def refused(kind: type[Exception], make: Callable[[], object]) -> str:
    """The whole message of the error that `make` raises."""
    with pytest.raises(kind) as raised:
        make()
    return str(raised.value)


# --- quantities ------------------------------------------------------------------------------------------------------


def test_constants() -> None:
    assert (MIB, GIB, MAX_QUANTITY) == (1_048_576, 1_073_741_824, 9_223_372_036_854_775_807)
    assert (TRUST_GROWTH, LOGICAL_ROW_BYTES, SHORT_REQUEST_ROWS, UNPACKED_GROWTH) == (8, 6_144, 64, 1)
    assert (RESERVE_NUMERATOR, RESERVE_DENOMINATOR) == (3, 100)
    assert (INACTIVE, SINGLE_TARGET) == ("inactive", "target:single")
    assert str(DEFAULT_SAFETY) == "11/10"
    assert str(UNSHARED) == "1/1"


def test_small_operations() -> None:
    assert [maximum(2, 3), maximum(3, 2), maximum(2, 2)] == [3, 3, 2]
    assert [minimum(2, 3), minimum(3, 2), minimum(2, 2)] == [2, 2, 2]
    assert [ceil_div(n, 4) for n in (0, 1, 3, 4, 5, 8, 9)] == [0, 1, 1, 1, 2, 2, 3]
    assert [with_safety(11, 10, n) for n in (0, 1, 9, 10, 11)] == [0, 2, 10, 11, 13]


@pytest.mark.parametrize("check", [require_count, require_integer])
def test_what_is_no_quantity(check: Callable[[str, Any], None]) -> None:
    assert refused(QuantityError, lambda: check("f", True)) == "f: must be a Python int, not bool, got True"
    assert refused(QuantityError, lambda: check("f", 1.0)) == "f: must be a Python int, not float, got 1.0"
    message = refused(QuantityError, lambda: check("f", MAX_QUANTITY + 1))
    assert message == "f: must lie within +-9223372036854775807 (2**63 - 1), got 9223372036854775808"
    check("f", MAX_QUANTITY)
    check("f", 0)


def test_signs_of_quantities() -> None:
    assert refused(QuantityError, lambda: require_count("f", -1)) == "f: must be at least 0, got -1"
    require_integer("f", -MAX_QUANTITY)
    assert "within +-" in refused(QuantityError, lambda: require_integer("f", -MAX_QUANTITY - 1))


def test_sharing_pairs() -> None:
    for logical, packed in ((1, 2), (0, 0), (5, 0)):
        message = refused(QuantityError, lambda: Sharing(logical_rows=logical, packed_rows=packed))
        assert message == f"sharing: must be a pair with logical_rows >= packed_rows >= 1, got ({logical}, {packed})"
    assert refused(QuantityError, lambda: Sharing(logical_rows=-1, packed_rows=1)).startswith("sharing.logical_rows:")
    assert refused(QuantityError, lambda: Sharing(logical_rows=1, packed_rows=-1)).startswith("sharing.packed_rows:")
    assert str(Sharing(logical_rows=7, packed_rows=2)) == "7/2"
    assert Sharing(logical_rows=2, packed_rows=2).packed_rows == 2


def test_order_of_sharings() -> None:
    three_halves = Sharing(logical_rows=6, packed_rows=4)
    assert [is_more_sharing(*pair, three_halves) for pair in ((3, 2), (6, 4), (9, 6), (7, 4), (5, 4))] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert more_sharing(three_halves, 3, 2) == Sharing(logical_rows=3, packed_rows=2)
    assert more_sharing(three_halves, 9, 6) is three_halves
    assert more_sharing(UNSHARED, 1, 5) is UNSHARED


def test_safety_factors() -> None:
    for value in ("11/10", "1.1", " 11 / 10 ", Fraction(11, 10), Decimal("1.1"), Safety(numerator=22, denominator=20)):
        assert Safety.parse(value) == DEFAULT_SAFETY, value
    assert Safety.parse(2) == Safety(numerator=2, denominator=1)
    assert str(Safety(numerator=1, denominator=1)) == "1/1"
    digits = "1" * 19
    assert Safety.parse(digits).numerator == int(digits)
    assert Safety.parse("1." + "1" * 18).denominator == 10**18


def test_what_is_no_safety_factor() -> None:
    exact = 'safety must be exact: write "11/10" or "1.1" (text), got '
    for value in (1.1, True, None, b"1"):
        assert refused(SafetyError, lambda: Safety.parse(value)) == exact + repr(value)  # type: ignore[arg-type]
    for text in ("", "x", "1e3", "-2", "1." + "1" * 19, "1" * 20, "1//2", "1/", ".5", "1" * 200):
        said = 'safety must be a fraction or a decimal such as "11/10" or "1.1", got ' + repr(text[:80])
        assert refused(SafetyError, lambda: Safety.parse(text)) == said
    assert refused(SafetyError, lambda: Safety.parse("1/0")) == "safety is not a fraction: '1/0'"
    for decimal in (Decimal("NaN"), Decimal("Infinity")):
        assert refused(SafetyError, lambda: Safety.parse(decimal)) == f"safety is not a fraction: {decimal!r}"
    below = "safety must be a fraction of at least 1, got 9/10"
    assert refused(SafetyError, lambda: Safety.parse("0.9")) == below
    assert refused(SafetyError, lambda: Safety(numerator=1, denominator=0)).endswith("at least 1, got 1/0")
    wrong_types: list[dict[str, Any]] = [{"numerator": 1.5, "denominator": 1}, {"numerator": 2, "denominator": True}]
    for fields in wrong_types:
        message = refused(SafetyError, lambda: Safety(**fields))
        wrong = "numerator" if fields["numerator"] == 1.5 else "denominator"
        assert message == f"safety {wrong} must be a Python int, got {fields[wrong]!r}"
    for pair in ((MAX_QUANTITY + 1, 1), (MAX_QUANTITY + 2, MAX_QUANTITY + 1)):
        message = refused(SafetyError, lambda: Safety(numerator=pair[0], denominator=pair[1]))
        assert message == "safety must be a fraction of integers below 2**63"
    assert Safety(numerator=MAX_QUANTITY, denominator=1).numerator == MAX_QUANTITY


# --- requests --------------------------------------------------------------------------------------------------------


def spec(*shape: int, target: tuple[int, ...] | None = None, **asks: Any) -> RequestSpec:
    return RequestSpec(input_shape=shape, target_shape=target, **asks)


@pytest.mark.invariant("INV-13")
def test_mix_keys() -> None:
    keys = {
        "inactive": spec(8),
        "target:single": spec(8, target=(8,)),
        "target:(4,)": spec(8, target=(8, 4)),
        "target:(8,)": spec(1, 8, target=(1, 8, 8)),
        "topk:5": spec(8, top_k=5),
        "topk:0": spec(8, top_k=0),
        "logits": spec(8, logits=True),
        "hidden": spec(8, hidden_states=True),
        "routes": spec(8, routes=True),
        "target:single+topk:3+logits+hidden+routes": spec(
            8, target=(8,), top_k=3, logits=True, hidden_states=True, routes=True
        ),
    }
    assert [mix_key(request) for request in keys.values()] == list(keys)
    assert [request.is_active for request in keys.values()] == [False] + [True] * 9
    assert mix_key(spec(1, 8, target=(1, 8))) == "target:single"
    assert mix_key(spec(1, 8, target=(8, 4))) == "target:(4,)"
    assert mix_key(spec(2, 8, target=(2, 9))) == "target:(9,)"


def test_short_requests() -> None:
    shapes = [(63,), (64,), (1, 63), (1, 64), (7, 9), (8, 8)]
    assert [spec(*shape, target=shape).is_short for shape in shapes] == [True, False, True, False, True, False]
    assert not spec(63).is_short
    assert not spec(63, logits=True).is_short
    assert spec(7, 9).logical_rows == 63


def test_what_is_no_request() -> None:
    make: Any = RequestSpec
    assert refused(QuantityError, lambda: make(input_shape=[8])) == "input_shape: must be a tuple of ints, got [8]"
    said = refused(QuantityError, lambda: make(input_shape=(8,), target_shape=[8]))
    assert said == "target_shape: must be a tuple of ints, got [8]"
    assert refused(QuantityError, lambda: spec(-1)) == "input_shape: must be at least 0, got -1"
    assert refused(QuantityError, lambda: spec(1, target=(-1,))) == "target_shape: must be at least 0, got -1"
    assert refused(QuantityError, lambda: spec(1, top_k=-1)) == "top_k: must be at least 0, got -1"


def test_recompute_modes() -> None:
    assert ONE_LAYER_FULL.is_one_layer_full
    others = [
        replace(ONE_LAYER_FULL, granularity="selective"),
        replace(ONE_LAYER_FULL, method="block"),
        replace(ONE_LAYER_FULL, num_layers=2),
        replace(ONE_LAYER_FULL, num_layers=None),
        replace(ONE_LAYER_FULL, training=False),
        NO_RECOMPUTE,
    ]
    assert not any(mode.is_one_layer_full for mode in others)
    assert [str(mode) for mode in (ONE_LAYER_FULL, NO_RECOMPUTE, others[4])] == [
        "full/uniform/1",
        "none",
        "full/uniform/1 (not training: skipped)",
    ]


def test_workloads() -> None:
    assert Workload.training() == Workload(
        grad_modes=(True,), request_mixes=("target:single",), recompute=ONE_LAYER_FULL, shortest_single_target_rows=None
    )
    assert Workload.training(shortest_rows=9, recompute=NO_RECOMPUTE).recompute == NO_RECOMPUTE
    rows = [Workload.training(shortest_rows=rows).has_short_request for rows in (None, 0, 63, 64)]
    assert rows == [False, True, True, False]
    message = refused(QuantityError, lambda: Workload.training(shortest_rows=-1))
    assert message == "shortest_single_target_rows: must be at least 0, got -1"
    assert Workload.training().grads
    assert not replace(Workload.training(), grad_modes=(False,)).grads


GROUPS = [
    RequestGroup(requests=(spec(70, target=(70,)), spec(5), spec(9, logits=True)), grads=True, adapter="r16"),
    RequestGroup(requests=(spec(65, target=(65,)),), grads=False, adapter="r8"),
    RequestGroup(requests=(spec(3),), grads=False, adapter="unused"),
]


@pytest.mark.invariant("INV-13")
def test_workload_and_signature_of_a_batch() -> None:
    assert workload_of(GROUPS, NO_RECOMPUTE) == Workload(
        grad_modes=(False, True),
        request_mixes=("logits", "target:single"),
        recompute=NO_RECOMPUTE,
        shortest_single_target_rows=65,
    )
    assert workload_of([], ONE_LAYER_FULL).shortest_single_target_rows is None
    assert GROUPS[0].active == (GROUPS[0].requests[0], GROUPS[0].requests[2])
    signature = signature_of(GROUPS, ONE_LAYER_FULL, topology="tp2")
    assert signature == Signature(
        topology="tp2",
        group_count=2,
        request_mixes=("logits", "target:single"),
        grad_modes=(False, True),
        adapter_shapes=("r16", "r8"),
        recompute=ONE_LAYER_FULL,
    )
    assert signature.key == (
        '{"adapter_shapes":["r16","r8"],"grad_modes":[false,true],"group_count":2,'
        '"recompute":["full","uniform",1,true],"request_mixes":["logits","target:single"],"topology":"tp2"}'
    )
    assert re.fullmatch(r"[0-9a-f]{16}", signature.digest)
    assert signature.digest == "fc304bd197887038"


def test_signatures_are_canonical() -> None:
    signature = signature_of(GROUPS, ONE_LAYER_FULL, topology="")
    unsorted: dict[str, Any] = {
        "request_mixes": ("b", "a"),
        "grad_modes": (True, True),
        "adapter_shapes": ("b", "a"),
    }
    for field, values in unsorted.items():
        message = refused(WaveError, lambda: replace(signature, **{field: values}))
        assert message == f"signature {field} must be sorted and distinct, got {values!r}"
    assert refused(QuantityError, lambda: replace(signature, group_count=-1)).startswith("group_count:")


# --- waves and readings ----------------------------------------------------------------------------------------------

WAVE_FIELDS = (
    "packed_rows",
    "logical_rows",
    "grad_segments",
    "output_bytes",
    "floor_bytes",
    "checkpoint_retained_bytes",
    "segment_state_bytes",
)


@pytest.mark.parametrize("field", WAVE_FIELDS)
def test_a_wave_names_the_field_that_is_no_quantity(field: str) -> None:
    assert (
        refused(QuantityError, lambda: replace(a_wave(4), **wrong(field, -1))) == f"{field}: must be at least 0, got -1"
    )


def test_rows_of_nothing() -> None:
    said = "a wave of 0 packed rows has nothing to run, yet it has {} logical rows and {} segments"
    for logical, segments in ((1, 0), (0, 1), (2, 3)):
        assert refused(WaveError, lambda: a_wave(0, logical, segments)) == said.format(logical, segments)
    assert a_wave(0, 0).packed_rows == 0
    assert a_wave(1, 5, 5).logical_rows == 5
    plain = Wave(packed_rows=1, logical_rows=1, grad_segments=1, output_bytes=1, workload=Workload.training())
    assert (plain.floor_bytes, plain.checkpoint_retained_bytes, plain.segment_state_bytes) == (0, 0, 0)


GEOMETRY = RecurrentGeometry(value_heads=3, key_heads=2, key_dim=5, value_dim=7, conv_kernel=4)


def test_state_bytes() -> None:
    # 2 * (4*3*5*7 + 2 * (2*2*5 + 3*7) * 3) = 2 * (420 + 246)
    assert segment_state_bytes(GEOMETRY) == 1_332
    assert segment_state_bytes(replace(GEOMETRY, tensor_parallel=5)) == 267
    assert segment_state_bytes(replace(GEOMETRY, dtype_bytes=4)) == 1_824
    for field in ("value_heads", "key_heads", "key_dim", "value_dim", "dtype_bytes", "conv_kernel", "tensor_parallel"):
        said = refused(QuantityError, lambda: replace(GEOMETRY, **{field: -1}))
        assert said == f"{field}: must be at least 0, got -1"
    for field in ("conv_kernel", "tensor_parallel"):
        said = refused(QuantityError, lambda: replace(GEOMETRY, **{field: 0}))
        assert said == f"{field}: must be at least 1, got 0"
    assert segment_state_bytes(replace(GEOMETRY, conv_kernel=1)) == 840


@pytest.mark.parametrize(
    "field", ["packed_rows", "logical_rows", "grad_segments", "output_bytes", "peak_delta_bytes", "retained_bytes"]
)
def test_a_reading_names_the_field_that_is_no_quantity(field: str) -> None:
    assert refused(QuantityError, lambda: replace(a_reading(1, 1), **wrong(field, 1.5))) == (
        f"{field}: must be a Python int, not float, got 1.5"
    )


def test_signs_in_readings() -> None:
    for field in ("packed_rows", "logical_rows", "grad_segments", "output_bytes"):
        assert refused(QuantityError, lambda: replace(a_reading(1, 1), **wrong(field, -1))).startswith(
            f"{field}: must be at"
        )
    assert replace(a_reading(1, 1), retained_bytes=-5).retained_compute_bytes == 0
    under = "peak lies 3 B under its baseline: the counter was reset or belongs to another device; nothing was learned"
    assert refused(InvalidReadingError, lambda: a_reading(1, -3)) == under
    assert a_reading(1, 0).compute_bytes == 0


def test_readings_of_a_wave() -> None:
    wave = a_wave(2, 3, 4, output_bytes=5)
    reading = Reading.of(
        wave,
        peak_delta_bytes=7,
        footprint_bytes=9,
        retained_bytes=6,
        grads=False,
        kind=ReadingKind.FORWARD_ONLY,
        closes_wave=True,
    )
    assert reading == Reading(
        packed_rows=2,
        logical_rows=3,
        grad_segments=4,
        output_bytes=5,
        peak_delta_bytes=7,
        footprint_bytes=9,
        retained_bytes=6,
        grads=False,
        kind=ReadingKind.FORWARD_ONLY,
        closes_wave=True,
    )
    plain = Reading.of(wave, peak_delta_bytes=1)
    assert (plain.footprint_bytes, plain.retained_bytes, plain.grads) == (None, None, True)
    assert (plain.kind, plain.closes_wave) == ("whole_wave", False)
    mixed = replace(wave, evidence=EvidenceRows(packed_rows=20, logical_rows=30, grad_segments=40))
    counted = Reading.of(mixed, peak_delta_bytes=1)
    assert (counted.packed_rows, counted.logical_rows, counted.grad_segments) == (20, 30, 40)


def test_a_reading_of_the_footprint() -> None:
    def of_footprint(peak: int, footprint: int, retained: int | None) -> int | None:
        reading = replace(a_reading(2, peak), footprint_bytes=footprint, retained_bytes=retained).of_footprint
        assert reading is not None
        assert (reading.peak_delta_bytes, reading.footprint_bytes) == (footprint, footprint)
        return reading.retained_bytes

    assert a_reading(2, 7).of_footprint is None
    assert of_footprint(10, 15, None) is None
    assert [of_footprint(10, 15, retained) for retained in (-3, 0, 1, 4, 10, 11)] == [-3, 0, 2, 6, 15, 15]
    assert [of_footprint(0, 15, retained) for retained in (-3, 0, 1)] == [-3, 0, 0]
    whole = replace(a_reading(2, 7, ReadingKind.FORWARD_ONLY), footprint_bytes=8, grads=False, closes_wave=True)
    assert whole.of_footprint == replace(whole, peak_delta_bytes=8)
    assert refused(InvalidReadingError, lambda: replace(a_reading(2, 7), footprint_bytes=6)) == (
        "footprint of 6 B lies under the peak of 7 B: an allocator reserves what it hands out; nothing was learned"
    )
    assert refused(
        InvalidReadingError, lambda: replace(a_reading(2, 7, ReadingKind.OUT_OF_MEMORY), footprint_bytes=None)
    ) == ("an out-of-memory reading must say what it would have needed: no footprint_bytes")
    wrong: Any = 1.5
    assert "footprint_bytes: must be a Python int" in refused(
        QuantityError, lambda: replace(a_reading(2, 0), footprint_bytes=wrong)
    )


def test_what_a_wave_needed_that_ran_out_of_memory() -> None:
    def needed(available: int, reserved: int = 0, requested: int = 0) -> int:
        return out_of_memory_footprint_bytes(
            available_bytes=available, reserved_bytes=reserved, requested_bytes=requested
        )

    assert [needed(available) for available in (-5, 0, 1, 15, 16, 17, 32)] == [1, 1, 2, 16, 17, 19, 34]
    assert needed(160, 100, 70) == 170
    assert needed(160, 100, 71) == 171
    assert needed(160, 171) == 171


def test_what_a_reading_is_where_nothing_is_said() -> None:
    plain = Reading(packed_rows=1, logical_rows=1, grad_segments=0, output_bytes=0, peak_delta_bytes=0)
    assert (plain.retained_bytes, plain.grads, plain.kind, plain.closes_wave) == (None, True, "whole_wave", False)
    assert RequestGroup(requests=(), grads=True).adapter == ""


def test_kinds_of_readings() -> None:
    assert ReadingKind.parse("split_child") is ReadingKind.SPLIT_CHILD
    assert refused(UnknownReadingKindError, lambda: ReadingKind.parse("whole")) == (
        "unknown reading kind 'whole'; known: whole_wave, forward_only, split_child, interrupted, out_of_memory"
    )
    complete = {
        (kind, grads, closes): a_reading(1, 1, kind, grads=grads, closes_wave=closes, footprint_bytes=1).is_complete
        for kind in ReadingKind
        for grads in (True, False)
        for closes in (True, False)
    }
    whole = {key for key, value in complete.items() if value}
    assert whole == {(ReadingKind.WHOLE_WAVE, g, c) for g in (True, False) for c in (True, False)} | {
        (ReadingKind.FORWARD_ONLY, False, True)
    }


def test_what_a_reading_says() -> None:
    told = a_reading(3, 100, output_bytes=30, retained_bytes=50)
    assert (told.compute_bytes, told.retained_compute_bytes, told.peak_bytes_per_row) == (70, 20, 24)
    assert a_reading(3, 10, output_bytes=30).compute_bytes == 0
    assert a_reading(3, 100, output_bytes=30).retained_compute_bytes is None
    assert a_reading(3, 100, output_bytes=30, retained_bytes=900).retained_compute_bytes == 70
    assert a_reading(3, 100, output_bytes=30, retained_bytes=10).retained_compute_bytes == 0


# --- profiles --------------------------------------------------------------------------------------------------------


@pytest.mark.invariant("INV-9")
def test_a_history_step_by_step() -> None:
    start = Profile()
    assert (start.peak_bytes_per_row, start.largest_packed_rows, start.sharing, start.complete_readings) == (
        0,
        0,
        UNSHARED,
        0,
    )
    assert start.is_empty
    assert observe(start, a_reading(0, 50, logical_rows=0)) is start
    early = observe(start, a_reading(4, 10, ReadingKind.FORWARD_ONLY, logical_rows=8, retained_bytes=6))
    assert early == Profile(
        peak_bytes_per_row=3,
        largest_packed_rows=4,
        sharing=Sharing(logical_rows=8, packed_rows=4),
        retained_bytes_per_row=2,
        frontier=early.frontier,
    )
    seeded = observe(early, a_reading(2, 100))
    assert (seeded.peak_bytes_per_row, seeded.largest_packed_rows, seeded.complete_readings) == (50, 4, 1)
    assert (seeded.warm_bytes_per_row, seeded.warm_packed_rows, seeded.warm_sharing) == (None, None, None)
    pending = observe(seeded, a_reading(5, 31, ReadingKind.SPLIT_CHILD, logical_rows=15))
    assert (pending.warm_bytes_per_row, pending.warm_packed_rows, pending.warm_sharing) == (7, None, None)
    assert not pending.has_warm_fit
    fit = observe(pending, a_reading(3, 9, logical_rows=6))
    assert (fit.warm_bytes_per_row, fit.warm_packed_rows, fit.complete_readings) == (7, 3, 2)
    assert fit.warm_sharing == Sharing(logical_rows=6, packed_rows=3)
    assert fit.sharing == Sharing(logical_rows=15, packed_rows=5)
    assert fit.has_warm_fit
    later = observe(observe(fit, a_reading(9, 90)), a_reading(2, 2, ReadingKind.INTERRUPTED, retained_bytes=2))
    assert (later.warm_bytes_per_row, later.warm_packed_rows, later.retained_bytes_per_row) == (10, 3, 2)
    assert later.warm_sharing == fit.warm_sharing
    assert observe(later, a_reading(2, 2)).warm_packed_rows == 2
    assert observe_all(start, [a_reading(4, 10), a_reading(2, 10)]) == learned([a_reading(4, 10), a_reading(2, 10)])


GOOD: dict[str, Any] = {
    "peak_bytes_per_row": 10,
    "largest_packed_rows": 5,
    "sharing": Sharing(logical_rows=2, packed_rows=1),
    "retained_bytes_per_row": 10,
    "complete_readings": 2,
    "warm_bytes_per_row": 10,
    "warm_packed_rows": 5,
    "warm_sharing": Sharing(logical_rows=2, packed_rows=1),
}

NOTHING_SEEN = "something was learned although no reading had rows"
NO_FIT = {"warm_packed_rows": None, "warm_sharing": None}
UNREACHABLE = [
    ({"peak_bytes_per_row": 1}, NOTHING_SEEN, False),
    ({"complete_readings": 1}, NOTHING_SEEN, False),
    ({"retained_bytes_per_row": 0}, NOTHING_SEEN, False),
    ({"sharing": Sharing(logical_rows=2, packed_rows=1)}, NOTHING_SEEN, False),
    (
        {"sharing": Sharing(logical_rows=2, packed_rows=2)},
        "a sharing ratio of 1 is kept as 1/1, the pair with fewest packed rows",
        True,
    ),
    (
        {"warm_sharing": Sharing(logical_rows=2, packed_rows=2)},
        "a sharing ratio of 1 is kept as 1/1, the pair with fewest packed rows",
        True,
    ),
    ({"retained_bytes_per_row": 11}, "more is retained per row than the peak per row", True),
    ({"warm_bytes_per_row": 11}, "a warm rate above the all-readings rate", True),
    (
        {"complete_readings": 0, **NO_FIT},
        "a warm rate before the seed",
        True,
    ),
    ({"warm_packed_rows": None}, "the warm fit is neither complete nor pending", True),
    ({"warm_sharing": None}, "the warm fit is neither complete nor pending", True),
    ({"warm_bytes_per_row": None}, "the warm fit is neither complete nor pending", True),
    ({"complete_readings": 1}, "a warm fit is there exactly from the second complete reading on", True),
    (NO_FIT, "a warm fit is there exactly from the second complete reading on", True),
    ({"warm_packed_rows": 6}, "the warm floor lies outside the packed rows seen", True),
    ({"warm_packed_rows": 0}, "the warm floor lies outside the packed rows seen", True),
    (
        {"warm_sharing": Sharing(logical_rows=3, packed_rows=1)},
        "the warm fit has seen more sharing than all readings",
        True,
    ),
]


@pytest.mark.parametrize(("changed", "reason", "learned_something"), UNREACHABLE)
def test_profiles_that_no_history_leads_to(changed: dict[str, Any], reason: str, learned_something: bool) -> None:
    fields = {**(GOOD if learned_something else {}), **changed}
    message = refused(ProfileError, lambda: Profile(**fields))
    assert message.startswith(f"no history of readings leads to this profile: {reason}; got Profile(")


def test_profiles_at_the_edge_of_reachable() -> None:
    assert broken_invariant(Profile(**GOOD)) is None
    assert broken_invariant(Profile(**{**GOOD, "warm_packed_rows": 1})) is None
    assert broken_invariant(Profile(**{**GOOD, **NO_FIT, "complete_readings": 1})) is None
    for field in ("peak_bytes_per_row", "largest_packed_rows", "complete_readings", "retained_bytes_per_row"):
        said = refused(QuantityError, lambda: Profile(**{**GOOD, field: -1}))
        assert said == f"{field}: must be at least 0, got -1"
    for field in ("warm_bytes_per_row", "warm_packed_rows"):
        said = refused(QuantityError, lambda: Profile(**{**GOOD, field: -1}))
        assert said == f"{field}: must be at least 0, got -1"


def test_frontier_evidence_begins_with_the_seed() -> None:
    early = observe(Profile(), a_reading(4, 10, ReadingKind.SPLIT_CHILD))
    seeded = observe(early, a_reading(4, 10))
    assert early.frontier == seeded.frontier == NO_EVIDENCE
    peaks = observe(seeded, a_reading(4, 10)).frontier
    assert [(band.cover.compute_bytes, band.anchor is not None) for band in peaks.peak] == [(10, True)]
    assert peaks.retained == ()
    fields = {"peak_bytes_per_row": 3, "largest_packed_rows": 4, "frontier": peaks}
    message = refused(ProfileError, lambda: Profile(**fields))  # type: ignore[arg-type]
    assert ": frontier evidence before the seed; got" in message
    message = refused(ProfileError, lambda: Profile(**fields, complete_readings=1))  # type: ignore[arg-type]
    assert ": a frontier bound before the second complete reading; got" in message
    pending = observe(seeded, a_reading(4, 10, ReadingKind.SPLIT_CHILD))
    assert [band.anchor for band in pending.frontier.peak] == [None]


# --- laws ------------------------------------------------------------------------------------------------------------


def test_laws_by_name() -> None:
    assert [(law.name, law.summary) for law in LAWS] == [
        ("logical", "extrapolates every wave by its sharing ratio (the rule before)"),
        ("packed", "prices packed rows by the highest rate of any reading"),
        ("warm", "as packed, lowered by what waves after the first taught"),
    ]


def test_reasons_in_words() -> None:
    assert [(reason.name, reason.value) for reason in Ineligible] == [
        ("LAW", "this law never prices by packed rows"),
        ("NO_PROFILE", "no reading of this memory signature yet"),
        ("RECOMPUTE", "activation recompute is not live as full, uniform, one layer"),
        ("NO_GRAD_MODE", "no group with an active request"),
        ("GRAD_FREE", "a group runs without gradients"),
        ("REQUEST_MIX", "a request asks for something other than single-target log-probabilities"),
        ("SHORT_REQUEST", "a single-target request is shorter than 64 rows"),
    ]


def test_reasons_of_ineligibility() -> None:
    profile, training = rate_profile(10, 5), Workload.training()
    cases = [
        (Ineligible.RECOMPUTE, replace(training, recompute=NO_RECOMPUTE)),
        (Ineligible.NO_GRAD_MODE, replace(training, grad_modes=())),
        (Ineligible.GRAD_FREE, replace(training, grad_modes=(False, True))),
        (Ineligible.REQUEST_MIX, replace(training, request_mixes=("target:(2,)", "target:single"))),
        (Ineligible.SHORT_REQUEST, replace(training, shortest_single_target_rows=63)),
    ]
    for reason, workload in cases:
        assert ineligibility(profile, workload) == (reason,)
        assert ineligibility(Profile(), workload) == (Ineligible.NO_PROFILE, reason)
    assert ineligibility(profile, training) == ()
    assert ineligibility(profile, replace(training, request_mixes=("inactive",))) == ()
    assert LOGICAL.ineligibility(profile, training) == (Ineligible.LAW,)
    assert PACKED.ineligibility(Profile(), training) == (Ineligible.NO_PROFILE,)


FIT = Profile(
    peak_bytes_per_row=100,
    largest_packed_rows=50,
    sharing=Sharing(logical_rows=3, packed_rows=1),
    retained_bytes_per_row=40,
    complete_readings=2,
    warm_bytes_per_row=60,
    warm_packed_rows=20,
    warm_sharing=Sharing(logical_rows=2, packed_rows=1),
)


def test_terms_by_hand() -> None:
    wave = a_wave(10, 1_000, 3, segment_state_bytes=7)
    assert sharing_rows(10, 1_000, FIT.sharing, 8) == 42
    assert all_readings_bytes(wave, FIT, 8) == 4_200
    assert warm_rows(wave, 20, Sharing(logical_rows=2, packed_rows=1), 8) == 63
    assert warm_bytes(wave, FIT, 8) == 3_780
    assert warm_bytes(wave, replace(FIT, complete_readings=1, **NO_FIT), 8) is None  # type: ignore[arg-type]
    assert model_bytes(wave, FIT, 8, warm=True) == 3_780
    assert model_bytes(wave, FIT, 8, warm=False) == 4_200
    assert model_bytes(a_wave(1, 1), FIT, 8, warm=True) == 100
    assert charge_bytes(wave) == 6_144_021


def test_the_explained_price_part_by_part() -> None:
    wave = a_wave(10, 1_000, 3, segment_state_bytes=7, output_bytes=9, floor_bytes=5)
    explained = price(wave, FIT, law=WARM)
    all_readings = Term(binding="all_readings_clamped", rows=42, bytes_per_row=100, model_bytes=4_200)
    warm = Term(binding="warm_clamped", rows=63, bytes_per_row=60, model_bytes=3_780)
    assert explained.terms == (all_readings, warm)
    assert (explained.logical_charge_bytes, explained.segment_charge_bytes) == (6_144_000, 21)
    assert (explained.compute_bytes, explained.output_bytes, explained.floor_bytes) == (6_147_801, 9, 5)
    assert (explained.allocated.required_bytes, explained.binding_term) == (6_762_591, "warm_clamped")
    assert explained.allocated.retained_bytes == allocated_bytes(
        wave, FIT, law=WARM
    )  # 1,000 > 8 * 3 * 10: outside the window
    assert (explained.law, explained.safety, explained.ineligible) == ("warm", DEFAULT_SAFETY, ())
    assert explained.packed_priced
    logical = price(wave, FIT, LOGICAL)
    assert logical.terms == (Term(binding="all_readings_clamped", rows=334, bytes_per_row=100, model_bytes=33_400),)
    assert (logical.logical_charge_bytes, logical.segment_charge_bytes, logical.law) == (0, 0, "logical")
    assert logical.ineligible == (Ineligible.LAW,)
    assert not logical.packed_priced


def test_a_price_of_nothing_and_a_cold_price() -> None:
    nothing = price(a_wave(0, 0, output_bytes=9, floor_bytes=5), FIT, law=WARM)
    assert (nothing.required_bytes, nothing.compute_bytes, nothing.terms, nothing.binding_term) == (
        9,
        0,
        (),
        "nothing_to_run",
    )
    assert (nothing.logical_charge_bytes, nothing.segment_charge_bytes, nothing.retained_bytes) == (0, 0, 9)
    cold = price(a_wave(1, 1, output_bytes=9, floor_bytes=11), Profile(), law=WARM)
    assert (cold.allocated.required_bytes, cold.compute_bytes, cold.terms, cold.binding_term) == (22, 11, (), "cold")
    assert (cold.required_bytes, cold.retained_bytes, cold.ineligible) == (30, 30, (Ineligible.NO_PROFILE,))


def test_the_least_term_is_the_first_of_equals() -> None:
    one, other = (Term(binding=name, rows=1, bytes_per_row=5, model_bytes=5) for name in ("one", "other"))
    breakdown = Breakdown(terms=(one, other), logical_charge_bytes=2, segment_charge_bytes=3)
    assert breakdown.least is one
    assert breakdown.compute_bytes == 10


def test_the_windows_of_retained_bytes() -> None:
    assert is_retained_trusted(a_wave(400, 9_600), FIT)
    assert not is_retained_trusted(a_wave(401, 0), FIT)
    assert not is_retained_trusted(a_wave(400, 9_601), FIT)
    assert is_retained_trusted(a_wave(1, 24), FIT)
    assert not is_retained_trusted(a_wave(1, 25), FIT)
    assert is_retained_trusted(a_wave(0, 0), FIT)
    assert PACKED.kept_bytes(a_wave(10, 20), FIT, True) == 400 + 122_880
    assert PACKED.kept_bytes(a_wave(10, 60), FIT, False) == 800
    assert PACKED.kept_bytes(a_wave(10, 60), replace(FIT, retained_bytes_per_row=None), True) is None
    assert PACKED.kept_bytes(a_wave(401, 0), FIT, True) is None
    wave = a_wave(10, 60, output_bytes=10, checkpoint_retained_bytes=500_000)
    assert retained_evidence_bytes(wave, FIT, PACKED, Safety(numerator=1, denominator=1)) == allocated_bytes(
        wave, FIT, PACKED, Safety(numerator=1, denominator=1)
    )
    wave = replace(wave, checkpoint_retained_bytes=369_000, floor_bytes=400_000)
    assert retained_evidence_bytes(wave, FIT, PACKED, Safety(numerator=1, denominator=1)) == 369_050


def test_the_kernel_is_the_model_on_a_thousand_small_histories() -> None:
    """`spec.model` on histories of small numbers, where edges are met often: required and retained bytes."""
    draw = random.Random(20_260_101)
    for _ in range(1_000):
        readings = [_small_reading(draw) for _ in range(draw.randint(0, 4))]
        profile = observe_all(Profile(), readings)
        wave = _small_wave(draw)
        known = [
            model.ModelReading(r.packed_rows, r.logical_rows, r.output_bytes, r.peak_delta_bytes, r.retained_bytes, c)
            for r, c in ((r, r.kind == "whole_wave") for r in readings)
        ]
        eligible = wave.workload == Workload.training()
        asked = model.ModelWave(
            wave.packed_rows,
            wave.logical_rows,
            wave.grad_segments,
            wave.output_bytes,
            wave.floor_bytes,
            wave.checkpoint_retained_bytes,
            wave.segment_state_bytes,
            eligible,
        )
        for law in LAWS:
            expected = model.price(known, asked, law.name, Fraction(11, 10))
            explained = price(wave, profile, law)
            assert allocated_bytes(wave, profile, law) == expected.required == explained.allocated.required_bytes
            assert (
                retained_evidence_bytes(wave, profile, law) == expected.retained == explained.allocated.retained_bytes
            )


def _small_reading(draw: random.Random) -> Reading:
    rows = draw.choice((0, 1, 1, 2, 3, 8))
    return a_reading(
        rows,
        draw.choice((0, 5, 60_000, draw.randint(0, 200_000))),
        draw.choice((ReadingKind.WHOLE_WAVE, ReadingKind.WHOLE_WAVE, ReadingKind.SPLIT_CHILD)),
        logical_rows=rows * draw.choice((0, 1, 2, 3)) + draw.choice((0, 1)),
        output_bytes=draw.choice((0, 0, 7)),
        retained_bytes=draw.choice((None, 0, 50_000)),
    )


def _small_wave(draw: random.Random) -> Wave:
    rows = draw.choice((0, 1, 2, 7, 8, 9, 64, 65))
    workload = draw.choice((Workload.training(), Workload.training(recompute=NO_RECOMPUTE)))
    return a_wave(
        rows,
        min(1, rows) * draw.choice((0, 1, rows, 8 * rows, 8 * rows + 1, 24 * rows, 24 * rows + 1)),
        min(1, rows) * draw.choice((0, 1, 3)),
        output_bytes=draw.choice((0, 1, 10)),
        floor_bytes=draw.choice((0, 0, 300_000)),
        checkpoint_retained_bytes=draw.choice((0, 0, 90_000)),
        segment_state_bytes=draw.choice((0, 1_000)),
        workload=workload,
    )


def test_a_recompute_mode_is_no_default() -> None:
    assert RecomputeMode(granularity="full") == RecomputeMode(
        granularity="full", method=None, num_layers=None, training=True
    )
