"""What lies on a boundary of the meter's own figures. Each was once off by one unseen."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adapters.torch_memory import PeakMeter, Refusal, StorageCounter
from adapters.torch_memory.budget import MemorySample, SimulatedMemory
from adapters.torch_memory.errors import BudgetSampleError
from adapters.torch_memory.gradients import GradientAccount
from adapters.torch_memory.measurement import Made, Measurement
from adapters.torch_memory.meter import STATE_SHARE
from adapters.torch_memory.testing import ContractCounter
from adapters.torch_memory.trust import allocator_refusal
from pricing import ReadingKind
from pricing.kernel.reading import out_of_memory_footprint_bytes
from tests.adapters.torch_memory.support import Net, wave_of

FIGURES = {"free_bytes": 4, "total_bytes": 10, "in_use_bytes": 3, "reserved_bytes": 5, "inactive_split_bytes": 1}


@pytest.mark.parametrize("change", [{name: 0} for name in FIGURES if name != "total_bytes"] + [{"free_bytes": 10}])
def test_a_device_may_have_nothing_of_a_thing_and_be_free_as_a_whole(change: dict[str, int]) -> None:
    MemorySample(**FIGURES | change)
    MemorySample(free_bytes=1, total_bytes=1, in_use_bytes=0, reserved_bytes=0, inactive_split_bytes=0)


@pytest.mark.parametrize("change", [{name: -1} for name in FIGURES] + [{"total_bytes": 0}, {"free_bytes": 11}])
def test_figures_that_no_device_has_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(BudgetSampleError):
        MemorySample(**FIGURES | change)


def measurement(*, peak_bytes: int | None = None, reserved_bytes: int | None = None, clean: bool = True) -> Measurement:
    made = Measurement(thread=threading.get_ident(), baseline_bytes=100, is_clean=clean)
    if peak_bytes is not None:
        made.bank(100 + peak_bytes)
    if reserved_bytes is not None:
        made.bank_reserved(100 + reserved_bytes)
    return made


def test_a_start_is_no_clean_one_unless_it_is_known_to_be() -> None:
    assert not Measurement(thread=0).is_clean


def test_a_footprint_is_the_higher_of_both_peaks_and_none_without_a_clean_start() -> None:
    assert measurement(peak_bytes=7, reserved_bytes=9).footprint_bytes == 9
    assert measurement(peak_bytes=9, reserved_bytes=7).footprint_bytes == 9
    assert measurement(peak_bytes=0, reserved_bytes=0).footprint_bytes == 0
    assert measurement(peak_bytes=0, reserved_bytes=-3).footprint_bytes == 0
    assert measurement(peak_bytes=7, reserved_bytes=9, clean=False).footprint_bytes is None
    assert measurement(peak_bytes=7).footprint_bytes is None


def test_an_observation_takes_nothing_off_what_left_nothing() -> None:
    seen = measurement(peak_bytes=7, reserved_bytes=9).observe(wave_of(3), ReadingKind.WHOLE_WAVE, grads=True)
    assert (seen.left_bytes, seen.peak_delta_bytes, seen.footprint_bytes) == (0, 7, 9)
    assert seen.reading is not None and seen.reading.peak_delta_bytes == 7


def test_a_peak_under_the_baseline_is_refused_and_said_as_it_is() -> None:
    seen = measurement(peak_bytes=-1).observe(wave_of(3), ReadingKind.WHOLE_WAVE, grads=True)
    assert (seen.reading, seen.refusal, seen.left_bytes) == (None, Refusal.PEAK_BELOW_BASELINE, 0)
    assert (seen.peak_delta_bytes, seen.footprint_bytes) == (-1, None)
    at_it = measurement(peak_bytes=0).observe(wave_of(3), ReadingKind.WHOLE_WAVE, grads=True)
    assert at_it.refusal is None


def test_a_wave_that_ran_out_of_memory_is_believed_as_far_as_its_counter_is() -> None:
    sizes = {"available_bytes": 16, "reserved_bytes": 40, "requested_bytes": 3}
    believed = measurement(peak_bytes=7).observe_out_of_memory(wave_of(3), grads=True, **sizes)
    assert believed.reading is not None
    assert believed.reading.peak_delta_bytes == 7
    assert believed.reading.footprint_bytes == 43
    assert believed.refusal is None and believed.left_bytes == 0
    for refused in (measurement(peak_bytes=-5), measurement(peak_bytes=7)):
        if refused.allocated.peak_bytes == 7:
            refused.refusal = Refusal.PEAK_BELOW_BASELINE
        refused.dropped_bytes = 11
        seen = refused.observe_out_of_memory(wave_of(3), grads=True, **sizes)
        assert seen.reading is not None
        assert seen.reading.peak_delta_bytes == 0
        assert seen.reading.footprint_bytes == out_of_memory_footprint_bytes(
            available_bytes=16, reserved_bytes=0, requested_bytes=3
        )


def test_a_wave_that_took_nothing_left_nothing() -> None:
    seen = measurement(peak_bytes=0).observe(wave_of(3), ReadingKind.WHOLE_WAVE, grads=True)
    assert (seen.left_bytes, seen.peak_delta_bytes) == (0, 0)
    made = measurement(peak_bytes=5)
    made.dropped_bytes = 4
    seen = made.observe(wave_of(3), ReadingKind.WHOLE_WAVE, grads=True)
    assert (seen.left_bytes, seen.freed_bytes, seen.peak_delta_bytes) == (0, 4, 9)


@pytest.mark.parametrize(
    ("was_clean", "releasable_bytes", "is_clean"), [(True, 0, True), (True, 1, False), (False, 0, False)]
)
def test_a_moved_baseline_is_clean_only_if_it_was_and_nothing_lies_idle(
    was_clean: bool, releasable_bytes: int, is_clean: bool
) -> None:
    moved = measurement(clean=was_clean)
    moved.move_baseline(8, releasable_bytes)
    assert (moved.baseline_bytes, moved.is_clean) == (108, is_clean)


@pytest.mark.parametrize(
    ("backend", "switch", "refusal"),
    [
        ("native", None, None),
        ("native", "0", None),
        ("native", "", None),
        ("native", "1", Refusal.UNCACHED_ALLOCATOR),
        ("cudaMallocAsync", None, Refusal.CUDA_MALLOC_ASYNC),
        ("pluggable", None, Refusal.PLUGGABLE_ALLOCATOR),
    ],
)
def test_an_allocator_is_refused_for_what_it_is(
    monkeypatch: pytest.MonkeyPatch, backend: str, switch: str | None, refusal: Refusal | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"):
        monkeypatch.delenv(name, raising=False)
    if switch is not None:
        monkeypatch.setenv("PYTORCH_NO_HIP_MEMORY_CACHING", switch)
    assert allocator_refusal(torch.device("cuda")) is refusal
    assert allocator_refusal(torch.device("cpu")) is None


# --- what stays after backward ---------------------------------------------------------------------------------------


def kept_beside(meter: PeakMeter, net: Net, stays_bytes: int) -> tuple[int, torch.Tensor]:
    """The peak of a wave's reading where, after backward, a MiB was taken for a moment and so much more stays than was
    live when backward had run; and what stays."""
    for parameter in net.parameters:
        parameter.grad = None
    parameters: Any = net.parameters
    inputs, account = net.inputs(5), GradientAccount(parameters)
    interval = meter.open(wave_of(5), grads=True, gradients=account)
    outputs = net(inputs)
    interval.forward_done(outputs)
    outputs.sum().backward()
    del outputs
    scratch = torch.zeros(1 << 20, dtype=torch.uint8)
    del scratch
    live_bytes = interval._measured.live_after_backward_bytes
    assert live_bytes is not None
    kept = torch.zeros(live_bytes + stays_bytes - meter.counter.allocated(), dtype=torch.uint8)
    seen = interval.close()
    assert seen.reading is not None
    return seen.reading.peak_delta_bytes, kept


def test_what_stays_after_backward_is_an_optimizer_s_in_the_first_wave_and_the_caller_s_in_the_next(
    meter: PeakMeter,
) -> None:
    """From an eighth of the gradients on."""
    net = Net()
    gradient_bytes = sum(parameter.nbytes for parameter in net.parameters)
    states_bytes = -(-gradient_bytes // STATE_SHARE)
    first, kept = kept_beside(meter, net, states_bytes)
    assert first < 1 << 20, "its scratch and its states are no cost of the wave"
    second, more = kept_beside(meter, net, states_bytes)
    assert second >= 1 << 20, "who keeps as much of every wave is no optimizer"
    little, least = kept_beside(meter, net, states_bytes - 1)
    assert little >= 1 << 20, "too little for states: nothing is cut"
    again, _ = kept_beside(meter, net, states_bytes)
    assert again < 1 << 20, "after a wave that kept little it may be an optimizer again"
    assert kept.nbytes and more.nbytes and least.nbytes


def test_a_simulated_device_holds_what_is_live_and_nothing_in_pieces(counter: StorageCounter) -> None:
    kept = torch.zeros(1_000, dtype=torch.uint8)
    live_bytes = counter.allocated()
    assert live_bytes >= kept.nbytes
    for capacity_bytes, free_bytes in ((5_000, 5_000 - live_bytes), (10, 0)):
        assert SimulatedMemory(counter, capacity_bytes).sample() == MemorySample(
            free_bytes=free_bytes,
            total_bytes=capacity_bytes,
            in_use_bytes=live_bytes,
            reserved_bytes=live_bytes,
            inactive_split_bytes=0,
        )


# --- readings with what gradients took -------------------------------------------------------------------------------


def watched(
    found_all: bool = False, found_some: bool = False, made_all: bool = True, **figures: int | None
) -> Measurement:
    made = measurement(**figures)  # type: ignore[arg-type]
    watch: Any = SimpleNamespace(found_all=found_all, found_some=found_some, made_all=made_all)
    made.gradients = watch
    return made


def seen_of(made: Measurement, kind: ReadingKind = ReadingKind.WHOLE_WAVE) -> Any:
    return made.observe(wave_of(3), kind, grads=True)


def test_a_reading_with_gradients_is_of_the_whole_peaks_and_what_died_inside() -> None:
    made = watched(peak_bytes=7, reserved_bytes=9)
    made.made.append(Made(2))
    made.allocated.rises[-1] = (1, 7)  # the peak came after what was made
    made.dropped_bytes = 3
    seen = seen_of(made)
    assert seen.reading.peak_delta_bytes == 7 - 2 + 3
    both = seen.reading_with_gradients
    assert (both.peak_delta_bytes, both.footprint_bytes, both.grads) == (7 + 3, 9 + 3, True)
    nothing = watched(peak_bytes=0, reserved_bytes=0)
    assert nothing.footprint_with_gradients_bytes == 0
    assert seen_of(nothing).reading_with_gradients.peak_delta_bytes == 0
    for spoilt in (watched(peak_bytes=7, reserved_bytes=9, clean=False), watched(peak_bytes=7)):
        assert spoilt.footprint_with_gradients_bytes is None


@pytest.mark.parametrize(
    ("found", "freed_bytes", "says_something"),
    [
        ({}, 0, True),
        ({"found_all": True}, 0, False),
        ({"found_some": True}, 0, True),
        ({"found_some": True}, 1, False),
        ({}, 1, True),
    ],
)
def test_gradients_that_were_there_and_died_inside_would_count_twice(
    found: dict[str, bool], freed_bytes: int, says_something: bool
) -> None:
    made = watched(**found, peak_bytes=7)
    made.dropped_bytes = freed_bytes
    assert (seen_of(made).reading_with_gradients is not None) is says_something


def test_a_wave_that_did_not_make_every_gradient_is_no_whole_one_of_gradients() -> None:
    for made_all, kind in ((True, ReadingKind.WHOLE_WAVE), (False, ReadingKind.INTERRUPTED)):
        seen = seen_of(watched(peak_bytes=7, made_all=made_all))
        assert (seen.reading.kind, seen.reading_with_gradients.kind) == (ReadingKind.WHOLE_WAVE, kind)
    after_forward = seen_of(watched(peak_bytes=7, made_all=False), ReadingKind.FORWARD_ONLY)
    assert after_forward.reading_with_gradients.kind is ReadingKind.FORWARD_ONLY


def test_what_rows_took_for_certain_is_what_was_seen_less_the_outputs_made_by_then() -> None:
    made = measurement(peak_bytes=50, reserved_bytes=60)
    made.outputs_follow(20, 5)
    assert (made.bare_bytes, made.bare_reserved_bytes, made.outputs_bytes) == (45, 55, 20)
    made.bank(100 + 70)
    made.outputs_follow(4, 9)  # no more of it is there than all of it
    assert (made.bare_bytes, made.bare_reserved_bytes, made.outputs_bytes) == (46, 55, 24)
    made.dropped_bytes = 3
    seen = seen_of(made)
    assert (seen.bare_bytes, seen.bare_footprint_bytes) == (46 + 3, 55 + 3)
    made.is_clean = False
    assert seen_of(made).bare_footprint_bytes is None


def test_what_is_not_believed_is_not_said() -> None:
    sizes = {"available_bytes": 16, "reserved_bytes": 400, "requested_bytes": 3, "together_bytes": 160}
    refused = measurement(peak_bytes=-5).observe_out_of_memory(wave_of(3), grads=True, **sizes)
    assert (refused.baseline_bytes, refused.peak_bytes, refused.left_bytes, refused.freed_bytes) == (0, 0, 0, 0)
    at_it = measurement(peak_bytes=0).observe_out_of_memory(wave_of(3), grads=True, **sizes)
    assert (at_it.baseline_bytes, at_it.peak_bytes) == (100, 100)
    assert at_it.reading is not None and at_it.reading.footprint_bytes == 403
    assert at_it.reading_with_gradients is not None
    assert at_it.reading_with_gradients.footprint_bytes == 403
    more = sizes | {"together_bytes": 1_600}
    seen = measurement(peak_bytes=0).observe_out_of_memory(wave_of(3), grads=True, **more)
    assert seen.reading_with_gradients is not None
    assert seen.reading_with_gradients.footprint_bytes == out_of_memory_footprint_bytes(
        available_bytes=1_600, reserved_bytes=400, requested_bytes=3
    )
    assert (
        measurement(peak_bytes=0).observe_out_of_memory(wave_of(3), grads=False, **sizes).reading_with_gradients is None
    )


def test_a_first_interval_resets_once_and_releases_nothing_where_nothing_lies_idle() -> None:
    counter = ContractCounter(live_bytes=1_000)
    with PeakMeter(counter) as meter:
        interval = meter.open(wave_of(3), grads=False, clean=True)
        assert (meter.resets, meter.releases, meter.foreign_resets) == (1, 0, 0)
        interval.discard()


def callers_wave(meter: PeakMeter, counter: ContractCounter, takes: int, lets_go: int) -> int:
    """A wave whose forward the caller runs: how much the reading adds for what earlier waves may have left."""
    interval = meter.open(wave_of(3), grads=False)
    interval.forward_left_to_caller([])
    counter.allocate(takes)
    counter.free(lets_go)
    seen = interval.close()
    assert seen.reading is not None
    return seen.freed_bytes


def test_what_a_caller_s_wave_left_is_added_to_the_next_to_the_byte_and_never_more_than_it_had() -> None:
    counter = ContractCounter(live_bytes=1_000)
    with PeakMeter(counter) as meter:
        assert callers_wave(meter, counter, 100, 60) == 0, "there was none before it"
        assert callers_wave(meter, counter, 10, 10) == 40
        assert callers_wave(meter, counter, 30, 0) == 10, "of the last one no more than its peak"
        assert callers_wave(meter, counter, 5, 205) == 200, "that much of the baseline went inside"
        assert callers_wave(meter, counter, 7, 7) == 0, "nothing is held of waves that let go of more than they took"
        assert callers_wave(meter, counter, 7, 7) == 0


def test_a_wave_that_runs_out_of_memory_was_promised_nothing_for_gradients_unless_it_is_said() -> None:
    counter = ContractCounter()
    with PeakMeter(counter) as meter:
        for said, together_bytes in (({}, 0), ({"together_bytes": 160}, 160)):
            interval = meter.open(wave_of(3), grads=True)
            seen = interval.out_of_memory(None, available_bytes=16, **said)
            assert seen.reading_with_gradients is not None
            assert seen.reading_with_gradients.footprint_bytes == out_of_memory_footprint_bytes(
                available_bytes=together_bytes, reserved_bytes=0, requested_bytes=0
            )


def test_a_wave_that_runs_out_of_memory_was_admitted_against_nothing_unless_it_is_said() -> None:
    counter = ContractCounter()
    with PeakMeter(counter) as meter:
        seen = meter.open(wave_of(3), grads=True).out_of_memory()
        assert seen.reading is not None
        assert seen.reading.footprint_bytes == out_of_memory_footprint_bytes(
            available_bytes=0, reserved_bytes=0, requested_bytes=0
        )
