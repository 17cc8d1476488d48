"""The load-balancing loss of mixtures of experts, over packed rows.

Every packed row counts once: a prompt that eight rollouts share is one prompt to the routers, as it is one to the
experts that ran it. So the loss is that of the rows that ran, not of the requests written out.

Shape legend: P packed rows, E experts, K experts a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from adapters.trainer_rank.rows import PADDING_SEGMENT, PackedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterFacts:
    """Experts of one routed layer, and how many of them a row takes."""

    experts: int
    top: int


@runtime_checkable
class RoutedModel(Protocol):
    """A `PackedModel` whose routers' scores can be had beside the hidden states."""

    def router_facts(self) -> RouterFacts | None:
        """None where the model has no load-balancing loss."""

    def packed_routed_states(self, rows: PackedRows) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Hidden states [P, H] and each routed layer's gate logits [P, E]."""


def load_balancing_loss(gates: tuple[Tensor, ...], facts: RouterFacts, rows: PackedRows) -> Tensor:
    """E * sum over experts of (share of rows that took it) * (mean probability), over all routed layers' rows.

    Switch Transformer's loss (equations 4 to 6) for K choices a row, as `transformers` computes it. Padding rows do
    not count. A scalar in fp32, or fp64 for an fp64 model; gradients flow through the probabilities.
    """
    keep_P = torch.from_numpy(rows.segment_ids != PADDING_SEGMENT).to(rows.device)
    exact = torch.promote_types(gates[0].dtype, torch.float32)
    taken_E = torch.zeros(facts.experts, dtype=exact, device=rows.device)
    probability_E = torch.zeros_like(taken_E)
    for gate_PE in gates:
        probabilities_PE = gate_PE[keep_P].to(exact).softmax(dim=-1)
        choices = probabilities_PE.detach().topk(facts.top, dim=-1).indices.flatten()
        taken_E = taken_E + torch.bincount(choices, minlength=facts.experts).to(exact)
        probability_E = probability_E + probabilities_PE.sum(dim=0)
    counted = len(gates) * int((rows.segment_ids != PADDING_SEGMENT).sum())
    return facts.experts * (taken_E / counted * (probability_E / counted)).sum()
