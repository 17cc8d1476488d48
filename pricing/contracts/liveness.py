"""Contracts of witnesses: what complete readings say of a wave, beside its price."""

from __future__ import annotations

from dataclasses import replace

from pricing.contracts.rates import is_grown
from pricing.kernel.bands import Anchor, merge_witnesses, witness_class
from pricing.kernel.law import Law
from pricing.kernel.liveness import stands_against, witnessed_bytes, witnessed_compute_bytes
from pricing.kernel.price import required_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety
from pricing.kernel.rate_laws import WARM
from pricing.kernel.reading import Reading
from pricing.kernel.wave import Wave


def witnessed_never_falls(
    wave: Wave, larger: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY
) -> bool:
    """INV-20: the witnessed price never falls as P, L, S, O or F grow, and none appears where there was none. Premise:
    `larger` is no less than `wave` in any of them."""
    if not is_grown(wave, larger) or wave.packed_rows == 0:
        return True
    less, more = witnessed_bytes(wave, profile, law, safety), witnessed_bytes(larger, profile, law, safety)
    return more is None or (less is not None and less <= more)


def complete_reading_is_a_witness(profile: Profile, reading: Reading, wave: Wave) -> bool:
    """INV-20: after a complete reading its class has a witness of no more compute a row, and a wave like that witness
    is witnessed at what the witness took (a byte a row and segment more at most, by rounding). Others teach none."""
    known = observe(profile, reading)
    if not reading.is_complete or reading.compute_bytes == 0 or reading.logical_rows == 0:
        return known.witnesses == profile.witnesses
    told = Anchor(
        compute_bytes=reading.compute_bytes,
        packed_rows=reading.packed_rows,
        logical_rows=reading.logical_rows,
        grad_segments=reading.grad_segments,
    )
    (kept,) = [anchor for anchor in known.witnesses if witness_class(anchor) == witness_class(told)]
    if kept.compute_bytes * told.packed_rows > told.compute_bytes * kept.packed_rows:
        return False
    own = replace(
        wave,
        packed_rows=kept.packed_rows,
        logical_rows=kept.logical_rows,
        grad_segments=kept.grad_segments,
    )
    said = witnessed_compute_bytes(own, known, packed_priced=False)
    return said is not None and said <= kept.compute_bytes + max(kept.packed_rows, kept.logical_rows)


def a_witness_changes_no_price(wave: Wave, profile: Profile, law: Law = WARM, safety: Safety = DEFAULT_SAFETY) -> bool:
    """INV-20: the price with witnesses is the price without, of both quantities."""
    bare = replace(profile, witnesses=(), footprint=replace(profile.footprint, witnesses=()))
    return required_bytes(wave, profile, law, safety) == required_bytes(wave, bare, law, safety)


def only_a_doubled_price_is_doubted(required: int, witnessed: int | None) -> bool:
    """INV-20: a price is doubted exactly where it is at least twice what witnesses say."""
    return stands_against(required, witnessed) == (witnessed is not None and required >= 2 * witnessed)


def witnesses_merge_in_any_order(one: Profile, other: Profile) -> bool:
    """INV-20: what two processes witnessed is kept in one order, each class's lowest, whoever saves first."""
    both = merge_witnesses(one.witnesses, other.witnesses)
    return both == merge_witnesses(other.witnesses, one.witnesses) == merge_witnesses(both, one.witnesses)
