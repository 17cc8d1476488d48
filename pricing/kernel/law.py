"""The laws: from a wave and a profile to the peak and retained bytes it will need.

    model    = B * rows(r)                              all-readings term
    model    = min(model, W * max(Pw, rows(rw)))        warm term, once the warm fit is complete
    charge   = 6144 * L + S * G                         when packed-priced, else 0
    compute  = max(F, model + charge)
    required = ceil(sigma * (O + compute))              O alone where P = 0

with rows(s) = max(P, ceil(L / (k * s))), and k = 8 when packed-priced, else 1. Three laws differ in what they use of
this: `logical` (never packed-priced, no warm term: the extrapolation by sharing ratio that trainers used before),
`packed` (no warm term) and `warm` (all of it; the default). A further law implements `Law` and joins `kernel.laws`;
no caller changes.

The functions that carry theorems (`sharing_rows`, `all_readings_bytes`, `warm_bytes`, `charge_bytes`, `required_bytes`,
`retained_bytes`) run unchanged on solver terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from pricing.kernel.profile import Profile
from pricing.kernel.quantities import (
    DEFAULT_SAFETY,
    LOGICAL_ROW_BYTES,
    SHORT_REQUEST_ROWS,
    TRUST_GROWTH,
    Safety,
    Sharing,
    ceil_div,
    maximum,
    minimum,
    with_safety,
)
from pricing.kernel.requests import INACTIVE, SINGLE_TARGET, Workload
from pricing.kernel.wave import Wave

UNPACKED_GROWTH: Final = 1
"""k where a wave is not packed-priced: sharing is never extrapolated beyond what was observed."""


# --- eligibility -----------------------------------------------------------------------------------------------------


class Ineligible(StrEnum):
    """Why a wave is not packed-priced. The value is a sentence for people; the name is stable."""

    LAW = "this law never prices by packed rows"
    NO_PROFILE = "no reading of this memory signature yet"
    RECOMPUTE = "activation recompute is not live as full, uniform, one layer"
    NO_GRAD_MODE = "no group with an active request"
    GRAD_FREE = "a group runs without gradients"
    REQUEST_MIX = "a request asks for something other than single-target log-probabilities"
    SHORT_REQUEST = f"a single-target request is shorter than {SHORT_REQUEST_ROWS} rows"


def ineligibility(profile: Profile, workload: Workload) -> tuple[Ineligible, ...]:
    """Every reason why a wave of this workload is not packed-priced, in fixed order; empty if it is (section 3).

    Of the profile only its existence counts. No learned figure takes part: a floor on the rate once did, and
    switched the logical charge off exactly where sharing was highest.
    """
    checks = (
        (Ineligible.NO_PROFILE, profile.is_empty),
        (Ineligible.RECOMPUTE, not workload.recompute.is_one_layer_full),
        (Ineligible.NO_GRAD_MODE, not workload.grad_modes),
        (Ineligible.GRAD_FREE, False in workload.grad_modes),
        (Ineligible.REQUEST_MIX, any(mix not in _PACKED_MIXES for mix in workload.request_mixes)),
        (Ineligible.SHORT_REQUEST, workload.has_short_request),
    )
    return tuple(reason for reason, applies in checks if applies)


_PACKED_MIXES: Final = frozenset((SINGLE_TARGET, INACTIVE))


# --- the arithmetic --------------------------------------------------------------------------------------------------


def sharing_rows(packed_rows: int, logical_rows: int, sharing: Sharing, growth: int) -> int:
    """rows(s): packed rows, or the rows that L logical rows need at `growth` times the sharing, if more (INV-4)."""
    return maximum(packed_rows, ceil_div(logical_rows * sharing.packed_rows, growth * sharing.logical_rows))


def all_readings_bytes(wave: Wave, profile: Profile, growth: int) -> int:
    """Model memory by the highest rate of any reading. Covers every reading's compute at its own P (INV-8)."""
    return profile.peak_bytes_per_row * sharing_rows(wave.packed_rows, wave.logical_rows, profile.sharing, growth)


def warm_rows(wave: Wave, floor_rows: int, sharing: Sharing, growth: int) -> int:
    """Rows of the warm term: at least those of the smallest warm wave, however few the wave itself has (INV-6).

    Sound by assumption AFFINE: the rate of the smallest warm wave already carries that wave's share of the fixed cost.
    """
    return maximum(floor_rows, sharing_rows(wave.packed_rows, wave.logical_rows, sharing, growth))


def warm_bytes(wave: Wave, profile: Profile, growth: int) -> int | None:
    """Model memory by what waves after the seed taught; None while the warm fit is incomplete."""
    floor_rows, sharing, rate = profile.warm_packed_rows, profile.warm_sharing, profile.warm_bytes_per_row
    if floor_rows is None or sharing is None or rate is None:
        return None
    return rate * warm_rows(wave, floor_rows, sharing, growth)


def model_bytes(wave: Wave, profile: Profile, growth: int, *, warm: bool) -> int:
    """Model memory: the all-readings term, or the warm term where that is there and lower (INV-7)."""
    model = all_readings_bytes(wave, profile, growth)
    warm_term = warm_bytes(wave, profile, growth) if warm else None
    return model if warm_term is None else minimum(model, warm_term)


def charge_bytes(wave: Wave) -> int:
    """Head and caller memory by logical row (assumption HEAD), and recurrent states by segment (assumption SEGMENT)."""
    return LOGICAL_ROW_BYTES * wave.logical_rows + wave.grad_segments * wave.segment_state_bytes


# --- laws ------------------------------------------------------------------------------------------------------------


class BindingTerm(StrEnum):
    """Which part of a price decided it; of equal ones the first in this order. Other laws may name others."""

    NOTHING_TO_RUN = "nothing_to_run"
    COLD = "cold"
    FLOOR = "floor"
    ALL_READINGS = "all_readings"
    ALL_READINGS_CLAMPED = "all_readings_clamped"
    WARM = "warm"
    WARM_CLAMPED = "warm_clamped"
    WARM_FLOOR = "warm_floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One candidate for the model memory: `rows` priced at `bytes_per_row`, and the binding term it would be."""

    binding: str
    rows: int
    bytes_per_row: int
    model_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """A law's compute bytes before the floor F, taken apart: the least of `terms`, plus the charges."""

    terms: tuple[Term, ...]
    logical_charge_bytes: int
    segment_charge_bytes: int

    @property
    def least(self) -> Term:
        """The term that prices: the least, of equal ones the first."""
        return min(self.terms, key=lambda term: term.model_bytes)

    @property
    def compute_bytes(self) -> int:
        return self.least.model_bytes + self.logical_charge_bytes + self.segment_charge_bytes


class Law(Protocol):
    """What a law answers. `profile` is never empty and `wave` never without rows: the callers below see to that.

    A law must be a pure function of its arguments and keep INV-1..3 and INV-8..14 (see `pricing.contracts`).
    """

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    def ineligibility(self, profile: Profile, workload: Workload) -> tuple[Ineligible, ...]:
        """Why a wave is not packed-priced under this law; empty if it is."""
        ...

    def compute_bytes(self, wave: Wave, profile: Profile, packed_priced: bool) -> int:
        """Compute bytes before the floor F."""
        ...

    def breakdown(self, wave: Wave, profile: Profile, packed_priced: bool) -> Breakdown:
        """The same figure, taken apart. `breakdown(...).compute_bytes == compute_bytes(...)`."""
        ...

    def kept_bytes(self, wave: Wave, profile: Profile, packed_priced: bool) -> int | None:
        """Compute bytes retained after the forward, before the floor C; None where the profile cannot say."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLaw:
    """The laws of the source documents: one rate through the origin, one warm rate, both with a reach in sharing."""

    name: str
    summary: str
    packs: bool
    warms: bool

    def ineligibility(self, profile: Profile, workload: Workload) -> tuple[Ineligible, ...]:
        return ineligibility(profile, workload) if self.packs else (Ineligible.LAW,)

    def compute_bytes(self, wave: Wave, profile: Profile, packed_priced: bool) -> int:
        if packed_priced:
            return model_bytes(wave, profile, TRUST_GROWTH, warm=self.warms) + charge_bytes(wave)
        return model_bytes(wave, profile, UNPACKED_GROWTH, warm=self.warms)

    def breakdown(self, wave: Wave, profile: Profile, packed_priced: bool) -> Breakdown:
        growth = TRUST_GROWTH if packed_priced else UNPACKED_GROWTH
        terms = [_all_readings_term(wave, profile, growth)]
        if self.warms and profile.has_warm_fit:
            terms.append(_warm_term(wave, profile, growth))
        return Breakdown(
            terms=tuple(terms),
            logical_charge_bytes=LOGICAL_ROW_BYTES * wave.logical_rows if packed_priced else 0,
            segment_charge_bytes=wave.grad_segments * wave.segment_state_bytes if packed_priced else 0,
        )

    def kept_bytes(self, wave: Wave, profile: Profile, packed_priced: bool) -> int | None:
        rate = profile.retained_bytes_per_row
        if rate is None or not is_retained_trusted(wave, profile):
            return None
        if packed_priced:
            return rate * wave.packed_rows + LOGICAL_ROW_BYTES * wave.logical_rows
        return rate * sharing_rows(wave.packed_rows, wave.logical_rows, profile.sharing, UNPACKED_GROWTH)


def is_retained_trusted(wave: Wave, profile: Profile) -> bool:
    """Whether a wave lies within both windows: 8 times the packed rows and 8 times the sharing ever seen (INV-11)."""
    return wave.packed_rows <= TRUST_GROWTH * profile.largest_packed_rows and (
        wave.logical_rows * profile.sharing.packed_rows
        <= TRUST_GROWTH * profile.sharing.logical_rows * maximum(1, wave.packed_rows)
    )


def _all_readings_term(wave: Wave, profile: Profile, growth: int) -> Term:
    rows = sharing_rows(wave.packed_rows, wave.logical_rows, profile.sharing, growth)
    return Term(
        binding=BindingTerm.ALL_READINGS if rows == wave.packed_rows else BindingTerm.ALL_READINGS_CLAMPED,
        rows=rows,
        bytes_per_row=profile.peak_bytes_per_row,
        model_bytes=profile.peak_bytes_per_row * rows,
    )


def _warm_term(wave: Wave, profile: Profile, growth: int) -> Term:
    floor_rows, sharing, rate = profile.warm_packed_rows, profile.warm_sharing, profile.warm_bytes_per_row
    assert floor_rows is not None and sharing is not None and rate is not None, "a warm fit has all three"
    rows = warm_rows(wave, floor_rows, sharing, growth)
    if rows == wave.packed_rows:
        binding = BindingTerm.WARM
    elif rows == sharing_rows(wave.packed_rows, wave.logical_rows, sharing, growth):
        binding = BindingTerm.WARM_CLAMPED
    else:
        binding = BindingTerm.WARM_FLOOR
    return Term(binding=binding, rows=rows, bytes_per_row=rate, model_bytes=rate * rows)


LOGICAL: Final = RateLaw(
    name="logical", summary="extrapolates every wave by its sharing ratio (the rule before)", packs=False, warms=False
)
PACKED: Final = RateLaw(
    name="packed", summary="prices packed rows by the highest rate of any reading", packs=True, warms=False
)
WARM: Final = RateLaw(
    name="warm", summary="as packed, lowered by what waves after the first taught (default)", packs=True, warms=True
)


# --- prices ----------------------------------------------------------------------------------------------------------


def required_bytes(wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY) -> int:
    """Peak bytes above baseline that the wave is priced at (laws, section 4). An int; the hot path of every search.

    Never falls as P, L, S, O or F grow (INV-1, INV-2). With an empty profile it is the cold price: O and F alone.
    """
    if wave.packed_rows == 0:
        return wave.output_bytes
    return with_safety(
        safety.numerator, safety.denominator, wave.output_bytes + _floored_compute_bytes(wave, profile, law)
    )


def _floored_compute_bytes(wave: Wave, profile: Profile, law: Law) -> int:
    if profile.is_empty:
        return wave.floor_bytes
    packed_priced = not law.ineligibility(profile, wave.workload)
    return maximum(wave.floor_bytes, law.compute_bytes(wave, profile, packed_priced))


def retained_bytes(wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY) -> int:
    """Bytes above baseline that stay after the wave's forward: never above `required_bytes`, and equal to it where the
    profile cannot say (INV-11). The split ladder prices with it."""
    return _capped_retained_bytes(wave, profile, law, safety, required_bytes(wave, profile, law, safety))


def _capped_retained_bytes(wave: Wave, profile: Profile, law: Law, safety: Safety, required: int) -> int:
    if wave.packed_rows == 0 or profile.is_empty:
        return required
    kept = law.kept_bytes(wave, profile, not law.ineligibility(profile, wave.workload))
    if kept is None:
        return required
    held = wave.output_bytes + maximum(wave.checkpoint_retained_bytes, kept)
    return minimum(required, with_safety(safety.numerator, safety.denominator, held))


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price and why it is what it is. All figures in bytes above the wave's baseline.

    compute_bytes is before the safety factor: max(floor_bytes, least of terms + charges). `terms` is empty where
    nothing was learned or nothing runs. `ineligible` says why the wave was not packed-priced; empty if it was.
    """

    law: str
    safety: Safety
    required_bytes: int
    retained_bytes: int
    compute_bytes: int
    output_bytes: int
    floor_bytes: int
    terms: tuple[Term, ...]
    logical_charge_bytes: int
    segment_charge_bytes: int
    binding_term: str
    ineligible: tuple[Ineligible, ...]

    @property
    def packed_priced(self) -> bool:
        return not self.ineligible


def price(wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY) -> Price:
    """The explained price: `required_bytes` and `retained_bytes` with their parts and the term that decided."""
    ineligible = law.ineligibility(profile, wave.workload)
    breakdown, binding = _NOTHING, str(BindingTerm.NOTHING_TO_RUN)
    compute, required = 0, wave.output_bytes
    if wave.packed_rows > 0:
        compute, binding = wave.floor_bytes, str(BindingTerm.COLD)
        if not profile.is_empty:
            breakdown = law.breakdown(wave, profile, not ineligible)
            compute, binding = _floored(wave.floor_bytes, breakdown)
        required = with_safety(safety.numerator, safety.denominator, wave.output_bytes + compute)
    return Price(
        law=law.name,
        safety=safety,
        required_bytes=required,
        retained_bytes=_capped_retained_bytes(wave, profile, law, safety, required),
        compute_bytes=compute,
        output_bytes=wave.output_bytes,
        floor_bytes=wave.floor_bytes,
        terms=breakdown.terms,
        logical_charge_bytes=breakdown.logical_charge_bytes,
        segment_charge_bytes=breakdown.segment_charge_bytes,
        binding_term=binding,
        ineligible=ineligible,
    )


_NOTHING: Final = Breakdown(terms=(), logical_charge_bytes=0, segment_charge_bytes=0)


def _floored(floor_bytes: int, breakdown: Breakdown) -> tuple[int, str]:
    compute = breakdown.compute_bytes
    if floor_bytes >= compute:
        return floor_bytes, str(BindingTerm.FLOOR)
    return compute, str(breakdown.least.binding)
