"""INV-17: what a plan counts as available is what admission counts."""

from __future__ import annotations


def plan_is_admitted(
    *, required_bytes: int, planned_available_bytes: int, admitted_available_bytes: int, is_admitted: bool
) -> bool:
    """INV-17: on a device that did not change between planning and admission (a release in between is no change), both
    held the price against the same figure, and admission lets it run exactly where the plan said that it fits."""
    fits = planned_available_bytes >= 0 and required_bytes <= planned_available_bytes
    return planned_available_bytes == admitted_available_bytes and is_admitted == fits
