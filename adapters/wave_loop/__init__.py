"""The loop of a trainer that sizes its waves by memory, whatever a wave runs: plan, admit, measure, learn, agree.

`adapters.trainer_rank` puts packed execution on top of it.
"""

from adapters.wave_loop.errors import AdmissionError, AdmittedOutOfMemoryError, WaveOverError, WaveRefusedError
from adapters.wave_loop.loop import WaveLoop
from adapters.wave_loop.wave import WaveStats, WaveTurn
from adapters.wave_loop.work import Work
from pricing.neighbours import warn_of_foreign_adapters

warn_of_foreign_adapters()

__all__ = [
    "AdmissionError",
    "AdmittedOutOfMemoryError",
    "WaveLoop",
    "WaveOverError",
    "WaveRefusedError",
    "WaveStats",
    "WaveTurn",
    "Work",
]
