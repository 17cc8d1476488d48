"""Small real waves on the CPU meter: a two-layer net, its caller, and a profile that learns from what the
meter says."""

from __future__ import annotations

import torch

from adapters.torch_memory import Observation, PeakMeter
from pricing import Profile, Wave, Workload, observe

WIDTH = 8
HIDDEN = 64
FLOAT_BYTES = 4


def wave_of(rows: int, *, output_bytes: int = 0) -> Wave:
    """An unshared wave of `rows` packed-priced rows."""
    return Wave(
        packed_rows=rows,
        logical_rows=rows,
        grad_segments=1,
        output_bytes=output_bytes,
        workload=Workload.training(shortest_rows=64),
    )


class Net:
    """relu(x w1) w2, one figure a row. Weights and inputs exist before any interval."""

    def __init__(self, *, trainable: bool = True) -> None:
        generator = torch.Generator().manual_seed(0)
        self.first = torch.randn(WIDTH, HIDDEN, generator=generator).requires_grad_(trainable)
        self.second = torch.randn(HIDDEN, 1, generator=generator).requires_grad_(trainable)

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Both weights."""
        return [self.first, self.second]

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Shape (rows, WIDTH) to (rows, 1)."""
        return torch.relu(inputs @ self.first) @ self.second


def learn(profile: Profile, *observations: Observation) -> Profile:
    """The profile after whatever of `observations` may be learned."""
    for seen in observations:
        if seen.reading is not None:
            profile = observe(profile, seen.reading)
    return profile


def run_wave(meter: PeakMeter, net: Net, rows: int) -> tuple[Observation, Observation]:
    """A wave as it should be: forward, loss and backward inside. Both of its observations."""
    inputs = torch.ones(rows, WIDTH)
    interval = meter.open(wave_of(rows, output_bytes=rows * FLOAT_BYTES), grads=True)
    outputs = net(inputs)
    after_forward = interval.forward_done(outputs)
    outputs.sum().backward()
    del outputs
    return after_forward, interval.close()
