"""Footprints: what readings say of the driver's bytes, and what a wave that ran out of memory at least needed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adapters.torch_memory import PeakMeter, Refusal, Role
from adapters.torch_memory.testing import ContractCounter
from pricing import ReadingKind
from pricing.kernel.quantities import ceil_div
from tests.adapters.torch_memory.support import FLOAT_BYTES, Net, run_wave, wave_of


def test_without_a_cache_every_start_is_clean_and_the_footprint_is_the_peak(meter: PeakMeter) -> None:
    for look in run_wave(meter, Net(), 300):
        assert look.reading is not None
        assert look.reading.footprint_bytes == look.reading.peak_delta_bytes == look.footprint_bytes


def test_out_of_memory_ends_the_interval_and_says_more_than_was_available(meter: PeakMeter) -> None:
    interval = meter.open(wave_of(10), grads=True)
    held = torch.empty(1_000)
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of")
    look = interval.out_of_memory(error, available_bytes=4_000)
    assert not interval.is_open
    assert look.reading is not None and look.reading.kind is ReadingKind.OUT_OF_MEMORY
    assert look.reading.peak_delta_bytes == held.nbytes
    assert look.reading.footprint_bytes == held.nbytes + (2 << 20)
    assert not look.reading.is_complete


@given(allocated=st.integers(0, 1 << 40), available=st.integers(0, 1 << 40), requested_mib=st.integers(0, 1 << 20))
def test_out_of_memory_is_never_below_any_of_its_figures(allocated: int, available: int, requested_mib: int) -> None:
    counter = ContractCounter(live_bytes=77)
    with PeakMeter(counter) as meter:
        interval = meter.open(wave_of(3), grads=False, role=Role.FORWARD)
        counter.allocate(allocated)
        error = RuntimeError(f"CUDA out of memory. Tried to allocate {requested_mib}.00 MiB.")
        look = interval.out_of_memory(error, available_bytes=available)
    assert look.reading is not None and look.reading.footprint_bytes is not None
    assert look.reading.footprint_bytes == max(1, allocated + (requested_mib << 20), ceil_div(17 * available, 16))


def test_out_of_memory_of_an_unknown_size_still_raises_what_was_available(meter: PeakMeter) -> None:
    look = meter.open(wave_of(10), grads=True).out_of_memory(None, available_bytes=1_600)
    assert look.reading is not None and look.reading.footprint_bytes == 1_700


def test_out_of_memory_after_the_optimizers_step_is_not_the_waves(meter: PeakMeter) -> None:
    net = Net()
    interval = meter.open(wave_of(50, output_bytes=50 * FLOAT_BYTES), grads=True)
    outputs = net(net.inputs(50))
    interval.forward_done(outputs)
    outputs.sum().backward()
    torch.optim.SGD(net.parameters, lr=0.0).step()
    look = interval.out_of_memory(torch.OutOfMemoryError("CUDA out of memory."), available_bytes=1 << 40)
    assert look.reading is not None and look.reading.kind is ReadingKind.WHOLE_WAVE
    assert look.reading.footprint_bytes == look.reading.peak_delta_bytes


def test_outputs_that_are_alive_are_counted_once(meter: PeakMeter) -> None:
    net = Net()
    interval = meter.open(wave_of(50), grads=False, role=Role.FORWARD)
    with torch.no_grad():
        outputs = net(net.inputs(50))
    interval.forward_done([outputs, outputs.view(-1)])
    assert meter.live_output_bytes == outputs.nbytes
    del outputs
    assert meter.live_output_bytes == 0


@pytest.mark.parametrize("refused", [True, False])
def test_out_of_memory_is_learned_where_figures_are_refused(refused: bool) -> None:
    counter = ContractCounter()
    with PeakMeter(counter) as meter:
        counter.refused = Refusal.PLUGGABLE_ALLOCATOR if refused else None
        look = meter.open(wave_of(3), grads=True).out_of_memory(None, available_bytes=32)
    assert look.reading is not None and look.reading.footprint_bytes == 34
