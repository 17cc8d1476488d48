"""The contract of a peak counter: the meter keeps it in random programs, and each way of breaking it is
caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.torch_memory import (
    Flaw,
    Interval,
    Observation,
    OwnershipError,
    PeakMeter,
    Refusal,
    Role,
    StorageCounter,
)
from adapters.torch_memory.testing import ContractCounter, ContractViolation
from adapters.torch_memory.trust import allocator_refusal, environment_facts
from pricing import ReadingKind
from tests.adapters.torch_memory.support import wave_of

VERBS = ["open", "open forward", "forward_done", "close", "break", "discard", "touch", "hold", "foreign reset", "step"]


class Truth:
    """An interval with what really happened: the highest live bytes since its open, and any foreign reset."""

    def __init__(self, interval: Interval, live_bytes: int) -> None:
        self.interval = interval
        self.highest_bytes = live_bytes
        self.was_reset = False

    def check(self, seen: Observation) -> None:
        """Exact without foreign resets; with them never above the truth, and never below zero."""
        assert seen.reading is not None
        if self.was_reset:
            assert seen.baseline_bytes <= seen.peak_bytes <= self.highest_bytes
        else:
            assert seen.peak_bytes == self.highest_bytes
            assert Flaw.FOREIGN_RESET not in seen.flaws


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 1_000)), max_size=40))
def test_the_meter_keeps_the_contract_in_any_program(program: list[tuple[str, int]]) -> None:
    """No breach whatever happens, and every peak is the true one as long as nobody else resets the counter."""
    counter = ContractCounter(live_bytes=5_000)
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.0)
    truths: list[Truth] = []
    with PeakMeter(counter) as meter:
        for verb, number in program:
            truths = [truth for truth in truths if truth.interval.is_open]
            growing = [truth for truth in truths if not truth.interval.is_sealed]
            chosen = truths[number % len(truths)] if truths else None
            if verb.startswith("open"):
                role = Role.FORWARD if verb == "open forward" else Role.WAVE
                truths.append(Truth(meter.open(wave_of(1), grads=False, role=role), counter.live_bytes))
            elif verb in ("touch", "hold"):
                (counter.touch if verb == "touch" else counter.allocate)(number)
                for truth in growing:
                    live_bytes = counter.live_bytes + (number if verb == "touch" else 0)
                    truth.highest_bytes = max(truth.highest_bytes, live_bytes)
            elif verb == "foreign reset":
                counter.foreign_reset()
                for truth in growing:
                    truth.was_reset = True
            elif verb == "step":
                optimizer.step()
            elif chosen is not None and verb == "discard":
                chosen.interval.discard()
            elif chosen is not None and verb in ("close", "break"):
                chosen.check(chosen.interval.close(completed=verb == "close"))
            elif chosen is not None and chosen.interval.is_in_forward:
                chosen.check(chosen.interval.forward_done([]))
        for truth in truths:
            if truth.interval.is_open:
                truth.interval.discard()


def test_a_foreign_reset_right_before_a_look_is_always_seen() -> None:
    for look in ("forward_done", "close", "nested open", "step"):
        counter = ContractCounter(live_bytes=50)
        with PeakMeter(counter) as meter:
            interval = meter.open(wave_of(1), grads=False)
            counter.touch(100)
            if look != "forward_done":
                interval.forward_done([])
                counter.foreign_reset()
            else:
                meter.open(wave_of(1), grads=False).discard()  # a look, so that the peak was seen
                counter.touch(100)
                meter._look_during_backward()
                counter.foreign_reset()
                interval.forward_done([])
            if look == "nested open":
                meter.open(wave_of(1), grads=False).discard()
            elif look == "step":
                torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.0).step()
            seen = interval.close()
        assert Flaw.FOREIGN_RESET in seen.flaws
        assert (seen.peak_delta_bytes, meter.foreign_resets) == (100, 1)


def _started() -> tuple[ContractCounter, object]:
    counter, owner = ContractCounter(live_bytes=10), object()
    counter.claim(owner)
    counter.synchronize()
    counter.reset(owner)
    return counter, owner


def _read_before_reset() -> None:
    ContractCounter().peaks()


def _read_while_pending() -> None:
    counter, _ = _started()
    counter.allocate(1)
    counter.allocated()


def _reset_while_pending() -> None:
    counter, owner = _started()
    counter.allocate(1)
    counter.peaks()
    counter.reset(owner)


def _reset_of_an_unread_peak() -> None:
    counter, owner = _started()
    counter.touch(1)
    counter.synchronize()
    counter.reset(owner)


def _read_while_refused() -> None:
    counter, _ = _started()
    counter.refused = Refusal.STREAM_CAPTURE
    counter.allocated()


def _synchronize_while_refused() -> None:
    counter, _ = _started()
    counter.refused = Refusal.STREAM_CAPTURE
    counter.synchronize()


BREACHES = [
    _read_before_reset,
    _read_while_pending,
    _reset_while_pending,
    _reset_of_an_unread_peak,
    _read_while_refused,
    _synchronize_while_refused,
]


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.__name__.strip("_"))
def test_each_breach_is_caught(breach: Callable[[], None]) -> None:
    with pytest.raises(ContractViolation):
        breach()


def test_a_reset_by_somebody_else_is_caught() -> None:
    counter, _ = _started()
    with pytest.raises(OwnershipError):
        counter.reset(object())
    with pytest.raises(OwnershipError):
        counter.claim(object())


# Refusals
# -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [Refusal.CUDA_MALLOC_ASYNC, Refusal.STREAM_CAPTURE])
def test_an_untrusted_environment_is_not_touched_and_teaches_nothing(refusal: Refusal) -> None:
    counter = ContractCounter()
    counter.refused = refusal
    with PeakMeter(counter) as meter:
        interval = meter.open(wave_of(1), grads=True)
        forward, whole = interval.forward_done(torch.ones(1)), interval.close()
    assert (forward.reading, forward.refusal) == (None, refusal)
    assert (whole.reading, whole.refusal) == (None, refusal)
    assert meter.resets == 0


def test_trust_lost_inside_an_interval_is_not_regained() -> None:
    counter = ContractCounter()
    with PeakMeter(counter) as meter:
        interval = meter.open(wave_of(1), grads=False)
        counter.touch(100)
        counter.refused = Refusal.STREAM_CAPTURE
        assert interval.forward_done([]).refusal is Refusal.STREAM_CAPTURE
        counter.refused = None
        seen = interval.close()
    assert (seen.reading, seen.refusal) == (None, Refusal.STREAM_CAPTURE)


@pytest.mark.parametrize(
    ("backend", "uncached", "refusal"),
    [
        ("native", "", None),
        ("native", "0", None),
        ("native", "1", Refusal.UNCACHED_ALLOCATOR),
        ("cudaMallocAsync", "", Refusal.CUDA_MALLOC_ASYNC),
        ("pluggable", "", Refusal.PLUGGABLE_ALLOCATOR),
    ],
)
def test_allocators_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, backend: str, uncached: str, refusal: Refusal | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", uncached)
    assert allocator_refusal(torch.device("cuda", 0)) is refusal
    assert allocator_refusal(torch.device("cpu")) is None


def test_environment_facts_name_what_a_profile_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = environment_facts("cpu")
    assert facts["device"] == "cpu"
    assert facts["torch"] == torch.__version__
    assert set(facts) == {"device", "total_bytes", "torch", "allocator", "allocator_settings"}
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setattr(torch._C, "_accelerator_getAllocatorSettings", lambda: "")
    assert environment_facts("cpu")["allocator_settings"] == "expandable_segments:True"


# The stub tells what a real counter would
# -----------------------------------------------------------------------------


def test_the_stub_and_the_storage_counter_agree() -> None:
    """The same script of sizes on both gives the same readings."""

    def script(meter: PeakMeter, touch: Callable[[int], None]) -> list[tuple[int, ReadingKind, tuple[Flaw, ...]]]:
        results = []
        outer = meter.open(wave_of(1), grads=False)
        touch(400)
        inner = meter.open(wave_of(1), grads=False, role=Role.FORWARD)
        touch(800)
        for seen in (inner.forward_done([]), outer.forward_done([]), outer.close()):
            assert seen.reading is not None
            results.append((seen.peak_delta_bytes, seen.reading.kind, seen.flaws))
        return results

    stub = ContractCounter()
    with PeakMeter(stub) as meter:
        scripted = script(meter, stub.touch)
    with PeakMeter(StorageCounter()) as meter:
        real = script(meter, _touch)
    assert scripted == real


def _touch(size_bytes: int) -> None:
    torch.empty(size_bytes, dtype=torch.uint8)
