"""The planner's naive model: prefixes in sets, every width priced. Slow, and plain enough to be right."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hypothesis import strategies as st

from pricing.kernel.law import Law
from pricing.kernel.price import required_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, TRUST_GROWTH, Safety
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import RequestGroup, RequestSpec, Signature, mix_key, signature_of, workload_of
from pricing.kernel.shares import MOST_KINDS, SHARE_STEPS, KindRows, Share, evidence_rows
from pricing.kernel.wave import Wave
from pricing.planner.batch import Batch, PlanRequest
from pricing.planner.budget import fits
from pricing.planner.setting import Setting

RUN_TOKENS = 40
"""Each drawn symbol stands for this many equal tokens, so that one symbol is a short request and two are not."""


@dataclass(frozen=True, slots=True)
class NaiveShape:
    packed_rows: int
    unshared_rows: int
    logical_rows: int
    segments: int
    grad_segments: int
    output_bytes: int


def naive_tree(rows: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Packed rows and segments at full sharing: prefixes counted once, cut where their sets of rows change."""
    members: dict[tuple[int, ...], set[int]] = {}
    for index, row in enumerate(rows):
        for length in range(1, len(row) + 1):
            members.setdefault(tuple(row[:length]), set()).add(index)
    segments = sum(1 for prefix, rows_of in members.items() if members.get(prefix[:-1]) != rows_of)
    return len(members), segments


def naive_shape(requests: Iterable[PlanRequest], multiple: int = 1) -> NaiveShape:
    """The shape of a set of requests, group by group."""
    groups: dict[tuple[str, bool], list[PlanRequest]] = {}
    for request in requests:
        if request.spec.is_active:
            groups.setdefault((request.slot, request.grads), []).append(request)
    packed = unshared = logical = segments = grad_segments = output = 0
    for (_, grads), members in groups.items():
        rows, runs = naive_tree([list(member.tokens) for member in members])
        length = sum(len(member.tokens) for member in members)
        packed += -(-rows // multiple) * multiple
        unshared += -(-length // multiple) * multiple
        logical += length
        segments += runs
        grad_segments += runs if grads else 0
        output += sum(member.output_bytes for member in members)
    return NaiveShape(packed, unshared, logical, segments, grad_segments, output)


def spec_groups(requests: Iterable[PlanRequest]) -> list[RequestGroup]:
    """The groups that `signature_of` and `workload_of` take."""
    groups: dict[tuple[str, bool], list[PlanRequest]] = {}
    for request in requests:
        groups.setdefault((request.slot, request.grads), []).append(request)
    return [
        RequestGroup(requests=tuple(member.spec for member in members), grads=grads, adapter=members[0].adapter)
        for (_, grads), members in groups.items()
    ]


def naive_kinds(requests: Iterable[PlanRequest], multiple: int = 1) -> dict[str, dict[str, int]]:
    """Rows by quantity and kind, each kind's groups and requests taken by themselves."""
    kinds: dict[str, dict[str, int]] = {"packed": {}, "logical": {}}
    groups: dict[tuple[str, bool], list[PlanRequest]] = {}
    for request in requests:
        if request.spec.is_active:
            groups.setdefault((request.slot, request.grads), []).append(request)
    for (_, grads), members in groups.items():
        kind = "gradients" if grads else "no gradients"
        kind += f", adapter {members[0].adapter}" if members[0].adapter else ""
        rows, _ = naive_tree([list(member.tokens) for member in members])
        kinds["packed"][kind] = kinds["packed"].get(kind, 0) + -(-rows // multiple) * multiple
        for member in members:
            asked = f"{mix_key(member.spec)}, {kind}"
            kinds["logical"][asked] = kinds["logical"].get(asked, 0) + len(member.tokens)
    return {quantity: {kind: rows for kind, rows in found.items() if rows} for quantity, found in kinds.items()}


def most_of_class(size_class: int) -> Fraction:
    """The largest share of a class: from one octave's end to its middle in equal steps."""
    octave, step = divmod(size_class, SHARE_STEPS)
    return Fraction(2 * SHARE_STEPS - step, 2 * SHARE_STEPS << octave)


def naive_shares(requests: Iterable[PlanRequest], multiple: int = 1) -> tuple[Share, ...]:
    """One a kind, where a quantity has several: the last class that is still wide enough."""
    shares = []
    for quantity, kinds in naive_kinds(requests, multiple).items():
        total = sum(kinds.values())
        for kind, rows in kinds.items() if 1 < len(kinds) <= MOST_KINDS else ():
            size_class = 0
            while most_of_class(size_class + 1) >= Fraction(rows, total):
                size_class += 1
            shares.append(Share(quantity=quantity, kind=kind, size_class=size_class))
    return tuple(sorted(shares))


def naive_signature(requests: Sequence[PlanRequest], setting: Setting) -> Signature:
    """The memory signature of a wave of these requests."""
    plain = signature_of(spec_groups(requests), setting.recompute, topology=setting.topology)
    return replace(plain, shares=naive_shares(requests, setting.row_multiple))


def naive_wave(requests: Sequence[PlanRequest], setting: Setting, by: Signature | None = None) -> Wave:
    """The wave that these requests are priced as (a setting without functions), by evidence of waves of signature `by`
    (None: their own)."""
    own = _own_wave(requests, setting)
    if by is None or not by.shares:
        return own
    most = {(share.quantity, share.kind): most_of_class(share.size_class) for share in by.shares}
    kinds = naive_kinds(requests, setting.row_multiple)
    counted = {
        quantity: [math.ceil(rows / most[quantity, kind]) for kind, rows in found.items() if (quantity, kind) in most]
        for quantity, found in kinds.items()
    }
    return replace(
        own,
        packed_rows=max(own.packed_rows, *counted["packed"], 0),
        logical_rows=max(own.logical_rows, *counted["logical"], 0),
    )


def _own_wave(requests: Sequence[PlanRequest], setting: Setting) -> Wave:
    shape = naive_shape(requests, setting.row_multiple)
    kinds = naive_kinds(requests, setting.row_multiple)
    return Wave(
        evidence=evidence_rows(
            shape.packed_rows,
            shape.logical_rows,
            shape.grad_segments,
            KindRows.of(kinds["packed"].items(), kinds["logical"].items()),
        ),
        packed_rows=shape.packed_rows,
        logical_rows=shape.logical_rows,
        grad_segments=shape.grad_segments,
        output_bytes=shape.output_bytes,
        segment_state_bytes=setting.segment_state_bytes,
        workload=workload_of(spec_groups(requests), setting.recompute),
    )


def naive_feasible(
    requests: Sequence[PlanRequest],
    profiles: Mapping[Signature, Profile],
    available_bytes: int,
    setting: Setting,
    law: Law,
    safety: Safety = DEFAULT_SAFETY,
    *,
    narrowest: bool,
    relative: Signature | None = None,
) -> bool:
    """Whether a wave of these requests is feasible, by the contract's words.

    `relative`: whose evidence prices it, where nothing was learned of its own signature.
    """
    signature = naive_signature(requests, setting)
    by = signature if relative is None else relative
    profile = profiles.get(by, Profile())
    wave = naive_wave(requests, setting, by)
    if not fits(required_bytes(wave, profile, law, safety), available_bytes):
        return False
    if wave.packed_rows == 0 and signature.group_count == 0:
        return True
    if profile.is_empty:
        return narrowest
    return wave.packed_rows <= TRUST_GROWTH * profile.largest_packed_rows


def naive_width(
    batch: Batch,
    start: int,
    profiles: Mapping[Signature, Profile],
    available_bytes: int,
    setting: Setting,
    law: Law,
) -> int:
    """The largest width all of whose smaller widths are feasible: one width after the other."""
    width = 0
    regime: object = None
    relatives: dict[Signature, Signature | None] = {}
    relative: Signature | None = None
    while start + width < len(batch):
        requests = [batch.requests[at] for at in batch.item_requests(start, width + 1)]
        signature = naive_signature(requests, setting)
        here = signature, naive_wave(requests, setting).workload.has_short_request
        if here != regime:
            regime = here
            if signature not in relatives:
                relatives[signature] = naive_relative(
                    requests, profiles, available_bytes, setting, law, narrowest=width == 0
                )
            relative = relatives[signature]
        if not naive_feasible(
            requests, profiles, available_bytes, setting, law, narrowest=width == 0, relative=relative
        ):
            break
        width += 1
    return width


def naive_relative(
    requests: Sequence[PlanRequest],
    profiles: Mapping[Signature, Profile],
    available_bytes: int,
    setting: Setting,
    law: Law,
    *,
    narrowest: bool,
) -> Signature | None:
    """The learned signature of the same kinds that prices this first wave of a regime lowest, of equal ones the first;
    None where its own was learned, or where there is none that lets a single item run."""
    signature = naive_signature(requests, setting)
    if signature in profiles or not signature.shares:
        return None
    priced = []
    for other in profiles:
        kinds = [(share.quantity, share.kind) for share in other.shares]
        if replace(other, shares=()) != replace(signature, shares=()) or kinds != [
            (share.quantity, share.kind) for share in signature.shares
        ]:
            continue
        wave = naive_wave(requests, setting, other)
        required = required_bytes(wave, profiles[other], law)
        if not narrowest or (
            fits(required, available_bytes) and wave.packed_rows <= TRUST_GROWTH * profiles[other].largest_packed_rows
        ):
            priced.append((required, other.shares, other))
    return min(priced, key=lambda entry: entry[:2])[2] if priced else None


# --- strategies ------------------------------------------------------------------------------------------------------


def plan_request(
    symbols: Sequence[int], *, active: bool = True, wide: bool = False, slot: str = "", grads: bool = True
) -> PlanRequest:
    """A request whose tokens are runs of `RUN_TOKENS` equal symbols."""
    tokens = [symbol for symbol in symbols for _ in range(RUN_TOKENS)]
    shape = (len(tokens),)
    target = None if not active else (*shape, 4) if wide else shape
    return PlanRequest(
        tokens=tokens,
        spec=RequestSpec(input_shape=shape, target_shape=target),
        slot=slot,
        adapter=f"rank-8 {slot}" if slot else "",
        grads=grads,
        output_bytes=4 * len(tokens),
    )


plan_requests = st.builds(
    plan_request,
    st.lists(st.integers(0, 2), max_size=5),
    active=st.integers(0, 7).map(bool),
    wide=st.integers(0, 11).map(lambda draw: draw == 0),
    slot=st.sampled_from(["", "", "", "a"]),
    grads=st.integers(0, 7).map(bool),
)
training_requests = st.builds(plan_request, st.lists(st.integers(0, 2), min_size=1, max_size=5))
items = st.lists(st.lists(plan_requests, max_size=3), max_size=8)
training_items = st.lists(st.lists(training_requests, min_size=1, max_size=3), min_size=1, max_size=8)


def learned(
    *, rows: int, sharing: int = 1, bytes_per_row: int = 1_000, waves: int = 2, retained: bool = True
) -> Profile:
    """A profile of `waves` whole waves, each with its forward reading first."""
    profile = Profile()
    for _ in range(waves):
        for kind in (ReadingKind.FORWARD_ONLY, ReadingKind.WHOLE_WAVE):
            forward = kind is ReadingKind.FORWARD_ONLY
            profile = observe(
                profile,
                Reading(
                    packed_rows=rows,
                    logical_rows=rows * sharing,
                    grad_segments=1,
                    output_bytes=0,
                    peak_delta_bytes=rows * bytes_per_row // (2 if forward else 1),
                    footprint_bytes=rows * bytes_per_row // (2 if forward else 1),  # a device without a cache
                    retained_bytes=rows * bytes_per_row // 4 if forward and retained else None,
                    kind=kind,
                ),
            )
    return profile


@st.composite
def profile_books(draw: st.DrawFn, batch: Batch, setting: Setting) -> dict[Signature, Profile]:
    """A profile for some of the signatures that waves of this batch can have."""
    book: dict[Signature, Profile] = {}
    for start in range(len(batch)):
        for width in range(1, len(batch) - start + 1):
            requests = [batch.requests[at] for at in batch.item_requests(start, width)]
            signature = naive_signature(requests, setting)
            if signature not in book and draw(st.integers(0, 5)):
                book[signature] = learned(
                    rows=draw(st.sampled_from([20, 60, 200, 1_000])),
                    sharing=draw(st.sampled_from([1, 2, 5])),
                    bytes_per_row=draw(st.sampled_from([100, 1_000, 9_000])),
                    waves=draw(st.integers(1, 3)),
                    retained=draw(st.booleans()),
                )
    return book


def grpo(prompts: int, rollouts: int, prompt: int, completion: int, *, whole: bool = False, seed: int = 0) -> Batch:
    """Prompt-major requests; a prompt's rollouts are one item if `whole`."""
    draw = random.Random(seed)
    built = []
    for _ in range(prompts):
        shared = [draw.randrange(50_000) for _ in range(prompt)]
        group = []
        for _ in range(rollouts):
            tokens = shared + [draw.randrange(50_000) for _ in range(completion)]
            shape = (len(tokens),)
            spec = RequestSpec(input_shape=shape, target_shape=shape)
            group.append(PlanRequest(tokens=tokens, spec=spec, output_bytes=4 * len(tokens)))
        built += [group] if whole else [[request] for request in group]
    return Batch(built)


def only_signature(batch: Batch, setting: Setting) -> Signature:
    """The signature of a batch whose waves all have the same."""
    return naive_signature(batch.requests, setting)
