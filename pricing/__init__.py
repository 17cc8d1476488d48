"""packed-pricing: what a wave of prefix-shared requests will need on the device, before it runs.

>>> from pricing import Profile, Reading, ReadingKind, Wave, Workload, observe, price
>>> profile = observe(Profile(), Reading(packed_rows=1_000, logical_rows=1_000, grad_segments=1, output_bytes=0,
...     peak_delta_bytes=459_782_000, kind=ReadingKind.WHOLE_WAVE))
>>> wave = Wave(packed_rows=16_205, logical_rows=109_065, grad_segments=0, output_bytes=0,
...     workload=Workload.training(shortest_rows=512))
>>> priced = price(wave, profile)
>>> priced.allocated.required_bytes, priced.binding_term
(8932948937, 'all_readings')
>>> priced.required_bytes, str(priced.quantity)  # no footprint was read yet: 4/3 of what is allocated
(11910598583, 'footprint')
"""

from pricing.kernel.errors import (
    FileFormatError,
    InvalidReadingError,
    PricingError,
    ProfileError,
    QuantityError,
    SafetyError,
    UnknownLawError,
    UnknownReadingKindError,
    WaveError,
)
from pricing.kernel.law import BindingTerm, Ineligible, Law, Term, ineligibility
from pricing.kernel.laws import DEFAULT_LAW, LAWS, find_law
from pricing.kernel.price import (
    Price,
    Quantity,
    QuantityPrice,
    allocated_bytes,
    footprint_price_bytes,
    price,
    required_bytes,
    retained_bytes,
)
from pricing.kernel.profile import Evidence, Profile, needs_footprint, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, GIB, Safety, Sharing
from pricing.kernel.reading import Reading, ReadingKind, out_of_memory_footprint_bytes
from pricing.kernel.requests import (
    NO_RECOMPUTE,
    ONE_LAYER_FULL,
    RecomputeMode,
    RequestGroup,
    RequestSpec,
    Signature,
    Workload,
    mix_key,
    signature_of,
    workload_of,
)
from pricing.kernel.wave import RecurrentGeometry, Wave, segment_state_bytes

__all__ = [
    "DEFAULT_LAW",
    "DEFAULT_SAFETY",
    "GIB",
    "LAWS",
    "NO_RECOMPUTE",
    "ONE_LAYER_FULL",
    "BindingTerm",
    "Evidence",
    "FileFormatError",
    "Ineligible",
    "InvalidReadingError",
    "Law",
    "Price",
    "PricingError",
    "Profile",
    "ProfileError",
    "Quantity",
    "QuantityError",
    "QuantityPrice",
    "Reading",
    "ReadingKind",
    "RecomputeMode",
    "RecurrentGeometry",
    "RequestGroup",
    "RequestSpec",
    "Safety",
    "SafetyError",
    "Sharing",
    "Signature",
    "Term",
    "UnknownLawError",
    "UnknownReadingKindError",
    "Wave",
    "WaveError",
    "Workload",
    "allocated_bytes",
    "find_law",
    "footprint_price_bytes",
    "ineligibility",
    "mix_key",
    "needs_footprint",
    "observe",
    "out_of_memory_footprint_bytes",
    "price",
    "required_bytes",
    "retained_bytes",
    "segment_state_bytes",
    "signature_of",
    "workload_of",
]
