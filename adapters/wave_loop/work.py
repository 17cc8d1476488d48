"""What the loop asks of a call: its items as the planner sees them, and how a wave of them runs."""

from __future__ import annotations

from typing import Protocol, TypeVar

from adapters.wave_loop.wave import WaveOwner, WaveStats, WaveTurn
from pricing.planner.plan import Batch, Setting

Turn_co = TypeVar("Turn_co", bound=WaveTurn, covariant=True)


class Work(Protocol[Turn_co]):
    """One call's items. What a wave of them runs is the work's; when and how wide it runs is the loop's."""

    @property
    def batch(self) -> Batch:
        """The items as the planner sees them."""

    @property
    def has_grads(self) -> bool:
        """Whether any of them carries gradients."""

    def setting(self) -> Setting:
        """What model and layout contribute; asked for each wave, from the live model."""

    def forward(self, stats: WaveStats) -> list[object] | None:
        """Run an admitted wave of more than no rows forward and hold its outputs until `turn`. Returns them: tensors
        in nested tuples, lists, dicts. Raises what the model raises. None where the caller runs the forward."""

    def turn(self, owner: WaveOwner, stats: WaveStats) -> Turn_co:
        """The wave in the caller's hands, with what `forward` held."""

    def drop(self) -> None:
        """Let go of what `forward` held: it is not handed out."""
