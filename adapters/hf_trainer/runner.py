"""A trainer's waves planned, admitted, measured and learned from: `MicroBatches` under a `WaveStep`."""

from __future__ import annotations

from torch import Tensor

from adapters.hf_trainer.slices import BatchItems
from adapters.hf_trainer.step import Step
from adapters.micro_batches import BatchResult, Micro, MicroBatches


class PricedRunner:
    """Runs a batch's items as padded waves, shortest first, each as wide as fits; see `MicroBatches.train_batch`.

    Gradients that are there before a batch (accumulation over several) are set aside while it runs, so they are held
    twice. results: what the batches so far ran as, the last one last; at most `keep` of them.
    """

    def __init__(self, batches: MicroBatches, *, keep: int = 1_000) -> None:
        self.batches = batches
        self.results: list[BatchResult] = []
        self._keep = keep

    def run(self, items: BatchItems, step: Step) -> list[Tensor]:
        """See `WaveRunner.run`. Items of about one length run together, so that padding costs little."""
        order = sorted(range(items.count), key=items.rows)

        def part(micro: Micro[int]) -> Tensor:
            return step(micro.items)

        result = self.batches.train_batch(order, part, items.rows, padded=True, backward=None, step_empty=True)
        self.results = [*self.results[1 - self._keep :], result]
        return [wave.loss for wave in result.waves if wave.loss is not None]
