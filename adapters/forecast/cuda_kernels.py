"""What CUDA kernels allocate where a CPU runs other operations: stand-ins that compute nothing and allocate the same.

Entered while a forecast is for CUDA, on a machine with or without one. Each stand-in names the tensors that the real
kernel's autograd node makes and saves; `spec/evidence/forecast` says how near that comes to real runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from adapters.trainer_rank.attention import FLEX_STAND_IN


@contextmanager
def cuda_kernels() -> Iterator[None]:
    """FlexAttention and the fused norm inside, by what they allocate."""
    token = FLEX_STAND_IN.set(_flex_attention)
    F.rms_norm = _rms_norm  # backward recomputes through the name, where no mode of ours is active
    try:
        yield
    finally:
        F.rms_norm = _REAL_RMS_NORM
        FLEX_STAND_IN.reset(token)


def _flex_attention(query: Tensor, key: Tensor, value: Tensor, *, return_aux: Any = None, **_: Any) -> Any:
    """Output, and where `return_aux` asks for it the log-sum-exp beside it. A score function allocates nothing."""
    out, normalizer = _FlexAttention.apply(query, key, value)  # type: ignore[no-untyped-call]
    return out if return_aux is None else (out, SimpleNamespace(lse=normalizer))


class _FlexAttention(torch.autograd.Function):
    """Output and log-sum-exp [1, H, P] forward; delta, a gradient of the log-sum-exp, dq, dk and dv backward."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.empty_strided(
            (*query.shape[:-1], value.shape[-1]), _dense_like(query), dtype=query.dtype, device=query.device
        )
        normalizer = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, out, normalizer)
        return out, normalizer

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value, _out, normalizer = ctx.saved_tensors
        _delta = torch.empty_like(normalizer)
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _dense_like(query: Tensor) -> tuple[int, ...]:
    """Strides of a dense tensor whose dimensions lie in memory in the order of `query`'s."""
    strides = [0] * query.dim()
    step = 1
    for dim in sorted(range(query.dim()), key=lambda dim: (query.stride(dim), -dim)):
        strides[dim] = step
        step *= query.shape[dim]
    return tuple(strides)


_REAL_RMS_NORM = F.rms_norm


def _rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """`F.rms_norm` as one kernel: what it saves is its input and one number a row. Other threads get the real one."""
    if not isinstance(input, FakeTensor):
        return _REAL_RMS_NORM(input, normalized_shape, weight, eps)
    out: Tensor = _RmsNorm.apply(input, weight, len(normalized_shape))  # type: ignore[no-untyped-call]
    return out


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor | None, normed: int) -> Tensor:
        inputs = inputs.contiguous()
        scale = inputs.new_empty((*inputs.shape[:-normed], *(1 for _ in range(normed))), dtype=torch.float32)
        ctx.save_for_backward(inputs, weight, scale)
        return torch.empty_like(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        inputs, weight, _scale = ctx.saved_tensors
        wants_input, wants_weight, _ = ctx.needs_input_grad
        gradient = gradients[0].contiguous()
        out = torch.empty_like(inputs) if wants_input else None
        del gradient
        return out, torch.empty_like(weight) if wants_weight else None, None
