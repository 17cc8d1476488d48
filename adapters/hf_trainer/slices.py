"""A trainer's batch as items: how many there are, how long each is, and the batch of some of them alone.

A batch is what `compute_loss` gets: a mapping of tensors whose first dimension counts the items (or twice the items,
for preference pairs: first all chosen, then all rejected). Scalars and settings belong to every slice. Anything else is
refused by name, before anything runs: a slice that leaves a tensor whole would train on the wrong rows.

Shape legend: N items, K rows of the batch per item (2 for pairs), T columns of a padded batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from adapters.hf_trainer.errors import UnslicableBatchError

LENGTH_KEYS: Final = ("completion_mask", "attention_mask")
"""Masks that say where a padded row ends, the more telling one first."""

BATCH_KEYS: Final = ("input_ids", "prompt_ids", "inputs_embeds", "pixel_values", "labels")
"""What a batch is counted by: the first of these that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItems:
    """A batch seen as `count` items of `rows_per_item` batch rows each.

    columns: the padded length that may be cut (T), or None where nothing may. fixed_columns: columns beside it that
    every row keeps (a left-padded prompt). lengths: per item, its columns up to the last that is no padding, the most
    of its rows. cut_keys: the tensors that are cut to the longest of a slice.
    """

    inputs: Mapping[str, Any]
    count: int
    rows_per_item: int
    columns: int | None
    fixed_columns: int
    lengths: tuple[int, ...]
    cut_keys: frozenset[str]

    @classmethod
    def of(cls, inputs: Mapping[str, Any], *, rows_per_item: int = 1) -> BatchItems:
        """The items of `inputs`. Raises `UnslicableBatchError` naming the tensor that cannot be cut."""
        key = next((name for name in BATCH_KEYS if isinstance(inputs.get(name), Tensor)), None)
        if key is None:
            raise UnslicableBatchError(
                f"this batch has none of {', '.join(BATCH_KEYS)}; it has {', '.join(sorted(inputs)) or 'nothing'}"
            )
        rows = int(inputs[key].shape[0])
        if rows == 0 or rows % rows_per_item:
            raise UnslicableBatchError(f"{key} has {rows} rows, not a multiple of {rows_per_item} rows an item")
        count = rows // rows_per_item
        _require_cuttable(inputs, count, rows_per_item)
        mask_key = next((name for name in LENGTH_KEYS if _is_row_mask(inputs.get(name), rows)), None)
        columns = None if mask_key is None else int(inputs[mask_key].shape[1])
        fixed = int(inputs["prompt_ids"].shape[1]) if "prompt_ids" in inputs else 0
        if mask_key is None or columns is None:
            widest = inputs[key].shape[1] if inputs[key].dim() > 1 else 1
            lengths = (int(widest),) * count
        else:
            mask_key = "attention_mask" if "attention_mask" in inputs and fixed == 0 else mask_key
            lengths = _lengths(inputs[mask_key], count, rows_per_item)
        cut = frozenset(
            name
            for name, value in inputs.items()
            if isinstance(value, Tensor)
            and value.dim() >= 2
            and value.shape[1] == columns
            and not name.startswith("prompt")
        )
        return cls(
            inputs=inputs, count=count, rows_per_item=rows_per_item, columns=columns, fixed_columns=fixed,
            lengths=lengths, cut_keys=cut,
        )  # fmt: skip

    def rows(self, item: int) -> int:
        """Rows that the model executes for this item alone. A padded wave executes items x the most of these."""
        return self.rows_per_item * (self.fixed_columns + self.lengths[item])

    def batch(self, items: Sequence[int]) -> dict[str, Any]:
        """The batch of `items` alone, in that order, cut to the longest of them. Views where items are consecutive."""
        longest = max(self.lengths[item] for item in items)
        return {name: self._cut(name, value, items, longest) for name, value in self.inputs.items()}

    def _cut(self, name: str, value: Any, items: Sequence[int], longest: int) -> Any:
        if isinstance(value, Tensor) and value.dim() > 0:
            per_item = value.shape[0] // self.count
            chosen = self._rows_of(value, items, per_item)
            return chosen[:, :longest] if name in self.cut_keys else chosen
        if isinstance(value, (list, tuple)):
            per_item = len(value) // self.count
            return [value[item + block * self.count] for block in range(per_item) for item in items]
        return value

    def _rows_of(self, value: Tensor, items: Sequence[int], per_item: int) -> Tensor:
        first, last = items[0], items[-1] + 1
        if list(items) == list(range(first, last)):
            parts = [value[block * self.count + first : block * self.count + last] for block in range(per_item)]
            return parts[0] if per_item == 1 else torch.cat(parts)
        index = torch.tensor([block * self.count + item for block in range(per_item) for item in items])
        return value[index.to(value.device)]


def _is_row_mask(value: Any, rows: int) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2 and value.shape[0] == rows


def _lengths(mask: Tensor, count: int, rows_per_item: int) -> tuple[int, ...]:
    """Per item, the columns up to the last unmasked one, at least 1."""
    columns = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    ends = (mask.ne(0) * columns).amax(dim=1).clamp(min=1)
    return tuple(ends.view(rows_per_item, count).amax(dim=0).tolist())


def _require_cuttable(inputs: Mapping[str, Any], count: int, rows_per_item: int) -> None:
    allowed = {count, count * rows_per_item}
    for name, value in inputs.items():
        size = (value.shape[0] if value.dim() else None) if isinstance(value, Tensor) else None
        if isinstance(value, (list, tuple)):
            size = len(value)
        if size is not None and size not in allowed:
            shape = tuple(value.shape) if isinstance(value, Tensor) else f"{size} entries"
            raise UnslicableBatchError(
                f"{name} has {shape}: its first dimension is neither {count} items nor {count * rows_per_item} rows, "
                "so it cannot be cut into waves (padding-free and packed batches join all sequences in one row: turn "
                "that off)"
            )
        if isinstance(value, Mapping):
            raise UnslicableBatchError(f"{name} is a mapping; only tensors, lists and settings can be cut into waves")
