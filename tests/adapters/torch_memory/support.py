"""Small real waves on the CPU meter: a two-layer net, its caller, and a profile that learns from what the
meter says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from adapters.torch_memory import Flaw, Observation, PeakMeter, Role
from pricing import Profile, Reading, ReadingKind, Wave, Workload, observe

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

    def __init__(self, *, trainable: bool = True, hidden: int = HIDDEN, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        generator = torch.Generator().manual_seed(0)
        first = torch.randn(WIDTH, hidden, generator=generator).to(self.device)
        second = torch.randn(hidden, 1, generator=generator).to(self.device)
        self.first = first.requires_grad_(trainable)
        self.second = second.requires_grad_(trainable)

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Both weights."""
        return [self.first, self.second]

    def inputs(self, rows: int) -> torch.Tensor:
        """Shape (rows, WIDTH), on the net's device."""
        return torch.ones(rows, WIDTH, device=self.device)

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
    inputs = net.inputs(rows)
    interval = meter.open(wave_of(rows, output_bytes=rows * FLOAT_BYTES), grads=True)
    outputs = net(inputs)
    after_forward = interval.forward_done(outputs)
    outputs.sum().backward()
    del outputs
    return after_forward, interval.close()


# Waves that were spoilt, on any device ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a loop body has at hand. `reset_peak` is what any code in the process can do to the counter."""

    meter: PeakMeter
    net: Net
    outputs: torch.Tensor
    reset_peak: Callable[[], None]


def _nested_forward(body: Body) -> None:
    body.outputs.sum().backward()
    inner = body.meter.open(wave_of(1), grads=False, role=Role.FORWARD)
    with torch.no_grad():
        inner.forward_done(body.net(body.net.inputs(1)))


def _foreign_reset(body: Body) -> None:
    body.outputs.sum().backward()
    body.reset_peak()


def _foreign_reset_before_backward(body: Body) -> None:
    body.reset_peak()
    body.outputs.sum().backward()


def _deferred_backward(_body: Body) -> None:
    pass


def _backward_of_a_part(body: Body) -> None:
    body.outputs.sum().backward(inputs=[body.net.second])


def _step_before_backward(body: Body) -> None:
    torch.optim.SGD(body.net.parameters, lr=0.0).step()
    body.outputs.sum().backward()


SPOILT: dict[str, tuple[Callable[[Body], None], Flaw]] = {
    "nested forward": (_nested_forward, Flaw.NESTED_INTERVAL),
    "foreign reset": (_foreign_reset, Flaw.FOREIGN_RESET),
    "foreign reset before backward": (_foreign_reset_before_backward, Flaw.FOREIGN_RESET),
    "deferred backward": (_deferred_backward, Flaw.BACKWARD_NOT_SEEN),
    "backward of a part": (_backward_of_a_part, Flaw.BACKWARD_NOT_SEEN),
    "optimizer step before backward": (_step_before_backward, Flaw.STEP_BEFORE_BACKWARD),
}


def spoilt_wave(
    meter: PeakMeter,
    net: Net,
    caller: Callable[[Body], None],
    *,
    rows: int,
    claimed_rows: int,
    reset_peak: Callable[[], None],
) -> tuple[Observation, Observation]:
    """A wave that runs `rows` rows and claims `claimed_rows`, so that a rate believed too low would show in prices."""
    inputs = net.inputs(rows)
    interval = meter.open(wave_of(claimed_rows, output_bytes=rows * FLOAT_BYTES), grads=True)
    outputs = net(inputs)
    after_forward = interval.forward_done(outputs)
    caller(Body(meter=meter, net=net, outputs=outputs, reset_peak=reset_peak))
    return after_forward, interval.close()


def as_whole_wave(seen: Observation) -> Reading:
    """The same figures, believed: what the meter must not do with a spoilt wave."""
    assert seen.reading is not None
    return replace(seen.reading, kind=ReadingKind.WHOLE_WAVE)
