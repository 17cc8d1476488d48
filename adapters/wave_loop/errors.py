"""Typed errors of the loop. Messages carry the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from pricing.kernel.errors import PricingError
from pricing.kernel.liveness import stands_against
from pricing.kernel.quantities import GIB
from pricing.text import gib_text

if TYPE_CHECKING:
    from adapters.torch_memory import Admission
    from adapters.wave_loop.failure import OutOfMemory
    from adapters.wave_loop.holdings import Holdings
    from adapters.wave_loop.wave import WaveStats
    from pricing.planner.budget import Budget
    from pricing.planner.plan import WavePlan


class WaveOverError(PricingError):
    """Outputs asked of a wave after its turn: they were let go so that the next wave has their memory."""


class OutOfStepError(PricingError):
    """Ranks of a sharded model would run different passes in a wave; raised on all of them, before any runs it."""


class RefusalChoiceError(PricingError):
    """`on_refusal` is none of the choices there are."""


class RefusedError(PricingError):
    """What was asked cannot run, and nothing of it ran."""


class WaveRefusedError(RefusedError):
    """The next item cannot run; nothing of it ran. `plan` has rows, price, parts, budget and every rung tried.

    holdings: whose memory the rest is. failures: the out-of-memory errors of this call that led here. budget: what it
    was held against, part by part.
    """

    def __init__(
        self,
        plan: WavePlan,
        holdings: Holdings | None = None,
        failures: Sequence[OutOfMemory] = (),
        budget: Budget | None = None,
    ) -> None:
        text = _refusal_text(plan, holdings, failures)
        super().__init__(text if budget is None else f"{text}\n{budget}")
        self.plan = plan
        self.budget = budget
        self.holdings = holdings
        self.failures = tuple(failures)


class OutputsRefusedError(RefusedError):
    """Outputs that are all kept can never fit together; nothing ran."""

    def __init__(self, output_bytes: int, available_bytes: int, holdings: Holdings) -> None:
        super().__init__(
            f"the outputs of these items take {gib_text(output_bytes)} and stay alive together; "
            f"{gib_text(available_bytes)} are available{holdings}; ask for fewer at a time, or loop over "
            "forward_micro_batches and keep only what you need"
        )
        self.output_bytes = output_bytes
        self.available_bytes = available_bytes
        self.holdings = holdings


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

    `plan` and `admission` as they were; the error that said so is the cause. It was learned from: the same wave is not
    admitted again into the same memory.
    """

    def __init__(self, plan: WavePlan, admission: Admission, phase: str, advice: str = "") -> None:
        super().__init__(_out_of_memory_text(plan, admission, phase, advice))
        self.plan = plan
        self.admission = admission


class OutOfMemoryRefusedError(WaveRefusedError, AdmittedOutOfMemoryError):
    """Waves of this call ran out of memory until what was learned of them leaves nothing that could be admitted: the
    refusal of what is left, and the last of those errors."""

    def __init__(
        self, plan: WavePlan, holdings: Holdings | None, failures: Sequence[OutOfMemory], failed: WaveStats
    ) -> None:
        text = _refusal_text(plan, holdings, failures)
        BaseException.__init__(
            self, f"{text}\n{_out_of_memory_text(failed.plan, failed.admission, failures[-1].phase, '')}"
        )
        self.plan = plan
        self.admission = failed.admission
        self.holdings = holdings
        self.failures = tuple(failures)


HOW_TO_GO_ON = (
    "this was learned: no wave as large is admitted again into as little memory. Gradients of a part of this wave may "
    "already be added: zero them and run the batch again, or let train_batch own loss and backward"
)
"""What a caller whose own loop ran out of memory is told."""

CANNOT_BE_TAKEN_BACK = (
    "it cannot be run again: parameters changed since it began (an optimizer that steps inside), or gradients that "
    "were there before were added to"
)


def _refusal_text(plan: WavePlan, holdings: Holdings | None, failures: Sequence[OutOfMemory]) -> str:
    if plan.refusal is None:
        text = f"items from {plan.start} on fit here, but another rank cannot run its part of the wave"
    else:
        text = f"item {plan.start}: {plan.refusal}"
    if (
        plan.probe is not None
        and plan.probe.witnessed_bytes is not None
        and stands_against(plan.price.required_bytes, plan.probe.witnessed_bytes)
    ):
        text += f"\n  complete readings say {gib_text(plan.probe.witnessed_bytes)} of it, but it is not probed: " + (
            "a wave of its kind ran out of memory before" if plan.probe.lost else "that does not fit either"
        )
    if holdings is not None and str(holdings):
        text += f"\n  of the device{holdings}"
    if failures:
        text += f"\n  waves of this call ran out of memory {len(failures)} times before; last: {failures[-1].text}"
    return text


def _out_of_memory_text(plan: WavePlan, admission: Admission, phase: str, advice: str) -> str:
    wave, price = plan.wave, plan.price
    text = (
        f"out of memory in the {phase} of an admitted wave: {wave.packed_rows:,} packed rows, "
        f"{wave.logical_rows:,} logical rows, {wave.grad_segments:,} segments, verdict {plan.verdict}, "
        f"binding term {price.binding_term}, law {price.law}; admitted with {_held_against(admission)}"
    )
    return f"{text}; {advice}" if advice else text


def _held_against(admission: Admission) -> str:
    budget = admission.budget
    return (
        f"{admission.required_bytes / GIB:.3f} GiB required of {budget.available_bytes / GIB:.3f} GiB available "
        f"({budget.free_bytes / GIB:.3f} GiB free, {budget.reserve_bytes / GIB:.3f} GiB reserve, "
        f"{budget.reusable_cache_bytes / GIB:.3f} GiB reusable cache)"
    )
