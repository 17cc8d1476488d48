"""What a logical row costs at the head, by what is asked of it: python -m benchmarks.h200.head_numbers --out FILE

Requests with the same tokens share every packed row, so that two waves with different numbers of them differ in logical
rows alone. The slope between them is what a logical row takes at the wave's peak, and what of it lives into backward:
assumption HEAD charges 6 KiB. Asked for are log-probabilities, the same at a temperature, and with the entropy; the
losses are a policy gradient, and the same with an entropy bonus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from adapters.trainer_rank.decoder import Decoder, DecoderConfig
from adapters.trainer_rank.request import RequestOutputs
from benchmarks.h200.waves import Lines, WaveRunner, WaveShape, common_arguments, policy_gradient, prepared

ASKED: dict[str, dict[str, Any]] = {
    "log_probs": {},
    "temperature": {"temperature": 0.7},
    "entropy": {"entropy": True},
    "temperature_entropy": {"temperature": 0.7, "entropy": True},
}

COUNTS = {1: (5_000, 20_000), 64: (200, 1_200), 512: (50, 250)}
"""Tokens a request, and how many requests the two waves have."""

ENTROPY_BONUS = 0.01


def with_entropy_bonus(outputs: Sequence[RequestOutputs]) -> Tensor:
    """The policy gradient, less a share of the mean entropy where there is one."""
    loss = policy_gradient(outputs)
    entropies = [output.entropy.sum() for output in outputs if output.entropy is not None]
    return loss - ENTROPY_BONUS * torch.stack(entropies).mean() if entropies else loss


def model_of(device: torch.device, small: bool) -> Decoder:
    """Two layers under a head of real width, so that the head holds the peak."""
    config = DecoderConfig(
        vocabulary=512 if small else 151_936,
        hidden=64 if small else 1024,
        layers=2,
        heads=4 if small else 8,
        kv_heads=2 if small else 4,
        head_dim=16 if small else 128,
        feed_forward=64 if small else 2048,
        lora_rank=8,
        dtype=torch.float32 if small else torch.bfloat16,
    )
    with device:
        return Decoder(config).train()


def main() -> None:
    parser = common_arguments(__doc__.splitlines()[0])
    arguments = parser.parse_args()
    device = prepared(arguments)
    lines = Lines(arguments.out, arguments.seconds)
    with WaveRunner(model_of(device, arguments.small), device, family="head") as runner:
        runner.run(WaveShape(label="cold", families=((64, (1,)),)), asked=ASKED["temperature_entropy"])
        for rows, counts in COUNTS.items():
            few, many = (count // 50 for count in counts) if arguments.small else counts
            for name, asked in ASKED.items():
                if lines.is_over:
                    return
                small_wave, large_wave = (
                    runner.run(
                        WaveShape(label=f"{name}-{rows}", families=((rows, (0,) * count),)),
                        with_entropy_bonus,
                        asked=asked,
                    )
                    for count in (few, many)
                )
                extra = large_wave["logical_rows"] - small_wave["logical_rows"]
                lines.write(
                    {
                        "asked": name,
                        "request_rows": rows,
                        "requests": [few, many],
                        "peak_bytes_a_row": (large_wave["peak_bytes"] - small_wave["peak_bytes"]) / extra,
                        "live_bytes_a_row": (large_wave["retained_bytes"] - small_wave["retained_bytes"]) / extra,
                        "output_bytes_a_row": (large_wave["output_bytes"] - small_wave["output_bytes"]) / extra,
                        "peak_bytes": [small_wave["peak_bytes"], large_wave["peak_bytes"]],
                        "retained_bytes": [small_wave["retained_bytes"], large_wave["retained_bytes"]],
                        "baseline_bytes": large_wave["baseline_bytes"],
                    }
                )


if __name__ == "__main__":
    main()
