"""OpenPipe ART's own `TrainerRank` with this kernel's prices: `bind(rank)`, and `unbind(rank)` to undo it.

::

    from adapters.art import bind

    binding = bind(rank, law="frontier", safety="51/50")
    for batch in rank.forward_micro_batches(requests):
        ...
        print(binding.explain(batch.stats).price)
"""

from __future__ import annotations

from adapters.art.binding import Binding, bind, unbind
from adapters.art.events import Admission, Observation, Records
from adapters.art.interface import SUPPORTED_VERSION, ArtBindingError, ArtInterfaceError
from pricing.neighbours import warn_of_foreign_adapters

warn_of_foreign_adapters()

__all__ = [
    "SUPPORTED_VERSION",
    "Admission",
    "ArtBindingError",
    "ArtInterfaceError",
    "Binding",
    "Observation",
    "Records",
    "bind",
    "unbind",
]
