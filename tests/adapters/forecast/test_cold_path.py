"""The cold path through a real rank: which first waves run, which are tried, which are refused; on record, to the byte.

`tests/quality/test_wrong_cold_paths.py` breaks it on purpose and runs these tests again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adapters.forecast.forecaster import Forecaster
from adapters.forecast.trace import sum_of_outputs
from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import MicroBatch, OutOfMemoryRefusedError, Request, TrainerRank, WaveRefusedError
from benchmarks.h200.survival_ranks import Scarce
from pricing.planner.rules import Verdict
from pricing.records.record import DecisionRecord, Event
from pricing.records.record_file import read_record
from pricing.records.recorder import Recorder, Triggers
from pricing.records.replay import replay
from pricing.records.spool import record_paths
from tests.adapters.forecast.observed import CPU
from tests.adapters.trainer_rank.support import tiny_decoder, tokens

MIB = 1 << 20
ROOMY_BYTES = 256 * MIB
SMALL_BYTES = 4 * MIB
"""A long item's floor fits, a third of its forecast does."""
OVERSTATED_BYTES = 64 * MIB


def request(rows: int, seed: int = 0) -> Request:
    return Request(tokens=tokens(rows, seed), targets=tokens(rows, seed + 1))


SHORT = [[request(200, seed)] for seed in (0, 10, 20)]
LONG = [[request(2_000, 30)]]


def loss_of(wave: MicroBatch) -> Tensor:
    return sum_of_outputs(wave.outputs)


def overstated(outputs: Sequence[Any]) -> Tensor:
    """The loss of a forecast that errs: the waves that run need none of this."""
    return sum_of_outputs(outputs) + torch.zeros(OVERSTATED_BYTES // 4).sum()


@cache
def forecaster(errs: bool) -> Forecaster:
    """One for all ranks of this file: a trace takes seconds, and all of them have a model of these shapes."""
    return Forecaster(tiny_decoder(), CPU, loss=overstated if errs else sum_of_outputs)


def rank_of(meter: PeakMeter, folder: Path, memory_bytes: int, *, errs: bool = False) -> TrainerRank:
    rank = TrainerRank(
        tiny_decoder(),
        meter=meter,
        memory_bytes=meter.counter.allocated() + memory_bytes,
        recorder=Recorder(spool=folder, triggers=Triggers(everything=True)),
    )
    rank._forecaster = forecaster(errs)
    return rank


def records(folder: Path) -> Iterator[DecisionRecord]:
    """Every decision, each replayed to the byte."""
    for path in record_paths(folder):
        record = read_record(path).record
        again = replay(record)
        assert again.is_equal and again.steps > 0, again.differences
        yield record


def gradients(model: nn.Module) -> list[Tensor]:
    return [value.grad for value in model.parameters() if value.grad is not None]


def model_of(rank: TrainerRank) -> nn.Module:
    model = rank._model
    assert isinstance(model, nn.Module)
    return model


def train(rank: TrainerRank, items: Sequence[Any], owned: bool) -> list[Any]:
    """Stats of the waves that ran, by either entry point."""
    if owned:
        return [wave.stats for wave in rank.train_batch(items, loss_of).waves]
    stats = []
    for wave in rank.forward_micro_batches(items):
        loss_of(wave).backward()
        stats.append(wave.stats)
    return stats


@pytest.mark.parametrize("owned", [True, False], ids=["train_batch", "forward_micro_batches"])
def test_of_cold_waves_only_the_narrowest_runs(meter: PeakMeter, tmp_path: Path, owned: bool) -> None:
    """However much room there is for the next wider one by its forecast."""
    rank = rank_of(meter, tmp_path, ROOMY_BYTES)
    assert rank.plan(SHORT).width == 1
    ran = train(rank, SHORT, owned)
    assert [wave.plan.width for wave in ran] == [1, 2], "and a reading lets the others run together"
    first, second = records(tmp_path)
    assert (first.verdict, first.width, second.verdict) == (Verdict.COLD_START, 1, Verdict.RUN)
    assert first.wave.forecast_bytes > 0 and first.price.binding_term == "forecast"
    wider = [step for step in first.tried if step.width > 1]
    assert wider and all(not step.fits for step in wider), "it was asked about, and is no cold start"
    assert all(step.required_bytes <= step.available_bytes for step in wider), "the width alone kept it out"
    assert second.wave.forecast_bytes == 0


def test_a_forecast_that_does_not_fit_is_refused_where_nothing_survives(meter: PeakMeter, tmp_path: Path) -> None:
    rank = rank_of(meter, tmp_path, SMALL_BYTES)
    with pytest.raises(WaveRefusedError, match="binding term forecast") as refused:
        train(rank, LONG, owned=False)
    text = str(refused.value)
    assert "forecast, without its safety factor: " in text and "floor: " in text
    assert not gradients(model_of(rank)) and not rank.profiles, "nothing of it ran"
    (record,) = records(tmp_path)
    assert record.event is Event.REFUSED and record.verdict == Verdict.REFUSE
    assert record.probe is not None and not record.probe.survives and not record.probe.had_probe
    assert record.refusal is not None and record.wave.forecast_bytes > SMALL_BYTES


def test_where_the_run_survives_it_is_tried_and_a_reading_takes_over(meter: PeakMeter, tmp_path: Path) -> None:
    """A forecast may err: here the caller's loss was stated too heavy."""
    rank = rank_of(meter, tmp_path, OVERSTATED_BYTES // 2, errs=True)
    with pytest.raises(WaveRefusedError, match="binding term forecast"):
        train(rank, SHORT[:1], owned=False)
    result = rank.train_batch(SHORT, loss_of)
    assert [list(wave.items) for wave in result.waves] == [[0], [1, 2]] and not result.out_of_memory
    assert gradients(model_of(rank))
    _, tried, later = records(tmp_path)
    assert tried.verdict == Verdict.PROBE and tried.probe is not None and tried.probe.survives
    assert tried.price.binding_term == "forecast" and tried.required_bytes > tried.available_bytes
    assert later.verdict == Verdict.RUN and later.price.binding_term == "all_readings"


def test_a_try_that_runs_out_is_taken_back_refused_and_not_made_again(meter: PeakMeter, tmp_path: Path) -> None:
    rank = rank_of(meter, tmp_path, SMALL_BYTES)
    model = model_of(rank)
    for value in model.parameters():
        value.grad = torch.full_like(value, 2.0)
    ran: list[int] = []
    handle = model.layers[0].register_forward_pre_hook(lambda *_: ran.append(1))  # type: ignore[index,union-attr]
    with Scarce(meter, meter.counter.allocated() + SMALL_BYTES) as scarce:
        scarce.armed = True
        with pytest.raises(OutOfMemoryRefusedError, match="cannot run 2,000 packed rows") as refused:
            rank.train_batch(LONG, loss_of)
        assert scarce.raised == 1 and len(refused.value.failures) == 1
        tries = len(ran)
        with pytest.raises(WaveRefusedError):
            rank.train_batch(LONG, loss_of)
    handle.remove()
    assert tries > 0 and len(ran) == tries, "one try a signature"
    assert all(torch.equal(grad, torch.full_like(grad, 2.0)) for grad in gradients(model))
    tried, *refusals = records(tmp_path)
    assert (tried.event, tried.verdict) == (Event.OUT_OF_MEMORY, Verdict.PROBE)
    assert [record.verdict for record in refusals] == [Verdict.REFUSE] * 2
    assert all(record.probe is not None and record.probe.had_probe for record in refusals)


def test_where_what_is_certain_does_not_fit_nothing_is_tried(meter: PeakMeter, tmp_path: Path) -> None:
    """Outputs and floor are no forecast: a wave cannot need less."""
    rank = rank_of(meter, tmp_path, MIB // 2)
    with pytest.raises(WaveRefusedError, match="binding term forecast"):
        rank.train_batch(LONG, loss_of)
    (record,) = records(tmp_path)
    assert record.verdict == Verdict.REFUSE and record.probe is not None and record.probe.survives
