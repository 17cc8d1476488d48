"""The 6 KiB charge per logical row, on a real head: what requests cost beyond packed rows (HEAD, SHORT)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from adapters.trainer_rank.request import RequestOutputs
from benchmarks.h200.waves import SavingCaller, WaveRunner, WaveShape, policy_gradient
from pricing import Profile, Reading, Wave, Workload, observe, required_bytes
from pricing.kernel.quantities import LOGICAL_ROW_BYTES

pytestmark = pytest.mark.cuda

KIB = 1 << 10
MEASURED_PEAK_BYTES = 9 * 512 + 8
MEASURED_LIVE_BYTES = 6 * 512 + 8


def entered_runner(device: torch.device, vocabulary: int) -> WaveRunner:
    config = DecoderConfig(
        vocabulary=vocabulary,
        hidden=1024,
        layers=2,
        heads=8,
        kv_heads=4,
        head_dim=128,
        feed_forward=2048,
        lora_rank=8,
        dtype=torch.bfloat16,
    )
    with device:
        model = Decoder(config).train()
    return WaveRunner(model, device, family="test")


@pytest.fixture
def runner(device: torch.device) -> Iterator[WaveRunner]:
    """A decoder with a head of real width."""
    with entered_runner(device, 151_936) as entered:
        entered.run(WaveShape(label="cold", families=((64, (1,)),)))  # compilation and library handles
        yield entered


@pytest.fixture
def rows_runner(device: torch.device) -> Iterator[WaveRunner]:
    """A decoder whose head is narrow enough that rows, not the head's fixed workspace, hold the peak of small waves."""
    with entered_runner(device, 2_048) as entered:
        yield entered


def duplicates(rows: int, count: int) -> WaveShape:
    """`count` requests with the same `rows` tokens: one request's packed rows, `count` times its logical rows."""
    return WaveShape(label="duplicates", families=((rows, (0,) * count),))


def just_the_sum(outputs: Sequence[RequestOutputs]) -> Tensor:
    """A caller that keeps nothing of its own."""
    return torch.cat([output.target_log_probs for output in outputs if output.target_log_probs is not None]).sum()


@pytest.mark.parametrize(("few", "many"), [(5_000, 20_000), (20_000, 100_000)])
def test_duplicate_one_token_requests_stay_under_the_measured_slope(runner: WaveRunner, few: int, many: int) -> None:
    small, large = (runner.run(duplicates(1, count), just_the_sum) for count in (few, many))
    assert small["packed_rows"] == large["packed_rows"] == 1
    assert large["logical_rows"] == many
    extra = many - few
    assert large["peak_bytes"] - small["peak_bytes"] <= MEASURED_PEAK_BYTES * extra
    assert large["retained_bytes"] - small["retained_bytes"] <= MEASURED_LIVE_BYTES * extra
    # Each request gets its own number, so the outputs alone have a slope: the test is not looking at nothing.
    assert large["retained_bytes"] - small["retained_bytes"] >= 4 * extra


@pytest.mark.parametrize("rows", [64, 512])
def test_a_policy_gradient_loss_stays_within_the_charge(runner: WaveRunner, rows: int) -> None:
    small, large = (runner.run(duplicates(rows, count), policy_gradient) for count in (100, 1_100))
    per_request = (large["peak_bytes"] - small["peak_bytes"]) / 1_000
    assert 0 < per_request <= LOGICAL_ROW_BYTES * rows


def test_a_caller_that_keeps_256_kib_a_request_is_covered_from_64_tokens_on(runner: WaveRunner) -> None:
    """Enough requests in both waves that what the caller keeps holds the peak, not the head's workspace."""
    caller = SavingCaller(saved_bytes=256 * KIB)
    small, large = (runner.run(duplicates(64, count), caller) for count in (4_000, 8_000))
    per_request = (large["peak_bytes"] - small["peak_bytes"]) / 4_000
    assert 256 * KIB <= per_request <= LOGICAL_ROW_BYTES * 64


def test_the_same_caller_on_one_token_requests_breaks_the_charge(runner: WaveRunner) -> None:
    """The negative control: why requests under 64 tokens are not packed-priced."""
    caller = SavingCaller(saved_bytes=256 * KIB)
    small, large = (runner.run(duplicates(1, count), caller) for count in (100, 1_100))
    per_request = (large["peak_bytes"] - small["peak_bytes"]) / 1_000
    assert per_request > LOGICAL_ROW_BYTES


def test_long_requests_teach_a_price_that_covers_short_ones(rows_runner: WaveRunner) -> None:
    """16 shared requests of 4,096 tokens, a seed and a warm one; then 20 shared requests of 64."""
    caller = SavingCaller(saved_bytes=256 * KIB)
    profile = Profile()
    for _ in range(2):
        calibration = rows_runner.run(WaveShape(label="calibration", families=((2048, (2048,) * 16),)), caller)
        profile = observe(profile, reading_of(calibration))
    rows_runner.run(WaveShape(label="asked", families=((32, (32,) * 20),)), caller)
    asked = rows_runner.run(WaveShape(label="asked", families=((32, (32,) * 20),)), caller)
    assert asked["shortest_request"] == 64
    assert asked["peak_bytes"] > 20 * 256 * KIB
    assert required_bytes(wave_of(asked), profile) > asked["peak_bytes"]


def reading_of(line: dict[str, int]) -> Reading:
    return Reading(
        packed_rows=line["packed_rows"],
        logical_rows=line["logical_rows"],
        grad_segments=line["grad_segments"],
        output_bytes=line["output_bytes"],
        peak_delta_bytes=line["peak_bytes"],
        retained_bytes=line["retained_bytes"],
    )


def wave_of(line: dict[str, int]) -> Wave:
    return Wave(
        packed_rows=line["packed_rows"],
        logical_rows=line["logical_rows"],
        grad_segments=line["grad_segments"],
        output_bytes=line["output_bytes"],
        segment_state_bytes=line["segment_state_bytes"],
        workload=Workload.training(shortest_rows=line["shortest_request"]),
    )


@pytest.mark.parametrize("sharing_rows", [(16_384,), (8_192, 512, 16), (1_024, 512, 30)])
def test_the_head_is_a_workspace_not_a_slope(runner: WaveRunner, sharing_rows: tuple[int, ...]) -> None:
    """Full logits of these waves would be 16,384 x 151,936 fp32 values, 9.3 GiB; the whole wave stays far below."""
    prompt, *rest = sharing_rows
    branches = (rest[0],) * rest[1] if rest else ()
    line = runner.run(WaveShape(label="long", families=((prompt, branches),)))
    assert np.isclose(line["packed_rows"], 16_384, rtol=0.01)
    assert line["peak_bytes"] < 3 << 30
