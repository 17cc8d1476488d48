"""What an optimizer keeps, and what its step takes for a moment: the very class makes its states under fake tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from adapters.forecast.errors import ForecastError
from adapters.forecast.fake_run import FakeRun, Target

Make = Callable[[list[nn.Parameter], Target], Any]
"""Makes an optimizer of parameters; anything with a `step`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerNeeds:
    """In bytes. state_bytes: what stays from its first step on. step_bytes: what a step takes beside for a moment."""

    state_bytes: int
    step_bytes: int


class _StepRun(FakeRun):
    """A fake run in which a number that nobody knows is 2: the steps so far, a norm. No shape depends on one here."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_floating_point():
            return 2.0
        return super().__torch_dispatch__(func, types, args, kwargs)


def optimizer_needs(parameters: Iterable[Tensor], name: str, *, target: Target) -> OptimizerNeeds:
    """What the optimizer called `name` (`OPTIMIZERS`, or a class of `torch.optim`) needs for these trained parameters,
    on whatever device they are. Its first step is run, and one more.

    Raises `ForecastError` for a name that is none, and for an optimizer that takes no step without values.
    """
    make = OPTIMIZERS.get(name) or partial(_of_torch, name)
    if name not in OPTIMIZERS and name not in torch_optimizers():
        known = ", ".join((*OPTIMIZERS, *torch_optimizers()))
        raise ForecastError(f"optimizer must be one of {known}, got {name!r}")
    run = _StepRun(target)
    try:
        with run.running():
            made = [nn.Parameter(torch.empty_strided(p.size(), p.stride(), dtype=p.dtype)) for p in parameters]
            for value in made:
                value.grad = torch.empty_like(value)
            before_bytes = run.allocated()
            optimizer = make(made, target)  # some make their states here
            optimizer.step()
            state_bytes = run.allocated() - before_bytes
            run.take_peak()
            optimizer.step()
            return OptimizerNeeds(
                state_bytes=state_bytes, step_bytes=max(0, run.take_peak() - before_bytes - state_bytes)
            )
    except Exception as error:  # whatever its code does where tensors have no values
        lines = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
        raise ForecastError(f"{name} takes no step of these parameters without values: {said}") from error


def torch_optimizers() -> tuple[str, ...]:
    """The classes of `torch.optim`, by name."""
    return tuple(
        name
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
    )


def _of_torch(name: str, parameters: list[nn.Parameter], target: Target, **settings: Any) -> torch.optim.Optimizer:
    """An optimizer of torch as it is made for such parameters by default: on CUDA with operations on lists."""
    kind: Any = getattr(torch.optim, name)
    known = inspect.signature(kind).parameters
    if target is Target.CUDA and "foreach" in known and "fused" not in settings:
        settings["foreach"] = True
    if "lr" in known:
        settings.setdefault("lr", 0.1)
    made: torch.optim.Optimizer = kind(parameters, **settings)
    return made


class _OnCopies:
    """AdamW on copies of the parameters in fp32, as mixed-precision optimizers keep them. Gradients are cast for it."""

    def __init__(self, parameters: Sequence[nn.Parameter], target: Target) -> None:
        self._parameters = parameters
        self._copies = [nn.Parameter(value.detach().to(torch.float32, copy=True)) for value in parameters]
        self._inner = _of_torch("AdamW", self._copies, target)

    def step(self) -> None:
        for value, copied in zip(self._parameters, self._copies, strict=True):
            assert value.grad is not None
            copied.grad = value.grad.to(torch.float32)
        self._inner.step()
        for copied in self._copies:
            copied.grad = None


OPTIMIZERS: Final[dict[str, Make]] = {
    "adamw": partial(_of_torch, "AdamW"),
    "adamw-fused": partial(_of_torch, "AdamW", fused=True),
    "adamw-fp32": _OnCopies,
    "momentum": partial(_of_torch, "SGD", momentum=0.9),
    "sgd": partial(_of_torch, "SGD"),
}
"""Usual ones. adamw-fp32: on an fp32 copy of each parameter."""
