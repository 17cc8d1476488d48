"""A caching allocator without a device: small, but it fragments and runs out of memory as PyTorch's does.

It hands out addresses, no memory. What it keeps of the native CUDA allocator (PyTorch's notes on memory management, and
`evidence/h200-physical` for what comes of them): sizes in steps of 512 B; a pool of small blocks (up to 1 MiB, from
segments of 2 MiB) and one of large blocks (from segments of 20 MiB below 10 MiB, of their own size in steps of 2 MiB
from there on); the best fitting idle block first; splits of what is left where it is large enough; neighbours merged
when freed; segments kept when idle, and given back all together before an allocation fails. Expandable segments grow
and shrink by pages instead, and an idle page that holds something else too stays.

What it leaves out: streams (one only), rounding to powers of two, a largest size of splits, garbage collection by
threshold, private pools.

`AllocatorCounter` is a device on the CPU that allocates from it: every tensor storage takes a block.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import torch

from adapters.torch_memory.budget import MemorySample
from adapters.torch_memory.cpu_counter import StorageCounter

KIB, MIB = 1 << 10, 1 << 20
STEP_BYTES = 512
SMALL_BYTES = MIB
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
OWN_SEGMENT_BYTES = 10 * MIB
OWN_SEGMENT_STEP_BYTES = 2 * MIB


class State(Enum):
    """What a stretch of a segment is."""

    IN_USE = "in use"
    IDLE = "idle"
    UNMAPPED = "unmapped"
    """Address space of an expandable segment without memory behind it."""


@dataclass(slots=True, eq=False)
class Segment:
    """What was taken from the driver in one piece (an expandable one: address space, page by page)."""

    number: int
    size_bytes: int
    is_small: bool
    page_bytes: int | None = None  # expandable ones only

    @property
    def is_expandable(self) -> bool:
        return self.page_bytes is not None


@dataclass(slots=True, eq=False)
class Block:
    """A stretch of a segment, with its neighbours."""

    segment: Segment
    offset_bytes: int
    size_bytes: int
    state: State
    requested_bytes: int = 0
    before: Block | None = field(default=None, repr=False)
    after: Block | None = field(default=None, repr=False)

    @property
    def end_bytes(self) -> int:
        return self.offset_bytes + self.size_bytes

    @property
    def is_split(self) -> bool:
        """Whether it is a piece of its segment."""
        return self.before is not None or self.after is not None


_Key = tuple[int, int, int]


class _Pool:
    """The idle blocks of one kind, smallest first, of equal ones the lowest."""

    def __init__(self) -> None:
        self._keys: list[_Key] = []
        self._blocks: dict[_Key, Block] = {}

    def __iter__(self) -> Iterator[Block]:
        return iter([self._blocks[key] for key in self._keys])

    def add(self, block: Block) -> None:
        key = _key(block)
        insort(self._keys, key)
        self._blocks[key] = block

    def remove(self, block: Block) -> None:
        key = _key(block)
        del self._blocks[key]
        del self._keys[bisect_left(self._keys, key)]

    def best_fit(self, size_bytes: int) -> Block | None:
        at = bisect_left(self._keys, (size_bytes, -1, -1))
        return self._blocks[self._keys[at]] if at < len(self._keys) else None


def _key(block: Block) -> _Key:
    return block.size_bytes, block.segment.number, block.offset_bytes


class SimulatedAllocator:
    """A device of `limit_bytes`. Figures are bytes.

    allocated_bytes: in blocks that are in use, rounded; peak_allocated_bytes, peak_reserved_bytes: since `reset_peaks`.
    reserved_bytes: taken from the driver. requested_bytes: in use, not rounded. alloc_retries: how often
    the cache was given back because an allocation would have failed; ooms: how often it failed all the same.
    """

    def __init__(self, limit_bytes: int, *, expandable: bool = False) -> None:
        self.limit_bytes = limit_bytes
        self.expandable = expandable
        self.allocated_bytes = self.reserved_bytes = self.requested_bytes = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = 0
        self.alloc_retries = self.ooms = 0
        self._pools = {True: _Pool(), False: _Pool()}
        self._first: dict[Segment, Block] = {}
        self._made = 0

    # Allocating ------------------------------------------------------------------------------------------------------

    def allocate(self, requested_bytes: int) -> Block:
        """A block of at least `requested_bytes` (at least 1). Raises `torch.OutOfMemoryError`, with nothing changed but
        an emptied cache, where there is none to be had."""
        size_bytes = max(STEP_BYTES, _up(requested_bytes, STEP_BYTES))
        is_small = size_bytes <= SMALL_BYTES
        block = self._found(size_bytes, is_small)
        if block is None:
            self.alloc_retries += 1
            self.empty_cache()
            block = self._found(size_bytes, is_small)
        if block is None:
            self.ooms += 1
            raise torch.OutOfMemoryError(self._out_of_memory_text(requested_bytes))
        self._take(block, size_bytes, requested_bytes)
        return block

    def free(self, block: Block) -> None:
        """Take a block back into the cache, merged with idle neighbours."""
        assert block.state is State.IN_USE, "freed twice"
        self.allocated_bytes -= block.size_bytes
        self.requested_bytes -= block.requested_bytes
        block.requested_bytes = 0
        self._idle(block)

    def empty_cache(self) -> None:
        """Give whole idle segments, and whole idle pages of expandable ones, back to the driver."""
        for pool in self._pools.values():
            for block in pool:
                if block.segment.is_expandable:
                    self._unmap(block)
                elif not block.is_split:
                    self._unlist(block)
                    del self._first[block.segment]
                    self.reserved_bytes -= block.size_bytes

    @property
    def inactive_split_bytes(self) -> int:
        """Idle pieces of native segments; pages of expandable ones are left out, as by PyTorch's statistics."""
        return sum(
            block.size_bytes
            for pool in self._pools.values()
            for block in pool
            if block.is_split and not block.segment.is_expandable
        )

    @property
    def releasable_bytes(self) -> int:
        """What `empty_cache` would give back."""
        whole = 0
        for pool in self._pools.values():
            for block in pool:
                start, end = _whole_pages(block)
                whole += max(0, end - start)
        return whole

    def reset_peaks(self) -> None:
        """Start new peaks at what is."""
        self.peak_allocated_bytes, self.peak_reserved_bytes = self.allocated_bytes, self.reserved_bytes

    def segments(self) -> list[list[Block]]:
        """Every segment's blocks, in order."""
        return [list(_from(first)) for first in self._first.values()]

    # Inside ----------------------------------------------------------------------------------------------------------

    def _found(self, size_bytes: int, is_small: bool) -> Block | None:
        """An idle block of at least `size_bytes`, from the cache or the driver."""
        block = self._pools[is_small].best_fit(size_bytes)
        if block is not None:
            return block
        return self._mapped(size_bytes, is_small) if self.expandable else self._new_segment(size_bytes, is_small)

    def _new_segment(self, size_bytes: int, is_small: bool) -> Block | None:
        segment_bytes = _segment_bytes(size_bytes, is_small)
        if self.reserved_bytes + segment_bytes > self.limit_bytes:
            return None
        block = Block(self._segment(segment_bytes, is_small), 0, segment_bytes, State.IDLE)
        self._first[block.segment] = block
        self._reserve(segment_bytes)
        self._list(block)
        return block

    def _mapped(self, size_bytes: int, is_small: bool) -> Block | None:
        """Memory behind the first stretch of address space, idle and unmapped together, that is large enough."""
        page_bytes = SMALL_SEGMENT_BYTES if is_small else LARGE_SEGMENT_BYTES
        first = next((each for segment, each in self._first.items() if segment.is_small == is_small), None)
        if first is None:
            space_bytes = _up(2 * self.limit_bytes + page_bytes, page_bytes)
            first = Block(self._segment(space_bytes, is_small, page_bytes), 0, space_bytes, State.UNMAPPED)
            self._first[first.segment] = first
        run: list[Block] = []
        for block in _from(first):
            run = [] if block.state is State.IN_USE else [*run, block]
            if run and block.end_bytes - run[0].offset_bytes >= size_bytes:
                break
        else:
            return None
        start, end = run[0].offset_bytes, run[0].offset_bytes + size_bytes
        parts = [
            (block, _up(min(block.end_bytes, end) - block.offset_bytes, page_bytes))
            for block in run
            if block.state is State.UNMAPPED
        ]
        if self.reserved_bytes + sum(part_bytes for _, part_bytes in parts) > self.limit_bytes:
            return None
        for block, part_bytes in parts:
            self._cut(block, part_bytes)
            self._reserve(part_bytes)
            block = self._idle(block)
        assert block.offset_bytes == start and block.size_bytes >= size_bytes
        return block

    def _unmap(self, block: Block) -> None:
        """Give the whole pages of an idle block of an expandable segment back."""
        start, end = _whole_pages(block)
        if end <= start:
            return
        self._unlist(block)
        if start > block.offset_bytes:
            rest = self._cut(block, start - block.offset_bytes)
            self._list(block)
            block = rest
        if end < block.end_bytes:
            self._list(self._cut(block, end - block.offset_bytes))
        block.state = State.UNMAPPED
        self.reserved_bytes -= block.size_bytes
        self._merge(block)

    def _take(self, block: Block, size_bytes: int, requested_bytes: int) -> None:
        """Use the start of an idle block, and all of it where what is left is too small to keep apart."""
        self._unlist(block)
        left_bytes = block.size_bytes - size_bytes
        is_kept_apart = left_bytes >= STEP_BYTES if block.segment.is_small else left_bytes > SMALL_BYTES
        if is_kept_apart or (left_bytes > 0 and block.segment.is_expandable):
            self._list(self._cut(block, size_bytes))
        block.state = State.IN_USE
        block.requested_bytes = requested_bytes
        self.allocated_bytes += block.size_bytes
        self.requested_bytes += requested_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)

    def _idle(self, block: Block) -> Block:
        """Make a block idle, merged with its idle neighbours, which it returns."""
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.state is State.IDLE:
                self._unlist(neighbour)
        block.state = State.IDLE
        block = self._merge(block)
        self._list(block)
        return block

    def _merge(self, block: Block) -> Block:
        """Join a block with neighbours of its state. None of them may be listed."""
        if block.after is not None and block.after.state is block.state:
            self._join(block)
        if block.before is not None and block.before.state is block.state:
            block = block.before
            self._join(block)
        return block

    def _join(self, block: Block) -> None:
        """Join a block with the one after it."""
        other = block.after
        assert other is not None
        block.size_bytes += other.size_bytes
        block.after = other.after
        if other.after is not None:
            other.after.before = block

    def _cut(self, block: Block, size_bytes: int) -> Block:
        """Cut a block that is not listed after `size_bytes`; the rest, not listed either, where there is one."""
        if size_bytes == block.size_bytes:
            return block
        rest = Block(block.segment, block.offset_bytes + size_bytes, block.size_bytes - size_bytes, block.state)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.size_bytes = rest, size_bytes
        return rest

    def _list(self, block: Block) -> None:
        self._pools[block.segment.is_small].add(block)

    def _unlist(self, block: Block) -> None:
        self._pools[block.segment.is_small].remove(block)

    def _segment(self, size_bytes: int, is_small: bool, page_bytes: int | None = None) -> Segment:
        self._made += 1
        return Segment(self._made, size_bytes, is_small, page_bytes)

    def _reserve(self, size_bytes: int) -> None:
        self.reserved_bytes += size_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _out_of_memory_text(self, requested_bytes: int) -> str:
        idle_bytes = self.reserved_bytes - self.allocated_bytes
        return (
            f"Simulated device out of memory. Tried to allocate {_text(requested_bytes)}. The device has a total "
            f"capacity of {_text(self.limit_bytes)} of which {_text(self.limit_bytes - self.reserved_bytes)} is free. "
            f"Of the allocated memory {_text(self.allocated_bytes)} is allocated by PyTorch, and {_text(idle_bytes)} "
            "is reserved by PyTorch but unallocated."
        )


class AllocatorCounter(StorageCounter):
    """The CPU as a device with a caching allocator: every storage takes a block of `allocator`.

    An operation whose result finds none raises `torch.OutOfMemoryError`, as on a device; its result is let go.
    """

    def __init__(self, allocator: SimulatedAllocator) -> None:
        super().__init__()
        self.allocator = allocator
        self._blocks: dict[int, Block] = {}

    def peaks(self) -> tuple[int, ...]:
        """Peak bytes in blocks and, as a witness, the peak number of live storages."""
        return self.allocator.peak_allocated_bytes, self._peak_storages

    def reserved_peak(self) -> int:
        """The allocator's."""
        return self.allocator.peak_reserved_bytes

    def reserved(self) -> int:
        """The allocator's."""
        self._bury()
        return self.allocator.reserved_bytes

    def releasable(self) -> int:
        """What the cache would give back, to the byte."""
        self._bury()
        return self.allocator.releasable_bytes

    def release_cache(self) -> None:
        """Empty the cache."""
        self._bury()
        self.allocator.empty_cache()

    def reset_peak(self) -> None:
        """See `StorageCounter.reset_peak`."""
        super().reset_peak()
        self.allocator.reset_peaks()

    def _resize(self, key: int, size_bytes: int) -> int:
        block = self._blocks.get(key)
        if block is not None and block.requested_bytes == size_bytes:
            return block.size_bytes
        taken = self.allocator.allocate(size_bytes) if size_bytes > 0 else None  # a resize copies: both are there
        if block is not None:
            self.allocator.free(self._blocks.pop(key))
        if taken is None:
            return 0
        self._blocks[key] = taken
        return taken.size_bytes


class AllocatorMemory:
    """The memory of an `AllocatorCounter`'s device, for a `BudgetSampler`."""

    def __init__(self, counter: AllocatorCounter) -> None:
        self._counter = counter

    def sample(self) -> MemorySample:
        """See `MemorySource.sample`."""
        in_use_bytes, allocator = self._counter.allocated(), self._counter.allocator
        return MemorySample(
            free_bytes=max(0, allocator.limit_bytes - allocator.reserved_bytes),
            total_bytes=allocator.limit_bytes,
            in_use_bytes=in_use_bytes,
            reserved_bytes=allocator.reserved_bytes,
            inactive_split_bytes=allocator.inactive_split_bytes,
        )

    def release_cache(self) -> None:
        """See `MemorySource.release_cache`."""
        self._counter.release_cache()


def _segment_bytes(size_bytes: int, is_small: bool) -> int:
    if is_small:
        return SMALL_SEGMENT_BYTES
    return LARGE_SEGMENT_BYTES if size_bytes < OWN_SEGMENT_BYTES else _up(size_bytes, OWN_SEGMENT_STEP_BYTES)


def _whole_pages(block: Block) -> tuple[int, int]:
    """The part of an idle block that a release gives back, as offsets; empty where the end is not above the start."""
    page_bytes = block.segment.page_bytes
    if page_bytes is None:
        return (0, 0) if block.is_split else (0, block.size_bytes)
    return _up(block.offset_bytes, page_bytes), block.end_bytes // page_bytes * page_bytes


def _from(first: Block) -> Iterator[Block]:
    block: Block | None = first
    while block is not None:
        yield block
        block = block.after


def _up(size_bytes: int, step_bytes: int) -> int:
    return -(-size_bytes // step_bytes) * step_bytes


def _text(size_bytes: int) -> str:
    """A size as PyTorch's allocator writes it."""
    for unit, unit_bytes in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.2f} {unit}"
    return f"{size_bytes} bytes"
