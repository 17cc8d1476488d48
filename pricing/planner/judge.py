"""One rank's judgement of its own next items: how wide a wave may be, and what becomes of one that does not fit.

Where not even the narrowest wave fits, in this order: a split whose rung fits; a probe, if only the learned term is in
the way and no complete reading after the seed supports it, or complete readings stand against it, or only trust growth
is in the way; a refusal that says what was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace

from pricing.kernel.errors import QuantityError
from pricing.kernel.law import Law
from pricing.kernel.liveness import witnessed_bytes
from pricing.kernel.price import price, required_bytes
from pricing.kernel.profile import Profile
from pricing.kernel.quantities import Safety, require_integer
from pricing.kernel.requests import Signature, Workload
from pricing.kernel.shares import Share, kinds_of
from pricing.kernel.splits import SplitKey
from pricing.kernel.wave import Wave
from pricing.planner.batch import Batch, without_padding
from pricing.planner.budget import fits
from pricing.planner.curve import Curve, WaveShape
from pricing.planner.quorum import UNBOUNDED_WIDTH
from pricing.planner.refusal import Asked, Refusal
from pricing.planner.rules import (
    Verdict,
    earns_probe,
    is_feasible,
    is_learned,
    is_open_to_a_probe,
    is_trusted,
    may_probe,
    verdict_of,
)
from pricing.planner.setting import Setting, no_forecast
from pricing.planner.split import Ladder, RungTried
from pricing.planner.wave_plan import ProbeTest, WavePlan, WidthTried
from pricing.planner.width_search import widest_feasible

Profiles = Mapping[Signature, Profile] | Callable[[Signature], Profile]
"""What was learned: a mapping in which a missing signature is cold, or a function that answers for every signature."""


def profile_of(profiles: Profiles, signature: Signature) -> Profile:
    """What was learned of `signature`; an empty profile where nothing was."""
    if not isinstance(profiles, Mapping):
        return profiles(signature)
    try:
        return profiles[signature]
    except KeyError:
        return Profile()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of a regime: its signature, the profile that prices it and whether that knows anything.

    shares: those of the waves the profile was learned from. They are the signature's own, or, while nothing was
    learned of these, those of a **relative**: the same kinds in other proportions (`pricing.kernel.shares`).
    floors: False where a complete reading showed that the floor is none.
    """

    signature: Signature
    profile: Profile
    learned: bool
    shares: tuple[Share, ...]
    floors: bool


class Judge:
    """One rank's judgement of its own next items."""

    def __init__(
        self,
        *,
        batch: Batch,
        start: int,
        profiles: Profiles,
        available_bytes: int,
        setting: Setting,
        law: Law,
        safety: Safety,
        probed: Container[Signature],
        lost: Container[Signature],
        survives: bool,
        measured_splits: Mapping[SplitKey, int],
    ) -> None:
        require_integer("available_bytes", available_bytes)
        if not 0 <= start <= len(batch):
            raise QuantityError("start", start, f"must be an item of the batch (0 to {len(batch)})")
        self._batch = batch
        self._start = start
        self._profiles = profiles
        self._available_bytes = available_bytes
        self._setting = setting
        self._law = law
        self._safety = safety
        self._probed = probed
        self._lost = lost
        self._survives = survives
        self._measured_splits = measured_splits
        self._curve = Curve(batch, start, setting.row_multiple)
        self._regimes: dict[int, _Known] = {}
        self._relatives_by_signature: dict[Signature, tuple[tuple[Share, ...], Profile]] = {}
        self._tried: dict[int, WidthTried] = {}

    def proposed_width(self) -> int:
        """The widest feasible wave; `UNBOUNDED_WIDTH` where that is everything left."""
        width = widest_feasible(self._curve, lambda width: self._try(width).fits)
        return UNBOUNDED_WIDTH if width == self._curve.items_left else width

    def wide(self, agreed: int) -> WavePlan:
        """The wave of the agreed width, or what is left."""
        width = min(agreed, self._curve.limit)
        if width == 0:
            return self._empty(agreed)
        tried = self._try(width)
        assert tried.fits, f"agreed on width {agreed}, but {tried} does not fit"
        return self._plan(width, self._verdict(tried, rungs=(), probe=None), agreed)

    def narrow(self) -> WavePlan:
        """One item, where some rank's narrowest wave does not fit: run, split, probe or refuse."""
        if self._curve.limit == 0:
            return self._empty(0)
        tried = self._try(1)
        if tried.fits:
            return self._plan(1, self._verdict(tried, rungs=(), probe=None), 0)
        over_budget = not fits(tried.required_bytes, self._available_bytes)
        rungs = tuple(self._ladder().climb()) if over_budget else ()
        probe = self._probe_test(tried)
        plan = replace(self._plan(1, self._verdict(tried, rungs, probe), 0), rungs=rungs, probe=probe)
        if plan.verdict is Verdict.SPLIT:
            return replace(plan, children=rungs[-1].children, subforwards=rungs[-1].subforwards)
        if plan.verdict is Verdict.REFUSE:
            refusal = Refusal.of(
                plan.wave, plan.price, plan.profile, self._law, self._available_bytes, rungs, self._asked(plan)
            )
            return replace(plan, refusal=refusal)
        return plan

    def _probe_test(self, tried: WidthTried) -> ProbeTest:
        regime = self._regime(1)
        return ProbeTest(
            had_probe=regime.signature in self._probed,
            cold=self._wave(1, cold=True),
            survives=self._survives,
            witnessed_bytes=witnessed_bytes(tried.wave, regime.profile, self._law, self._safety),
            lost=regime.signature in self._lost,
        )

    def _asked(self, plan: WavePlan) -> Asked:
        return Asked(
            shared_rows=plan.shape.shared_rows,
            row_multiple=plan.row_multiple,
            topology=plan.signature.topology,
            padded_tail_rows=sum(self._batch.requests[request].padded_tail_rows for request in plan.requests),
            unpadded_bytes=self._unpadded_bytes(plan),
            floor_parts=plan.floor_parts,
        )

    def _unpadded_bytes(self, plan: WavePlan) -> int | None:
        """The price of the refused item without the padding at its requests' ends; None where there is none, or where
        what it depends on is asked by the requests' place in the batch (a busiest rank's rows, a forecast)."""
        item = [self._batch.requests[request] for request in plan.requests]
        by_place = self._setting.rank_rows is not None or plan.wave.forecast_bytes > 0
        if by_place or not any(request.padded_tail_rows for request in item):
            return None
        judge = Judge(
            batch=Batch(
                [[without_padding(request) for request in item]], tokens=self._batch.tokens, share=self._batch.share
            ),
            start=0,
            profiles=self._profiles,
            available_bytes=self._available_bytes,
            setting=replace(self._setting, forecast_bytes=no_forecast),
            law=self._law,
            safety=self._safety,
            probed=self._probed,
            lost=self._lost,
            survives=self._survives,
            measured_splits=self._measured_splits,
        )
        return judge._try(1).required_bytes

    def _verdict(self, tried: WidthTried, rungs: tuple[RungTried, ...], probe: ProbeTest | None) -> Verdict:
        return verdict_of(
            feasible=tried.fits,
            learned=tried.learned,
            split_fits=bool(rungs) and rungs[-1].fits,
            probes=lambda: probe is not None and self._may_probe(probe, tried),
        )

    def _may_probe(self, probe: ProbeTest, tried: WidthTried) -> bool:
        over_budget = not fits(tried.required_bytes, self._available_bytes)
        cold_bytes = required_bytes(probe.cold, Profile(), self._law, self._safety)
        forecast = replace(probe.cold, forecast_bytes=tried.wave.forecast_bytes)
        is_unsupported = is_open_to_a_probe(
            self._regime(1).profile,
            learned=tried.learned,
            over_budget=over_budget,
            forecast_fits=tried.wave.forecast_bytes == 0
            or fits(required_bytes(forecast, Profile(), self._law, self._safety), self._available_bytes),
            survives=probe.survives,
        ) and may_probe(
            had_probe=probe.had_probe,
            over_budget=over_budget,
            cold_required_bytes=cold_bytes,
            available_bytes=self._available_bytes,
        )
        return is_unsupported or earns_probe(
            lost=probe.lost,
            required_bytes=tried.required_bytes,
            witnessed_bytes=probe.witnessed_bytes,
            cold_required_bytes=cold_bytes,
            available_bytes=self._available_bytes,
        )

    def _try(self, width: int) -> WidthTried:
        known = self._tried.get(width)
        if known is not None:
            return known
        regime = self._regime(width)
        wave = self._wave(width, cold=regime.profile.is_empty, forecast=regime.profile.complete_readings == 0)
        required = required_bytes(wave, regime.profile, self._law, self._safety)
        trusted = is_trusted(wave.packed_rows, regime.profile, learned=regime.learned)
        tried = self._tried[width] = WidthTried(
            width=width,
            wave=wave,
            signature=regime.signature,
            required_bytes=required,
            available_bytes=self._available_bytes,
            learned=regime.learned,
            trusted=trusted,
            fits=is_feasible(
                width,
                required_bytes=required,
                available_bytes=self._available_bytes,
                learned=regime.learned,
                trusted=trusted,
            ),
        )
        return tried

    def _regime(self, width: int) -> _Known:
        found = self._curve.regime(width)
        regime = self._regimes.get(found.first_width)
        if regime is None:
            signature = self._curve.signature(width, self._setting.recompute, self._setting.topology)
            shares, profile = signature.shares, profile_of(self._profiles, signature)
            if profile.is_empty and shares:
                if signature not in self._relatives_by_signature:  # one a signature, also where it comes back
                    self._relatives_by_signature[signature] = self._relative(found.first_width, signature)
                shares, profile = self._relatives_by_signature[signature]
            learned = is_learned(profile, active_groups=signature.group_count)
            floors = not self._setting.floor_is_contradicted(signature, profile)
            regime = _Known(signature=signature, profile=profile, learned=learned, shares=shares, floors=floors)
            self._regimes[found.first_width] = regime
        return regime

    def _relative(self, width: int, signature: Signature) -> tuple[tuple[Share, ...], Profile]:
        """Shares and profile of the relative that prices this width lowest. The signature's own, which knows nothing,
        where no relative lets a wave of one item run: it starts cold, as it would without relatives."""
        best, best_bytes = (signature.shares, Profile()), -1
        for known, profile in sorted(self._relatives(signature), key=lambda entry: entry[0].shares):
            wave = self._wave_by(width, known.shares, cold=False)
            required = required_bytes(wave, profile, self._law, self._safety)
            runs = fits(required, self._available_bytes) and is_trusted(wave.packed_rows, profile, learned=True)
            if (runs or width > 1) and not 0 <= best_bytes <= required:
                best, best_bytes = (known.shares, profile), required
        return best

    def _relatives(self, signature: Signature) -> Iterator[tuple[Signature, Profile]]:
        """What was learned of the same kinds in other proportions; nothing where profiles cannot be listed."""
        if not isinstance(self._profiles, Mapping):
            return
        kinds, base = kinds_of(signature.shares), signature.without_shares
        for known, profile in self._profiles.items():
            alike = known.shares and known.without_shares == base and kinds_of(known.shares) == kinds
            if alike and not profile.is_empty:
                yield known, profile

    def _wave(self, width: int, *, cold: bool, forecast: bool = False) -> Wave:
        regime = self._regime(width)
        return self._wave_by(width, regime.shares, cold=cold, forecast=forecast, floors=regime.floors)

    def _wave_by(
        self, width: int, shares: tuple[Share, ...], *, cold: bool, forecast: bool = False, floors: bool = True
    ) -> Wave:
        return self._setting.wave(
            self._curve.shape(width),
            self._batch.item_requests(self._start, width),
            self._curve.workload(width, self._setting.recompute),
            cold=cold,
            forecast=forecast,
            shares=shares,
            floors=floors,
        )

    def _ladder(self) -> Ladder:
        return Ladder(
            batch=self._batch,
            requests=self._batch.item_requests(self._start, 1),
            workload=self._curve.workload(1, self._setting.recompute),
            profile=self._regime(1).profile,
            setting=self._setting,
            law=self._law,
            safety=self._safety,
            available_bytes=self._available_bytes,
            measured_splits=self._measured_splits,
            signature=self._regime(1).signature,
            shares=self._regime(1).shares,
            floors=self._regime(1).floors,
        )

    def _plan(self, width: int, verdict: Verdict, agreed: int) -> WavePlan:
        tried, regime = self._try(width), self._regime(width)
        priced = price(tried.wave, regime.profile, self._law, self._safety)
        assert priced.required_bytes == tried.required_bytes, "the executed price is the admitted one"
        return WavePlan(
            start=self._start,
            width=width,
            requests=self._batch.item_requests(self._start, width),
            verdict=verdict,
            wave=tried.wave,
            shape=self._curve.shape(width),
            signature=regime.signature,
            profile=regime.profile,
            price=priced,
            available_bytes=self._available_bytes,
            row_multiple=self._setting.row_multiple,
            agreed_width=agreed,
            floor_is_wrong=not regime.floors,
            floor_parts=self._floor_parts(width, regime) if tried.wave.floor_bytes else (),
            tried=tuple(self._tried.values()),
            consulted=tuple(dict.fromkeys((known.signature, known.profile) for known in self._regimes.values())),
        )

    def _floor_parts(self, width: int, regime: _Known) -> tuple[tuple[str, int], ...]:
        return self._setting.floor_parts(self._curve.shape(width), regime.profile.is_empty)

    def _empty(self, agreed: int) -> WavePlan:
        setting = self._setting
        workload = Workload(grad_modes=(), request_mixes=(), recompute=setting.recompute)
        wave = Wave(packed_rows=0, logical_rows=0, grad_segments=0, output_bytes=0, workload=workload)
        signature = Signature(
            topology=setting.topology,
            group_count=0,
            request_mixes=(),
            grad_modes=(),
            adapter_shapes=(),
            recompute=setting.recompute,
        )
        shape = WaveShape(
            packed_rows=0,
            shared_rows=0,
            unshared_rows=0,
            logical_rows=0,
            grad_segments=0,
            segments=0,
            output_bytes=0,
        )
        return WavePlan(
            start=self._start,
            width=0,
            requests=range(0),
            verdict=Verdict.EMPTY,
            wave=wave,
            shape=shape,
            signature=signature,
            profile=Profile(),
            price=price(wave, Profile(), self._law, self._safety),
            available_bytes=self._available_bytes,
            row_multiple=setting.row_multiple,
            agreed_width=agreed,
            tried=(),
            consulted=(),
        )
