"""OpenPipe ART's own `TrainerRank` with this kernel's prices: `bind(rank)`, and `unbind(rank)` to undo it.

::

    from adapters.art import bind

    binding = bind(rank, law="frontier", safety="51/50")
    for batch in rank.forward_micro_batches(requests):
        ...
        print(binding.explain(batch.stats).price)
"""

from __future__ import annotations

from adapters.art.bound_rank import Binding, bind, unbind
from adapters.art.events import AdmittedPlan, LearnedReading, Records
from adapters.art.footprints import Footprints, RankDevice
from adapters.art.interface import SUPPORTED_VERSION, ArtBindingError, ArtInterfaceError
from pricing.neighbours import warn_of_foreign_adapters

warn_of_foreign_adapters()

Admission = AdmittedPlan
"""The name of 0.1.0. `adapters.torch_memory.Admission` is another thing: the verdict right before execution."""
Observation = LearnedReading
"""The name of 0.1.0. `adapters.torch_memory.Observation` is another thing: what an interval showed."""

__all__ = [
    "SUPPORTED_VERSION",
    "Admission",
    "AdmittedPlan",
    "ArtBindingError",
    "ArtInterfaceError",
    "Binding",
    "Footprints",
    "LearnedReading",
    "Observation",
    "RankDevice",
    "Records",
    "bind",
    "unbind",
]
