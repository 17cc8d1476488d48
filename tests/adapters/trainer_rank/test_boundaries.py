"""What lies on a boundary of the wave loop's own counts, and what a default means. Each was once off by one unseen."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adapters.torch_memory import BudgetSampler, MemorySample, PeakMeter, SimulatedMemory, meter_for
from adapters.trainer_rank import AdmittedOutOfMemoryError, MicroBatch, Request, TrainerRank
from adapters.trainer_rank.rows import branched_rows, no_rows
from adapters.wave_loop import gradients, loop
from adapters.wave_loop.errors import WaveRefusedError
from pricing.planner.plan import Verdict
from pricing.planner.quorum import SingleProcess
from pricing.planner.split import split_key
from pricing.records.record import Event
from tests.adapters.trainer_rank.support import CPU, tokens
from tests.adapters.trainer_rank.waves import (
    MIB,
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
from tests.making import a_reading, learned

SMALL: dict[str, Any] = {"prompt": 24, "rollouts": 2, "completion": 8}
ERROR = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 KiB.")


class Narrow(SingleProcess):
    """No wave is wider than `width`."""

    def __init__(self, width: int) -> None:
        self.width = width

    def min(self, value: int) -> int:
        return min(value, self.width)


def failing_once_at(call: int) -> Any:
    """A loss that runs out of memory at one of its calls."""
    seen = []

    def loss(wave: MicroBatch) -> torch.Tensor:
        seen.append(wave)
        if len(seen) == call:
            raise ERROR
        return loss_of(wave.outputs)

    return loss


# Waves that ran out of memory ----------------------------------------------------------------------------------------


def test_a_wave_that_ran_ends_the_row_of_those_that_did_not(meter: PeakMeter) -> None:
    """Also where the next wave is the first of its kind; and the loss is handed back as it was."""
    rank = rank_on(meter, quorum=Narrow(1))
    result = rank.train_batch(groups(4, **SMALL), failing_once_at(2))
    assert len(result.out_of_memory) == 1
    assert [wave.stats.after_out_of_memory for wave in result.waves] == [0, 1, 0, 0]
    for wave in result.waves:
        assert wave.loss is not None and not wave.loss.requires_grad and wave.loss.item() < 0


class AnotherRankFails(Narrow):
    """Another rank runs out of memory in each of the first `times` forwards."""

    def __init__(self, *, times: int, width: int = 8) -> None:
        super().__init__(width)
        self.left = times

    def max(self, value: int) -> int:
        if value == 0 and self.left:
            self.left -= 1
            return 1
        return value


def test_in_the_caller_s_own_loop_a_wave_that_ran_ends_the_row_too(meter: PeakMeter) -> None:
    rank = rank_on(meter, quorum=AnotherRankFails(times=1, width=1))
    waves = train(rank, groups(3, **SMALL))
    assert [wave.stats.after_out_of_memory for wave in waves] == [1, 0, 0]


def test_it_is_tried_as_often_as_is_said_and_no_more(meter: PeakMeter, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loop.OUT_OF_MEMORY_TRIES == 64
    monkeypatch.setattr(loop, "OUT_OF_MEMORY_TRIES", 3)
    items = groups(1, **SMALL)
    result = rank_on(meter, quorum=AnotherRankFails(times=3)).train_batch(items, _loss)
    assert [wave.stats.after_out_of_memory for wave in result.waves] == [3]
    assert not result.out_of_memory, "none of them were this rank's"
    rank = rank_on(meter, quorum=AnotherRankFails(times=4))
    words = "in the forward of another rank of an admitted wave.*the 4th wave in a row"
    with pytest.raises(AdmittedOutOfMemoryError, match=words):
        rank.train_batch(items, _loss)


def _loss(wave: MicroBatch) -> torch.Tensor:
    return loss_of(wave.outputs)


# Admission -----------------------------------------------------------------------------------------------------------


class Dips(SimulatedMemory):
    """A device that has `fewer_bytes` less at its `at`-th sample, and only then."""

    def __init__(self, capacity_bytes: int, counter: Any, *, fewer_bytes: int, at: int) -> None:
        super().__init__(counter, capacity_bytes)
        self.fewer_bytes, self.at = fewer_bytes, at
        self.seen: list[MemorySample] = []

    def sample(self) -> MemorySample:
        whole_bytes = self.capacity_bytes
        self.capacity_bytes -= self.fewer_bytes if len(self.seen) + 1 == self.at else 0
        self.seen.append(super().sample())
        self.capacity_bytes = whole_bytes
        return self.seen[-1]


def test_what_was_there_at_admission_is_planned_with_next_less_the_gradients_to_come(meter: PeakMeter) -> None:
    model = decoder(CPU)
    rank = calibrated(meter, model=model)
    items = groups(6)
    model.zero_grad(set_to_none=True)
    gradient_bytes = sum(value.nbytes for value in model.parameters())
    roomy_bytes = rank.plan(items).required_bytes + gradient_bytes
    given_bytes(rank, roomy_bytes)
    capacity_bytes = rank.sampler.sample().total_bytes
    memory = Dips(capacity_bytes, meter.counter, fewer_bytes=roomy_bytes // 4, at=2)
    rank.sampler = BudgetSampler(memory)
    wave = next(iter(rank.forward_micro_batches(items)))
    assert len(memory.seen) >= 4, "planned, refused, planned anew, admitted"
    assert wave.stats.budget.held_back_bytes == gradient_bytes
    assert wave.stats.plan.available_bytes == memory.seen[1].budget.available_bytes - gradient_bytes
    assert len(wave.items) < 6


def test_a_probe_that_fits_to_the_byte_is_admitted_with_its_price(meter: PeakMeter) -> None:
    """Where its price is above what a cold start needs, the price is what has to be there, headroom or none."""
    rank = rank_on(meter)
    train(rank, [Request(tokens=tokens(20), targets=np.roll(tokens(20), -1))])
    item = [[Request(tokens=tokens(400), targets=np.roll(tokens(400), -1))]]
    plan = rank.plan(item)
    assert plan.verdict is Verdict.PROBE and plan.probe is not None and plan.headroom_bytes > 0
    for headroom_bytes in (1, 0):
        tight = replace(plan, available_bytes=plan.required_bytes + headroom_bytes)
        assert rank._demand_bytes(tight) == plan.required_bytes
    cold_bytes = rank._demand_bytes(replace(plan, available_bytes=plan.required_bytes - 1))
    assert cold_bytes < plan.required_bytes


# Whose memory it is --------------------------------------------------------------------------------------------------


def test_growth_is_what_nobody_else_accounts_for(meter: PeakMeter) -> None:
    """Outputs and gradients that were there before the run began, or went since, are none of it."""
    model = decoder(CPU)
    first = rank_on(meter, model=model)
    kept = first.dp_rank_forward([group(0, grads=False)])
    train(first, [group(0)])
    rank = rank_on(meter, model=model)
    output_bytes = sum(tensor.nbytes for output in kept for tensor in output.tensors())
    gradient_bytes = sum(value.nbytes for value in model.parameters())
    rank._note_beginning()
    before = rank.holdings()
    assert (before.outputs_bytes, before.gradient_bytes, before.grown_bytes) == (output_bytes, gradient_bytes, 0)
    assert (before.unmade_gradient_bytes, output_bytes > 0) == (0, True)
    model.zero_grad(set_to_none=True)
    del kept
    assert str(rank.holdings()) == "", "all of it went, and nothing came"
    state = torch.zeros(MIB, dtype=torch.uint8)
    grown = rank.holdings()
    assert (grown.outputs_bytes, grown.gradient_bytes, grown.grown_bytes) == (0, 0, state.nbytes)


def test_gradients_to_come_are_named_where_there_is_work_that_makes_them(meter: PeakMeter) -> None:
    model = decoder(CPU)
    rank = rank_on(meter, model=model)
    assert rank.holdings().unmade_gradient_bytes == 0, "without work nothing is to come"
    rank.train_batch(groups(1, **SMALL), _loss)
    model.zero_grad(set_to_none=True)
    given_bytes(rank, 1)
    with pytest.raises(WaveRefusedError) as caught:
        rank.train_batch(groups(1, **SMALL), _loss)
    assert caught.value.holdings is not None
    assert caught.value.holdings.unmade_gradient_bytes == sum(value.nbytes for value in model.parameters())


# What is kept --------------------------------------------------------------------------------------------------------


def test_only_a_split_is_noted_as_one(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    rank.dp_rank_forward([group(0, grads=False)])
    assert rank.profiles.splits == {}
    item = separate(12)
    given_bytes(rank, rank.plan([item]).required_bytes * 4 // 5)
    train(rank, [item])
    assert len(rank.profiles.splits) == 1


def test_one_save_that_fails_is_said(meter: PeakMeter, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    profiles = tmp_path / "profiles.json"
    profiles.mkdir()  # no file can be written in its place
    rank = rank_on(meter, profiles=profiles)
    rank._save()
    assert rank.save_failures <= 1
    rank.train_batch(groups(1, **SMALL), _loss)
    assert len([line for line in caplog.messages if "could not be saved" in line]) == 1


def test_gradients_of_a_hundredth_of_the_device_are_copied_before_each_wave_and_of_more_are_not(
    meter: PeakMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = decoder(CPU)
    gradient_bytes = sum(value.nbytes for value in model.parameters())
    given: list[int] = []
    kept = gradients.GradientKeeper.__init__

    def noted(keeper: gradients.GradientKeeper, parameters: Any, *, copy_at_most_bytes: int = 0) -> None:
        given.append(copy_at_most_bytes)
        kept(keeper, parameters, copy_at_most_bytes=copy_at_most_bytes)

    monkeypatch.setattr(gradients.GradientKeeper, "__init__", noted)
    rank_on(meter, model=model, memory_bytes=100 * gradient_bytes).train_batch(groups(1, **SMALL), _loss)
    assert given == [gradient_bytes]


# The rank and its rows -----------------------------------------------------------------------------------------------


def test_a_rank_s_meter_is_the_one_it_is_given_and_the_device_s_own_without(meter: PeakMeter) -> None:
    assert rank_on(meter).meter is meter
    model = decoder(CPU)
    meter.close()
    rank = TrainerRank(model, device=CPU, memory_bytes=MIB)
    try:
        assert rank.meter is meter_for(CPU) and rank.meter is not meter
    finally:
        rank.meter.close()


def test_floors_count_unless_they_are_turned_off(meter: PeakMeter) -> None:
    item = group(0)
    assert rank_on(meter).plan([item]).wave.floor_bytes == rank_on(meter, floors=True).plan([item]).wave.floor_bytes > 0
    train(rank := rank_on(meter), [item])
    train(without := rank_on(meter, floors=False), [item])
    assert rank.plan([item]).wave.floor_bytes > without.plan([item]).wave.floor_bytes == 0


def test_prompts_are_roots_and_a_forward_of_nothing_is_of_one_request() -> None:
    rows = branched_rows([(tokens(5), [tokens(2), tokens(3)]), (tokens(4), []), (tokens(6), [tokens(1)])], CPU)
    assert rows.segment_parents.tolist() == [-1, 0, 0, -1, -1, 4]
    assert len(no_rows(CPU).request_positions) == 1 and len(no_rows(CPU, 3).request_positions) == 3


# --- what nobody asked about -----------------------------------------------------------------------------------------


def test_a_wave_that_runs_out_of_memory_in_its_forward_has_a_record(meter: PeakMeter) -> None:
    model = decoder(CPU)
    rank = rank_on(meter, model=model)
    rank.train_batch(groups(1, **SMALL), _loss)
    seen: list[Any] = []

    def fails_once(*_: object) -> None:
        seen.append(rank.recorder.last_record)
        if len(seen) == 1:
            raise ERROR

    handle = model.layers[1].register_forward_hook(fails_once)
    result = rank.train_batch(groups(1, **SMALL), _loss)
    handle.remove()
    assert [failure.phase for failure in result.out_of_memory] == ["forward"]
    before, failed = seen[:2]
    assert before.event is Event.OBSERVED and failed.event is Event.OUT_OF_MEMORY
    assert failed.index == before.index + 1


def test_an_error_in_a_wave_without_rows_is_the_caller_s_and_running_out_there_is_no_wave_s(meter: PeakMeter) -> None:
    nothing = [[Request(tokens=[], targets=[])]]
    rank = rank_on(meter)
    with pytest.raises(KeyError, match="own"):
        rank.train_batch(nothing, lambda wave: raises(KeyError("own")))
    assert rank.train_batch(nothing, _loss).out_of_memory == ()
    result = rank.train_batch(nothing, failing_once_at(1))
    assert len(result.out_of_memory) == 1 and not rank.profiles


def raises(error: Exception) -> torch.Tensor:
    raise error


def test_a_split_that_ran_out_of_memory_will_cost_a_byte_more_than_there_was(meter: PeakMeter) -> None:
    rank = calibrated(meter)
    item = separate(12)
    given_bytes(rank, rank.plan([item]).required_bytes * 4 // 5)
    seen = []

    def fails_once(wave: MicroBatch) -> torch.Tensor:
        seen.append((wave.stats.plan, dict(rank.profiles.splits)))
        if len(seen) == 1:
            raise ERROR
        return _loss(wave)

    with suppress(WaveRefusedError):
        rank.train_batch([item], fails_once)
    first, known = seen[0]
    key = split_key(first.signature, first.children)
    assert first.verdict is Verdict.SPLIT and key not in known
    assert rank.profiles.splits[key] == first.available_bytes + 1


def test_each_save_that_fails_is_counted_once(meter: PeakMeter, tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.json"
    rank = rank_on(meter, profiles=profiles)
    rank.train_batch(groups(1, **SMALL), _loss)
    profiles.unlink()
    profiles.mkdir()
    for count in (1, 2):
        rank.profiles.save()
        assert rank.save_failures == rank.profiles.failures == count


def test_a_save_that_fails_in_a_way_nobody_foresaw_is_said_once_and_counted(
    meter: PeakMeter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = rank_on(meter)

    def fails() -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(rank.profiles, "save", fails)
    for count in (1, 2):
        rank._save()
        assert rank.save_failures == count
    assert len([line for line in caplog.messages if "unforeseen" in line]) == 1


def test_a_cpu_has_no_cold_transient(meter: PeakMeter) -> None:
    items = groups(1, **SMALL)
    rank = TrainerRank(decoder(CPU), meter=meter, memory_bytes=64 * MIB, forecast=False)
    assert rank.plan(items).required_bytes == rank_on(meter).plan(items).required_bytes


def test_a_floor_that_a_reading_contradicts_is_named_once(meter: PeakMeter, caplog: pytest.LogCaptureFixture) -> None:
    rank, items = rank_on(meter), groups(2, **SMALL)
    plan = rank.plan(items[:1])
    assert plan.wave.floor_bytes > 0 and not plan.floor_is_wrong
    rank.profiles.put(plan.signature, learned([a_reading(plan.wave.packed_rows, 1)] * 3))
    given_bytes(rank, 1 << 28)
    waves = train(rank, items[:1]) + train(rank, items[:1])
    assert waves[0].stats.plan.floor_is_wrong
    assert len([line for line in caplog.messages if loop.FLOOR_IS_WRONG in line]) == 1


def test_only_a_wave_that_broke_off_leaves_a_backward_to_clear(meter: PeakMeter) -> None:
    rank = rank_on(meter)
    train(rank, groups(1, **SMALL))
    assert not rank._backward_queue.is_suspect
    with pytest.raises(KeyError):
        for _ in rank.forward_micro_batches(groups(1, **SMALL)):
            raise KeyError
    assert rank._backward_queue.is_suspect
    train(rank, groups(1, **SMALL))
    assert not rank._backward_queue.is_suspect
