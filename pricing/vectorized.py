"""The laws over arrays of candidates: the same bytes as `required_bytes`, at tens of nanoseconds a candidate.

Exact in int64 where that is provable, and Python integers where it is not: before any array is touched, the largest
corner (every quantity at its maximum) is put through the same formula in Python integers. Every intermediate of the
laws grows with every quantity, so if the corner stays below 2**63 all candidates do; otherwise each candidate is
priced by the scalar code. Nothing wraps and nothing is rounded.

Needs numpy (the `fast` extra). A law takes part by registering a twin with `register_twin`; one without a twin is
priced candidate by candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy
from numpy.typing import NDArray

from pricing.kernel.errors import QuantityError, WaveError
from pricing.kernel.frontier import Bound, FrontierLaw, peak_frontier
from pricing.kernel.law import Law
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import COLD_FOOTPRINT, required_bytes
from pricing.kernel.profile import Evidence, Profile
from pricing.kernel.quantities import (
    DEFAULT_SAFETY,
    LOGICAL_ROW_BYTES,
    MAX_QUANTITY,
    TRUST_GROWTH,
    Safety,
    Sharing,
    require_count,
)
from pricing.kernel.rate_laws import UNPACKED_GROWTH, WARM, RateLaw
from pricing.kernel.requests import Workload
from pricing.kernel.wave import Wave

Int64: TypeAlias = NDArray[numpy.int64]

BLOCK_CANDIDATES: Final = 8_192
"""Candidates priced at a time: the temporaries of one block stay in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Quantities of many candidates: int64 arrays of one length, or Python ints for the largest corner."""

    packed_rows: Any
    logical_rows: Any
    grad_segments: Any
    segment_state_bytes: int


Operation: TypeAlias = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The operations that differ between arrays and Python ints.

    seen: is told every intermediate of a corner, returns it. excess(left, right): max(0, left - right); of a corner its
    upper bound, left, because it falls as `right` grows.
    """

    maximum: Operation
    minimum: Operation
    excess: Operation
    seen: Callable[[Any], Any]


Twin: TypeAlias = Callable[[Any, Evidence, bool, Columns, Arithmetic], Any]
"""(law, evidence, packed_priced, columns, arithmetic) -> compute bytes before the floor.

Uses + * // and the operations of `arithmetic` only, and passes every intermediate that can exceed its inputs through
`arithmetic.seen`. No intermediate may fall as a column grows (what `excess` gives for a corner does not).
"""

_TWINS: dict[type[Any], Twin] = {}


def register_twin(law_type: type[Any], twin: Twin) -> None:
    """Let `required_bytes_array` price laws of `law_type` in arrays. The twin must equal the law to the byte."""
    _TWINS[law_type] = twin


def required_bytes_array(
    *,
    packed_rows: Any,
    logical_rows: Any,
    grad_segments: Any,
    output_bytes: Any,
    workload: Workload,
    profile: Profile,
    floor_bytes: Any = 0,
    segment_state_bytes: int = 0,
    law: Law = DEFAULT_LAW,
    safety: Safety = DEFAULT_SAFETY,
) -> NDArray[Any]:
    """`required_bytes` of every candidate of one workload: integer arrays (or ints) that broadcast to one dimension.

    Returns int64; an object array of Python ints where a price does not fit int64. Raises `QuantityError` for what is
    not an integer of at least 0, `WaveError` for rows of nothing, as the scalar code does.
    """
    require_count("segment_state_bytes", segment_state_bytes)
    packed, logical, segments, output, floor = numpy.broadcast_arrays(
        _column("packed_rows", packed_rows),
        _column("logical_rows", logical_rows),
        _column("grad_segments", grad_segments),
        _column("output_bytes", output_bytes),
        _column("floor_bytes", floor_bytes),
    )
    idle = packed == 0
    if numpy.any(idle & ((logical > 0) | (segments > 0))):
        raise WaveError("a candidate of 0 packed rows has nothing to run, yet it has logical rows or segments")
    kernel = _Kernel(
        law=law,
        profile=profile,
        safety=safety,
        packed_priced=not law.ineligibility(profile, workload),
        segment_state_bytes=segment_state_bytes,
    )
    corner = [int(column.max(initial=0)) for column in (packed, logical, segments, output, floor)]
    if kernel.is_exact_at(*corner):
        return kernel.price_blocks(packed, logical, segments, output, floor)
    return _price_scalars(packed, logical, segments, output, floor, workload, segment_state_bytes, profile, law, safety)


def _column(field: str, values: Any) -> Int64:
    if isinstance(values, (list, tuple)) and bool in set(map(type, values)):
        raise QuantityError(field, values, "must be integers, not true or false")  # numpy would count True as 1
    column = numpy.atleast_1d(numpy.asarray(values))
    if column.ndim != 1:
        raise QuantityError(field, column.shape, "must have one dimension")
    if column.size == 0:
        return numpy.empty(0, dtype=numpy.int64)
    if column.dtype == object:
        for value in column.tolist():
            require_count(field, value)
    elif column.dtype.kind not in "iu":
        raise QuantityError(field, str(column.dtype), "must be an integer array")
    if int(column.min()) < 0 or int(column.max()) > MAX_QUANTITY:
        raise QuantityError(field, (int(column.min()), int(column.max())), f"must lie in 0 to {MAX_QUANTITY}")
    return column.astype(numpy.int64, copy=False)


class _Overflow(Exception):
    """An intermediate of the largest corner needs more than 63 bits."""


def _within_int64(value: int) -> int:
    if value > MAX_QUANTITY:
        raise _Overflow
    return value


def _positive_difference(left: Any, right: Any) -> Any:
    return numpy.maximum(left - right, 0)


_CORNER: Final = Arithmetic(maximum=max, minimum=min, excess=lambda left, _right: left, seen=_within_int64)
_ARRAYS: Final = Arithmetic(
    maximum=numpy.maximum, minimum=numpy.minimum, excess=_positive_difference, seen=lambda value: value
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    law: Law
    profile: Profile
    safety: Safety
    packed_priced: bool
    segment_state_bytes: int

    def is_exact_at(self, packed: int, logical: int, segments: int, output: int, floor: int) -> bool:
        """Whether int64 holds every intermediate of every candidate up to this corner."""
        if not self.profile.is_empty and type(self.law) not in _TWINS:
            return False
        try:
            self._required(packed, logical, segments, output, floor, _CORNER)
        except _Overflow:
            return False
        return True

    def price_blocks(self, packed: Int64, logical: Int64, segments: Int64, output: Int64, floor: Int64) -> Int64:
        priced = numpy.empty(packed.shape, dtype=numpy.int64)
        for start in range(0, packed.size, BLOCK_CANDIDATES):
            block = slice(start, start + BLOCK_CANDIDATES)
            rows, outputs = packed[block], output[block]
            required = self._required(rows, logical[block], segments[block], outputs, floor[block], _ARRAYS)
            priced[block] = numpy.where(rows == 0, outputs, required)
        return priced

    def _required(self, packed: Any, logical: Any, segments: Any, output: Any, floor: Any, use: Arithmetic) -> Any:
        """`kernel.price.required_bytes` over columns: the higher of both quantities."""
        allocated = self._priced(self.profile, packed, logical, segments, output, floor, use)
        footprint = self.profile.footprint
        if footprint.is_empty:
            factor = COLD_FOOTPRINT
            return ceil_div_seen(use.seen(factor.numerator * allocated), factor.denominator, use)
        return use.maximum(allocated, self._priced(footprint, packed, logical, segments, output, floor, use))

    def _priced(
        self, evidence: Evidence, packed: Any, logical: Any, segments: Any, output: Any, floor: Any, use: Arithmetic
    ) -> Any:
        compute = floor
        if not evidence.is_empty:
            columns = Columns(
                packed_rows=packed,
                logical_rows=logical,
                grad_segments=segments,
                segment_state_bytes=self.segment_state_bytes,
            )
            twin = _TWINS[type(self.law)]
            compute = use.maximum(floor, twin(self.law, evidence, self.packed_priced, columns, use))
        numerator, denominator = self.safety.numerator, self.safety.denominator
        return ceil_div_seen(use.seen(numerator * use.seen(output + compute)), denominator, use)


def ceil_div_seen(numerator: Any, denominator: int, use: Arithmetic) -> Any:
    """`ceil_div` whose intermediate is seen."""
    return use.seen(numerator + (denominator - 1)) // use.seen(denominator)


def sharing_rows_seen(columns: Columns, sharing: Sharing, growth: int, use: Arithmetic) -> Any:
    """`pricing.kernel.rate_laws.sharing_rows` over columns."""
    implied = ceil_div_seen(
        use.seen(columns.logical_rows * use.seen(sharing.packed_rows)), growth * sharing.logical_rows, use
    )
    return use.maximum(columns.packed_rows, implied)


def _rate_law_twin(law: RateLaw, profile: Evidence, packed_priced: bool, columns: Columns, use: Arithmetic) -> Any:
    """`RateLaw.compute_bytes` over columns."""
    growth = TRUST_GROWTH if packed_priced else UNPACKED_GROWTH
    model = use.seen(profile.peak_bytes_per_row * sharing_rows_seen(columns, profile.sharing, growth, use))
    floor_rows, sharing, rate = profile.warm_packed_rows, profile.warm_sharing, profile.warm_bytes_per_row
    if law.warms and floor_rows is not None and sharing is not None and rate is not None:
        rows = use.maximum(floor_rows, sharing_rows_seen(columns, sharing, growth, use))
        model = use.minimum(model, use.seen(rate * rows))
    if not packed_priced:
        return model
    logical_charge = use.seen(LOGICAL_ROW_BYTES * columns.logical_rows)
    segment_charge = use.seen(columns.segment_state_bytes * columns.grad_segments)
    return use.seen(use.seen(model + logical_charge) + segment_charge)


def _frontier_twin(law: FrontierLaw, profile: Evidence, packed_priced: bool, columns: Columns, use: Arithmetic) -> Any:
    """`FrontierLaw.compute_bytes` over columns: the least of all bounds."""
    frontier = peak_frontier(profile.frontier, packed_priced, columns.segment_state_bytes)
    if not frontier.bounds:
        return _rate_law_twin(WARM, profile, packed_priced, columns, use)
    rows = columns.packed_rows
    if packed_priced and profile.warm_sharing is not None:
        rows = sharing_rows_seen(columns, profile.warm_sharing, TRUST_GROWTH, use)
    bounds = (_bound_bytes_seen(bound, rows, columns, use) for bound in frontier.bounds)
    return reduce(use.minimum, bounds)


def _bound_bytes_seen(bound: Bound, packed_rows: Any, columns: Columns, use: Arithmetic) -> Any:
    """`kernel.frontier.bound_bytes` over columns. Charges that a bound does not make, or makes twice, are left out."""
    unit = bound.packed_rows
    rows = use.maximum(packed_rows, unit)
    lacking_rows = use.excess(use.seen(columns.logical_rows * unit), use.seen(rows * bound.logical_rows))
    lacking_segments = 0
    if bound.segment_rest_bytes or bound.segment_bytes:
        lacking_segments = use.excess(use.seen(columns.grad_segments * unit), use.seen(rows * bound.grad_segments))

    def charge(row_bytes: int, segment_bytes: int) -> Any:
        return use.seen(use.seen(lacking_rows * row_bytes) + use.seen(lacking_segments * segment_bytes))

    charges = charge(bound.row_bytes, bound.segment_rest_bytes)
    if (bound.row_rest_bytes, bound.segment_bytes) != (bound.row_bytes, bound.segment_rest_bytes):
        charges = use.maximum(charges, charge(bound.row_rest_bytes, bound.segment_bytes))
    return ceil_div_seen(use.seen(use.seen(rows * bound.compute_bytes) + charges), unit, use)


register_twin(RateLaw, _rate_law_twin)
register_twin(FrontierLaw, _frontier_twin)


def _price_scalars(
    packed: Int64,
    logical: Int64,
    segments: Int64,
    output: Int64,
    floor: Int64,
    workload: Workload,
    segment_state_bytes: int,
    profile: Profile,
    law: Law,
    safety: Safety,
) -> NDArray[Any]:
    columns = (column.tolist() for column in (packed, logical, segments, output, floor))
    prices = [
        required_bytes(
            Wave(
                packed_rows=rows,
                logical_rows=logical_rows,
                grad_segments=grad_segments,
                output_bytes=output_bytes,
                floor_bytes=floor_bytes,
                segment_state_bytes=segment_state_bytes,
                workload=workload,
            ),
            profile,
            law,
            safety,
        )
        for rows, logical_rows, grad_segments, output_bytes, floor_bytes in zip(*columns, strict=True)
    ]
    fits_int64 = all(value <= MAX_QUANTITY for value in prices)
    return numpy.array(prices, dtype=numpy.int64 if fits_int64 else object)
