"""Hypothesis strategies over waves, readings and reachable profiles, for this project's tests and for yours.

Belongs here: strategies of valid values, for tests of laws, planners and adapters; no test and no expected figure. May
import: kernel; Hypothesis (the `testing` extra). Nothing else in `pricing` imports this package.
"""

from pricing.testing.strategies import (
    counts,
    growths,
    histories,
    incomplete_readings,
    readings,
    request_groups,
    request_specs,
    safeties,
    seeded_profiles,
    waves,
    waves_and_profiles,
    workloads,
)
from pricing.testing.strategies import (
    profiles as reachable_profiles,
)

__all__ = [
    "counts",
    "growths",
    "histories",
    "incomplete_readings",
    "reachable_profiles",
    "readings",
    "request_groups",
    "request_specs",
    "safeties",
    "seeded_profiles",
    "waves",
    "waves_and_profiles",
    "workloads",
]
