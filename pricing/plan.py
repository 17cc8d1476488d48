"""The planner's public door: `pricing.planner.plan` under its public name."""

from pricing.planner.plan import *  # noqa: F403
from pricing.planner.plan import __all__  # noqa: F401
