"""Short ways to make waves, readings and profiles in tests: everything not named is as plain as it can be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from pricing import Evidence, Profile, Reading, ReadingKind, Sharing, Wave, Workload, observe
from pricing.kernel.quantities import UNSHARED

PACKED = Workload.training(shortest_rows=64)
"""A workload that is packed-priced."""


def a_wave(
    packed_rows: int,
    logical_rows: int | None = None,
    segments: int = 0,
    *,
    output_bytes: int = 0,
    floor_bytes: int = 0,
    checkpoint_retained_bytes: int = 0,
    segment_state_bytes: int = 0,
    workload: Workload = PACKED,
) -> Wave:
    return Wave(
        packed_rows=packed_rows,
        logical_rows=packed_rows if logical_rows is None else logical_rows,
        grad_segments=segments,
        output_bytes=output_bytes,
        floor_bytes=floor_bytes,
        checkpoint_retained_bytes=checkpoint_retained_bytes,
        segment_state_bytes=segment_state_bytes,
        workload=workload,
    )


def a_reading(
    packed_rows: int,
    peak_delta_bytes: int,
    kind: ReadingKind = ReadingKind.WHOLE_WAVE,
    *,
    logical_rows: int | None = None,
    output_bytes: int = 0,
    retained_bytes: int | None = None,
    grads: bool = True,
    closes_wave: bool = False,
    footprint_bytes: int | None = None,
) -> Reading:
    is_failed = kind is ReadingKind.OUT_OF_MEMORY
    return Reading(
        packed_rows=packed_rows,
        logical_rows=packed_rows if logical_rows is None else logical_rows,
        grad_segments=1,
        output_bytes=output_bytes,
        peak_delta_bytes=peak_delta_bytes,
        retained_bytes=retained_bytes,
        grads=grads,
        kind=kind,
        closes_wave=closes_wave,
        footprint_bytes=peak_delta_bytes if is_failed and footprint_bytes is None else footprint_bytes,
    )


def learned(readings: Iterable[Reading], profile: Profile | None = None) -> Profile:
    """The profile after `readings`, in order."""
    profile = Profile() if profile is None else profile
    for reading in readings:
        profile = observe(profile, reading)
    return profile


def rate_profile(bytes_per_row: int, packed_rows: int, sharing: Sharing = UNSHARED, retained: int = 0) -> Profile:
    """A profile of one reading: so many bytes a row, at so many rows."""
    return Profile(
        peak_bytes_per_row=bytes_per_row,
        largest_packed_rows=packed_rows,
        sharing=sharing,
        retained_bytes_per_row=retained or None,
        complete_readings=1,
    )


def without_cache(profile: Profile) -> Profile:
    """`profile` as a device without a cache would have taught it: each footprint is the allocated peak.

    Both quantities then have the same price.
    """
    own = {field.name: getattr(profile, field.name) for field in fields(Evidence)}
    return replace(profile, footprint=Evidence(**own))
