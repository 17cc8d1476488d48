"""Peaks, budgets and whether to believe them, on PyTorch's own memory counters.

Quick tour, on a machine without an accelerator:

>>> import torch
>>> from adapters.torch_memory import meter_for
>>> from pricing import Profile, Wave, Workload, observe
>>> wave = Wave(packed_rows=4, logical_rows=4, grad_segments=1, output_bytes=16,
...     workload=Workload.training(shortest_rows=64))
>>> weight = torch.ones(8, 1, requires_grad=True)
>>> with meter_for("cpu") as meter:
...     interval = meter.open(wave, grads=True)
...     output = torch.ones(4, 8) @ weight
...     _ = interval.forward_done(output)
...     output.sum().backward()
...     seen = interval.close()
>>> seen.reading.kind, seen.flaws
(<ReadingKind.WHOLE_WAVE: 'whole_wave'>, ())
>>> profile = observe(Profile(), seen.reading)
"""

from adapters.torch_memory.budget import (
    AcceleratorMemory,
    Admission,
    BudgetSampler,
    MemorySample,
    MemorySource,
    SimulatedMemory,
    sampler_for,
)
from adapters.torch_memory.counter import AcceleratorCounter, MemoryCounter
from adapters.torch_memory.cpu_counter import StorageCounter
from adapters.torch_memory.errors import BudgetSampleError, MeterError, MeterMisuseError, OwnershipError
from adapters.torch_memory.measurement import Observation
from adapters.torch_memory.meter import Interval, PeakMeter, Role, meter_for
from adapters.torch_memory.out_of_memory import is_out_of_memory
from adapters.torch_memory.trust import Flaw, Unlearnable, environment_facts
from pricing.neighbours import warn_of_foreign_adapters

warn_of_foreign_adapters()

Refusal = Unlearnable
"""The name of 0.1.0. `pricing.plan.Refusal` is another thing: why an item cannot run."""

__all__ = [
    "AcceleratorCounter",
    "AcceleratorMemory",
    "Admission",
    "BudgetSampleError",
    "BudgetSampler",
    "Flaw",
    "Interval",
    "MemoryCounter",
    "MemorySample",
    "MemorySource",
    "MeterError",
    "MeterMisuseError",
    "Observation",
    "OwnershipError",
    "PeakMeter",
    "Refusal",
    "Role",
    "SimulatedMemory",
    "StorageCounter",
    "Unlearnable",
    "environment_facts",
    "is_out_of_memory",
    "meter_for",
    "sampler_for",
]
