"""What a wave's loss counts for, so that the waves of a batch add up to the batch's own loss.

A loss is a sum over what it counts, divided by something. Where that something is a number of the whole batch
(`num_items_in_batch`), slices add up as they are. Where it is counted from the slice itself (tokens, or items), a slice
counts for its share. Which of them a trainer's loss is, is known for the trainers named here and *checked* for every
trainer: on two items, their joint loss must be the weighted sum of their own. A loss for which no rule holds (one that
sorts, whitens or takes a quantile over the batch) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from adapters.hf_trainer.errors import UnsupportedTrainerError
from adapters.hf_trainer.slices import BatchItems

IGNORED_LABEL = -100

CHECK_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 3e-2, torch.float16: 5e-3}
"""Relative: both sides are computed in the model's dtype with other shapes, so other summation orders."""


class Share(StrEnum):
    """What a slice's loss counts for in the loss of its batch."""

    WHOLE = "whole"
    """1: the loss is divided by a number that belongs to the whole batch."""

    TOKENS = "tokens"
    """Its share of the tokens that count: the loss is a mean over tokens."""

    ITEMS = "items"
    """Its share of the items: the loss is a mean over sequences or pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """The rule, and how tokens are counted where it needs them."""

    share: Share
    tokens: Callable[[dict[str, Any]], int]

    def weights(self, items: BatchItems, slices: Sequence[Sequence[int]]) -> list[Fraction]:
        """The weight of each slice's loss. They need not add up to 1: `WHOLE` gives each 1."""
        if self.share is Share.WHOLE:
            return [Fraction(1)] * len(slices)
        if self.share is Share.ITEMS:
            return [Fraction(len(slice_), items.count) for slice_ in slices]
        whole = self.tokens(dict(items.inputs))
        return [Fraction(self.tokens(items.batch(slice_)), max(1, whole)) for slice_ in slices]


def counted_tokens(inputs: dict[str, Any], *, shifted: bool) -> int:
    """Tokens that a token-level loss averages over. `shifted`: labels of the first column have no prediction."""
    labels = inputs.get("labels")
    if isinstance(labels, Tensor) and labels.dim() == 2:
        counted = labels[:, 1:] if shifted else labels
        return int((counted != IGNORED_LABEL).sum())
    mask = inputs.get("completion_mask")
    if isinstance(mask, Tensor):
        tools = inputs.get("tool_mask")
        return int((mask if tools is None else mask * tools).sum())
    mask = inputs.get("attention_mask")
    return int(mask.sum()) if isinstance(mask, Tensor) else 0


def shifted_tokens(inputs: dict[str, Any]) -> int:
    return counted_tokens(inputs, shifted=True)


def unshifted_tokens(inputs: dict[str, Any]) -> int:
    return counted_tokens(inputs, shifted=False)


CANDIDATES = (
    Weighting(share=Share.WHOLE, tokens=shifted_tokens),
    Weighting(share=Share.TOKENS, tokens=shifted_tokens),
    Weighting(share=Share.TOKENS, tokens=unshifted_tokens),
    Weighting(share=Share.ITEMS, tokens=shifted_tokens),
)


def two_telling_items(items: BatchItems) -> tuple[int, int]:
    """The two shortest items whose tokens differ, so that the rules give different weights; else the two shortest."""
    order = sorted(range(items.count), key=lambda item: items.lengths[item])
    first = order[0]
    count = shifted_tokens(items.batch([first]))
    second = next((item for item in order[1:] if shifted_tokens(items.batch([item])) != count), order[1])
    return first, second


def checked_weighting(
    loss_of: Callable[[dict[str, Any]], Tensor], items: BatchItems, known: Weighting | None
) -> Weighting:
    """The rule by which the losses of two items add up to their joint loss: `known` if it does, else what does.

    loss_of: the trainer's loss of a batch, without gradients and dropout. Needs a batch of at least two items. Raises
    `UnsupportedTrainerError` with both sides where no rule holds.
    """
    pair = two_telling_items(items)
    both = BatchItems.of(items.batch(pair), rows_per_item=items.rows_per_item)
    joint = loss_of(both.batch([0, 1]))
    alone = [loss_of(both.batch([0])), loss_of(both.batch([1]))]
    tolerance = CHECK_TOLERANCE.get(joint.dtype, CHECK_TOLERANCE[torch.float32])
    scale = max(1e-12, *(abs(float(value)) for value in (joint, *alone)))
    said = []
    for candidate in CANDIDATES if known is None else (known, *CANDIDATES):
        weights = candidate.weights(both, [[0], [1]])
        total = sum(float(weight) * float(loss) for weight, loss in zip(weights, alone, strict=True))
        if abs(total - float(joint)) <= tolerance * scale:
            return candidate
        said.append(f"by {candidate.share}: {total:.6g}")
    raise UnsupportedTrainerError(
        f"this trainer's loss does not add up over slices of its batch: two items together give {float(joint):.6g}, "
        f"their own losses weighted {', '.join(said)}. A loss that looks across the batch cannot run as waves"
    )
