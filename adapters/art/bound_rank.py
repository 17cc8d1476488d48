"""Binding one rank: OpenPipe ART keeps planning and running, this kernel prices, retains, learns and explains.

Four methods are overridden on the instance, never on the class: the required bytes, the retained bytes, the
profile update, and the tracked run (only to see which price admitted a plan). ART's static floors stay its own:
its estimator is asked with a profile that knows a rate of zero, so that what comes back is outputs and floor
alone, and the floor enters the law as F.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from adapters.art.events import AdmittedPlan, LearnedReading, Records
from adapters.art.interface import ArtBindingError, require_interface
from adapters.art.records import RecordedBy
from adapters.art.translate import (
    adopted_profile,
    floor_bytes,
    reading_of,
    recompute_mode,
    signature_of,
    workload_of,
)
from pricing.kernel.law import Law
from pricing.kernel.laws import find_law
from pricing.kernel.price import allocated_bytes, allocated_price, retained_evidence_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety
from pricing.kernel.requests import RecomputeMode, Signature, Workload
from pricing.kernel.wave import Wave
from pricing.records.recorder import Recorder

_OVERRIDDEN: Final = (
    "_estimate_required_memory_bytes_from_values",
    "_retained_memory_bytes",
    "_update_memory_profile",
    "_run_flat_plan_with_memory_tracking",
)
_PRICES_KEPT: Final = 4_096
"""Priced waves kept so that an admission can be explained. One width search prices a few dozen."""
_ADMISSIONS_KEPT: Final = 1_024


@dataclass(slots=True)
class _Ledger:
    """What is known of one signature under one recompute mode. Both workloads: without and with a short request."""

    signature: Signature
    profile: Profile
    workloads: tuple[Workload | None, Workload | None] = (None, None)

    def workload(self, original: Any) -> Workload:
        short = bool(original.short_requests)
        known = self.workloads[short]
        if known is None:
            known = workload_of(original, self.signature.recompute)
            self.workloads = (self.workloads[0], known) if short else (known, self.workloads[1])
        return known


class Binding:
    """A bound rank. Made by `bind`, ended by `unbind`.

    `admissions` are the latest plans run, oldest first; `profiles` what was learned, by signature.
    """

    def __init__(
        self, rank: Any, law: Law, safety: Safety, records: Records | None, implementation: ModuleType
    ) -> None:
        self.rank = rank
        self.law = law
        self.safety = safety
        self.admissions: deque[AdmittedPlan] = deque(maxlen=_ADMISSIONS_KEPT)
        self._records = records
        self._ledgers: dict[tuple[Any, bool], _Ledger] = {}
        self._priced: dict[int, tuple[Any, Wave, Profile]] = {}
        self._modes: dict[bool, RecomputeMode] = {}
        self._one_layer = bool(rank._one_layer_recompute())
        self._native_profiles: dict[bool, dict[Any, Any]] = {self._one_layer: rank._memory_profiles}
        self._running: tuple[Callable[[], Any], bool] = (lambda: None), self._one_layer
        self._native = type(rank)
        nothing_learned = implementation._MemoryProfile(bytes_per_token=0.0, packed_tokens=0)
        self._cold_floor = _floor_view(rank, {})
        self._warm_floor = _floor_view(rank, _Everywhere(nothing_learned))
        for original, native in rank._memory_profiles.items():
            if not _has_own_law(original):
                self._ledger(original).profile = adopted_profile(native)

    @property
    def profiles(self) -> Mapping[Signature, Profile]:
        """Everything learned so far (and adopted at `bind`), by signature."""
        return {ledger.signature: ledger.profile for ledger in self._ledgers.values() if not ledger.profile.is_empty}

    @property
    def last_priced(self) -> tuple[Wave, Profile]:
        """The wave priced last, with the profile it was priced by: what `pricing.kernel.price.price` explains."""
        _, wave, profile = next(reversed(self._priced.values()))
        return wave, profile

    def explain(self, stats: Any) -> AdmittedPlan | None:
        """The latest admission of the micro-batch that ART's `MicroBatchStats` describe; None if it is no
        longer kept.
        """
        for admission in reversed(self.admissions):
            if stats.estimated_required_bytes == admission.admitted_bytes and (
                admission.split_child or stats.packed_tokens == admission.packed_rows
            ):
                return admission
        return None

    # --- the overridden methods, with ART's own parameters ---

    def required(
        self,
        *,
        packed_tokens: int,
        output_bytes: int,
        signature: Any,
        logical_tokens: int | None = None,
        gdn_segments: int = 0,
        **facts: Any,
    ) -> int:
        """Required bytes of one layout, by the kernel. `facts` are what ART's static floors are made of."""
        if packed_tokens <= 0:
            return output_bytes
        if _has_own_law(signature):
            own: int = self._original("_estimate_required_memory_bytes_from_values")(
                self.rank,
                packed_tokens=packed_tokens,
                output_bytes=output_bytes,
                signature=signature,
                logical_tokens=logical_tokens,
                gdn_segments=gdn_segments,
                **facts,
            )
            return own
        ledger = self._ledger(signature)
        estimate = self._original("_estimate_required_memory_bytes_from_values")(
            self._cold_floor if ledger.profile.is_empty else self._warm_floor,
            packed_tokens=packed_tokens,
            output_bytes=output_bytes,
            signature=signature,
            gdn_segments=gdn_segments,
            **facts,
        )
        segments = 0 if logical_tokens is None else gdn_segments
        wave = Wave(
            packed_rows=packed_tokens,
            logical_rows=logical_tokens or 0,  # ART leaves it out where rows are all that counts
            grad_segments=segments,
            output_bytes=output_bytes,
            floor_bytes=floor_bytes(estimate, output_bytes),
            segment_state_bytes=math.ceil(self.rank._gdn_segment_layer_bytes()) if segments else 0,
            workload=ledger.workload(signature),
        )
        required = allocated_bytes(wave, ledger.profile, self.law, self.safety)
        self._remember(required, signature, wave, ledger.profile)
        return required

    def retained(
        self,
        signature: Any,
        *,
        packed_tokens: int,
        logical_tokens: int,
        output_bytes: int,
        required: int,
        checkpoint_retained_bytes: int = 0,
    ) -> int:
        """Retained bytes of one layout, never above `required`, which ART has priced before."""
        if _has_own_law(signature):
            own: int = self._original("_retained_memory_bytes")(
                self.rank,
                signature,
                packed_tokens=packed_tokens,
                logical_tokens=logical_tokens,
                output_bytes=output_bytes,
                required=required,
                checkpoint_retained_bytes=checkpoint_retained_bytes,
            )
            return own
        ledger = self._ledger(signature)
        wave = Wave(
            packed_rows=packed_tokens,
            logical_rows=logical_tokens,
            grad_segments=0,
            output_bytes=output_bytes,
            floor_bytes=required,  # so that the wave's own required never caps below the given one
            checkpoint_retained_bytes=math.ceil(checkpoint_retained_bytes),
            workload=ledger.workload(signature),
        )
        return min(required, retained_evidence_bytes(wave, ledger.profile, self.law, self.safety))

    def update(
        self, plan: Any, peak_delta_bytes: int, *, retained_bytes: int | None, caller_phase: bool = False
    ) -> None:
        """Learn from one reading. ART's own profile is kept in step: its trust gates and its telemetry read that."""
        ran, mode = self._running
        one_layer = self._follow_recompute_mode(mode if ran() is plan else None)
        self._original("_update_memory_profile")(
            self.rank, plan, peak_delta_bytes, retained_bytes=retained_bytes, caller_phase=caller_phase
        )
        if plan.packed_tokens <= 0 or _has_own_law(plan.signature):
            return
        reading = reading_of(
            plan,
            peak_delta_bytes,
            retained_bytes,
            caller_phase=caller_phase,
            split_child=self._runs_split,
        )
        ledger = self._ledger(plan.signature, one_layer)
        ledger.profile = observe(ledger.profile, reading)
        self._record(LearnedReading(signature=ledger.signature, reading=reading, profile=ledger.profile))

    def run(self, plan: Any, *, check: Any, context: str) -> Any:
        """Note which price admitted `plan`, then let ART run it."""
        if plan.packed_tokens > 0 and not _has_own_law(plan.signature):
            admission = self._admission(plan, check, context)
            self.admissions.append(admission)
            self._record(admission)
            self._running = weakref.ref(plan), self._one_layer
        return self._original("_run_flat_plan_with_memory_tracking")(self.rank, plan, check=check, context=context)

    # --- bookkeeping ---

    @property
    def _runs_split(self) -> bool:
        return bool(getattr(self.rank, "_planner_observing_split", False))

    def _original(self, name: str) -> Any:
        return getattr(self._native, name)

    def _record(self, event: AdmittedPlan | LearnedReading) -> None:
        if self._records is not None:
            self._records(event)

    def _remember(self, required: int, signature: Any, wave: Wave, profile: Profile) -> None:
        if len(self._priced) >= _PRICES_KEPT:
            self._priced.clear()
        self._priced.pop(required, None)
        self._priced[required] = (signature, wave, profile)

    def _admission(self, plan: Any, check: Any, context: str) -> AdmittedPlan:
        admitted, available = check.local_required_bytes, check.local_available_bytes
        admitted = check.estimated_required_bytes if admitted is None else admitted
        available = check.available_bytes if available is None else available
        split_child = self._runs_split
        known = None if split_child else self._priced.get(admitted)
        if known is None or known[0] != plan.signature:
            known = self._price_anew(plan)
        _, wave, profile = known
        return AdmittedPlan(
            context=context,
            signature=self._ledger(plan.signature).signature,
            wave=wave,
            profile=profile,
            price=allocated_price(wave, profile, self.law, self.safety),  # ART reads no footprints and plans without
            packed_rows=plan.packed_tokens,
            logical_rows=plan.active_logical_tokens,
            admitted_bytes=admitted,
            available_bytes=available,
            split_child=split_child,
        )

    def _price_anew(self, plan: Any) -> tuple[Any, Wave, Profile]:
        """Price exactly this plan: a split's child, or a plan that ART admitted with buffers of its own on top."""
        self._priced.clear()
        self.rank._plan_cost(plan)
        (known,) = self._priced.values()
        return known

    def _follow_recompute_mode(self, known: bool | None = None) -> bool:
        """Whether one-layer recompute is live, asked anew. Profiles of the other mode, ART's included, are put aside.

        A profile learned under one mode says nothing of another, and ART's trust gates must not open on it. A reading
        belongs to the mode its plan ran in (`known`), whatever the caller switched to since.
        """
        one_layer = bool(self.rank._one_layer_recompute()) if known is None else known
        if one_layer is not self._one_layer:
            self._one_layer = one_layer
            self.rank._memory_profiles = self._native_profiles.setdefault(one_layer, {})
        return one_layer

    def _ledger(self, original: Any, one_layer: bool | None = None) -> _Ledger:
        key = (original, self._follow_recompute_mode(one_layer))
        ledger = self._ledgers.get(key)
        if ledger is None:
            mode = self._modes.get(key[1])
            if mode is None:
                mode = self._modes[key[1]] = recompute_mode(self.rank, key[1])
            ledger = self._ledgers[key] = _Ledger(signature=signature_of(original, mode), profile=Profile())
        return ledger


def bind(
    rank: Any,
    law: str | Law = "warm",
    safety: str | Safety = DEFAULT_SAFETY,
    records: Records | Recorder | None = None,
) -> Binding:
    """Make `rank`, an OpenPipe ART `TrainerRank`, price, retain, learn and explain with this kernel.

    What the rank had learned is adopted. `safety` applies to the kernel's prices; what ART adds outside them
    (growth of communication buffers, checkpoint gradients of a split) keeps ART's own 1.1. `records` is called
    with every admission and every observation, or a `Recorder` that turns them into decision records. ART's
    opt-in `bounded_forward_peaks` scope is another law, made of single roots: its signatures stay with ART.

    Raises `ArtInterfaceError` if the rank's methods are not those this adapter was written for,
    `ArtBindingError` if one of them is overridden on this rank already, `UnknownLawError`, `SafetyError`.
    """
    implementation = require_interface(rank)
    overridden = [name for name in _OVERRIDDEN if name in vars(rank)]
    if overridden:
        raise ArtBindingError(f"this rank is bound already, or overrides of its own: {', '.join(overridden)}")
    law, safety = find_law(law) if isinstance(law, str) else law, Safety.parse(safety)
    if isinstance(records, Recorder):
        records = RecordedBy(records, law, safety)
    binding = Binding(rank, law, safety, records, implementation)
    for name, method in zip(
        _OVERRIDDEN, (binding.required, binding.retained, binding.update, binding.run), strict=True
    ):
        setattr(rank, name, method)
    return binding


def unbind(rank: Any) -> None:
    """Give `rank` back to its own pricing, with what it learned meanwhile. Raises `ArtBindingError` if it is
    not bound.
    """
    for name in _OVERRIDDEN:
        if not isinstance(getattr(vars(rank).get(name), "__self__", None), Binding):
            raise ArtBindingError(f"this rank is not bound: {name} is not overridden by this adapter")
    for name in _OVERRIDDEN:
        delattr(rank, name)


def _has_own_law(signature: Any) -> bool:
    """Whether ART prices this signature by its bounded peaks, a law of its own."""
    return bool(getattr(signature, "bounded_forward_peak", False))


class _Everywhere(dict[Any, Any]):
    """A mapping that holds one value under every key."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self._value = value

    def get(self, key: Any, default: Any = None) -> Any:
        return self._value


def _floor_view(rank: Any, profiles: Mapping[Any, Any]) -> Any:
    """The same rank (its very attributes), seen with other profiles and as never packed-priced.

    ART's estimator then answers with outputs and static floor alone. Nothing is copied and nothing on the rank
    changes, so this is safe beside ART's planning thread.
    """
    seen = type(
        "FloorView",
        (type(rank),),
        {"_memory_profiles": property(lambda _: profiles), "_one_layer_recompute": lambda _: False},
    )
    view: Any = object.__new__(seen)
    view.__dict__ = rank.__dict__
    return view
