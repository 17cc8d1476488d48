"""The meter on true CPU readings: what a good wave gives, and that a spoilt one never lowers a price."""

from __future__ import annotations

import doctest
import threading
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import adapters.torch_memory
from adapters.torch_memory import (
    Flaw,
    MeterMisuseError,
    Observation,
    OwnershipError,
    PeakMeter,
    Refusal,
    Role,
    StorageCounter,
    meter_for,
)
from pricing import Profile, ReadingKind, observe, required_bytes
from tests.adapters.torch_memory.support import (
    FLOAT_BYTES,
    HIDDEN,
    SPOILT,
    WIDTH,
    Body,
    Net,
    as_whole_wave,
    learn,
    run_wave,
    spoilt_wave,
    wave_of,
)

ROWS = 200
PRICED_ROWS = (1, 50, ROWS - 1, ROWS, ROWS + 1, 1_000)


def _output_bytes(rows: int) -> int:
    return rows * FLOAT_BYTES


# Waves as they should be
# ----------------------------------------------------------------------------------------------


def test_a_whole_wave_reads_its_own_peak_to_the_byte(meter: PeakMeter) -> None:
    """Figures as in test_storage_counter: 3 nh in backward, the outputs, the gradient of w2, the loss and its
    gradient."""
    net = Net()
    after_forward, after_wave = run_wave(meter, net, ROWS)
    nhf, nf = ROWS * HIDDEN * FLOAT_BYTES, _output_bytes(ROWS)
    assert after_forward.peak_delta_bytes == 2 * nhf
    assert after_forward.retained_bytes == nhf + nf
    # The loss has no name here, so backward alone holds it (its gradient too).
    assert after_wave.peak_delta_bytes == 3 * nhf + nf + HIDDEN * FLOAT_BYTES + 2 * FLOAT_BYTES
    assert after_wave.retained_bytes is None
    forward, whole = after_forward.reading, after_wave.reading
    assert forward is not None and whole is not None
    assert (forward.kind, forward.is_complete) == (ReadingKind.FORWARD_ONLY, False)
    assert (whole.kind, whole.is_complete, after_wave.flaws) == (ReadingKind.WHOLE_WAVE, True, ())
    assert (whole.packed_rows, whole.output_bytes) == (ROWS, nf)


def test_readings_do_not_depend_on_what_lived_before(meter: PeakMeter) -> None:
    net = Net()
    run_wave(meter, net, ROWS)  # the first one also makes the gradients that stay
    _, alone = run_wave(meter, net, ROWS)
    ballast = torch.empty(1_000_000)
    _, beside = run_wave(meter, net, ROWS)
    assert beside.baseline_bytes - alone.baseline_bytes == ballast.nbytes
    assert beside.peak_delta_bytes == alone.peak_delta_bytes


def test_a_forward_without_gradients_is_complete_at_its_return(meter: PeakMeter) -> None:
    net = Net(trainable=False)
    interval = meter.open(wave_of(ROWS, output_bytes=_output_bytes(ROWS)), grads=False, role=Role.FORWARD)
    outputs = net(torch.ones(ROWS, WIDTH))
    seen = interval.forward_done(outputs)
    assert not interval.is_open
    assert seen.reading is not None
    assert seen.reading.kind is ReadingKind.FORWARD_ONLY
    assert seen.reading.is_complete


def test_a_forward_with_gradients_is_never_complete(meter: PeakMeter) -> None:
    interval = meter.open(wave_of(ROWS), grads=True, role=Role.FORWARD)
    seen = interval.forward_done(Net()(torch.ones(ROWS, WIDTH)))
    assert seen.reading is not None
    assert not seen.reading.closes_wave
    assert not seen.reading.is_complete


def test_a_wave_without_gradients_has_one_complete_reading(meter: PeakMeter) -> None:
    interval = meter.open(wave_of(ROWS), grads=False)
    outputs = Net(trainable=False)(torch.ones(ROWS, WIDTH))
    readings = [interval.forward_done(outputs).reading, interval.close().reading]
    assert [reading.is_complete for reading in readings if reading is not None] == [False, True]


def test_a_split_wave_gives_children_and_one_interrupted_whole(meter: PeakMeter) -> None:
    net = Net()
    whole = meter.open(wave_of(2 * ROWS), grads=True)
    outputs = []
    for _ in range(2):
        child = meter.open(wave_of(ROWS), grads=True, role=Role.SPLIT_CHILD)
        outputs.append(net(torch.ones(ROWS, WIDTH)))
        seen = child.forward_done(outputs[-1])
        assert seen.reading is not None
        assert (seen.reading.kind, seen.flaws) == (ReadingKind.SPLIT_CHILD, ())
    whole.forward_done(outputs)
    torch.cat(outputs).sum().backward()
    seen = whole.close()
    assert seen.reading is not None
    assert seen.reading.kind is ReadingKind.INTERRUPTED
    # Both children's saved activations live together, and a backward step of one on top of them.
    assert seen.peak_delta_bytes > 3 * ROWS * HIDDEN * FLOAT_BYTES


def test_outputs_live_on_as_the_callers(meter: PeakMeter) -> None:
    """The baseline is taken after what the caller kept: nothing it holds from one wave enters the next one's
    delta."""
    net, kept, deltas = Net(), [], []
    for _ in range(3):
        interval = meter.open(wave_of(ROWS), grads=True)
        outputs = net(torch.ones(ROWS, WIDTH))
        interval.forward_done(outputs)
        outputs.sum().backward()
        kept.append(outputs)
        deltas.append(interval.close().peak_delta_bytes)
    assert deltas[1] == deltas[2]


@pytest.mark.parametrize("let_go", [False, True], ids=["outputs kept", "outputs let go before backward"])
def test_outputs_of_an_earlier_wave_that_die_inside_do_not_hide_the_peak(meter: PeakMeter, let_go: bool) -> None:
    """`outputs = wave.outputs` in a loop drops the last wave's outputs in the middle of this one."""
    net = Net()
    run_wave(meter, net, ROWS)  # makes the gradients
    true_peak = run_wave(meter, net, ROWS)[1].peak_delta_bytes
    earlier_bytes = 50 * ROWS * FLOAT_BYTES

    interval = meter.open(wave_of(50 * ROWS, output_bytes=earlier_bytes), grads=True)
    earlier = [net(net.inputs(50 * ROWS))]
    interval.forward_done(earlier)
    earlier[0].sum().backward()
    interval.close()

    inputs = net.inputs(ROWS)
    interval = meter.open(wave_of(ROWS, output_bytes=ROWS * FLOAT_BYTES), grads=True)
    outputs = net(inputs)
    interval.forward_done(outputs)
    if let_go:
        earlier.clear()
    outputs.sum().backward()
    del outputs
    seen = interval.close()
    assert seen.freed_bytes == (earlier_bytes if let_go else 0)
    assert seen.reading is not None and seen.reading.is_complete
    assert seen.reading.peak_delta_bytes == seen.peak_delta_bytes
    assert true_peak <= seen.peak_delta_bytes <= true_peak + seen.freed_bytes


def test_memory_from_before_that_dies_inside_shows_as_the_drop(meter: PeakMeter) -> None:
    """A graph that an earlier wave left behind is no output of anybody; live bytes under the baseline tell."""
    net = Net()
    run_wave(meter, net, ROWS)
    true_peak = run_wave(meter, net, ROWS)[1].peak_delta_bytes
    left_behind = [net(net.inputs(50 * ROWS)).sum()]
    inputs = net.inputs(ROWS)
    interval = meter.open(wave_of(ROWS, output_bytes=ROWS * FLOAT_BYTES), grads=True)
    outputs = net(inputs)
    interval.forward_done(outputs)
    left_behind.clear()
    outputs.sum().backward()
    del outputs
    seen = interval.close()
    assert seen.freed_bytes > 50 * ROWS * FLOAT_BYTES
    assert seen.peak_delta_bytes >= true_peak


# Spoilt waves
# ---------------------------------------------------------------------------------------------------------


def _spoilt(meter: PeakMeter, caller: Callable[[Body], None], claimed_rows: int) -> tuple[Observation, Observation]:
    assert isinstance(meter.counter, StorageCounter)
    return spoilt_wave(meter, Net(), caller, rows=ROWS, claimed_rows=claimed_rows, reset_peak=meter.counter.reset_peak)


@pytest.mark.parametrize("waves_before", [1, 2], ids=["after the seed", "with a warm fit"])
@pytest.mark.parametrize("rows", [1, ROWS, 100 * ROWS])
@pytest.mark.parametrize(("caller", "flaw"), SPOILT.values(), ids=SPOILT)
def test_a_spoilt_wave_never_lowers_a_price(
    meter: PeakMeter, caller: Callable[[Body], None], flaw: Flaw, rows: int, waves_before: int
) -> None:
    profile = Profile()
    for _ in range(waves_before):
        profile = learn(profile, *run_wave(meter, Net(), ROWS))
    after_forward, after_wave = _spoilt(meter, caller, rows)
    assert flaw in after_wave.flaws
    assert after_wave.reading is not None
    assert after_wave.reading.kind is ReadingKind.INTERRUPTED
    taught = learn(profile, after_forward, after_wave)
    assert taught.complete_readings == profile.complete_readings
    for priced_rows in PRICED_ROWS:
        wave = wave_of(priced_rows)
        assert required_bytes(wave, taught) >= required_bytes(wave, profile)


@pytest.mark.parametrize(("caller", "_flaw"), SPOILT.values(), ids=SPOILT)
def test_believing_a_spoilt_wave_would_lower_a_price(
    meter: PeakMeter, caller: Callable[[Body], None], _flaw: Flaw
) -> None:
    """The control: the same figures passed on as whole waves do lower prices, so the test above can fail."""
    profile = learn(Profile(), *run_wave(meter, Net(), ROWS))
    believed = observe(profile, as_whole_wave(_spoilt(meter, caller, 100 * ROWS)[1]))
    wave = wave_of(100 * ROWS)
    assert required_bytes(wave, believed) < required_bytes(wave, profile)


def test_a_gradient_wave_of_no_compute_is_interrupted(meter: PeakMeter) -> None:
    interval = meter.open(wave_of(ROWS, output_bytes=10_000), grads=True)
    outputs = torch.ones(10, requires_grad=True) * 2
    interval.forward_done(outputs)
    outputs.sum().backward()
    seen = interval.close()
    assert seen.flaws == (Flaw.ZERO_COMPUTE,)
    assert seen.reading is not None
    assert not seen.reading.is_complete


def test_a_body_that_breaks_off_keeps_the_forward(meter: PeakMeter) -> None:
    net = Net()
    interval = meter.open(wave_of(ROWS), grads=True)
    outputs = net(torch.ones(ROWS, WIDTH))
    forward = interval.forward_done(outputs)
    outputs.sum().backward()
    seen = interval.close(completed=False)
    assert seen.flaws == (Flaw.BROKE_OFF,)
    assert forward.reading is not None and seen.reading is not None
    assert not seen.reading.is_complete
    assert seen.peak_delta_bytes > forward.peak_delta_bytes


def test_a_forward_that_raises_is_broken_off(meter: PeakMeter) -> None:
    interval = meter.open(wave_of(ROWS), grads=True)
    scratch = torch.empty(5_000)
    del scratch
    seen = interval.close()
    assert seen.flaws == (Flaw.BROKE_OFF,)
    assert seen.reading is not None
    assert seen.reading.peak_delta_bytes == 20_000


def test_a_discarded_interval_teaches_nothing_and_spoils_nobody(meter: PeakMeter) -> None:
    interval = meter.open(wave_of(ROWS), grads=True)
    interval.forward_done(Net()(torch.ones(ROWS, WIDTH)))
    interval.discard()
    assert not interval.is_open
    _, seen = run_wave(meter, Net(), ROWS)
    assert seen.flaws == ()


# Optimizer steps
# ------------------------------------------------------------------------------------------------------


def test_the_first_optimizer_step_ends_the_measured_part(meter: PeakMeter) -> None:
    """What Adam allocates at its first step is no cost of the wave, and neither is what runs after it."""
    net = Net()
    optimizer = torch.optim.Adam(net.parameters)
    _, plain = run_wave(meter, Net(), ROWS)
    inputs = torch.ones(ROWS, WIDTH)
    interval = meter.open(wave_of(ROWS, output_bytes=_output_bytes(ROWS)), grads=True)
    outputs = net(inputs)
    interval.forward_done(outputs)
    outputs.sum().backward()
    del outputs
    assert not interval.is_sealed
    optimizer.step()
    assert interval.is_sealed
    assert isinstance(meter.counter, StorageCounter)
    meter.counter.reset_peak()
    torch.empty(10_000_000).sum()
    run_wave(meter, net, ROWS)
    seen = interval.close(completed=False)
    assert seen.flaws == ()
    assert seen.reading is not None and plain.reading is not None
    assert seen.reading.is_complete
    assert seen.reading.peak_delta_bytes == plain.reading.peak_delta_bytes


def test_another_models_step_before_backward_is_cut_out_and_backward_still_measured(meter: PeakMeter) -> None:
    """A critic's Adam makes its state in the middle of our wave: not ours, but our backward's peak is."""
    net, critic = Net(), Net(hidden=100 * HIDDEN)
    _, plain = run_wave(meter, Net(), ROWS)
    optimizer = torch.optim.Adam(critic.parameters)
    for weight in critic.parameters:
        weight.grad = torch.zeros_like(weight)
    inputs = net.inputs(ROWS)
    interval = meter.open(wave_of(ROWS, output_bytes=_output_bytes(ROWS)), grads=True)
    outputs = net(inputs)
    interval.forward_done(outputs)
    optimizer.step()
    assert not interval.is_sealed
    outputs.sum().backward()
    del outputs
    seen = interval.close()
    assert seen.flaws == (Flaw.STEP_BEFORE_BACKWARD,)
    assert seen.peak_delta_bytes == plain.peak_delta_bytes


def test_a_step_that_runs_backward_itself_keeps_its_peak(meter: PeakMeter) -> None:
    net = Net()
    _, plain = run_wave(meter, Net(), ROWS)
    optimizer = torch.optim.SGD(net.parameters, lr=0.0)
    inputs = net.inputs(ROWS)
    interval = meter.open(wave_of(ROWS, output_bytes=_output_bytes(ROWS)), grads=True)
    outputs = net(inputs)
    interval.forward_done(outputs)

    def closure() -> float:
        loss = outputs.sum()
        loss.backward()
        return 0.0

    optimizer.step(closure)
    seen = interval.close()
    assert seen.flaws == (Flaw.STEP_BEFORE_BACKWARD,)
    assert seen.peak_delta_bytes >= plain.peak_delta_bytes


def test_steps_outside_waves_change_nothing(meter: PeakMeter) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters, lr=0.1)
    optimizer.step()
    _, seen = run_wave(meter, net, ROWS)
    optimizer.step()
    assert seen.flaws == ()


# Composition
# ----------------------------------------------------------------------------------------------------------


def test_an_outer_peak_is_the_maximum_of_before_inside_and_after(meter: PeakMeter) -> None:
    for before, inside, after in ((3, 2, 1), (1, 3, 2), (1, 2, 3)):
        outer = meter.open(wave_of(1), grads=False)
        torch.empty(before * 250)
        inner = meter.open(wave_of(1), grads=False)
        torch.empty(inside * 250)
        inner.forward_done([])
        inner_seen = inner.close()
        torch.empty(after * 250)
        outer.forward_done([])
        outer_seen = outer.close()
        assert inner_seen.peak_delta_bytes == inside * 1_000
        assert outer_seen.peak_delta_bytes == 3_000
        assert inner_seen.flaws == ()
        assert outer_seen.flaws == (Flaw.NESTED_INTERVAL,)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["open", "close", "touch", "hold", "drop"]), st.integers(0, 9)), max_size=30))
def test_intervals_compose_in_any_order(program: list[tuple[str, int]]) -> None:
    """Each interval's peak is the highest live figure between its open and its close, whatever opens and
    closes between."""
    held: list[torch.Tensor] = []
    intervals: list[list[object]] = []  # [interval, highest live bytes since its open]
    live_bytes = 0

    def rise(peak_bytes: int) -> None:
        for entry in intervals:
            entry[1] = max(int(entry[1]), peak_bytes)  # type: ignore[call-overload]

    with PeakMeter(StorageCounter()) as meter:
        for verb, number in program:
            if verb == "open":
                intervals.append([meter.open(wave_of(1), grads=False), live_bytes])
            elif verb == "touch":
                torch.empty(number)
                rise(live_bytes + 4 * number)
            elif verb == "hold":
                held.append(torch.empty(number))
                live_bytes += 4 * number
                rise(live_bytes)
            elif verb == "drop" and held:
                live_bytes -= held.pop().nbytes
            elif verb == "close" and intervals:
                interval, highest_bytes = intervals.pop(number % len(intervals))
                assert interval.close().peak_bytes == highest_bytes  # type: ignore[attr-defined]
        for interval, highest_bytes in intervals:
            assert interval.close().peak_bytes == highest_bytes  # type: ignore[attr-defined]
        assert meter.foreign_resets == 0


def test_overlapping_intervals_are_both_incomplete(meter: PeakMeter) -> None:
    """A opens, B opens, A closes, B closes: what A frees falls into B."""
    first = meter.open(wave_of(1), grads=False)
    second = meter.open(wave_of(1), grads=False)
    first.forward_done([])
    assert first.close().flaws == (Flaw.NESTED_INTERVAL,)
    second.forward_done([])
    assert second.close().flaws == (Flaw.OVERLAPPED,)


# Threads, owners, misuse
# ----------------------------------------------------------------------------------------------


def _in_thread(work: Callable[[], Observation]) -> Observation:
    results: list[Observation] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join(timeout=30)
    return results[0]


def test_the_cpu_meter_refuses_another_thread(meter: PeakMeter) -> None:
    def wave() -> Observation:
        interval = meter.open(wave_of(1), grads=False)
        interval.forward_done([])
        return interval.close()

    seen = _in_thread(wave)
    assert (seen.reading, seen.refusal) == (None, Refusal.COUNTER_NOT_WATCHING)
    assert meter.resets == 0


def test_one_meter_a_device(meter: PeakMeter) -> None:
    with pytest.raises(OwnershipError, match="cpu"):
        PeakMeter(StorageCounter())


def test_meter_for_is_one_meter_until_it_is_closed() -> None:
    first = meter_for("cpu")
    assert meter_for(torch.device("cpu")) is first
    first.close()
    first.close()
    second = meter_for("cpu")
    assert second is not first
    second.close()
    with pytest.raises(MeterMisuseError):
        first.open(wave_of(1), grads=False)


def test_tokens_are_used_once_and_in_order(meter: PeakMeter) -> None:
    interval = meter.open(wave_of(1), grads=False)
    interval.forward_done([])
    with pytest.raises(MeterMisuseError, match="caller's phase"):
        interval.forward_done([])
    interval.close()
    for again in (interval.close, interval.discard, lambda: interval.forward_done([])):
        with pytest.raises(MeterMisuseError, match="closed"):
            again()


def test_a_meter_with_open_intervals_stays_open(meter: PeakMeter) -> None:
    interval = meter.open(wave_of(1), grads=False)
    with pytest.raises(MeterMisuseError, match="1 intervals"):
        meter.close()
    interval.discard()


def test_an_error_in_the_body_of_a_meter_gives_the_device_back() -> None:
    with pytest.raises(ZeroDivisionError), PeakMeter(StorageCounter()) as meter:
        meter.open(wave_of(1), grads=False)
        _ = 1 // 0
    meter_for("cpu").close()


def test_the_quick_tour_runs() -> None:
    outcome = doctest.testmod(adapters.torch_memory)
    assert (outcome.failed, outcome.attempted > 5) == (0, True)


def test_nothing_is_left_behind_in_autograd_or_optimizers() -> None:
    """After a meter is closed neither its step hook nor its dispatch mode is there."""
    from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    tables = (_global_optimizer_pre_hooks, _global_optimizer_post_hooks)
    hooks, modes = [len(table) for table in tables], len(_get_current_dispatch_mode_stack())
    with PeakMeter(StorageCounter()) as meter:
        run_wave(meter, Net(), ROWS)
        assert [len(table) for table in tables] == [count + 1 for count in hooks]
    assert [len(table) for table in tables] == hooks
    assert len(_get_current_dispatch_mode_stack()) == modes
