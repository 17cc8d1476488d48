"""A scripted counter that checks how it is used: misuse that would silently spoil readings on a device fails
a test here.

The contract of a peak counter:

1. It is claimed once, and only its owner resets it.
2. Live bytes are read only while no work is pending: synchronize first. Peaks may be looked at in mid-air (they are
   host-side), but never before the first reset: until then they belong to the whole history of the process.
3. A reset never destroys a peak nobody read: after any allocation the peak is read before it is reset.
4. Nothing is read or reset while the environment is refused.
"""

from __future__ import annotations

import torch

from adapters.torch_memory.counter import Claims
from adapters.torch_memory.cpu_counter import StorageCounter
from adapters.torch_memory.trust import Refusal


class ContractViolation(AssertionError):
    """The counter was used in a way that gives wrong readings on a real device."""


class ContractCounter:
    """A counter whose bytes the test moves: `allocate`, `free`, `foreign_reset`. Breaches raise
    `ContractViolation`.

    `loses_live_bytes`: its reset also forgets what is live, as one backend did (37.238 GiB read as 6.867).
    """

    def __init__(self, *, live_bytes: int = 0, loses_live_bytes: bool = False) -> None:
        self.live_bytes = live_bytes
        self.peak_bytes = live_bytes
        self.refused: Refusal | None = None
        self._loses_live_bytes = loses_live_bytes
        self._claims = Claims()
        self._was_reset = False
        self._has_unread_peak = False
        self._has_pending_work = False

    # What the test does
    # -------------------------------------------------------------------------------------------

    def allocate(self, size_bytes: int) -> None:
        """Work that allocates; its figures are final only after a synchronization."""
        self.live_bytes += size_bytes
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes
            self._has_unread_peak = True
        self._has_pending_work = True

    def free(self, size_bytes: int) -> None:
        """Work that frees."""
        self.live_bytes -= size_bytes
        self._has_pending_work = True

    def touch(self, size_bytes: int) -> None:
        """Allocate and free again: moves the peak only."""
        self.allocate(size_bytes)
        self.free(size_bytes)

    def foreign_reset(self) -> None:
        """What any code in the process can do."""
        self.peak_bytes = self.live_bytes
        self._has_unread_peak = False

    # The counter
    # --------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """A device of its own, so that it never collides with a real one."""
        return torch.device("meta")

    def claim(self, owner: object) -> None:
        """See `MemoryCounter.claim`."""
        self._claims.claim(self.device, owner)

    def release(self, owner: object) -> None:
        """See `MemoryCounter.release`."""
        self._claims.release(self.device, owner)

    def synchronize(self) -> None:
        """See `MemoryCounter.synchronize`."""
        self._require_trusted("synchronized")
        self._has_pending_work = False

    def allocated(self) -> int:
        """See `MemoryCounter.allocated`."""
        self._require_trusted("read")
        if self._has_pending_work:
            raise ContractViolation("allocated bytes were read while work was pending: synchronize first")
        return self.live_bytes

    def peaks(self) -> tuple[int, ...]:
        """See `MemoryCounter.peaks`."""
        self._require_trusted("read")
        if not self._was_reset:
            raise ContractViolation("the peak was read before the first reset: it belongs to the process's history")
        self._has_unread_peak = False
        return (self.peak_bytes,)

    def reserved_peak(self) -> int:
        """See `MemoryCounter.reserved_peak`. Nothing is cached."""
        return self.peaks()[0]

    def reserved(self) -> int:
        """See `MemoryCounter.reserved`."""
        return self.allocated()

    def releasable(self) -> int:
        """See `MemoryCounter.releasable`."""
        self._require_trusted("read")
        return 0

    def release_cache(self) -> None:
        """See `MemoryCounter.release_cache`."""
        self._require_trusted("released")

    def reset(self, owner: object) -> None:
        """See `MemoryCounter.reset`."""
        self._require_trusted("reset")
        self._claims.require(self.device, owner)
        if self._has_pending_work:
            raise ContractViolation("the peak was reset while work was pending: synchronize first")
        if self._was_reset and self._has_unread_peak:
            raise ContractViolation(f"a reset destroyed a peak of {self.peak_bytes} B that nobody had read")
        if self._loses_live_bytes:
            self.live_bytes = 0
        self.peak_bytes = self.live_bytes
        self._was_reset = True

    def refusal(self) -> Refusal | None:
        """What the test set."""
        return self.refused

    def _require_trusted(self, verb: str) -> None:
        if self.refused is not None:
            raise ContractViolation(f"the counter was {verb} while it is refused: {self.refused}")


class LimitedCounter(StorageCounter):
    """A CPU that runs out of memory as a device of `limit_bytes` would: where more were to be live, the operation whose
    result it was raises. `raised`: how often."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self.limit_bytes = limit_bytes
        self.raised = 0

    def _resize(self, key: int, size_bytes: int) -> int:
        known = self._live.get(key)
        grown_bytes = size_bytes - (0 if known is None else known.size_bytes)
        if grown_bytes > 0 and self._live_bytes + grown_bytes > self.limit_bytes:
            self.raised += 1
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {grown_bytes} bytes.")
        return size_bytes
