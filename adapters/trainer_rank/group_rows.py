"""From the planner's layout to packed rows: one forward a group (requests of one grad mode)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from adapters.trainer_rank.rows import PADDING_SEGMENT, PackedRows
from pricing.planner.layout import Layout, LayoutGroup
from pricing.planner.plan import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRows:
    """One group's forward: its packed rows, the batch indices of its requests in their order, and its grad mode."""

    rows: PackedRows
    requests: tuple[int, ...]
    grads: bool


def group_rows(layout: Layout, batch: Batch, device: torch.device) -> list[GroupRows]:
    """The forwards of one layout, groups without gradients first: they keep nothing but their outputs."""
    groups = [_group(layout, group, batch, device) for group in layout.groups]
    return sorted(groups, key=lambda group: group.grads)


def _group(layout: Layout, group: LayoutGroup, batch: Batch, device: torch.device) -> GroupRows:
    here = slice(group.start, group.start + group.padded_rows)
    segments = [index for index, segment in enumerate(layout.segments) if group.start <= segment.start < here.stop]
    first_segment = segments[0] if segments else 0  # a group of requests without tokens has none
    members = tuple(
        request
        for request in layout.request_positions
        if batch.is_active(request) and batch.groups[batch.group_of[request]] == group.key
    )
    ids = np.asarray(layout.segment_ids[here])
    parents = np.array([layout.segments[index].parent for index in segments], dtype=np.int64)
    rows = PackedRows(
        token_ids=np.asarray(layout.token_ids[here]),
        position_ids=np.asarray(layout.position_ids[here]),
        segment_ids=np.where(ids < 0, PADDING_SEGMENT, ids - first_segment),
        segment_parents=np.where(parents < 0, -1, parents - first_segment),
        request_positions=tuple(np.asarray(layout.request_positions[request]) - group.start for request in members),
        device=device,
    )
    return GroupRows(rows=rows, requests=members, grads=group.key.grads)
