"""Random training loops on a real rank: what was seen stays covered, and nothing that fits is refused for bookkeeping.

The short form is a few loops of a tiny decoder, in CI; `make deep` runs some hundreds.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from adapters.torch_memory import PeakMeter, StorageCounter
from adapters.trainer_rank import MicroBatch
from pricing import required_bytes
from pricing.kernel.made_gradients import apart, together
from pricing.planner.plan import Verdict
from tests.regressions.test_gradient_cases import LAWS, OPTIMIZERS, Training

IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
LOOPS = 300 if IS_DEEP else 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """zero_at, set_to_none: when and how gradients are let go. accumulates: the optimizer waits. frozen: how many of
    the lowest layers do not train. restarts: a new rank begins here, with the file that the last one left."""

    lengths: tuple[int, ...]
    zero_at: str
    set_to_none: bool
    accumulates: bool
    frozen: int
    restarts: bool


STEPS = st.builds(
    Step,
    lengths=st.lists(st.integers(60, 120), min_size=1, max_size=3).map(tuple),
    zero_at=st.sampled_from(["start", "inside", "end", "never"]),
    set_to_none=st.booleans(),
    accumulates=st.booleans(),
    frozen=st.sampled_from([0, 0, 1, 2]),
    restarts=st.sampled_from([False, False, True]),
)
SCHEDULES = st.lists(STEPS, min_size=3, max_size=5)


def freeze(training: Training, layers: int) -> None:
    """The lowest layers do not train; what trains at all is as it was made."""
    trained = {id(value) for value in training.trained}
    for index, layer in enumerate(training.model.layers):
        for value in layer.parameters():
            if id(value) in trained:
                value.requires_grad_(index >= layers)


def run(training: Training, steps: list[Step], *, alone: bool) -> list[MicroBatch]:
    """The waves of these steps. alone: each item in a call of its own."""
    before = len(training.waves)
    for step in steps:
        if step.restarts:
            freeze(training, 0)  # a program binds its model, then freezes
            training.start()
        freeze(training, step.frozen)
        training.zero_at, training.set_to_none = step.zero_at, step.set_to_none
        training.step(list(step.lengths), accumulates=step.accumulates, alone=alone)
    return training.waves[before:]


def assert_covered(training: Training) -> None:
    """No reading lies above the price of its wave now, of rows alone and of rows with the gradients they made.

    But for first waves in which an optimizer that steps inside backward made its states: such a reading is too high by
    what was made between two looks, and as a seed it does not count (spec/assumptions.md, "Not promised").
    """
    for wave in training.waves:
        if training.in_backward and wave.stats.plan.verdict is Verdict.COLD_START:
            continue
        look, signature = wave.stats.closing, wave.stats.plan.signature
        assert look is not None and look.refusal is None
        for known, reading in ((apart(signature), look.reading), (together(signature), look.reading_with_gradients)):
            if reading is not None:
                profile = training.rank.profiles[known]
                price_bytes = required_bytes(wave.stats.plan.wave, profile, training.rank.law, training.rank.safety)
                assert reading.peak_delta_bytes <= price_bytes


@settings(max_examples=LOOPS, deadline=None, phases=[Phase.generate])  # shrinking trains for minutes
@given(
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    lora=st.booleans(),
    in_backward=st.booleans(),
    law=st.sampled_from(LAWS),
    steps=SCHEDULES,
)
def test_random_training_loops(optimizer: str, lora: bool, in_backward: bool, law: str, steps: list[Step]) -> None:
    """Two rounds of a schedule with one item a wave on a roomy device, then one on a device with a quarter to spare
    over what the second took: every item runs, no wave takes more than was held against the device, and every reading
    stays covered by the later price of its wave. At every wave the gradients held back are those that are missing.

    The tight device is for the frontier law alone. In a rate law's rates what the first wave took once (states that an
    optimizer made inside backward) stays, and a small wave's constants are a large one's rate.
    """
    with PeakMeter(StorageCounter()) as meter:
        assert_loop_holds(meter, optimizer, lora, in_backward, law, steps)


def assert_loop_holds(
    meter: PeakMeter, optimizer: str, lora: bool, in_backward: bool, law: str, steps: list[Step]
) -> None:
    """See `test_random_training_loops`."""
    assert isinstance(meter.counter, StorageCounter)
    with tempfile.TemporaryDirectory() as folder:
        training = Training(
            meter=meter,
            optimizer="adamw" if in_backward and optimizer == "unknown" else optimizer,
            lora=lora,
            in_backward=in_backward,
            law=law,
            profiles=Path(folder, "profiles.json"),
        )
        run(training, steps, alone=True)
        taken_bytes = max(
            look.peak_bytes for wave in run(training, steps, alone=True) if (look := wave.stats.closing) is not None
        )
        gradient_bytes = sum(value.grad.nbytes for value in training.trained if value.grad is not None)
        fixed_bytes = meter.counter.allocated() - gradient_bytes
        spare_bytes = (taken_bytes - fixed_bytes) // 4
        if any(step.zero_at == "inside" for step in steps):  # priced as if the gradients stayed
            spare_bytes += sum(value.nbytes for value in training.trained)
        training.device_bytes = taken_bytes + spare_bytes if law == "frontier" else None
        freeze(training, 0)
        training.start()
        waves = run(training, steps, alone=False)
        assert sum(len(wave.items) for wave in waves) == sum(len(step.lengths) for step in steps)
        training.assert_priced(waves)
        assert_covered(training)
