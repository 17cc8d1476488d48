"""The meter and the budget on a real device: the caching allocator's own counter, driver bytes and other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from adapters.torch_memory import (
    AcceleratorCounter,
    Flaw,
    PeakMeter,
    Refusal,
    Role,
    environment_facts,
    meter_for,
    sampler_for,
)
from adapters.torch_memory.counter import WITNESSES
from pricing import GIB, Profile, ReadingKind, allocated_bytes, observe, required_bytes
from tests.adapters.torch_memory.support import (
    FLOAT_BYTES,
    SPOILT,
    Body,
    Net,
    as_whole_wave,
    learn,
    run_wave,
    spoilt_wave,
    wave_of,
)

pytestmark = pytest.mark.cuda

ROWS = 16_384
HIDDEN = 2_048
HIDDEN_BYTES = ROWS * HIDDEN * FLOAT_BYTES  # one activation: 128 MiB
BLOCK_BYTES = 2 << 20  # the allocator may leave this much of a block unsplit
MIB = 1 << 20


@pytest.fixture
def meter(device: torch.device) -> Iterator[PeakMeter]:
    """The device's meter, after the one-time costs (library workspaces) of the net's operations were paid."""
    net = _net(device)
    net(net.inputs(ROWS)).sum().backward()
    del net
    torch.cuda.empty_cache()
    meter = PeakMeter(AcceleratorCounter(device))
    try:
        yield meter
    finally:
        for interval in tuple(meter._intervals):
            interval.discard()
        meter.close()


def _net(device: torch.device) -> Net:
    return Net(hidden=HIDDEN, device=device)


def _reset() -> None:
    torch.cuda.reset_peak_memory_stats()


# Good waves ----------------------------------------------------------------------------------------------------------


def test_a_whole_wave_reads_the_peak_worked_out_by_hand(meter: PeakMeter, device: torch.device) -> None:
    """As on the CPU: two activations at the forward's peak, three at backward's, one saved; plus block rounding."""
    net = _net(device)
    run_wave(meter, net, ROWS)
    after_forward, after_wave = run_wave(meter, net, ROWS)
    assert 0 <= after_forward.peak_delta_bytes - 2 * HIDDEN_BYTES <= 4 * BLOCK_BYTES
    assert after_forward.retained_bytes is not None
    assert 0 <= after_forward.retained_bytes - HIDDEN_BYTES <= 4 * BLOCK_BYTES
    assert 0 <= after_wave.peak_delta_bytes - 3 * HIDDEN_BYTES <= 6 * BLOCK_BYTES
    assert after_wave.flaws == ()
    assert after_wave.reading is not None
    assert after_wave.reading.kind is ReadingKind.WHOLE_WAVE


def test_a_forward_without_gradients_is_complete(meter: PeakMeter, device: torch.device) -> None:
    net = _net(device)
    inputs = net.inputs(ROWS)
    interval = meter.open(wave_of(ROWS), grads=False, role=Role.FORWARD)
    with torch.no_grad():
        seen = interval.forward_done(net(inputs))
    assert seen.reading is not None
    assert seen.reading.is_complete


def test_every_witness_is_kept_by_this_device(meter: PeakMeter, device: torch.device) -> None:
    """A misspelt statistic would read 0 for ever and witness nothing."""
    small, large = torch.empty(100, device=device), torch.empty(4 * MIB, device=device)
    stats = torch.accelerator.memory.memory_stats(device)
    assert all(stats[key] > 0 for key in WITNESSES)
    assert all(peak > 0 for peak in meter.counter.peaks())
    del small, large


# Spoilt waves --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waves_before", [1, 2], ids=["after the seed", "with a warm fit"])
@pytest.mark.parametrize(("caller", "flaw"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_wave_never_lowers_a_price(
    meter: PeakMeter, device: torch.device, caller: Callable[[Body], None], flaw: Flaw, waves_before: int
) -> None:
    profile = Profile()
    for _ in range(waves_before):
        profile = learn(profile, *run_wave(meter, _net(device), ROWS))
    for claimed_rows in (1, ROWS, 100 * ROWS):
        after_forward, after_wave = spoilt_wave(
            meter, _net(device), caller, rows=ROWS, claimed_rows=claimed_rows, reset_peak=_reset
        )
        assert flaw in after_wave.flaws
        taught = learn(profile, after_forward, after_wave)
        assert taught.complete_readings == profile.complete_readings
        for rows in (1, ROWS // 2, ROWS, 8 * ROWS):
            assert required_bytes(wave_of(rows), taught) >= required_bytes(wave_of(rows), profile)


def test_believing_a_foreign_reset_would_lower_a_price(meter: PeakMeter, device: torch.device) -> None:
    """The control on this device: the figures that the spoilt wave leaves do lower a price once they are believed.

    The price of what is allocated: the wave did not start clean, so it says nothing of footprints.
    """
    profile = learn(Profile(), *run_wave(meter, _net(device), ROWS))
    caller, _ = SPOILT["foreign reset"]
    _, after_wave = spoilt_wave(meter, _net(device), caller, rows=ROWS, claimed_rows=100 * ROWS, reset_peak=_reset)
    believed = observe(profile, as_whole_wave(after_wave))
    wave = wave_of(100 * ROWS)
    assert allocated_bytes(wave, believed) < allocated_bytes(wave, profile)


def test_a_foreign_reset_above_the_forward_peak_is_seen(meter: PeakMeter, device: torch.device) -> None:
    """Reset after backward, then rise above the forward's peak but not above backward's: the look at backward's end
    knows better, and keeps the higher figure."""
    net = _net(device)
    run_wave(meter, net, ROWS)
    interval = meter.open(wave_of(ROWS), grads=True)
    outputs = net(net.inputs(ROWS))
    forward = interval.forward_done(outputs)
    outputs.sum().backward()
    _reset()
    rise = torch.empty(forward.peak_delta_bytes, dtype=torch.uint8, device=device)
    del rise
    seen = interval.close()
    assert seen.flaws == (Flaw.FOREIGN_RESET,)
    assert seen.peak_delta_bytes >= 3 * HIDDEN_BYTES
    assert meter.foreign_resets == 1


def test_an_interrupted_body_keeps_the_forward(meter: PeakMeter, device: torch.device) -> None:
    net = _net(device)
    interval = meter.open(wave_of(ROWS), grads=True)
    outputs = net(net.inputs(ROWS))
    forward = interval.forward_done(outputs)
    seen = interval.close(completed=False)
    assert Flaw.BROKE_OFF in seen.flaws
    assert forward.reading is not None
    assert learn(Profile(), forward, seen).complete_readings == 0


def test_out_of_memory_teaches_nothing_and_the_meter_goes_on(meter: PeakMeter, device: torch.device) -> None:
    interval = meter.open(wave_of(ROWS), grads=True)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    interval.discard()
    _, seen = run_wave(meter, _net(device), ROWS)
    assert seen.flaws == ()


def test_the_optimizer_step_inside_a_wave_ends_its_measured_part(meter: PeakMeter, device: torch.device) -> None:
    """The optimizer's state and a later, higher peak stay out; the reading is whole."""
    net = _net(device)
    optimizer = torch.optim.AdamW(net.parameters, lr=0.0)
    run_wave(meter, net, ROWS)
    _, plain = run_wave(meter, net, ROWS)
    inputs = net.inputs(ROWS)
    interval = meter.open(wave_of(ROWS, output_bytes=ROWS * FLOAT_BYTES), grads=True)
    outputs = net(inputs)
    interval.forward_done(outputs)
    outputs.sum().backward()
    del outputs
    optimizer.step()
    later = torch.empty(8 * HIDDEN_BYTES, dtype=torch.uint8, device=device)
    _reset()
    del later
    seen = interval.close()
    assert interval.is_sealed
    assert seen.flaws == ()
    assert abs(seen.peak_delta_bytes - plain.peak_delta_bytes) <= 4 * BLOCK_BYTES


def test_an_outer_peak_is_composed_of_its_stretches(meter: PeakMeter, device: torch.device) -> None:
    def touch(size_mib: int) -> None:
        torch.empty(size_mib * MIB, dtype=torch.uint8, device=device)

    for before, inside, after in ((300, 200, 100), (100, 300, 200), (100, 200, 300)):
        outer = meter.open(wave_of(1), grads=False)
        touch(before)
        inner = meter.open(wave_of(1), grads=False)
        touch(inside)
        inner.forward_done([])
        inner_seen = inner.close()
        touch(after)
        outer.forward_done([])
        outer_seen = outer.close()
        assert 0 <= inner_seen.peak_delta_bytes - inside * MIB <= BLOCK_BYTES
        assert 0 <= outer_seen.peak_delta_bytes - 300 * MIB <= BLOCK_BYTES


def test_a_captured_stream_is_refused_and_left_alone(meter: PeakMeter, device: torch.device) -> None:
    """Synchronizing inside a capture would break it: the capture must survive the meter."""
    static = torch.ones(1_024, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        interval = meter.open(wave_of(1), grads=False)
        doubled = static * 2
        forward = interval.forward_done(doubled)
        seen = interval.close()
    graph.replay()
    torch.cuda.synchronize()
    assert doubled.sum().item() == 2 * 1_024
    for refused in (forward, seen):
        assert (refused.reading, refused.refusal) == (None, Refusal.STREAM_CAPTURE)


def test_meter_for_finds_the_device(device: torch.device) -> None:
    with meter_for("cuda") as meter:
        assert meter.counter.device == device
        assert meter_for(device) is meter
    facts = environment_facts(device)
    assert facts["allocator"] == "native"
    assert int(facts["total_bytes"]) > GIB


# Budget --------------------------------------------------------------------------------------------------------------


def test_a_sample_tells_free_from_cached(device: torch.device) -> None:
    """By this process's own figures; the driver's free memory moves with other processes on the device too."""
    torch.cuda.empty_cache()
    sampler = sampler_for(device)
    before = sampler.sample()
    held = torch.empty(4 * GIB, dtype=torch.uint8, device=device)
    during = sampler.sample()
    assert 0 <= during.reserved_bytes - before.reserved_bytes - 4 * GIB <= 64 * MIB
    assert during.reusable_cache_bytes - before.reusable_cache_bytes <= 64 * MIB
    del held
    cached = sampler.sample()
    assert cached.reserved_bytes == during.reserved_bytes, "cached is not free"
    assert cached.reusable_cache_bytes - before.reusable_cache_bytes >= 4 * GIB
    admission = sampler.admit(cached.budget.physical_bytes + GIB)
    assert admission.released_cache
    assert cached.reserved_bytes - admission.samples[-1].reserved_bytes >= 4 * GIB


def test_a_device_without_an_index_is_sampled(device: torch.device) -> None:
    assert sampler_for(device.type).sample().total_bytes == sampler_for(device).sample().total_bytes


def test_pieces_of_a_split_segment_stay_in_the_budget_and_do_not_come_back(device: torch.device) -> None:
    """One block pins a large segment. Its idle rest counts for the budget, as a footprint is read above what is in use,
    and a release does not give it back.

    The pin is larger than any idle piece that earlier tests may have left, so it is cut from the segment made here.
    """
    torch.cuda.empty_cache()
    sampler = sampler_for(device)
    whole = torch.empty(2 * GIB, dtype=torch.uint8, device=device)
    del whole
    before = sampler.sample()
    assert before.inactive_split_bytes < 512 * MIB
    pin = torch.empty(512 * MIB, dtype=torch.uint8, device=device)
    after = sampler.sample()
    assert after.reserved_bytes == before.reserved_bytes
    assert after.inactive_split_bytes - before.inactive_split_bytes >= 2 * GIB - 513 * MIB
    assert 512 * MIB <= before.reusable_cache_bytes - after.reusable_cache_bytes <= 514 * MIB
    released = sampler.release()
    assert released.idle_bytes >= 2 * GIB - 513 * MIB
    assert released.reusable_cache_bytes >= 2 * GIB - 513 * MIB
    del pin
    torch.cuda.empty_cache()


NEIGHBOUR = """
import sys, torch
held = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.readline()
"""


def test_another_process_is_seen_by_the_budget_and_not_by_the_rate(meter: PeakMeter, device: torch.device) -> None:
    net = _net(device)
    run_wave(meter, net, ROWS)
    _, alone = run_wave(meter, net, ROWS)
    sampler = sampler_for(device)
    with subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as neighbour:
        assert neighbour.stdout is not None and neighbour.stdin is not None
        assert neighbour.stdout.readline() == "held\n"
        beside_sample = sampler.sample()
        _, beside = run_wave(meter, net, ROWS)
        neighbour.stdin.write("\n")
    # Others may take and give while we look: what the neighbour holds can be free to nobody.
    assert beside_sample.free_bytes <= beside_sample.total_bytes - beside_sample.reserved_bytes - 3 * GIB
    assert abs(beside.peak_delta_bytes - alone.peak_delta_bytes) <= 4 * BLOCK_BYTES
    assert beside.flaws == ()


# Other allocators, each in a process of its own ----------------------------------------------------------------------

ONE_WAVE = """
import torch
from adapters.torch_memory import meter_for
from tests.adapters.torch_memory.support import Net, run_wave
net = Net(hidden=2048, device="cuda")
net(net.inputs(16384)).sum().backward()
with meter_for("cuda") as meter:
    run_wave(meter, net, 16384)
    forward, whole = run_wave(meter, net, 16384)
kind = whole.reading.kind if whole.reading else None
print(kind, whole.refusal, whole.peak_delta_bytes, meter.resets)
"""


def _one_wave_under(settings: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", ONE_WAVE],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=120,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, Refusal.CUDA_MALLOC_ASYNC),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, Refusal.UNCACHED_ALLOCATOR),
    ],
)
def test_untrusted_allocators_are_refused(settings: dict[str, str], refusal: Refusal) -> None:
    assert _one_wave_under(settings) == ["None", refusal, "0", "0"]


def test_expandable_segments_are_trusted() -> None:
    """The same wave within block rounding of the hand-computed peak."""
    kind, refusal, peak_delta_bytes, _ = _one_wave_under({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    assert (kind, refusal) == ("whole_wave", "None")
    assert 0 <= int(peak_delta_bytes) - 3 * HIDDEN_BYTES <= 6 * BLOCK_BYTES
