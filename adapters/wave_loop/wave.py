"""A wave's turn, whatever it runs: its items, and what was predicted and observed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from adapters.torch_memory import Admission, Observation
from pricing import ReadingKind
from pricing.kernel.made_gradients import is_together

if TYPE_CHECKING:
    from adapters.wave_loop.random_state import RandomState
    from pricing import Reading
    from pricing.kernel.price import Price
    from pricing.planner.budget import Budget
    from pricing.planner.plan import WavePlan


@dataclass(slots=True, kw_only=True)
class WaveStats:
    """One wave's figures. `forward` is there when the caller gets the wave, `closing` once its turn is over.

    plan: what was priced and why (price, parts, binding term, widths tried). budget: what it was planned against; its
    reserve includes the parameters' gradients where backward has yet to make them.
    admission: the check right before execution, with the sample it was made from. after_out_of_memory: how many waves
    in a row had run out of memory before it; 0 for a first try. gradient_bytes: what of gradients it was to make; held
    back in the budget, or part of the price (`pricing.kernel.made_gradients`). beyond_bytes: what the wave lacked of
    the dearest wave of its signature and rows, as far as the work knows: it teaches as much more (`teaching`).
    """

    plan: WavePlan
    budget: Budget
    admission: Admission
    forward: Observation | None = None
    closing: Observation | None = None
    children: list[Observation] = field(default_factory=list)
    after_out_of_memory: int = 0
    gradient_bytes: int = 0
    beyond_bytes: int = 0

    def teaching(self, look: Observation) -> Observation:
        """What one look at the wave teaches. One at a wave that ran out of memory teaches itself.

        A law takes the outputs off what it reads (laws, section 2). Where the peak was before they were made that would
        take off what was not in it, so the outputs are added to what the rows took without them.
        """
        reading = look.reading
        if reading is None or reading.kind is ReadingKind.OUT_OF_MEMORY:
            return look
        with_gradients = look.reading_with_gradients
        return replace(
            look,
            reading=self._raised(look, reading),
            reading_with_gradients=None if with_gradients is None else self._raised(look, with_gradients),
        )

    def _raised(self, look: Observation, reading: Reading) -> Reading:
        peak_bytes, footprint_bytes = reading.peak_delta_bytes, reading.footprint_bytes
        if look.bare_bytes > 0:
            peak_bytes = max(peak_bytes, look.bare_bytes + reading.output_bytes)
        if footprint_bytes is not None and look.bare_footprint_bytes:
            footprint_bytes = max(footprint_bytes, look.bare_footprint_bytes + reading.output_bytes)
        peak_bytes += self.beyond_bytes
        footprint_bytes = None if footprint_bytes is None else footprint_bytes + self.beyond_bytes
        return replace(reading, peak_delta_bytes=peak_bytes, footprint_bytes=footprint_bytes)

    @property
    def price(self) -> Price:
        return self.plan.price

    @property
    def binding_term(self) -> str:
        return str(self.plan.price.binding_term)

    @property
    def predicted_bytes(self) -> int:
        """What was held against the budget: the price, or a split's cost."""
        return self.plan.required_bytes

    @property
    def observed_bytes(self) -> int | None:
        """Highest peak above the baseline that was seen so far, None where no look may be believed."""
        return max((reading.peak_delta_bytes for reading in self._readings()), default=None)

    @property
    def is_complete(self) -> bool:
        """Whether the wave gave complete evidence: only such waves can lower later prices."""
        return any(reading.is_complete for reading in self._readings())

    def reading_of(self, look: Observation) -> Reading | None:
        """What a look says of what was priced: the rows, or (`pricing.kernel.made_gradients`) both together, where any
        gradients were made."""
        with_gradients = look.reading_with_gradients if is_together(self.plan.signature) else None
        return look.reading if with_gradients is None else with_gradients

    def _readings(self) -> list[Reading]:
        looks = (self.reading_of(look) for look in (self.forward, self.closing) if look is not None)
        return [reading for reading in looks if reading is not None]

    @property
    def over_estimate(self) -> float | None:
        """(predicted - observed) / observed; negative where the wave was under-priced. None where nothing was seen."""
        observed = self.observed_bytes
        return None if not observed else (self.predicted_bytes - observed) / observed


class WaveOwner(Protocol):
    """Who ends a wave."""

    def end_wave(self, wave: WaveTurn, error: BaseException | None, *, completed: bool) -> None:
        """End it once; later calls do nothing."""


class WaveTurn:
    """One wave in the caller's hands, until the loop goes on. `stats.plan` says which items it runs.

    Entering it as a context (`with wave:`) is optional. It turns an out-of-memory error of the caller's phase into
    `AdmittedOutOfMemoryError`, and ends the wave's measurement at the end of the block, or at once where it raises.
    """

    def __init__(self, owner: WaveOwner, stats: WaveStats) -> None:
        self._owner = owner
        self.stats = stats
        self.random: RandomState | None = None

    def release(self) -> None:
        """Let go of what the wave holds of the device."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.end_wave(self, error, completed=error is None)
