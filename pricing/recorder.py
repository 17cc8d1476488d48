"""The recorder's public door: `pricing.records.recorder` under its public name."""

from pricing.records.recorder import *  # noqa: F403
from pricing.records.recorder import __all__  # noqa: F401
