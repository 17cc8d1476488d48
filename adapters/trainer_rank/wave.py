"""A packed wave as the caller sees it: its requests and their outputs, beside what was predicted and observed."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.trainer_rank.request import Request, RequestOutputs
from adapters.wave_loop.errors import WaveOverError
from adapters.wave_loop.wave import WaveOwner, WaveStats, WaveTurn


class MicroBatch(WaveTurn):
    """One wave of requests in the caller's hands, until the loop goes on. See `WaveTurn`.

    items: the item numbers. indices: the flat indices of its requests over all items of the call, in caller order.
    """

    def __init__(
        self, owner: WaveOwner, stats: WaveStats, *, requests: Sequence[Request], outputs: Sequence[RequestOutputs]
    ) -> None:
        super().__init__(owner, stats)
        self.items = range(stats.plan.start, stats.plan.next_start)
        self.indices = stats.plan.requests
        self.requests = tuple(requests)
        self._outputs: tuple[RequestOutputs, ...] | None = tuple(outputs)

    @property
    def outputs(self) -> tuple[RequestOutputs, ...]:
        """Outputs in caller order. Take them out to keep them: the wave lets go of them when its turn is over, so that
        the loop variable does not hold them through the next admission. Raises `WaveOverError` afterwards."""
        if self._outputs is None:
            raise WaveOverError(
                f"the wave of items {self.items.start} to {self.items.stop - 1} is over; "
                "keep wave.outputs, not the wave"
            )
        return self._outputs

    def release(self) -> None:
        """Let go of the outputs."""
        self._outputs = None
