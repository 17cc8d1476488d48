"""Prices: what a law's answer makes of a wave, with floor, outputs and safety factor; and why.

    quantity = ceil(sigma * (O + max(F, compute)))     of each quantity by its own evidence; O alone where P = 0
    required = max(allocated, footprint)

A device runs out of what is reserved, so a wave has two prices by the same law: of the peak it **allocates** and of its
**footprint**, what the allocator takes of the device for it. Until a signature has its first footprint, that price is
the allocated one times `COLD_FOOTPRINT`.

`required_bytes` and `retained_bytes` are the hot path of every search, `price` the same figures explained. All three
run unchanged on solver terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from pricing.kernel.forecast import FORECAST_SAFETY, with_forecast
from pricing.kernel.law import BindingTerm, Breakdown, Ineligible, Law, Term
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.profile import Evidence, Profile
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety, maximum, minimum, with_safety
from pricing.kernel.wave import Wave

COLD_FOOTPRINT: Final = Safety(numerator=4, denominator=3)
"""Footprint over allocated peak before any footprint was read. Source: on an H200 the reserved peak of a wave that
began with a released cache lay 8 to 26 % above its allocated peak (dense, MoE and recurrent decoders, 10 k to 162 k
rows; `spec/evidence/h200-physical`). Only waves of fewer than 13 k rows lay higher, up to 41 %: there is room then."""


class Quantity(StrEnum):
    """What a price is a price of."""

    ALLOCATED = "allocated"
    """Bytes handed out at the peak, above what was in use before."""

    FOOTPRINT = "footprint"
    """Bytes reserved at the peak, above what was in use before, of a wave that began with a released cache."""


# --- the hot path ----------------------------------------------------------------------------------------------------


def evidence_bytes(wave: Wave, evidence: Evidence, law: Law = DEFAULT_LAW, safety: Safety = DEFAULT_SAFETY) -> int:
    """What one body of evidence makes of a wave, in bytes above baseline (laws, section 4).

    Never falls as P, L, S, O or F grow (INV-1, INV-2). Without evidence it is the cold price: O and F alone,
    or what was forecast (`pricing.kernel.forecast`).
    """
    if wave.packed_rows == 0:
        return wave.output_bytes
    required = with_safety(
        safety.numerator, safety.denominator, wave.output_bytes + _floored_compute_bytes(wave, evidence, law)
    )
    return with_forecast(required, wave.forecast_bytes, evidence.complete_readings)


def allocated_bytes(wave: Wave, profile: Evidence, law: Law = DEFAULT_LAW, safety: Safety = DEFAULT_SAFETY) -> int:
    """The price of the peak that the wave allocates."""
    return evidence_bytes(wave, profile, law, safety)


def footprint_price_bytes(wave: Wave, profile: Profile, law: Law = DEFAULT_LAW, safety: Safety = DEFAULT_SAFETY) -> int:
    """The price of the wave's footprint: by the footprints seen, or `COLD_FOOTPRINT` times the allocated price."""
    if not profile.footprint.is_empty:
        return evidence_bytes(wave, profile.footprint, law, safety)
    return cold_footprint_bytes(wave, evidence_bytes(wave, profile, law, safety))


def cold_footprint_bytes(wave: Wave, allocated: int) -> int:
    """The footprint's price before the first footprint, from a price of what is allocated. Nothing to run: the same."""
    if wave.packed_rows == 0:
        return allocated
    return with_safety(COLD_FOOTPRINT.numerator, COLD_FOOTPRINT.denominator, allocated)


def required_bytes(wave: Wave, profile: Profile, law: Law = DEFAULT_LAW, safety: Safety = DEFAULT_SAFETY) -> int:
    """Bytes above baseline that the wave is priced at: the higher of its two prices (INV-15)."""
    allocated = evidence_bytes(wave, profile, law, safety)
    if profile.footprint.is_empty:
        return cold_footprint_bytes(wave, allocated)
    return maximum(allocated, evidence_bytes(wave, profile.footprint, law, safety))


def _floored_compute_bytes(wave: Wave, evidence: Evidence, law: Law) -> int:
    if evidence.is_empty:
        return wave.floor_bytes
    packed_priced = not law.ineligibility(evidence, wave.workload)
    return maximum(wave.floor_bytes, law.compute_bytes(wave, evidence, packed_priced))


def retained_bytes(wave: Wave, profile: Profile, law: Law = DEFAULT_LAW, safety: Safety = DEFAULT_SAFETY) -> int:
    """Bytes above baseline that stay after the wave's forward: never above `required_bytes`, and equal to it where the
    profile cannot say (INV-11). The split ladder prices with it. The higher of both quantities', as `required_bytes`.
    """
    allocated = retained_evidence_bytes(wave, profile, law, safety)
    if profile.footprint.is_empty:
        return cold_footprint_bytes(wave, allocated)
    return maximum(allocated, retained_evidence_bytes(wave, profile.footprint, law, safety))


def retained_evidence_bytes(
    wave: Wave, evidence: Evidence, law: Law = DEFAULT_LAW, safety: Safety = DEFAULT_SAFETY
) -> int:
    """What one body of evidence says is retained: at most `evidence_bytes`, and equal to it where it cannot say."""
    return _capped_retained_bytes(wave, evidence, law, safety, evidence_bytes(wave, evidence, law, safety))


def _capped_retained_bytes(wave: Wave, evidence: Evidence, law: Law, safety: Safety, required: int) -> int:
    if wave.packed_rows == 0 or evidence.is_empty:
        return required
    kept = law.kept_bytes(wave, evidence, not law.ineligibility(evidence, wave.workload))
    if kept is None:
        return required
    held = wave.output_bytes + maximum(wave.checkpoint_retained_bytes, kept)
    return minimum(required, with_safety(safety.numerator, safety.denominator, held))


# --- the same figures, explained -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantityPrice:
    """The price of one quantity, taken apart. All figures in bytes above the wave's baseline.

    compute_bytes is before the safety factor: max(floor, least of terms + charges). `terms` is empty where nothing was
    learned or nothing runs. learned: whether the quantity has evidence of its own; a footprint without has the parts of
    the allocated price, and `COLD_FOOTPRINT` times its figures. Where a forecast decided, `safety` is its own.
    """

    quantity: Quantity
    learned: bool
    safety: Safety
    required_bytes: int
    retained_bytes: int
    compute_bytes: int
    terms: tuple[Term, ...]
    logical_charge_bytes: int
    segment_charge_bytes: int
    binding_term: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A price and why it is what it is: the higher of two, both taken apart.

    `ineligible` says why the wave was not packed-priced; empty if it was. What is asked of the price's parts is
    answered from the quantity that decided (of equal ones the allocated).
    """

    law: str
    required_bytes: int
    retained_bytes: int
    output_bytes: int
    floor_bytes: int
    allocated: QuantityPrice
    footprint: QuantityPrice
    ineligible: tuple[Ineligible, ...]

    @property
    def quantity(self) -> Quantity:
        """Which of the two decided."""
        return self.deciding.quantity

    @property
    def deciding(self) -> QuantityPrice:
        is_footprint = self.footprint.required_bytes > self.allocated.required_bytes
        return self.footprint if is_footprint else self.allocated

    @property
    def safety(self) -> Safety:
        return self.deciding.safety

    @property
    def compute_bytes(self) -> int:
        return self.deciding.compute_bytes

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.deciding.terms

    @property
    def logical_charge_bytes(self) -> int:
        return self.deciding.logical_charge_bytes

    @property
    def segment_charge_bytes(self) -> int:
        return self.deciding.segment_charge_bytes

    @property
    def binding_term(self) -> str:
        return self.deciding.binding_term

    @property
    def packed_priced(self) -> bool:
        return not self.ineligible


def price(wave: Wave, profile: Profile, law: Law = DEFAULT_LAW, safety: Safety = DEFAULT_SAFETY) -> Price:
    """The explained price: `required_bytes` and `retained_bytes` with their parts and what decided."""
    allocated = quantity_price(wave, profile, law, safety, Quantity.ALLOCATED)
    if profile.footprint.is_empty:
        footprint = replace(
            allocated,
            quantity=Quantity.FOOTPRINT,
            learned=False,
            required_bytes=cold_footprint_bytes(wave, allocated.required_bytes),
            retained_bytes=cold_footprint_bytes(wave, allocated.retained_bytes),
        )
    else:
        footprint = quantity_price(wave, profile.footprint, law, safety, Quantity.FOOTPRINT)
    return _price_of(wave, profile, law, allocated, footprint)


def allocated_price(wave: Wave, profile: Evidence, law: Law = DEFAULT_LAW, safety: Safety = DEFAULT_SAFETY) -> Price:
    """The explained price of a trainer that knows no footprints and holds `allocated_bytes` against its budget: that
    of a device which reserves no more than it hands out."""
    allocated = quantity_price(wave, profile, law, safety, Quantity.ALLOCATED)
    footprint = replace(allocated, quantity=Quantity.FOOTPRINT, learned=False)
    return _price_of(wave, profile, law, allocated, footprint)


def _price_of(wave: Wave, profile: Evidence, law: Law, allocated: QuantityPrice, footprint: QuantityPrice) -> Price:
    return Price(
        law=law.name,
        required_bytes=maximum(allocated.required_bytes, footprint.required_bytes),
        retained_bytes=maximum(allocated.retained_bytes, footprint.retained_bytes),
        output_bytes=wave.output_bytes,
        floor_bytes=wave.floor_bytes,
        allocated=allocated,
        footprint=footprint,
        ineligible=law.ineligibility(profile, wave.workload),
    )


def quantity_price(wave: Wave, evidence: Evidence, law: Law, safety: Safety, quantity: Quantity) -> QuantityPrice:
    """`evidence_bytes` and `retained_evidence_bytes` with their parts and the term that decided."""
    breakdown, binding = _NOTHING, str(BindingTerm.NOTHING_TO_RUN)
    compute, required = 0, wave.output_bytes
    if wave.packed_rows > 0:
        compute, binding = wave.floor_bytes, str(BindingTerm.COLD)
        if not evidence.is_empty:
            breakdown = law.breakdown(wave, evidence, not law.ineligibility(evidence, wave.workload))
            compute, binding = _floored(wave.floor_bytes, breakdown)
        priced = with_safety(safety.numerator, safety.denominator, wave.output_bytes + compute)
        required = with_forecast(priced, wave.forecast_bytes, evidence.complete_readings)
        if required > priced:
            compute, binding = maximum(0, wave.forecast_bytes - wave.output_bytes), str(BindingTerm.FORECAST)
            safety = FORECAST_SAFETY
    return QuantityPrice(
        quantity=quantity,
        learned=not evidence.is_empty,
        safety=safety,
        required_bytes=required,
        retained_bytes=_capped_retained_bytes(wave, evidence, law, safety, required),
        compute_bytes=compute,
        terms=breakdown.terms,
        logical_charge_bytes=breakdown.logical_charge_bytes,
        segment_charge_bytes=breakdown.segment_charge_bytes,
        binding_term=binding,
    )


_NOTHING: Final = Breakdown(terms=(), logical_charge_bytes=0, segment_charge_bytes=0)


def _floored(floor_bytes: int, breakdown: Breakdown) -> tuple[int, str]:
    compute = breakdown.compute_bytes
    if floor_bytes >= compute:
        return floor_bytes, str(BindingTerm.FLOOR)
    return compute, str(breakdown.least.binding)
