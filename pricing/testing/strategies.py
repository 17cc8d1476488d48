"""Strategies. Two ideas carry them.

Profiles are *reachable*: they are built by observing generated histories, never made up, so a property that holds here
holds for every profile a trainer can have. And waves are *boundary-seeking*: given a profile, they are drawn from the
places where a law changes its mind (8r and its neighbours, the warm floor, the windows, 63/64/65 rows, no rows, fewer
logical than packed rows) as often as from anywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from pricing.law import UNPACKED_GROWTH
from pricing.profile import Profile, observe_all
from pricing.quantities import DEFAULT_SAFETY, GIB, TRUST_GROWTH, Safety
from pricing.reading import Reading, ReadingKind
from pricing.requests import (
    NO_RECOMPUTE,
    ONE_LAYER_FULL,
    SINGLE_TARGET,
    RecomputeMode,
    RequestGroup,
    RequestSpec,
    Workload,
)
from pricing.wave import Wave

MAX_ROWS = 1 << 22
"""Four million rows: an order of magnitude above the largest wave in the evidence."""

MAX_BYTES = 512 * GIB
ROW_BOUNDARIES = (0, 1, 2, 27, 63, 64, 65, 712, 1_000, 16_205, 109_065)


def counts(largest: int) -> st.SearchStrategy[int]:
    """Integers in [0, largest], small and boundary values as likely as large ones."""
    known = [value for value in ROW_BOUNDARIES if value <= largest]
    scales = st.integers(0, largest.bit_length()).flatmap(lambda bits: st.integers(0, min(largest, 1 << bits)))
    return st.one_of(st.sampled_from([*known, largest]), scales)


def positive(largest: int) -> st.SearchStrategy[int]:
    """As `counts`, from 1."""
    return counts(largest - 1).map(lambda value: value + 1)


def growths() -> st.SearchStrategy[int]:
    """k of the laws: 8 when packed-priced, else 1."""
    return st.sampled_from([TRUST_GROWTH, UNPACKED_GROWTH])


def safeties() -> st.SearchStrategy[Safety]:
    """Safety factors from 1 to 3, the default among them."""
    fractions = st.tuples(st.integers(1, 1 << 16), st.integers(0, 1 << 17)).map(
        lambda pair: Safety(numerator=pair[0] + pair[1] % (2 * pair[0] + 1), denominator=pair[0])
    )
    return st.one_of(st.just(DEFAULT_SAFETY), st.just(Safety(numerator=1, denominator=1)), fractions)


def recompute_modes() -> st.SearchStrategy[RecomputeMode]:
    """Recompute modes around the only one that is packed-priced."""
    others = st.builds(
        RecomputeMode,
        granularity=st.sampled_from(["full", "selective", "none"]),
        method=st.sampled_from(["uniform", "block", None]),
        num_layers=st.sampled_from([None, 1, 2]),
        training=st.booleans(),
    )
    return st.one_of(st.just(ONE_LAYER_FULL), st.just(NO_RECOMPUTE), others)


def workloads() -> st.SearchStrategy[Workload]:
    """Packed-priced workloads half of the time, one fact away from it otherwise."""
    packed = st.sampled_from([None, 64, 65, 712]).map(lambda rows: Workload.training(shortest_rows=rows))
    other = st.builds(
        Workload,
        grad_modes=st.sampled_from([(True,), (False,), (False, True), ()]),
        request_mixes=st.sampled_from([(SINGLE_TARGET,), ("logits",), (SINGLE_TARGET, "target:(4,)"), ("inactive",)]),
        recompute=recompute_modes(),
        shortest_single_target_rows=st.sampled_from([None, 0, 1, 63, 64, 65]),
    )
    return st.one_of(packed, other)


@st.composite
def readings(
    draw: st.DrawFn, kinds: Sequence[ReadingKind] = tuple(ReadingKind), *, min_packed_rows: int = 0
) -> Reading:
    """Any valid reading: padding (P > L), outputs above the peak, retained above the peak or negative, and so on."""
    packed_rows = draw(counts(MAX_ROWS).filter(lambda rows: rows >= min_packed_rows))
    sharing = draw(st.sampled_from([1, 2, 7, 8, 9, 73]))
    around = st.integers(-3, 3).map(lambda offset: max(0, packed_rows * sharing + offset))
    output_bytes = draw(st.one_of(st.just(0), counts(4 * MAX_ROWS)))
    delta = draw(st.one_of(counts(MAX_BYTES), counts(1 << 12).map(lambda rate: rate * packed_rows + output_bytes)))
    return Reading(
        packed_rows=packed_rows,
        logical_rows=draw(st.one_of(around, counts(64 * MAX_ROWS))),
        grad_segments=draw(counts(1 << 12)),
        output_bytes=output_bytes,
        peak_delta_bytes=delta,
        retained_bytes=draw(st.one_of(st.none(), st.integers(-(1 << 20), 2 * delta + 1))),
        grads=draw(st.booleans()),
        kind=draw(st.sampled_from(list(kinds))),
        closes_wave=draw(st.booleans()),
    )


def incomplete_readings() -> st.SearchStrategy[Reading]:
    """Readings that may only raise a price."""
    return readings().filter(lambda reading: not reading.is_complete)


def histories(max_size: int = 6) -> st.SearchStrategy[list[Reading]]:
    """Readings in any order and of any kinds: whole waves, forwards, split children, interruptions."""
    return st.lists(readings(), max_size=max_size)


def profiles(max_size: int = 6) -> st.SearchStrategy[Profile]:
    """Reachable profiles: what a generated history teaches."""
    return histories(max_size).map(lambda history: observe_all(Profile(), history))


def seeded_profiles(max_size: int = 5) -> st.SearchStrategy[Profile]:
    """Reachable profiles that have seen their seed: from here on order does not matter and coverage is promised."""
    whole = readings([ReadingKind.WHOLE_WAVE], min_packed_rows=1)
    return st.tuples(whole, histories(max_size)).map(lambda parts: observe_all(Profile(), [parts[0], *parts[1]]))


def _edges(profile: Profile, packed_rows: int) -> list[int]:
    """Logical rows at which a law changes its mind for so many packed rows: L = P, k*r*P, k*rw*P, the window."""
    rows = max(1, packed_rows)
    edges = [packed_rows]
    for sharing in (profile.sharing, profile.warm_sharing):
        if sharing is not None:
            edges += [growth * sharing.logical_rows * rows // sharing.packed_rows for growth in (1, TRUST_GROWTH)]
    return edges


@st.composite
def waves(draw: st.DrawFn, profile: Profile, *, min_packed_rows: int = 0) -> Wave:
    """A wave aimed at the boundaries of `profile` as often as anywhere."""
    sizes = [profile.largest_packed_rows, TRUST_GROWTH * profile.largest_packed_rows, profile.warm_packed_rows or 0]
    near_size = st.tuples(st.sampled_from(sizes), st.integers(-1, 1)).map(lambda pair: max(0, pair[0] + pair[1]))
    packed_rows = draw(st.one_of(near_size, counts(MAX_ROWS)).filter(lambda rows: rows >= min_packed_rows))
    workload = draw(workloads())
    if packed_rows == 0:
        return Wave(
            packed_rows=0,
            logical_rows=0,
            grad_segments=0,
            output_bytes=draw(counts(MAX_ROWS)),
            floor_bytes=draw(counts(GIB)),
            workload=workload,
        )
    near_edge = st.tuples(st.sampled_from(_edges(profile, packed_rows)), st.integers(-2, 2)).map(
        lambda pair: max(0, pair[0] + pair[1])
    )
    return Wave(
        packed_rows=packed_rows,
        logical_rows=draw(st.one_of(near_edge, counts(64 * MAX_ROWS))),
        grad_segments=draw(counts(1 << 12)),
        output_bytes=draw(st.one_of(st.just(0), counts(4 * MAX_ROWS))),
        floor_bytes=draw(st.one_of(st.just(0), counts(MAX_BYTES))),
        checkpoint_retained_bytes=draw(st.one_of(st.just(0), counts(MAX_BYTES))),
        segment_state_bytes=draw(st.sampled_from([0, 1, 2_146_304, 4_292_608])),
        workload=workload,
    )


@st.composite
def waves_and_profiles(draw: st.DrawFn, *, min_packed_rows: int = 0, seeded: bool = False) -> tuple[Wave, Profile]:
    """A reachable profile and a wave aimed at its boundaries."""
    profile = draw(seeded_profiles() if seeded else profiles())
    return draw(waves(profile, min_packed_rows=min_packed_rows)), profile


def request_specs() -> st.SearchStrategy[RequestSpec]:
    """Requests of every mix, around the 64-row gate, active and inactive."""
    rows = st.sampled_from([1, 2, 63, 64, 65, 100])

    def of(length: int) -> st.SearchStrategy[RequestSpec]:
        targets = [None, (length,), (1, length), (length, 4), (1, length, 3), (length, 1)]
        return st.builds(
            RequestSpec,
            input_shape=st.sampled_from([(length,), (1, length)]),
            target_shape=st.sampled_from(targets),
            top_k=st.sampled_from([None, None, 1, 20]),
            logits=st.sampled_from([False, False, True]),
            hidden_states=st.sampled_from([False, False, True]),
            routes=st.sampled_from([False, False, True]),
        )

    plain = rows.map(lambda length: RequestSpec(input_shape=(length,), target_shape=(length,)))
    return st.one_of(plain, rows.flatmap(of))


def request_groups() -> st.SearchStrategy[list[RequestGroup]]:
    """Groups of requests, some of nothing but inactive ones."""
    group = st.builds(
        RequestGroup,
        requests=st.lists(request_specs(), max_size=4).map(tuple),
        grads=st.booleans(),
        adapter=st.sampled_from(["", "r8", "r16"]),
    )
    return st.lists(group, min_size=1, max_size=4)
