"""Planning and running together: warm prices through the width search, splits, refusals, shrinking memory, probes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from adapters.torch_memory import BudgetSampler, Flaw, MemorySample, PeakMeter, SimulatedMemory
from adapters.torch_memory.errors import BudgetSampleError
from adapters.trainer_rank import AdmissionError, PackedRows, Request, RequestError, TrainerRank, WaveRefusedError
from pricing import LAWS, ReadingKind
from pricing.kernel.requests import NO_RECOMPUTE
from pricing.planner.plan import Verdict
from pricing.planner.split import split_key
from tests.adapters.trainer_rank.support import CPU, VOCABULARY, tokens
from tests.adapters.trainer_rank.waves import (
    calibrated,
    decoder,
    given_bytes,
    group,
    groups,
    loss_of,
    only_profile,
    rank_on,
    separate,
    train,
)


@pytest.mark.parametrize("law", LAWS)
def test_every_law_runs_a_batch_within_its_budget(meter: PeakMeter, law: str) -> None:
    rank = calibrated(meter, law=LAWS[law])
    items = groups(8, prompt=40)
    one = rank.plan(items[:1])
    given_bytes(rank, 3 * one.required_bytes)
    waves = train(rank, items)
    assert [item for wave in waves for item in wave.items] == list(range(8))
    assert len(waves) > 1
    for wave in waves:
        assert wave.stats.predicted_bytes <= wave.stats.budget.available_bytes
        assert wave.stats.observed_bytes is not None
        assert wave.stats.observed_bytes <= wave.stats.predicted_bytes


def test_gradients_of_the_seed_wave_narrow_nothing(meter: PeakMeter) -> None:
    """The seed wave also makes the gradients; they are off its reading, so a warm fit finds no wider waves."""
    rank = rank_on(meter, law="warm")
    train(rank, [group(0)])
    assert not only_profile(rank).has_warm_fit
    items = groups(12, rollouts=1)
    given_bytes(rank, rank.plan(items[:9]).required_bytes)
    before = rank.plan(items)
    for _ in range(2):
        train(rank, [group(0)])
    given_bytes(rank, before.available_bytes)
    after = rank.plan(items)
    assert only_profile(rank).has_warm_fit
    assert after.width == before.width


def test_a_calibration_then_a_wider_wave_is_covered(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    seen_rows = only_profile(rank).largest_packed_rows
    (wave,) = train(rank, groups(6))
    assert wave.stats.plan.wave.packed_rows == 6 * seen_rows
    assert wave.stats.observed_bytes is not None
    assert wave.stats.observed_bytes <= wave.stats.predicted_bytes


def test_trust_growth_keeps_an_unseen_size_apart(meter: PeakMeter) -> None:
    """No wave has more than 8 times the rows of the largest one seen, whatever the budget."""
    rank = rank_on(meter)
    small = [Request(tokens=tokens(70), targets=np.roll(tokens(70), -1))]
    for _ in range(2):
        train(rank, [small])
    items = [[Request(tokens=row, targets=np.roll(row, -1))] for row in (tokens(70, seed) for seed in range(30))]
    waves = train(rank, items)
    largest = 70
    for wave in waves:
        assert wave.stats.plan.wave.packed_rows <= 8 * largest
        largest = max(largest, wave.stats.plan.wave.packed_rows)
    assert len(waves) > 1


def test_a_wave_that_does_not_fit_is_split_and_computes_the_same(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    item = separate(12)
    whole = rank.plan([item])
    (wanted,) = train(rank, [item])
    gradient = gradient_of(rank)
    rank = calibrated(meter)
    given_bytes(rank, whole.required_bytes * 4 // 5)
    for wave in rank.forward_micro_batches([item]):
        got = torch.cat([output.target_log_probs for output in wave.outputs if output.target_log_probs is not None])
        loss_of(wave.outputs).backward()
    stats = wave.stats
    assert stats.plan.verdict is Verdict.SPLIT
    assert len(stats.children) == stats.plan.subforwards >= 2
    assert all(look.reading is not None and look.reading.kind is ReadingKind.SPLIT_CHILD for look in stats.children)
    assert stats.closing is not None and Flaw.NESTED_INTERVAL in stats.closing.flaws
    assert not stats.is_complete
    assert stats.observed_bytes is not None
    assert stats.observed_bytes <= stats.predicted_bytes
    assert wanted.stats.observed_bytes is not None
    assert stats.observed_bytes < wanted.stats.observed_bytes
    torch.testing.assert_close(gradient_of(rank), gradient, rtol=1e-4, atol=1e-4)
    assert len(got) == sum(len(request.tokens) for request in item)
    assert rank.profiles.splits == {split_key(stats.plan.signature, stats.plan.children): stats.observed_bytes}


def test_a_split_that_took_more_is_remembered_after_a_restart_whatever_the_order_of_its_parts(
    meter: PeakMeter, tmp_path: Path
) -> None:
    """Of its signature only: the same wave without recompute is cut and priced as if none had been measured."""
    path, item = tmp_path / "profiles.json", separate(11)
    rank = calibrated(meter, profiles=path)
    budget = rank.plan([item]).required_bytes * 4 // 5
    given_bytes(rank, budget)
    (wave,) = train(rank, [item])
    plan = wave.stats.plan
    assert plan.verdict is Verdict.SPLIT and plan.rungs[-1].measured_bytes is None
    rank.profiles.note_split(split_key(plan.signature, plan.children), 2 * budget)
    rank.profiles.save()

    restarted = rank_on(meter, profiles=path, model=decoder(CPU))
    assert restarted.profiles.started_warm
    for order in (item, item[::-1], item[5:] + item[:5]):
        given_bytes(restarted, budget)
        again = restarted.plan([order])
        held = again.rungs[len(plan.rungs) - 1]
        assert (held.measured_bytes, held.fits) == (2 * budget, False)
        assert again.subforwards > plan.subforwards

    elsewhere = calibrated(meter, model=decoder(CPU, recompute=NO_RECOMPUTE))
    for key, peak_bytes in restarted.profiles.splits.items():
        elsewhere.profiles.note_split(key, peak_bytes)
    given_bytes(elsewhere, elsewhere.plan([item]).required_bytes * 4 // 5)
    apart = elsewhere.plan([item])
    assert len(apart.rungs) >= len(plan.rungs) and all(rung.measured_bytes is None for rung in apart.rungs)


def gradient_of(rank: TrainerRank) -> torch.Tensor:
    """The last call's gradient: `calibrated` ran three waves of one group before, which is the same for every rank."""
    model = rank._model
    assert isinstance(model, torch.nn.Module)
    return torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])


def test_a_refused_item_runs_nothing_and_the_rank_goes_on(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    small = group(0, rollouts=1)
    given_bytes(rank, rank.plan([small]).required_bytes)
    seen = 0
    with pytest.raises(WaveRefusedError) as caught:
        for wave in rank.forward_micro_batches([small, separate(12)]):
            loss_of(wave.outputs).backward()
            seen += 1
    assert seen == 1
    assert caught.value.plan.start == 1
    assert caught.value.plan.refusal is not None
    assert train(rank, [small])[0].stats.is_complete


class ShrinkingMemory(SimulatedMemory):
    """A device whose memory somebody else takes, a share before every other sample."""

    def __init__(self, rank: TrainerRank, available_bytes: int, shrink_percent: int, times: int) -> None:
        given_bytes(rank, available_bytes)
        source = rank.sampler.source
        assert isinstance(source, SimulatedMemory)
        super().__init__(rank.meter.counter, source.capacity_bytes)  # type: ignore[arg-type]
        self.samples = 0
        self._shrink_percent = shrink_percent
        self._times = times

    def sample(self) -> MemorySample:
        self.samples += 1
        if self.samples % 2 == 0 and self.samples <= 2 * self._times:
            self.capacity_bytes = self.capacity_bytes * (100 - self._shrink_percent) // 100
        return super().sample()


def test_memory_that_shrinks_after_planning_narrows_the_wave(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    items = groups(6)
    memory = ShrinkingMemory(rank, rank.plan(items).required_bytes, shrink_percent=40, times=1)
    rank.sampler = BudgetSampler(memory)
    waves = train(rank, items)
    assert len(waves[0].items) < 6
    assert memory.samples >= 4
    for wave in waves:
        assert wave.stats.predicted_bytes <= wave.stats.admission.budget.available_bytes


def test_memory_that_shrinks_every_time_ends_in_an_error_with_the_numbers(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    items = groups(12)
    rank.sampler = BudgetSampler(ShrinkingMemory(rank, rank.plan(items).required_bytes, shrink_percent=30, times=99))
    with pytest.raises(AdmissionError, match=r"planned 3 times.*GiB required of") as caught:
        train(rank, items)
    assert caught.value.admission is not None
    assert caught.value.admission.required_bytes > caught.value.admission.budget.available_bytes


def test_a_sample_that_fails_is_an_error_never_unlimited(meter: PeakMeter) -> None:
    class Unreadable(SimulatedMemory):
        def sample(self) -> MemorySample:
            raise BudgetSampleError("the driver does not answer")

    rank = rank_on(meter, sampler=BudgetSampler(Unreadable(meter.counter, 1 << 30)))  # type: ignore[arg-type]
    with pytest.raises(BudgetSampleError, match="does not answer"):
        train(rank, groups(1))


def test_a_tiny_first_wave_does_not_make_later_ones_unrunnable(meter: PeakMeter) -> None:
    """A price learned from one tiny wave refuses what would run; the wave runs once, as a probe, and teaches."""
    rank = rank_on(meter)
    row = tokens(3)
    train(rank, [Request(tokens=row, targets=np.roll(row, -1))])
    row = tokens(200, 1)
    item = [Request(tokens=row, targets=np.roll(row, -1))]
    priced = rank.plan([item]).price.required_bytes
    given_bytes(rank, priced // 2)
    plan = rank.plan([item])
    assert plan.verdict is Verdict.PROBE
    assert plan.required_bytes > plan.available_bytes
    (wave,) = train(rank, [item])
    assert wave.stats.plan.verdict is Verdict.PROBE
    assert wave.stats.admission.required_bytes < wave.stats.plan.required_bytes  # admitted as a cold start is
    assert wave.stats.is_complete
    assert rank.plan([item]).verdict is not Verdict.PROBE


def test_requests_with_and_without_gradients_share_a_wave_and_no_rows(meter: PeakMeter) -> None:
    rank = rank_on(meter)
    model, modes = rank._model, []
    hidden_states = model.packed_hidden_states

    def noted(rows: PackedRows) -> torch.Tensor:
        modes.append(torch.is_grad_enabled())
        return hidden_states(rows)

    model.packed_hidden_states = noted  # type: ignore[method-assign]
    item = [*group(0, rollouts=2), *(dataclasses.replace(request, grads=False) for request in group(0, rollouts=2))]
    for wave in rank.forward_micro_batches([item]):
        trained, scored = wave.outputs[0].target_log_probs, wave.outputs[2].target_log_probs
        assert trained is not None and scored is not None
        assert trained.requires_grad and not scored.requires_grad
        torch.testing.assert_close(trained.detach(), scored, rtol=1e-4, atol=1e-4)
        assert wave.stats.plan.wave.packed_rows == 2 * (96 + 2 * 24)
        assert modes == [False, True]  # first what keeps nothing but its outputs
        loss_of(wave.outputs[:2]).backward()
    assert wave.stats.is_complete


def test_scoring_is_complete_evidence_and_training_forwards_are_not(meter: PeakMeter) -> None:
    rank = rank_on(meter)
    for grads in (False, True):
        rank.dp_rank_forward([group(0, grads=grads)])
    by_grads = {signature.grad_modes: profile for signature, profile in rank.profiles.items()}
    assert by_grads[(False,)].complete_readings == 1
    assert by_grads[(True,)].complete_readings == 0


def test_inactive_requests_get_empty_outputs_and_change_nothing(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    item = group(0)
    idle = Request(tokens=tokens(5_000))
    assert rank.plan([[*item, idle]]).price == rank.plan([item]).price
    outputs = rank.dp_rank_forward([[item[0], idle, item[1]]])
    assert [len(output.tensors()) for output in outputs] == [1, 0, 1]
    (nothing,) = rank.dp_rank_forward([idle])
    assert nothing.tensors() == []


def test_short_requests_are_priced_by_logical_rows_on_the_same_profile(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    long, short = (rank.plan([group(9, prompt=63 - 8 + extra, rollouts=2, completion=8)]) for extra in (1, 0))
    assert long.signature == short.signature
    assert not long.price.ineligible
    assert short.price.ineligible
    assert short.verdict is Verdict.RUN


def test_row_multiples_pad_each_group_and_change_no_output(meter: PeakMeter) -> None:
    plain = rank_on(meter).dp_rank_forward([group(0)])
    rank = rank_on(meter, row_multiple=64)
    for wave in rank.forward_micro_batches([group(0)]):
        assert wave.stats.plan.wave.packed_rows == 192
        for got, wanted in zip(wave.outputs, plain, strict=True):
            assert got.target_log_probs is not None and wanted.target_log_probs is not None
            torch.testing.assert_close(got.target_log_probs, wanted.target_log_probs, rtol=1e-5, atol=1e-5)
    rank = rank_on(meter, row_multiple=1000)
    assert rank.plan([group(0)]).wave.packed_rows == 1000


def test_gradients_that_backward_has_to_make_are_kept_free_beside_the_price(meter: PeakMeter) -> None:
    """A price learned from waves that add to gradients does not hold for the wave that makes them anew."""
    model = decoder(CPU)
    rank = calibrated(meter, model=model, law=LAWS["frontier"])
    gradient_bytes = sum(value.nbytes for value in model.parameters())
    price_bytes = rank.plan([group(0)]).required_bytes
    model.zero_grad()
    given_bytes(rank, price_bytes)
    with pytest.raises(WaveRefusedError):
        train(rank, [group(0)])
    assert len(rank.dp_rank_forward([group(0, grads=False)])) == 4  # scoring makes none
    given_bytes(rank, price_bytes + gradient_bytes)
    (wave,) = train(rank, [group(0)])
    assert wave.stats.predicted_bytes == price_bytes
    assert wave.stats.observed_bytes is not None
    assert wave.stats.observed_bytes <= price_bytes
    assert wave.stats.closing is not None and wave.stats.closing.left_bytes > 0
    assert wave.stats.admission.required_bytes == price_bytes + gradient_bytes


@pytest.mark.parametrize("weighted", [False, True], ids=["left out", "weight 0"])
def test_a_request_left_out_of_the_loss_makes_the_wave_incomplete(meter: PeakMeter, weighted: bool) -> None:
    rank = calibrated(meter)
    for wave in rank.forward_micro_batches([group(1)]):
        loss = loss_of(wave.outputs[1:])
        if weighted:
            loss = loss + 0.0 * loss_of(wave.outputs[:1])
        torch.autograd.backward(loss)
        stats = wave.stats
    assert stats.is_complete is weighted
    assert stats.closing is not None
    assert stats.closing.flaws == (() if weighted else (Flaw.BACKWARD_NOT_SEEN,))


def test_malformed_requests_are_refused_before_anything_runs(meter: PeakMeter) -> None:
    rank = rank_on(meter)
    with pytest.raises(RequestError, match=r"targets of shape \(3,\) do not fit"):
        rank.dp_rank_forward([Request(tokens=[1, 2, 3, 4], targets=[1, 2, 3])])
    with pytest.raises(RequestError, match=r"tokens must have shape"):
        rank.dp_rank_forward([Request(tokens=[[1, 2], [3, 4]], logits=True)])
    for tokens_given in ([1, 2, VOCABULARY], [1, -1]):
        with pytest.raises(RequestError, match=rf"tokens holds .*; the vocabulary has {VOCABULARY}"):
            rank.dp_rank_forward([Request(tokens=tokens_given, logits=True)])
    for label in (VOCABULARY, -1):
        with pytest.raises(RequestError, match=rf"targets holds {label}"):
            rank.dp_rank_forward([Request(tokens=[1, 2, 3], targets=[-100, 1, label])])
    with pytest.raises(RequestError, match="whole numbers, got float64"):
        rank.dp_rank_forward([Request(tokens=[1.5, 2.0], logits=True)])
    with pytest.raises(RequestError, match=f"top_k is {VOCABULARY + 1}"):
        rank.dp_rank_forward([Request(tokens=[1, 2], top_k=VOCABULARY + 1)])
    assert not rank.profiles
    assert rank.dp_rank_forward([]) == []
    assert len(rank.dp_rank_forward([[], group(0, rollouts=1), []])) == 1
    assert list(rank.forward_micro_batches([])) == []


def test_a_cpu_needs_the_size_it_stands_for(meter: PeakMeter) -> None:
    with pytest.raises(BudgetSampleError, match="memory_bytes"):
        TrainerRank(decoder(CPU), meter=meter)
