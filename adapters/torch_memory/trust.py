"""When a reading may be believed: the named flaws that make it incomplete, and the named refusals to learn
from it.

A **flaw** leaves a true lower bound of the peak: the reading is passed on as `interrupted` and can only raise
a price. A **refusal** leaves no figure worth having: no reading is made.

What else can happen to a reading, and what is done about it:

- **Another interval of this meter opens**: it resets the peak. Banked before the reset; the outer one is flawed
  `nested_interval`.
- **Somebody else resets the peak**, hiding what came before. Flawed `foreign_reset` once any peak figure fell below
  what was seen. Looks are taken at the forward's return, when backward starts and ends, at nested opens and
  at close; a reset that every figure overtakes again before the next look is not seen.
- **Memory from before the interval is freed inside it**: the peak above the baseline reads low by as much. Outputs of
  earlier intervals and the parameters' gradients are followed until they die, and the drop of live bytes at the close
  shows the rest where nothing
  hides it; either is added to the reading. Anything else that is freed and made again inside hides: only the price
  of waves that follow the same pattern is right then.
- **Another thread allocates on the device**: its bytes land in the reading. It reads high while that thread
  allocates, low if it frees inside the interval what it held before. Counters cannot tell: give a device to
  one thread. Intervals opened in two threads flaw each other.
- **Another process allocates**: nothing happens, the counters are this process's own. Only the budget sees it,
  through the driver's free bytes.
- **A library allocates past the allocator** (NCCL, cuBLAS handles): likewise, only the budget sees it.
- **`cudaMallocAsync` backend**: frees take effect in stream order and peaks are the driver pool's. Refused:
  `cuda_malloc_async`.
- **A pluggable allocator** has no statistics, or its own. Refused: `pluggable_allocator`.
- **`PYTORCH_NO_CUDA_MEMORY_CACHING`**: allocations bypass the counters. Refused: `uncached_allocator`.
- **Stream capture** (CUDA graphs): synchronizing is illegal, and replays allocate nothing. Refused: `stream_capture`.
- **Expandable segments, rounding and split options**: allocated bytes stay true, block rounding differs a little.
  Trusted; `environment_facts` carries the settings, so that a profile learned under others is refused.
- **Idle pages of expandable segments**: the allocator leaves them out of its inactive splits although a release gives
  back whole pages only, so cache that can be reused reads high. Private pools likewise. The budget finds out at its
  first release what does not come back, and counts it out from then on.
- **Gradients**: what a wave makes and leaves is taken off its reading, what it lets go is added (`gradients`). Without
  the account of the parameters both are read as rows.
- **Optimizer states**: cut out at `torch.optim` steps; of another optimizer noticed by what stays after backward.
"""

from __future__ import annotations

import os
from enum import StrEnum

import torch


class Flaw(StrEnum):
    """Why an interval may have missed its own peak. Its reading is `interrupted`: it may raise a price, never
    lower one."""

    NESTED_INTERVAL = "nested_interval"
    """Another interval of the same meter opened inside, and reset the counter. The delta is the composed
    maximum."""

    OVERLAPPED = "overlapped"
    """The interval outlived one that was open before it, or another thread had one open: frees of theirs fell
    inside."""

    FOREIGN_RESET = "foreign_reset"
    """A peak figure fell below what had been seen: somebody else reset the counter."""

    BACKWARD_NOT_SEEN = "backward_not_seen"
    """Some output that requires grad did not have its whole graph run before the interval ended."""

    STEP_BEFORE_BACKWARD = "step_before_backward"
    """An optimizer stepped inside the wave before its backward had run. The step is cut out of the reading."""

    ZERO_COMPUTE = "zero_compute"
    """A wave with gradients whose peak is no higher than its outputs: it cannot have run."""

    BROKE_OFF = "broke_off"
    """The forward or the loop body raised, broke off, or the iterator was closed."""

    CROSSED_THREADS = "crossed_threads"
    """Opened in one thread and ended in another."""


class Unlearnable(StrEnum):
    """Why nothing at all may be learned from an interval."""

    PEAK_BELOW_BASELINE = "peak_below_baseline"
    """No allocator can produce it: the counter was reset by a backend that also forgets live bytes, or is
    another's."""

    RESET_CHANGED_LIVE_BYTES = "reset_changed_live_bytes"
    """Right after the reset the counter did not stand at the live bytes: the reset cleared them, or another
    thread allocated in between."""

    CUDA_MALLOC_ASYNC = "cuda_malloc_async"
    PLUGGABLE_ALLOCATOR = "pluggable_allocator"
    UNCACHED_ALLOCATOR = "uncached_allocator"
    STREAM_CAPTURE = "stream_capture"

    COUNTER_NOT_WATCHING = "counter_not_watching"
    """The CPU counter is not the dispatch mode of this thread, so it sees none of its allocations."""

    DISCARDED = "discarded"
    """The caller threw the interval away (an out-of-memory error after admission teaches nothing)."""


def allocator_refusal(device: torch.device) -> Unlearnable | None:
    """Why the allocator of `device` cannot be metered, or None. Constant for the life of the process."""
    if device.type != "cuda":
        return None
    backend = torch.cuda.get_allocator_backend()
    if backend == "cudaMallocAsync":
        return Unlearnable.CUDA_MALLOC_ASYNC
    if backend != "native":
        return Unlearnable.PLUGGABLE_ALLOCATOR
    switches = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
    if any(os.environ.get(switch, "0") not in ("", "0") for switch in switches):
        return Unlearnable.UNCACHED_ALLOCATOR
    return None


def environment_facts(device: torch.device | str) -> dict[str, str]:
    """What a profile learned on `device` depends on besides the model; a profile file keeps it and is refused
    elsewhere.

    Keys: device, total_bytes, torch, allocator, allocator_settings. All values are text.
    """
    device = torch.device(device)
    facts = {"device": device.type, "total_bytes": "", "torch": torch.__version__, "allocator": "storage_counter"}
    facts["allocator_settings"] = _allocator_settings()
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts["device"] = properties.name
        facts["total_bytes"] = str(properties.total_memory)
        facts["allocator"] = torch.cuda.get_allocator_backend()
    elif device.type != "cpu":
        facts["allocator"] = "native"
    return facts


def _allocator_settings() -> str:
    """The live settings string where this torch tells it (they can change at run time), else the
    environment's."""
    live = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    text: str = live() if live is not None else ""
    return text or os.environ.get("PYTORCH_ALLOC_CONF", os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""))
