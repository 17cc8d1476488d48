"""One wave of a model, run on no device: what it would allocate, phase by phase."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from adapters.forecast.cuda_kernels import cuda_kernels
from adapters.forecast.errors import ForecastError
from adapters.forecast.fake_run import FakeRun, Routing, Target
from adapters.trainer_rank.binding import SKIP_THE_CHECK, ModelFacts, PackedModel, bind_model
from adapters.trainer_rank.execution import packed_forward
from adapters.trainer_rank.request import Request, RequestOutputs, output_bytes
from adapters.trainer_rank.rows import PackedRows
from pricing.kernel.requests import RecomputeMode

Loss = Callable[[Sequence[RequestOutputs]], Tensor]

PHASES = ("decoder forward", "head forward", "loss and head backward", "decoder backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedGroup:
    """One forward of a wave: its rows (on the CPU device; fake when used), requests and grad mode."""

    rows: PackedRows
    requests: Sequence[Request]
    grads: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one wave allocates above what was there before it, in bytes.

    phase_peaks: the peak of each of `PHASES`, outputs included; the wave's own is the largest. made_gradient_bytes: of
    these, gradients of parameters that had none. held_bytes: what is live after the forward. assumed_routing: whether
    the shapes follow `Routing` rather than from the model and its rows. operations: how many the run took.
    """

    packed_rows: int
    logical_rows: int
    grad_segments: int
    output_bytes: int
    phase_peaks: tuple[int, ...]
    made_gradient_bytes: int
    held_bytes: int
    assumed_routing: bool
    operations: int

    @property
    def peak_bytes(self) -> int:
        return max(self.phase_peaks)

    @property
    def phase(self) -> str:
        """The phase that holds the peak."""
        return PHASES[self.phase_peaks.index(self.peak_bytes)]


def sum_of_outputs(outputs: Sequence[RequestOutputs]) -> Tensor:
    """The default loss: the sum of all log-probabilities, and of every other output that was asked for."""
    terms = [tensor.sum() for output in outputs for tensor in output.tensors() if tensor.requires_grad]
    return torch.stack([term.float() for term in terms]).sum()


def trace_wave(
    model: nn.Module,
    groups: Sequence[TracedGroup],
    *,
    target: Target,
    loss: Loss = sum_of_outputs,
    routing: Routing = Routing.BALANCED,
    has_gradients: bool = False,
) -> Trace:
    """Run one wave of `model` under fake tensors: nothing is allocated, nothing computed, the model is left alone.

    model: a live module on any device, or one of fake tensors.
    has_gradients: whether trainable parameters carry gradients already, as after a first wave; otherwise those that
    have one now do. Raises `ForecastError` where the model cannot be run so.
    """
    try:
        return _trace(model, groups, target, loss, routing, has_gradients)
    except ForecastError:
        raise
    except Exception as error:  # whatever a model's own code does where tensors have no values
        raise ForecastError(f"{type(model).__name__} cannot be run without values: {_said(error)}") from error


def facts_without_values(model: nn.Module) -> tuple[ModelFacts, RecomputeMode]:
    """Shapes and recompute mode of a model whose parameters may have no values. Raises `ForecastError`."""
    try:
        with FakeRun(Target.CPU).running():
            bound = bind_model(_fake_copy(model, has_gradients=False), check=SKIP_THE_CHECK)
            return bound.model_facts(), bound.recompute_mode()
    except ForecastError:
        raise
    except Exception as error:  # as in `trace_wave`
        raise ForecastError(f"{type(model).__name__} cannot be run without values: {_said(error)}") from error


def _trace(
    model: nn.Module, groups: Sequence[TracedGroup], target: Target, loss: Loss, routing: Routing, has_gradients: bool
) -> Trace:
    run = FakeRun(target, routing)
    with run.running():
        copied = _fake_copy(model, has_gradients)
        bound = bind_model(copied, check=SKIP_THE_CHECK)
    parameters = list(copied.parameters())
    facts = bound.model_facts()
    present = sum(_bytes(value.grad) for value in parameters if value.grad is not None)
    marks: list[int] = []
    watched = _Watched(bound, lambda: marks.append(run.take_peak()))
    with run.running(), cuda_kernels() if target is Target.CUDA else nullcontext():
        before_bytes = run.allocated()  # the parameters, and what binding left
        run.take_peak()
        outputs: list[RequestOutputs] = []
        forward_peaks = [0, 0]
        for group in groups:
            outputs += packed_forward(watched, group.rows, group.requests, grads=group.grads)
            assert len(marks) == 1, "one decoder call a forward"
            forward_peaks = [max(forward_peaks[0], marks.pop()), max(forward_peaks[1], run.take_peak())]
        held_bytes = run.allocated()
        backward_peaks = [0, 0]
        if any(tensor.requires_grad for output in outputs for tensor in output.tensors()):
            value = loss(outputs)
            torch.autograd.backward(value)
            last = run.take_peak()
            backward_peaks = [max(marks, default=last), last]
        made = sum(_bytes(value.grad) for value in parameters if value.grad is not None) - present
        outputs.clear()
    requests = [(request, group) for group in groups for request in group.requests]
    return Trace(
        packed_rows=sum(group.rows.packed_rows for group in groups),
        logical_rows=sum(group.rows.logical_rows for group in groups),
        grad_segments=sum(group.rows.segment_count for group in groups if group.grads),
        output_bytes=sum(output_bytes(request.spec(facts.vocabulary), facts) for request, _ in requests),
        phase_peaks=tuple(max(0, peak - before_bytes) for peak in (*forward_peaks, *backward_peaks)),
        made_gradient_bytes=made,
        held_bytes=held_bytes - before_bytes,
        assumed_routing=run.chose,
        operations=run.operations,
    )


def _fake_copy(model: nn.Module, has_gradients: bool) -> nn.Module:
    """The model with parameters and buffers that have no values, on the CPU device. Inside `FakeRun.running`."""
    with _Valueless():
        copied = copy.deepcopy(model)
    for original, value in zip(model.parameters(), copied.parameters(), strict=True):
        if value.requires_grad and (has_gradients or original.grad is not None):
            value.grad = torch.empty_like(value)
    return copied


class _Valueless(TorchFunctionMode):
    """A deep copy inside copies no values: every tensor becomes an empty one of its shape on the CPU device."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__deepcopy__:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = _empty(tensor).requires_grad_(tensor.requires_grad)
            return memo[id(tensor)]
        if func is Tensor.clone:
            return _empty(args[0])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs or {})


def _empty(tensor: Tensor) -> Tensor:
    if tensor.layout is not torch.strided or type(tensor) not in (Tensor, nn.Parameter, FakeTensor):
        raise ForecastError(f"parameters of type {type(tensor).__name__} cannot be run without values")
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")


class _Watched:
    """A `PackedModel` that says when its decoder has run forward, and when backward reaches it."""

    def __init__(self, model: PackedModel, mark: Callable[[], None]) -> None:
        self._model = model
        self._mark = mark

    def packed_hidden_states(self, rows: PackedRows) -> Tensor:
        hidden = self._model.packed_hidden_states(rows)
        self._mark()
        if hidden.requires_grad:
            hidden.register_hook(lambda _: self._mark())
        return hidden

    def head_logits(self, hidden_CH: Tensor) -> Tensor:
        return self._model.head_logits(hidden_CH)

    def recompute_mode(self) -> RecomputeMode:
        return self._model.recompute_mode()

    def model_facts(self) -> ModelFacts:
        return self._model.model_facts()


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
