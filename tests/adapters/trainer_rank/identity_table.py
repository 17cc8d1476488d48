"""What one signature stood for in version 0.1.0 and stands for now, and how far its assumptions miss.

    python -m tests.adapters.trainer_rank.identity_table --output spec/evidence/identity-table.json

Each row: what a wave was learned from and what was priced by it, as in 0.1.0 (total rows, no shares) and now, beside
what it took. All at a safety factor of 1 and by the CPU's own counter; some seconds. `test_identity_table.py` runs it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adapters.torch_memory import PeakMeter, meter_for
from adapters.trainer_rank import Request
from adapters.trainer_rank.decoder import Attention, Decoder, DecoderConfig, DecoderLayer, Projection
from pricing import LAWS, Profile, Reading, Wave, observe, required_bytes
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, RecomputeMode
from tests.adapters.trainer_rank.support import tokens
from tests.adapters.trainer_rank.test_shares_measured import CONFIG, ONE, Took, relatives_price, request, run_wave

FRONTIER = LAWS["frontier"]


def learned_from(reading: Reading) -> Profile:
    return observe(observe(observe(Profile(), reading), reading), reading)


def as_before(first: Took, second: Took, law: str = "warm") -> int:
    """The price by total rows: what 0.1.0 said of two waves of equal kinds."""
    reading = replace(
        first.reading,
        packed_rows=first.plan.shape.packed_rows,
        logical_rows=first.plan.shape.logical_rows,
        grad_segments=first.plan.shape.grad_segments,
    )
    wave: Wave = second.plan.wave
    shape = second.plan.shape
    wave = replace(wave, packed_rows=shape.packed_rows, logical_rows=shape.logical_rows, evidence=None)
    return required_bytes(wave, learned_from(reading), LAWS[law], ONE)


def row(name: str, first: Took, second: Took) -> dict[str, Any]:
    same = first.plan.signature == second.plan.signature
    kinds = first.plan.signature.without_shares == second.plan.signature.without_shares
    return {
        "what": name,
        "took_bytes": second.peak_delta_bytes,
        "priced_by_total_rows_bytes": as_before(first, second),
        "same_signature": same,
        "priced_as_a_relative_bytes": relatives_price(first, second) if kinds and not same else None,
    }


# --- the five rows ---------------------------------------------------------------------------------------------------


def mixed_rows(meter: PeakMeter) -> list[dict[str, Any]]:
    found = []
    for name, kinds, first, second in (
        ("gradients on 64 of 2,112 rows, then on 2,048", ("targets", "reference"), (64, 2_048), (2_048, 64)),
        ("1,936 targets and 64 logits, then 64 and 1,936", ("targets", "logits"), (1_936, 64), (64, 1_936)),
    ):
        model = Decoder(CONFIG, recompute=NO_RECOMPUTE).train()
        learned, priced = (
            run_wave(
                model,
                meter,
                [request(kind, count, at) for at, (kind, count) in enumerate(zip(kinds, rows, strict=True))],
            )
            for rows in (first, second)
        )
        found.append(row(name, learned, priced))
    return found


def some_layers(meter: PeakMeter) -> dict[str, Any]:
    import transformers

    torch.manual_seed(0)
    fields: dict[str, Any] = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 8}
    model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields, num_attention_heads=4)).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    took = []
    for off in (1, 7):
        for at, layer in enumerate(model.model.layers):
            layer.gradient_checkpointing = at >= off
        took.append(run_wave(model, meter, [request("targets", 1_024, 1)]))
    return row("recompute off on 1 of 8 layers, then on 7", *took)


# --- routing ---------------------------------------------------------------------------------------------------------


class PaddedMixture(nn.Module):
    """Experts with padded dispatch: every expert gets as many rows as the busiest one."""

    def __init__(self, config: DecoderConfig, experts: int) -> None:
        super().__init__()
        self.experts = experts
        self.router = Projection(config.hidden, experts, config)
        width = config.feed_forward // 2
        self.up = nn.Parameter(torch.randn(experts, config.hidden, width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, width, config.hidden) * 0.02)
        self.one_expert = False

    def forward(self, hidden_PH: Tensor) -> Tensor:
        rows = hidden_PH.shape[0]
        scores_PE = self.router(hidden_PH).softmax(dim=-1)
        chosen_P = torch.zeros(rows, dtype=torch.long) if self.one_expert else torch.arange(rows) % self.experts
        counts_E = torch.bincount(chosen_P, minlength=self.experts)
        order = torch.argsort(chosen_P, stable=True)
        slot = torch.arange(rows) - (torch.cumsum(counts_E, 0) - counts_E)[chosen_P[order]]
        padded = hidden_PH.new_zeros(self.experts, int(counts_E.max()), hidden_PH.shape[1])
        padded = padded.index_put((chosen_P[order], slot), hidden_PH[order])
        out = torch.bmm(F.silu(torch.bmm(padded, self.up)), self.down)
        back = torch.empty_like(order)
        back[order] = torch.arange(rows)
        mine: Tensor = out[chosen_P[order], slot][back] * scores_PE.gather(1, chosen_P[:, None])
        return mine


def routed(experts: int, recompute: RecomputeMode) -> Decoder:
    torch.manual_seed(0)

    def layer(config: DecoderConfig, index: int) -> nn.Module:
        return DecoderLayer(config, Attention(config), PaddedMixture(config, experts))

    return Decoder(CONFIG, layer, recompute=recompute).train()


def routing(meter: PeakMeter) -> list[dict[str, Any]]:
    """Balanced routing teaches, one expert is priced: of padded dispatch the worst that there is."""
    found = []
    for recompute in (NO_RECOMPUTE, ONE_LAYER_FULL):
        for experts in (2, 4, 8):
            model = routed(experts, recompute)
            took = []
            for one in (False, True):
                for module in model.modules():
                    if isinstance(module, PaddedMixture):
                        object.__setattr__(module, "one_expert", one)
                took.append(run_wave(model, meter, [request("targets", 1_024, 1)]))
            balanced, unbalanced = took
            profile = learned_from(balanced.reading)
            priced = {name: required_bytes(unbalanced.plan.wave, profile, law, ONE) for name, law in LAWS.items()}
            found.append(
                {
                    "experts": experts,
                    "recompute": str(recompute),
                    "took_bytes": unbalanced.peak_delta_bytes,
                    "balanced_took_bytes": balanced.peak_delta_bytes,
                    "times_the_price": {
                        name: round(unbalanced.peak_delta_bytes / value, 2) for name, value in priced.items()
                    },
                }
            )
    return found


# --- more kinds than have shares -------------------------------------------------------------------------------------


def many_kinds(meter: PeakMeter) -> dict[str, Any]:
    """Seventeen kinds, one of which (logits) stands for most of the memory: few of its rows teach, many are priced."""
    config = replace(CONFIG, vocabulary=4_096)
    model = Decoder(config, recompute=ONE_LAYER_FULL).train()
    took = []
    for logits_rows, each in ((64, 128), (2_048, 8)):
        requests = [Request(tokens=tokens(each, k), top_k=k) for k in range(1, 17)]
        took.append(run_wave(model, meter, [*requests, Request(tokens=tokens(logits_rows, 99), logits=True)]))
    few, many = took
    profile = learned_from(few.reading)
    priced = {name: required_bytes(many.plan.wave, profile, law, ONE) for name, law in LAWS.items()}
    return {
        "same_signature": few.plan.signature == many.plan.signature,
        "took_bytes": many.peak_delta_bytes,
        "times_the_price": {name: round(many.peak_delta_bytes / value, 2) for name, value in priced.items()},
    }


# --- what classes of shares cost -------------------------------------------------------------------------------------


def class_cost(meter: PeakMeter, waves: int = 12) -> dict[str, Any]:
    """How far the price of a mixed wave lies above its own peak, learned from itself."""
    rng = random.Random(5)
    model = Decoder(CONFIG, recompute=NO_RECOMPUTE).train()
    over = []
    for at in range(waves):
        requests = [
            request(kind, rng.randint(128, 900), 10 * at + one) for one, kind in enumerate(("targets", "reference"))
        ]
        took = run_wave(model, meter, requests)
        over.append(required_bytes(took.plan.wave, took.profile, safety=ONE) / took.peak_delta_bytes - 1)
    return {
        "waves": waves,
        "median_over_percent": round(100 * float(np.median(over)), 1),
        "most_over_percent": round(100 * max(over), 1),
    }


def measured(meter: PeakMeter) -> dict[str, Any]:
    return {
        "command": "python -m tests.adapters.trainer_rank.identity_table",
        "torch": torch.__version__,
        "rows": [*mixed_rows(meter), some_layers(meter)],
        "routing": routing(meter),
        "joint": many_kinds(meter),
        "share_steps": class_cost(meter),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args(arguments)
    with meter_for("cpu") as meter:
        text = json.dumps(measured(meter), indent=1) + "\n"
    if chosen.output is not None:
        chosen.output.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
