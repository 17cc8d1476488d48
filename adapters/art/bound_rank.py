"""Binding one rank: OpenPipe ART keeps planning and running, this kernel prices, retains, learns and explains.

Four methods are overridden on the instance, never on the class: the required bytes, the retained bytes, the
profile update, and the tracked run (to see which price admitted a plan). ART's static floors stay its own:
its estimator is asked with a profile that knows a rate of zero, so that what comes back is outputs and floor
alone, and the floor enters the law as F.

On a CUDA device the footprint is priced too (`footprints`): a fifth method, the available bytes, then answers for what
the run does, which gives the cache back where a price does not fit beside it, and learns from what ran out of memory.
Without one, or without footprints, everything is held against what ART counts, and nothing is released.
"""

from __future__ import annotations

import math
import os
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

from adapters.art.events import AdmittedPlan, LearnedReading, Records
from adapters.art.footprints import Footprints, Look, OpenWave, RankDevice
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
from adapters.torch_memory.out_of_memory import is_out_of_memory, requested_bytes
from pricing.kernel.law import Law
from pricing.kernel.laws import find_law
from pricing.kernel.price import (
    Price,
    allocated_bytes,
    allocated_price,
    price,
    required_bytes,
    retained_bytes,
    retained_evidence_bytes,
)
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import DEFAULT_SAFETY, Safety
from pricing.kernel.reading import Reading
from pricing.kernel.requests import RecomputeMode, Signature, Workload
from pricing.kernel.wave import Wave
from pricing.records.recorder import Recorder

_OVERRIDDEN: Final = (
    "_estimate_required_memory_bytes_from_values",
    "_retained_memory_bytes",
    "_update_memory_profile",
    "_run_flat_plan_with_memory_tracking",
)
_YIELDING: Final = "forward_micro_batches"
"""What ART calls the context of a run whose outputs go to a caller's phase inside the same wave."""
_AVAILABLE: Final = "_available_memory_bytes"
"""Overridden with footprints, where the rank has no budget of its own."""
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

    `admissions` are the latest plans run, oldest first; `profiles` what was learned, by signature. `footprints` are the
    waves on the rank's device, None where only what is allocated is priced.
    """

    def __init__(
        self,
        rank: Any,
        law: Law,
        safety: Safety,
        records: Records | None,
        implementation: ModuleType,
        device: RankDevice | None,
    ) -> None:
        self.rank = rank
        self.law = law
        self.safety = safety
        self.footprints = None if device is None else Footprints(device)
        self.admissions: deque[AdmittedPlan] = deque(maxlen=_ADMISSIONS_KEPT)
        self._records = records
        self._ledgers: dict[tuple[Any, bool], _Ledger] = {}
        self._priced: dict[int, tuple[Any, Wave, Profile]] = {}
        self._modes: dict[bool, RecomputeMode] = {}
        self._one_layer = bool(rank._one_layer_recompute())
        self._native_profiles: dict[bool, dict[Any, Any]] = {self._one_layer: rank._memory_profiles}
        self._running: tuple[Callable[[], Any], bool] = (lambda: None), self._one_layer
        self._native = type(rank)
        self._test_hooks: str = implementation._TEST_HOOKS_ENV
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
        self._learn_failures()  # before a search prices its first wave, so that one search has one profile
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
        figure = allocated_bytes if self.footprints is None else required_bytes
        required = figure(wave, ledger.profile, self.law, self.safety)
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
        figure = retained_evidence_bytes if self.footprints is None else retained_bytes
        return min(required, figure(wave, ledger.profile, self.law, self.safety))

    def available(self, sample: dict[str, Any] | None = None) -> int:
        """What a price may be held against (only overridden with footprints): what `Footprints.available_bytes` counts,
        and no more than ART's own test hook allows. `sample` gets ART's figures, as telemetry.
        """
        assert self.footprints is not None
        available = self.footprints.available_bytes()
        if sample is None and os.environ.get(self._test_hooks) != "1":
            return available
        sample = {} if sample is None else sample
        self._original(_AVAILABLE)(self.rank, sample)
        cap = sample.get("test_cap_bytes")
        return available if cap is None else min(available, max(0, cap - sample["allocated_bytes"]))

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
        look = Look(footprint_bytes=None)
        if self.footprints is not None:
            look = self.footprints.look(plan, ends=retained_bytes is None)
            if look.failed is not None:
                self._learn_out_of_memory(look.failed, None)
                return
        reading = reading_of(
            plan,
            peak_delta_bytes,
            retained_bytes,
            caller_phase=caller_phase and not look.was_reset,
            split_child=self._runs_split,
            footprint_bytes=look.footprint_bytes,
        )
        self._learn(self._ledger(plan.signature, one_layer), reading)

    def run(self, plan: Any, *, check: Any, context: str) -> Any:
        """Note which price admitted `plan`, then let ART run it; with footprints, begin clean where that teaches or is
        needed, and learn if it runs out of memory.
        """
        run = self._original("_run_flat_plan_with_memory_tracking")
        if plan.packed_tokens <= 0 or _has_own_law(plan.signature):
            return run(self.rank, plan, check=check, context=context)
        self._learn_failures()
        admission = self._admission(plan, check, context)
        opened = None
        if self.footprints is not None:
            ran = _as_it_runs(admission.wave, plan)
            opened = self.footprints.begin(
                plan,
                ran,
                admission.profile,
                filed_under=self._ledger(plan.signature),
                required_bytes=admission.price.required_bytes if admission.split_child else admission.admitted_bytes,
                available_bytes=admission.available_bytes,
                is_split_child=admission.split_child,
                ends_with_forward=context != _YIELDING,
            )
            admission = replace(
                admission,
                budget=opened.budget,
                released_cache=opened.released_cache,
                started_clean=opened.is_clean,
            )
        self.admissions.append(admission)
        self._record(admission)
        self._running = weakref.ref(plan), self._one_layer
        try:
            return run(self.rank, plan, check=check, context=context)
        except BaseException as error:
            if opened is not None and self.footprints is not None:
                if is_out_of_memory(error):
                    self._learn_out_of_memory(opened, error)
                else:
                    self.footprints.drop(opened)
            raise

    # --- learning ---

    def _learn(self, ledger: _Ledger, reading: Reading, requested: int | None = None) -> None:
        ledger.profile = observe(ledger.profile, reading)
        self._record(
            LearnedReading(
                signature=ledger.signature, reading=reading, profile=ledger.profile, requested_bytes=requested
            )
        )

    def _learn_out_of_memory(self, opened: OpenWave, error: BaseException | None) -> None:
        """No wave as large is admitted into as little again (INV-16)."""
        assert self.footprints is not None
        self._learn(
            opened.filed_under,
            self.footprints.out_of_memory(opened, error),
            requested=None if error is None else requested_bytes(error),
        )

    def _learn_failures(self) -> None:
        """Learn from waves that ran out of memory in their caller's phase, which ART does not hear of."""
        if self.footprints is not None:
            for opened in self.footprints.failed():
                self._learn_out_of_memory(opened, None)

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
            price=self._price(wave, profile),
            packed_rows=plan.packed_tokens,
            logical_rows=plan.active_logical_tokens,
            admitted_bytes=admitted,
            available_bytes=available,
            split_child=split_child,
        )

    def _price(self, wave: Wave, profile: Profile) -> Price:
        """The price by what this rank reads of its device."""
        return (allocated_price if self.footprints is None else price)(wave, profile, self.law, self.safety)

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
    footprints: bool | RankDevice = True,
) -> Binding:
    """Make `rank`, an OpenPipe ART `TrainerRank`, price, retain, learn and explain with this kernel.

    What the rank had learned is adopted. `safety` applies to the kernel's prices; what ART adds outside them
    (growth of communication buffers, checkpoint gradients of a split) keeps ART's own 1.1. `records` is called
    with every admission and every observation, or a `Recorder` that turns them into decision records. ART's
    opt-in `bounded_forward_peaks` scope is another law, made of single roots: its signatures stay with ART.

    footprints: on a CUDA device with PyTorch's own allocator, read what each wave takes of the device beside what it
    allocates, and hold the higher of the two prices (INV-15) against what the driver, the process's memory fraction and
    the idle cache give. Where only the cache makes a wave fit, or its footprint is not known yet, the cache is given
    back right before the wave runs (INV-17). A wave that ran out of memory, in its forward or in the caller's phase,
    raises the price of every wave as large (INV-16, INV-18); ART's error goes on to the caller. A budget that the rank
    was given (`_available_memory_bytes` set on it) stays. False, or no such device: what is allocated is priced,
    against what ART counts, and nothing is released. A `RankDevice` stands in for the rank's own.

    Raises `ArtInterfaceError` if the rank's methods are not those this adapter was written for,
    `ArtBindingError` if one of them is overridden on this rank already, `UnknownLawError`, `SafetyError`.
    """
    implementation = require_interface(rank)
    overridden = [name for name in _OVERRIDDEN if name in vars(rank)]
    if overridden:
        raise ArtBindingError(f"this rank is bound already, or overrides of its own: {', '.join(overridden)}")
    law, safety = find_law(law) if isinstance(law, str) else law, Safety.parse(safety)
    device = footprints if isinstance(footprints, RankDevice) else RankDevice.of(rank) if footprints else None
    if isinstance(records, Recorder):
        records = RecordedBy(records, law, safety, footprints=device is not None)
    binding = Binding(rank, law, safety, records, implementation, device)
    for name, method in zip(
        _OVERRIDDEN, (binding.required, binding.retained, binding.update, binding.run), strict=True
    ):
        setattr(rank, name, method)
    if device is not None and _AVAILABLE not in vars(rank):
        setattr(rank, _AVAILABLE, binding.available)
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
    if isinstance(getattr(vars(rank).get(_AVAILABLE), "__self__", None), Binding):
        delattr(rank, _AVAILABLE)


def _has_own_law(signature: Any) -> bool:
    """Whether ART prices this signature by its bounded peaks, a law of its own."""
    return bool(getattr(signature, "bounded_forward_peak", False))


def _as_it_runs(wave: Wave, plan: Any) -> Wave:
    """The wave of `plan` itself: ART may have priced an upper bound of it."""
    return replace(
        wave,
        packed_rows=int(plan.packed_tokens),
        logical_rows=int(plan.active_logical_tokens),
        grad_segments=int(plan.grad_segment_count),
        output_bytes=int(plan.output_bytes),
    )


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
