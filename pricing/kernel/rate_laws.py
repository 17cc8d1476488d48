"""The rate laws: from a wave and a profile to compute and retained bytes, by one rate through the origin.

    model   = B * rows(r)                              all-readings term
    model   = min(model, W * max(Pw, rows(rw)))        warm term, once the warm fit is complete
    charge  = 6144 * L + S * G                         when packed-priced, else 0
    compute = model + charge

with rows(s) = max(P, ceil(L / (k * s))), and k = 8 when packed-priced, else 1. Three laws differ in what they use of
this: `logical` (never packed-priced, no warm term: the extrapolation by sharing ratio that trainers used before),
`packed` (no warm term) and `warm` (all of it). A further law implements `law.Law` and joins
`kernel.laws`; no caller changes.

The functions that carry theorems (`sharing_rows`, `all_readings_bytes`, `warm_bytes`, `charge_bytes`) run unchanged on
solver terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pricing.kernel.law import BindingTerm, Breakdown, Ineligible, Term, ineligibility
from pricing.kernel.profile import Evidence
from pricing.kernel.quantities import LOGICAL_ROW_BYTES, TRUST_GROWTH, Sharing, ceil_div, maximum, minimum
from pricing.kernel.requests import Workload
from pricing.kernel.wave import Wave

UNPACKED_GROWTH: Final = 1
"""k where a wave is not packed-priced: sharing is never extrapolated beyond what was observed."""


# --- the arithmetic --------------------------------------------------------------------------------------------------


def sharing_rows(packed_rows: int, logical_rows: int, sharing: Sharing, growth: int) -> int:
    """rows(s): packed rows, or the rows that L logical rows need at `growth` times the sharing, if more (INV-4)."""
    return maximum(packed_rows, ceil_div(logical_rows * sharing.packed_rows, growth * sharing.logical_rows))


def all_readings_bytes(wave: Wave, profile: Evidence, growth: int) -> int:
    """Model memory by the highest rate of any reading. Covers every reading's compute at its own P (INV-8)."""
    return profile.peak_bytes_per_row * sharing_rows(wave.packed_rows, wave.logical_rows, profile.sharing, growth)


def warm_rows(wave: Wave, floor_rows: int, sharing: Sharing, growth: int) -> int:
    """Rows of the warm term: at least those of the smallest warm wave, however few the wave itself has (INV-6).

    Sound by assumption AFFINE: the rate of the smallest warm wave already carries that wave's share of the fixed cost.
    """
    return maximum(floor_rows, sharing_rows(wave.packed_rows, wave.logical_rows, sharing, growth))


def warm_bytes(wave: Wave, profile: Evidence, growth: int) -> int | None:
    """Model memory by what waves after the seed taught; None while the warm fit is incomplete."""
    floor_rows, sharing, rate = profile.warm_packed_rows, profile.warm_sharing, profile.warm_bytes_per_row
    if floor_rows is None or sharing is None or rate is None:
        return None
    return rate * warm_rows(wave, floor_rows, sharing, growth)


def model_bytes(wave: Wave, profile: Evidence, growth: int, *, warm: bool) -> int:
    """Model memory: the all-readings term, or the warm term where that is there and lower (INV-7)."""
    model = all_readings_bytes(wave, profile, growth)
    warm_term = warm_bytes(wave, profile, growth) if warm else None
    return model if warm_term is None else minimum(model, warm_term)


def charge_bytes(wave: Wave) -> int:
    """Head and caller memory by logical row (assumption HEAD), and recurrent states by segment (assumption SEGMENT)."""
    return LOGICAL_ROW_BYTES * wave.logical_rows + wave.grad_segments * wave.segment_state_bytes


# --- the laws --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLaw:
    """The laws of the source documents: one rate through the origin, one warm rate, both with a reach in sharing."""

    name: str
    summary: str
    packs: bool
    warms: bool

    def ineligibility(self, profile: Evidence, workload: Workload) -> tuple[Ineligible, ...]:
        return ineligibility(profile, workload) if self.packs else (Ineligible.LAW,)

    def compute_bytes(self, wave: Wave, profile: Evidence, packed_priced: bool) -> int:
        if packed_priced:
            return model_bytes(wave, profile, TRUST_GROWTH, warm=self.warms) + charge_bytes(wave)
        return model_bytes(wave, profile, UNPACKED_GROWTH, warm=self.warms)

    def breakdown(self, wave: Wave, profile: Evidence, packed_priced: bool) -> Breakdown:
        growth = TRUST_GROWTH if packed_priced else UNPACKED_GROWTH
        terms = [_all_readings_term(wave, profile, growth)]
        if self.warms and profile.has_warm_fit:
            terms.append(_warm_term(wave, profile, growth))
        return Breakdown(
            terms=tuple(terms),
            logical_charge_bytes=LOGICAL_ROW_BYTES * wave.logical_rows if packed_priced else 0,
            segment_charge_bytes=wave.grad_segments * wave.segment_state_bytes if packed_priced else 0,
        )

    def kept_bytes(self, wave: Wave, profile: Evidence, packed_priced: bool) -> int | None:
        rate = profile.retained_bytes_per_row
        if rate is None or not is_retained_trusted(wave, profile):
            return None
        if packed_priced:
            return rate * wave.packed_rows + LOGICAL_ROW_BYTES * wave.logical_rows
        return rate * sharing_rows(wave.packed_rows, wave.logical_rows, profile.sharing, UNPACKED_GROWTH)


def is_retained_trusted(wave: Wave, profile: Evidence) -> bool:
    """Whether a wave lies within both windows: 8 times the packed rows and 8 times the sharing ever seen (INV-11)."""
    return wave.packed_rows <= TRUST_GROWTH * profile.largest_packed_rows and (
        wave.logical_rows * profile.sharing.packed_rows
        <= TRUST_GROWTH * profile.sharing.logical_rows * maximum(1, wave.packed_rows)
    )


def _all_readings_term(wave: Wave, profile: Evidence, growth: int) -> Term:
    rows = sharing_rows(wave.packed_rows, wave.logical_rows, profile.sharing, growth)
    return Term(
        binding=BindingTerm.ALL_READINGS if rows == wave.packed_rows else BindingTerm.ALL_READINGS_CLAMPED,
        rows=rows,
        bytes_per_row=profile.peak_bytes_per_row,
        model_bytes=profile.peak_bytes_per_row * rows,
    )


def _warm_term(wave: Wave, profile: Evidence, growth: int) -> Term:
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
    name="warm", summary="as packed, lowered by what waves after the first taught", packs=True, warms=True
)
