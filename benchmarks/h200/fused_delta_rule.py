"""The gated delta net with the flash-linear-attention package's fused kernel, over a prefix tree.

Segments of one depth run in one varlen call; each starts from its parent's final state. So a layer holds, like the
plain PyTorch one of `benchmarks.h200.families`, an initial and a final fp32 state a segment, and what the kernel keeps.
Needs a GPU and `flash-linear-attention`, which is imported when a layer first runs.

The package lets Triton try up to a dozen launch configurations of each of a dozen kernels: minutes of compiling in
every process. `take_first_configurations` spares them. What a kernel allocates is in its caller's hands and does not
depend on the configuration; how fast it runs does, so times of these runs say nothing of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from adapters.trainer_rank.decoder import LayerInputs
from adapters.trainer_rank.rows import PackedRows
from benchmarks.h200.families import ChunkPlan, GatedDeltaNet, TreeConvolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The segments of one depth. rows: their packed rows; ends: [N + 1] where each begins; parents: index among the
    segments of the level above, None for the roots."""

    rows: Tensor
    ends: Tensor
    parents: Tensor | None


def levels_of(rows: PackedRows) -> tuple[tuple[Level, ...], Tensor]:
    """Levels from the roots down, and for each packed row its place in the levels laid one after another.

    Padding rows are one more root.
    """
    spans = rows.segment_spans()
    padding = np.flatnonzero(rows.segment_ids < 0)
    if len(padding):
        spans = [*spans, (int(padding[0]), len(padding), -1)]
    depths: list[int] = []
    for _, _, parent in spans:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    levels: list[Level] = []
    place: dict[int, int] = {}
    taken: list[np.ndarray] = []
    for depth in range(max(depths) + 1):
        members = [index for index, own in enumerate(depths) if own == depth]
        place |= {segment: at for at, segment in enumerate(members)}
        own_rows = np.concatenate([np.arange(spans[s][0], spans[s][0] + spans[s][1]) for s in members])
        taken.append(own_rows)
        parents = None if depth == 0 else rows.on_device(np.array([place[spans[s][2]] for s in members]))
        ends = np.cumsum([0, *(spans[s][1] for s in members)])
        levels.append(Level(rows=rows.on_device(own_rows), ends=rows.on_device(ends), parents=parents))
    order = np.concatenate(taken)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return tuple(levels), rows.on_device(back)


@cache
def take_first_configurations() -> None:
    """From now on Triton takes each kernel's first configuration, without trying others."""
    try:
        from triton.runtime.autotuner import Autotuner  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return  # the package's own import says it better

    original = Autotuner.__init__

    def with_one_configuration(tuner: Any, *arguments: Any, **named: Any) -> None:
        original(tuner, *arguments, **named)
        tuner.configs = tuner.configs[:1]

    Autotuner.__init__ = with_one_configuration


class FusedGatedDeltaNet(GatedDeltaNet):
    """As its parent, weight for weight; the delta rule is the fused kernel."""

    def forward(self, hidden_PH: Tensor, inputs: LayerInputs) -> Tensor:
        take_first_configurations()
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        geometry = self.geometry
        if "levels" not in inputs.shared:
            inputs.shared["levels"] = levels_of(inputs.rows)
            inputs.shared["history"] = ChunkPlan.history_of(inputs.rows, geometry.conv_kernel)
        levels, back = inputs.shared["levels"]
        convolved: Tensor = TreeConvolution.apply(  # type: ignore[no-untyped-call]
            self.mixed(hidden_PH), self.kernel, inputs.shared["history"]
        )
        mixed = F.silu(convolved)
        log_decay, strength = self.rates(hidden_PH).float().chunk(2, dim=-1)
        log_decay, strength = -F.softplus(log_decay), strength.sigmoid()
        outs: list[Tensor] = []
        finals: Tensor | None = None
        for level in levels:
            query, key, value = mixed[level.rows].split(self.widths, dim=-1)
            out, finals = chunk_gated_delta_rule(
                query.unflatten(-1, (-1, geometry.key_dim))[None],
                key.unflatten(-1, (-1, geometry.key_dim))[None],
                value.unflatten(-1, (-1, geometry.value_dim))[None],
                log_decay[level.rows][None],
                strength[level.rows][None].to(mixed.dtype),
                initial_state=None if finals is None or level.parents is None else finals[level.parents],
                output_final_state=True,
                use_qk_l2norm_in_kernel=True,
                cu_seqlens=level.ends,
            )
            outs.append(out[0])
        out_P = torch.cat(outs)[back]
        gated: Tensor = self.norm(out_P.to(hidden_PH.dtype)).flatten(1) * F.silu(self.output_gate(hidden_PH))
        out_PH: Tensor = self.out(gated)
        return out_PH
