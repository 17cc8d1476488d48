"""The kernel against recorded answers of another implementation: price histories and request mixes.

That implementation works in doubles and truncates; ours is exact and rounds up. So a price of ours may lie 2 bytes
under theirs (their two truncations) and above it by sigma * (rate + rows priced + S + 4): one row, one byte a row, one
byte a segment, and roundings (laws, section 4). Counts, flags and keys must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Final

from pricing.formats.codec import decode
from pricing.formats.place import Place
from pricing.formats.strict_json import JsonObject
from pricing.kernel.price import price
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, TRUST_GROWTH, Sharing
from pricing.kernel.rate_laws import WARM, sharing_rows
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, RequestSpec, Workload, mix_key
from pricing.kernel.wave import Wave
from tests.differential.comparison import Comparison
from tests.differential.formats import PACKED_PRICED, History, Observation, PeerProfile, Query, RequestMix

SIGMA: Final = Fraction(DEFAULT_SAFETY.numerator, DEFAULT_SAFETY.denominator)
BELOW_BYTES: Final = 2
"""How far ours may lie under theirs: one byte for each of their two truncations."""
DOUBLE: Final = Fraction(1, 1 << 50)
"""Relative error allowed to a figure of theirs that is a double."""

PACKED_WORKLOAD: Final = Workload.training(shortest_rows=64)
UNPACKED_WORKLOADS: Final[Mapping[str, Workload]] = {
    "wide_labels": replace(PACKED_WORKLOAD, request_mixes=("target:(4,)",)),
    "topk": replace(PACKED_WORKLOAD, request_mixes=("target:single+topk:8",)),
    "short": replace(PACKED_WORKLOAD, shortest_single_target_rows=63),
    "mixed_grad": replace(PACKED_WORKLOAD, grad_modes=(False, True)),
    "no_grad": replace(PACKED_WORKLOAD, grad_modes=(False,)),
    "recompute": replace(PACKED_WORKLOAD, recompute=NO_RECOMPUTE),
}
"""A workload for each reason not to price by packed rows that the recorded queries name."""


def compare_history(line: JsonObject, place: Place, comparison: Comparison) -> None:
    """One history: the profile after each reading, then every query. Raises `PricingError`."""
    case = decode(History, line, place)
    charge = case.geometry.segment_state_bytes
    theirs = Fraction(case.segment_bytes)
    comparison.within("segment bytes", charge, theirs, theirs + 1)
    expected = case.profiles or ()
    profile = Profile()
    for at, observation in enumerate(case.observations):
        profile = _observe(profile, observation)
        if at < len(expected):
            _compare_profile(profile, expected[at], comparison)
    _compare_profile(profile, case.profile, comparison)
    for query in case.queries:
        _compare_query(profile, query, charge, comparison)


def compare_request_mix(line: JsonObject, place: Place, comparison: Comparison) -> None:
    """One request: mix key, short flag, and eligibility under each recorded setting. Raises `PricingError`."""
    case = decode(RequestMix, line, place)
    request = RequestSpec(
        input_shape=case.input_shape,
        target_shape=case.target_shape,
        top_k=case.outputs.top_k,
        logits=case.outputs.logits,
        hidden_states=case.outputs.hidden_states,
        routes=case.outputs.routed,
    )
    comparison.equal("mix key", mix_key(request), case.key)
    comparison.equal("short", request.is_short, case.short)
    for name in [name for name in line if name.startswith(PACKED_PRICED)]:
        _, modes, one_layer = name.split(":")
        workload = Workload(
            grad_modes=tuple(sorted({mode == "True" for mode in modes.split("+") if mode})),
            request_mixes=(mix_key(request),),
            recompute=ONE_LAYER_FULL if one_layer == "True" else NO_RECOMPUTE,
            shortest_single_target_rows=63 if request.is_short else None,
        )
        comparison.equal(name, not WARM.ineligibility(_SOMETHING_LEARNED, workload), line[name])


_SOMETHING_LEARNED: Final = observe(
    Profile(), Reading(packed_rows=64, logical_rows=64, grad_segments=1, output_bytes=0, peak_delta_bytes=64)
)


def _observe(profile: Profile, observation: Observation) -> Profile:
    if observation.packed <= 0:
        return profile
    reading = Reading(
        packed_rows=observation.packed,
        logical_rows=observation.packed if observation.logical is None else observation.logical,
        grad_segments=0,
        output_bytes=observation.output_bytes,
        peak_delta_bytes=observation.peak_delta,
        retained_bytes=observation.retained_bytes,
        kind=ReadingKind.WHOLE_WAVE if observation.caller_phase else ReadingKind.FORWARD_ONLY,
    )
    return observe(profile, reading)


def _compare_profile(profile: Profile, theirs: PeerProfile | None, comparison: Comparison) -> None:
    comparison.equal("something learned", not profile.is_empty, theirs is not None)
    if theirs is None:
        return

    def rate(what: str, ours: int | None) -> None:
        recorded = getattr(theirs, what)
        if ours is None or recorded is None:
            comparison.equal(what, ours, recorded)
            return
        exact = Fraction(recorded)
        comparison.within(what, ours, exact * (1 - DOUBLE), exact * (1 + DOUBLE) + 1)

    def ratio(what: str, ours: Sharing | None) -> None:
        exact = None if ours is None else ours.logical_rows / ours.packed_rows
        comparison.equal(what, exact, getattr(theirs, what))

    rate("bytes_per_token", profile.peak_bytes_per_row)
    rate("retained_compute_bytes_per_token", profile.retained_bytes_per_row)
    rate("warm_bytes_per_token", profile.warm_bytes_per_row)
    ratio("logical_per_packed", profile.sharing)
    ratio("warm_logical_per_packed", profile.warm_sharing)
    comparison.equal("packed_tokens", profile.largest_packed_rows, theirs.packed_tokens)
    comparison.equal("warm_packed_tokens", profile.warm_packed_rows, theirs.warm_packed_tokens)
    comparison.equal("caller_plans", profile.complete_readings, theirs.caller_plans)


def _compare_query(profile: Profile, query: Query, charge: int, comparison: Comparison) -> None:
    wave = _wave(query, charge)
    aim = query.aim or "query"
    priced = price(wave, profile, WARM)
    theirs = query.required
    least = min(priced.terms, key=lambda term: term.model_bytes, default=None)
    rate, rows = (0, 0) if least is None else (least.bytes_per_row, least.rows)
    comparison.within(
        f"{aim} required", priced.allocated.required_bytes, theirs - BELOW_BYTES, theirs + _above(wave, rate, rows)
    )
    if query.trusted is not None:
        _compare_trusted(profile, wave, query.trusted, comparison, aim)
    if query.retained is not None:
        _compare_retained(profile, wave, priced.packed_priced, query.retained, rate, rows, comparison, aim)


def _compare_trusted(profile: Profile, wave: Wave, theirs: bool, comparison: Comparison, aim: str) -> None:
    """Trust growth, as the width search asks it: packed rows alone. The window of retained bytes is narrower.

    One case is decided by the definition, not by either build: an empty wave where no reading had rows. Such readings
    are ignored, so R is unknown, and a wave is inside the window of retained bytes only "where R is known" (laws,
    section 4). So it is not trusted. An implementation that tests 0 <= 8 * 0 alone says that it is; nothing hangs on
    it, because retained bytes are then what is required, and both are the outputs: that is compared.
    """
    trusted = wave.packed_rows <= TRUST_GROWTH * profile.largest_packed_rows and not profile.is_empty
    if theirs and profile.is_empty and wave.packed_rows == 0:
        figures = price(wave, profile, WARM).allocated
        comparison.equal(f"{aim} required of nothing", figures.required_bytes, wave.output_bytes)
        comparison.equal(f"{aim} retained of nothing", figures.retained_bytes, wave.output_bytes)
        comparison.decide("an empty wave is trusted where no reading had rows: not where R is unknown")
        return
    comparison.equal(f"{aim} trusted", trusted, theirs)


def _compare_retained(
    profile: Profile,
    wave: Wave,
    packed_priced: bool,
    theirs: int,
    rate: int,
    rows: int,
    comparison: Comparison,
    aim: str,
) -> None:
    """Retained is a rate of its own, or required where that is less; the wider interval of the two applies."""
    ours = price(wave, profile, WARM).allocated.retained_bytes
    kept_rate = profile.retained_bytes_per_row or 0
    kept_rows = wave.packed_rows
    if not packed_priced:
        kept_rows = sharing_rows(wave.packed_rows, wave.logical_rows, profile.sharing, 1)
    above = max(_above(wave, rate, rows), _above(wave, kept_rate, kept_rows))
    comparison.within(f"{aim} retained", ours, theirs - BELOW_BYTES, theirs + above)


def _above(wave: Wave, rate: int, rows: int) -> Fraction:
    return SIGMA * (rate + rows + wave.grad_segments + 4)


def _wave(query: Query, charge: int) -> Wave:
    """The query's wave. Without logical rows there is no sharing to extrapolate and nothing to charge: P alone.

    Queries of 0 packed rows may still carry logical rows there; a wave of ours cannot. Both price the outputs alone.
    """
    if query.packed_priced and query.logical is not None:
        workload = PACKED_WORKLOAD
    else:
        workload = UNPACKED_WORKLOADS.get(query.why or "", UNPACKED_WORKLOADS["recompute"])
    packed_rows = max(0, query.packed)
    return Wave(
        packed_rows=packed_rows,
        logical_rows=(query.logical or 0) if packed_rows else 0,
        grad_segments=query.segments if packed_rows else 0,
        output_bytes=query.output_bytes,
        floor_bytes=query.static_bytes,
        checkpoint_retained_bytes=query.checkpoint_retained,
        segment_state_bytes=charge,
        workload=workload,
    )
