"""What a law is: whether a wave is packed-priced, and the interface through which every law answers.

The laws themselves are in `rate_laws` and `frontier`; what is done with their answers is in `price`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from pricing.kernel.profile import Evidence
from pricing.kernel.quantities import SHORT_REQUEST_ROWS
from pricing.kernel.requests import INACTIVE, SINGLE_TARGET, Workload
from pricing.kernel.wave import Wave

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


def ineligibility(profile: Evidence, workload: Workload) -> tuple[Ineligible, ...]:
    """Every reason why a wave of this workload is not packed-priced, in fixed order; empty if it is (section 3).

    Of the profile only its existence counts. No learned figure takes part: a floor on the rate once did, and
    switched the logical charge off exactly where sharing was highest.
    """
    modes, mixes = workload.grad_modes, workload.request_mixes
    reasons: list[Ineligible] = []
    if profile.is_empty:
        reasons.append(Ineligible.NO_PROFILE)
    if not workload.recompute.is_one_layer_full:
        reasons.append(Ineligible.RECOMPUTE)
    if not modes:
        reasons.append(Ineligible.NO_GRAD_MODE)
    if False in modes:
        reasons.append(Ineligible.GRAD_FREE)
    if not _PACKED_MIXES.issuperset(mixes):
        reasons.append(Ineligible.REQUEST_MIX)
    if workload.has_short_request:
        reasons.append(Ineligible.SHORT_REQUEST)
    return tuple(reasons)


_PACKED_MIXES: Final = frozenset((SINGLE_TARGET, INACTIVE))


# --- the interface --------------------------------------------------------------------------------------------------


class BindingTerm(StrEnum):
    """Which part of a price decided it; of equal ones the first in this order. Other laws may name others."""

    NOTHING_TO_RUN = "nothing_to_run"
    COLD = "cold"
    FORECAST = "forecast"
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

    def ineligibility(self, profile: Evidence, workload: Workload) -> tuple[Ineligible, ...]:
        """Why a wave is not packed-priced under this law; empty if it is."""
        ...

    def compute_bytes(self, wave: Wave, profile: Evidence, packed_priced: bool) -> int:
        """Compute bytes before the floor F."""
        ...

    def breakdown(self, wave: Wave, profile: Evidence, packed_priced: bool) -> Breakdown:
        """The same figure, taken apart. `breakdown(...).compute_bytes == compute_bytes(...)`."""
        ...

    def kept_bytes(self, wave: Wave, profile: Evidence, packed_priced: bool) -> int | None:
        """Compute bytes retained after the forward, before the floor C; None where the profile cannot say."""
        ...
