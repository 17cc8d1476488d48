"""Which errors mean that the device ran out of memory. Texts as the libraries print them, and their neighbours that
mean something else (E05)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from adapters.torch_memory.out_of_memory import is_out_of_memory, requested_bytes

CUDA_TEXT = (
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.80 GiB of which 512.00 MiB is "
    "free. Of the allocated memory 130.00 GiB is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but "
    "unallocated."
)
OUT_OF_MEMORY_TEXTS = [
    CUDA_TEXT,
    "HIP out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 63.98 GiB",
    "XPU out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 15.91 GiB.",
    "MPS backend out of memory (MPS allocated: 8.89 GB, other allocations: 1.31 GB, max allowed: 9.07 GB). "
    "Tried to allocate 32.00 MB on private pool.",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
    "CUDA driver error: out of memory",
    "CUDA error (/tmp/flash_attn/csrc/flash_bwd_launch_template.h:61): out of memory",
    "HIP error: out of memory\nHIP kernel errors might be asynchronously reported",
    "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "CUDA error: CUSOLVER_STATUS_ALLOC_FAILED when calling `cusolverDnCreate(handle)`",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO "
    "for details), NCCL version 2.26.2\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
    "Cuda failure 2 'out of memory'",
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'",
    "Triton Error [CUDA]: out of memory",
    "Triton Error [HIP]:  Code: 2, Messsage: out of memory",
    "UR backend failed. UR backend returns:39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
]
OTHER_ERRORS = [
    MemoryError(),
    MemoryError("CUDA out of memory. Tried to allocate 1.00 GiB"),  # host memory, whatever it quotes
    OSError(12, "Cannot allocate memory"),
    RuntimeError(
        '[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can\'t allocate memory: you tried to '
        "allocate 137438953472 bytes. Error code 12 (Cannot allocate memory)"
    ),
    RuntimeError("unable to mmap 402653184 bytes from file </torch_1>: Cannot allocate memory (12)"),
    RuntimeError("DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's workers "
                 "are out of shared memory. Please try to raise your shared memory limit."),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    RuntimeError("Triton Error [CUDA]: invalid argument"),
    RuntimeError("NCCL error: unhandled system error\nLast error:\nError while creating shared memory segment"),
    RuntimeError("Cuda failure 700 'an illegal memory access was encountered'"),
    RuntimeError("too many resources requested for launch"),
    ValueError("batch_size=64 may run out of memory; lower it"),
    KeyError("out of memory"),
]  # fmt: skip


class OutOfResources(Exception):
    """Triton's: a kernel that no multiprocessor of this device can hold."""


def test_torchs_own_type() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("anything"))
    assert is_out_of_memory(torch.cuda.OutOfMemoryError("anything"))


@pytest.mark.parametrize("text", OUT_OF_MEMORY_TEXTS)
def test_texts_of_every_library(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))


def test_the_types_that_carry_those_texts() -> None:
    assert is_out_of_memory(torch.distributed.DistBackendError(OUT_OF_MEMORY_TEXTS[15]))
    assert is_out_of_memory(torch.AcceleratorError(OUT_OF_MEMORY_TEXTS[4]))


@pytest.mark.parametrize(("code", "expected"), [(2, True), (700, False), (1, False)])
def test_a_code_decides_where_there_is_one(code: int, expected: bool) -> None:
    error = torch.AcceleratorError("CUDA error: see cudaErrorMemoryAllocation in the manual")
    error.error_code = code  # type: ignore[attr-defined]
    assert is_out_of_memory(error) is expected


@pytest.mark.parametrize("error", OTHER_ERRORS, ids=repr)
def test_what_only_looks_alike(error: Exception) -> None:
    assert not is_out_of_memory(error)


def test_a_kernel_too_large_for_the_device_is_not_out_of_memory() -> None:
    for resource in ("shared memory", "tensor memory", "registers", "threads"):
        error = OutOfResources(f"out of resource: {resource}, Required: 245760, Hardware limit: 232448. Reducing")
        assert not is_out_of_memory(error)


def _wrapped(inner: Exception, *, how: str) -> BaseException:
    try:
        try:
            raise inner
        except Exception as error:
            if how == "cause":
                raise RuntimeError("step 12 failed") from error
            if how == "context":
                raise KeyError("while cleaning up")  # noqa: B904
            if how == "hidden":
                raise KeyError("unrelated") from None
            raise KeyboardInterrupt from error
    except BaseException as outer:
        return outer


@pytest.mark.parametrize(("how", "expected"), [("cause", True), ("context", True), ("hidden", False), ("exit", False)])
@pytest.mark.parametrize("inner", [torch.OutOfMemoryError("x"), RuntimeError("Triton Error [CUDA]: out of memory")])
def test_wrapped_errors(inner: Exception, how: str, expected: bool) -> None:
    assert is_out_of_memory(_wrapped(inner, how=how)) is expected


def test_groups_and_circles() -> None:
    group = ExceptionGroup("ranks", [ValueError("x"), _as_error(_wrapped(torch.OutOfMemoryError("y"), how="cause"))])
    assert is_out_of_memory(group)
    assert not is_out_of_memory(ExceptionGroup("ranks", [ValueError("x")]))
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_out_of_memory(first)
    assert not is_out_of_memory(None)


def _as_error(error: BaseException) -> Exception:
    assert isinstance(error, Exception)
    return error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CUDA_TEXT, 3 << 29),
        ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0", 20 << 20),
        ("CUDA out of memory. Tried to allocate 512 bytes. GPU 0", 512),
        ("HIP out of memory. Tried to allocate 2.50 KiB. GPU 0", 2_560),
        ("MPS backend out of memory (MPS allocated: 8 GB). Tried to allocate 32.00 MB on private pool.", 32 << 20),
        ("CUDA error: out of memory", None),
    ],
)
def test_the_request_that_failed(text: str, expected: int | None) -> None:
    assert requested_bytes(RuntimeError(text)) == expected
    assert requested_bytes(_wrapped(torch.OutOfMemoryError(text), how="cause")) == expected


def test_a_request_is_read_from_an_out_of_memory_error_only() -> None:
    assert requested_bytes(RuntimeError("Tried to allocate 3.00 GiB for the tokenizer")) is None
    assert requested_bytes(None) is None


MAKERS: list[Callable[[str], Exception]] = [RuntimeError, ValueError, torch.distributed.DistBackendError]


@pytest.mark.parametrize("make", MAKERS)
def test_any_type_may_carry_a_librarys_text(make: Callable[[str], Exception]) -> None:
    assert is_out_of_memory(make(OUT_OF_MEMORY_TEXTS[0]))
