"""Public failures of trainers that size their own micro-batches, on a `TrainerRank`: D16, D22, D23 and kin."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator

import pytest
import torch

from adapters.torch_memory import PeakMeter, meter_for
from adapters.trainer_rank import (
    AdmittedOutOfMemoryError,
    OutOfMemoryRefusedError,
    PackedRows,
    TrainerRank,
    WaveRefusedError,
)
from adapters.trainer_rank.binding import bind_model
from adapters.trainer_rank.decoder import Decoder
from pricing.kernel.law import Ineligible
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, RecomputeMode
from pricing.planner.plan import Verdict
from tests.adapters.trainer_rank.support import CPU
from tests.adapters.trainer_rank.waves import (
    calibrated,
    decoder,
    given_bytes,
    group,
    groups,
    loss_of,
    rank_on,
    separate,
    train,
)

SELECTIVE = RecomputeMode(granularity="selective")
TWO_LAYERS = RecomputeMode(granularity="full", method="uniform", num_layers=2)
BLOCK = RecomputeMode(granularity="full", method="block", num_layers=1)


@pytest.fixture
def meter() -> Iterator[PeakMeter]:
    with meter_for(CPU) as meter:
        yield meter


def model_of(rank: TrainerRank) -> Decoder:
    model = rank._model
    assert isinstance(model, Decoder)
    return model


# D16: the estimate ignores the recompute mode ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [NO_RECOMPUTE, SELECTIVE, TWO_LAYERS, BLOCK], ids=str)
def test_d16_another_recompute_mode_is_never_priced_by_what_full_recompute_taught(
    meter: PeakMeter, mode: RecomputeMode
) -> None:
    rank = calibrated(meter)
    packed = rank.plan([group(0)])
    assert packed.verdict is Verdict.RUN and not packed.price.ineligible
    model_of(rank).recompute = mode
    other = rank.plan([group(0)])
    assert other.verdict is Verdict.COLD_START
    assert other.signature != packed.signature
    assert other.price.required_bytes != packed.price.required_bytes
    model_of(rank).recompute = ONE_LAYER_FULL
    assert rank.plan([group(0)]).price == packed.price


def test_d16_eval_mode_is_seen_at_pricing_time(meter: PeakMeter) -> None:
    """Frameworks skip recompute in eval mode, so a decoder that was switched to it keeps every activation."""
    rank = calibrated(meter)
    packed = rank.plan([group(0)])
    model_of(rank).eval()
    evaluated = rank.plan([group(0)])
    assert evaluated.verdict is Verdict.COLD_START
    assert not evaluated.wave.workload.recompute.training
    train(rank, [group(0)])
    learned = rank.plan([group(0)])
    assert Ineligible.RECOMPUTE in learned.price.ineligible
    assert learned.price.required_bytes != packed.price.required_bytes
    model_of(rank).train()
    assert rank.plan([group(0)]).price == packed.price


def test_d16_a_mode_that_changes_between_the_waves_of_one_call_is_seen(meter: PeakMeter) -> None:
    rank = rank_on(meter)
    modes = []
    for wave in rank.forward_micro_batches(groups(4)):
        loss_of(wave.outputs).backward()
        modes.append((wave.stats.plan.verdict, str(wave.stats.plan.signature.recompute)))
        model_of(rank).recompute = NO_RECOMPUTE
    assert modes[0] == (Verdict.COLD_START, "full/uniform/1")
    assert modes[1] == (Verdict.COLD_START, "none")
    assert modes[2][0] is Verdict.RUN


def test_d16_without_recompute_the_real_peak_is_higher_and_the_price_covers_it(meter: PeakMeter) -> None:
    """The kind behind the case: activations of all layers stay alive, and what was learned of that mode says so."""
    peaks = {}
    for mode in (ONE_LAYER_FULL, NO_RECOMPUTE):
        rank = rank_on(meter)
        model_of(rank).recompute = mode
        for _ in range(3):
            (wave,) = train(rank, [group(0)])
        peaks[mode] = wave.stats.observed_bytes or 0
        assert 0 < peaks[mode] <= wave.stats.predicted_bytes
    assert peaks[NO_RECOMPUTE] > 1.5 * peaks[ONE_LAYER_FULL]


def test_d16_the_retained_floor_is_raised_by_profiles_never_lowered(meter: PeakMeter) -> None:
    rank = rank_on(meter)
    facts = model_of(rank).model_facts()
    for _ in range(3):
        plan = rank.plan([group(0)])
        saved_inputs = plan.wave.packed_rows * facts.layers * facts.hidden * facts.dtype_bytes
        assert plan.wave.checkpoint_retained_bytes == saved_inputs
        assert plan.price.retained_bytes >= saved_inputs
        train(rank, [group(0)])


# D22: the plan that ran is not the plan that was priced --------------------------------------------------------------


class Watched:
    """A model that notes the rows of every forward."""

    def __init__(self, model: Decoder) -> None:
        self._model = model
        self.rows: list[PackedRows] = []
        self.packed_hidden_states = self._note
        self.head_logits = model.head_logits
        self.recompute_mode = model.recompute_mode
        self.model_facts = model.model_facts

    def _note(self, rows: PackedRows) -> torch.Tensor:
        self.rows.append(rows)
        return self._model.packed_hidden_states(rows)


@pytest.mark.parametrize("row_multiple", [1, 8, 128])
def test_d22_the_rows_that_run_are_the_rows_that_were_priced(meter: PeakMeter, row_multiple: int) -> None:
    watched = Watched(decoder(CPU))
    assert bind_model(watched) is watched
    rank = TrainerRank(
        watched, meter=meter, memory_bytes=512 << 20, cold_transient_bytes=0, device=CPU, row_multiple=row_multiple
    )
    scored = [dataclasses.replace(request, grads=False) for request in group(1, rollouts=2)]
    items = [*groups(3, prompt=41), [*group(7, prompt=82, rollouts=3, completion=43), *scored], *groups(2)]
    for wave in rank.forward_micro_batches(items):
        ran = sum(rows.packed_rows for rows in watched.rows)
        plan = wave.stats.plan
        assert ran == plan.wave.packed_rows == plan.shape.packed_rows
        assert sum(rows.logical_rows for rows in watched.rows) == plan.wave.logical_rows
        assert wave.stats.admission.required_bytes == plan.required_bytes
        assert plan.required_bytes <= plan.available_bytes
        watched.rows.clear()
        loss_of([output for output in wave.outputs if output.target_log_probs is not None]).backward()


def test_d22_a_splits_children_run_the_rows_they_were_priced_with(meter: PeakMeter) -> None:
    watched = Watched(decoder(CPU))
    rank = TrainerRank(watched, meter=meter, memory_bytes=512 << 20, cold_transient_bytes=0, device=CPU)
    for _ in range(3):
        train(rank, [group(0)])
    item = separate(12)
    given_bytes(rank, rank.plan([item]).required_bytes * 4 // 5)
    watched.rows.clear()
    (wave,) = train(rank, [item])
    assert wave.stats.plan.verdict is Verdict.SPLIT
    priced = [child.wave.packed_rows for child in wave.stats.plan.children]
    assert [rows.packed_rows for rows in watched.rows] == priced
    assert wave.stats.admission.required_bytes == wave.stats.plan.required_bytes <= wave.stats.plan.available_bytes


# D23: refusal and out-of-memory reports that cannot be trusted -------------------------------------------------------


def test_d23_an_out_of_memory_report_keeps_the_admissions_budget_not_the_failed_states(meter: PeakMeter) -> None:
    """Admitted 100 of 120; by the time the error is looked at, 3 are left."""
    rank = calibrated(meter)
    required = rank.plan([group(0)]).required_bytes
    given_bytes(rank, required * 6 // 5)
    with pytest.raises(AdmittedOutOfMemoryError) as caught:
        for wave in rank.forward_micro_batches([group(0)]):
            with wave:
                given_bytes(rank, required * 3 // 100)
                raise torch.OutOfMemoryError("the allocator's own words")
    error = caught.value
    assert error.admission.required_bytes == required
    assert error.admission.budget.available_bytes >= required * 6 // 5
    assert rank.sampler.budget().available_bytes < required
    assert str(error.__cause__) == "the allocator's own words"


def test_d23_running_out_of_memory_in_the_forward_ends_in_the_same_typed_error(meter: PeakMeter) -> None:
    """Where nothing narrower is left. What was learned refuses the wave from then on."""

    class Failing(Watched):
        def _note(self, rows: PackedRows) -> torch.Tensor:
            super()._note(rows)
            raise torch.OutOfMemoryError("in the forward")

    failing = Failing(decoder(CPU))
    rank = TrainerRank(failing, meter=meter, memory_bytes=512 << 20, device=CPU)
    with pytest.raises(
        AdmittedOutOfMemoryError, match=r"in the forward of an admitted wave: 192 packed rows"
    ) as caught:
        train(rank, groups(2))
    assert isinstance(caught.value, OutOfMemoryRefusedError)
    with pytest.raises(WaveRefusedError):
        rank.dp_rank_forward(groups(2))
    failing.packed_hidden_states = failing._model.packed_hidden_states
    fresh = TrainerRank(failing, meter=meter, memory_bytes=512 << 20, device=CPU)
    assert train(fresh, groups(2))[0].stats.is_complete


def test_d23_a_refusal_lists_each_rung_with_its_own_rows_price_and_budget(meter: PeakMeter) -> None:
    rank = calibrated(meter, law="warm")
    item = separate(12)
    given_bytes(rank, rank.plan([item]).required_bytes // 2)
    with pytest.raises(WaveRefusedError) as caught:
        train(rank, [item])
    text, plan = str(caught.value), caught.value.plan
    assert "no feasible split found" in text
    assert "exists" not in text
    assert plan.rungs
    for rung in plan.rungs:
        assert rung.available_bytes == plan.available_bytes
        assert rung.pruned or (rung.cost_bytes is not None and rung.cost_bytes > rung.available_bytes)
        assert f"{rung.subforwards} sub-forwards" in text
    rows = {max(child.wave.packed_rows for child in rung.children) for rung in plan.rungs if rung.children}
    assert len(rows) > 1
    assert plan.wave.packed_rows not in rows


def test_d23_the_last_waves_outputs_are_gone_before_the_next_admission(meter: PeakMeter) -> None:
    rank = rank_on(meter)
    seen: list[weakref.ref[torch.Tensor]] = []
    sample = rank.sampler.source.sample

    def checked() -> object:
        assert all(reference() is None for reference in seen)
        return sample()

    rank.sampler.source.sample = checked  # type: ignore[method-assign,assignment]
    waves = 0
    for wave in rank.forward_micro_batches(groups(3)):
        tensors = [output.target_log_probs for output in wave.outputs]
        seen = [weakref.ref(tensor) for tensor in tensors if tensor is not None]
        loss_of(wave.outputs).backward()
        del tensors
        waves += 1
    assert waves == 2


def test_d23_outputs_that_the_caller_keeps_do_count(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    free = rank.sampler.budget().free_bytes
    kept = rank.dp_rank_forward(groups(3))
    held = free - rank.sampler.budget().free_bytes
    assert held >= sum(tensor.nbytes for output in kept for tensor in output.tensors())
    del kept
    assert rank.sampler.budget().free_bytes == free
