"""Peak counters: what the meter reads, and who may reset it.

Each device has one peak counter, process-wide, and any code can reset it. So a counter is *claimed* by one
owner, and only the owner may reset it through this interface.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from adapters.torch_memory.errors import OwnershipError
from adapters.torch_memory.trust import Unlearnable, allocator_refusal


class MemoryCounter(Protocol):
    """One device's allocation counter. All figures are bytes unless said otherwise; none may be estimated."""

    @property
    def device(self) -> torch.device:
        """The device whose bytes are counted."""

    def claim(self, owner: object) -> None:
        """Make `owner` the only one who may reset. Raises `OwnershipError` while another owner holds the
        device."""

    def release(self, owner: object) -> None:
        """Give the device up. Raises `OwnershipError` if `owner` does not hold it."""

    def synchronize(self) -> None:
        """Wait until the device has done what was asked of it, so that the figures are final."""

    def allocated(self) -> int:
        """Live bytes now."""

    def peaks(self) -> tuple[int, ...]:
        """Peak allocated bytes since the last reset, then further peaks that the same reset clears.

        The further ones are witnesses: none of them can fall without a reset, so the more there are, the
        harder it is for a foreign reset to hide. Always of the same length.
        """

    def reserved_peak(self) -> int:
        """Peak bytes held from the driver since the last reset, idle cache included. The same reset clears it."""

    def reserved(self) -> int:
        """Bytes held from the driver now, idle cache included."""

    def releasable(self) -> int:
        """Idle cached bytes that `release_cache` would give back, as far as the figures tell; 0 right after it."""

    def release_cache(self) -> None:
        """Give idle cache back to the driver."""

    def reset(self, owner: object) -> None:
        """Start a new peak at the live bytes. Raises `OwnershipError` unless `owner` holds the device."""

    def refusal(self) -> Unlearnable | None:
        """Why nothing read now may be believed, or None. While it is not None the other methods must not be
        called."""


class Claims:
    """Which owner holds which device. One instance for the process; tests make their own."""

    def __init__(self) -> None:
        self._owners: dict[torch.device, object] = {}
        self._lock = threading.Lock()

    def claim(self, device: torch.device, owner: object) -> None:
        """Give `device` to `owner`. Raises `OwnershipError` if it is taken."""
        with self._lock:
            if device in self._owners:
                raise OwnershipError(f"the peak counter of {device} already has an owner: one meter a device")
            self._owners[device] = owner

    def release(self, device: torch.device, owner: object) -> None:
        """Take `device` back from `owner`. Raises `OwnershipError` if it was not theirs."""
        with self._lock:
            self._require(device, owner)
            del self._owners[device]

    def require(self, device: torch.device, owner: object) -> None:
        """Check that `owner` holds `device`. Raises `OwnershipError`."""
        with self._lock:
            self._require(device, owner)

    def owners(self) -> tuple[object, ...]:
        """Who holds a device now."""
        with self._lock:
            return tuple(self._owners.values())

    def _require(self, device: torch.device, owner: object) -> None:
        if self._owners.get(device) is not owner:
            raise OwnershipError(f"the peak counter of {device} belongs to another owner, or to none")


PROCESS_CLAIMS = Claims()

# Peaks of the caching allocator that one reset clears together. A key a device type does not keep reads 0,
# and 0 never falls.
WITNESSES = (
    "allocation.all.peak",
    "active_bytes.all.peak",
    "requested_bytes.all.peak",
    "allocated_bytes.small_pool.peak",
    "allocated_bytes.large_pool.peak",
    "allocation.small_pool.peak",
    "allocation.large_pool.peak",
)


def allocator_figures(device: torch.device) -> Mapping[str, Any]:
    """The caching allocator's statistics; read them with `figure`.

    Nested on CUDA, as the allocator gives them: the flat form is built and sorted anew at every reading, and a metered
    wave reads them at every look.
    """
    if device.type == "cuda":
        return torch.cuda.memory_stats_as_nested_dict(device)
    return torch.accelerator.memory.memory_stats(device)


def figure(figures: Mapping[str, Any], name: str) -> int:
    """One statistic by its dotted name, 0 where the device keeps none of that name."""
    if name in figures:
        return int(figures[name])
    value: Any = figures
    for part in name.split("."):
        value = value.get(part, 0) if isinstance(value, Mapping) else 0
    return int(value)


def _idle_bytes(figures: Mapping[str, Any]) -> int:
    """Bytes held from the driver that no block uses (blocks that another stream still awaits count as used)."""
    in_use = max(figure(figures, "allocated_bytes.all.current"), figure(figures, "active_bytes.all.current"))
    return max(0, figure(figures, "reserved_bytes.all.current") - in_use)


def indexed(device: torch.device | str) -> torch.device:
    """An accelerator with its index, the current one where none is given: some of torch's questions refuse "cuda"."""
    device = torch.device(device)
    index = torch.accelerator.current_device_index() if device.index is None else device.index
    return torch.device(device.type, index)


class AcceleratorCounter:
    """The caching allocator's own counter, through `torch.accelerator` (CUDA, ROCm, XPU and others that keep
    one)."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = indexed(device)
        self._allocator_refusal = allocator_refusal(self._device)
        self._pinned_bytes = 0  # idle after the last release

    @property
    def device(self) -> torch.device:
        """The device, always with its index."""
        return self._device

    def claim(self, owner: object) -> None:
        """See `MemoryCounter.claim`."""
        PROCESS_CLAIMS.claim(self._device, owner)

    def release(self, owner: object) -> None:
        """See `MemoryCounter.release`."""
        PROCESS_CLAIMS.release(self._device, owner)

    def synchronize(self) -> None:
        """Wait for every stream of the device: blocks whose frees wait for another stream are then
        returned."""
        torch.accelerator.synchronize(self._device)

    def allocated(self) -> int:
        """Bytes in allocated blocks (rounded by the allocator), this process only."""
        return figure(allocator_figures(self._device), "allocated_bytes.all.current")

    def peaks(self) -> tuple[int, ...]:
        """Peak allocated bytes, then `WITNESSES`. Host-side figures: reading them does not wait for the
        device."""
        figures = allocator_figures(self._device)
        return (figure(figures, "allocated_bytes.all.peak"), *(figure(figures, key) for key in WITNESSES))

    def reserved_peak(self) -> int:
        """Peak bytes in segments."""
        return figure(allocator_figures(self._device), "reserved_bytes.all.peak")

    def reserved(self) -> int:
        """Bytes in segments now."""
        return figure(allocator_figures(self._device), "reserved_bytes.all.current")

    def releasable(self) -> int:
        """Idle bytes less pieces of split segments, and less what the last release left idle: pages of expandable
        segments that hold something else too, and private pools."""
        figures = allocator_figures(self._device)
        idle_bytes = _idle_bytes(figures)
        self._pinned_bytes = min(self._pinned_bytes, idle_bytes)
        return max(0, idle_bytes - max(self._pinned_bytes, figure(figures, "inactive_split_bytes.all.current")))

    def release_cache(self) -> None:
        """Give whole idle segments, and whole idle pages of expandable ones, back to the driver."""
        torch.accelerator.memory.empty_cache()
        self._pinned_bytes = _idle_bytes(allocator_figures(self._device))

    def reset(self, owner: object) -> None:
        """Reset all peak statistics of the device."""
        PROCESS_CLAIMS.require(self._device, owner)
        torch.accelerator.memory.reset_peak_memory_stats(self._device)

    def refusal(self) -> Unlearnable | None:
        """The allocator's refusal, or `stream_capture` while the current stream is being captured."""
        if self._allocator_refusal is not None:
            return self._allocator_refusal
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return Unlearnable.STREAM_CAPTURE
        return None
