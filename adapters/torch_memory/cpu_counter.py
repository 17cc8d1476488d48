"""A true peak counter for machines without an accelerator: the live tensor storage of one thread.

What it counts, to the byte: `nbytes()` of every strided CPU storage that first came out of a PyTorch
operation of this thread while the counter watched (forward, and backward, which on CPU runs in the calling
thread), from that operation's return until the storage dies. Views and in-place results share a storage and
count once. Storage that existed before counts only if it was given to `track`.

What it does not count: scratch memory inside one kernel; storage made in other threads; storage resized
behind PyTorch's back (`UntypedStorage.resize_`) until an operation returns it again; sparse tensors and
tensor subclasses without storage.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from adapters.torch_memory.counter import PROCESS_CLAIMS
from adapters.torch_memory.errors import OwnershipError
from adapters.torch_memory.trust import Unlearnable

# These hand a storage over that no operation made: a literal, a NumPy array, a deep copy. It is new to us all
# the same.
_ADOPTING = frozenset(
    {
        torch.ops.aten.lift.default,
        torch.ops.aten.lift_fresh.default,
        torch.ops.aten.set_.source_Storage,
        torch.ops.aten.set_.source_Storage_storage_offset,
    }
)


class _LiveStorage(weakref.ref[torch.UntypedStorage]):
    """A counted storage: its key (identity while alive), its own size then and the bytes it was counted with."""

    __slots__ = ("key", "raw_bytes", "size_bytes")

    key: int
    raw_bytes: int
    size_bytes: int


class StorageCounter(TorchDispatchMode):
    """Counts live CPU storage. A context manager; `claim` enters it too, for as long as the claim lasts.

    A storage can die anywhere, even in the middle of our own arithmetic (garbage collection). So its death
    only queues it (one atomic append), and the queue is booked at the next allocation or reading. The peak
    stays exact: it can only rise at an allocation, and all deaths before that are booked first.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[int, _LiveStorage] = {}
        self._dead: deque[weakref.ref[torch.UntypedStorage]] = deque()
        self._live_bytes = 0
        self._peak_bytes = 0
        self._peak_storages = 0
        self._thread: int | None = None
        self._entered_by_claim = False

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    # Watching
    # ------------------------------------------------------------------------------------------------------

    def __enter__(self) -> StorageCounter:
        if self._thread is not None:
            raise OwnershipError("this storage counter is watching already")
        super().__enter__()  # type: ignore[no-untyped-call]
        self._thread = threading.get_ident()
        return self

    def __exit__(self, *raised: Any) -> None:
        stack = _get_current_dispatch_mode_stack()
        if not stack or stack[-1] is not self:
            raise OwnershipError("the storage counter must be left in the thread and in the order it was entered")
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._thread = None

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if getattr(func, "namespace", "") == "fsdp":  # they write into storages that were just given their size
            for tensor in _countable((args, kwargs)):
                if self._known(tensor.untyped_storage()) is not None:
                    self._count(tensor.untyped_storage())
        self._book(func, args, kwargs, result)
        return result

    def _book(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Count what an operation returned, where it is new or known already."""
        for tensor in _countable((result,)):
            storage = tensor.untyped_storage()
            if self._known(storage) is not None or func in _ADOPTING or not _holds(storage, args, kwargs):
                self._count(storage)

    def track(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count storage that existed before, such as the weights: `counter.track(model.parameters())`."""
        for tensor in _countable(tuple(tensors)):
            self._count(tensor.untyped_storage())

    # The counter
    # ---------------------------------------------------------------------------------------------------

    def claim(self, owner: object) -> None:
        """See `MemoryCounter.claim`. Starts watching the calling thread unless it already does."""
        PROCESS_CLAIMS.claim(self.device, owner)
        if self._thread is None:
            self.__enter__()
            self._entered_by_claim = True

    def release(self, owner: object) -> None:
        """See `MemoryCounter.release`. Stops watching if the claim started it."""
        PROCESS_CLAIMS.require(self.device, owner)
        if self._entered_by_claim:
            self.__exit__(None, None, None)
            self._entered_by_claim = False
        PROCESS_CLAIMS.release(self.device, owner)

    def synchronize(self) -> None:
        """Nothing to wait for: CPU operations are done when they return."""

    def allocated(self) -> int:
        """Live bytes now."""
        self._recount()
        return self._live_bytes

    def peaks(self) -> tuple[int, ...]:
        """Peak live bytes and, as a witness, the peak number of live storages."""
        return self._peak_bytes, self._peak_storages

    def reserved_peak(self) -> int:
        """The peak of the live bytes: nothing is cached, nothing is rounded."""
        return self._peak_bytes

    def reserved(self) -> int:
        """The live bytes."""
        return self.allocated()

    def releasable(self) -> int:
        """Nothing."""
        return 0

    def release_cache(self) -> None:
        """Nothing is cached."""

    def reset(self, owner: object) -> None:
        """Start new peaks at what is live."""
        PROCESS_CLAIMS.require(self.device, owner)
        self.reset_peak()

    def reset_peak(self) -> None:
        """What any code in the process can do to a device's counter
        (`torch.cuda.reset_peak_memory_stats`)."""
        self._recount()
        self._peak_bytes = self._live_bytes
        self._peak_storages = len(self._live)

    def refusal(self) -> Unlearnable | None:
        """`counter_not_watching` unless the calling thread is the one that is watched."""
        return None if self._thread == threading.get_ident() else Unlearnable.COUNTER_NOT_WATCHING

    # Bookkeeping
    # ---------------------------------------------------------------------------------------------------

    def _known(self, storage: torch.UntypedStorage) -> _LiveStorage | None:
        """The entry of `storage`. An entry under the same key may be of a dead one whose identity was given
        again."""
        entry = self._live.get(id(storage))
        return entry if entry is not None and entry() is storage else None

    def _resize(self, key: int, size_bytes: int) -> int:
        """A storage now takes `size_bytes`; 0: it died. Returns what is counted for it. A counter that stands for
        another allocator asks it here, and raises where it has no memory left; the storage is then not counted."""
        return size_bytes

    def _count(self, storage: torch.UntypedStorage) -> None:
        """Book `storage` at its present size, and the peak."""
        self._bury()
        entry = self._known(storage)
        size_bytes = self._resize(id(storage), storage.nbytes())
        if entry is None:
            entry = _LiveStorage(storage, self._dead.append)
            entry.key, entry.raw_bytes, entry.size_bytes = id(storage), 0, 0
            self._live[entry.key] = entry
        self._live_bytes += size_bytes - entry.size_bytes
        entry.raw_bytes, entry.size_bytes = storage.nbytes(), size_bytes
        self._peak_bytes = max(self._peak_bytes, self._live_bytes)
        self._peak_storages = max(self._peak_storages, len(self._live))

    def _recount(self) -> None:
        """Book deaths, and sizes that changed without an operation: what was gathered and is given back (FSDP)."""
        self._bury()
        for entry in list(self._live.values()):
            storage = entry()
            if storage is not None and (entry.raw_bytes > 0) != (storage.nbytes() > 0):
                self._count(storage)

    def _bury(self) -> None:
        """Book the storages that died since the last call."""
        while self._dead:
            entry = self._dead.popleft()
            assert isinstance(entry, _LiveStorage)
            buried = self._live.pop(entry.key)
            assert buried is entry, "two live storages under one identity"
            self._resize(entry.key, 0)
            self._live_bytes -= entry.size_bytes
        assert self._live_bytes >= 0


def _holds(storage: torch.UntypedStorage, *values: object) -> bool:
    """Whether one of the tensors in `values` lives in `storage`: what comes out of the operation is not
    new."""
    return any(storage is given.untyped_storage() for given in _countable(values))


def _countable(values: object) -> Iterator[torch.Tensor]:
    """The strided CPU tensors in nested tuples, lists and dicts, in order."""
    if isinstance(values, torch.Tensor):
        if values.device.type == "cpu" and values.layout is torch.strided:
            yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _countable(value)
    elif isinstance(values, dict):
        for value in values.values():
            yield from _countable(value)
