"""What a wave that broke off has added to gradients, taken back: so that each item's gradient counts exactly once.

Three ways, the cheapest that is sound. A wave that failed before its backward reached a parameter has added nothing
there (the gradient is the same tensor at the same version). A gradient that the wave *made* is let go. A gradient that
the wave *added to* cannot be told apart again: where all gradients are small (adapters) a copy of them from before the
wave is put back; else the whole batch starts anew. A copy of full gradients in each wave would cost memory every time,
to save time in the rare wave that fails; a new start costs time alone, in that one.

What was there before the batch is set aside, which copies nothing: nothing is there after `zero_grad()`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef

from adapters.torch_memory.out_of_memory import is_out_of_memory
from adapters.wave_loop.failure import let_go

COPY_DENOMINATOR = 100
"""Gradients of at most this part of the device are copied before each wave."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """One parameter before a wave. gradient: None where it had none. copy: of its values, where one is kept."""

    parameter_version: int
    gradient: TensorWeakRef | None
    gradient_version: int
    copy: Tensor | None

    def is_untouched(self, gradient: Tensor | None) -> bool:
        """Whether `gradient` is the one that was there, as it was."""
        if self.gradient is None or gradient is None:
            return self.gradient is None and gradient is None
        return self.gradient() is gradient and gradient._version == self.gradient_version


class GradientKeeper:
    """The gradients of one batch, from before its first wave to after its last.

    parameters: all that backward may reach. Every method is cheap but `before_wave` with copies.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], *, copy_at_most_bytes: int = 0) -> None:
        self._parameters = [value for value in dict.fromkeys(parameters) if value.requires_grad]
        self._copies = sum(value.nbytes for value in self._parameters) <= copy_at_most_bytes
        self._aside: list[Tensor | None] | None = None
        self._begun_at: list[int] = []
        self._began_empty = False
        self._marks: list[_Mark] = []

    def begin(self, *, aside: bool) -> None:
        """Before the batch. aside: set what is there aside, so that the batch can start anew whatever was there."""
        self._begun_at = [value._version for value in self._parameters]
        if aside:
            self._aside = [value.grad for value in self._parameters]
            self._let_go()
        self._began_empty = all(value.grad is None for value in self._parameters)

    def before_wave(self) -> None:
        """Right before a wave is planned: a copy, where one is kept, is memory that the plan must see."""
        self._marks.clear()  # the last wave's copies, before new ones are made
        copies = self._made_copies()
        self._marks = [
            _Mark(
                parameter_version=value._version,
                gradient=None if value.grad is None else TensorWeakRef(value.grad),
                gradient_version=0 if value.grad is None else value.grad._version,
                copy=copy,
            )
            for value, copy in zip(self._parameters, copies, strict=True)
        ]

    def _made_copies(self) -> list[Tensor | None]:
        """Copies of the gradients; none at all where there is no memory for them: then the batch starts anew."""
        nothing: list[Tensor | None] = [None] * len(self._parameters)
        if not self._copies:
            return nothing
        try:
            with torch.no_grad():
                return [None if value.grad is None else value.grad.clone() for value in self._parameters]
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            let_go(error)
            return nothing

    def undo_wave(self) -> bool:
        """Take back what the wave added. False, with nothing changed, where that cannot be known."""
        pairs = list(zip(self._parameters, self._marks, strict=True))
        if any(value._version != mark.parameter_version for value, mark in pairs):
            return False
        touched = [(value, mark) for value, mark in pairs if not mark.is_untouched(value.grad)]
        if any(mark.gradient is not None and mark.copy is None for _, mark in touched):
            return False
        with torch.no_grad():
            for value, mark in touched:
                there = None if mark.gradient is None else mark.gradient()
                if mark.copy is None:
                    value.grad = None
                elif there is None:
                    value.grad = mark.copy  # ours no longer: new copies are made below
                else:
                    there.copy_(mark.copy)
                    value.grad = there
        self.before_wave()
        return True

    def start_anew(self) -> bool:
        """Take back what the whole batch added. False, with nothing changed, where gradients were there when it began
        and were not set aside, or where the parameters have changed since (an optimizer has stepped)."""
        if not self._began_empty or self._have_changed():
            return False
        self._let_go()
        return True

    def finish(self) -> None:
        """After the batch: what was there before and what the batch added become one.

        What runs out of memory meanwhile (a kernel that has to be loaded; a sum of sparse gradients) is tried once
        more. Where it fails again it raises: what was joined by then stays so; the rest is rolled back.
        """
        self._marks.clear()
        aside = self._aside or []
        left = [at for at, kept in enumerate(aside) if kept is not None]
        for is_last_try in (False, True):
            left = [at for at in left if not self._is_joined(aside, at, raises=is_last_try)]
        self._aside = None

    def _is_joined(self, aside: list[Tensor | None], at: int, *, raises: bool) -> bool:
        """Add what the batch made of one gradient to what was there before. False where that ran out of memory."""
        value, kept = self._parameters[at], aside[at]
        assert kept is not None
        version = kept._version
        try:
            if value.grad is not None and value.grad is not kept:
                with torch.no_grad():
                    kept = kept.add_(value.grad) if value.grad.layout is torch.strided else kept + value.grad
        except Exception as error:
            if raises or kept._version != version or not is_out_of_memory(error):
                raise
            let_go(error)
            return False
        value.grad = aside[at] = kept
        return True

    def roll_back(self) -> None:
        """After a batch that failed: only what was there before is there. With parameters that have changed since
        there is no before; then what the batch added stays as it is."""
        self._marks.clear()
        if self._aside is None:
            return
        if self._have_changed():
            self.finish()
            return
        aside, self._aside = self._aside, None
        for value, kept in zip(self._parameters, aside, strict=True):
            value.grad = kept

    def _have_changed(self) -> bool:
        return any(value._version != version for value, version in zip(self._parameters, self._begun_at, strict=True))

    def _let_go(self) -> None:
        for value in self._parameters:
            value.grad = None
