"""The simulated allocator: a partition of what it reserved, whatever is asked of it; fragmentation as on a device."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.torch_memory import BudgetSampler, PeakMeter
from adapters.torch_memory.out_of_memory import is_out_of_memory, requested_bytes
from adapters.torch_memory.simulated_allocator import (
    KIB,
    MIB,
    AllocatorCounter,
    AllocatorMemory,
    Block,
    SimulatedAllocator,
    State,
)
from tests.adapters.torch_memory.support import Net, run_wave, wave_of

SIZES = st.one_of(st.integers(1, 4 * KIB), st.integers(1, 2 * MIB), st.integers(1, 30 * MIB), st.just(10 * MIB))
STEPS = st.lists(
    st.tuples(st.sampled_from(["allocate", "allocate", "free", "release"]), SIZES, st.integers(0, 1 << 30)),
    max_size=60,
)


def assert_partition(allocator: SimulatedAllocator, live: list[Block]) -> None:
    """Every segment is cut without gaps or overlaps; the figures are the sums; neighbours of one state are merged."""
    in_use = idle = 0
    seen: set[int] = set()
    for blocks in allocator.segments():
        at = 0
        for before, block in zip([None, *blocks], blocks, strict=False):
            assert block.offset_bytes == at and block.size_bytes > 0 and block.size_bytes % 512 == 0
            assert block.before is before
            if before is not None:
                assert before.state is not block.state or block.state is State.IN_USE
            at += block.size_bytes
            seen.add(id(block))
            in_use += block.size_bytes if block.state is State.IN_USE else 0
            idle += block.size_bytes if block.state is State.IDLE else 0
        assert at == blocks[0].segment.size_bytes
    assert all(id(block) in seen and block.state is State.IN_USE for block in live)
    assert in_use == allocator.allocated_bytes == sum(block.size_bytes for block in live)
    assert in_use + idle == allocator.reserved_bytes <= allocator.limit_bytes
    assert allocator.peak_reserved_bytes >= allocator.reserved_bytes
    assert allocator.peak_allocated_bytes >= allocator.allocated_bytes
    assert allocator.inactive_split_bytes + allocator.releasable_bytes <= idle
    if not allocator.expandable:
        assert allocator.inactive_split_bytes + allocator.releasable_bytes == idle


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, limit_mib=st.integers(1, 80), expandable=st.booleans())
def test_it_partitions_what_it_reserved(steps: list[tuple[str, int, int]], limit_mib: int, expandable: bool) -> None:
    allocator, live = SimulatedAllocator(limit_mib * MIB, expandable=expandable), list[Block]()
    for verb, size_bytes, pick in steps:
        if verb == "allocate":
            failures = allocator.ooms
            try:
                block = allocator.allocate(size_bytes)
                assert block.size_bytes >= size_bytes
                live.append(block)
            except torch.OutOfMemoryError as error:
                assert allocator.ooms == failures + 1 <= allocator.alloc_retries
                assert is_out_of_memory(error) and abs((requested_bytes(error) or 0) - size_bytes) <= size_bytes / 100
        elif verb == "free" and live:
            allocator.free(live.pop(pick % len(live)))
        elif verb == "release":
            before, releasable = allocator.reserved_bytes, allocator.releasable_bytes
            allocator.empty_cache()
            assert (before - allocator.reserved_bytes, allocator.releasable_bytes) == (releasable, 0)
        assert_partition(allocator, live)
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.reserved_bytes == allocator.allocated_bytes == 0


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, expandable=st.booleans())
def test_a_wave_within_its_footprint_never_fails(steps: list[tuple[str, int, int]], expandable: bool) -> None:
    """The theorem that footprints rest on: what ran without a limit runs under one that is its reserved peak."""

    def run(limit_bytes: int) -> SimulatedAllocator:
        allocator, live = SimulatedAllocator(limit_bytes, expandable=expandable), list[Block]()
        for verb, size_bytes, pick in steps:
            if verb == "allocate":
                live.append(allocator.allocate(size_bytes))
            elif verb == "free" and live:
                allocator.free(live.pop(pick % len(live)))
        return allocator

    without = run(1 << 50)
    within = run(max(1, without.peak_reserved_bytes))
    assert (within.alloc_retries, within.peak_reserved_bytes) == (0, without.peak_reserved_bytes)


def test_sizes_and_segments() -> None:
    allocator = SimulatedAllocator(200 * MIB)
    assert allocator.allocate(1).size_bytes == 512
    assert allocator.reserved_bytes == 2 * MIB
    assert allocator.allocate(MIB).segment.number == 1
    assert allocator.allocate(MIB + 1).segment.size_bytes == 20 * MIB
    assert allocator.allocate(10 * MIB - 512).segment.number == 2
    own = allocator.allocate(11 * MIB)
    assert own.segment.size_bytes == own.size_bytes == 12 * MIB  # a rest of 1 MiB is not kept apart


def test_out_of_memory_comes_after_the_cache_was_given_back() -> None:
    allocator = SimulatedAllocator(24 * MIB)
    allocator.free(allocator.allocate(12 * MIB))
    allocator.allocate(20 * MIB)
    assert (allocator.alloc_retries, allocator.ooms, allocator.reserved_bytes) == (1, 0, 20 * MIB)
    with pytest.raises(
        torch.OutOfMemoryError, match=r"Tried to allocate 12\.00 MiB\..*24\.00 MiB of which 4\.00 MiB is"
    ):
        allocator.allocate(12 * MIB)
    assert (allocator.alloc_retries, allocator.ooms, allocator.allocated_bytes) == (2, 1, 20 * MIB)


def test_pieces_stay_and_so_do_pages_that_hold_something_else() -> None:
    for expandable in (False, True):
        allocator = SimulatedAllocator(100 * MIB, expandable=expandable)
        kept, large = allocator.allocate(3 * MIB), allocator.allocate(9 * MIB)
        allocator.free(large)
        allocator.empty_cache()
        assert allocator.reserved_bytes == 20 * MIB
        assert allocator.inactive_split_bytes == (0 if expandable else 17 * MIB)
        allocator.free(kept)
        allocator.empty_cache()
        assert allocator.reserved_bytes == 0


def wave_like(allocator: SimulatedAllocator, rows: int, seed: int) -> None:
    """Layers that keep activations, scratch of uneven sizes (experts), and a backward that frees in reverse."""
    draws = random.Random(seed)
    held: list[Block] = []
    for _ in range(12):
        held.append(allocator.allocate(rows * 512))
        shares = [draws.random() for _ in range(8)]
        scratch = [allocator.allocate(max(1, int(rows * 2048 * share / sum(shares)))) for share in shares]
        held.extend(scratch[::3])
        for index, block in enumerate(scratch):
            if index % 3:
                allocator.free(block)
    for block in reversed(held):
        scratch = [allocator.allocate(max(1, int(block.requested_bytes * draws.uniform(0.5, 1.5)))) for _ in range(2)]
        allocator.free(block)
        for each in scratch:
            allocator.free(each)


def excess_of(rows: int, seed: int) -> float:
    """Reserved above allocated, as a share of what a wave adds."""
    allocator = SimulatedAllocator(1 << 50)
    wave_like(allocator, rows, seed)
    return allocator.peak_reserved_bytes / allocator.peak_allocated_bytes - 1


def test_it_fragments_in_kind_as_the_device_did() -> None:
    """`evidence/h200-physical/moe-sizes.jsonl`: 15 to 19 % above allocated from 10 k rows
    on, by 45 % in a tiny one. Never below, and most in tiny waves."""
    tiny, middle, large = ([excess_of(rows, seed) for seed in range(6)] for rows in (1_400, 20_000, 100_000))
    assert 0.02 < min(middle + large) < max(middle + large) < 0.5
    assert max(middle + large) < min(tiny) < 1.5


def test_the_storage_counter_takes_blocks() -> None:
    counter = AllocatorCounter(SimulatedAllocator(64 * MIB))
    with PeakMeter(counter) as meter:
        net = Net()
        counter.track(net.parameters)
        for rows in (300, 900, 200):
            meter.counter.release_cache()
            _, closing = run_wave(meter, net, rows)
            assert closing.reading is not None and closing.reading.footprint_bytes is not None
            assert closing.reading.footprint_bytes > closing.reading.peak_delta_bytes
            assert counter.allocated() == counter.allocator.allocated_bytes
        del closing
        held = torch.empty(3 * MIB)
        del held
        interval = meter.open(wave_of(1), grads=False)
        assert not interval.started_clean
        assert interval.close().footprint_bytes is None
        assert meter.open(wave_of(1), grads=False, clean=True).started_clean
        meter._intervals[-1].discard()


def test_an_operation_runs_out_of_memory_and_leaves_the_books_right() -> None:
    counter = AllocatorCounter(SimulatedAllocator(30 * MIB))
    with PeakMeter(counter) as meter:
        sampler = BudgetSampler(AllocatorMemory(counter))
        held = torch.zeros(4 * MIB)  # 16 MiB
        interval = meter.open(wave_of(5), grads=False)
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 16\.00 MiB") as raised:
            held + 1
        look = interval.out_of_memory(raised.value, available_bytes=10 * MIB)
        assert look.footprint_bytes == 16 * MIB
        del raised
        assert counter.allocated() == sampler.sample().in_use_bytes == held.nbytes
        with pytest.raises(torch.OutOfMemoryError):
            held.resize_(8 * MIB)
        assert counter.allocated() == counter.allocator.allocated_bytes == 16 * MIB


def test_a_backward_that_runs_out_of_memory_raises_in_the_caller() -> None:
    counter = AllocatorCounter(SimulatedAllocator(30 * MIB))
    with PeakMeter(counter):
        weight = torch.ones(2 * MIB, requires_grad=True)  # 8 MiB
        loss = weight.exp().sum()
        with pytest.raises(torch.OutOfMemoryError):
            loss.backward()
        assert weight.grad is None
