"""Strategies. Two ideas carry them.

Profiles are *reachable*: they are built by observing generated histories, never made up, so a property that holds here
holds for every profile a trainer can have. And waves are *boundary-seeking*: given a profile, they are drawn from the
places where a law changes its mind (8r and its neighbours, the warm floor, the windows, 63/64/65 rows, no rows, fewer
logical than packed rows) as often as from anywhere else.

With PRICING_STRATEGIES=seeded in the environment every example is made from one seed (see `pricing.testing.choices`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from pricing.kernel.profile import Profile, observe_all
from pricing.kernel.quantities import DEFAULT_SAFETY, GIB, TRUST_GROWTH, Safety
from pricing.kernel.rate_laws import UNPACKED_GROWTH
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import (
    NO_RECOMPUTE,
    ONE_LAYER_FULL,
    SINGLE_TARGET,
    RecomputeMode,
    RequestGroup,
    RequestSpec,
    Workload,
)
from pricing.kernel.wave import Wave
from pricing.testing.choices import Choices, DrawnChoices, SeededChoices, count, flag

MAX_ROWS = 1 << 22
"""Four million rows: an order of magnitude above the largest wave in the evidence."""

MAX_BYTES = 512 * GIB
ALL_KINDS = tuple(ReadingKind)
SEGMENT_STATES = (0, 1, 2_146_304, 4_292_608)

T = TypeVar("T")


def generated(make: Callable[[Choices], T]) -> st.SearchStrategy[T]:
    """The strategy of what `make` makes of its choices."""
    if os.environ.get("PRICING_STRATEGIES") == "seeded":
        return st.binary(min_size=8, max_size=8).map(lambda seed: make(SeededChoices(seed)))

    @st.composite
    def drawn(draw: st.DrawFn) -> T:
        return make(DrawnChoices(draw))

    return drawn()


# --- numbers ---------------------------------------------------------------------------------------------------------


def counts(largest: int) -> st.SearchStrategy[int]:
    """Integers in [0, largest], small and boundary values as likely as large ones."""
    return generated(lambda choices: count(choices, largest))


def positive(largest: int) -> st.SearchStrategy[int]:
    """As `counts`, from 1."""
    return generated(lambda choices: 1 + count(choices, largest - 1))


def growths() -> st.SearchStrategy[int]:
    """k of the laws: 8 when packed-priced, else 1."""
    return generated(lambda choices: choices.pick((TRUST_GROWTH, UNPACKED_GROWTH)))


def safeties() -> st.SearchStrategy[Safety]:
    """Safety factors from 1 to 3, the default among them."""
    return generated(make_safety)


def make_safety(choices: Choices) -> Safety:
    if flag(choices):
        return choices.pick((DEFAULT_SAFETY, Safety(numerator=1, denominator=1), Safety(numerator=51, denominator=50)))
    denominator = choices.between(1, 1 << 16)
    return Safety(numerator=choices.between(denominator, 3 * denominator), denominator=denominator)


# --- workloads -------------------------------------------------------------------------------------------------------


def recompute_modes() -> st.SearchStrategy[RecomputeMode]:
    """Recompute modes around the only one that is packed-priced."""
    return generated(make_recompute_mode)


def make_recompute_mode(choices: Choices) -> RecomputeMode:
    if flag(choices):
        return choices.pick((ONE_LAYER_FULL, NO_RECOMPUTE))
    return RecomputeMode(
        granularity=choices.pick(("full", "selective", "none")),
        method=choices.pick(("uniform", "block", None)),
        num_layers=choices.pick((1, None, 2)),
        training=flag(choices),
    )


def workloads() -> st.SearchStrategy[Workload]:
    """Packed-priced workloads half of the time, one or more facts away from it otherwise."""
    return generated(make_workload)


def make_workload(choices: Choices) -> Workload:
    if not flag(choices):
        return Workload.training(shortest_rows=choices.pick((None, 64, 65, 712)))
    return Workload(
        grad_modes=choices.pick(((True,), (False,), (False, True), ())),
        request_mixes=choices.pick(((SINGLE_TARGET,), ("logits",), (SINGLE_TARGET, "target:(4,)"), ("inactive",))),
        recompute=make_recompute_mode(choices),
        shortest_single_target_rows=choices.pick((None, 0, 1, 63, 64, 65)),
    )


# --- readings and profiles -------------------------------------------------------------------------------------------


def readings(kinds: Sequence[ReadingKind] = ALL_KINDS, *, min_packed_rows: int = 0) -> st.SearchStrategy[Reading]:
    """Any valid reading: padding (P > L), outputs above the peak, retained above the peak or negative, and so on."""
    return generated(lambda choices: make_reading(choices, kinds, min_packed_rows))


def make_reading(choices: Choices, kinds: Sequence[ReadingKind] = ALL_KINDS, min_packed_rows: int = 0) -> Reading:
    packed_rows = max(min_packed_rows, count(choices, MAX_ROWS))
    output_bytes = count(choices, 4 * MAX_ROWS) if flag(choices) else 0
    delta = _make_delta(choices, packed_rows, output_bytes)
    kind = choices.pick(kinds)
    return Reading(
        packed_rows=packed_rows,
        logical_rows=_make_logical_rows(choices, packed_rows, (1, 2, 7, 8, 9, 73)),
        grad_segments=count(choices, 1 << 12),
        output_bytes=output_bytes,
        peak_delta_bytes=delta,
        retained_bytes=choices.between(-(1 << 20), 2 * delta + 1) if flag(choices) else None,
        grads=flag(choices),
        kind=kind,
        closes_wave=flag(choices),
        footprint_bytes=_make_footprint(choices, delta, kind),
    )


def _make_footprint(choices: Choices, delta: int, kind: ReadingKind) -> int | None:
    """None, the peak itself, a quarter above, or anything above; never None for a wave that ran out of memory."""
    if kind is not ReadingKind.OUT_OF_MEMORY and not flag(choices):
        return None
    return delta + choices.pick((0, delta // 4, 1)) if flag(choices) else delta + count(choices, MAX_BYTES)


def _make_delta(choices: Choices, packed_rows: int, output_bytes: int) -> int:
    if flag(choices):
        return output_bytes + count(choices, 1 << 12) * packed_rows
    return count(choices, MAX_BYTES)


def _make_logical_rows(choices: Choices, packed_rows: int, ratios: Sequence[int]) -> int:
    if flag(choices):
        return count(choices, 64 * MAX_ROWS)
    return max(0, packed_rows * choices.pick(ratios) + choices.between(-3, 3))


def incomplete_readings() -> st.SearchStrategy[Reading]:
    """Readings that may only raise a price: of incomplete kinds, and forwards with gradients or not the wave's last."""
    return generated(_make_incomplete_reading)


def _make_incomplete_reading(choices: Choices) -> Reading:
    kinds = (
        ReadingKind.INTERRUPTED,
        ReadingKind.SPLIT_CHILD,
        ReadingKind.FORWARD_ONLY,
        ReadingKind.OUT_OF_MEMORY,
    )
    reading = make_reading(choices, kinds)
    return replace(reading, closes_wave=False) if reading.is_complete else reading


def histories(max_size: int = 6) -> st.SearchStrategy[list[Reading]]:
    """Readings in any order and of any kinds: whole waves, forwards, split children, interruptions."""
    return generated(lambda choices: make_history(choices, max_size))


def make_history(choices: Choices, max_size: int = 6) -> list[Reading]:
    return [make_reading(choices) for _ in range(choices.between(0, max_size))]


def profiles(max_size: int = 6) -> st.SearchStrategy[Profile]:
    """Reachable profiles: what a generated history teaches."""
    return generated(lambda choices: make_profile(choices, max_size))


def seeded_profiles(max_size: int = 5) -> st.SearchStrategy[Profile]:
    """Reachable profiles that have seen their seed: from here on order does not matter and coverage is promised."""
    return generated(lambda choices: make_profile(choices, max_size, seeded=True))


def make_profile(choices: Choices, max_size: int = 6, *, seeded: bool = False) -> Profile:
    seed = [make_reading(choices, (ReadingKind.WHOLE_WAVE,), 1)] if seeded else []
    return observe_all(Profile(), seed + make_history(choices, max_size))


# --- waves -----------------------------------------------------------------------------------------------------------


def waves(profile: Profile, *, min_packed_rows: int = 0) -> st.SearchStrategy[Wave]:
    """A wave aimed at the boundaries of `profile` as often as anywhere."""
    return generated(lambda choices: make_wave(choices, profile, min_packed_rows))


def make_wave(choices: Choices, profile: Profile, min_packed_rows: int = 0) -> Wave:
    packed_rows = max(min_packed_rows, _make_packed_rows(choices, profile))
    runs = packed_rows > 0
    return Wave(
        packed_rows=packed_rows,
        logical_rows=_make_logical_rows_near(choices, _edges(profile, packed_rows)) if runs else 0,
        grad_segments=count(choices, 1 << 12) if runs else 0,
        output_bytes=count(choices, 4 * MAX_ROWS) if flag(choices) else 0,
        floor_bytes=count(choices, MAX_BYTES) if choices.between(0, 3) == 3 else 0,
        checkpoint_retained_bytes=count(choices, MAX_BYTES) if choices.between(0, 3) == 3 else 0,
        segment_state_bytes=choices.pick(SEGMENT_STATES),
        workload=make_workload(choices),
    )


def _make_packed_rows(choices: Choices, profile: Profile) -> int:
    if flag(choices):
        return count(choices, MAX_ROWS)
    sizes = (profile.largest_packed_rows, TRUST_GROWTH * profile.largest_packed_rows, profile.warm_packed_rows or 0)
    return max(0, choices.pick(sizes) + choices.between(-1, 1))


def _make_logical_rows_near(choices: Choices, edges: Sequence[int]) -> int:
    if flag(choices):
        return count(choices, 64 * MAX_ROWS)
    return max(0, choices.pick(edges) + choices.between(-2, 2))


def _edges(profile: Profile, packed_rows: int) -> list[int]:
    """Logical rows at which a law changes its mind for so many packed rows: L = P, k*r*P, k*rw*P, the window."""
    edges = [packed_rows]
    for sharing in (profile.sharing, profile.warm_sharing):
        if sharing is not None:
            edges += [
                growth * sharing.logical_rows * packed_rows // sharing.packed_rows for growth in (1, TRUST_GROWTH)
            ]
    return edges


def waves_and_profiles(*, min_packed_rows: int = 0, seeded: bool = False) -> st.SearchStrategy[tuple[Wave, Profile]]:
    """A reachable profile and a wave aimed at its boundaries."""

    def make(choices: Choices) -> tuple[Wave, Profile]:
        profile = make_profile(choices, seeded=seeded)
        return make_wave(choices, profile, min_packed_rows), profile

    return generated(make)


# --- requests --------------------------------------------------------------------------------------------------------


def request_specs() -> st.SearchStrategy[RequestSpec]:
    """Requests of every mix, around the 64-row gate, active and inactive."""
    return generated(make_request_spec)


def make_request_spec(choices: Choices) -> RequestSpec:
    length = choices.pick((1, 2, 63, 64, 65, 100))
    if not flag(choices):
        return RequestSpec(input_shape=(length,), target_shape=(length,))
    return RequestSpec(
        input_shape=choices.pick(((length,), (1, length))),
        target_shape=choices.pick((None, (length,), (1, length), (length, 4), (1, length, 3), (length, 1))),
        top_k=choices.pick((None, None, 1, 20)),
        logits=choices.between(0, 2) == 2,
        hidden_states=choices.between(0, 2) == 2,
        routes=choices.between(0, 2) == 2,
    )


def request_groups() -> st.SearchStrategy[list[RequestGroup]]:
    """Groups of requests, some of nothing but inactive ones."""
    return generated(lambda choices: [_make_group(choices) for _ in range(choices.between(1, 4))])


def _make_group(choices: Choices) -> RequestGroup:
    return RequestGroup(
        requests=tuple(make_request_spec(choices) for _ in range(choices.between(0, 4))),
        grads=flag(choices),
        adapter=choices.pick(("", "r8", "r16")),
    )
