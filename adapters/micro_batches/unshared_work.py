"""A caller's items as the loop's work: planned by their row counts, run by the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from adapters.micro_batches.errors import ItemRowsError
from adapters.micro_batches.micro import Micro
from adapters.wave_loop.wave import WaveOwner, WaveStats
from pricing import QuantityError, RequestSpec
from pricing.kernel.quantities import require_count
from pricing.kernel.requests import RecomputeMode
from pricing.planner.curve import WaveShape
from pricing.planner.plan import Batch, PlanRequest, Setting
from pricing.planner.row_shapes import RowShape, unshared_rows

T = TypeVar("T")


class UnsharedWork(Generic[T]):
    """One call's items. See `adapters.wave_loop.Work`.

    rows: an item's rows, at least 0; what no quantity can be raises `ItemRowsError`. spec: what is asked of an item of
    so many rows, which decides whether waves are packed-priced. topology, recompute: asked anew for each wave.
    """

    def __init__(
        self,
        items: Sequence[T],
        *,
        rows: Callable[[T], int],
        shape: RowShape,
        multiple: int,
        grads: bool,
        spec: Callable[[int], RequestSpec],
        topology: Callable[[], str],
        recompute: Callable[[], RecomputeMode],
    ) -> None:
        counts = [_rows_of(rows, item, at) for at, item in enumerate(items)]
        self.batch = Batch([[PlanRequest(spec=spec(count), grads=grads)] for count in counts], share=False)
        self.has_grads = grads
        self._items = items
        self._counts = counts
        self._shape = shape
        self._multiple = multiple
        self._topology = topology
        self._recompute = recompute

    def setting(self) -> Setting:
        """Made for each wave: the recompute mode is what the live model says now."""
        is_padded = self._shape is RowShape.PADDED
        return Setting(
            topology=f"{self._topology()}, {self._shape}",
            recompute=self._recompute(),
            row_multiple=1 if is_padded else self._multiple,
            rank_rows=self._padded_rows if is_padded else None,
        )

    def _padded_rows(self, _shape: WaveShape, requests: Sequence[int]) -> int:
        counts = (self._counts[request] for request in requests)
        return unshared_rows(counts, RowShape.PADDED, self._multiple)

    def forward(self, stats: WaveStats) -> None:
        """Nothing: the caller runs it."""

    def turn(self, owner: WaveOwner, stats: WaveStats) -> Micro[T]:
        """The wave in the caller's hands."""
        return Micro(owner, stats, self._items)

    def drop(self) -> None:
        """Nothing is held."""


def _rows_of(rows: Callable[[T], int], item: T, at: int) -> int:
    count = rows(item)
    try:
        require_count("rows", count)
    except QuantityError as error:
        raise ItemRowsError(at, error) from None
    return count
