"""`bind` and `unbind` on planning ranks: what is overridden, adopted, put aside, explained and given back."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.art import Admission, ArtBindingError, ArtInterfaceError, Observation, bind, unbind
from pricing.kernel.law import BindingTerm, Ineligible
from pricing.kernel.quantities import GIB
from pricing.kernel.reading import ReadingKind
from pricing.records.recorder import Recorder
from pricing.records.replay import replay
from tests.art.differential import Lesson, Pair
from tests.art.original import Geometry, load_trainer_rank, planning_rank
from tests.art.planning_runs import Machine, make_batch, run_batch

LESSONS = tuple(
    Lesson(
        packed_rows=rows,
        logical_rows=4 * rows,
        output_bytes=16 * rows,
        peak_delta_bytes=(900 << 20) + 300_000 * rows,
        retained_bytes=None,
        caller_phase=True,
    )
    for rows in (700, 16_000, 4_000)
)


def signature(**changes: Any) -> Any:
    facts: dict[str, Any] = {
        "topology": (1, 1, 1, 1),
        "planner_coefficients": (1, None),
        "slot_group_count": 1,
        "request_mix": ("target:single",),
        "grad_enabled": True,
        "grad_modes": (True,),
    }
    return load_trainer_rank()._impl._MemorySignature(**{**facts, **changes})


def required(rank: Any, rows: int = 8_000, key: Any = None) -> int:
    answer: int = rank._estimate_required_memory_bytes_from_values(
        packed_tokens=rows,
        output_bytes=16 * rows,
        signature=signature() if key is None else key,
        logical_tokens=4 * rows,
        gdn_segments=12,
        group_rows=((rows, True),),
    )
    return answer


def taught_rank(**geometry: Any) -> Any:
    rank = planning_rank(Geometry(**geometry))
    Pair.teach((rank,), LESSONS, signature())
    return rank


def test_binding_overrides_the_rank_alone_and_unbinding_leaves_no_trace() -> None:
    rank, other = planning_rank(Geometry()), planning_rank(Geometry())
    before = dict(vars(rank))
    bind(rank)
    assert vars(other).keys() == before.keys()
    unbind(rank)
    assert vars(rank).keys() == before.keys()


def test_an_unbound_rank_goes_on_with_what_it_learned_while_bound() -> None:
    rank, plain = planning_rank(Geometry()), taught_rank()
    bind(rank)
    Pair.teach((rank,), LESSONS, signature())
    unbind(rank)
    assert required(rank) == required(plain)


def test_binding_adopts_what_the_rank_had_learned() -> None:
    late, early = taught_rank(), planning_rank(Geometry())
    bound_late, bound_early = bind(late), bind(early)
    Pair.teach((early,), LESSONS, signature())
    assert bound_late.profiles.keys() == bound_early.profiles.keys()
    assert 0 <= required(late) - required(early) <= 2 * 8_000


def test_binding_twice_and_unbinding_an_unbound_rank_are_refused() -> None:
    rank = planning_rank(Geometry())
    with pytest.raises(ArtBindingError, match="not bound"):
        unbind(rank)
    bind(rank)
    with pytest.raises(ArtBindingError, match="bound already"):
        bind(rank)


def test_a_rank_of_another_shape_is_refused_with_what_was_found_and_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = planning_rank(Geometry())
    implementation = load_trainer_rank()._impl
    monkeypatch.setattr(implementation, "_MEMORY_SAFETY_FACTOR", 1.2)
    monkeypatch.setattr(implementation.TrainerRank, "_retained_memory_bytes", lambda self, plan, *, rows=3: rows)
    with pytest.raises(ArtInterfaceError) as refusal:
        bind(rank)
    assert set(refusal.value.expected) == {"_MEMORY_SAFETY_FACTOR", "_retained_memory_bytes"}
    assert refusal.value.found["_MEMORY_SAFETY_FACTOR"] == "1.2"
    assert "found self, plan, *, rows=3, expected self, signature" in str(refusal.value)
    assert "_retained_memory_bytes" not in vars(rank)


def test_profiles_of_another_recompute_mode_are_put_aside_and_found_again() -> None:
    rank = taught_rank()
    binding = bind(rank)
    warm = required(rank)
    rank.runtime.model[0].decoder.eval()  # recompute is skipped then
    cold = required(rank)
    assert binding.last_priced[1].is_empty and cold < warm
    assert signature() not in rank._memory_profiles  # ART's own trust gate must not open on the other mode's evidence
    Pair.teach((rank,), LESSONS[:1], signature())
    rank.runtime.model[0].decoder.train()
    assert required(rank) == warm
    assert len(binding.profiles) == 2


def test_a_short_request_shares_the_profile_and_loses_packed_pricing() -> None:
    rank = taught_rank()
    binding = bind(rank)
    required(rank)
    wave, profile = binding.last_priced
    required(rank, key=signature(short_requests=True))
    short_wave, short_profile = binding.last_priced
    assert short_profile is profile
    assert binding.law.ineligibility(profile, wave.workload) == ()
    assert binding.law.ineligibility(profile, short_wave.workload) == (Ineligible.SHORT_REQUEST,)


def test_a_bounded_forward_scope_stays_with_ART() -> None:
    scoped = load_trainer_rank()._memory._ScopedMemorySignature(
        **vars(signature(request_mix=("hidden",))), bounded_forward_peak=True
    )
    rank, plain = planning_rank(Geometry()), planning_rank(Geometry())
    binding = bind(rank)
    Pair.teach((rank, plain), LESSONS, scoped)
    assert required(rank, key=scoped) == required(plain, key=scoped)
    assert rank._memory_profiles == plain._memory_profiles
    assert binding.profiles == {}


def test_nothing_to_run_costs_its_outputs() -> None:
    rank = planning_rank(Geometry())
    bind(rank)
    assert required(rank, rows=0) == 0


def test_a_gradient_wave_of_no_compute_is_learned_as_interrupted() -> None:
    rank = planning_rank(Geometry())
    events: list[Admission | Observation] = []
    bind(rank, records=events.append)
    hollow = Lesson(
        packed_rows=100,
        logical_rows=100,
        output_bytes=400,
        peak_delta_bytes=400,
        retained_bytes=None,
        caller_phase=True,
    )
    Pair.teach((rank,), (hollow,), signature())
    (observation,) = events
    assert isinstance(observation, Observation)
    assert observation.reading.kind is ReadingKind.INTERRUPTED
    assert observation.profile.complete_readings == 0


def test_safety_is_the_kernels_own() -> None:
    tight, default = taught_rank(), taught_rank()
    bind(tight, safety="51/50")
    bind(default)
    assert abs(required(tight) * 110 - required(default) * 102) <= 220


def run(rank: Any, plan: Any, check: Any) -> None:
    """As ART runs an admitted plan, without a model: its own run is replaced by one that does nothing."""
    rank._run_flat_plan_with_memory_tracking(plan, check=check, context="forward_micro_batches")


@pytest.fixture
def no_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        load_trainer_rank()._impl.TrainerRank,
        "_run_flat_plan_with_memory_tracking",
        lambda self, plan, *, check, context: ([], None),
    )


@pytest.mark.usefixtures("no_execution")
def test_every_admission_is_explained_by_the_price_that_admitted_it() -> None:
    rank = planning_rank(Geometry(), 6 * GIB)
    binding = bind(rank)
    machine = Machine(row_bytes=300_000)
    items = make_batch(random.Random(5), prompts=10, rollouts=6, prompt=(64, 500), completion=(8, 300))
    run_batch(rank, items[:20], machine)
    terms, start = set(), 20
    while start < len(items):
        candidate = rank._select_next_micro_batch(items, start)
        run(rank, candidate.plan, candidate.check)
        admission = binding.admissions[-1]
        assert admission.price.required_bytes == admission.admitted_bytes == candidate.check.estimated_required_bytes
        assert admission.available_bytes == 6 * GIB
        assert admission.wave.packed_rows >= admission.packed_rows == candidate.plan.packed_tokens
        stats = SimpleNamespace(
            estimated_required_bytes=candidate.check.estimated_required_bytes,
            packed_tokens=candidate.plan.packed_tokens,
        )
        assert binding.explain(stats) is admission
        terms.add(admission.price.binding_term)
        machine_peak = machine.forward_bytes(candidate.plan, cold=False)
        rank._update_memory_profile(candidate.plan, machine_peak, retained_bytes=None, caller_phase=True)
        start += candidate.stats_global_count
    assert terms & {BindingTerm.WARM, BindingTerm.WARM_CLAMPED, BindingTerm.WARM_FLOOR}


@pytest.mark.usefixtures("no_execution")
def test_a_reading_belongs_to_the_recompute_mode_its_plan_ran_in() -> None:
    rank = planning_rank(Geometry())
    binding = bind(rank)
    items = make_batch(random.Random(9), prompts=1, rollouts=2, prompt=(64, 64), completion=(64, 64))
    candidate = rank._select_next_micro_batch(items, 0)
    run(rank, candidate.plan, candidate.check)
    rank.runtime.model[0].decoder.eval()  # the caller evaluates inside the yield and leaves the model so
    rank._update_memory_profile(candidate.plan, 1 << 30, retained_bytes=None, caller_phase=True)
    ((learned, _),) = binding.profiles.items()
    assert learned.recompute.is_one_layer_full
    required(rank, key=candidate.plan.signature)
    assert binding.last_priced[1].is_empty


@pytest.mark.usefixtures("no_execution")
def test_a_recorder_gets_a_record_of_every_wave_that_replays_to_the_same_bytes() -> None:
    rank = planning_rank(Geometry(), 6 * GIB)
    recorder = Recorder(name="art")
    bind(rank, records=recorder)
    machine = Machine(row_bytes=300_000)
    items = make_batch(random.Random(8), prompts=6, rollouts=4, prompt=(64, 500), completion=(64, 300))
    run_batch(rank, items, machine)
    candidate = rank._select_next_micro_batch(items, 0)
    run(rank, candidate.plan, candidate.check)
    peak = machine.forward_bytes(candidate.plan, cold=False)
    rank._update_memory_profile(candidate.plan, peak, retained_bytes=peak // 2)
    rank._update_memory_profile(candidate.plan, peak + 1, retained_bytes=None, caller_phase=True)
    record = recorder.last_record
    assert recorder.failures == 0 and record is not None and record.observed is not None
    assert record.observed.peak_delta_bytes == peak + 1
    assert record.required_bytes == candidate.check.estimated_required_bytes
    assert replay(record).is_equal


@pytest.mark.usefixtures("no_execution")
def test_a_splits_children_are_explained_one_by_one() -> None:
    rank = planning_rank(Geometry(), 3 * GIB)
    binding = bind(rank)
    group = make_batch(random.Random(6), prompts=1, rollouts=40, prompt=(200, 200), completion=(200, 300))
    run_batch(rank, [group[:2], group[2:10]], Machine(row_bytes=400_000, fixed_bytes=0, cold_bytes=0, kept_percent=5))
    candidate = rank._select_next_micro_batch([group], 0)
    assert candidate.plan.subforward_count > 1
    rank._planner_observing_split = True
    for child in candidate.plan.subforwards:
        run(rank, child, candidate.check)
    children = list(binding.admissions)[-candidate.plan.subforward_count :]
    assert all(child.split_child for child in children)
    assert all(child.admitted_bytes == candidate.check.estimated_required_bytes for child in children)
    assert [child.wave.packed_rows for child in children] == [plan.packed_tokens for plan in candidate.plan.subforwards]
    assert max(child.price.required_bytes for child in children) < candidate.check.estimated_required_bytes


def test_an_explanation_that_is_no_longer_kept_is_none() -> None:
    binding = bind(planning_rank(Geometry()))
    assert binding.explain(SimpleNamespace(estimated_required_bytes=1, packed_tokens=1)) is None
