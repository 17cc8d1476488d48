"""Out of memory by any of its names: which errors mean that the device, not the host and not a kernel's own
limits, ran out of memory.

By type and code where there is one: `torch.OutOfMemoryError` (CUDA, ROCm and XPU allocators raise it) and
`torch.AcceleratorError` of code 2. Everything else that allocates on a device raises a plain `RuntimeError`, and only
its text tells: cuBLAS and its sisters, cuDNN, NCCL, Triton, the driver API, Metal. `TEXTS` is that list; a text
belongs there only if nothing but exhausted device memory produces it.

What looks alike and is something else: `MemoryError` and the CPU allocator's error (host memory), Triton's
`OutOfResources` (a kernel asks for more shared memory or registers than a multiprocessor has), shared memory of data
loaders (`/dev/shm`), a file that cannot be mapped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

OUT_OF_MEMORY_CODE = 2
"""`cudaErrorMemoryAllocation` and `hipErrorOutOfMemory`: what `torch.AcceleratorError.error_code` says."""

TEXTS = (
    # PyTorch's allocators, where something passed the text on without the type (a worker process, an old build).
    r"\b(?:CUDA|HIP|XPU) out of memory\. Tried to allocate",
    r"\bMPS backend out of memory \(",
    # A failed runtime or driver call: "CUDA error: ...", "CUDA driver error: ...", "CUDA error (file:line): ...".
    r"\b(?:CUDA|HIP)(?: driver| runtime)? error(?: \([^)\n]*\))?: out of memory",
    r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)\b",
    r"\b(?:UR_RESULT|ZE_RESULT|PI)_ERROR_OUT_OF_DEVICE_MEMORY\b",
    # Libraries: their status codes for a device allocation that failed.
    r"\b(?:CUBLAS|HIPBLAS|CUSPARSE|HIPSPARSE|CUSOLVER|HIPSOLVER|CUDNN)_STATUS_ALLOC_FAILED\b",
    r"\bCUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED\b",
    r"\bCUFFT_ALLOC_FAILED\b",
    r"\b(?:rocblas_status_memory_error|miopenStatusAllocFailed)\b",
    # NCCL and RCCL, which quote the runtime's error: "Cuda failure 2 'out of memory'" (older: without the code).
    r"\b(?:Cuda|Hip|HIP) failure(?: \d+)? '?out of memory\b",
    # Triton's launcher: "Triton Error [CUDA]: out of memory", "Triton Error [HIP]: Code: 2, Message: out of memory".
    r"\bTriton Error \[\w+\]:[^\n]*\bout of memory\b",
)
"""Texts of device memory that ran out, as regular expressions."""

_TEXT = re.compile("|".join(TEXTS))
_REQUEST = re.compile(r"Tried to allocate (\d+(?:\.\d+)?) ?(bytes|[KMGT]i?B)\b")
_UNIT_BYTES = {"bytes": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether `error` says that the device ran out of memory: itself, or an error that it wraps or that it was raised
    while handling (`raise ... from None` hides the latter), or one of a group.

    An interrupt or an exit is none, whatever it interrupted.
    """
    return isinstance(error, Exception) and any(_names_it(inner) for inner in _chain(error))


def requested_bytes(error: BaseException | None) -> int | None:
    """What the allocation that failed had asked the driver for, as far as the error's text tells (its two decimals);
    None where it does not."""
    for inner in _chain(error):
        found = _REQUEST.search(str(inner)) if _names_it(inner) else None
        if found is not None:
            amount, unit = found.groups()
            return round(float(amount) * _UNIT_BYTES[unit if unit == "bytes" else unit[0]])
    return None


def _names_it(error: BaseException) -> bool:
    """Whether this error alone says so."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    if isinstance(error, MemoryError | OSError) or not isinstance(error, Exception):
        return False
    accelerator_error = getattr(torch, "AcceleratorError", None)  # torch 2.9 has it without the code
    if accelerator_error is not None and isinstance(error, accelerator_error):
        code = getattr(error, "error_code", None)
        if code is not None:
            return bool(code == OUT_OF_MEMORY_CODE)
    return _TEXT.search(str(error)) is not None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """`error`, what it wraps, what it was raised while handling, and the members of groups; each once, outermost
    first."""
    waiting, seen = [error], set[int]()
    while waiting:
        inner = waiting.pop(0)
        if inner is None or id(inner) in seen:
            continue
        seen.add(id(inner))
        yield inner
        waiting.append(inner.__cause__)
        if not inner.__suppress_context__:
            waiting.append(inner.__context__)
        if isinstance(inner, BaseExceptionGroup):
            waiting.extend(inner.exceptions)
