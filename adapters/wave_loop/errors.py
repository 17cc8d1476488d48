"""Typed errors of the loop. Messages carry the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pricing.kernel.errors import PricingError
from pricing.kernel.quantities import GIB

if TYPE_CHECKING:
    from adapters.torch_memory import Admission
    from pricing.planner.budget import Budget
    from pricing.planner.plan import WavePlan


class WaveOverError(PricingError):
    """Outputs asked of a wave after its turn: they were let go so that the next wave has their memory."""


class WaveRefusedError(PricingError):
    """The next item cannot run; nothing of it ran. `plan` has rows, price, parts, budget and every rung tried.

    `budget`: what it was held against, part by part.
    """

    def __init__(self, plan: WavePlan, budget: Budget | None = None) -> None:
        if plan.refusal is None:
            text = f"items from {plan.start} on fit here, but another rank cannot run its part of the wave"
        else:
            text = f"item {plan.start}: {plan.refusal}"
        super().__init__(text if budget is None else f"{text}\n{budget}")
        self.plan = plan
        self.budget = budget


class AdmissionError(PricingError):
    """Planned waves kept failing the check right before execution: the device's free memory fell each time.

    `admission` is this rank's last one (None: its sample failed).
    """

    def __init__(self, plan: WavePlan, admission: Admission | None, tries: int) -> None:
        here = "" if admission is None else f"; here {_held_against(admission)}"
        super().__init__(
            f"items from {plan.start} on were planned {tries} times, and each time some rank's memory had shrunk below "
            f"the price by the moment of execution{here}"
        )
        self.plan = plan
        self.admission = admission


class AdmittedOutOfMemoryError(torch.OutOfMemoryError):
    """Out of memory in a wave that was admitted. The numbers are the admission's own, never taken again afterwards.

    `plan` and `admission` as they were; the allocator's error is the cause. Nothing is learned from it.
    """

    def __init__(self, plan: WavePlan, admission: Admission, phase: str) -> None:
        wave, price = plan.wave, plan.price
        super().__init__(
            f"out of memory in the {phase} of an admitted wave: {wave.packed_rows:,} packed rows, "
            f"{wave.logical_rows:,} logical rows, {wave.grad_segments:,} segments, verdict {plan.verdict}, "
            f"binding term {price.binding_term}, law {price.law}; admitted with {_held_against(admission)}"
        )
        self.plan = plan
        self.admission = admission


def _held_against(admission: Admission) -> str:
    budget = admission.budget
    return (
        f"{admission.required_bytes / GIB:.3f} GiB required of {budget.available_bytes / GIB:.3f} GiB available "
        f"({budget.free_bytes / GIB:.3f} GiB free, {budget.reserve_bytes / GIB:.3f} GiB reserve, "
        f"{budget.reusable_cache_bytes / GIB:.3f} GiB reusable cache)"
    )
