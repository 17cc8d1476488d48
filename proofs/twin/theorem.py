"""The arrays' price is the scalar price, and no intermediate of it is above what the corner's check saw.

`pricing.vectorized` runs one formula twice: on Python ints at the largest corner, where each intermediate is held
against 63 bits, and on int64 arrays. Here the same shipped formula runs on symbolic integers. An element of an int64
array is such an integer as long as nothing wraps; that nothing wraps is the second theorem. What is trusted of numpy is
that its elements are added, multiplied, floor-divided, compared and chosen as int64 says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pricing import vectorized
from pricing.kernel.frontier import bound_bytes
from pricing.kernel.law import Law
from pricing.kernel.price import evidence_bytes, required_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import Safety, ceil_div, maximum, minimum
from pricing.kernel.rate_laws import PACKED, WARM
from pricing.kernel.wave import Wave
from pricing.vectorized import Arithmetic, Columns, _bound_bytes_seen, _Kernel, ceil_div_seen
from proofs.frontier.lemmas import a_product_never_falls_as_both_factors_grow
from proofs.frontier.theorem import a_bound, step
from proofs.lemmas import a_product_never_falls_as_a_factor_grows, rounding_up_never_falls_as_the_numerator_grows
from proofs.solver.proof import Given, theorem
from proofs.solver.symbolic import both

COLUMNS = ("packed_rows", "logical_rows", "grad_segments", "output_bytes", "floor_bytes")


def positive_difference(left: int, right: int) -> int:
    """What `numpy.maximum(left - right, 0)` does to each element."""
    return maximum(left - right, 0)


def elements(seen: list[int] | None = None) -> Arithmetic:
    """Arithmetic on one element of the arrays, which tells what it saw."""
    return Arithmetic(maximum=maximum, minimum=minimum, excess=positive_difference, seen=noting(seen))


def corner(seen: list[int]) -> Arithmetic:
    """Arithmetic at the corner: of an excess its upper bound, as in the shipped one."""
    return Arithmetic(maximum=maximum, minimum=minimum, excess=lambda left, _: left, seen=noting(seen))


def noting(seen: list[int] | None) -> Any:
    def told(value: int) -> int:
        if seen is not None:
            seen.append(value)
        return value

    return told


@contextmanager
def ceilings_as_shipped() -> Iterator[None]:
    """Within, `ceil_div_seen` sees what it sees and gives `ceil_div`: the same, by the first theorem below."""

    def ceiling(numerator: int, denominator: int, use: Arithmetic) -> int:
        use.seen(numerator + (denominator - 1))
        return ceil_div(numerator, use.seen(denominator))

    shipped_one = vectorized.ceil_div_seen
    vectorized.ceil_div_seen = ceiling
    try:
        yield
    finally:
        vectorized.ceil_div_seen = shipped_one


def required_seen(profile: Profile, law: Law, wave: Wave, packed_priced: bool, safety: Safety, use: Arithmetic) -> int:
    """The arrays' formula at one wave, which has rows."""
    kernel = _Kernel(
        law=law,
        profile=profile,
        safety=safety,
        packed_priced=packed_priced,
        segment_state_bytes=wave.segment_state_bytes,
    )
    with ceilings_as_shipped():
        found: int = kernel._required(
            wave.packed_rows, wave.logical_rows, wave.grad_segments, wave.output_bytes, wave.floor_bytes, use
        )
    return found


@theorem("twin")
def a_ceiling_seen_is_the_ceiling(t: Given) -> None:
    numerator, denominator = t.integer("numerator", 0), t.integer("denominator", 1)
    t.prove(ceil_div_seen(numerator, denominator, elements()) == ceil_div(numerator, denominator))


def any_case(t: Given) -> tuple[Profile, Law, bool]:
    """Each rate law, packed-priced or not; nothing learned, or any evidence, with footprints that were read or not."""
    profile, law = t.profile(retained=False, warm=t.choose("none", "pending", "fit")), t.law()
    if t.choose(False, True):
        read = t.footprints(retained=False, warm=t.choose("pending", "fit"))
        known = profile
        t.assume(read.largest_packed_rows >= 1)
        profile = t.valid(lambda: replace(known, footprint=read))
    return profile, law, t.choose(True, False)


@theorem("twin", merging=(evidence_bytes,), slow=True)
def an_element_of_the_arrays_is_priced_as_its_wave(t: Given) -> None:
    profile, law, packed_priced = any_case(t)
    wave, safety = t.wave(workload=t.workload(packed_priced), checkpoint_retained_bytes=0), t.safety()
    t.assume(wave.packed_rows >= 1)
    packed = packed_priced and law.name != "logical"
    found = required_seen(profile, law, wave, packed, safety, elements())
    t.prove(found == required_bytes(wave, profile, law, safety))


@theorem("twin", lemmas=(a_product_never_falls_as_a_factor_grows, rounding_up_never_falls_as_the_numerator_grows))
def no_intermediate_of_an_element_is_above_that_of_the_corner(t: Given) -> None:
    """So where the corner stays within 63 bits, which is checked, nothing wraps."""
    profile = t.profile(retained=False, warm=t.choose("none", "fit"))
    law, packed_priced, safety = t.choose(PACKED, WARM), t.choose(True, False), t.safety()
    wave = t.wave(workload=t.workload(packed_priced), checkpoint_retained_bytes=0)
    largest = t.wave(
        "corner", workload=wave.workload, checkpoint_retained_bytes=0, segment_state_bytes=wave.segment_state_bytes
    )
    t.assume(both(*(getattr(wave, column) <= getattr(largest, column) for column in COLUMNS)))
    seen: list[int] = []
    seen_at_corner: list[int] = []
    required_seen(profile, law, wave, packed_priced, safety, elements(seen))
    required_seen(profile, law, largest, packed_priced, safety, corner(seen_at_corner))
    assert len(seen) == len(seen_at_corner), "the same formula"
    for value, at_corner in zip(seen, seen_at_corner, strict=True):
        step(t, both(value >= 0, value <= at_corner), "an intermediate")


@theorem("twin", lemmas=(a_product_never_falls_as_both_factors_grow,))
def a_bound_of_the_arrays_is_the_bound(t: Given) -> None:
    """The frontier law's twin: for one bound. The least over bounds is one `minimum` after another in both."""
    bound, state = a_bound(t), t.integer("G", 0)
    rows, logical, segments = t.integer("P", 1), t.integer("L", 0), t.integer("S", 0)
    columns = Columns(packed_rows=rows, logical_rows=logical, grad_segments=segments, segment_state_bytes=state)
    # A bound without segment charges: nothing is lacking that would be charged.
    with ceilings_as_shipped():
        found = _bound_bytes_seen(bound, rows, columns, elements())
    t.prove(found == bound_bytes(bound, rows, logical, segments))
