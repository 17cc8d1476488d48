"""Shares on real decoders: what one mixed wave took prices every other one of its kinds, or their signatures differ."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import Request, TrainerRank
from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from pricing import Profile, Reading, observe, required_bytes
from pricing.kernel.quantities import GIB, Safety
from pricing.kernel.requests import NO_RECOMPUTE, ONE_LAYER_FULL, RecomputeMode, Signature
from pricing.kernel.shares import SHARE_STEPS
from pricing.planner.plan import WavePlan
from tests.adapters.trainer_rank.support import tokens

ONE = Safety(numerator=1, denominator=1)
CONFIG = DecoderConfig(vocabulary=97, hidden=64, layers=4, heads=4, kv_heads=2, head_dim=16, feed_forward=160)
KINDS = ("targets", "reference", "logits", "top_k", "hidden", "wide")
SHAPE_SLACK_BYTES = 48 * 1024
"""What is constant a wave or a request here (tables of positions, row numbers): assumption SHORT, not SHARES."""


def request(kind: str, rows: int, seed: int) -> Request:
    row = tokens(rows, seed)
    match kind:
        case "targets" | "reference":
            return Request(tokens=row, targets=row, grads=kind == "targets")
        case "logits":
            return Request(tokens=row, logits=True)
        case "top_k":
            return Request(tokens=row, top_k=5)
        case "hidden":
            return Request(tokens=row, hidden_states=True)
        case _:
            return Request(tokens=row, targets=np.stack([row] * 3, axis=1))


@dataclass(frozen=True)
class Took:
    plan: WavePlan
    peak_delta_bytes: int
    profile: Profile
    reading: Reading


def run_wave(model: nn.Module, meter: PeakMeter, requests: list[Request]) -> Took:
    """One wave of all requests, loss and backward: its plan, its peak, and what it alone teaches."""
    rank = TrainerRank(
        model,
        memory_bytes=2 * GIB,
        meter=meter,
        cold_transient_bytes=0,
        check="skip-the-check-at-binding",
        forecast=False,
    )
    model.zero_grad(set_to_none=True)
    for value in model.parameters():
        value.grad = torch.zeros_like(value)  # gradients are no part of a wave
    (wave,) = _losses(rank, requests)
    reading = wave.stats.closing.reading
    assert reading is not None
    profile = observe(Profile(), reading)
    return Took(plan=wave.stats.plan, peak_delta_bytes=reading.peak_delta_bytes, profile=profile, reading=reading)


def _losses(rank: TrainerRank, requests: list[Request]) -> list[Any]:
    waves = []
    for wave in rank.forward_micro_batches([requests]):
        total = torch.zeros(())
        for output in wave.outputs:
            for tensor in output.tensors():
                if tensor.requires_grad:
                    total = total + tensor.float().mean()
            del tensor
        if total.requires_grad:
            total.backward()
        del output, total
        waves.append(wave)
    return waves


def mixed(rng: random.Random, kinds: tuple[str, ...], rows: list[int]) -> list[Request]:
    """Rows of each kind over one to three requests."""
    requests = []
    for kind, count in zip(kinds, rows, strict=True):
        pieces = rng.randint(1, max(1, min(3, count // 64)))
        for at in range(pieces):
            length = count // pieces + (count % pieces if at == 0 else 0)
            requests.append(request(kind, length, rng.randrange(1 << 30)))
    return requests


def relatives_price(first: Took, second: Took) -> int:
    """What the first wave's profile says of the second: under its own signature, or as a relative's evidence."""
    from pricing.planner.setting import Setting

    shape = second.plan.shape
    wave = Setting().wave(
        shape,
        second.plan.requests,
        second.plan.wave.workload,
        cold=False,
        shares=first.plan.signature.shares,
    )
    return required_bytes(wave, first.profile, safety=ONE)


def same_kinds(one: Signature, other: Signature) -> bool:
    return one.without_shares == other.without_shares and {(share.quantity, share.kind) for share in one.shares} == {
        (share.quantity, share.kind) for share in other.shares
    }


@pytest.mark.parametrize("recompute", [NO_RECOMPUTE, ONE_LAYER_FULL], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_one_wave_prices_every_other_of_its_kinds(meter: PeakMeter, recompute: RecomputeMode, seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    model = Decoder(CONFIG, recompute=recompute).train()
    kinds = tuple(rng.sample(KINDS, rng.choice((2, 2, 3))))
    took = []
    for _ in range(5):
        total, weights = rng.randint(512, 2_048), [rng.choice((1, 4, 20)) * rng.uniform(1, 2) for _ in kinds]
        rows = [max(64, int(total * weight / sum(weights))) for weight in weights]
        took.append(run_wave(model, meter, mixed(rng, kinds, rows)))
    for first in took:
        for second in took:
            assert same_kinds(first.plan.signature, second.plan.signature)
            if second.plan.wave.packed_rows < first.plan.wave.evidence_rows.packed_rows:
                continue  # a rate through the origin says less of smaller waves, as everywhere
            price = relatives_price(first, second)
            assert price + SHAPE_SLACK_BYTES >= second.peak_delta_bytes, (kinds, first.plan.wave, second.plan.wave)


@pytest.mark.parametrize(
    ("kinds", "first", "second"),
    [
        (("targets", "reference"), [64, 2_048], [2_048, 64]),
        (("targets", "logits"), [1_990, 64], [64, 1_990]),
        (("reference", "hidden"), [1_990, 64], [64, 1_990]),
        (("top_k", "hidden"), [64, 1_500], [1_500, 64]),
    ],
)
def test_mixes_of_other_proportions_have_other_signatures(
    meter: PeakMeter, kinds: tuple[str, str], first: list[int], second: list[int]
) -> None:
    """Priced by one another they are priced high enough; what equal rows alone would have said is shown beside."""
    rng = random.Random(1)
    model = Decoder(CONFIG, recompute=NO_RECOMPUTE).train()
    learned, priced = (run_wave(model, meter, mixed(rng, kinds, rows)) for rows in (first, second))

    assert learned.plan.signature != priced.plan.signature
    assert relatives_price(learned, priced) >= priced.peak_delta_bytes


def test_a_run_of_mixed_items_settles_without_a_cold_start_a_class(meter: PeakMeter) -> None:
    """Items whose proportions wander: one cold start, then prices, never under a peak; and a wave that came by its own
    class is at most half an octave above its need."""
    rng = random.Random(3)
    model = Decoder(CONFIG, recompute=NO_RECOMPUTE).train()
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    rank = TrainerRank(
        model, memory_bytes=GIB, meter=meter, cold_transient_bytes=0, check="skip-the-check-at-binding", safety=ONE
    )
    items = [
        [request("targets", rng.randint(64, 400), at), request("reference", rng.randint(64, 900), 1_000 + at)]
        for at in range(24)
    ]
    stats = []
    for first in range(0, 24, 3):
        for wave in rank.forward_micro_batches(items[first : first + 3]):
            outputs = [output.target_log_probs for output in wave.outputs if output.target_log_probs is not None]
            torch.cat(outputs)[:].sum().backward()
            stats.append(wave.stats)
            del outputs
    cold = [one for one in stats if one.plan.verdict.value == "cold_start"]
    assert len(cold) == 1
    over = []
    for one in stats:
        assert one.closing is not None and one.closing.reading is not None
        if one not in cold:
            assert one.plan.price.required_bytes + SHAPE_SLACK_BYTES >= one.closing.reading.peak_delta_bytes
            over.append(one.plan.price.required_bytes / one.closing.reading.peak_delta_bytes)
    assert sorted(over)[len(over) // 2] < (SHARE_STEPS + 1) / SHARE_STEPS
    assert any(len(one.plan.signature.shares) == 4 for one in stats)
