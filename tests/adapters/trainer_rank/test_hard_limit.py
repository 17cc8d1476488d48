"""A stated hard limit (`memory_bytes`) while cold starts and probes run: what is held for them fits under it, they stay
under it, and a refusal says so. On a device that has far more than the limit, so that nothing else could stop them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from adapters.torch_memory import BudgetSampler, PeakMeter
from adapters.torch_memory.simulated_allocator import AllocatorCounter, AllocatorMemory, SimulatedAllocator
from adapters.trainer_rank import MicroBatch, Request, TrainerRank, WaveRefusedError
from adapters.wave_loop.memory import CappedMemory
from pricing import Profile, observe
from pricing.kernel.liveness import witnessed_bytes
from pricing.kernel.price import required_bytes
from pricing.planner.plan import Verdict
from tests.adapters.trainer_rank.support import VOCABULARY
from tests.adapters.trainer_rank.waves import MIB, decoder, loss_of, only_profile

DEVICE_BYTES = 2_048 * MIB
LAWS = ("packed", "warm", "frontier")


@pytest.fixture
def counter() -> AllocatorCounter:
    return AllocatorCounter(SimulatedAllocator(DEVICE_BYTES))


@pytest.fixture
def meter(counter: AllocatorCounter) -> Iterator[PeakMeter]:
    with PeakMeter(counter) as made:
        yield made


def rank_of(meter: PeakMeter, memory_bytes: int, law: str = "warm") -> TrainerRank:
    model = decoder(torch.device("cpu"))
    assert isinstance(meter.counter, AllocatorCounter)
    meter.counter.track(model.parameters())
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    return TrainerRank(
        model, meter=meter, sampler=limited(meter, memory_bytes), cold_transient_bytes=0, forecast=False, law=law
    )


def limited(meter: PeakMeter, memory_bytes: int) -> BudgetSampler:
    assert isinstance(meter.counter, AllocatorCounter)
    return BudgetSampler(CappedMemory(AllocatorMemory(meter.counter), memory_bytes))


def item(rows: int) -> list[Request]:
    row = np.random.default_rng(rows).integers(0, VOCABULARY, rows)
    return [Request(tokens=row, targets=np.roll(row, -1))]


def train(rank: TrainerRank, rows: int) -> MicroBatch:
    (wave,) = _waves(rank, rows)
    return wave


def _waves(rank: TrainerRank, rows: int) -> list[MicroBatch]:
    waves = []
    for wave in rank.forward_micro_batches([item(rows)]):
        loss_of(wave.outputs).backward()
        waves.append(wave)
    return waves


def assert_under(meter: PeakMeter, wave: MicroBatch, memory_bytes: int) -> None:
    """What was held for the wave fitted, and what the allocator took of the device stayed under the limit."""
    admission = wave.stats.admission
    assert admission.required_bytes <= admission.held_against_bytes <= memory_bytes
    assert meter.counter.reserved_peak() <= memory_bytes < DEVICE_BYTES // 4


def with_a_dear_reading(rank: TrainerRank, times: int) -> Profile:
    """As if a kernel had been tuned once, late in the run: one complete reading many times too high."""
    (signature,) = rank.profiles
    reading = train(rank, 200).stats.closing.reading  # type: ignore[union-attr]
    assert reading is not None
    dear = replace(
        reading, peak_delta_bytes=times * reading.peak_delta_bytes, footprint_bytes=times * reading.peak_delta_bytes
    )
    rank.profiles.put(signature, observe(rank.profiles[signature], dear))
    known: Profile = only_profile(rank)
    return known


@pytest.mark.parametrize("law", LAWS)
def test_a_cold_start_stays_under_the_limit(meter: PeakMeter, law: str) -> None:
    rank = rank_of(meter, 256 * MIB, law)
    wave = train(rank, 400)
    assert wave.stats.plan.verdict is Verdict.COLD_START
    assert_under(meter, wave, 256 * MIB)


@pytest.mark.parametrize("law", LAWS)
def test_a_cold_start_whose_floor_is_over_the_limit_is_refused_though_the_device_has_room(
    meter: PeakMeter, law: str
) -> None:
    rank = rank_of(meter, 24 * MIB, law)
    before = meter.counter.allocated()
    with pytest.raises(WaveRefusedError) as refused:
        train(rank, 40_000)
    assert meter.counter.allocated() == before and not rank.profiles
    plan = refused.value.plan
    assert plan.available_bytes < 24 * MIB < plan.price.floor_bytes < DEVICE_BYTES // 4
    text = str(refused.value)
    assert "binding term cold" in text and "of the floor, saved layer inputs" in text
    assert "that this process may still take under its limit" in text


@pytest.mark.parametrize("law", LAWS)
def test_a_probe_that_readings_earn_stays_under_the_limit(meter: PeakMeter, law: str) -> None:
    """The dear reading prices the wave far over the limit; what complete readings say of it fits: it runs, once, with
    that held against the limit. With a limit under what they say it is refused, and nothing of it runs."""
    rank = rank_of(meter, 512 * MIB, law)
    for _ in range(3):
        train(rank, 300)
    known = with_a_dear_reading(rank, 200)
    plan = rank.plan([item(600)])
    witnessed = witnessed_bytes(plan.wave, known, rank.law, rank.safety)
    assert witnessed is not None
    in_use_bytes = meter.counter.allocated()
    limit_bytes = in_use_bytes + witnessed + 4 * MIB
    assert limit_bytes < required_bytes(plan.wave, known, rank.law, rank.safety) < DEVICE_BYTES
    rank.sampler = limited(meter, limit_bytes)
    meter.counter.release_cache()
    wave = train(rank, 600)
    assert wave.stats.plan.verdict is Verdict.PROBE
    assert wave.stats.admission.required_bytes >= witnessed
    assert_under(meter, wave, limit_bytes)

    rank.sampler = limited(meter, meter.counter.allocated() + witnessed // 2)
    resets = meter.resets
    with pytest.raises(WaveRefusedError) as refused:
        train(rank, 600)
    assert meter.resets == resets  # no wave was opened
    assert "of it, but it is not probed: that does not fit either" in str(refused.value)
    assert "that this process may still take under its limit" in str(refused.value)


def test_a_probe_of_a_young_profile_stays_under_the_limit(meter: PeakMeter) -> None:
    """One tiny wave was seen; its rate prices the next over the limit. It runs as a cold start would, and where the
    floor does not fit it does not."""
    rank = rank_of(meter, 256 * MIB)
    train(rank, 8)
    priced = rank.plan([item(600)]).price.required_bytes
    rank.sampler = limited(meter, meter.counter.allocated() + priced * 3 // 4)
    meter.counter.release_cache()
    wave = train(rank, 600)
    assert wave.stats.plan.verdict is Verdict.PROBE
    assert wave.stats.plan.required_bytes > wave.stats.plan.available_bytes
    assert_under(meter, wave, meter.counter.allocated() + priced)
    rank = rank_of(meter, 256 * MIB)
    train(rank, 8)
    rank.sampler = limited(meter, meter.counter.allocated() + 100_000)
    with pytest.raises(WaveRefusedError):
        train(rank, 600)
