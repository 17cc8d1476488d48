"""The fused recurrent family hands the kernel what the plain one computes: states from parents, rows back in place."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.trainer_rank.decoder import LayerInputs
from adapters.trainer_rank.rows import branched_rows
from benchmarks.h200.families import FAMILIES, GatedDeltaNet, tiny
from benchmarks.h200.fused_delta_rule import FusedGatedDeltaNet
from tests.adapters.trainer_rank.support import CPU, tokens


def row_by_row(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, initial_state: Tensor | None, cu_seqlens: Tensor,
    **facts: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The kernel's contract, computed row by row."""
    assert facts == {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    repeat = v.shape[2] // q.shape[2]
    query, key = (
        torch.nn.functional.normalize(x[0], dim=-1, eps=1e-6).repeat_interleave(repeat, dim=1) for x in (q, k)
    )
    outs, finals = [], []
    for sequence, (begin, end) in enumerate(zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True)):
        state = torch.zeros(v.shape[2], key.shape[-1], v.shape[-1], dtype=v.dtype)
        if initial_state is not None:
            state = initial_state[sequence]
        for row in range(begin, end):
            state = state * g[0, row].exp()[:, None, None]
            missing = v[0, row] - (key[row][:, None] @ state)[:, 0]
            state = state + key[row][:, :, None] * (beta[0, row][:, None] * missing)[:, None]
            outs.append((query[row][:, None] @ state)[:, 0] * key.shape[-1] ** -0.5)
        finals.append(state)
    return torch.stack(outs)[None], torch.stack(finals)


def test_the_fused_layer_computes_what_the_plain_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = types.ModuleType("fla.ops.gated_delta_rule")
    kernel.chunk_gated_delta_rule = row_by_row  # type: ignore[attr-defined]
    for name in ("fla", "fla.ops"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "fla.ops.gated_delta_rule", kernel)
    torch.manual_seed(0)
    family = tiny(FAMILIES["gdn"])
    assert family.recurrent is not None
    plain, fused = GatedDeltaNet(family.config, family.recurrent), FusedGatedDeltaNet(family.config, family.recurrent)
    fused.load_state_dict(plain.state_dict())
    rows = branched_rows([(tokens(70), [tokens(9), tokens(3)]), (tokens(5), []), (tokens(8), [tokens(66)])], CPU)
    hidden = torch.randn(rows.packed_rows, family.config.hidden)

    results = []
    for layer in (plain, fused):
        unused: Any = None  # a recurrent layer looks at the rows alone
        inputs = LayerInputs(cos_PD=unused, sin_PD=unused, mask=unused, rows=rows)
        mine = hidden.clone().requires_grad_()
        out = layer(mine, inputs)
        out.square().sum().backward()
        results.append((out, mine.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
