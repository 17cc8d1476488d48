"""The four mistaken rules, in the kernel's own terms. Each is a law that was once written in good faith.

They take the kernel's `Wave` and `Profile` and stand where `compute_bytes` of a law stands: before outputs, floor and
safety factor. `floats_price` keeps doubles on purpose.
"""

from __future__ import annotations

from pricing.kernel.profile import Profile
from pricing.kernel.quantities import TRUST_GROWTH, ceil_div, maximum
from pricing.kernel.rate_laws import all_readings_bytes, charge_bytes, sharing_rows, warm_bytes
from pricing.kernel.wave import Wave


def size_gate_price(wave: Wave, profile: Profile) -> int:
    """The warm rate only for waves at or above the smallest warm size; below it, the all-readings rate."""
    warm, floor_rows = profile.warm_bytes_per_row, profile.warm_packed_rows
    if warm is None or floor_rows is None or wave.packed_rows < floor_rows:
        return profile.peak_bytes_per_row * wave.packed_rows
    return warm * wave.packed_rows


def ratio_price(wave: Wave, profile: Profile) -> int:
    """The highest rate of one reading times the rows that the highest sharing of another implies.

    Two maxima kept apart and multiplied: neither reading ever said this, and the wave's own packed rows take no part.
    """
    sharing = profile.sharing
    return profile.peak_bytes_per_row * ceil_div(wave.logical_rows * sharing.packed_rows, sharing.logical_rows)


def floats_price(packed_rows: int, compute_bytes: int, at_rows: int) -> int:
    """A rate kept as a double and a price truncated to whole bytes, learned from `compute_bytes` at `at_rows`."""
    return int(compute_bytes / at_rows * packed_rows)


def unclamped_price(wave: Wave, profile: Profile) -> int:
    """Packed pricing up to 8 times the observed sharing, the old extrapolation by sharing beyond.

    Without the clamp (8 times the observed sharing goes on being believed) the two rules do not meet at the boundary.
    """
    sharing = profile.sharing
    reach = TRUST_GROWTH * sharing.logical_rows * wave.packed_rows
    if wave.logical_rows * sharing.packed_rows <= reach:
        return profile.peak_bytes_per_row * wave.packed_rows + charge_bytes(wave)
    return profile.peak_bytes_per_row * sharing_rows(wave.packed_rows, wave.logical_rows, sharing, 1)


def repaired_gate_price(wave: Wave, profile: Profile) -> int:
    """What became of the size gate: a floor under the rows, not a gate."""
    term = warm_bytes(wave, profile, TRUST_GROWTH)
    return all_readings_bytes(wave, profile, TRUST_GROWTH) if term is None else maximum(0, term)
