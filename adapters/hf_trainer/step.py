"""A training step as waves: `compute_loss` runs forward and backward of slices, each measured and admitted.

The trainer's own `training_step` stays in charge: it prepares the batch (GRPO generates in there), asks `compute_loss`
for a loss and runs backward on it. Here `compute_loss` has already run the slices' backward, and what it returns is a
leaf that carries the batch's loss: backward on it reaches no parameter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from adapters.hf_trainer.errors import UnsupportedTrainerError
from adapters.hf_trainer.known import known_weighting, require_supported, rows_per_item
from adapters.hf_trainer.slices import BatchItems
from adapters.hf_trainer.weights import Share, Weighting, checked_weighting, shifted_tokens
from pricing.planner.quorum import SINGLE_PROCESS, Quorum

Step = Callable[[Sequence[int]], Tensor]
"""Forward and backward of some items of a batch; their part of the batch's loss. Without items: a wave that keeps the
ranks' collectives in step and adds nothing."""


class WaveRunner(Protocol):
    """Runs a batch's items as waves."""

    def run(self, items: BatchItems, step: Step) -> list[Tensor]:
        """Call `step` on slices of the items, in order, until every item's gradient is there exactly once; what the
        slices that count returned. Every rank makes the same number of calls."""
        ...


class WaveStep:
    """A trainer whose `compute_loss` runs as waves, until `undo`."""

    def __init__(self, trainer: Any, runner: WaveRunner, *, quorum: Quorum = SINGLE_PROCESS) -> None:
        require_supported(trainer)
        self.trainer = trainer
        self.runner = runner
        self._quorum = quorum
        self._rows_per_item = rows_per_item(trainer)
        self._compute_loss = trainer.compute_loss
        self._checked: dict[bool, Weighting] = {}
        trainer.compute_loss = self._loss_in_waves

    def undo(self) -> None:
        """Give the trainer its own `compute_loss` back."""
        del self.trainer.compute_loss

    def _loss_in_waves(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
        **others: Any,
    ) -> Any:
        if return_outputs or not model.training or not torch.is_grad_enabled():
            return self._compute_loss(
                model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch, **others
            )
        items = BatchItems.of(inputs, rows_per_item=self._rows_per_item)
        weighting = self._weighting(model, items, num_items_in_batch, others)
        trainer, accelerator = self.trainer, self.trainer.accelerator
        divisor = 1 if self._is_scaled(num_items_in_batch) else trainer.current_gradient_accumulation_steps
        is_spread = accelerator.num_processes > 1

        def part(chosen: Sequence[int], weight: float) -> Tensor:
            with trainer.compute_loss_context_manager():
                loss = self._compute_loss(model, items.batch(chosen), num_items_in_batch=num_items_in_batch, **others)
            accelerator.backward(loss * (weight / divisor))
            weighted: Tensor = loss.detach() * weight
            return weighted

        def step(chosen: Sequence[int]) -> Tensor:
            with accelerator.no_sync(model) if is_spread else nullcontext():
                if chosen:
                    (weight,) = weighting.weights(items, [chosen])
                    return part(chosen, float(weight))
                with self._metrics_kept():
                    return part([shortest], 0.0)

        shortest = min(range(items.count), key=lambda item: items.lengths[item])
        parts = self.runner.run(items, step)
        if is_spread and accelerator.sync_gradients:
            # Gradients of all waves are summed up locally; the reduction is started by a backward that adds nothing.
            with self._metrics_kept():
                part([shortest], 0.0)
        total: Tensor = torch.stack(parts).sum()
        return total.requires_grad_()

    def _is_scaled(self, num_items_in_batch: Any) -> bool:
        """Whether the trainer leaves the loss as it is under gradient accumulation (its own rule)."""
        own = getattr(self.trainer, "loss_is_scaled_for_ga", None)
        if own is not None:
            return bool(own)
        accepts = getattr(self.trainer, "model_accepts_loss_kwargs", False) and num_items_in_batch is not None
        return accepts or getattr(self.trainer, "compute_loss_func", None) is not None

    def _weighting(
        self, model: nn.Module, items: BatchItems, num_items_in_batch: Any, others: dict[str, Any]
    ) -> Weighting:
        """The checked rule. It is asked for anew where a batch comes with and without `num_items_in_batch`."""
        key = num_items_in_batch is not None
        if key not in self._checked:
            known = known_weighting(self.trainer, num_items_in_batch)
            if self._quorum.min(items.count) < 2:
                if known is None and items.count > 1:
                    raise UnsupportedTrainerError(
                        f"{type(self.trainer).__name__} is not known, and a batch of one item tells nothing of how its "
                        "loss adds up: begin with a batch of two or more items on every rank"
                    )
                return known or Weighting(share=Share.WHOLE, tokens=shifted_tokens)  # one item is never cut

            def loss_of(batch: dict[str, Any]) -> Tensor:
                loss: Tensor = self._compute_loss(model, batch, num_items_in_batch=num_items_in_batch, **others)
                return loss.detach()

            with self._metrics_kept(), torch.no_grad(), _evaluating(model):
                self._checked[key] = checked_weighting(loss_of, items, known)
        return self._checked[key]

    def _metrics_kept(self) -> AbstractContextManager[None]:
        """Metrics that a trainer of TRL gathers in `compute_loss` are put back: this call is none of its own."""
        return _restored(self.trainer, ("_metrics", "_total_train_tokens", "_logs"))


@contextmanager
def _restored(owner: Any, names: Sequence[str]) -> Iterator[None]:
    kept = {name: copy.deepcopy(getattr(owner, name)) for name in names if hasattr(owner, name)}
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(owner, name, value)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout, every module's own mode restored."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in training.items():
            module.training = mode
