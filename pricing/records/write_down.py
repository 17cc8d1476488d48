"""Writing down: from a plan, or a wave priced by itself, to the record of the decision."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pricing.formats.codec import MAX_TEXT_CHARS
from pricing.formats.profile_file import profile_to_json
from pricing.formats.strict_json import canonical_json
from pricing.kernel.law import Law
from pricing.kernel.laws import DEFAULT_LAW
from pricing.kernel.price import allocated_price, price
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety
from pricing.kernel.requests import Signature, Workload
from pricing.kernel.wave import Wave
from pricing.planner.budget import Budget, fits
from pricing.planner.curve import gather
from pricing.planner.rules import Verdict
from pricing.records.record import (
    ALLOCATED_ALONE_VERSION,
    SCHEMA_VERSION,
    BudgetFacts,
    ChildFacts,
    DecisionRecord,
    Event,
    IdentityFacts,
    PriceFacts,
    ProbeFacts,
    ProfileFacts,
    RecomputeFacts,
    RefusalFacts,
    RegimeFacts,
    RungFacts,
    StructureFacts,
    WaveFacts,
    WidthFacts,
)

if TYPE_CHECKING:
    from pricing.planner.batch import Batch
    from pricing.planner.refusal import Refusal
    from pricing.planner.split import RungTried
    from pricing.planner.wave_plan import WavePlan, WidthTried


class RegimeTable:
    """Collects the regimes and profiles of one record while its waves are written down."""

    def __init__(self) -> None:
        self._regimes: dict[RegimeFacts, int] = {}
        self._profiles: dict[ProfileFacts, int] = {}
        self._entries: dict[int, tuple[Profile, int]] = {}

    def add(self, wave: Wave, profile: Profile, signature: Signature | None) -> WaveFacts:
        """The facts of `wave`, whose regime is entered if it is new."""
        regime = _regime_of(wave.workload, self._entry(profile), signature)
        return WaveFacts(
            regime=self._regimes.setdefault(regime, len(self._regimes)),
            packed_rows=wave.packed_rows,
            logical_rows=wave.logical_rows,
            grad_segments=wave.grad_segments,
            output_bytes=wave.output_bytes,
            floor_bytes=wave.floor_bytes,
            checkpoint_retained_bytes=wave.checkpoint_retained_bytes,
            segment_state_bytes=wave.segment_state_bytes,
            forecast_bytes=wave.forecast_bytes,
            shortest_single_target_rows=wave.workload.shortest_single_target_rows,
        )

    def _entry(self, profile: Profile) -> int:
        """The number of the profile's entry. A search asks for the same object at every width: it is digested once."""
        known = self._entries.get(id(profile))
        if known is None:
            entry = ProfileFacts(digest=profile_digest(profile), content=profile)
            known = self._entries[id(profile)] = profile, self._profiles.setdefault(entry, len(self._profiles))
        return known[1]

    @property
    def regimes(self) -> tuple[RegimeFacts, ...]:
        return tuple(self._regimes)

    @property
    def profiles(self) -> tuple[ProfileFacts, ...]:
        return tuple(self._profiles)


def _regime_of(workload: Workload, profile: int, signature: Signature | None) -> RegimeFacts:
    identity = None
    if signature is not None:
        identity = IdentityFacts(
            topology=signature.topology,
            group_count=signature.group_count,
            adapter_shapes=signature.adapter_shapes,
            shares=tuple(str(share) for share in signature.shares),
        )
    return RegimeFacts(
        request_mixes=workload.request_mixes,
        grad_modes=workload.grad_modes,
        recompute=RecomputeFacts.of(workload.recompute),
        profile=profile,
        identity=identity,
        signature=None if signature is None else signature.digest,
    )


def profile_digest(profile: Profile) -> str:
    """First 16 hex digits of the SHA-256 of a profile's canonical JSON."""
    return hashlib.sha256(canonical_json(profile_to_json(profile)).encode()).hexdigest()[:16]


def record_of_plan(
    plan: WavePlan, *, name: str = "", index: int = 0, batch: Batch | None = None, budget: Budget | None = None
) -> DecisionRecord:
    """The record of a planner's decision, before anything ran."""
    table = RegimeTable()
    profiles = dict(plan.consulted)
    wave = table.add(plan.wave, plan.profile, plan.signature)
    tried = tuple(_width_facts(step, profiles[step.signature], table) for step in plan.tried)
    rungs = tuple(_rung_facts(rung, plan, table) for rung in plan.rungs)
    probe = None
    if plan.probe is not None:
        cold = table.add(plan.probe.cold, Profile(), plan.signature)
        probe = ProbeFacts(
            had_probe=plan.probe.had_probe,
            cold=cold,
            survives=plan.probe.survives,
            witnessed_bytes=plan.probe.witnessed_bytes,
            lost=plan.probe.lost,
        )
    return DecisionRecord(
        schema_version=SCHEMA_VERSION,
        event=Event.ADMITTED,
        name=name,
        index=index,
        law=plan.price.law,
        safety=plan.price.safety,
        verdict=str(plan.verdict),
        wave=wave,
        price=PriceFacts.of(plan.price),
        required_bytes=plan.required_bytes,
        available_bytes=plan.available_bytes,
        width=plan.width,
        agreed_width=plan.agreed_width,
        budget=None if budget is None else BudgetFacts.of(budget),
        tried=tried,
        rungs=rungs,
        subforwards=plan.subforwards,
        probe=probe,
        refusal=None if plan.refusal is None else _refusal_facts(plan.refusal),
        refused_elsewhere=plan.refused_elsewhere,
        structure=None if batch is None else _structure_facts(plan, batch),
        regimes=table.regimes,
        profiles=table.profiles,
    )


def record_of_price(
    wave: Wave,
    profile: Profile,
    *,
    available_bytes: int,
    signature: Signature | None = None,
    law: Law = DEFAULT_LAW,
    safety: Safety = DEFAULT_SAFETY,
    budget: Budget | None = None,
    name: str = "",
    index: int = 0,
    footprints: bool = True,
) -> DecisionRecord:
    """The record of a wave that was priced by itself: it runs where its price fits `available_bytes`.

    footprints: False where the trainer holds the price of what is allocated against its budget. The record is then of
    version 1, which knows no other, so that it replays to what was decided.
    """
    table = RegimeTable()
    facts = table.add(wave, profile, signature)
    priced = (price if footprints else allocated_price)(wave, profile, law, safety)
    runs = fits(priced.required_bytes, available_bytes)
    return DecisionRecord(
        schema_version=SCHEMA_VERSION if footprints else ALLOCATED_ALONE_VERSION,
        event=Event.ADMITTED if runs else Event.REFUSED,
        name=name,
        index=index,
        law=priced.law,
        safety=priced.safety,
        verdict=str(Verdict.RUN if runs else Verdict.REFUSE),
        wave=facts,
        price=PriceFacts.of(priced) if footprints else PriceFacts.of_allocated(priced),
        required_bytes=priced.required_bytes,
        available_bytes=available_bytes,
        budget=None if budget is None else BudgetFacts.of(budget),
        regimes=table.regimes,
        profiles=table.profiles,
    )


def _width_facts(step: WidthTried, profile: Profile, table: RegimeTable) -> WidthFacts:
    return WidthFacts(
        width=step.width,
        wave=table.add(step.wave, profile, step.signature),
        required_bytes=step.required_bytes,
        available_bytes=step.available_bytes,
        learned=step.learned,
        trusted=step.trusted,
        fits=step.fits,
    )


def _rung_facts(rung: RungTried, plan: WavePlan, table: RegimeTable) -> RungFacts:
    """A rung; its children are priced by the whole wave's profile."""
    return RungFacts(
        subforwards=rung.subforwards,
        children=tuple(
            ChildFacts(
                requests=len(child.requests),
                wave=table.add(child.wave, plan.profile, plan.signature),
                required_bytes=child.required_bytes,
                retained_bytes=child.retained_bytes,
            )
            for child in rung.children
        ),
        cost_bytes=rung.cost_bytes,
        measured_bytes=rung.measured_bytes,
        lower_bound_bytes=rung.lower_bound_bytes,
        available_bytes=rung.available_bytes,
        pruned=rung.pruned,
        fits=rung.fits,
    )


def _refusal_facts(refusal: Refusal) -> RefusalFacts:
    text = str(refusal)
    return RefusalFacts(
        shortfall_bytes=refusal.shortfall_bytes,
        rows_that_fit=refusal.rows_that_fit,
        text=text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 4] + " ...",
    )


def _structure_facts(plan: WavePlan, batch: Batch) -> StructureFacts:
    segments = gather(batch, plan.requests).segment_nodes()
    numbers = {node: number for number, (node, _) in enumerate(segments)}
    return StructureFacts(
        request_rows=tuple(batch.lengths[request] for request in plan.requests if batch.is_active(request)),
        segment_rows=tuple(batch.depths[node] - batch.depths[parent] for node, parent in segments),
        segment_parents=tuple(numbers.get(parent, -1) for _, parent in segments),
    )
