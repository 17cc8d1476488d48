"""Prices: what a law's answer makes of a wave, with floor, outputs and safety factor; and why.

    required = ceil(sigma * (O + max(F, compute)))     O alone where P = 0

`required_bytes` and `retained_bytes` are the hot path of every search, `price` the same figures explained. All three
run unchanged on solver terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pricing.kernel.forecast import FORECAST_SAFETY, with_forecast
from pricing.kernel.law import BindingTerm, Breakdown, Ineligible, Law, Term
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety, maximum, minimum, with_safety
from pricing.kernel.rate_laws import WARM
from pricing.kernel.wave import Wave


def required_bytes(wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY) -> int:
    """Peak bytes above baseline that the wave is priced at (laws, section 4). An int; the hot path of every search.

    Never falls as P, L, S, O or F grow (INV-1, INV-2). With an empty profile it is the cold price: O and F alone,
    or what was forecast (`pricing.kernel.forecast`).
    """
    if wave.packed_rows == 0:
        return wave.output_bytes
    required = with_safety(
        safety.numerator, safety.denominator, wave.output_bytes + _floored_compute_bytes(wave, profile, law)
    )
    return with_forecast(required, wave.forecast_bytes, profile.complete_readings)


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
    nothing was learned or nothing runs. `ineligible` says why the wave was not packed-priced; empty if it was. Where
    a forecast decided, `safety` is the forecasts' own.
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
        learned = with_safety(safety.numerator, safety.denominator, wave.output_bytes + compute)
        required = with_forecast(learned, wave.forecast_bytes, profile.complete_readings)
        if required > learned:
            compute, binding = maximum(0, wave.forecast_bytes - wave.output_bytes), str(BindingTerm.FORECAST)
            safety = FORECAST_SAFETY
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
