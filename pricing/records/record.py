"""The decision record: what was asked, what was known, what was answered, and what then happened.

One record is one decision about one wave. It holds everything the answer depended on, so that `records.replay` can
compute the answer again, to the byte, on a machine without a GPU: the wave's quantities, the facts that decide
eligibility (the recompute mode as read live), the profile's content, the law, the safety factor, the budget's figures,
and every width and rung that was tried with its own rows, price and budget. It holds no token ids, no paths and no
names but those the caller gave: lengths, tree structure and counts say all that a price depends on.

The dataclasses below are the format; `records.record_file` writes and reads them, `records.write_down` makes them from
plans, and `spec/report.schema.json` is generated from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Self

from pricing.formats.codec import Count, Leaf, Signed, Text
from pricing.formats.place import Place
from pricing.formats.profile_file import profile_from_json, profile_to_json
from pricing.kernel.errors import PricingError
from pricing.kernel.law import Term
from pricing.kernel.price import Price, Quantity, QuantityPrice
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import Safety
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import RecomputeMode, Workload
from pricing.kernel.wave import Wave
from pricing.planner.budget import Budget

ALLOCATED_ALONE_VERSION: Final = 1
"""Version in which a wave's price was that of what it allocates: of records of trainers that hold no other."""

SCHEMA_VERSION: Final = 2
"""Version of the format. Fields may be added within a version; a change of meaning or a removal raises it. In version
1 a wave's price was that of what it allocates; since version 2 it is the higher of that and its footprint's."""

PER_MILLION: Final = 1_000_000


class RecordError(PricingError):
    """A record that cannot be read, written or replayed. The message says which part and why."""


class IncompleteRecordError(RecordError):
    """A record without a field that its replay needs. `where` is the path of the missing field."""

    def __init__(self, where: str) -> None:
        super().__init__(f"incomplete: {where} was not recorded")
        self.where = where


class Event(StrEnum):
    """What became of the decision."""

    ADMITTED = "admitted"
    """Planned to run; nothing further was recorded."""

    OBSERVED = "observed"
    """Ran, and its peak was read."""

    ABANDONED = "abandoned"
    """Ran, and no peak could be read."""

    REFUSED = "refused"
    """Did not run."""

    OUT_OF_MEMORY = "out_of_memory"
    """Was admitted and ran out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeFacts:
    """The recompute mode as read from the live decoder. No part has a default: a price without it means nothing."""

    granularity: Text
    method: Text | None
    num_layers: Count | None
    training: bool

    @classmethod
    def of(cls, mode: RecomputeMode) -> Self:
        return cls(granularity=mode.granularity, method=mode.method, num_layers=mode.num_layers, training=mode.training)

    @property
    def mode(self) -> RecomputeMode:
        return RecomputeMode(
            granularity=self.granularity, method=self.method, num_layers=self.num_layers, training=self.training
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityFacts:
    """What a memory signature holds beyond the regime's own facts. `shares`: in words, for people; none before 0.2."""

    topology: Text
    group_count: Count
    adapter_shapes: tuple[Text, ...]
    shares: tuple[Text, ...] = ()


def _decode_profile(data: object, place: Place) -> Profile:
    """A profile, read by the profile file's own reader. One from before there were warm fields is priced as then."""
    if isinstance(data, dict) and not any(name.startswith("warm_") for name in data):
        if place.findings is not None:
            place.findings.remarks.append(f"{place.path} has no warm fields: priced as before there were any")
        data = {name: value for name, value in data.items() if name != "frontier"}  # which came after them
    return profile_from_json(data, place)


_PROFILE_FIELDS_NEEDED: Final = ("peak_bytes_per_row", "largest_packed_rows", "sharing")
_PROFILE_SCHEMA: Final = {
    "type": "object",
    "description": "A profile as in a profile file; without warm fields it prices as before there were any.",
    "required": list(_PROFILE_FIELDS_NEEDED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFacts:
    """A profile by content, and the digest that names it elsewhere."""

    digest: Text
    content: Annotated[Profile, Leaf(encode=profile_to_json, decode=_decode_profile, schema=_PROFILE_SCHEMA)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeFacts:
    """Facts that waves of one search share: what decides eligibility, whose profile it is, and which profile it was.

    `profile` is the index of an entry of the record's `profiles`. `signature` is the signature's digest, None where the
    caller priced without one.
    """

    request_mixes: tuple[Text, ...]
    grad_modes: tuple[bool, ...]
    recompute: RecomputeFacts
    profile: Count
    identity: IdentityFacts | None = None
    signature: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveFacts:
    """The quantities of a wave (laws, section 1) and the index of its regime."""

    regime: Count
    packed_rows: Count
    logical_rows: Count
    grad_segments: Count
    output_bytes: Count
    floor_bytes: Count
    checkpoint_retained_bytes: Count
    segment_state_bytes: Count
    shortest_single_target_rows: Count | None
    forecast_bytes: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TermFacts:
    """One candidate for the model memory."""

    binding: Text
    rows: Count
    bytes_per_row: Count
    model_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantityFacts:
    """The price of one quantity, taken apart. Not `learned`: a footprint priced at a factor above what is allocated."""

    quantity: Quantity
    learned: bool
    required_bytes: Count
    retained_bytes: Count
    compute_bytes: Count
    terms: tuple[TermFacts, ...]
    logical_charge_bytes: Count
    segment_charge_bytes: Count
    binding_term: Text

    @classmethod
    def of(cls, price: QuantityPrice) -> Self:
        return cls(
            quantity=price.quantity,
            learned=price.learned,
            required_bytes=price.required_bytes,
            retained_bytes=price.retained_bytes,
            compute_bytes=price.compute_bytes,
            terms=tuple(_term_facts(term) for term in price.terms),
            logical_charge_bytes=price.logical_charge_bytes,
            segment_charge_bytes=price.segment_charge_bytes,
            binding_term=str(price.binding_term),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFacts:
    """A price with its parts: those of the quantity that decided, and beside them the price of the other.

    `ineligible` holds the names of the reasons why it was not packed-priced. other: None before version 2.
    """

    required_bytes: Count
    retained_bytes: Count
    compute_bytes: Count
    output_bytes: Count
    floor_bytes: Count
    terms: tuple[TermFacts, ...]
    logical_charge_bytes: Count
    segment_charge_bytes: Count
    binding_term: Text
    ineligible: tuple[Text, ...]
    quantity: Quantity = Quantity.ALLOCATED
    learned: bool = True
    other: QuantityFacts | None = None

    @classmethod
    def of(cls, price: Price) -> Self:
        deciding = price.deciding
        other = price.allocated if deciding is price.footprint else price.footprint
        return cls._of(price, deciding, price.required_bytes, price.retained_bytes, QuantityFacts.of(other))

    @classmethod
    def of_allocated(cls, price: Price) -> Self:
        """The price as it was before there were footprints: what records of version 1 hold."""
        allocated = price.allocated
        return cls._of(price, allocated, allocated.required_bytes, allocated.retained_bytes, None)

    @classmethod
    def _of(
        cls,
        price: Price,
        deciding: QuantityPrice,
        required_bytes: int,
        retained_bytes: int,
        other: QuantityFacts | None,
    ) -> Self:
        return cls(
            required_bytes=required_bytes,
            retained_bytes=retained_bytes,
            compute_bytes=deciding.compute_bytes,
            output_bytes=price.output_bytes,
            floor_bytes=price.floor_bytes,
            terms=tuple(_term_facts(term) for term in deciding.terms),
            logical_charge_bytes=deciding.logical_charge_bytes,
            segment_charge_bytes=deciding.segment_charge_bytes,
            binding_term=str(deciding.binding_term),
            ineligible=tuple(reason.name for reason in price.ineligible),
            quantity=deciding.quantity,
            learned=other is None or deciding.learned,
            other=other,
        )


def _term_facts(term: Term) -> TermFacts:
    return TermFacts(
        binding=str(term.binding), rows=term.rows, bytes_per_row=term.bytes_per_row, model_bytes=term.model_bytes
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFacts:
    """The budget's figures at one moment: physically free, kept free for others, and cached by our own allocator."""

    free_bytes: Signed
    reserve_bytes: Count
    reusable_cache_bytes: Count
    available_bytes: Signed
    reservable_bytes: Signed | None = None
    held_back_bytes: Count = 0

    @classmethod
    def of(cls, budget: Budget) -> Self:
        return cls(
            free_bytes=budget.free_bytes,
            reserve_bytes=budget.reserve_bytes,
            reusable_cache_bytes=budget.reusable_cache_bytes,
            available_bytes=budget.available_bytes,
            reservable_bytes=budget.reservable_bytes,
            held_back_bytes=budget.held_back_bytes,
        )

    @property
    def budget(self) -> Budget:
        return Budget(
            free_bytes=self.free_bytes,
            reserve_bytes=self.reserve_bytes,
            reusable_cache_bytes=self.reusable_cache_bytes,
            reservable_bytes=self.reservable_bytes,
            held_back_bytes=self.held_back_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffFacts:
    """The fresh sample taken right before execution, what was held against it, and what was made of it."""

    required_bytes: Count
    budget: BudgetFacts
    cache_serves: bool
    verdict: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthFacts:
    """One width that the search priced, with its own rows, price and budget."""

    width: Count
    wave: WaveFacts
    required_bytes: Count
    available_bytes: Signed
    learned: bool
    trusted: bool
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildFacts:
    """One sub-forward of a rung. `requests` is how many requests run in it."""

    requests: Count
    wave: WaveFacts
    required_bytes: Count
    retained_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class RungFacts:
    """One rung of the split ladder, with its own children, price and budget. A pruned rung was not planned."""

    subforwards: Count
    children: tuple[ChildFacts, ...]
    cost_bytes: Count | None
    measured_bytes: Count | None
    lower_bound_bytes: Count
    available_bytes: Signed
    pruned: bool
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureFacts:
    """Shape of what was asked, without token ids: rows of each active request, and the tree of shared rows.

    Segment i has `segment_rows[i]` rows and continues segment `segment_parents[i]` (-1: begins at the first token).
    """

    request_rows: tuple[Count, ...]
    segment_rows: tuple[Count, ...]
    segment_parents: tuple[Signed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalFacts:
    """Why nothing ran, and what would have made it fit."""

    shortfall_bytes: Count
    rows_that_fit: Count
    text: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """What a probe is judged by, where the narrowest wave does not fit: whether this signature had one, the wave as
    it would be priced with nothing learned or forecast, whether the run survives that it runs out of memory, what
    complete readings say of the wave in bytes (None where there are none), and whether a wave of it ran out of
    memory."""

    had_probe: bool
    cold: WaveFacts
    survives: bool = False
    witnessed_bytes: Count | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedFacts:
    """What the wave's last reading said. `error_bytes` = required - what was used of the device: the footprint where
    one was read, else the peak. `over_per_million` relates it to that, rounded down (None where nothing was used)."""

    packed_rows: Count
    logical_rows: Count
    grad_segments: Count
    output_bytes: Count
    peak_delta_bytes: Count
    retained_bytes: Signed | None
    grads: bool
    kind: ReadingKind
    closes_wave: bool
    complete: bool
    error_bytes: Signed
    over_per_million: Signed | None
    footprint_bytes: Count | None = None

    @classmethod
    def of(cls, reading: Reading, required_bytes: int) -> Self:
        used = reading.peak_delta_bytes if reading.footprint_bytes is None else reading.footprint_bytes
        error = required_bytes - used
        return cls(
            packed_rows=reading.packed_rows,
            logical_rows=reading.logical_rows,
            grad_segments=reading.grad_segments,
            output_bytes=reading.output_bytes,
            peak_delta_bytes=reading.peak_delta_bytes,
            retained_bytes=reading.retained_bytes,
            grads=reading.grads,
            kind=reading.kind,
            closes_wave=reading.closes_wave,
            complete=reading.is_complete,
            error_bytes=error,
            over_per_million=error * PER_MILLION // used if used else None,
            footprint_bytes=reading.footprint_bytes,
        )

    @property
    def used_bytes(self) -> int:
        """What the wave was seen to take of the device: what its price is held against."""
        return self.peak_delta_bytes if self.footprint_bytes is None else self.footprint_bytes

    @property
    def reading(self) -> Reading:
        return Reading(
            packed_rows=self.packed_rows,
            logical_rows=self.logical_rows,
            grad_segments=self.grad_segments,
            output_bytes=self.output_bytes,
            peak_delta_bytes=self.peak_delta_bytes,
            retained_bytes=self.retained_bytes,
            grads=self.grads,
            kind=self.kind,
            closes_wave=self.closes_wave,
            footprint_bytes=self.footprint_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFacts:
    """What went wrong after admission. The figures of the failed state stand here and never replace the admission's."""

    cause: Text
    requested_bytes: Count | None = None
    budget_after: BudgetFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """One decision about one wave. See the module's docstring.

    name, index: the caller's label and number of the wave.
    price: the price of `wave`. required_bytes: what was held against `available_bytes`: the price's, or the cost of
    the rung that runs, if the wave is split. width, agreed_width: the items of this wave, and what all ranks agreed on
    (None: no width was searched for, the wave was priced alone). refused_elsewhere: this rank could have run.
    after_out_of_memory: how many waves in a row had run out of memory right before it, here or in a forward of another
    rank; 0 for a first try.
    omitted: parts left out for size, by path.
    """

    schema_version: Count
    event: Event
    name: Text
    index: Count
    law: Text
    safety: Safety
    verdict: Text
    wave: WaveFacts
    price: PriceFacts
    required_bytes: Count
    available_bytes: Signed
    regimes: tuple[RegimeFacts, ...]
    profiles: tuple[ProfileFacts, ...]
    width: Count | None = None
    agreed_width: Count | None = None
    budget: BudgetFacts | None = None
    handoff: HandoffFacts | None = None
    tried: tuple[WidthFacts, ...] = ()
    rungs: tuple[RungFacts, ...] = ()
    subforwards: Count | None = None
    probe: ProbeFacts | None = None
    refusal: RefusalFacts | None = None
    refused_elsewhere: bool = False
    after_out_of_memory: Count = 0
    structure: StructureFacts | None = None
    observed: ObservedFacts | None = None
    failure: FailureFacts | None = None
    note: Text = ""
    omitted: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        for regime in self.regimes:
            if regime.profile >= len(self.profiles):
                raise RecordError(f"profiles: a regime names number {regime.profile} of {len(self.profiles)}")
        for wave in self.waves:
            if wave.regime >= len(self.regimes):
                raise RecordError(f"regimes: a wave names number {wave.regime} of {len(self.regimes)}")

    @property
    def waves(self) -> Iterator[WaveFacts]:
        """Every wave that is priced somewhere in the record."""
        yield self.wave
        yield from (step.wave for step in self.tried)
        yield from (child.wave for rung in self.rungs for child in rung.children)
        if self.probe is not None:
            yield self.probe.cold

    @property
    def headroom_bytes(self) -> int:
        return self.available_bytes - self.required_bytes

    def profile_of(self, wave: WaveFacts) -> Profile:
        """The profile that `wave` was priced with."""
        return self.profiles[self.regimes[wave.regime].profile].content

    def wave_of(self, wave: WaveFacts) -> Wave:
        """The wave as the laws take it. Raises `PricingError` where its quantities contradict one another."""
        regime = self.regimes[wave.regime]
        return Wave(
            packed_rows=wave.packed_rows,
            logical_rows=wave.logical_rows,
            grad_segments=wave.grad_segments,
            output_bytes=wave.output_bytes,
            floor_bytes=wave.floor_bytes,
            checkpoint_retained_bytes=wave.checkpoint_retained_bytes,
            segment_state_bytes=wave.segment_state_bytes,
            forecast_bytes=wave.forecast_bytes,
            workload=Workload(
                grad_modes=regime.grad_modes,
                request_mixes=regime.request_mixes,
                recompute=regime.recompute.mode,
                shortest_single_target_rows=wave.shortest_single_target_rows,
            ),
        )
