"""INV-15 by CrossHair: one rate of what is allocated, one of footprints."""

from __future__ import annotations

from pricing import contracts
from pricing.kernel.profile import Evidence, Profile
from pricing.kernel.rate_laws import WARM
from proofs.harness import EXACT, profile_with, wave_of


def profile_of_both(rate: int, footprint_rate: int) -> Profile:
    """A profile after its seed, whose footprint was read too."""
    return Profile(
        peak_bytes_per_row=rate,
        largest_packed_rows=1,
        complete_readings=1,
        footprint=Evidence(peak_bytes_per_row=footprint_rate, largest_packed_rows=1, complete_readings=1),
    )


def required_is_the_higher_of_two_prices(rate: int, footprint_rate: int, packed: int, outputs: int) -> bool:
    """
    pre: 0 <= rate <= 10**9 and 0 <= footprint_rate <= 10**9 and 0 <= packed <= 10**9 and 0 <= outputs <= 10**12
    post: _
    """
    profile = profile_of_both(rate, footprint_rate)
    return contracts.required_is_the_higher_price(wave_of(packed, 0, outputs=outputs), profile, WARM, EXACT)


def a_cold_footprint_is_four_thirds_of_what_is_allocated(rate: int, packed: int, outputs: int) -> bool:
    """
    pre: 0 <= rate <= 10**9 and 0 <= packed <= 10**9 and 0 <= outputs <= 10**12
    post: _
    """
    return contracts.footprint_is_priced_as_what_is_allocated(wave_of(packed, 0, outputs=outputs), profile_with(rate))
