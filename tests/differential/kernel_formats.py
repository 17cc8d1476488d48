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

from pricing.formats.strict_json import Fields
from pricing.kernel.price import price
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, TRUST_GROWTH, Sharing
from pricing.kernel.rate_laws import WARM, sharing_rows
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, RequestSpec, Workload, mix_key
from pricing.kernel.wave import RecurrentGeometry, Wave, segment_state_bytes
from tests.differential.comparison import Comparison

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


def compare_history(case: Fields, comparison: Comparison) -> None:
    """One history: the profile after each reading, then every query. Raises `FileFormatError`."""
    geometry = _geometry(case.member("geometry"))
    charge = segment_state_bytes(geometry)
    theirs = _number(case, "segment_bytes")
    comparison.within("segment bytes", charge, theirs, theirs + 1)
    expected = case.optional_members("profiles") if case.has("profiles") else []
    profile = Profile()
    for at, observation in enumerate(case.members("observations")):
        profile = _observe(profile, observation)
        if at < len(expected):
            _compare_profile(profile, expected[at], comparison)
    _compare_profile(profile, case.optional_member("profile"), comparison)
    for query in case.members("queries"):
        _compare_query(profile, query, charge, comparison)


def compare_request_mix(case: Fields, comparison: Comparison) -> None:
    """One request: mix key, short flag, and eligibility under each recorded setting. Raises `FileFormatError`."""
    outputs = case.member("outputs")
    request = RequestSpec(
        input_shape=case.counts("input_shape"),
        target_shape=case.counts("target_shape") if case.has("target_shape") else None,
        top_k=outputs.optional_count("top_k"),
        logits=outputs.flag("logits", False),
        hidden_states=outputs.flag("hidden_states", False),
        routes=outputs.flag("routed", False),
    )
    comparison.equal("mix key", mix_key(request), case.text("key"))
    comparison.equal("short", request.is_short, case.flag("short"))
    for name in [name for name in case.unknown if name.startswith("packed_priced:")]:
        _, modes, one_layer = name.split(":")
        workload = Workload(
            grad_modes=tuple(sorted({mode == "True" for mode in modes.split("+") if mode})),
            request_mixes=(mix_key(request),),
            recompute=ONE_LAYER_FULL if one_layer == "True" else NO_RECOMPUTE,
            shortest_single_target_rows=63 if request.is_short else None,
        )
        comparison.equal(name, not WARM.ineligibility(_SOMETHING_LEARNED, workload), case.flag(name))


_SOMETHING_LEARNED: Final = observe(
    Profile(), Reading(packed_rows=64, logical_rows=64, grad_segments=1, output_bytes=0, peak_delta_bytes=64)
)


def _geometry(fields: Fields) -> RecurrentGeometry:
    counts = {name: fields.count(name) for name in ("value_heads", "key_heads", "key_dim", "value_dim")}
    return fields.build(
        lambda: RecurrentGeometry(
            **counts,
            conv_kernel=max(1, fields.count("conv_kernel")),
            tensor_parallel=fields.count("tp"),
            dtype_bytes=fields.count("dtype_size"),
        )
    )


def _observe(profile: Profile, fields: Fields) -> Profile:
    packed_rows = fields.integer("packed")
    if packed_rows <= 0:
        return profile
    logical_rows = fields.count("logical") if fields.has("logical") else packed_rows
    output_bytes, peak_delta_bytes = fields.count("output_bytes"), fields.integer("peak_delta")
    kind = ReadingKind.WHOLE_WAVE if fields.flag("caller_phase") else ReadingKind.FORWARD_ONLY
    retained_bytes = fields.optional_integer("retained_bytes")
    reading = fields.build(
        lambda: Reading(
            packed_rows=packed_rows,
            logical_rows=logical_rows,
            grad_segments=0,
            output_bytes=output_bytes,
            peak_delta_bytes=peak_delta_bytes,
            retained_bytes=retained_bytes,
            kind=kind,
        )
    )
    return observe(profile, reading)


def _compare_profile(profile: Profile, theirs: Fields | None, comparison: Comparison) -> None:
    comparison.equal("something learned", not profile.is_empty, theirs is not None)
    if theirs is None:
        return

    def rate(what: str, ours: int | None) -> None:
        if ours is None or not theirs.has(what):
            comparison.equal(what, ours, theirs.raw(what))
            return
        exact = _number(theirs, what)
        comparison.within(what, ours, exact * (1 - DOUBLE), exact * (1 + DOUBLE) + 1)

    def ratio(what: str, ours: Sharing | None) -> None:
        comparison.equal(what, None if ours is None else ours.logical_rows / ours.packed_rows, theirs.raw(what))

    rate("bytes_per_token", profile.peak_bytes_per_row)
    rate("retained_compute_bytes_per_token", profile.retained_bytes_per_row)
    rate("warm_bytes_per_token", profile.warm_bytes_per_row)
    ratio("logical_per_packed", profile.sharing)
    ratio("warm_logical_per_packed", profile.warm_sharing)
    comparison.equal("packed_tokens", profile.largest_packed_rows, theirs.raw("packed_tokens"))
    comparison.equal("warm_packed_tokens", profile.warm_packed_rows, theirs.raw("warm_packed_tokens"))
    comparison.equal("caller_plans", profile.complete_readings, theirs.raw("caller_plans"))


def _compare_query(profile: Profile, query: Fields, charge: int, comparison: Comparison) -> None:
    wave = _wave(query, charge)
    aim = query.optional_text("aim") or "query"
    priced = price(wave, profile)
    theirs = query.count("required")
    least = min(priced.terms, key=lambda term: term.model_bytes, default=None)
    rate, rows = (0, 0) if least is None else (least.bytes_per_row, least.rows)
    comparison.within(
        f"{aim} required", priced.allocated.required_bytes, theirs - BELOW_BYTES, theirs + _above(wave, rate, rows)
    )
    if query.has("trusted"):
        _compare_trusted(profile, wave, query.flag("trusted"), comparison, aim)
    if query.has("retained"):
        _compare_retained(profile, wave, priced.packed_priced, query.count("retained"), rate, rows, comparison, aim)


def _compare_trusted(profile: Profile, wave: Wave, theirs: bool, comparison: Comparison, aim: str) -> None:
    """Trust growth, as the width search asks it: packed rows alone. The window of retained bytes is narrower.

    One case is decided by the definition, not by either build: an empty wave where no reading had rows. Such readings
    are ignored, so R is unknown, and a wave is inside the window of retained bytes only "where R is known" (laws,
    section 4). So it is not trusted. An implementation that tests 0 <= 8 * 0 alone says that it is; nothing hangs on
    it, because retained bytes are then what is required, and both are the outputs: that is compared.
    """
    trusted = wave.packed_rows <= TRUST_GROWTH * profile.largest_packed_rows and not profile.is_empty
    if theirs and profile.is_empty and wave.packed_rows == 0:
        figures = price(wave, profile).allocated
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
    ours = price(wave, profile).allocated.retained_bytes
    kept_rate = profile.retained_bytes_per_row or 0
    kept_rows = wave.packed_rows
    if not packed_priced:
        kept_rows = sharing_rows(wave.packed_rows, wave.logical_rows, profile.sharing, 1)
    above = max(_above(wave, rate, rows), _above(wave, kept_rate, kept_rows))
    comparison.within(f"{aim} retained", ours, theirs - BELOW_BYTES, theirs + above)


def _above(wave: Wave, rate: int, rows: int) -> Fraction:
    return SIGMA * (rate + rows + wave.grad_segments + 4)


def _wave(query: Fields, charge: int) -> Wave:
    """The query's wave. Without logical rows there is no sharing to extrapolate and nothing to charge: P alone.

    Queries of 0 packed rows may still carry logical rows there; a wave of ours cannot. Both price the outputs alone.
    """
    if query.flag("packed_priced") and query.has("logical"):
        workload = PACKED_WORKLOAD
    else:
        workload = UNPACKED_WORKLOADS.get(query.optional_text("why") or "", UNPACKED_WORKLOADS["recompute"])
    packed_rows = max(0, query.integer("packed"))
    logical_rows, grad_segments = query.optional_count("logical") or 0, query.count("segments")
    if packed_rows == 0:
        logical_rows = grad_segments = 0
    output_bytes, floor_bytes = query.count("output_bytes"), query.count("static_bytes", 0)
    checkpoint_retained_bytes = query.count("checkpoint_retained", 0)
    return query.build(
        lambda: Wave(
            packed_rows=packed_rows,
            logical_rows=logical_rows,
            grad_segments=grad_segments,
            output_bytes=output_bytes,
            floor_bytes=floor_bytes,
            checkpoint_retained_bytes=checkpoint_retained_bytes,
            segment_state_bytes=charge,
            workload=workload,
        )
    )


def _number(fields: Fields, field: str) -> Fraction:
    """A number as recorded, exactly."""
    value = fields.raw(field)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise fields.error(field, "must be a number", value)
    return Fraction(value)
