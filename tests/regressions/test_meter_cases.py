"""Public failures of peak meters and budgets, by case number. Each case's kind, not only its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations

import pytest
import torch

from adapters.torch_memory import (
    BudgetSampler,
    Flaw,
    Interval,
    MemorySample,
    Observation,
    PeakMeter,
    Refusal,
    Role,
)
from adapters.torch_memory.testing import ContractCounter
from pricing import GIB, Profile, ReadingKind, Wave, Workload, observe, required_bytes
from pricing.planner.budget import Budget, BudgetVerdict, judge

ROWS = 1_000
MIB = 1 << 20


def _wave(rows: int = ROWS) -> Wave:
    return Wave(
        packed_rows=rows,
        logical_rows=rows,
        grad_segments=1,
        output_bytes=0,
        workload=Workload.training(shortest_rows=64),
    )


def _learn(profile: Profile, *observations: Observation) -> Profile:
    for seen in observations:
        if seen.reading is not None:
            profile = observe(profile, seen.reading)
    return profile


class Device:
    """A scripted device with a meter, and a graph whose backward the test runs at the height it wants."""

    def __init__(self, live_bytes: int) -> None:
        self.counter = ContractCounter(live_bytes=live_bytes)
        self.meter = PeakMeter(self.counter)
        self._inner = torch.ones(1)  # of the last forward's graph

    def rise_to(self, peak_bytes: int) -> None:
        """Something allocates until `peak_bytes` are live, and frees again."""
        self.counter.touch(peak_bytes - self.counter.live_bytes)

    def forward(self, interval: Interval, peak_bytes: int) -> tuple[Observation, torch.Tensor]:
        """A forward that reaches `peak_bytes`; its output, whose graph waits for `backward`."""
        self.rise_to(peak_bytes)
        self._inner = torch.ones(1, requires_grad=True) * 2
        output = self._inner * 2
        return interval.forward_done(output), output

    def backward(self, output: torch.Tensor, peak_bytes: int) -> None:
        """A backward that reaches `peak_bytes` while it runs."""
        self.inside_backward(output, lambda: self.rise_to(peak_bytes))

    def inside_backward(self, output: torch.Tensor, act: Callable[[], None]) -> None:
        """Run the output's backward, with `act` halfway through its graph."""
        self._inner.register_hook(lambda _grad: act())
        output.backward()

    def whole_wave(self, delta_bytes: int, rows: int = ROWS) -> tuple[Observation, Observation]:
        """An ordinary wave whose backward peaks `delta_bytes` above its baseline and whose forward at half of
        it."""
        baseline_bytes = self.counter.live_bytes
        interval = self.meter.open(_wave(rows), grads=True)
        after_forward, output = self.forward(interval, baseline_bytes + delta_bytes // 2)
        self.backward(output, baseline_bytes + delta_bytes)
        return after_forward, interval.close()

    def forward_only(self, delta_bytes: int, role: Role) -> Observation:
        """A forward with gradients that is all this interval measures."""
        interval = self.meter.open(_wave(), grads=True, role=role)
        self.rise_to(self.counter.live_bytes + delta_bytes)
        return interval.forward_done(torch.ones(1, requires_grad=True) * 2)

    def broken_off(self, delta_bytes: int) -> Observation:
        """A wave whose body raises after its peak."""
        interval = self.meter.open(_wave(), grads=True)
        self.forward(interval, self.counter.live_bytes)
        self.rise_to(self.counter.live_bytes + delta_bytes)
        return interval.close(completed=False)


@contextmanager
def _device(live_bytes: int = 60 * GIB) -> Iterator[Device]:
    device = Device(live_bytes)
    yield device
    for interval in tuple(device.meter._intervals):
        interval.discard()
    device.meter.close()


def _seeded(device: Device) -> Profile:
    """A profile after a seed wave and one whole wave of 40 GiB each."""
    return _learn(Profile(), *device.whole_wave(40 * GIB), *device.whole_wave(40 * GIB))


def _never_lowered(before: Profile, after: Profile) -> bool:
    return after.complete_readings == before.complete_readings and all(
        required_bytes(_wave(rows), after) >= required_bytes(_wave(rows), before)
        for rows in (1, ROWS // 2, ROWS, 2 * ROWS, 8 * ROWS)
    )


# D06: the peak counter is reset inside the yield. Baseline 60 GiB, forward 80, backward 100.
# ----------------------------


def test_d06_a_nested_tracked_forward_ends_at_85() -> None:
    with _device() as device:
        profile = _seeded(device)
        interval = device.meter.open(_wave(10 * ROWS), grads=True)
        forward, output = device.forward(interval, 80 * GIB)
        device.backward(output, 100 * GIB)
        inner = device.meter.open(_wave(1), grads=False, role=Role.FORWARD)
        device.rise_to(85 * GIB)
        inner.forward_done([])
        seen = interval.close()
        assert seen.flaws == (Flaw.NESTED_INTERVAL,)
        assert seen.peak_delta_bytes == 40 * GIB, "composed, not the 25 GiB the counter shows"
        assert _never_lowered(profile, _learn(profile, forward, seen))


def test_d06_b_a_foreign_reset_ends_below_the_forward() -> None:
    with _device() as device:
        profile = _seeded(device)
        interval = device.meter.open(_wave(10 * ROWS), grads=True)
        forward, output = device.forward(interval, 80 * GIB)
        device.counter.foreign_reset()
        device.backward(output, 70 * GIB)
        seen = interval.close()
        assert seen.flaws == (Flaw.FOREIGN_RESET,)
        assert seen.peak_delta_bytes == 20 * GIB, "the forward's own peak is still known"
        assert _never_lowered(profile, _learn(profile, forward, seen))


def test_d06_c_a_foreign_reset_above_the_forward_is_seen_where_backward_ended_before_it() -> None:
    """The reading would be 25 GiB instead of 40. The look at backward's end saw 100, so 85 is a fall."""
    with _device() as device:
        profile = _seeded(device)
        interval = device.meter.open(_wave(10 * ROWS), grads=True)
        forward, output = device.forward(interval, 80 * GIB)
        device.backward(output, 100 * GIB)
        device.counter.foreign_reset()
        device.rise_to(85 * GIB)
        seen = interval.close()
        assert seen.flaws == (Flaw.FOREIGN_RESET,)
        assert seen.peak_delta_bytes == 40 * GIB
        assert _never_lowered(profile, _learn(profile, forward, seen))


def test_d06_c_a_foreign_reset_in_the_loss_is_seen_where_backward_starts_after_it() -> None:
    with _device() as device:
        interval = device.meter.open(_wave(), grads=True)
        _, output = device.forward(interval, 80 * GIB)
        device.rise_to(100 * GIB)
        device.counter.foreign_reset()
        device.backward(output, 85 * GIB)
        assert interval.close().flaws == (Flaw.FOREIGN_RESET,)


def test_d06_c_a_foreign_reset_in_the_middle_of_backward_is_not_seen() -> None:
    """The stated limit: between two looks every figure was overtaken again. A caller that resets there is
    unsupported."""
    with _device() as device:
        interval = device.meter.open(_wave(), grads=True)
        _, output = device.forward(interval, 80 * GIB)

        def overtake() -> None:
            device.rise_to(100 * GIB)
            device.counter.foreign_reset()
            device.rise_to(85 * GIB)

        device.inside_backward(output, overtake)
        seen = interval.close()
        assert seen.flaws == ()
        assert seen.peak_delta_bytes == 25 * GIB


def test_d06_d_backward_after_the_yield() -> None:
    with _device() as device:
        profile = _seeded(device)
        interval = device.meter.open(_wave(10 * ROWS), grads=True)
        forward, output = device.forward(interval, 80 * GIB)
        seen = interval.close()
        device.backward(output, 100 * GIB)
        assert seen.flaws == (Flaw.BACKWARD_NOT_SEEN,)
        assert _never_lowered(profile, _learn(profile, forward, seen))


def test_d06_a_nested_forward_in_every_yield_leaves_the_warm_fit_inert() -> None:
    """Prices are then exactly those of the all-readings term, as without the warm fit."""
    with _device() as device:
        profile = Profile()
        for _ in range(5):
            interval = device.meter.open(_wave(), grads=True)
            forward, output = device.forward(interval, 80 * GIB)
            device.backward(output, 100 * GIB)
            device.forward_only(GIB, Role.FORWARD)
            profile = _learn(profile, forward, interval.close())
        assert not profile.has_warm_fit
        assert profile.complete_readings == 0
        assert profile.peak_bytes_per_row == -(-40 * GIB // ROWS)


# D08: a high reading between the seed and the first whole warm wave.
# ---------------------------------------------------

INCOMPLETE: dict[str, Callable[[Device, int], Observation]] = {
    "forward_only": lambda device, delta: device.forward_only(delta, Role.FORWARD),
    "split_child": lambda device, delta: device.forward_only(delta, Role.SPLIT_CHILD),
    "interrupted": lambda device, delta: device.broken_off(delta),
}


@pytest.mark.parametrize("kind", INCOMPLETE)
def test_d08_a_pending_rate_is_not_lost_in_any_order(kind: str) -> None:
    with _device() as device:
        seed = _learn(Profile(), *device.whole_wave(275_000 * ROWS))
        high = INCOMPLETE[kind](device, 260_000 * ROWS)
        assert high.reading is not None
        assert high.reading.kind == kind
        low = device.whole_wave(210_000 * ROWS)
        for order in permutations([high, *low]):
            assert _learn(seed, *order).warm_bytes_per_row == 260_000


@pytest.mark.parametrize("kind", INCOMPLETE)
def test_d08_only_incomplete_readings_leave_the_cold_price(kind: str) -> None:
    with _device() as device:
        seed = _learn(Profile(), *device.whole_wave(275_000 * ROWS))
        after = _learn(seed, *(INCOMPLETE[kind](device, delta * ROWS) for delta in (260_000, 210_000)))
        for rows in (1, ROWS, 7 * ROWS):
            assert required_bytes(_wave(rows), after) == required_bytes(_wave(rows), seed)


# D09: only the forward was profiled, and the caller's backward ran out of memory.
# --------------------------------------


def test_d09_the_callers_phase_is_priced_once_the_wave_resumes() -> None:
    forward_bytes, caller_bytes = 10 * GIB, 35 * GIB
    with _device() as device:
        interval = device.meter.open(_wave(), grads=True)
        forward, output = device.forward(interval, 60 * GIB + forward_bytes)
        profile = _learn(Profile(), forward)
        assert forward_bytes <= required_bytes(_wave(), profile) < caller_bytes, "priced, but not trusted yet"
        assert profile.complete_readings == 0
        device.backward(output, 60 * GIB + caller_bytes)
        profile = _learn(profile, interval.close())
        assert required_bytes(_wave(), profile) >= caller_bytes
        assert profile.complete_readings == 1


def test_d09_an_exception_in_the_body_keeps_the_forward_and_what_was_reached() -> None:
    with _device() as device:
        interval = device.meter.open(_wave(), grads=True)
        forward, _ = device.forward(interval, 70 * GIB)
        device.rise_to(95 * GIB)
        seen = interval.close(completed=False)
        profile = _learn(Profile(), forward, seen)
        assert required_bytes(_wave(), profile) >= 35 * GIB
        assert profile.complete_readings == 0


def test_d09_a_critics_step_before_the_actors_backward_does_not_hide_it() -> None:
    """The critic's optimizer makes 20 GiB of state inside the wave. It is no cost of the wave; the backward is."""
    with _device() as device:
        critic = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.0)
        critic.register_step_pre_hook(lambda *_: device.rise_to(130 * GIB))
        critic.register_step_post_hook(lambda *_: device.counter.allocate(20 * GIB))
        interval = device.meter.open(_wave(), grads=True)
        forward, output = device.forward(interval, 70 * GIB)
        critic.step()
        device.backward(output, 115 * GIB)
        seen = interval.close()
        assert seen.flaws == (Flaw.STEP_BEFORE_BACKWARD,)
        assert seen.peak_delta_bytes == 35 * GIB
        profile = _learn(Profile(), forward, seen)
        assert profile.complete_readings == 0
        assert required_bytes(_wave(), profile) >= 35 * GIB


def test_d09_out_of_memory_after_admission_keeps_the_forward_alone() -> None:
    with _device() as device:
        interval = device.meter.open(_wave(), grads=True)
        forward, _ = device.forward(interval, 70 * GIB)
        device.rise_to(139 * GIB)
        interval.discard()
        profile = _learn(Profile(), forward)
        assert profile.peak_bytes_per_row == -(-10 * GIB // ROWS)


# D19: cached is not free.
# ----------------------------------------------------------------------------------------------

H200_BYTES = 143_771 * MIB
HANDOFF = MemorySample(
    free_bytes=14_352_384,
    total_bytes=H200_BYTES,
    in_use_bytes=92_197_523_968,
    reserved_bytes=147_394_134_016,
    inactive_split_bytes=12_441_972_224,
)


GIVEN_BACK_BYTES = 42_754_637_824


class Handoff:
    """The reported device: a release gives back whole idle segments, 42,754,637,824 of 55,196,610,048 idle bytes."""

    def __init__(self, sample: MemorySample) -> None:
        self.now = sample

    def sample(self) -> MemorySample:
        return self.now

    def release_cache(self) -> None:
        self.now = replace(
            self.now,
            free_bytes=self.now.free_bytes + GIVEN_BACK_BYTES,
            reserved_bytes=self.now.reserved_bytes - GIVEN_BACK_BYTES,
        )


def test_d19_a_fits_but_release_the_cache_first() -> None:
    assert HANDOFF.idle_bytes - HANDOFF.inactive_split_bytes == GIVEN_BACK_BYTES
    assert judge(7_976_316_880, HANDOFF.budget) is BudgetVerdict.RELEASE
    admission = BudgetSampler(Handoff(HANDOFF)).admit(7_976_316_880)
    assert admission.runs and admission.released_cache
    physical_after_bytes = admission.budget.physical_bytes - 7_976_316_880
    handle_bytes = 67_108_864 + 131_072 + 1_024
    assert physical_after_bytes >= handle_bytes, "a library that allocates for itself finds its bytes"


def test_d19_a_pinned_pieces_are_held_against_footprints_and_are_never_physical() -> None:
    """12.4 GB of the idle bytes were pieces of split segments. A footprint holds them, so a release changes nothing in
    what a price is held against; what can be allocated anew counts only what came back."""
    admission = BudgetSampler(Handoff(HANDOFF)).admit(7_976_316_880)
    assert admission.came_back_short_bytes == 0
    assert admission.budget.available_bytes == HANDOFF.budget.available_bytes
    came_back_bytes = admission.budget.physical_bytes - HANDOFF.budget.physical_bytes
    assert came_back_bytes == GIVEN_BACK_BYTES < HANDOFF.idle_bytes


def test_d19_a_idle_bytes_that_no_split_explains_and_no_release_gives_back_do_not_count() -> None:
    """The same figures without the pieces: 12.4 GB lie idle in pages that the release could not return."""
    sampler = BudgetSampler(Handoff(replace(HANDOFF, inactive_split_bytes=0)))
    planned = sampler.budget().available_bytes
    admission = sampler.admit(planned)
    assert not admission.runs
    assert admission.came_back_short_bytes == HANDOFF.idle_bytes - GIVEN_BACK_BYTES
    assert sampler.budget().available_bytes == planned - admission.came_back_short_bytes, "the next plan knows"
    assert sampler.admit(sampler.budget().available_bytes).runs


def test_d19_b_nothing_physical_left_is_no_plain_admission_and_no_lesson() -> None:
    """Required 68.2 GB of 69.4: the price was 1.45 times high. NCCL failed on 24 bytes, because 381 MB were
    free."""
    required = 68_177_016_880
    snapshot = Budget(
        free_bytes=381_353_984,
        reserve_bytes=HANDOFF.budget.reserve_bytes,
        reusable_cache_bytes=69_433_447_117 - 381_353_984 + HANDOFF.budget.reserve_bytes,
    )
    assert judge(required, snapshot) is BudgetVerdict.RELEASE
    with _device() as device:
        profile = _learn(Profile(), *device.whole_wave(46_946_880_000, rows=228_142))
        failed = device.meter.open(_wave(228_142), grads=True)
        forward, _ = device.forward(failed, 60 * GIB + 46_946_880_000)
        failed.discard()
        assert _learn(profile, forward).peak_bytes_per_row == profile.peak_bytes_per_row


# A03: one global counter, several readers.
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "inside", "after"), list(permutations((5, 6, 7))))
def test_a03_an_outer_scope_survives_an_inner_one(before: int, inside: int, after: int) -> None:
    with _device(live_bytes=GIB) as device:
        outer = device.meter.open(_wave(), grads=False)
        device.rise_to(before * GIB)
        inner = device.meter.open(_wave(), grads=False)
        device.rise_to(inside * GIB)
        inner.forward_done([])
        assert inner.close().peak_bytes == inside * GIB
        device.rise_to(after * GIB)
        outer.forward_done([])
        assert outer.close().peak_bytes == 7 * GIB


def test_a03_overlapping_scopes_keep_their_peaks_and_are_incomplete() -> None:
    with _device(live_bytes=GIB) as device:
        first = device.meter.open(_wave(), grads=False)
        device.rise_to(9 * GIB)
        second = device.meter.open(_wave(), grads=False)
        device.rise_to(4 * GIB)
        first.forward_done([])
        first_seen = first.close()
        device.rise_to(6 * GIB)
        second.forward_done([])
        second_seen = second.close()
        assert (first_seen.peak_bytes, second_seen.peak_bytes) == (9 * GIB, 6 * GIB)
        for seen in (first_seen, second_seen):
            assert seen.reading is not None
            assert not seen.reading.is_complete


def test_a03_two_profilers_that_do_not_know_each_other() -> None:
    """The other one resets between our forward and our close: incomplete, never a low number."""
    with _device(live_bytes=GIB) as device:
        interval = device.meter.open(_wave(), grads=False)
        device.rise_to(9 * GIB)
        interval.forward_done([])
        device.counter.foreign_reset()
        device.rise_to(2 * GIB)
        seen = interval.close()
        assert seen.flaws == (Flaw.FOREIGN_RESET,)
        assert seen.peak_bytes == 9 * GIB
        assert device.meter.foreign_resets == 1


# A04: what a reset does to baselines.
# ----------------------------------------------------------------------------------


def test_a04_a_reset_that_forgets_the_weights_is_refused() -> None:
    """37.238 GiB of real peak read as 6.867, because 30.37 GiB of weights were gone from the counter."""
    weights_bytes = 3_037 * GIB // 100
    counter = ContractCounter(live_bytes=weights_bytes, loses_live_bytes=True)
    with PeakMeter(counter) as meter:
        interval = meter.open(_wave(), grads=False)
        counter.touch(6_867 * GIB // 1_000)
        forward, seen = interval.forward_done([]), interval.close()
    assert interval.baseline_bytes == weights_bytes
    for refused in (forward, seen):
        assert (refused.reading, refused.refusal) == (None, Refusal.RESET_CHANGED_LIVE_BYTES)
    assert _learn(Profile(), forward, seen) == Profile()


def test_a04_a_peak_below_its_baseline_is_rejected_and_not_clamped() -> None:
    """The counter forgets later, in the middle of the interval: baseline 30.37 GiB, peak 6.867."""
    weights_bytes = 3_037 * GIB // 100
    counter = ContractCounter(live_bytes=weights_bytes)
    with PeakMeter(counter) as meter:
        interval = meter.open(_wave(), grads=False)
        counter.free(weights_bytes)
        counter.foreign_reset()
        counter.touch(6_867 * GIB // 1_000)
        seen = interval.forward_done([])
        assert (seen.reading, seen.refusal) == (None, Refusal.PEAK_BELOW_BASELINE)
        assert seen.peak_delta_bytes < 0
        interval.close()


def test_a04_net_negative_change_is_legal() -> None:
    """312 MB before, 159 MB after, peak 2,171 MB: the wave freed what was there before it."""
    counter = ContractCounter(live_bytes=312_000_000)
    with PeakMeter(counter) as meter:
        interval = meter.open(_wave(), grads=False, role=Role.FORWARD)
        counter.touch(2_171_000_000 - 312_000_000)
        counter.free(153_000_000)
        seen = interval.forward_done([])
    assert seen.flaws == ()
    assert seen.reading is not None
    assert seen.reading.kind is ReadingKind.FORWARD_ONLY
    assert (seen.peak_delta_bytes, seen.retained_bytes) == (1_859_000_000, -153_000_000)
    assert observe(Profile(), seen.reading).peak_bytes_per_row == 1_859_000


# A07: free memory belongs to everyone on the device.
# -------------------------------------------------------------------


@pytest.mark.parametrize("drift_bytes", [723 * GIB // 100, -5 * GIB, 0])
def test_a07_neighbours_change_the_budget_and_never_the_rate(drift_bytes: int) -> None:
    """Free rises by 7.23 GiB, falls by 5, or stays: what is learned is from our own counter."""
    with _device() as device:
        quiet = _learn(Profile(), *device.whole_wave(30 * GIB))
    before = MemorySample(
        free_bytes=40 * GIB,
        total_bytes=H200_BYTES,
        in_use_bytes=60 * GIB,
        reserved_bytes=60 * GIB,
        inactive_split_bytes=0,
    )
    source = Handoff(before)
    sampler = BudgetSampler(source)
    planned = sampler.budget()
    with _device() as device:
        source.now = replace(before, free_bytes=before.free_bytes + drift_bytes)
        beside_neighbours = _learn(Profile(), *device.whole_wave(30 * GIB))
    assert beside_neighbours == quiet
    assert sampler.budget().available_bytes == planned.available_bytes + drift_bytes
    assert sampler.admit(planned.available_bytes).runs == (drift_bytes >= 0)


def test_a07_equality_fits_and_a_negative_remainder_refuses() -> None:
    budget = Budget(free_bytes=303 * GIB // 10, reserve_bytes=0)
    assert judge(303 * GIB // 10, budget) is BudgetVerdict.RUN
    assert judge(303 * GIB // 10 + 1, budget) is BudgetVerdict.REFUSE
    full = MemorySample(free_bytes=0, total_bytes=H200_BYTES, in_use_bytes=0, reserved_bytes=0, inactive_split_bytes=0)
    assert full.budget.available_bytes < 0
    assert judge(0, full.budget) is BudgetVerdict.REFUSE
    assert not BudgetSampler(Handoff(full)).admit(0).runs
