"""One account of what parameters' gradients take: what a wave makes and leaves, what is held back for those yet to be
made, and what was there and dies inside a wave.

Gradients live from the wave that makes them to `zero_grad()`. They are no cost of a row, so the meter takes what a wave
made and left off its reading; and the planner holds back, once, what the next backward will make. Gradients that never
coexist (an optimizer step fused into backward, which lets each go at once) are not held back: what counts is what waves
were seen to leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.utils.hooks import RemovableHandle


class GradientAccount:
    """The gradients of some parameters (those that train, asked anew at every question: layers may be unfrozen)."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._lets_go: dict[int, bool] = {}  # by position: whether the last wave that made it also let it go

    @property
    def parameters(self) -> tuple[torch.nn.Parameter, ...]:
        """All of them, trained or not."""
        return tuple(self._parameters)

    @property
    def present_bytes(self) -> int:
        """Bytes of the gradients that are there now, on this rank."""
        return sum(local_bytes(value.grad) for value in self._parameters if value.grad is not None)

    @property
    def trained_bytes(self) -> int:
        """Bytes of all gradients together, on this rank."""
        return sum(local_bytes(value) for value in self._parameters if value.requires_grad)

    def held_back_bytes(self) -> int:
        """What the next backward will make and leave: gradients that are not there, each once, at its local size.

        Not those that the last wave to make them also let go. Before anything was seen: not those with a hook after
        accumulation, which is where a fused step lives, except for the largest of them.
        """
        coming_bytes = passing_bytes = 0
        for position, value in enumerate(self._parameters):
            if not value.requires_grad or value.grad is not None:
                continue
            if self._lets_go.get(position, _has_hook_after_accumulation(value)):
                # One seen to go is part of the reading; one never seen needs its room for a moment.
                passing_bytes = max(passing_bytes, 0 if position in self._lets_go else local_bytes(value))
            else:
                coming_bytes += local_bytes(value)
        return coming_bytes + passing_bytes

    def watch(self, on_made: Callable[[torch.Tensor], None]) -> GradientWatch:
        """Follow what a wave does to the gradients. `on_made` gets each new gradient, in the thread of backward."""
        return GradientWatch(self, on_made)


class GradientWatch:
    """One wave's look at an account: `existing` gradients at its start, and hooks on those that are not there yet.

    found_some, found_all: of the gradients of parameters that train, at the start. `remove` it when the wave ends;
    `settle` first, where backward was seen whole.
    """

    def __init__(self, account: GradientAccount, on_made: Callable[[torch.Tensor], None]) -> None:
        self._account = account
        self._on_made = on_made
        self._made: set[int] = set()
        self._handles: list[RemovableHandle] = []
        self.existing: list[torch.Tensor] = []
        self.unmade_bytes = 0
        for position, value in enumerate(account._parameters):
            if value.grad is not None:
                self.existing.append(value.grad)
            if value.requires_grad:
                # Also where there is one: zero_grad() may come before backward.
                self.unmade_bytes += local_bytes(value)
                self._handles.append(value.register_post_accumulate_grad_hook(self._marker(position)))
        self._before = {id(grad) for grad in self.existing}
        self._trained = [position for position, value in enumerate(account._parameters) if value.requires_grad]
        there = [account._parameters[position].grad is not None for position in self._trained]
        self.found_some, self.found_all = any(there), all(there)
        self._has_left_all = False

    def settle(self) -> None:
        """Note which gradients the wave left, and which it let go itself."""
        for position in self._made:
            self._account._lets_go[position] = self._account._parameters[position].grad is None
        self._has_left_all = all(
            position in self._made and not self._account._lets_go[position] for position in self._trained
        )

    @property
    def made_all(self) -> bool:
        """Whether the wave found no gradient, and made and left every one: known once it is settled."""
        return not self.found_some and self._has_left_all

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.existing.clear()

    def _marker(self, position: int) -> Callable[[torch.Tensor], None]:
        def accumulated(value: torch.Tensor) -> None:
            if position in self._made:
                return
            grad = value.grad
            if grad is None:  # a fused step that ran before this hook took it already
                self._made.add(position)
            elif id(grad) not in self._before:
                self._made.add(position)
                self._on_made(grad)

        return accumulated


def local_bytes(value: torch.Tensor) -> int:
    """Bytes of a tensor on this rank: a sharded one counts its own shard."""
    return local_tensor(value).nbytes


def local_tensor(value: torch.Tensor) -> torch.Tensor:
    """This rank's part of a sharded tensor; a plain one as it is."""
    part = getattr(value, "_local_tensor", None)
    return part if isinstance(part, torch.Tensor) else value


def _has_hook_after_accumulation(value: torch.Tensor) -> bool:
    return bool(getattr(value, "_post_accumulate_grad_hooks", None))
